// Decides the pairs of a warp that passed a filter of long vectors, and counts or stages them.
//
// A lane has 32 sums for 16 queries and 64 points. `hits` and `open` are masks of these sums: pairs, and candidates
// that only float64 can decide. A warp sums their squares together, in any order. The defined order is needed only
// next to the threshold.
//
// Constants: DIMS.

// Two sums of the same d squares of rounded differences, each square and sum rounded by 2**-53, differ by less
// than (2 d + 6) 2**-53 of either, and of a threshold that one of them reaches. The margin is four times that.
// Squares that underflow do not matter, because filters serve thresholds above 2**-960.
#define ROUNDING ((DIMS + 8) * 4.440892098500626e-16)   // 2**-51
#define BUFFER 512                                      // staged pairs of a warp

// The squared distance of two points, summed by a warp. All lanes receive it.
__device__ __forceinline__ double sum_of_warp(const double* p, const double* q, int lane) {
    double sum = 0.0;
#pragma unroll 4
    for (int k = lane; k < DIMS; k += 32) sum = fma(p[k] - q[k], p[k] - q[k], sum);
#pragma unroll
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(FULL, sum, o);
    return sum;
}

// The query and the point of sum e.
__device__ __forceinline__ int row_of(int lane, int e) { return (e >> 1 & 1) * 8 + (lane >> 2); }
__device__ __forceinline__ int point_of(int lane, int e) { return (e >> 2) * 8 + (lane & 3) * 2 + (e & 1); }

// Splits the candidates of a lane into pairs and open ones. Only points after the query count: point_of less row_of is
// more than `before` plus OFFSET, except for what both have of the lane.
template <int OFFSET>
__device__ __forceinline__ void split(const float* sums, float sure, int before, u32& hits, u32& open) {
    u32 sures = 0, maybes = 0;
#pragma unroll
    for (int e = 0; e < 32; e++) {
        const float sum = sums[e];
        if (before < (e >> 2) * 8 + (e & 1) - (e >> 1 & 1) * 8 - OFFSET) {
            if (sum >= sure) sures |= 1u << e;
            else if (sum >= 0.f) maybes |= 1u << e;
        }
    }
    hits = sures;
    open = maybes;
}

// Returns all pairs. `queries` and `points` are the first of the 16 and the 64.
__device__ __forceinline__ u32 decide(u32 hits, u32 open, const double* queries, const double* points,
                                      double threshold, int lane, u32& decided, u32& refused) {
    u32 tied = 0;
    for (;;) {
        const u32 lanes = __ballot_sync(FULL, open != 0);
        if (!lanes) break;
        const int asks = __ffs(lanes) - 1, e = __ffs(__shfl_sync(FULL, open, asks)) - 1;
        const double sum = sum_of_warp(queries + (size_t)row_of(asks, e) * DIMS,
                                       points + (size_t)point_of(asks, e) * DIMS, lane);
        if (lane != asks) continue;
        open &= open - 1;
        decided++;
        if (sum <= threshold * (1 - ROUNDING)) hits |= 1u << e;
        else if (sum <= threshold * (1 + ROUNDING)) tied |= 1u << e;
        else refused++;
    }
    while (tied) {
        const int e = __ffs(tied) - 1;
        tied &= tied - 1;
        const bool hit = squared_distance(queries + (size_t)row_of(lane, e) * DIMS,
                                          points + (size_t)point_of(lane, e) * DIMS) <= threshold;
        if (hit) hits |= 1u << e;
        refused += !hit;
    }
    return hits;
}

#if !COUNTING
// Stages pairs. `base` has the place of the tile, and the first row and point, as `flush` reads them.
template <int ROWS>
__device__ __forceinline__ void stage_hits(u32 hits, u32 base, Stage& stage, u32* buffer, int lane, int row0,
                                           const unsigned short* list, int tile0, u64* count, u64 room, int2* out) {
    while (__any_sync(FULL, hits != 0)) {      // the buffer has space for eight pairs per lane
        const int found = min(__popc(hits), 8);
        int sum = found;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            int below = __shfl_up_sync(FULL, sum, o);
            if (lane >= o) sum += below;
        }
        const int at = stage.held + sum - found;
        stage.held += __shfl_sync(FULL, sum, 31);
        for (int k = 0; k < found; k++) {
            const int e = __ffs(hits) - 1;
            hits &= hits - 1;
            buffer[at + k] = base + (row_of(lane, e) << 7 | point_of(lane, e));
        }
        if (stage.held > BUFFER - 256) flush<ROWS>(stage, buffer, lane, row0, list, tile0, count, room, out);
    }
}
#endif
