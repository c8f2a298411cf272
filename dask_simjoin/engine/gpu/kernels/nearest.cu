#include "common.cuh"
#include "reach.cuh"
#include "nearest.cuh"
// Searches the nearest neighbors of tiles of 64 queries on CUDA cores. With EXACT it computes only in float64;
// otherwise a filter first compares float32 differences with an error bound.
//
// A warp takes a tile of queries, two per lane, and descends the tree of boxes of the data. It visits the children of
// a node in the order of their distance from the middle of the queries. It skips boxes that are farther away than the
// worst neighbor of every query so far (Roussopoulos, Kelley & Vincent 1995, "Nearest neighbor queries", section 4).
// All lanes read the same four points at a time, so one read from the cache serves all lanes.
//
// Skipping loses no neighbor. A box or point is skipped only if a lower bound of its d2 exceeds the worst d2 in the
// list. So points at the same distance as the worst neighbor are still compared, and the smaller id wins. The exception
// is a worst d2 of 0: then boxes are skipped if they have no smaller id.
//
// d2 is the total of the norm. The filter exists only for norm 2.
//
// Constants: DIMS; EXACT 0 or 1; NORM; ROWS per warp, 64; LISTS 1 (in shared memory) or 0 (in scratch memory).

#define TILE 64
#define WARPS 4
#define THREADS (32 * WARPS)
#define QUEUE 16                       // maximum number of candidates in the queue of a query
// after a tile, all queues are drained if one of them has at least this many candidates
#define PATIENCE (DIMS <= 8 ? 1 : 4)
#define NONE 0xffffffffu
#define SMALL (DIMS <= 16)             // queries fit into registers
#define AT_ONCE 4
#if SMALL
constexpr int UNROLL = DIMS;
#else
constexpr int UNROLL = 4;
#endif

struct alignas(16) Four { real v[AT_ONCE]; };

extern "C" __global__ void __launch_bounds__(THREADS)
search_tiles(const real* __restrict__ qz, const double* __restrict__ qy, const real* __restrict__ q_lower,
             const real* __restrict__ q_upper, const int* __restrict__ q_order,
             const long long* __restrict__ q_names, int q_points, const real* __restrict__ dz,
             const double* __restrict__ dy, const real* __restrict__ d_lower, const real* __restrict__ d_upper,
             const long long* __restrict__ d_levels, int levels, const u64* __restrict__ d_least,
             const u64* __restrict__ d_names, int d_points, int same, int own, double bound2, double scale2,
             double rho, int k, double* __restrict__ best_d2, u64* __restrict__ best_name,
             u32* __restrict__ counter, double* __restrict__ scratch) {
    // levels: number of levels of the tree; the children of the lowest level are tiles. own: queries and data are the
    // same index
    extern __shared__ __align__(16) unsigned char memory[];
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    real* gaps = (real*)memory + (size_t)warp * levels * FANOUT;
    u32* orders = (u32*)((real*)memory + (size_t)WARPS * levels * FANOUT) + (size_t)warp * levels * FANOUT;
    u32* queues = (u32*)((real*)memory + (size_t)WARPS * levels * FANOUT) + (size_t)WARPS * levels * FANOUT
                  + warp * QUEUE * TILE;
#if LISTS
    double* lists = (double*)(memory + (size_t)WARPS * (levels * FANOUT * (sizeof(real) + 4) + QUEUE * TILE * 4))
                    + (size_t)warp * 2 * k * TILE;
#else
    const int room = room_of(k);
    double* lists = scratch + (size_t)(blockIdx.x * WARPS + warp) * 2 * room * TILE;
    u64* list_names = (u64*)lists + (size_t)room * TILE;
#endif
    __shared__ int s_node[WARPS][8];
    const int q_tiles = (q_points + TILE - 1) / TILE, tiles = (d_points + TILE - 1) / TILE;

    for (;;) {
        u32 unit = 0;
        if (lane == 0) unit = atomicAdd(counter, 1u);
        const int a = __shfl_sync(FULL, unit, 0);
        if (a >= q_tiles) break;

        double* d2s[2];
        u64* names[2];
        u64 self[2];
        Worst worst[2];
        real reach[2];
        int held[2] = {0, 0};
#if !LISTS
        int filled[2] = {k, k};
#endif
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = a * TILE + lane + 32 * h, row = i < q_points ? q_order[i] : -1;
            self[h] = same && row >= 0 ? (u64)q_names[i] : ~0ull;
            worst[h] = {-1., 0};
#if LISTS
            d2s[h] = lists + lane + 32 * h;
            names[h] = (u64*)lists + k * TILE + lane + 32 * h;
#else
            d2s[h] = lists + (size_t)(lane + 32 * h) * room;
            names[h] = list_names + (size_t)(lane + 32 * h) * room;
            if (row >= 0) worst[h] = {best_d2[(size_t)row * k + k - 1], best_name[(size_t)row * k + k - 1]};
            for (int r = 0; r < 32; r++) {
                const int from = __shfl_sync(FULL, row, r), to = (r + 32 * h) * room;
                if (from >= 0)
                    copy_row(lists + to, list_names + to, best_d2 + (size_t)from * k, best_name + (size_t)from * k, k);
            }
            __syncwarp();
#endif
#if LISTS
            if (row >= 0) {
                for (int e = 0; e < k; e++) {
                    d2s[h][e * TILE] = best_d2[(size_t)row * k + e];
                    names[h][e * TILE] = best_name[(size_t)row * k + e];
                }
                worst[h] = {d2s[h][(k - 1) * TILE], names[h][(k - 1) * TILE]};
            }
#endif
            reach[h] = row >= 0 ? reach_of(fmin(worst[h].d2, bound2), scale2, rho) : (real)-1;
        }
        real all_reach = warp_max(larger(reach[0], reach[1]));

        const real* my_tile = qz + (size_t)a * DIMS * TILE;
        const real* my_low = q_lower + (size_t)(a / FANOUT) * DIMS * FANOUT + a % FANOUT;
        const real* my_high = q_upper + (size_t)(a / FANOUT) * DIMS * FANOUT + a % FANOUT;
#if SMALL
        real q0[DIMS], q1[DIMS];
#pragma unroll
        for (int j = 0; j < DIMS; j++) {
            q0[j] = my_tile[j * TILE + lane];
            q1[j] = my_tile[j * TILE + lane + 32];
        }
#endif

        auto drain = [&]() {
#if !LISTS
            u32 crowded[2];
#endif
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const double* p = qy + (size_t)min(a * TILE + lane + 32 * h, q_points - 1) * DIMS;
                for (int m = 0; m < held[h]; m++) {
                    const u32 j = queues[m * TILE + lane + 32 * h];
                    const double d2 = away_from(p, dy + (size_t)j * DIMS);
                    const u64 name = d_names[j];
                    if (d2 <= bound2 && name != self[h] && before(d2, name, worst[h].d2, worst[h].name)) {
#if LISTS
                        worst[h] = insert(d2s[h], names[h], k, d2, name);
#else
                        d2s[h][filled[h]] = d2;
                        names[h][filled[h]++] = name;
#endif
                    }
                }
#if !LISTS
                // all queues have been read, so their memory is reused for counts
                crowded[h] = __ballot_sync(FULL, filled[h] > room - QUEUE);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                while (crowded[h]) {
                    const int r = __ffs(crowded[h]) - 1;
                    crowded[h] &= crowded[h] - 1;
                    const int at = (r + 32 * h) * room;
                    const Worst last = keep_nearest(lists + at, list_names + at, __shfl_sync(FULL, filled[h], r), k, queues);
                    if (lane == r) {
                        worst[h] = last;
                        filled[h] = k;
                    }
                }
#endif
                if (held[h]) reach[h] = reach_of(fmin(worst[h].d2, bound2), scale2, rho);
                held[h] = 0;
            }
            all_reach = warp_max(larger(reach[0], reach[1]));
        };

        auto scan = [&](int b) {
            const real* tile = dz + (size_t)b * DIMS * TILE;
            const real* lower = d_lower + (size_t)(b / FANOUT) * DIMS * FANOUT + b % FANOUT;
            const real* upper = d_upper + (size_t)(b / FANOUT) * DIMS * FANOUT + b % FANOUT;
            real away0 = 0, away1 = 0;
#pragma unroll UNROLL
            for (int j = 0; j < DIMS; j++) {
#if SMALL
                const real x0 = q0[j], x1 = q1[j];
#else
                const real x0 = my_tile[j * TILE + lane], x1 = my_tile[j * TILE + lane + 32];
#endif
                const real low = lower[j * FANOUT], high = upper[j * FANOUT];
                away0 = add_term(away0, larger(larger(minus(low, x0), minus(x0, high)), (real)0));
                away1 = add_term(away1, larger(larger(minus(low, x1), minus(x1, high)), (real)0));
            }
            const u64 least = d_least[b];
            real limit[2];
            limit[0] = away0 <= reach[0] && (worst[0].d2 != 0 || least < worst[0].name) ? reach[0] : (real)-1;
            limit[1] = away1 <= reach[1] && (worst[1].d2 != 0 || least < worst[1].name) ? reach[1] : (real)-1;
            if (!__any_sync(FULL, limit[0] >= 0 || limit[1] >= 0)) return;
            const int count = min(TILE, d_points - b * TILE);
            for (int c = 0; c < count; c += AT_ONCE) {
                real sums[2][AT_ONCE] = {};
#pragma unroll UNROLL
                for (int j = 0; j < DIMS; j++) {
                    const Four four = *(const Four*)(tile + j * TILE + c);
#if SMALL
                    const real x0 = q0[j], x1 = q1[j];
#else
                    const real x0 = my_tile[j * TILE + lane], x1 = my_tile[j * TILE + lane + 32];
#endif
#pragma unroll
                    for (int m = 0; m < AT_ONCE; m++) {
                        sums[0][m] = add_term(sums[0][m], minus(x0, four.v[m]));
                        sums[1][m] = add_term(sums[1][m], minus(x1, four.v[m]));
                    }
                }
#pragma unroll
                for (int h = 0; h < 2; h++) {
#pragma unroll
                    for (int m = 0; m < AT_ONCE; m++) {
                        if (sums[h][m] <= limit[h] && c + m < count) {
                            queues[held[h] * TILE + lane + 32 * h] = b * TILE + c + m;
                            held[h]++;
                        }
                    }
                }
                if (__any_sync(FULL, max(held[0], held[1]) > QUEUE - AT_ONCE)) {
                    drain();
                    if (limit[0] >= 0) limit[0] = reach[0];
                    if (limit[1] >= 0) limit[1] = reach[1];
                }
            }
            if (__any_sync(FULL, max(held[0], held[1]) >= PATIENCE)) drain();
        };

        // opens a node: computes the distances of its children's boxes, and the order in which they are visited
        auto open = [&](int level, int number) {
            const int begin = level ? (int)d_levels[level - 1] : 0;
            const int boxes = level ? (int)d_levels[level] - begin : tiles;
            const real* lower = d_lower + (size_t)(d_levels[level] + number) * DIMS * FANOUT + lane;
            const real* upper = d_upper + (size_t)(d_levels[level] + number) * DIMS * FANOUT + lane;
            real gap[2] = {};
            float order[2] = {};
#pragma unroll 4
            for (int j = 0; j < DIMS; j++) {
                const real low = my_low[j * FANOUT], high = my_high[j * FANOUT];
                const real middle = low * (real)0.5 + high * (real)0.5;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const real from = lower[j * FANOUT + 32 * h], to = upper[j * FANOUT + 32 * h];
                    gap[h] = add_term(gap[h], larger(larger(minus(from, high), minus(low, to)), (real)0));
                    const float off = aside(from, to, middle);
                    order[h] += off * off;
                }
            }
            __syncwarp();
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int c = lane + 32 * h;
                gaps[level * FANOUT + c] = gap[h];
                orders[level * FANOUT + c] =
                    number * FANOUT + c < boxes ? (__float_as_uint(order[h]) & ~(FANOUT - 1)) | c : NONE;
            }
            if (lane == 0) s_node[warp][level] = number;
            __syncwarp();
        };

        if (own) scan(a); // the queries' own tile has near points; if it comes first, many boxes can be skipped later
        int level = levels - 1;
        open(level, 0);
        while (level < levels) {
            u32 next = NONE;
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (gaps[level * FANOUT + lane + 32 * h] <= all_reach)
                    next = min(next, orders[level * FANOUT + lane + 32 * h]);
            next = warp_min(next);
            if (next == NONE) {
                level++;
                continue;
            }
            const int c = next & (FANOUT - 1), child = s_node[warp][level] * FANOUT + c;
            if (lane == 0) orders[level * FANOUT + c] = NONE;
            __syncwarp();
            if (level) open(--level, child);
            else if (!own || child != a) scan(child);
        }
        drain();
#if !LISTS
        for (int r = 0; r < min(TILE, q_points - a * TILE); r++) {
            const int n = __shfl_sync(FULL, r < 32 ? filled[0] : filled[1], r & 31), at = r * room;
            if (n > k) keep_nearest(lists + at, list_names + at, n, k, queues);
            sort_row(lists + at, list_names + at, k);
            const size_t row = q_order[a * TILE + r];
            copy_row(best_d2 + row * k, best_name + row * k, lists + at, list_names + at, k);
        }
        __syncwarp();
#else
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = a * TILE + lane + 32 * h;
            if (i >= q_points) continue;
            const size_t row = q_order[i];
            for (int e = 0; e < k; e++) {
                best_d2[row * k + e] = d2s[h][e * TILE];
                best_name[row * k + e] = names[h][e * TILE];
            }
        }
#endif
    }
}
