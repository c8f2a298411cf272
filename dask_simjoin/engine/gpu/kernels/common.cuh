// Code that all kernels share. It includes no header files, because NVRTC would have to find them.
//
// A join is divided into units of work. A unit compares a block of consecutive queries with some ranges of data tiles.
// A range is a node of the tree of boxes two levels above the tiles: at most 64 groups of 64 tiles. Thread blocks take
// units from a counter, so all blocks are busy until the end, even if units differ in work.
//
// Pairs are first collected (staged) in shared memory. Then they are written to the output, 8 bytes each. A counter
// assigns their positions there. When the counter passes `room`, every block saves its state and stops. The next launch
// resumes from there. So an output of fixed size serves any number of pairs. A block checks the counter only when it
// writes staged pairs, and it finishes its tile before it stops. So the output has space beyond `room` for the staged
// pairs and one tile of every block (see `slack` in engine/gpu/tiles.py).

typedef unsigned long long u64;
typedef unsigned int u32;

#define FULL 0xffffffffu
#define RANGE (FANOUT * FANOUT) // maximum number of tiles in a range

#ifndef NORM
#define NORM 2             // 1, 2, 3, ...; 0 stands for infinity
#endif

#if EXACT
typedef double real;
__device__ __forceinline__ real plus(real a, real b) { return __dadd_rn(a, b); }
__device__ __forceinline__ real minus(real a, real b) { return __dsub_rn(a, b); }
// Returns sum + t*t as the metric defines it: without fused multiply-add.
__device__ __forceinline__ real add_square(real sum, real t) { return __dadd_rn(sum, __dmul_rn(t, t)); }
__device__ __forceinline__ real larger(real a, real b) { return fmax(a, b); }
#else
typedef float real;
__device__ __forceinline__ real plus(real a, real b) { return a + b; }
__device__ __forceinline__ real minus(real a, real b) { return a - b; }
__device__ __forceinline__ real add_square(real sum, real t) { return fmaf(t, t, sum); }
__device__ __forceinline__ real larger(real a, real b) { return fmaxf(a, b); }
#if NORM != 2
#error "filters serve the norm 2 only"
#endif
#endif

// How an index stores a point (see dask_simjoin/engine/compat.py). STORED 0: as float64 numbers. 1: as float32 numbers.
// 2: as float32 numbers that are divided by a length. The two halves of this float64 length come after the numbers.
#ifndef STORED
#define STORED 0
#endif

#if STORED
// Converts a number exactly. This is an assembler instruction, because a plain cast would flush small numbers to 0 with
// the options that CuPy passes to NVRTC.
__device__ __forceinline__ double widened(float a) {
    double b;
    asm("cvt.f64.f32 %0, %1;" : "=d"(b) : "f"(a));
    return b;
}
#endif

#if STORED == 0
typedef double stored;
typedef const double* Point;
#define STORED_NUMBERS(dims) (dims)
__device__ __forceinline__ Point stored_point(const stored* row, int) { return row; }
#elif STORED == 1
typedef float stored;
#define STORED_NUMBERS(dims) (dims)
struct Point {
    const stored* row;
    __device__ __forceinline__ double operator[](int k) const { return widened(row[k]); }
};
__device__ __forceinline__ Point stored_point(const stored* row, int) { return {row}; }
#else
typedef u32 stored;
#define STORED_NUMBERS(dims) ((dims) + 2)
struct Point {
    const stored* row;
    double length;
    __device__ __forceinline__ double operator[](int k) const {
        return __ddiv_rn(widened(__uint_as_float(row[k])), length);
    }
};
__device__ __forceinline__ Point stored_point(const stored* row, int dims) {
    return {row, __hiloint2double(row[dims + 1], row[dims])};
}
#endif

#define ROW STORED_NUMBERS(DIMS)    // stored numbers of a point

// Returns point `i` of an index's points.
__device__ __forceinline__ Point point_at(const stored* points, size_t i) {
    return stored_point(points + i * ROW, DIMS);
}

__device__ constexpr u64 highest_bit(u64 p) { return p > 1 ? highest_bit(p >> 1) << 1 : 1; }

// Adds one dimension with the difference t to a total (see dask_simjoin/metrics/norms.py).
__device__ __forceinline__ real add_term(real sum, real t) {
#if NORM == 0
    return larger(sum, fabs(t));
#elif NORM == 1
    return plus(sum, fabs(t));
#elif NORM == 2
    return add_square(sum, t);
#else
    const real a = fabs(t);
    real result = a;
#pragma unroll
    for (u64 bit = highest_bit(NORM) >> 1; bit; bit >>= 1) {
        result = __dmul_rn(result, result);
        if (NORM & bit) result = __dmul_rn(result, a);
    }
    return plus(sum, result);
#endif
}

#if EXACT
// The total of two points by definition: in float64, one rounding per operation, summed in column order.
__device__ __forceinline__ double total_of(Point p, Point q) {
    double sum = 0.0;
#pragma unroll 4
    for (int k = 0; k < DIMS; k++) sum = add_term(sum, minus(p[k], q[k]));
    return sum;
}
#endif

// `total_of` for norm 2, in float64 for both types of `real`.
__device__ __forceinline__ double squared_distance(Point p, Point q) {
    double sum = 0.0;
#pragma unroll 4
    for (int k = 0; k < DIMS; k++) {
        double t = __dsub_rn(p[k], q[k]);
        sum = __dadd_rn(sum, __dmul_rn(t, t));
    }
    return sum;
}

// Returns whether the box [low, high] is within `reach` of the box of child `c` of a tree node.
__device__ __forceinline__ bool box_near(const real* lower, const real* upper, int c, const real* low,
                                         const real* high, real reach) {
    real sum = 0;
#pragma unroll 4
    for (int k = 0; k < DIMS; k++) {
        real gap = larger(minus(lower[k * FANOUT + c], high[k]), minus(low[k], upper[k * FANOUT + c]));
        sum = add_term(sum, larger(gap, (real)0));
    }
    return sum <= reach;
}

// Returns whether block i is compared with block j in a self-join. Blocks are arranged on a circle, and each is
// compared with the half of the circle after it. So each pair of blocks is compared once, and all blocks have equal
// work. If blocks were compared with all later blocks, the first block would have most of the work.
__device__ __forceinline__ bool meets(int i, int j, int blocks) {
    int away = j - i;
    if (away < 0) away += blocks;
    return 2 * away < blocks || (2 * away == blocks && i < j);
}
