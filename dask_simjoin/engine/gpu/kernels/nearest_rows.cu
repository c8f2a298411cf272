#include "common.cuh"
#include "leaves.cuh"
// Searches the nearest neighbors of rows in few dimensions, one thread per row. `nearest.cuh` has the order of
// neighbors, `leaves.cu` the binary tree of boxes.
//
// A thread begins at the leaf of its row, and climbs: it visits the sibling of the leaf, the sibling of their parent,
// and so on. A box is skipped if a lower bound of the totals in it exceeds the worst total of the list. Within a
// sibling, the nearer child comes first. Children that remain to be visited are one bit per level, because the sibling
// of an ancestor follows from the ancestor. A row that is not in the tree begins at the root.
//
// All coordinates of the points are float32 numbers, so that their boxes are not rounded. Rounded boxes of points that
// are far from the origin, and near each other, would all overlap.
//
// The list has K neighbors in registers, sorted by their totals in float64. Its order among equal totals is left open,
// except that the last entry is the one to be dropped next. Of more than K neighbors, each pass over the tree finds the
// next K, which come after those of the pass before.
//
// Constants: DIMS; EXACT 1; NORM; LEAF, a multiple of 4 of at most 32; K; BLOCKS that run on a multiprocessor at
// the same time, which limits their registers.

#define WARPS 4
#define LEVELS 32          // of a tree; it suffices, because nodes are counted in int32
#define FREE -1            // entry without a neighbor

// Adds one dimension to a lower bound of a total, like `add_term`, rounded down.
__device__ __forceinline__ float add_below(float sum, float t) {
#if NORM == 0
    return fmaxf(sum, t);
#elif NORM == 1
    return __fadd_rd(sum, t);
#elif NORM == 2
    return __fmaf_rd(t, t, sum); // in float64 the square is exact
#else
#error "rows search by the norms 1, 2 and infinity only"
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
search_rows(int n, const double* __restrict__ y, const int* __restrict__ place, const int* __restrict__ order,
            const u64* __restrict__ q_names, const float* __restrict__ points, const u64* __restrict__ names,
            int d_points, const float4* __restrict__ pairs, const u64* __restrict__ least, const int* __restrict__ starts, int levels,
            int leaves, int same, int own, double bound2, int k, const double* __restrict__ old_d2,
            const u64* __restrict__ old_name, double* best_d2, u64* best_name) {
    // y, order, q_names: of the queries. place (n,): their order. own: the queries are the points of the tree, in its
    // order. starts: the first node of each level. old_d2, old_name (n, k): the neighbors so far; null if no row has any
    __shared__ int s_starts[LEVELS + 1];
    for (int m = threadIdx.x; m <= levels; m += blockDim.x) s_starts[m] = starts[m];
    __syncthreads();
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u32)n) return;

    const int from = place[i];
    const size_t row = (size_t)order[from] * k;
    double q[DIMS];
    float low[DIMS], high[DIMS];
#pragma unroll
    for (int m = 0; m < DIMS; m++) {
        q[m] = y[(size_t)from * DIMS + m];
        low[m] = below(q[m]);
        high[m] = above(q[m]);
    }
    // an entry is the position of a point in the tree, or FREE, or FREE - 1 - e for entry e of the old list
    auto name_of = [&](int at) { return at >= 0 ? names[at] : at == FREE ? NO_NAME : old_name[row + (FREE - 1 - at)]; };

    const bool known = old_name && old_name[row] != NO_NAME;
    double after_d2 = -1; // of the last neighbor of the pass before
    int used = 0;         // number of entries of the old list that are in the result
    for (int begin = 0; begin < k; begin += K) {
        const int size = min(K, k - begin);
        // if the list is shorter than K, its first entries come before all neighbors
        double d2s[K];
        int at_of[K];
#pragma unroll
        for (int e = 0; e < K; e++) {
            const int old = used + e - (K - size);
            d2s[e] = e < K - size ? -1 : infinity();
            at_of[e] = FREE;
            if (known && e >= K - size && old < k && old_name[row + old] != NO_NAME) {
                d2s[e] = old_d2[row + old];
                at_of[e] = FREE - 1 - old;
            }
        }
        float reach;
        auto narrow = [&]() {
            reach = fminf(__double2float_rd(fmin(d2s[K - 1], bound2)), LARGEST); // an empty box is beyond
        };

        // puts the entry that comes last among equals at the end
        auto settle = [&]() {
            if (at_of[K - 1] == FREE || d2s[K - 2] != d2s[K - 1]) return;
            u64 last = name_of(at_of[K - 1]);
#pragma unroll
            for (int e = 0; e < K - 1; e++) {
                if (d2s[e] != d2s[K - 1]) continue;
                const u64 name = name_of(at_of[e]);
                if (name < last) continue;
                const int at = at_of[e];
                at_of[e] = at_of[K - 1];
                at_of[K - 1] = at;
                last = name;
            }
        };
        // inserts an entry, and drops the last one
        auto insert = [&](double d2, int at) {
#pragma unroll
            for (int e = K - 1; e > 0; e--) {
                const bool moves = d2 < d2s[e - 1], here = e == K - 1 || d2 < d2s[e];
                d2s[e] = moves ? d2s[e - 1] : here ? d2 : d2s[e];
                at_of[e] = moves ? at_of[e - 1] : here ? at : at_of[e];
            }
            if (d2 < d2s[0]) {
                d2s[0] = d2;
                at_of[0] = at;
            }
            settle();
            narrow();
        };
        // adds a dimension to the bound of the totals from the row to a box
        auto add_gap = [&](float sum, float from, float to, int m) {
            return add_below(sum, fmaxf(fmaxf(__fsub_rd(from, high[m]), __fsub_rd(low[m], to)), 0.f));
        };
        auto scan = [&](u32 leaf) {
            const float* own_points = points + (size_t)leaf * DIMS * LEAF;
            u32 near = 0; // the points that may be neighbors
#pragma unroll
            for (int first = 0; first < LEAF; first += 4) {
                float sums[4] = {};
#pragma unroll
                for (int m = 0; m < DIMS; m++) {
                    const float4 a = *(const float4*)(own_points + m * LEAF + first);
                    const float x[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
                    for (int c = 0; c < 4; c++) sums[c] = add_gap(sums[c], x[c], x[c], m);
                }
#pragma unroll
                for (int c = 0; c < 4; c++) near |= (u32)(sums[c] <= reach) << (first + c);
            }
            const int count = d_points - (int)leaf * LEAF; // the last leaf may not be full
            if (count < LEAF) near &= (1u << count) - 1;
            for (; near; near &= near - 1) {
                const int c = __ffs(near) - 1, at = leaf * LEAF + c;
                double d2 = 0;
#pragma unroll
                for (int m = 0; m < DIMS; m++) d2 = add_term(d2, minus(q[m], (double)own_points[m * LEAF + c]));
                if (d2 > d2s[K - 1] || d2 > bound2 || d2 < after_d2) continue;
                if (d2 == d2s[K - 1] || d2 == after_d2 || d2 == 0) {
                    const u64 name = names[at];
                    if ((same && name == q_names[from]) || (d2 == after_d2 && name <= best_name[row + begin - 1]) ||
                        (d2 == d2s[K - 1] && name >= name_of(at_of[K - 1])))
                        continue;
                }
                insert(d2, at);
            }
        };
        // returns lower bounds of the totals from the row to both boxes of a node
        auto gaps_of = [&](int node, float gaps[2]) {
            gaps[0] = gaps[1] = 0;
#pragma unroll
            for (int m = 0; m < DIMS; m++) {
                const float4 pair = pairs[(size_t)(node - leaves) * DIMS + m];
                gaps[0] = add_gap(gaps[0], pair.x, pair.y, m);
                gaps[1] = add_gap(gaps[1], pair.z, pair.w, m);
            }
        };
        // returns whether a node may have a neighbor
        auto useful = [&](float gap, int node) {
            return gap <= reach && (d2s[K - 1] != 0 || least[node] < name_of(at_of[K - 1]));
        };

        settle();
        narrow();
        int level = own ? 0 : levels - 1, at = own ? i / LEAF : 0;
        u32 left = own ? (1u << (levels - 1)) - 1 : 0; // bit m: the sibling in level m remains to be visited
        for (bool found = true; found;) {
            while (level && found) {
                float gaps[2];
                gaps_of(s_starts[level--] + at, gaps);
                at *= 2;
                const bool one = useful(gaps[0], s_starts[level] + at);
                const bool other = useful(gaps[1], s_starts[level] + at + 1);
                found = one || other;
                if (one && other) left |= 1u << level;
                at += other && !(one && gaps[0] <= gaps[1]);
            }
            if (found) scan(at);
            found = false;
            while (left && !found) {
                const int up = __ffs(left) - 1;
                left &= left - 1;
                at = (at >> (up - level)) ^ 1;
                level = up;
                float gaps[2];
                gaps_of(s_starts[level + 1] + (at >> 1), gaps);
                found = useful(gaps[at & 1], s_starts[level] + at);
            }
        }

        bool ties = false;
#pragma unroll
        for (int e = 0; e < K; e++) {
            if (e < K - size) continue;
            const size_t to = row + begin + e - (K - size);
            best_d2[to] = d2s[e];
            best_name[to] = name_of(at_of[e]);
            used += at_of[e] < FREE;
            if (e) ties = ties || d2s[e] == d2s[e - 1];
        }
        if (ties) {
            for (int e = begin + 1; e < begin + size; e++) {
                const u64 name = best_name[row + e];
                int to = e;
                for (; to > begin && best_d2[row + to - 1] == best_d2[row + e] && best_name[row + to - 1] > name; to--)
                    best_name[row + to] = best_name[row + to - 1];
                best_name[row + to] = name;
            }
        }
        after_d2 = best_d2[row + begin + size - 1];
        if (at_of[K - 1] == FREE) { // there are no more neighbors
            for (int e = begin + size; e < k; e++) {
                best_d2[row + e] = infinity();
                best_name[row + e] = NO_NAME;
            }
            break;
        }
    }
}
