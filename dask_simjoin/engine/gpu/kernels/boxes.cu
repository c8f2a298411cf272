#include "common.cuh"
// Builds the same tree of boxes as `boxed` in dask_simjoin/engine/index/gpu.py, but in few launches. Array expressions
// would spend most of their time on launches, and the rest on reductions of short rows.
//
// Constants: EXACT 0 (points are scaled and rounded to float32 for filters) or 1 (float64). A warp finds the bounds of
// one tile or group in one dimension. The next warp takes the next dimension, because values of adjacent dimensions are
// adjacent in memory.

__device__ __forceinline__ real nothing() { return (real)__longlong_as_double(0x7ff0000000000000ll); }

__device__ __forceinline__ void write_bounds(real low, real high, size_t at, real* lower, real* upper) {
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const real other_low = __shfl_xor_sync(FULL, low, o), other_high = __shfl_xor_sync(FULL, high, o);
        low = other_low < low ? other_low : low;
        high = larger(high, other_high);
    }
    if ((threadIdx.x & 31) == 0) {
        lower[at] = low;
        upper[at] = high;
    }
}

// Writes the boxes of the tiles of y (n, dims). Incomplete groups are filled up with empty boxes. If `z` is given,
// also writes the points by tile, and repeats the last point to fill its tile.
extern "C" __global__ void tile_boxes(const stored* __restrict__ y, int n, int dims,
                                      const double* __restrict__ centre, double scale, int tile, int groups,
                                      real* __restrict__ z, real* __restrict__ lower, real* __restrict__ upper) {
    const int lane = threadIdx.x & 31;
    const u64 units = (u64)groups * FANOUT * dims, step = (u64)gridDim.x * (blockDim.x >> 5);
    for (u64 unit = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); unit < units; unit += step) {
        const long long t = unit / dims;
        const int k = unit % dims;
        real low = nothing(), high = -nothing();
        for (long long r = lane; r < tile && t * tile < n; r += 32) {
            const long long i = t * tile + r < n ? t * tile + r : n - 1;
#if EXACT
            const real value = stored_point(y + i * STORED_NUMBERS(dims), dims)[k];
#else
            const double coordinate = stored_point(y + i * STORED_NUMBERS(dims), dims)[k];
            const real value = (real)__dmul_rn(__dsub_rn(coordinate, centre[k]), scale);
#endif
            if (z) z[((size_t)t * dims + k) * tile + r] = value;
            low = value < low ? value : low;
            high = larger(high, value);
        }
        write_bounds(low, high, ((size_t)(t / FANOUT) * dims + k) * FANOUT + t % FANOUT, lower, upper);
    }
}

// Writes one level of the tree; its groups start at `above`. Each of its boxes covers a group of the level below; those
// groups start at `first`.
extern "C" __global__ void group_boxes(int dims, int first, int groups, int above, int groups_above,
                                       real* __restrict__ lower, real* __restrict__ upper) {
    const int lane = threadIdx.x & 31;
    const u64 units = (u64)groups_above * FANOUT * dims, step = (u64)gridDim.x * (blockDim.x >> 5);
    for (u64 unit = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); unit < units; unit += step) {
        const int g = unit / dims, k = unit % dims;
        real low = nothing(), high = -nothing();
        for (int c = lane; c < FANOUT && g < groups; c += 32) {
            const size_t at = ((size_t)(first + g) * dims + k) * FANOUT + c;
            low = lower[at] < low ? lower[at] : low;
            high = larger(high, upper[at]);
        }
        write_bounds(low, high, ((size_t)(above + g / FANOUT) * dims + k) * FANOUT + g % FANOUT, lower, upper);
    }
}
