#include "common.cuh"
#include "components.cuh"
// Finds density clusters of points in few dimensions by a binary tree of boxes. It is FDBSCAN-DenseBox (Prokopenko,
// Lebrun-Grandie & Arndt 2023, "Fast tree-based algorithms for DBSCAN for low-dimensional data on GPUs") with nodes of
// the tree instead of grid cells.
//
// Points lie along a Hilbert curve, so that consecutive points have small boxes. A leaf has LEAF consecutive points.
// Level 0 has the leaves, and node i of a level has the children 2 i and 2 i + 1 of the level below. `starts` holds the
// number of the first node of each level. Children that remain to be visited are one bit per level, because the sibling
// of an ancestor follows from the ancestor.
//
// A node is tight if the total of the sides of its box is at most `sure`: then all its points are near each other. The
// largest tight nodes are called cells. All points of a cell with `min_samples` points are core points. All core points
// of a cell are in one cluster, so they are united at once, and a search does not descend into a cell that is already in
// its cluster.
//
// Totals are compared with `reach` and `sure` as dask_simjoin/engine/filters/bounds.py derives. Float64 decides between.
// Rounding is monotone: the total of gaps between boxes is at most that of any of their points, and the total of the
// sides, or of the distances to the farthest corners, is at least that.
//
// Threads unite sets while others search them: see `components.cuh` for the protocol. A thread that reads an old root
// takes one set for two. Then it compares points once more than necessary, and `tie` finds their common root.
//
// Constants: DIMS; NORM; EXACT 0 or 1; LEAF, at most 32; SPAN, levels that a thread block bounds.

#define LEVELS 32          // of a tree; it suffices, because nodes are counted in int32
#define THREADS 256
#ifndef PROBED
#define PROBED 16          // points of a cell that are compared before each of its points searches
#endif
#define TIGHT 1
#define HOLDS 2            // the node is tight, or has a tight node below it
#define NONE (-1)

constexpr int WIDE = DIMS < 3 ? DIMS : (DIMS + 3) / 4 * 4;
struct alignas(WIDE * sizeof(real) < 16 ? WIDE * sizeof(real) : 16) Spot { real v[WIDE]; };
struct alignas(16) Node {
    real low[DIMS], high[DIMS];
    int first;             // the first core point, or NONE
    int flags;
};

// Replaces the numbers of a grid cell, one per dimension, by its place on a Hilbert curve. The bits of the place
// alternate among the numbers (Skilling 2004, "Programming the Hilbert curve").
__device__ __forceinline__ void to_curve(u32* cell, int bits) {
    for (int b = bits - 1; b > 0; b--) {
        const u32 less = (1u << b) - 1;
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            const u32 swapped = cell[k] >> b & 1 ? 0 : (cell[0] ^ cell[k]) & less;
            cell[0] ^= cell[k] >> b & 1 ? less : swapped;
            cell[k] ^= swapped;
        }
    }
#pragma unroll
    for (int k = 1; k < DIMS; k++) cell[k] ^= cell[k - 1];
    u32 flip = 0;
    for (int b = bits - 1; b > 0; b--)
        if (cell[DIMS - 1] >> b & 1) flip ^= (1u << b) - 1;
#pragma unroll
    for (int k = 0; k < DIMS; k++) cell[k] ^= flip;
}

// Writes the sort keys: some bits of the place on a Hilbert curve, then the position of the point in `order`, which is
// null if points are in row order. The curve goes through a cube with the corner `low` and 2**bits cells on each side.
// The key has the bits of each dimension from `shift` to `stop`. If `spots` is given, also writes the points as filters
// compare them.
extern "C" __global__ void
make_keys(const double* __restrict__ x, const int* __restrict__ order, int n, const double* __restrict__ low,
          double per_cell, int bits, int shift, int stop, int place_bits,
          const double* __restrict__ centre, double scale, Spot* __restrict__ spots, u64* __restrict__ keys) {
    const double last = (1u << bits) - 1;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const u32 row = order ? order[i] : i;
        u32 cell[DIMS];
        Spot spot = {};
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            const double value = x[(size_t)k * n + row];
            cell[k] = (u32)fmin(fmax((value - low[k]) * per_cell, 0.), last);
#if EXACT
            spot.v[k] = value;
#else
            spot.v[k] = (real)__dmul_rn(__dsub_rn(value, centre[k]), scale);
#endif
        }
        to_curve(cell, bits);
        u64 key = 0;
        for (int b = stop - 1; b >= shift; b--) {
#pragma unroll
            for (int k = 0; k < DIMS; k++) key = key << 1 | (cell[k] >> b & 1);
        }
        keys[i] = key << place_bits | i;
        if (spots) spots[row] = spot;
    }
}

// Writes the rows in the order of the keys, and the points in this order. `last`: see `order` in `make_keys`.
extern "C" __global__ void
take_spots(const u64* __restrict__ keys, int place_bits, const int* __restrict__ last, const Spot* __restrict__ spots,
           int n, int* __restrict__ order, Spot* __restrict__ out) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const int at = keys[i] & ((1ull << place_bits) - 1), row = last ? last[at] : at;
        order[i] = row;
        out[i] = spots[row];
    }
}

// Sets the flags of a node from its box, and from those of its children.
__device__ __forceinline__ void set_flags(Node& node, int below, real sure) {
    real sum = 0;
#pragma unroll
    for (int k = 0; k < DIMS; k++) sum = add_term(sum, minus(node.high[k], node.low[k]));
    node.flags = sum <= sure ? TIGHT | HOLDS : below & HOLDS;
}

// Writes the leaves. Their first core points are their first points, until `name_leaves` corrects them.
extern "C" __global__ void
bound_leaves(const Spot* __restrict__ spots, int n, int leaves, real sure, Node* __restrict__ nodes) {
    const u32 leaf = blockIdx.x * blockDim.x + threadIdx.x;
    if (leaf >= (u32)leaves) return;
    const u32 begin = leaf * LEAF, stop = min(begin + LEAF, (u32)n);
    Node node;
    const Spot one = spots[begin];
#pragma unroll
    for (int k = 0; k < DIMS; k++) node.low[k] = node.high[k] = one.v[k];
    for (u32 i = begin + 1; i < stop; i++) {
        const Spot other = spots[i];
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            node.low[k] = other.v[k] < node.low[k] ? other.v[k] : node.low[k];
            node.high[k] = larger(node.high[k], other.v[k]);
        }
    }
    node.first = begin;
    set_flags(node, 0, sure);
    nodes[leaf] = node;
}

// Writes the nodes of the levels after `from`, up to `to`, at most SPAN levels. A thread block writes the ancestors of
// 2**SPAN nodes. `named`: only writes the first core points.
extern "C" __global__ void __launch_bounds__(THREADS)
bound_levels(const int* __restrict__ starts, int from, int to, real sure, int named, Node* nodes) {
    for (int level = from + 1; level <= to; level++) {
        const int width = 1 << (SPAN - (level - from)), number = starts[level + 1] - starts[level];
        const int i = blockIdx.x * width + threadIdx.x;
        if (threadIdx.x < width && i < number) {
            const int a = starts[level - 1] + 2 * i;
            const bool both = a + 1 < starts[level];
            const Node one = nodes[a], other = nodes[a + both];
            Node* node = nodes + starts[level] + i;
            if (named) {
                node->first = one.first != NONE ? one.first : other.first;
            } else {
                Node made;
#pragma unroll
                for (int k = 0; k < DIMS; k++) {
                    made.low[k] = one.low[k] < other.low[k] ? one.low[k] : other.low[k];
                    made.high[k] = larger(one.high[k], other.high[k]);
                }
                made.first = one.first;
                set_flags(made, one.flags | other.flags, sure);
                *node = made;
            }
        }
        __syncthreads();
    }
}

// The parts of a tree: `spots` and `order` (n,) have the points, as filters compare them, and their rows. x: columns
// of coordinates, one after the other.
struct Tree {
    const Node* nodes;
    const int* starts;
    int levels, n, min_samples;
    const Spot* spots;
    const int* order;
    const double* x;
    real reach, sure;
    double threshold;
};
#define TREE                                                                                                           \
    const Node *__restrict__ nodes, const int *__restrict__ starts, int levels, int n, int min_samples,                \
        const Spot *__restrict__ spots, const int *__restrict__ order, const double *__restrict__ x,                   \
        real reach, real sure, double threshold
#define THE_TREE                                                                                                       \
    __shared__ int s_starts[LEVELS + 1];                                                                               \
    for (int m = threadIdx.x; m <= levels; m += blockDim.x) s_starts[m] = starts[m];                                   \
    __syncthreads();                                                                                                   \
    const Tree tree = {nodes, s_starts, levels, n, min_samples, spots, order, x, reach, sure, threshold}

struct Branch { int level, at; };

__device__ __forceinline__ const Node& node_at(const Tree& tree, Branch branch) {
    return tree.nodes[tree.starts[branch.level] + branch.at];
}

// Return the range of points of a node.
__device__ __forceinline__ int begin_of(Branch branch) { return (branch.at << branch.level) * LEAF; }
__device__ __forceinline__ int stop_of(const Tree& tree, Branch branch) {
    const u32 leaves = tree.starts[1] - tree.starts[0];
    return min(min((u32)(branch.at + 1) << branch.level, leaves) * LEAF, (u32)tree.n);
}

// Returns the cell of a leaf; the leaf itself if it is in none.
__device__ __forceinline__ Branch cell_of(const Tree& tree, int leaf, bool& tight) {
    Branch branch = {0, leaf};
    tight = node_at(tree, branch).flags & TIGHT;
    while (tight && branch.level + 1 < tree.levels) {
        const Branch above = {branch.level + 1, branch.at >> 1};
        if (!(node_at(tree, above).flags & TIGHT)) break;
        branch = above;
    }
    return branch;
}

// Returns the total of a point and the nearest point of a box.
__device__ __forceinline__ real gap_of(const Node& node, const Spot& p) {
    real sum = 0;
#pragma unroll
    for (int k = 0; k < DIMS; k++)
        sum = add_term(sum, larger(larger(minus(node.low[k], p.v[k]), minus(p.v[k], node.high[k])), (real)0));
    return sum;
}

// Returns the total of a point and the farthest corner of a box.
__device__ __forceinline__ real span_of(const Node& node, const Spot& p) {
    real sum = 0;
#pragma unroll
    for (int k = 0; k < DIMS; k++)
        sum = add_term(sum, larger(minus(p.v[k], node.low[k]), minus(node.high[k], p.v[k])));
    return sum;
}

__device__ __forceinline__ real between(const Spot& p, const Spot& q) {
    real sum = 0;
#pragma unroll
    for (int k = 0; k < DIMS; k++) sum = add_term(sum, minus(p.v[k], q.v[k]));
    return sum;
}

// Returns whether points i, which is p, and j are near each other.
__device__ __forceinline__ bool are_near(const Tree& tree, int i, const Spot& p, int j) {
    const real sum = between(p, tree.spots[j]);
#if EXACT
    return sum <= tree.reach;
#else
    if (!(sum <= tree.reach)) return false;
    if (sum <= tree.sure) return true;
    const double *a = tree.x + tree.order[i], *b = tree.x + tree.order[j];
    double total = 0;
#pragma unroll
    for (int k = 0; k < DIMS; k++) {
        const double t = __dsub_rn(a[(size_t)k * tree.n], b[(size_t)k * tree.n]);
        total = __dadd_rn(total, __dmul_rn(t, t));
    }
    return total <= tree.threshold;
#endif
}

// Return the levels in which the sibling of a node's ancestor is to be visited: all, or those where it comes after it.
__device__ __forceinline__ u32 around(const Tree& tree, Branch branch) {
    return ((1u << (tree.levels - 1)) - 1) & ~((1u << branch.level) - 1);
}
__device__ __forceinline__ u32 after(const Tree& tree, Branch branch) {
    return around(tree, branch) & ~((u32)branch.at << branch.level);
}

// Visits the nodes beside a node. `left`: see `around`. `enter` returns whether to descend into a node, and `scan`
// compares the points of a leaf.
template <class Enter, class Scan>
__device__ __forceinline__ void walk(const Tree& tree, Branch branch, u32 left, Enter enter, Scan scan) {
    while (left) {
        const int up = __ffs(left) - 1;
        left &= left - 1;
        branch = {up, (branch.at >> (up - branch.level)) ^ 1};
        if (branch.at >= tree.starts[up + 1] - tree.starts[up]) continue;
        while (enter(branch)) {
            if (!branch.level) {
                scan(branch.at);
                break;
            }
            branch = {branch.level - 1, branch.at * 2};
            left |= 1u << branch.level;
        }
    }
}

// Marks core points. Search stops at `min_samples` points.
extern "C" __global__ void __launch_bounds__(THREADS)
find_cores(TREE, bool* __restrict__ core) {
    THE_TREE;
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u32)n) return;
    bool tight;
    const Branch own = cell_of(tree, i / LEAF, tight);
    const Spot p = spots[i];
    int number = 0;
    auto scan = [&](int leaf) {
        for (int j = leaf * LEAF; j < stop_of(tree, {0, leaf}); j++) number += are_near(tree, i, p, j);
    };
    auto enter = [&](Branch branch) {
        if (number >= min_samples) return false;
        const Node& node = node_at(tree, branch);
        if (!(gap_of(node, p) <= reach)) return false;
        if (!(span_of(node, p) <= sure)) return true;
        number += stop_of(tree, branch) - begin_of(branch);
        return false;
    };
    if (tight) number = stop_of(tree, own) - begin_of(own);
    else scan(own.at);
    if (number < min_samples) walk(tree, own, around(tree, own), enter, scan);
    core[i] = number >= min_samples;
}

// Writes the first core point of each leaf.
extern "C" __global__ void
name_leaves(const bool* __restrict__ core, int n, int leaves, Node* __restrict__ nodes) {
    const u32 leaf = blockIdx.x * blockDim.x + threadIdx.x;
    if (leaf >= (u32)leaves) return;
    int first = NONE;
    for (int i = min((leaf + 1) * LEAF, (u32)n) - 1; i >= (int)(leaf * LEAF); i--)
        if (core[i]) first = i;
    nodes[leaf].first = first;
}

// Makes the core points of each cell a set, and any other point a set of its own. Lists the first leaf of each cell with
// core points, and the leaves that are in no cell. `number`: of both. `core`: null if all points count as core points.
extern "C" __global__ void __launch_bounds__(THREADS)
begin_sets(TREE, const bool* __restrict__ core, int* __restrict__ cells, int* __restrict__ open,
           int* __restrict__ number, node* __restrict__ parent) {
    THE_TREE;
    const u32 leaf = blockIdx.x * blockDim.x + threadIdx.x;
    if (leaf >= (u32)(s_starts[1] - s_starts[0])) return;
    bool tight;
    const Branch own = cell_of(tree, (int)leaf, tight);
    const int first = node_at(tree, own).first;
    for (int i = leaf * LEAF; i < stop_of(tree, {0, (int)leaf}); i++)
        parent[i] = tight && (!core || core[i]) ? first : i;
    if (first == NONE) return;
    if (!tight) open[atomicAdd(number + 1, 1)] = leaf;
    else if ((own.at << own.level) == (int)leaf) cells[atomicAdd(number, 1)] = leaf;
}

// Unites cells with later ones, if a few of their points show that they are near each other. Otherwise the points
// of a cell search one by one: see `unite_points`.
extern "C" __global__ void __launch_bounds__(THREADS)
unite_cells(TREE, const bool* __restrict__ core, const int* __restrict__ cells, int* __restrict__ open,
            int* __restrict__ number, node* parent) {
    THE_TREE;
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= (u32)number[0]) return;
    bool tight;
    const Branch own = cell_of(tree, cells[c], tight);
    const Node box = node_at(tree, own);
    node root = find(parent, box.first);
    bool sure_of_all = true;

    auto unite = [&](Branch branch, const Node& other) {
        real far = 0;
#pragma unroll
        for (int k = 0; k < DIMS; k++)
            far = add_term(far, larger(minus(box.high[k], other.low[k]), minus(other.high[k], box.low[k])));
        bool united = far <= sure;
        if (!united) { // compares the point that is nearest to the box with the point nearest to it
            int i = box.first, j = other.first;
            real least = gap_of(other, spots[i]);
            const int stop = stop_of(tree, own), step = (stop - i + PROBED - 1) / PROBED;
            for (int m = i + step; m < stop; m += step) {
                const real gap = gap_of(other, spots[m]);
                if (gap < least && (!core || core[m])) i = m, least = gap;
            }
            const Spot p = spots[i];
            least = between(p, spots[j]);
            const int other_stop = stop_of(tree, branch), other_step = (other_stop - j + PROBED - 1) / PROBED;
            for (int m = j + other_step; m < other_stop; m += other_step) {
                const real total = between(p, spots[m]);
                if (total < least && (!core || core[m])) j = m, least = total;
            }
            united = are_near(tree, i, p, j);
        }
        if (united) tie(parent, box.first, other.first);
        else sure_of_all = false;
    };
    auto enter = [&](Branch branch) {
        const Node& other = node_at(tree, branch);
        if (!(other.flags & HOLDS) || other.first == NONE) return false;
        real sum = 0;
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            const real gap = larger(minus(box.low[k], other.high[k]), minus(other.low[k], box.high[k]));
            sum = add_term(sum, larger(gap, (real)0));
        }
        if (!(sum <= reach)) return false;
        if (!(other.flags & TIGHT)) return true;
        const node its = find(parent, other.first);
        if (its != root && its != (root = find(parent, root))) unite(branch, other);
        return false;
    };
    walk(tree, own, after(tree, own), enter, [](int) {});
    if (sure_of_all) return;
    const int begin = own.at << own.level, stop = (stop_of(tree, own) + LEAF - 1) / LEAF;
    const int at = atomicAdd(number + 1, stop - begin);
    for (int leaf = begin; leaf < stop; leaf++) open[at + leaf - begin] = leaf;
}

// Unites the points of the listed leaves with near ones, one thread per point. Points of cells search later cells. Other
// points search all cells, and later points that are in no cell.
extern "C" __global__ void __launch_bounds__(THREADS)
unite_points(TREE, const bool* __restrict__ core, const int* __restrict__ open, const int* __restrict__ number,
             node* parent) {
    THE_TREE;
    const u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= (u32)number[1] * LEAF) return;
    const int leaf = open[t / LEAF], i = leaf * LEAF + t % LEAF;
    if (i >= n || (core && !core[i])) return;
    bool tight;
    const Branch own = cell_of(tree, leaf, tight);
    const Spot p = spots[i];
    node root = find(parent, i);

    auto scan = [&](int at) {
        const bool in_cell = nodes[at].flags & TIGHT;
        const int stop = stop_of(tree, {0, at});
        for (int j = at == leaf ? i + 1 : at * LEAF; j < stop; j++) {
            if ((core && !core[j]) || !are_near(tree, i, p, j)) continue;
            tie(parent, i, j);
            if (in_cell) break;
        }
    };
    auto enter = [&](Branch branch) {
        const Node& other = node_at(tree, branch);
        if (other.first == NONE) return false;
        if (!(other.flags & HOLDS) && (tight || (branch.at << branch.level) < leaf)) return false;
        if (!(gap_of(other, p) <= reach)) return false;
        if (!(other.flags & TIGHT)) return true;
        const node its = find(parent, other.first);
        return its != root && its != (root = find(parent, root));
    };
    const bool any_cells = nodes[s_starts[levels - 1]].flags & HOLDS;
    if (!tight) scan(leaf);
    walk(tree, own, tight || !any_cells ? after(tree, own) : around(tree, own), enter, scan);
}

// Marks the points of sets with several points.
extern "C" __global__ void
mark_united(const node* __restrict__ parent, int n, bool* core) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x)
        if (parent[i] != i) core[i] = core[parent[i]] = true;
}

// Writes the lowest label among the core points near each other point, if there are any.
extern "C" __global__ void __launch_bounds__(THREADS)
label_borders(TREE, const bool* __restrict__ core, long long* labels) {
    THE_TREE;
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u32)n || core[i]) return;
    bool tight;
    const Branch own = cell_of(tree, i / LEAF, tight);
    const Spot p = spots[i];
    const long long none = 0x7fffffffffffffffll;
    long long lowest = none;
    auto scan = [&](int leaf) {
        for (int j = leaf * LEAF; j < stop_of(tree, {0, leaf}); j++)
            if (core[j] && labels[j] < lowest && are_near(tree, i, p, j)) lowest = labels[j];
    };
    auto enter = [&](Branch branch) {
        const Node& other = node_at(tree, branch);
        if (other.first == NONE || !(gap_of(other, p) <= reach)) return false;
        return !(other.flags & TIGHT) || labels[other.first] < lowest;
    };
    if (!tight) scan(own.at);
    else if (node_at(tree, own).first != NONE) lowest = labels[node_at(tree, own).first];
    walk(tree, own, around(tree, own), enter, scan);
    if (lowest != none) labels[i] = lowest;
}
