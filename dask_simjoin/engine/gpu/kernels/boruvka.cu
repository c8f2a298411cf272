#include "common.cuh"
#include "bounds.cuh"
// The steps of Boruvka's algorithm except for searches: find the lightest edge of each component among known edges, and
// join components along these edges.
//
// A node is the position of a row in kd order, and a name is the row's id. Edges are ordered by (weight, smaller id,
// larger id). Three kernels choose the first edge of each component: `offer_edges` finds its weight, `name_edges` the
// ids of its ends, and `take_edges` the edge with these.

#define BOX 64

__device__ __forceinline__ double weight_of(u64 bits) { return __longlong_as_double((long long)bits); }

// Writes the lightest known edge of each node, or -1 if no edge is known. It is the edge that an earlier search has
// found, or the lightest edge to a listed neighbor in another component. See `offer_listed` in
// engine/cpu/kernels/boruvka.py.
extern "C" __global__ void
list_edges(int n, int k, int with_away, const int* __restrict__ component, const double* __restrict__ core,
           const int* __restrict__ names, const int* __restrict__ near, const double* __restrict__ away,
           float* __restrict__ beyond, double* __restrict__ least, int* __restrict__ to, double* __restrict__ weight,
           int* __restrict__ end) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const int own = component[i];
        int chosen = -1;
        double lightest = __longlong_as_double(0x7ff0000000000000ll);
        if (to[i] >= 0 && component[to[i]] != own) {
            chosen = to[i];
            lightest = least[i];
        } else {
            to[i] = -1;
            if (beyond[i] >= 0) {
                for (int s = 0; s < k; s++) {
                    const int j = near[(size_t)i * k + s];
                    if (j < 0 || component[j] == own) continue;
                    double heavy = fmax(core[i], core[j]);
                    if (with_away) heavy = fmax(heavy, away[(size_t)i * k + s]);
                    if (chosen < 0 || heavy < lightest || (heavy == lightest && names[j] < names[chosen])) {
                        chosen = j;
                        lightest = heavy;
                    }
                }
                least[i] = fmax(least[i], (double)beyond[i]);
                if (chosen < 0) {
                    beyond[i] = -1;
                } else if (lightest < beyond[i]) { // lighter than any edge to a node that is not listed
                    to[i] = chosen;
                    least[i] = lightest;
                }
            }
        }
        weight[i] = lightest;
        end[i] = chosen;
    }
}

// Reads the ends of an edge. If `start` is null, edge e starts at node e. Returns whether the ends are in
// different components.
__device__ __forceinline__ bool ends_of(u32 e, const int* start, const int* end, const int* component, int* from,
                                        int* to) {
    *to = end[e];
    *from = start ? start[e] : (int)e;
    return *to >= 0 && component[*from] != component[*to];
}

// Lowers the bound of each component to the smallest weight of its edges to other components.
extern "C" __global__ void
offer_edges(int n, const int* __restrict__ start, const int* __restrict__ end, const double* __restrict__ weight,
            const int* __restrict__ component, u64* bounds) {
    for (u32 e = blockIdx.x * blockDim.x + threadIdx.x; e < (u32)n; e += gridDim.x * blockDim.x) {
        int from, to;
        if (ends_of(e, start, end, component, &from, &to)) lower_bound(bounds + component[from], bits_of(weight[e]));
    }
}

__device__ __forceinline__ u64 both_names(int a, int b) {
    return (u64)(u32)min(a, b) << 32 | (u32)max(a, b);
}

// Finds for each component the smallest pair of ids among its edges whose weight is its entry of `bounds`.
extern "C" __global__ void
name_edges(int n, const int* __restrict__ start, const int* __restrict__ end, const double* __restrict__ weight,
           const int* __restrict__ component, const int* __restrict__ names, const u64* __restrict__ bounds,
           u64* least) {
    for (u32 e = blockIdx.x * blockDim.x + threadIdx.x; e < (u32)n; e += gridDim.x * blockDim.x) {
        int from, to;
        if (ends_of(e, start, end, component, &from, &to) && bits_of(weight[e]) == bounds[component[from]])
            atomicMin(least + component[from], both_names(names[from], names[to]));
    }
}

// Writes for each component both nodes of the edge with the weight in `bounds` and the ids in `least`.
extern "C" __global__ void
take_edges(int n, const int* __restrict__ start, const int* __restrict__ end, const double* __restrict__ weight,
           const int* __restrict__ component, const int* __restrict__ names, const u64* __restrict__ bounds,
           const u64* __restrict__ least, int* __restrict__ starts, int* __restrict__ ends) {
    for (u32 e = blockIdx.x * blockDim.x + threadIdx.x; e < (u32)n; e += gridDim.x * blockDim.x) {
        int from, to;
        if (!ends_of(e, start, end, component, &from, &to)) continue;
        const int own = component[from];
        if (bits_of(weight[e]) != bounds[own] || both_names(names[from], names[to]) != least[own]) continue;
        starts[own] = from;
        ends[own] = to;
    }
}

// Chooses the lightest edge of each node from one edge per part of the data: `weights`, `ends` (parts, n).
extern "C" __global__ void
least_of_parts(int n, int parts, const double* __restrict__ weights, const int* __restrict__ ends,
               const int* __restrict__ names, double* __restrict__ weight, int* __restrict__ end) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        double lightest = weights[i];
        int chosen = ends[i];
        for (int p = 1; p < parts; p++) {
            const double heavy = weights[(size_t)p * n + i];
            const int other = ends[(size_t)p * n + i];
            if (other < 0 || (chosen >= 0 && heavy > lightest)) continue;
            if (chosen >= 0 && heavy == lightest && names[other] > names[chosen]) continue;
            lightest = heavy;
            chosen = other;
        }
        weight[i] = lightest;
        end[i] = chosen;
    }
}

// Marks components whose size is at most `times` the median size, `sorted[middle]`.
extern "C" __global__ void
small_ones(int n, const double* __restrict__ sizes, const double* __restrict__ sorted, int middle, double times,
           bool* __restrict__ small) {
    for (u32 c = blockIdx.x * blockDim.x + threadIdx.x; c < (u32)n; c += gridDim.x * blockDim.x)
        small[c] = sizes[c] <= times * sorted[middle];
}

// Marks nodes that must search: their component searches, and they may have a lighter edge than its bound.
extern "C" __global__ void
wanted_nodes(int n, const int* __restrict__ component, const bool* __restrict__ asked, const int* __restrict__ to,
             const double* __restrict__ least, const double* __restrict__ core, const u64* __restrict__ bounds,
             bool* __restrict__ wanted) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const int own = component[i];
        wanted[i] = asked[own] && to[i] < 0 && fmax(least[i], core[i]) <= weight_of(bounds[own]);
    }
}

// Stores the search result of each node, `end` and `weight` (n,). All `bounds` must be final.
extern "C" __global__ void
settle_nodes(int n, const int* __restrict__ nodes, const int* __restrict__ end, const double* __restrict__ weight,
             const int* __restrict__ component, const u64* __restrict__ bounds, double* __restrict__ least,
             int* __restrict__ to, int* __restrict__ ends, double* __restrict__ weights) {
    for (u32 k = blockIdx.x * blockDim.x + threadIdx.x; k < (u32)n; k += gridDim.x * blockDim.x) {
        const int i = nodes[k];
        const double known = weight_of(bounds[component[i]]);
        ends[i] = end[k];
        weights[i] = weight[k];
        least[i] = fmax(least[i], known);
        // the search skipped edges above the bound, so a heavier result need not be the node's lightest edge
        to[i] = weight[k] == known ? end[k] : -1;
    }
}

// For each node that searched, raises `least`, the lower bound of its edges, to the bound of its component.
extern "C" __global__ void
raise_least(int n, const bool* __restrict__ wanted, const int* __restrict__ component, const u64* __restrict__ bounds,
            double* __restrict__ least) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x)
        if (wanted[i]) least[i] = fmax(least[i], weight_of(bounds[component[i]]));
}

// Points each component to the component at the other end of its lightest edge. A component points to itself if it
// does not search or has no edge.
extern "C" __global__ void
lead_to(int n, const bool* __restrict__ asked, const int* __restrict__ starts, const int* __restrict__ ends,
        const int* __restrict__ component, int* __restrict__ to) {
    for (u32 c = blockIdx.x * blockDim.x + threadIdx.x; c < (u32)n; c += gridDim.x * blockDim.x)
        to[c] = asked[c] && starts[c] >= 0 ? component[ends[c]] : (int)c;
}

// Breaks cycles. Edges have a strict order, so a cycle consists of two components that chose the same edge. The
// component with the smaller number becomes a root, and only the other one contributes the edge to the tree.
extern "C" __global__ void
open_circles(int n, const bool* __restrict__ asked, const int* __restrict__ starts, const int* __restrict__ to,
             int* __restrict__ above, bool* __restrict__ taken) {
    for (u32 c = blockIdx.x * blockDim.x + threadIdx.x; c < (u32)n; c += gridDim.x * blockDim.x) {
        const bool first = to[to[c]] == (int)c && (int)c < to[c];
        above[c] = first ? (int)c : to[c];
        taken[c] = asked[c] && starts[c] >= 0 && !first;
    }
}

// Writes 1 for components that point to themselves, else 0.
extern "C" __global__ void
mark_roots(int n, const int* __restrict__ above, int* __restrict__ root) {
    for (u32 c = blockIdx.x * blockDim.x + threadIdx.x; c < (u32)n; c += gridDim.x * blockDim.x)
        root[c] = above[c] == (int)c;
}

// Writes the new component of each node, and the sizes of new components. `number`: the number of each root, counted
// from 1.
extern "C" __global__ void
join_nodes(int n, int components, const int* __restrict__ component, const int* __restrict__ above,
           const int* __restrict__ number, const double* __restrict__ sizes, int* __restrict__ joined,
           double* __restrict__ joined_sizes) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        joined[i] = number[above[component[i]]] - 1;
        if (i < (u32)components) atomicAdd(joined_sizes + number[above[i]] - 1, sizes[i]);
    }
}

// Writes the smaller and the larger id of each edge's ends, and both packed into one number.
extern "C" __global__ void
name_ends(int n, const int* __restrict__ names, const int* __restrict__ start, const int* __restrict__ end,
          int* __restrict__ low, int* __restrict__ high, long long* __restrict__ both) {
    for (u32 e = blockIdx.x * blockDim.x + threadIdx.x; e < (u32)n; e += gridDim.x * blockDim.x) {
        const int a = names[start[e]], b = names[end[e]];
        low[e] = min(a, b);
        high[e] = max(a, b);
        both[e] = (long long)both_names(a, b);
    }
}

// Marks edges, sorted by length, that are as long as the edge before them, but come before it by their ends.
extern "C" __global__ void
mark_unordered(int n, const int* __restrict__ start, const int* __restrict__ end, const double* __restrict__ away,
               bool* __restrict__ wrong) {
    for (u32 e = blockIdx.x * blockDim.x + threadIdx.x; e < (u32)n; e += gridDim.x * blockDim.x)
        wrong[e] = e && away[e] == away[e - 1]
                   && (start[e] < start[e - 1] || (start[e] == start[e - 1] && end[e] < end[e - 1]));
}

// Writes for each box the value that all its `BOX` values share, or -1 if they differ. One warp per box.
extern "C" __global__ void
tag_boxes(const int* __restrict__ values, int n, int boxes, int* __restrict__ tags) {
    const int lane = threadIdx.x & 31;
    const u32 step = gridDim.x * (blockDim.x >> 5);
    for (u32 b = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); b < (u32)boxes; b += step) {
        const u32 begin = b * BOX, stop = min(begin + BOX, (u32)n);
        const int first = values[begin];
        bool same = true;
        for (u32 i = begin + lane; i < stop; i += 32) same = same && values[i] == first;
        const bool mixed = __any_sync(FULL, !same);
        if (lane == 0) tags[b] = mixed ? -1 : first;
    }
}

__device__ __forceinline__ double least_of(double a, double b) { return fmin(a, b); }

__device__ __forceinline__ int least_of(int a, int b) { return min(a, b); }

// Writes for each box the smallest of its `BOX` values. One warp per box. `most`: a number above all values.
template <class T>
__device__ __forceinline__ void
least_of_boxes(const T* __restrict__ values, int n, int boxes, T most, T* __restrict__ least) {
    const int lane = threadIdx.x & 31;
    const u32 step = gridDim.x * (blockDim.x >> 5);
    for (u32 b = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); b < (u32)boxes; b += step) {
        const u32 begin = b * BOX, stop = min(begin + BOX, (u32)n);
        T found = most;
        for (u32 i = begin + lane; i < stop; i += 32) found = least_of(found, values[i]);
        for (int k = 16; k; k >>= 1) found = least_of(found, __shfl_xor_sync(FULL, found, k));
        if (lane == 0) least[b] = found;
    }
}

extern "C" __global__ void
least_below(const double* __restrict__ values, int n, int boxes, double* __restrict__ least) {
    least_of_boxes(values, n, boxes, __longlong_as_double(0x7ff0000000000000ll), least);
}

// Writes the smallest id in each box.
extern "C" __global__ void
least_named(const int* __restrict__ names, int n, int boxes, int* __restrict__ least) {
    least_of_boxes(names, n, boxes, 0x7fffffff, least);
}
