#include "common.cuh"
#include "tensor.cuh"
#include "reach.cuh"
#include "nearest.cuh"
#include "blocks.cuh"
#include "query_term.cuh"
// Searches the nearest neighbors of blocks of 256 queries on tensor cores. A filter refuses most candidates by
// products of float16 vectors with an error bound, and float64 computes the distances of the others.
//
// As in tensor.cu, candidates with a negative product are refused, most of them without further work. But here each
// query has its own search distance, which shrinks: the distance to its worst neighbor so far. So the query's term in
// products, s_i, is stored apart from the vectors. It is computed again when the list of neighbors changes
// (dask_simjoin/engine/filters/float16.py derives it).
//
// A block starts at the tile nearest to its queries, and goes through the group of that tile. Then it visits groups
// alternately after and before that group. In high dimensions few tiles can be skipped, but this order still helps. It
// finds near points early, so fewer candidates enter a list only to be replaced later.
//
// Candidates that pass the filter wait in queues. All warps of a block drain their queues at the same time, because
// they synchronize at every tile.
//
// Constants: DIMS; WIDTH of a vector, a multiple of 16; ROWS per warp, 32; LISTS 1 (in shared memory) or 0 (in
// scratch memory).

#define STEPS (WIDTH / 16)
#define LINE (WIDTH + 8)   // numbers per vector in shared memory; the 8 unused ones avoid bank conflicts
#define AT_ONCE 2          // number of groups of 8 points whose products are tested together
#define STAGE 96           // maximum number of entries in a warp's queue: each has the passing products of one lane
#define PATIENCE 32        // after a tile, all queues are drained if one of them has at least this many entries
#define BLOCKS (WIDTH <= 48 ? 2 : 1) // blocks per multiprocessor: with longer vectors, two would spill registers

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
search_tensor(const half_bits* __restrict__ qh, const double* __restrict__ q_norm,
              const double* __restrict__ q_error, const double* __restrict__ qy, const real* __restrict__ q_lower,
              const real* __restrict__ q_upper, const int* __restrict__ q_order,
              const long long* __restrict__ q_names, int q_points, const half_bits* __restrict__ dh,
              const double* __restrict__ most_error, const double* __restrict__ dy,
              const real* __restrict__ d_lower, const real* __restrict__ d_upper,
              const u64* __restrict__ d_names, int d_points, int same, int own, double bound2, double scale2,
              double rho, int k, double* __restrict__ best_d2, u64* __restrict__ best_name,
              u32* __restrict__ counter, double* __restrict__ scratch) {
    // most_error: the largest error of all data points; own: queries and data are the same index
    extern __shared__ __align__(16) unsigned char memory[];
    half_bits* s_tiles = (half_bits*)memory;                       // two tiles, used in turn
    __shared__ __align__(16) half_bits s_tail[WARPS][32][8];
    __shared__ uint2 s_stage[WARPS][STAGE]; // queue entries: mask of a lane's passing products, and their location
    __shared__ double s_d2[WARPS][32];
    __shared__ u64 s_name[WARPS][32];
    __shared__ u32 s_mask[2];
    __shared__ real s_low[DIMS], s_high[DIMS], s_reach[WARPS];
    __shared__ u64 s_start;
    __shared__ int s_unit;
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, group = lane >> 2, pair = lane & 3;
    const int tiles = (d_points + TILE - 1) / TILE, groups = (tiles + FANOUT - 1) / FANOUT;
    const int q_tiles = (q_points + TILE - 1) / TILE, units = (q_points + QUERIES - 1) / QUERIES;
#if LISTS
    double* d2s = (double*)(s_tiles + 2 * TILE * LINE) + (size_t)warp * 2 * k * 32 + lane;
#else
    const int room = room_of(k);
    double* lists = scratch + (size_t)(blockIdx.x * WARPS + warp) * 2 * room * 32;
    u64* list_names = (u64*)lists + (size_t)room * 32;
    double* d2s = lists + (size_t)lane * room;
#endif
#if LISTS
    u64* names = (u64*)d2s + k * 32;
#else
    u64* names = list_names + (size_t)lane * room;
#endif
    const double other_error = most_error[0];

    for (;;) {
        __syncthreads();
        if (tid == 0) {
            s_unit = (int)min(atomicAdd(counter, 1u), 0x7fffffffu);
            s_start = ~0ull;
        }
        __syncthreads();
        const int i = s_unit, row0 = i * QUERIES + warp * 32;
        if (i >= units) break;
        box_of_queries(i, q_tiles, q_lower, q_upper, s_low, s_high, tid);
        // each lane owns one row: its query, list and bound
        const bool there = row0 + lane < q_points;
        const int place = min(row0 + lane, q_points - 1), row = q_order[place];
        const u64 self = same ? (u64)q_names[place] : ~0ull;
        const double norm = q_norm[place], error = q_error[place];
#if LISTS
        for (int e = 0; e < k; e++) {
            d2s[e * 32] = best_d2[(size_t)row * k + e];
            names[e * 32] = best_name[(size_t)row * k + e];
        }
#else
        int filled = k;
        for (int r = 0; r < 32; r++) {
            const size_t from = __shfl_sync(FULL, row, r);
            copy_row(lists + r * room, list_names + r * room, best_d2 + from * k, best_name + from * k, k);
        }
        __syncwarp();
#endif
        Worst worst = {best_d2[(size_t)row * k + k - 1], best_name[(size_t)row * k + k - 1]};
        real reach = -1;
        u32 a[2][STEPS][4];
        auto ask = [&]() { // updates the row's bound and s_i from the worst neighbor in its list
            if (there) reach = reach_of(fmin(worst.d2, bound2), scale2, rho);
            const double s = there ? query_term(fmin(worst.d2, bound2), scale2, norm, error, other_error) : NOWHERE;
            *(uint4*)s_tail[warp][lane] = tail(s);
            const real most = warp_max(reach);
            if (lane == 0) s_reach[warp] = most;
            __syncwarp();
#pragma unroll
            for (int m = 0; m < 2; m++) {
                a[m][STEPS - 1][2] = *(const u32*)(s_tail[warp][m * 16 + group] + pair * 2);
                a[m][STEPS - 1][3] = *(const u32*)(s_tail[warp][m * 16 + 8 + group] + pair * 2);
            }
            __syncwarp();
        };
        u32 staged = 0;
        auto drain = [&]() {
            __syncwarp();
            for (u32 first = 0; first < staged; first += 32) {
                // distribute queue entries: each lane takes one, and decides its products
                const uint2 taken = first + lane < staged ? s_stage[warp][first + lane] : make_uint2(0, 0);
                u32 hits = taken.x;
                const int from = taken.y & 31;
                while (__any_sync(FULL, hits != 0)) {
                    const int e = hits ? __ffs(hits) - 1 : 0, r = (e >> 2 & 1) * 16 + (e >> 1 & 1) * 8 + (from >> 2);
                    u32 mine = __ballot_sync(FULL, hits != 0);
                    if (hits) {
                        const u32 j = (taken.y >> 5) * (8 * AT_ONCE) + (e >> 3) * 8 + (from & 3) * 2 + (e & 1);
                        s_name[warp][lane] = d_names[j];
                        s_d2[warp][lane] = away_from(qy + (size_t)(row0 + r) * DIMS, dy + (size_t)j * DIMS);
                    }
                    hits &= hits - 1;
#pragma unroll
                    for (int bit = 0; bit < 5; bit++) {
                        const u32 set = __ballot_sync(FULL, r >> bit & 1);
                        mine &= lane >> bit & 1 ? set : ~set;
                    }
                    __syncwarp();
                    while (mine) {
                        const int n = __ffs(mine) - 1;
                        mine &= mine - 1;
                        const double d2 = s_d2[warp][n];
                        const u64 name = s_name[warp][n];
                        if (d2 <= bound2 && name != self && before(d2, name, worst.d2, worst.name)) {
#if LISTS
                            worst = insert(d2s, names, k, d2, name);
#else
                            d2s[filled] = d2;
                            names[filled++] = name;
#endif
                        }
                    }
                    __syncwarp();
#if !LISTS
                    // the distances in `s_d2` are no longer needed, so their memory is reused for counts
                    u32 crowded = __ballot_sync(FULL, filled > room - 32);
                    while (crowded) {
                        const int next = __ffs(crowded) - 1, at = next * room;
                        crowded &= crowded - 1;
                        const int n = __shfl_sync(FULL, filled, next);
                        const Worst last = keep_nearest(lists + at, list_names + at, n, k, (u32*)s_d2[warp]);
                        if (lane == next) {
                            worst = last;
                            filled = k;
                        }
                    }
#endif
                }
            }
            staged = 0;
            ask();
        };
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int n = 0; n < STEPS; n++) {
                const half_bits* from = qh + (size_t)(row0 + m * 16 + group) * WIDTH + n * 16 + pair * 2;
                a[m][n][0] = *(const u32*)from;
                a[m][n][1] = *(const u32*)(from + 8 * WIDTH);
                a[m][n][2] = *(const u32*)(from + 8);
                a[m][n][3] = *(const u32*)(from + 8 * WIDTH + 8);
            }
        }
        ask();
        __syncthreads();
        if (!own) {
            // find the tile nearest to the middle of the queries' box
            u64 nearest = ~0ull;
            for (int t = tid; t < tiles; t += THREADS) {
                const size_t at = (size_t)(t / FANOUT) * DIMS * FANOUT + t % FANOUT;
                float order = 0;
#pragma unroll 4
                for (int j = 0; j < DIMS; j++) {
                    const float middle = s_low[j] * 0.5f + s_high[j] * 0.5f;
                    const float off = aside(d_lower[at + j * FANOUT], d_upper[at + j * FANOUT], middle);
                    order += off * off;
                }
                nearest = min(nearest, (u64)__float_as_uint(order) << 32 | (u32)t);
            }
            if (nearest != ~0ull) atomicMin(&s_start, nearest);
            __syncthreads();
        }
        const int start = own ? 2 * i : (int)(u32)s_start, group0 = start / FANOUT;

        for (int turn = 0; turn < groups; turn++) {
            // first group0, then the groups at growing distance, alternately after and before it, wrapping at the ends
            const int off = (turn + 1) >> 1;
            int g = turn & 1 ? group0 + off : group0 - off;
            g += g < 0 ? groups : g >= groups ? -groups : 0;
            if (staged) drain();
            __syncthreads();
            if (tid < FANOUT) {
                real most = -1;
                for (int w = 0; w < WARPS; w++) most = fmaxf(most, s_reach[w]);
                const size_t at = (size_t)g * DIMS * FANOUT;
                const bool near = g * FANOUT + tid < tiles
                                  && box_near(d_lower + at, d_upper + at, tid, s_low, s_high, most);
                const u32 some = __ballot_sync(FULL, near);
                if (lane == 0) s_mask[warp] = some;
            }
            __syncthreads();
            u64 mask = (u64)s_mask[0] | (u64)s_mask[1] << 32;
            const int first = turn ? 0 : start % FANOUT;
            if (first) mask = mask >> first | mask << (FANOUT - first);
            int buffer = 0;
            auto pop = [&]() {
                const int t = g * FANOUT + ((__ffsll(mask) - 1 + first) & (FANOUT - 1));
                mask &= mask - 1;
                return t;
            };
            auto load = [&](int t, int to) {
                const half_bits* source = dh + (size_t)t * TILE * WIDTH;
                half_bits* target = s_tiles + to * TILE * LINE;
                for (int at = tid; at < TILE * (WIDTH / 8); at += THREADS) {
                    int line = at / (WIDTH / 8), column = at % (WIDTH / 8) * 8;
                    copy16(target + line * LINE + column, source + line * WIDTH + column);
                }
                end_of_copies();
            };
            int t = mask ? pop() : -1;
            if (t >= 0) load(t, 0);
            while (t >= 0) {
                copies_done<0>();
                // after this barrier no thread reads the previous tile, so the next tile can overwrite it
                const bool patient = !__syncthreads_or(staged >= PATIENCE);
                const int next = mask ? pop() : -1;
                if (next >= 0) load(next, buffer ^ 1);
                if (!patient && staged) drain();
                const half_bits* tile = s_tiles + buffer * TILE * LINE;
#pragma unroll 1
                for (int b = 0; b < TILE / 8; b += AT_ONCE) {
                    float sums[AT_ONCE][2][4] = {};
                    const half_bits* line = tile + (b * 8 + group) * LINE + pair * 2;
#pragma unroll
                    for (int n = 0; n < STEPS; n++) {
#pragma unroll
                        for (int c = 0; c < AT_ONCE; c++) {
                            const half_bits* here = line + c * 8 * LINE + n * 16;
                            const u32 b0 = *(const u32*)here, b1 = *(const u32*)(here + 8);
                            multiply_add(sums[c][0], a[0][n], b0, b1);
                            multiply_add(sums[c][1], a[1][n], b0, b1);
                        }
                    }
                    int signs = -1;
#pragma unroll
                    for (int e = 0; e < 8 * AT_ONCE; e++) signs &= __float_as_int(sums[e >> 3][e >> 2 & 1][e & 3]);
                    if (!__any_sync(FULL, signs >= 0)) continue;
                    u32 below = 0; // bit e: whether product e is negative
#pragma unroll
                    for (int e = 8 * AT_ONCE - 1; e >= 0; e--)
                        below = __funnelshift_l(__float_as_uint(sums[e >> 3][e >> 2 & 1][e & 3]), below, 1);
                    const u32 hits = ~below & (0xffffffffu >> (32 - 8 * AT_ONCE));
                    const u32 holders = __ballot_sync(FULL, hits != 0);
                    if (hits) {
                        const u32 where = t * (TILE / (8 * AT_ONCE)) + b / AT_ONCE;
                        s_stage[warp][staged + __popc(holders & ((1u << lane) - 1))] = make_uint2(hits, where << 5 | lane);
                    }
                    staged += __popc(holders);
                    if (staged > STAGE - 32) drain();
                }
                buffer ^= 1;
                t = next;
            }
        }
        if (staged) drain();
#if LISTS
        if (there) {
            for (int e = 0; e < k; e++) {
                best_d2[(size_t)row * k + e] = d2s[e * 32];
                best_name[(size_t)row * k + e] = names[e * 32];
            }
        }
#else
        for (int r = 0; r < min(32, q_points - row0); r++) {
            const int n = __shfl_sync(FULL, filled, r), at = r * room;
            const size_t to = __shfl_sync(FULL, row, r);
            if (n > k) keep_nearest(lists + at, list_names + at, n, k, (u32*)s_d2[warp]);
            sort_row(lists + at, list_names + at, k);
            copy_row(best_d2 + to * k, best_name + to * k, lists + at, list_names + at, k);
        }
        __syncwarp();
#endif
    }
}
