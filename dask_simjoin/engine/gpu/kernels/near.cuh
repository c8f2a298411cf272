// Lists the tiles that a block of queries is compared with. A staged pair has the position of its tile in this list,
// because that takes fewer bits than the tile's number.

#ifndef SYNC               // kernels with more warps than these define their own barrier
#define SYNC() __syncthreads()
#define SYNC_OR(flag) __syncthreads_or(flag)
#endif

struct Lists {             // one per thread block, in shared memory
    u64 mask[FANOUT];
    unsigned short tiles[RANGE];
    int begin[FANOUT + 1];
};

// Lists the tiles of range r within reach of query block i, and returns their number. All threads must call it.
// Entries of the list are tile numbers relative to the range.
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
    if (!SYNC_OR(pass)) return 0;
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
    SYNC();
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
    SYNC();
    for (int at = tid; at < RANGE; at += THREADS) {
        u64 mask = lists.mask[at / FANOUT];
        if (mask >> at % FANOUT & 1)
            lists.tiles[lists.begin[at / FANOUT] + __popcll(mask & ((1ull << at % FANOUT) - 1))] = at;
    }
    SYNC();
    return lists.begin[FANOUT];
}

// Writes the staged pairs of a warp, or passes them to the sink. A staged pair has 32 bits: the tile as a position in
// the list, the query as one of ROWS rows of the warp, and the point in its tile.
template <int ROWS>
__device__ __forceinline__ void flush(Stage& stage, const u32* buffer, int lane, int row0,
                                      const unsigned short* list, int tile0, u64* count, u64 room, int2* out) {
    __syncwarp();
#if !SINK
    u64 base = 0;
    if (lane == 0) base = atomicAdd(count, (u64)stage.held);
    base = __shfl_sync(FULL, base, 0);
#endif
    for (int i = lane; i < stage.held; i += 32) {
        const u32 pair = buffer[i];
        const int p = row0 + (pair >> 7 & (ROWS - 1)), q = (tile0 + list[pair / (128 * ROWS)]) * TILE + (pair & 127);
#if SINK
        take(p, q, (const u64*)out);
#else
        out[base + i] = make_int2(p, q);
#endif
    }
    __syncwarp();
#if !SINK
    stage.stopped = stage.stopped || base + stage.held >= room;
#endif
    stage.held = 0;
}
