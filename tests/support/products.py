"""A kernel that shows how tensor cores round, for tests of kernels that use them."""

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
"""Multiplies 16 rows of x by 8 of y, as one warp does; appended to a file with
`multiply_add`.
"""

PRODUCTS_OF_WARPGROUP = """
extern "C" __global__ void products_of_warpgroup(const half_bits* x, const half_bits* y, float* out) {
    __shared__ __align__(1024) half_bits s_x[64 * 64], s_y[128 * 64];
    const int tid = threadIdx.x, lane = tid & 31;
    float sums[64];
    for (int s = 0; s < (WIDTH + 63) / 64; s++) {
        const int number = min(64, WIDTH - s * 64);
        for (int at = tid; at < 128 * 64; at += 128) {
            const int row = at / 64, k = at % 64, to = row * 64 + (k / 8 ^ row % 8) * 8 + k % 8;
            s_y[to] = k < number ? y[row * WIDTH + s * 64 + k] : 0;
            if (row < 64) s_x[to] = k < number ? x[row * WIDTH + s * 64 + k] : 0;
        }
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();
        const u64 a = matrix<64>(shared_address(s_x)), b = matrix<64>(shared_address(s_y));
        hold(sums);
        begin_products();
        for (int k = 0; k < number / 16; k++) multiply(sums, a + 2 * k, b + 2 * k, s | k);
        end_products();
        products_done<0>();
        hold(sums);
        __syncthreads();
    }
    for (int e = 0; e < 64; e++) {
        const int row = tid / 32 * 16 + lane / 4 + (e >> 1 & 1) * 8;
        out[row * 128 + (e >> 2) * 8 + (lane & 3) * 2 + (e & 1)] = sums[e];
    }
}
"""
"""Multiplies 64 rows of x by 128 of y, as a warpgroup does; appended to
`tensor_hopper.cu`.
"""
