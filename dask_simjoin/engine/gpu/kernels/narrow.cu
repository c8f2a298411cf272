#include "common.cuh"
// Converts points to float32, checks that they give the same float64 coordinates, and converts stored points to
// float64: see dask_simjoin/engine/compat.py. A thread block moves squares of 32 points and 32 dimensions through
// shared memory. Columns of the input are contiguous, but rows of the output are, so direct copies would be slow.
//
// Constants: STORED 1 or 2.

#define SIDE 32

__device__ __forceinline__ stored rounded(double a) {
    float b;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(b) : "d"(a));
#if STORED == 1
    return b;
#else
    return __float_as_uint(b);
#endif
}

// Writes the columns (number, dims) to `out` as stored points, with the lengths (number) if rows have them. Sets
// `differ` if a coordinate of a stored point differs in any bit from `points` (number, dims), unless that is NaN.
extern "C" __global__ void __launch_bounds__(SIDE * 8)
narrow_rows(const double* __restrict__ columns, long long row_step, long long column_step,
            const double* __restrict__ points, long long point_step, long long axis_step,
            const double* __restrict__ lengths, long long number, int dims, stored* __restrict__ out,
            int* __restrict__ differ) {
    __shared__ stored square[SIDE][SIDE + 1];
    const int lane = threadIdx.x % SIDE, warp = threadIdx.x / SIDE;
    const int across = (dims + SIDE - 1) / SIDE;
    const u64 squares = (u64)((number + SIDE - 1) / SIDE) * across;
    bool other = false;
    for (u64 s = blockIdx.x; s < squares; s += gridDim.x) {
        const long long row0 = (long long)(s / across) * SIDE;
        const int k0 = (int)(s % across) * SIDE;
        const long long i = row0 + lane;
        for (int m = warp; m < SIDE && i < number && k0 + m < dims; m += 8) {
            const int k = k0 + m;
            const stored narrow = rounded(columns[i * row_step + k * column_step]);
            square[m][lane] = narrow;
#if STORED == 1
            const double same = widened(narrow);
#else
            const double same = __ddiv_rn(widened(__uint_as_float(narrow)), lengths[i]);
#endif
            const double wanted = points[i * point_step + k * axis_step];
            other = other || (wanted == wanted && __double_as_longlong(same) != __double_as_longlong(wanted));
        }
        __syncthreads();
        for (int m = warp; m < SIDE && row0 + m < number; m += 8) {
            stored* row = out + (row0 + m) * STORED_NUMBERS((long long)dims);
            if (k0 + lane < dims) row[k0 + lane] = square[lane][m];
#if STORED == 2
            if (k0 == 0 && lane < 2) {
                const double length = lengths[row0 + m];
                row[dims + lane] = lane ? __double2hiint(length) : __double2loint(length);
            }
#endif
        }
        __syncthreads();
    }
    if (__any_sync(FULL, other) && lane == 0) *differ = 1;
}

// Writes the coordinates of stored points to `out` (number, dims), row by row.
extern "C" __global__ void widen_rows(const stored* __restrict__ rows, long long number, int dims,
                                      double* __restrict__ out) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (long long i = (long long)blockIdx.x * warps + threadIdx.x / 32; i < number; i += (long long)gridDim.x * warps) {
        const Point point = stored_point(rows + i * STORED_NUMBERS((long long)dims), dims);
        for (int k = lane; k < dims; k += 32) out[i * dims + k] = point[k];
    }
}
