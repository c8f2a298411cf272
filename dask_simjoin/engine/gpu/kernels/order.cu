// The kd order of dask_simjoin/engine/index/kdorder.py, level by level, in few kernels: with array expressions
// starting them took most of the time.
//
// Constants: VALUE_BITS of a number.  Samples of a block are 32, a warp's lanes.

// The bits of float32 numbers as int32 in their order, and back again.
__device__ __forceinline__ int flipped(int bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

// The columns' values as numbers in their order (int32), column after column, and the first order.
extern "C" __global__ void numbers(const double* __restrict__ x, long long row_step, long long column_step,
                                   const int* __restrict__ columns, const double* __restrict__ centre,
                                   double scale, int n, int number, int* __restrict__ values,
                                   int* __restrict__ order) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        order[i] = i;
        for (int m = 0; m < number; m++) {
            const double value = (x[i * row_step + columns[m] * column_step] - centre[m]) * scale;
            values[(size_t)m * n + i] = flipped(__float_as_int((float)value));
        }
    }
}

// In which of the columns each block of `size` points is widest, told from 32 of them.
extern "C" __global__ void widest_columns(const int* __restrict__ values, const int* __restrict__ order, int n,
                                          int number, int size, int blocks, int* __restrict__ widest) {
    const int block = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (block >= blocks) return;
    const long long at = (long long)block * size + (long long)lane * size / 32;
    const int place = order[at < n ? at : n - 1];
    double most = -1;
    int best = 0;
    for (int m = 0; m < number; m++) {
        const double value = __int_as_float(flipped(values[(size_t)m * n + place]));
        double sum = value;
#pragma unroll
        for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(FULL, sum, o);
        const double away = value - sum / 32;
        double squares = away * away;
#pragma unroll
        for (int o = 16; o; o >>= 1) squares += __shfl_xor_sync(FULL, squares, o);
        if (squares > most) {
            most = squares;
            best = m;
        }
    }
    if (lane == 0) widest[block] = best;
}

// What a level sorts by: block, value less its last `shift` bits, place.
extern "C" __global__ void sort_keys(const int* __restrict__ values, const int* __restrict__ order,
                                     const int* __restrict__ widest, int n, int size_bits, int shift,
                                     int place_bits, u64* __restrict__ keys) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const u32 block = i >> size_bits;
        // from the least int32 on
        const u64 value = ((u32)values[(size_t)widest[block] * n + order[i]] ^ 0x80000000u) >> shift;
        keys[i] = ((u64)block << (VALUE_BITS - shift) | value) << place_bits | i;
    }
}

// The order that the sorted keys tell.
extern "C" __global__ void reorder(const u64* __restrict__ keys, const int* __restrict__ order, int n,
                                   int place_bits, int* __restrict__ next) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x)
        next[i] = order[keys[i] & ((1ull << place_bits) - 1)];
}
