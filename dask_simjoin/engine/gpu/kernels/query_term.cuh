// The term s_i of a query, which is added to the product of its vector and the vector of a point. If the sum is
// negative, the point is too far away to be a neighbor.
//
// Constants: DIMS; WIDTH of a vector.

#define EVERY 30000.0      // term that lets every point pass; it is a float16 number
#define NOWHERE -60000.0   // term that lets no point pass

__device__ __forceinline__ half_bits to_half(double& rest) {
    half_bits bits;
    float number;
    asm("cvt.rn.f16.f32 %0,%1;" : "=h"(bits) : "f"((float)rest));
    asm("cvt.f32.f16 %0,%1;" : "=f"(number) : "h"(bits));
    rest -= number;
    return bits;
}

// Returns the last eight numbers of a query's vector, (1, 1, 1, 0, s0, s1, s2, 0), where s0 + s1 + s2 is s.
__device__ __forceinline__ uint4 tail(double s) {
    const u32 one = 0x3c00, s0 = to_half(s), s1 = to_half(s), s2 = to_half(s);
    return make_uint4(one | one << 16, one, s0 | s1 << 16, s2);
}

// Returns s_i for a query whose neighbors have totals of at most `d2`: see `query_term` in engine/filters/float16.py.
__device__ __forceinline__ double query_term(double d2, double scale2, double norm, double error,
                                             double most_error) {
    const double square = scaled_square(d2, scale2);
    if (!(square < EVERYWHERE)) return EVERY;
    const double away = sqrt(square) * (1 + 8 * U52);
    const double t = away * away + 2 * away * (error + most_error) + 2 * error * error;
    const double s = (t - norm) / 2 + 3 * WIDTH * 1.1920928955078125e-7 * (norm + t + 1) + 5.9604644775390625e-8;
    return s + 9.313225746154785e-10 * fabs(s);
}
