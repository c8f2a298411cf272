// Leaves of binary trees of boxes for points of few dimensions. A leaf has LEAF consecutive points.
//
// Bounds are float32 numbers. Sums of rounded terms are rounded down, one operation after the other, like the total of
// two points in float64. So they are at most the total that float64 computes: a float32 number that is at most a number
// is also at most that number after rounding to float64.
//
// Constants: DIMS; NORM; LEAF.

#define NO_NAME 0xffffffffffffffffull
#define LARGEST 3.402823466e+38f
#define NORMAL 1.17549435e-38f // smaller numbers may be flushed to 0

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }

// Returns a float32 number that is at most `a`.
__device__ __forceinline__ float below(double a) {
    const float b = __double2float_rd(a);
    return fabsf(b) < NORMAL ? (a < 0 ? -NORMAL : 0.f) : b;
}

// Returns a float32 number that is at least `a`.
__device__ __forceinline__ float above(double a) { return -below(-a); }
