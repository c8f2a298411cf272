// Bounds, sums and squares of columns that are stored one after the other. Many thread blocks share a column,
// because array expressions would use one block per column.
//
// It has no constants besides those of common.cuh. The grid has one row of blocks per column.

// Combines the results of all threads of a block (8 warps) in its first thread.
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

// found (3, columns, blocks): minimum, maximum and sum; NaN if a value is NaN.
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
    // minimum and maximum ignore NaN, but the sum shows it: then the caller computes all results again
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

// found (columns, blocks): sums of squared deviations from `centre`.
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
