#include "common.cuh"
#include "components.cuh"
#include "staged.cuh"
// Joins tiles of 64 points on CUDA cores. A filter decides most candidates in float32 with an error bound, and
// float64 decides the others. With EXACT, there is no filter, and float64 decides everything.
//
// A warp compares a query tile with a data tile. It takes the queries within reach of the data tile's box one after the
// other, and compares each with the 64 points, two per lane. So all lanes are busy, even if few queries are within
// reach.
//
// Constants: DIMS; NORM; EXACT 0 or 1 (1 for norms other than 2); COUNTING 0 (writes pairs) or 1 (counts neighbors);
// SINK; MIXED: interleave factor of query tiles, so that finished units predict how many pairs the others have.

#define TILE 64
#define WARPS 4
#define THREADS (32 * WARPS)
#define BUFFER (DIMS > 1024 ? 256 : 512) // maximum number of staged pairs of a warp
#define SMALL (DIMS <= 16) // points fit into registers
#define STRIDE ((DIMS + 3) / 4 * 4)

#if SMALL
constexpr int UNROLL = DIMS, AT_ONCE = 1;
struct alignas(16) Row { real v[STRIDE]; };
#else
constexpr int UNROLL = 4, AT_ONCE = 4;
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
join_tiles(const real* __restrict__ qz, const stored* __restrict__ qy, const real* __restrict__ q_lower,
           const real* __restrict__ q_upper, int q_points, int q_first, int q_last,
           const real* __restrict__ dz, const stored* __restrict__ dy, const real* __restrict__ d_lower,
           const real* __restrict__ d_upper, int d_points, int d_level1, int d_level2, int same, int ranges, int span,
           real reach, real sure, double threshold, u64 room, int2* __restrict__ out, u64* __restrict__ q_counts,
           u64* __restrict__ d_counts, u64* __restrict__ state, int* __restrict__ resume) {
    // state: pairs written, next unit, blocks that stopped, candidates decided, candidates refused
    // resume, for each block: unit (-1: none), range, then the next tile of each warp
    __shared__ real s_low[DIMS], s_high[DIMS];
    __shared__ u64 s_mask[FANOUT];
    __shared__ int s_pass[FANOUT];
    __shared__ int s_unit, s_from[WARPS];
    __shared__ u32 s_ranges[2];
#if COUNTING
    __shared__ u32 s_count[TILE];
#else
    __shared__ int2 s_buffer[WARPS][BUFFER];
#endif
#if SMALL
    __shared__ Row s_query[TILE];
    real q0[DIMS], q1[DIMS], c0[DIMS], c1[DIMS];
#endif
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int tiles = (d_points + TILE - 1) / TILE, groups = (tiles + FANOUT - 1) / FANOUT;
    const int per_query = (ranges + span - 1) / span;
    const int stretch = (q_last - q_first + MIXED - 1) / MIXED;
    const u64 units = (u64)stretch * MIXED * per_query;
#if !COUNTING
    const u32 below = (1u << lane) - 1;
#endif
    u32 decided = 0, refused = 0;
    Stage stage = {0, false};
    bool again = resume[blockIdx.x * (2 + WARPS)] >= 0;

    for (;;) {
        __syncthreads();
        if (tid == 0) {
            int* note = resume + blockIdx.x * (2 + WARPS);
            s_unit = again ? note[0] : (int)min(atomicAdd(state + 1, (u64)1), (u64)0x7fffffff);
            for (int w = 0; w < WARPS; w++) s_from[w] = again ? note[2 + w] : 0;
            if (again) note[0] = -1;
        }
        __syncthreads();
        const int unit = s_unit;
        if ((u64)unit >= units) break;
        const int number = unit / per_query, i = q_first + number % MIXED * stretch + number / MIXED;
        if (i >= q_last) continue;
        const int r_begin = unit % per_query * span;
        const int r_end = min(r_begin + span, ranges);
        int r = again ? resume[blockIdx.x * (2 + WARPS) + 1] : r_begin;
        const real* my_tile = qz + (size_t)i * DIMS * TILE;
        for (int k = tid; k < DIMS; k += THREADS) {
            size_t at = ((size_t)(i / FANOUT) * DIMS + k) * FANOUT + i % FANOUT;
            s_low[k] = q_lower[at];
            s_high[k] = q_upper[at];
        }
#if SMALL
        for (int at = tid; at < TILE * DIMS; at += THREADS) s_query[at % TILE].v[at / TILE] = my_tile[at];
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            q0[k] = my_tile[k * TILE + lane];
            q1[k] = my_tile[k * TILE + lane + 32];
        }
#endif
#if COUNTING
        if (tid < TILE) s_count[tid] = 0;
#endif
        __syncthreads();
        int from = s_from[warp];
        again = false;
        u64 near_ranges = ~0ull; // mask of the ranges below `node`
        int node = -1;
        for (; r < r_end; r++) {
            if (d_level2 && r / FANOUT != node) {
                node = r / FANOUT;
                __syncthreads();
                if (tid < FANOUT) {
                    const size_t at = (size_t)(d_level2 + node) * DIMS * FANOUT;
                    bool near = node * FANOUT + tid < ranges;
                    near = near && box_near(d_lower + at, d_upper + at, tid, s_low, s_high, reach);
                    const u32 half = __ballot_sync(FULL, near);
                    if (lane == 0) s_ranges[warp] = half;
                }
                __syncthreads();
                near_ranges = (u64)s_ranges[0] | (u64)s_ranges[1] << 32;
            }
            const u64 later = near_ranges >> r % FANOUT;
            if (!(later & 1)) { // this range is far away, so skip to the next near range
                r += later ? __ffsll(later) - 2 : FANOUT - 1 - r % FANOUT;
                from = 0;
                continue;
            }
            // find the groups of the range that are near, then the tiles in these groups
            const int group0 = r * FANOUT;
            bool pass = false;
            if (tid < FANOUT && group0 + tid < groups) {
                size_t at = (size_t)(d_level1 + r) * DIMS * FANOUT;
                pass = d_level1 == 0 || box_near(d_lower + at, d_upper + at, tid, s_low, s_high, reach);
            }
            if (tid < FANOUT) s_pass[tid] = pass;
            if (!__syncthreads_or(pass)) {
                from = 0;
                continue;
            }
            for (int g = warp; g < FANOUT; g += WARPS) {
                u64 mask = 0;
                if (s_pass[g]) {
                    size_t at = (size_t)(group0 + g) * DIMS * FANOUT;
                    u32 half[2];
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        int c = lane + 32 * h, t = (group0 + g) * FANOUT + c;
                        bool near = t < tiles && (!same || meets(i, t, tiles));
                        near = near && box_near(d_lower + at, d_upper + at, c, s_low, s_high, reach);
                        half[h] = __ballot_sync(FULL, near);
                    }
                    mask = (u64)half[0] | (u64)half[1] << 32;
                }
                if (lane == 0) s_mask[g] = mask;
            }
            __syncthreads();
            // each of the four warps takes every fourth tile
            const u64 mine = 0x1111111111111111ull << warp;
            u64 filled = (u64)__ballot_sync(FULL, (s_mask[lane] & mine) != 0)
                         | (u64)__ballot_sync(FULL, (s_mask[lane + 32] & mine) != 0) << 32;
            int next = RANGE;
            while (filled && next == RANGE) {
                const int g = __ffsll(filled) - 1;
                filled &= filled - 1;
                u64 some = s_mask[g] & mine;
                while (some) {
                    const int c = __ffsll(some) - 1, t = (group0 + g) * FANOUT + c;
                    some &= some - 1;
                    if (g * FANOUT + c < from) continue;
                    const real* tile = dz + (size_t)t * DIMS * TILE;
                    const real* lower = d_lower + (size_t)(group0 + g) * DIMS * FANOUT + c;
                    const real* upper = d_upper + (size_t)(group0 + g) * DIMS * FANOUT + c;
                    real away0 = 0, away1 = 0;
#pragma unroll UNROLL
                    for (int k = 0; k < DIMS; k++) {
#if SMALL
                        real a = q0[k], b = q1[k];
#else
                        real a = my_tile[k * TILE + lane], b = my_tile[k * TILE + lane + 32];
#endif
                        real low = lower[k * FANOUT], high = upper[k * FANOUT];
                        away0 = add_term(away0, larger(larger(minus(low, a), minus(a, high)), (real)0));
                        away1 = add_term(away1, larger(larger(minus(low, b), minus(b, high)), (real)0));
                    }
                    u64 near = (u64)__ballot_sync(FULL, away0 <= reach)
                               | (u64)__ballot_sync(FULL, away1 <= reach) << 32;
                    int points = q_points - i * TILE;
                    if (points < TILE) near &= (1ull << points) - 1;
                    if (!near) continue;
                    const bool own = same && t == i;
                    const bool in0 = t * TILE + lane < d_points, in1 = t * TILE + lane + 32 < d_points;
#if COUNTING
                    u32 seen0 = 0, seen1 = 0;
#endif
#if SMALL
#pragma unroll
                    for (int k = 0; k < DIMS; k++) {
                        c0[k] = tile[k * TILE + lane];
                        c1[k] = tile[k * TILE + lane + 32];
                    }
#endif
                    while (near) {
                        int which[AT_ONCE];
                        real sums[AT_ONCE][2];
                        int number = 0;
#pragma unroll
                        for (int m = 0; m < AT_ONCE; m++) {
                            which[m] = near ? __ffsll(near) - 1 : 0;
                            if (near) number = m + 1;
                            near &= near - 1;
                            sums[m][0] = sums[m][1] = 0;
                        }
#if SMALL
                        const Row query = s_query[which[0]];
#pragma unroll
                        for (int k = 0; k < DIMS; k++) {
                            sums[0][0] = add_term(sums[0][0], minus(query.v[k], c0[k]));
                            sums[0][1] = add_term(sums[0][1], minus(query.v[k], c1[k]));
                        }
#else
#pragma unroll 4
                        for (int k = 0; k < DIMS; k++) {
                            real a = tile[k * TILE + lane], b = tile[k * TILE + lane + 32];
#pragma unroll
                            for (int m = 0; m < AT_ONCE; m++) {
                                real query = my_tile[k * TILE + which[m]];
                                sums[m][0] = add_term(sums[m][0], minus(query, a));
                                sums[m][1] = add_term(sums[m][1], minus(query, b));
                            }
                        }
#endif
#pragma unroll
                        for (int m = 0; m < AT_ONCE; m++) {
                            if (m >= number) break;
                            const int p = which[m];
                            bool hit[2];
#pragma unroll
                            for (int h = 0; h < 2; h++) {
                                const int c2 = lane + 32 * h;
                                hit[h] = sums[m][h] <= reach && (h ? in1 : in0) && (!own || c2 > p);
#if !EXACT
                                if (hit[h] && sums[m][h] > sure) {
                                    hit[h] = squared_distance(point_at(qy, i * TILE + p), point_at(dy, t * TILE + c2)) <= threshold;
                                    decided++;
                                    refused += !hit[h];
                                }
#endif
                            }
                            u32 b0 = __ballot_sync(FULL, hit[0]), b1 = __ballot_sync(FULL, hit[1]);
#if COUNTING
                            if (lane == 0 && (b0 | b1)) atomicAdd(s_count + p, __popc(b0) + __popc(b1));
                            seen0 += hit[0];
                            seen1 += hit[1];
#else
                            int found = __popc(b0) + __popc(b1);
                            if (found) {
                                if (stage.held + found > BUFFER)
                                    flush(stage, s_buffer[warp], lane, state, room, out);
                                int at = stage.held + __popc(b0 & below);
                                if (hit[0]) s_buffer[warp][at] = make_int2(i * TILE + p, t * TILE + lane);
                                at = stage.held + __popc(b0) + __popc(b1 & below);
                                if (hit[1])
                                    s_buffer[warp][at] = make_int2(i * TILE + p, t * TILE + lane + 32);
                                stage.held += found;
                            }
#endif
                        }
                    }
#if COUNTING
                    if (d_counts) {
                        if (seen0) atomicAdd(d_counts + t * TILE + lane, (u64)seen0);
                        if (seen1) atomicAdd(d_counts + t * TILE + lane + 32, (u64)seen1);
                    }
#endif
                    if (stage.stopped) {
                        next = g * FANOUT + c + 1;
                        break;
                    }
                }
            }
            from = 0;
            if (lane == 0) s_from[warp] = next;
            if (__syncthreads_or(stage.stopped)) break;
        }
#if COUNTING
        if (tid < TILE && s_count[tid]) atomicAdd(q_counts + i * TILE + tid, (u64)s_count[tid]);
#else
        if (__syncthreads_or(stage.stopped)) {
            if (tid == 0) {
                int* note = resume + blockIdx.x * (2 + WARPS);
                note[0] = unit;
                note[1] = r;
                for (int w = 0; w < WARPS; w++) note[2 + w] = s_from[w];
                atomicAdd(state + 2, (u64)1);
            }
            if (stage.held) flush(stage, s_buffer[warp], lane, state, room, out);
            break;
        }
#endif
    }
#if !COUNTING
    if (stage.held) flush(stage, s_buffer[warp], lane, state, room, out);
#endif
    tell_decided(state, decided, refused, lane);
}
