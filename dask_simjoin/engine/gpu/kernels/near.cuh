// What the kernels share that join tiles of 128 points with blocks of 256 queries: which tiles are near.

#define QUERIES 256
#define TILE 128
#define WARPS 8
#define THREADS (32 * WARPS)

// The box of a block of queries: that of two tiles.
__device__ __forceinline__ void box_of_queries(int i, int tiles, const real* lower, const real* upper, real* low,
                                               real* high, int tid) {
    for (int k = tid; k < DIMS; k += THREADS) {
        const int t = 2 * i;
        size_t at = ((size_t)(t / FANOUT) * DIMS + k) * FANOUT + t % FANOUT;
        real least = lower[at], most = upper[at];
        if (t + 1 < tiles) {
            least = fminf(least, lower[at + 1]);
            most = fmaxf(most, upper[at + 1]);
        }
        low[k] = least;
        high[k] = most;
    }
}

struct Lists {             // of a block, in shared memory
    u64 mask[FANOUT];
    unsigned short tiles[RANGE];
    int begin[FANOUT + 1];
};

// The groups of range r, the tiles of those that are near, and the list of those tiles: how many there are.
// All threads call it; what is listed are places in the range.
__device__ __forceinline__ int list_tiles(Lists& lists, int i, int r, int tiles, int blocks, int same,
                                          const real* d_lower, const real* d_upper, int d_level1,
                                          const real* low, const real* high, real reach, int tid) {
    const int warp = tid >> 5, lane = tid & 31, groups = (tiles + FANOUT - 1) / FANOUT;
    const int group0 = r * FANOUT, tile0 = group0 * FANOUT;
    bool pass = false;
    if (tid < FANOUT && group0 + tid < groups) {
        size_t at = (size_t)(d_level1 + r) * DIMS * FANOUT;
        pass = d_level1 == 0 || box_near(d_lower + at, d_upper + at, tid, low, high, reach);
    }
    if (tid < FANOUT) lists.begin[tid] = pass;
    if (!__syncthreads_or(pass)) return 0;
    for (int g = warp; g < FANOUT; g += WARPS) {
        u64 mask = 0;
        if (lists.begin[g]) {
            size_t at = (size_t)(group0 + g) * DIMS * FANOUT;
            u32 half[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int c = lane + 32 * h, t = tile0 + g * FANOUT + c;
                bool near = t < tiles && (!same || meets(i, t >> 1, blocks));
                near = near && box_near(d_lower + at, d_upper + at, c, low, high, reach);
                half[h] = __ballot_sync(FULL, near);
            }
            mask = (u64)half[0] | (u64)half[1] << 32;
        }
        if (lane == 0) lists.mask[g] = mask;
    }
    __syncthreads();
    if (warp == 0) {
        int n0 = __popcll(lists.mask[2 * lane]), n1 = __popcll(lists.mask[2 * lane + 1]), sum = n0 + n1;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            int before = __shfl_up_sync(FULL, sum, o);
            if (lane >= o) sum += before;
        }
        lists.begin[2 * lane] = sum - n0 - n1;
        lists.begin[2 * lane + 1] = sum - n1;
        if (lane == 31) lists.begin[FANOUT] = sum;
    }
    __syncthreads();
    for (int at = tid; at < RANGE; at += THREADS) {
        u64 mask = lists.mask[at / FANOUT];
        if (mask >> at % FANOUT & 1)
            lists.tiles[lists.begin[at / FANOUT] + __popcll(mask & ((1ull << at % FANOUT) - 1))] = at;
    }
    __syncthreads();
    return lists.begin[FANOUT];
}
