// The kd order of dask_simjoin/engine/index/kdorder.py, level by level, in few kernels: with array expressions
// starting them took most of the time.
//
// Constants: VALUE_BITS of a number; MAX_CUT_DIMS.  Samples of a block are 32, a warp's lanes.

// The least and the largest value of each of the columns, as far as a block of threads sees them.
extern "C" __global__ void column_bounds(const double* __restrict__ x, long long row_step, long long column_step,
                                         const int* __restrict__ columns, int n, double* __restrict__ low,
                                         double* __restrict__ high) {
    __shared__ double lows[32], highs[32];
    const int m = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const double* column = x + columns[m] * column_step;
    double least = column[0], most = least;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const double value = column[i * row_step];
        least = fmin(least, value);
        most = fmax(most, value);
    }
    for (int round = 0; round < 2; round++) { // of the warps, then of the block
#pragma unroll
        for (int o = 16; o; o >>= 1) {
            least = fmin(least, __shfl_xor_sync(FULL, least, o));
            most = fmax(most, __shfl_xor_sync(FULL, most, o));
        }
        if (round) break;
        if (lane == 0) {
            lows[warp] = least;
            highs[warp] = most;
        }
        __syncthreads();
        least = lows[lane < blockDim.x >> 5 ? lane : 0];
        most = highs[lane < blockDim.x >> 5 ? lane : 0];
    }
    if (threadIdx.x == 0) {
        low[m * gridDim.x + blockIdx.x] = least;
        high[m * gridDim.x + blockIdx.x] = most;
    }
}

// The columns' values as numbers in their order (int32), column after column, and the first order.  Each column
// has `parts` bounds.
extern "C" __global__ void quantise(const double* __restrict__ x, long long row_step, long long column_step,
                                    const int* __restrict__ columns, const double* __restrict__ low,
                                    const double* __restrict__ high, int parts, double least_span, int n, int number,
                                    int* __restrict__ values, int* __restrict__ order) {
    __shared__ double s_from[MAX_CUT_DIMS], s_factor[MAX_CUT_DIMS];
    for (int m = threadIdx.x >> 5; m < number; m += blockDim.x >> 5) {
        double least = low[m * parts], most = high[m * parts];
        for (int part = threadIdx.x & 31; part < parts; part += 32) {
            least = fmin(least, low[m * parts + part]);
            most = fmax(most, high[m * parts + part]);
        }
#pragma unroll
        for (int o = 16; o; o >>= 1) {
            least = fmin(least, __shfl_xor_sync(FULL, least, o));
            most = fmax(most, __shfl_xor_sync(FULL, most, o));
        }
        // halves: the difference of two finite numbers need not be finite
        s_from[m] = least * 0.5;
        s_factor[m] = (1 << VALUE_BITS) * (1 - 9.5367431640625e-7) / fmax(most * 0.5 - least * 0.5, least_span);
    }
    __syncthreads();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        order[i] = i;
        for (int m = 0; m < number; m++)
            values[(size_t)m * n + i] = (int)((x[i * row_step + columns[m] * column_step] * 0.5 - s_from[m]) * s_factor[m]);
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
        const double value = values[(size_t)m * n + place];
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
        const u64 value = values[(size_t)widest[block] * n + order[i]] >> shift;
        keys[i] = ((u64)block << (VALUE_BITS - shift) | value) << place_bits | i;
    }
}

// The order that the sorted keys tell.
extern "C" __global__ void reorder(const u64* __restrict__ keys, const int* __restrict__ order, int n,
                                   int place_bits, int* __restrict__ next) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x)
        next[i] = order[keys[i] & ((1ull << place_bits) - 1)];
}
