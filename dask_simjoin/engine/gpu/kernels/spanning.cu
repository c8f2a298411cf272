#include "common.cuh"
#include "reach.cuh"
#include "bounds.cuh"
#include "beside.cuh"
#include "balls.cuh"
// Searches for the lightest edge from each row to the points of an index that are in other components. Only some rows
// search.
//
// The weight of an edge is the mutual reachability of its rows: the largest of their total and both core distances,
// which are totals, too. A warp takes a tile of 64 searching rows, two per lane. It descends the tree of boxes as in
// `nearest.cu`. The search distance of a row is the lightest known edge of its component. Whenever any warp finds a
// lighter edge, it lowers this bound for all warps.
//
// If all rows of a tile are in one component, the search skips boxes whose points are all in that component. It also
// skips boxes whose core distances are all too large. Both rules, and the bound of `offer_beside`, are from
// Prokopenko, Sao & Lebrun-Grandie 2023, "A single-tree algorithm to compute the Euclidean minimum spanning tree on
// GPUs". The search also skips a tile if its edges can only tie with a row's best edge, and its ids are too large to
// win the tie. With a filter, each tile also has a ball around its points. In high dimensions, balls exclude more tiles
// than boxes. A row skips a tile if its distance to the ball's center exceeds the row's bound plus the radius.
//
// The result of a row is its first edge by (weight, id of the other row). This is guaranteed only if the edge's weight
// is at most the final bound of the row's component, because the search skips edges above the current bound.
//
// If few tiles of rows search, most of the GPU would be idle, and slow tiles would delay the end. In that case several
// warps share a tile of rows, and each of them searches a part of the data's tiles.
//
// Constants: DIMS; EXACT 0 or 1; NORM.

#define WARPS 4
#define THREADS (32 * WARPS)
#define LEVELS 6  // maximum number of levels of a tree; it suffices, because int32 cannot count 64**6 tiles
#define NONE 0xffffffffu
#define SMALL (DIMS <= 16)             // queries fit into registers
#define NO_NAME 0x7fffffff
#if SMALL
constexpr int UNROLL = DIMS, AT_ONCE = 4;
#else
constexpr int UNROLL = 4, AT_ONCE = 8; // larger, because queries are in memory, and are read once per AT_ONCE points
#endif

struct alignas(16) Some { real v[AT_ONCE]; };

struct Best {              // the best edge of a row so far: weight, and id and node of the other row
    double weight;
    int name, node;
};

extern "C" __global__ void __launch_bounds__(THREADS)
search_others(const real* __restrict__ qz, const double* __restrict__ qy, const real* __restrict__ q_lower,
              const real* __restrict__ q_upper, const int* __restrict__ q_component,
              const double* __restrict__ q_core, int q_points, const real* __restrict__ dz,
              const double* __restrict__ dy, const real* __restrict__ d_lower, const real* __restrict__ d_upper,
              const long long* __restrict__ d_levels, int levels, const int* __restrict__ d_least,
              const int* __restrict__ d_tags, const double* __restrict__ d_cores, const int* __restrict__ d_component,
              const double* __restrict__ d_core, const int* __restrict__ d_names, const int* __restrict__ d_nodes, int d_points,
              const float* __restrict__ d_middle, const float* __restrict__ d_radius, double scale2, double rho,
              u64* bounds, int spread, double* __restrict__ weight, int* __restrict__ end,
              u32* __restrict__ counter) {
    // levels: levels of the tree; children of the lowest level are tiles. d_least: smallest id in each tile.
    // d_tags: for each box, the component that all its points share, or -1. d_cores: smallest core distance in each
    // box. d_nodes: node of each point. d_middle, d_radius: balls of tiles, if there is a filter. bounds: bounds of
    // components, as bits. spread: number of warps that share a tile of rows, a power of two of at most 64.
    // weight, end (spread, q_points): lightest edge of each row in each part of the data
    __shared__ real s_gaps[WARPS][LEVELS * FANOUT];
    __shared__ u32 s_orders[WARPS][LEVELS * FANOUT];
    __shared__ int s_node[WARPS][LEVELS];
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    real* gaps = s_gaps[warp];
    u32* orders = s_orders[warp];
    const int q_tiles = (q_points + TILE - 1) / TILE, tiles = (d_points + TILE - 1) / TILE;

    for (;;) {
        u32 unit = 0;
        if (lane == 0) unit = atomicAdd(counter, 1u);
        unit = __shfl_sync(FULL, unit, 0);
        if (unit >= (u32)q_tiles * spread) break;
        const int a = unit / spread, part = unit & (spread - 1);

        Best best[2];
        int component[2];
        double core[2], limit[2]; // limit: maximum weight of a useful edge; -1: the row does not search any longer
        real reach[2];
#if !EXACT
        double far[2];
#endif
        // sets the maximum weight that an edge of a row may have to be useful
        auto lower_to = [&](int h, double heaviest) {
            limit[h] = heaviest;
            reach[h] = reach_of(heaviest, scale2, rho);
#if !EXACT
            far[h] = farthest(heaviest, scale2, rho);
#endif
        };
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = a * TILE + lane + 32 * h;
            best[h] = {__longlong_as_double(0x7ff0000000000000ll), NO_NAME, -1};
            component[h] = i < q_points ? q_component[i] : -1;
            core[h] = i < q_points ? q_core[i] : 0.;
            lower_to(h, best[h].weight);
            if (i >= q_points) {
                limit[h] = -1;
                reach[h] = -1;
            }
        }
        const int first = __shfl_sync(FULL, component[0], 0);
        bool one = true; // whether all rows of the tile are in one component
#pragma unroll
        for (int h = 0; h < 2; h++) one = one && (limit[h] < 0 || component[h] == first);
        const int only = __any_sync(FULL, !one) ? -2 : first;
        real all_reach;
        double most;

        // reads the bounds of components again, because other warps may have lowered them
        auto refresh = [&]() {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (limit[h] < 0) continue;
                const double known = __longlong_as_double((long long)*(volatile u64*)(bounds + component[h]));
                if (known < limit[h]) lower_to(h, known);
                // no edge of this row is lighter than its core distance, so it need not search any longer
                if (core[h] > limit[h]) {
                    limit[h] = -1;
                    reach[h] = -1;
                }
            }
            all_reach = warp_max(larger(reach[0], reach[1]));
            most = most_of_warp(fmax(limit[0], limit[1]));
        };

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

        auto scan = [&](int b) {
            const real* tile = dz + (size_t)b * DIMS * TILE;
            const real* lower = d_lower + (size_t)(b / FANOUT) * DIMS * FANOUT + b % FANOUT;
            const real* upper = d_upper + (size_t)(b / FANOUT) * DIMS * FANOUT + b % FANOUT;
            real away[2] = {};
#if !EXACT
            const float* middle = d_middle + (size_t)b * DIMS;
            float off[2] = {};
#endif
#pragma unroll UNROLL
            for (int j = 0; j < DIMS; j++) {
#if SMALL
                const real x0 = q0[j], x1 = q1[j];
#else
                const real x0 = my_tile[j * TILE + lane], x1 = my_tile[j * TILE + lane + 32];
#endif
                const real low = lower[j * FANOUT], high = upper[j * FANOUT];
                away[0] = add_term(away[0], larger(larger(minus(low, x0), minus(x0, high)), (real)0));
                away[1] = add_term(away[1], larger(larger(minus(low, x1), minus(x1, high)), (real)0));
#if !EXACT
                off[0] = add_square(off[0], x0 - middle[j]);
                off[1] = add_square(off[1], x1 - middle[j]);
#endif
            }
            const int tag = d_tags[b], least = d_least[b];
            real within[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                double lightest = fmax(core[h], d_cores[b]); // lower bound on the weight of an edge to this tile
#if EXACT
                lightest = fmax(lightest, away[h]);
#endif
                bool asks = tag != component[h] && away[h] <= reach[h] && lightest <= limit[h]
                            && !(lightest == best[h].weight && least > best[h].name);
#if !EXACT
                // the sum `off` has a relative error of at most (DIMS + 3) / 2**24; flushing small terms to 0 only
                // makes it smaller
                asks = asks && sqrt((double)off[h]) * (1 - (DIMS + 8) * 5.9604644775390625e-8) - d_radius[b] <= far[h];
#endif
                within[h] = asks ? reach[h] : (real)-1;
            }
            if (!__any_sync(FULL, within[0] >= 0 || within[1] >= 0)) return;
            bool found[2] = {false, false};
            const int count = min(TILE, d_points - b * TILE);
            for (int c = 0; c < count; c += AT_ONCE) {
                real sums[2][AT_ONCE] = {};
#pragma unroll UNROLL
                for (int j = 0; j < DIMS; j++) {
                    const Some some = *(const Some*)(tile + j * TILE + c);
#if SMALL
                    const real x0 = q0[j], x1 = q1[j];
#else
                    const real x0 = my_tile[j * TILE + lane], x1 = my_tile[j * TILE + lane + 32];
#endif
#pragma unroll
                    for (int m = 0; m < AT_ONCE; m++) {
                        sums[0][m] = add_term(sums[0][m], minus(x0, some.v[m]));
                        sums[1][m] = add_term(sums[1][m], minus(x1, some.v[m]));
                    }
                }
#pragma unroll
                for (int h = 0; h < 2; h++) {
#pragma unroll
                    for (int m = 0; m < AT_ONCE; m++) {
                        if (!(sums[h][m] <= within[h]) || c + m >= count) continue;
                        const int j = b * TILE + c + m;
                        const double own = d_core[j];
                        if (d_component[j] == component[h] || own > limit[h]) continue;
#if EXACT
                        const double total = sums[h][m];
#else
                        const int i = a * TILE + lane + 32 * h;
                        const double total = away_from(qy + (size_t)i * DIMS, dy + (size_t)j * DIMS);
#endif
                        const double heavy = fmax(total, fmax(core[h], own));
                        const int name = d_names[j];
                        if (heavy > limit[h] || heavy > best[h].weight) continue;
                        if (heavy == best[h].weight && name > best[h].name) continue;
                        best[h] = {heavy, name, d_nodes[j]};
                        lower_to(h, heavy);
                        within[h] = reach[h];
                        found[h] = true;
                    }
                }
            }
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (found[h]) atomicMin(bounds + component[h], bits_of(best[h].weight));
        };

        // opens a node: computes the distances of its children's boxes, and the order in which they are visited
        auto open = [&](int level, int number) {
            const int begin = level ? (int)d_levels[level - 1] : 0;
            const int boxes = level ? (int)d_levels[level] - begin : tiles;
            const size_t group = (size_t)d_levels[level] + number;
            const real* lower = d_lower + group * DIMS * FANOUT + lane;
            const real* upper = d_upper + group * DIMS * FANOUT + lane;
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
                const bool there = number * FANOUT + c < boxes && d_tags[group * FANOUT + c] != only
                                   && d_cores[group * FANOUT + c] <= most
                                   // neighboring tiles go to different parts, so that the parts have similar work
                                   && (level || (c & (spread - 1)) == part);
                gaps[level * FANOUT + c] = gap[h];
                orders[level * FANOUT + c] = there ? (__float_as_uint(order[h]) & ~(FANOUT - 1)) | c : NONE;
            }
            if (lane == 0) s_node[warp][level] = number;
            __syncwarp();
        };

        refresh();
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
            refresh();
            if (level) open(--level, child);
            else scan(child);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = a * TILE + lane + 32 * h;
            if (i >= q_points) continue;
            weight[(size_t)part * q_points + i] = best[h].weight;
            end[(size_t)part * q_points + i] = best[h].node;
        }
    }
}
