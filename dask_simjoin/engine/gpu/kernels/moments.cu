#include "common.cuh"
// Computes bounds, sums and sums of squared deviations of the columns of a Fortran-contiguous array. Many thread blocks
// share a column, because array expressions use only one block per column.
//
// Constants: those of common.cuh. The grid has one row of blocks per column.

// Combines the values of all threads of a block (8 warps); the first thread gets the result.
template <typename Together>
__device__ __forceinline__ double of_block(double value, double* s_values, Together together) {
#pragma unroll
    for (int o = 16; o; o >>= 1) value = together(value, __shfl_xor_sync(FULL, value, o));
    __syncthreads();
    if ((threadIdx.x & 31) == 0) s_values[threadIdx.x >> 5] = value;
    __syncthreads();
    for (int w = 0; w < (int)(blockDim.x >> 5); w++) value = w ? together(value, s_values[w]) : s_values[0];
    return value;
}

struct Sum {
    __device__ double operator()(double a, double b) { return a + b; }
};
struct Least {
    __device__ double operator()(double a, double b) { return fmin(a, b); }
};
struct Most {
    __device__ double operator()(double a, double b) { return fmax(a, b); }
};

// Writes minimum, maximum and sum of each block's share of each column to `found` (3, columns, blocks).
extern "C" __global__ void column_sums(const double* __restrict__ x, u64 n, double* __restrict__ found) {
    __shared__ double s_values[32];
    const double* column = x + blockIdx.y * n;
    const double first = column[0];
    double least = first, most = first, sum = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        const double value = column[i];
        least = fmin(least, value);
        most = fmax(most, value);
        sum += value;
    }
    // minimum and maximum ignore NaN, but the sum becomes NaN, so the caller sees it and discards all results
    sum = of_block(sum, s_values, Sum());
    least = of_block(least, s_values, Least());
    most = of_block(most, s_values, Most());
    if (threadIdx.x == 0) {
        const u64 at = blockIdx.y * (u64)gridDim.x + blockIdx.x, step = (u64)gridDim.x * gridDim.y;
        found[at] = least;
        found[at + step] = most;
        found[at + 2 * step] = sum;
    }
}

// Writes the sums of squared deviations from `centre` to `found` (columns, blocks).
extern "C" __global__ void column_squares(const double* __restrict__ x, u64 n, const double* __restrict__ centre,
                                          double* __restrict__ found) {
    __shared__ double s_values[32];
    const double* column = x + blockIdx.y * n;
    const double from = centre[blockIdx.y];
    double sum = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        const double away = column[i] - from;
        sum = fma(away, away, sum);
    }
    sum = of_block(sum, s_values, Sum());
    if (threadIdx.x == 0) found[blockIdx.y * (u64)gridDim.x + blockIdx.x] = sum;
}
