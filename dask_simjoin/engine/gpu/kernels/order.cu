#include "common.cuh"
// Builds the kd order of dask_simjoin/engine/index/kdtree.py level by level, in few kernels. As array expressions,
// it would spend most of its time on launches.
//
// Constants: VALUE_BITS of a coordinate in a sort key; SAMPLES: values for the median; BLOCK: maximum number of points
// that one thread block sorts. The sample that finds the widest column of a block has 32 points, one per lane.

// Returns a coordinate of point i.
__device__ __forceinline__ double coordinate(const stored* __restrict__ x, long long i, int column,
                                             long long row_step, long long column_step) {
#if STORED
    return stored_point(x + i * row_step, row_step - STORED_NUMBERS(0))[column];   // rows are contiguous
#else
    return x[i * row_step + column * column_step];
#endif
}

// Maps the bits of a float32 number to an int32 number, so that both have the same order. Also maps it back.
__device__ __forceinline__ int flipped(int bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

// Writes columns as int32 numbers that have the same order as the values. Also writes the initial order of points.
extern "C" __global__ void numbers(const stored* __restrict__ x, long long row_step, long long column_step,
                                   const int* __restrict__ columns, const double* __restrict__ centre,
                                   double scale, int n, int number, int* __restrict__ values,
                                   int* __restrict__ order) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        order[i] = i;
        for (int m = 0; m < number; m++) {
            const double value = (coordinate(x, i, columns[m], row_step, column_step) - centre[m]) * scale;
            values[(size_t)m * n + i] = flipped(__float_as_int((float)value));
        }
    }
}

// Writes a central value of each column: the median of `SAMPLES` of its values.
extern "C" __global__ void middle(const stored* __restrict__ x, long long row_step, long long column_step,
                                  const int* __restrict__ columns, int n, int number, double* __restrict__ centre) {
    for (int m = threadIdx.x; m < number; m += blockDim.x) {
        double sorted[SAMPLES];
        for (int k = 0; k < SAMPLES; k++) {
            const long long row = (long long)k * n / SAMPLES;
            const double value = coordinate(x, row, columns[m], row_step, column_step);
            int at = k;
            for (; at > 0 && sorted[at - 1] > value; at--) sorted[at] = sorted[at - 1];
            sorted[at] = value;
        }
        centre[m] = sorted[SAMPLES / 2];
    }
}

// Returns the column with the largest variance among 32 points. `place`: the point of each lane.
__device__ __forceinline__ int widest_of(const int* __restrict__ values, int place, int n, int number) {
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
    return best;
}

// Returns a value as an unsigned number, so that numbers have the same order as values.
__device__ __forceinline__ u32 rank_of(const int* __restrict__ values, int column, int n, int place) {
    return (u32)values[(size_t)column * n + place] ^ 0x80000000u;
}

// Estimates the widest column of each block of `size` points, from a sample of 32 points.
extern "C" __global__ void widest_columns(const int* __restrict__ values, const int* __restrict__ order, int n,
                                          int number, int size, int blocks, int* __restrict__ widest) {
    const int block = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (block >= blocks) return;
    const long long at = (long long)block * size + (long long)lane * size / 32;
    const int best = widest_of(values, order[at < n ? at : n - 1], n, number);
    if (lane == 0) widest[block] = best;
}

// Writes the sort keys of a level. From the highest bits on, a key has the block, the value without its last `shift`
// bits, and the position in the current order.
extern "C" __global__ void sort_keys(const int* __restrict__ values, const int* __restrict__ order,
                                     const int* __restrict__ widest, int n, int size_bits, int shift,
                                     int place_bits, u64* __restrict__ keys) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const u32 block = i >> size_bits;
        const u64 value = rank_of(values, widest[block], n, order[i]) >> shift;
        keys[i] = ((u64)block << (VALUE_BITS - shift) | value) << place_bits | i;
    }
}

// Writes the next order of points: the sorted keys contain positions in the current order.
extern "C" __global__ void reorder(const u64* __restrict__ keys, const int* __restrict__ order, int n,
                                   int place_bits, int* __restrict__ next) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x)
        next[i] = order[keys[i] & ((1ull << place_bits) - 1)];
}

// Sorts `size` keys, a power of two and at least 64, with Batcher's bitonic network.
__device__ __forceinline__ void sort_block(u64* keys, int size) {
    for (int k = 2; k <= size; k <<= 1) {
        for (int j = k >> 1; j; j >>= 1) {
            for (int i = threadIdx.x; i < size >> 1; i += blockDim.x) {
                const int a = (i & ~(j - 1)) << 1 | (i & (j - 1)), b = a | j;
                const u64 first = keys[a], second = keys[b];
                if ((first > second) == ((a & k) == 0)) {
                    keys[a] = second;
                    keys[b] = first;
                }
            }
            if (j > 32 || j == 1) __syncthreads();
            else __syncwarp(); // in these steps, a warp reads only keys that it has written itself
        }
    }
}

// Runs the last levels: one thread block sorts each block of `size` <= BLOCK points, down to blocks of `tile` points.
extern "C" __global__ void __launch_bounds__(256)
order_blocks(const int* __restrict__ values, const int* __restrict__ order, int n, int number, int size, int tile,
             int fan_out, int* __restrict__ next) {
    __shared__ u64 keys[BLOCK];
    __shared__ int held[BLOCK], widest[BLOCK / 32];
    const long long base = (long long)blockIdx.x * size;
    const int there = n - base < size ? n - base : size, lane = threadIdx.x & 31;
    for (int i = threadIdx.x; i < there; i += blockDim.x) held[i] = order[base + i];
    for (int step = size; step > tile; step = step / fan_out > tile ? step / fan_out : tile) {
        __syncthreads();
        for (int block = threadIdx.x >> 5; block * step < there; block += blockDim.x >> 5) {
            const int at = block * step + lane * step / 32;
            const int best = widest_of(values, held[at < there ? at : there - 1], n, number);
            if (lane == 0) widest[block] = best;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < size; i += blockDim.x) {
            const int block = i / step;
            keys[i] = ~0ull;
            if (i < there)
                keys[i] = ((u64)block << VALUE_BITS | rank_of(values, widest[block], n, held[i])) << 16 | i;
        }
        __syncthreads();
        sort_block(keys, size);
        for (int i = threadIdx.x; i < there; i += blockDim.x) keys[i] = held[keys[i] & 0xffff];
        __syncthreads();
        for (int i = threadIdx.x; i < there; i += blockDim.x) held[i] = keys[i];
    }
    for (int i = threadIdx.x; i < there; i += blockDim.x) next[base + i] = held[i];
}

// Copies the rows of x at the positions `places`. A row has `dims` stored numbers.
extern "C" __global__ void take_rows(const stored* __restrict__ x, long long row_step, long long column_step,
                                     const int* __restrict__ places, long long rows, int dims,
                                     stored* __restrict__ out) {
    const u64 number = (u64)rows * dims;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < number; i += (u64)gridDim.x * blockDim.x) {
        // 32-bit division is much faster, so it is used if it suffices
        const u64 row = number >> 32 ? i / dims : (u32)i / (u32)dims;
        out[i] = x[places[row] * row_step + (long long)(i - row * dims) * column_step];
    }
}
