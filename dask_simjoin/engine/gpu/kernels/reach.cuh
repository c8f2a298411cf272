// Converts a search distance to the bounds of the float32 filter, again and again while the distance shrinks. All
// kernels that search trees of boxes use it.
//
// Constants: DIMS, EXACT, NORM.

// Like `total_of`, but it reads 16 coordinates before it uses any of them, which is faster.
__device__ __forceinline__ double away_from(const double* __restrict__ p, const double* __restrict__ q) {
    double sum = 0.0;
    for (int j = 0; j < DIMS; j += 16) {
        double x[16], y[16];
#pragma unroll
        for (int m = 0; m < 16; m++) {
            if (j + m < DIMS) {
                x[m] = p[j + m];
                y[m] = q[j + m];
            }
        }
#pragma unroll
        for (int m = 0; m < 16; m++) {
            if (j + m < DIMS) {
                const double t = __dsub_rn(x[m], y[m]);
#if EXACT
                sum = add_term(sum, t);
#else
                sum = __dadd_rn(sum, __dmul_rn(t, t));
#endif
            }
        }
    }
    return sum;
}

#define EVERYWHERE 32768.0 // no scaled squared distance exceeds this: see NearestDeviceLayout
#define U52 2.220446049250313e-16
#define TINY 4.9406564584124654e-324

// Returns E**2, where E bounds the scaled distance of two points whose computed d2 is at most `d2`. E is `outer` in
// engine/filters/bounds.py. The margin for underflow of sums also covers underflow here.
__device__ __forceinline__ double scaled_square(double d2, double scale2) {
    return (d2 * (1 + (DIMS + 8) * U52) + (DIMS + 2) * TINY) * scale2;
}

#if !EXACT
// Returns the largest distance that two points with a d2 of at most `d2` can have in the filter's coordinates.
__device__ __forceinline__ double farthest(double d2, double scale2, double rho) {
    const double square = scaled_square(d2, scale2);
    if (!(square < EVERYWHERE)) return __longlong_as_double(0x7ff0000000000000ll);
    return sqrt(square) * (1 + 8 * U52) + rho;
}
#endif

// Returns the largest sum of squares that the filter can compute for two points with a d2 of at most `d2`. It is
// `reach` in engine/filters/bounds.py.
__device__ __forceinline__ real reach_of(double d2, double scale2, double rho) {
#if EXACT
    return d2;
#else
    const double most = farthest(d2, scale2, rho);
    if (!(most < EVERYWHERE)) return __int_as_float(0x7f800000);
    return __double2float_ru(most * most * (1 + (DIMS + 7) * 5.9604644775390625e-8) + DIMS * 7.2e-43);
#endif
}

__device__ __forceinline__ real warp_max(real value) {
#pragma unroll
    for (int o = 16; o; o >>= 1) value = larger(value, __shfl_xor_sync(FULL, value, o));
    return value;
}

__device__ __forceinline__ u32 warp_min(u32 value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(FULL, value);
#else
#pragma unroll
    for (int o = 16; o; o >>= 1) value = min(value, __shfl_xor_sync(FULL, value, o));
    return value;
#endif
}

// Returns the approximate distance of a point from a box in one dimension. It serves to visit nearer boxes first, so it
// need not be exact.
__device__ __forceinline__ float aside(real low, real high, real at) {
    return fmaxf(fmaxf((float)(low - at), (float)(at - high)), 0.f);
}
