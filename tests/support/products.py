"""A kernel that shows how tensor cores round: for tests of those that use them."""

PRODUCTS = """
extern "C" __global__ void products(const half_bits* x, const half_bits* y, float* out) {
    const int lane = threadIdx.x, group = lane >> 2, pair = lane & 3;
    float c[4] = {};
    for (int k = 0; k < STEPS; k++) {
        const half_bits* p = x + group * WIDTH + k * 16 + pair * 2;
        const half_bits* q = y + group * WIDTH + k * 16 + pair * 2;
        u32 a[4] = {*(const u32*)p, *(const u32*)(p + 8 * WIDTH), *(const u32*)(p + 8),
                    *(const u32*)(p + 8 * WIDTH + 8)};
        multiply_add(c, a, *(const u32*)q, *(const u32*)(q + 8));
    }
    for (int e = 0; e < 4; e++) out[(group + 8 * (e >> 1)) * 8 + pair * 2 + (e & 1)] = c[e];
}
"""
"""16 rows of x times 8 of y, as one warp multiplies them; behind a file that has `multiply_add`."""
