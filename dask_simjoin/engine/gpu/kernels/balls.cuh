// Balls around the points of each tile, in the coordinates of the filter.
//
// Constants: DIMS, EXACT.

#define TILE 64

__device__ __forceinline__ double most_of_warp(double value) {
#pragma unroll
    for (int o = 16; o; o >>= 1) value = fmax(value, __shfl_xor_sync(FULL, value, o));
    return value;
}

#if !EXACT
// Writes the center and the radius of a ball that covers all points of each tile of `z`. One warp per tile.
extern "C" __global__ void
tile_balls(const float* __restrict__ z, int tiles, float* __restrict__ middle, float* __restrict__ radius) {
    const int lane = threadIdx.x & 31;
    const u32 step = gridDim.x * (blockDim.x >> 5);
    for (u32 t = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); t < (u32)tiles; t += step) {
        const float* tile = z + (size_t)t * DIMS * TILE + lane;
        double sum[2] = {};
        for (int j = 0; j < DIMS; j++) {
            const float x0 = tile[j * TILE], x1 = tile[j * TILE + 32];
            float total = x0 + x1;
#pragma unroll
            for (int o = 16; o; o >>= 1) total += __shfl_xor_sync(FULL, total, o);
            const float mean = __shfl_sync(FULL, total, 0) / TILE;
            if (lane == 0) middle[(size_t)t * DIMS + j] = mean;
            const double t0 = (double)x0 - mean, t1 = (double)x1 - mean;
            sum[0] += t0 * t0;
            sum[1] += t1 * t1;
        }
        // the factor covers the rounding of the sums in float64
        const double most = sqrt(most_of_warp(fmax(sum[0], sum[1]))) * (1 + 1e-10);
        if (lane == 0) radius[t] = __double2float_ru(most);
    }
}
#endif
