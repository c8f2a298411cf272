#include "common.cuh"
#include "reach.cuh"
#include "bounds.cuh"
#include "beside.cuh"
// Searches for the lightest edge from each row to the points of an index that are in other components, for points of few
// dimensions. One thread per row: rows that search are far apart when few of them search, so that a tile of them would
// have a large box. `spanning.cu` has the search for many dimensions, the order of edges, and what a result guarantees.
//
// The tree of boxes is binary. A leaf has `LEAF` consecutive points. Level 0 has the leaves, and node i of a level has
// the children 2 i and 2 i + 1 of the level below. `starts` holds the number of the first node of each level. Children
// that remain to be visited are one bit per level, because the sibling of an ancestor follows from the ancestor.
//
// Constants: DIMS; EXACT 1; NORM; LEAF.

#define WARPS 4
#define LEVELS 32          // of a tree; it suffices, because nodes are counted in int32
#define NO_NAME 0x7fffffff

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }

// Writes the box of each leaf, its smallest core distance, and its smallest id.
extern "C" __global__ void
bound_leaves(const double* __restrict__ points, const double* __restrict__ core, const int* __restrict__ names, int n,
             int leaves, double* __restrict__ boxes, double* __restrict__ cores, int* __restrict__ least) {
    for (u32 b = blockIdx.x * blockDim.x + threadIdx.x; b < (u32)leaves; b += gridDim.x * blockDim.x) {
        const u32 begin = b * LEAF, stop = min(begin + LEAF, (u32)n);
        double low[DIMS], high[DIMS], smallest = infinity();
        int name = NO_NAME;
#pragma unroll
        for (int k = 0; k < DIMS; k++) low[k] = infinity(), high[k] = -infinity();
        for (u32 j = begin; j < stop; j++) {
#pragma unroll
            for (int k = 0; k < DIMS; k++) {
                low[k] = fmin(low[k], points[(size_t)j * DIMS + k]);
                high[k] = fmax(high[k], points[(size_t)j * DIMS + k]);
            }
            smallest = fmin(smallest, core[j]);
            name = min(name, names[j]);
        }
        double* box = boxes + (size_t)b * 2 * DIMS;
#pragma unroll
        for (int k = 0; k < DIMS; k++) box[k] = low[k], box[DIMS + k] = high[k];
        cores[b] = smallest;
        least[b] = name;
    }
}

// Writes the box, the smallest core distance and the smallest id of each node of a level: of `number` nodes from
// `start`, whose children begin at `below` and end at `start`.
extern "C" __global__ void
bound_nodes(int number, int start, int below, double* __restrict__ boxes, double* __restrict__ cores,
            int* __restrict__ least) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)number; i += gridDim.x * blockDim.x) {
        const u32 a = below + 2 * i, b = min(a + 1, (u32)start - 1);
        const double *one = boxes + (size_t)a * 2 * DIMS, *other = boxes + (size_t)b * 2 * DIMS;
        double* box = boxes + (size_t)(start + i) * 2 * DIMS;
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            box[k] = fmin(one[k], other[k]);
            box[DIMS + k] = fmax(one[DIMS + k], other[DIMS + k]);
        }
        cores[start + i] = fmin(cores[a], cores[b]);
        least[start + i] = min(least[a], least[b]);
    }
}

// Writes for each leaf the component that all its points share, or -1.
extern "C" __global__ void
tag_leaves(const int* __restrict__ component, int n, int leaves, int* __restrict__ tags) {
    for (u32 b = blockIdx.x * blockDim.x + threadIdx.x; b < (u32)leaves; b += gridDim.x * blockDim.x) {
        const u32 begin = b * LEAF, stop = min(begin + LEAF, (u32)n);
        int tag = component[begin];
        for (u32 j = begin + 1; j < stop; j++)
            if (component[j] != tag) tag = -1;
        tags[b] = tag;
    }
}

// Writes the tags of a level; see `bound_nodes`.
extern "C" __global__ void tag_nodes(int number, int start, int below, int* __restrict__ tags) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)number; i += gridDim.x * blockDim.x) {
        const u32 a = below + 2 * i, b = min(a + 1, (u32)start - 1);
        tags[start + i] = tags[a] == tags[b] ? tags[a] : -1;
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
search_others(int n, const double* __restrict__ y, int first, const int* __restrict__ asking,
            const int* __restrict__ component, const double* __restrict__ core, const double* __restrict__ points,
            const int* __restrict__ d_component, const double* __restrict__ d_core, const int* __restrict__ d_names,
            const int* __restrict__ d_nodes, int d_points, const double* __restrict__ boxes,
            const double* __restrict__ cores, const int* __restrict__ least, const int* __restrict__ tags,
            const int* __restrict__ starts, int levels, u64* bounds, double* __restrict__ weight,
            int* __restrict__ end) {
    // y: points of nodes from `first`. asking (n,): nodes that search. component, core: of all nodes. points, d_...: of
    // the searched points, in the tree's order. bounds: bounds of components, as bits. weight, end (n,): the result
    __shared__ int s_starts[LEVELS + 1];
    for (int k = threadIdx.x; k <= levels; k += blockDim.x) s_starts[k] = starts[k];
    __syncthreads();

    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const int node = asking[i], own = component[node];
        const double mine = core[node];
        double q[DIMS];
#pragma unroll
        for (int k = 0; k < DIMS; k++) q[k] = y[(size_t)(node - first) * DIMS + k];
        double lightest = infinity(), limit = infinity(); // limit: maximum weight of a useful edge
        int name = NO_NAME, to = -1;

        // reads the bound of the component again, because other rows may have lowered it
        auto refresh = [&]() {
            limit = fmin(limit, __longlong_as_double((long long)*(volatile u64*)(bounds + own)));
        };
        // returns the distance of the row from a box, or -1 if the box holds no useful edge
        auto away = [&](u32 c) {
            if (tags[c] == own) return -1.;
            const double* box = boxes + (size_t)c * 2 * DIMS;
            double sum = 0;
#pragma unroll
            for (int k = 0; k < DIMS; k++)
                sum = add_term(sum, fmax(fmax(minus(box[k], q[k]), minus(q[k], box[DIMS + k])), 0.));
            const double heavy = fmax(sum, fmax(mine, cores[c]));
            if (heavy > limit || (heavy == lightest && least[c] > name)) return -1.;
            return sum;
        };

        refresh();
        int level = levels - 1, at = 0;
        u32 left = 0; // bit k: the sibling of the ancestor in level k remains to be visited
        bool found = mine <= limit && away(s_starts[level]) >= 0;
        while (found) {
            while (level && found) {
                const u32 child = s_starts[--level] + 2 * at;
                const double one = away(child);
                const double other = child + 1 < (u32)s_starts[level + 1] ? away(child + 1) : -1.;
                found = one >= 0 || other >= 0;
                bool second = other >= 0;
                if (one >= 0 && other >= 0) {
                    left |= 1u << level;
                    // of equally near children, first the one with the smaller id, which may win a tie
                    second = other < one || (other == one && least[child + 1] < least[child]);
                }
                at = 2 * at + second;
            }
            if (found) { // a leaf
                const double before = lightest;
                const u32 stop = min((u32)(at + 1) * LEAF, (u32)d_points);
                for (u32 j = (u32)at * LEAF; j < stop; j++) {
                    const double theirs = d_core[j];
                    if (d_component[j] == own || theirs > limit) continue;
                    const double total = away_from(q, points + (size_t)j * DIMS);
                    const double heavy = fmax(total, fmax(mine, theirs));
                    if (heavy > limit || (heavy == lightest && d_names[j] > name)) continue;
                    lightest = limit = heavy;
                    name = d_names[j];
                    to = d_nodes[j];
                }
                if (lightest < before) atomicMin(bounds + own, bits_of(lightest));
                refresh();
            }
            found = false;
            while (left && !found) {
                const int up = __ffs(left) - 1;
                left &= left - 1;
                at = (at >> (up - level)) ^ 1;
                level = up;
                found = away(s_starts[level] + at) >= 0;
            }
        }
        weight[i] = lightest;
        end[i] = to;
    }
}
