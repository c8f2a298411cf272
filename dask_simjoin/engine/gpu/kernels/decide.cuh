// Decides the candidates of a warp that passed the filter of long vectors, and counts or stages the pairs.
//
// A warp compares 16 queries with 64 points, and each lane has 32 of the sums. Two masks have one bit per sum: `hits`
// are pairs, and `open` are candidates that only float64 can decide. For these, all lanes of the warp add up the
// squared distance, in any order. Only if the sum is close to the threshold, one lane adds it up in the order of the
// definition.
//
// Constants: DIMS.

// Relative margin around the threshold. Two sums of the same d squares, added in different orders, differ by less than
// (2 d + 6) 2**-53 of their value if each square and sum is rounded by 2**-53. The margin is more than that. Squares
// that underflow do not matter, because filters are used only for thresholds above 2**-960.
#define ROUNDING ((DIMS + 8) * 4.440892098500626e-16)   // 2**-51
#ifndef BUFFER
#define BUFFER 512                                      // staged pairs of a warp
#endif

// Returns the squared distance of two points to all lanes; the warp adds it up together.
__device__ __forceinline__ double sum_of_warp(Point p, Point q, int lane) {
    double sum = 0.0;
#pragma unroll 4
    for (int k = lane; k < DIMS; k += 32) sum = fma(p[k] - q[k], p[k] - q[k], sum);
#pragma unroll
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(FULL, sum, o);
    return sum;
}

// Return the query (of 16) and the point (of 64) of a lane's sum number e.
__device__ __forceinline__ int row_of(int lane, int e) { return (e >> 1 & 1) * 8 + (lane >> 2); }
__device__ __forceinline__ int point_of(int lane, int e) { return (e >> 2) * 8 + (lane & 3) * 2 + (e & 1); }

// Adds 16 sums of a lane to the masks, from bit FIRST on: sure pairs, which are at least `sure`, and open candidates. A
// funnel shift appends the sign of a sum to a mask, in one instruction.
template <int FIRST>
__device__ __forceinline__ void split(const float* sums, float sure, u32& hits, u32& open) {
    u32 far = 0, unsure = 0;
#pragma unroll
    for (int e = 15; e >= 0; e--) {
        far = __funnelshift_l(__float_as_uint(sums[e]), far, 1);
        unsure = __funnelshift_l(__float_as_uint(sums[e] - sure), unsure, 1);
    }
    const u32 near = far ^ 0xffff;
    hits |= (near & ~unsure) << FIRST;
    open |= (near & unsure) << FIRST;
}

// Returns the bits of `some` whose point comes after the query. `apart`: number of the first query minus number of the
// first point.
__device__ __forceinline__ u32 later(u32 some, int apart, int lane) {
    u32 kept = 0;
    for (; some; some &= some - 1) {
        const int e = __ffs(some) - 1;
        if (point_of(lane, e) - row_of(lane, e) > apart) kept |= 1u << e;
    }
    return kept;
}

// Returns the mask of pairs, after float64 has decided the `open` candidates. `queries`, `points`: coordinates of the
// first of the 16 queries and of the 64 points.
__device__ __forceinline__ u32 decide(u32 hits, u32 open, const stored* queries, const stored* points,
                                      double threshold, int lane, u32& decided, u32& refused) {
    u32 tied = 0;
    for (;;) {
        const u32 lanes = __ballot_sync(FULL, open != 0);
        if (!lanes) break;
        const int asks = __ffs(lanes) - 1, e = __ffs(__shfl_sync(FULL, open, asks)) - 1;
        const double sum = sum_of_warp(point_at(queries, row_of(asks, e)), point_at(points, point_of(asks, e)), lane);
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
        const bool hit = squared_distance(point_at(queries, row_of(lane, e)),
                                          point_at(points, point_of(lane, e))) <= threshold;
        if (hit) hits |= 1u << e;
        refused += !hit;
    }
    return hits;
}

#if !COUNTING
// Stages the pairs in `hits`. `base`: a staged pair (see `flush`) for the tile, its first query and its first point.
template <int ROWS>
__device__ __forceinline__ void stage_hits(u32 hits, u32 base, Stage& stage, u32* buffer, int lane, int row0,
                                           const unsigned short* list, int tile0, u64* count, u64 room, int2* out) {
    // one pair per lane at a time: most lanes have at most one
    while (const u32 lanes = __ballot_sync(FULL, hits != 0)) {
        if (hits) {
            const int e = __ffs(hits) - 1;
            hits &= hits - 1;
            buffer[stage.held + __popc(lanes & ((1u << lane) - 1))] = base + (row_of(lane, e) << 7 | point_of(lane, e));
        }
        stage.held += __popc(lanes);
        if (stage.held > BUFFER - 32) flush<ROWS>(stage, buffer, lane, row0, list, tile0, count, room, out);
    }
}
#endif
