#include "common.cuh"
// Builds the dendrogram of a spanning tree, and finds its clusters: see engine/gpu/spanning.py.

#define EACH(i, n) (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)(n); i += gridDim.x * blockDim.x)

// Writes the smallest edge number of each vertex to `first`.
extern "C" __global__ void
first_edges(int n, const int* __restrict__ a, const int* __restrict__ b, int* first) {
    for EACH(e, n) {
        atomicMin(first + a[e], (int)e);
        atomicMin(first + b[e], (int)e);
    }
}

// Adds 1 to `out` at each position in `place`; positions may repeat.
extern "C" __global__ void
count_at(int n, const int* __restrict__ place, int* out) {
    for EACH(i, n) atomicAdd(out + place[i], 1);
}

// Follows pointers for two steps at once (pointer jumping). Sets `moved` if the second step leads further than the
// first for any entry.
extern "C" __global__ void
follow(int n, const int* __restrict__ to, int* __restrict__ further, int* moved) {
    for EACH(i, n) {
        further[i] = to[to[i]];
        if (further[i] != to[i]) *moved = 1;
    }
}

// Writes for each vertex the other vertex of its first edge.
extern "C" __global__ void
other_ends(int n, const int* __restrict__ a, const int* __restrict__ b, const int* __restrict__ first,
           int* __restrict__ to) {
    for EACH(v, n) {
        const int e = first[v];
        to[v] = a[e] == (int)v ? b[e] : a[e];
    }
}

// Makes the smaller of two vertices that point to each other a root, which points to itself. Two vertices do this if
// they have the same first edge.
extern "C" __global__ void
open_pairs(int n, const int* __restrict__ to, int* __restrict__ up) {
    for EACH(v, n) up[v] = to[to[v]] == (int)v && (int)v < to[v] ? (int)v : to[v];
}

// Writes 1 for entries that point to themselves, else 0.
extern "C" __global__ void
mark_roots(int n, const int* __restrict__ root, int* __restrict__ kept) {
    for EACH(v, n) kept[v] = root[v] == (int)v;
}

// Writes the number of each entry's root, counted from 0. `number`: the number of each root, counted from 1.
extern "C" __global__ void
number_of(int n, const int* __restrict__ root, const int* __restrict__ number, int* __restrict__ found) {
    for EACH(v, n) found[v] = number[root[v]] - 1;
}

// Marks edges that are the first edge of at least one of their vertices as `inner`, and all others as `outer`.
extern "C" __global__ void
inner_edges(int n, const int* __restrict__ a, const int* __restrict__ b, const int* __restrict__ first,
            bool* __restrict__ inner, bool* __restrict__ outer) {
    for EACH(e, n) {
        inner[e] = first[a[e]] == (int)e || first[b[e]] == (int)e;
        outer[e] = !inner[e];
    }
}

// Marks as `before` the edges that come before the first edge of their vertex, and as `after` all others.
extern "C" __global__ void
ended_edges(int n, const int* __restrict__ own, const int* __restrict__ inside, const int* __restrict__ ends,
            bool* __restrict__ before, bool* __restrict__ after) {
    for EACH(k, n) {
        before[k] = own[k] < ends[inside[k]];
        after[k] = !before[k];
    }
}

// Writes sort keys: the vertex of each edge in the upper bits, the number of the edge in the lower bits.
extern "C" __global__ void
chain_keys(int n, const int* __restrict__ own, const int* __restrict__ inside, long long* __restrict__ key) {
    for EACH(k, n) key[k] = (long long)inside[k] << 32 | (u32)own[k];
}

// Writes the parent of each edge: the next edge in its chain. For the last edge it is the merge after the chain.
// `rows`: number of rows that each edge adds to its chain.
extern "C" __global__ void
link_chains(int n, const long long* __restrict__ key, const int* __restrict__ ends, const int* __restrict__ joined,
            int* __restrict__ parent, bool* __restrict__ last, long long* __restrict__ rows) {
    for EACH(k, n) {
        const int own = (int)(key[k] & 0xffffffffll), inside = (int)(key[k] >> 32);
        last[k] = k + 1 == (u32)n || (int)(key[k + 1] >> 32) != inside;
        parent[own] = last[k] ? ends[inside] : (int)(key[k + 1] & 0xffffffffll);
        rows[k] = joined[own];
    }
}

// Writes the number of rows of each merge in a chain. `chain`: for each edge, the number of chains that have ended,
// including a chain that ends with this edge. `rows`: running sums of the rows that edges add. `tops`: last edge of
// each chain.
extern "C" __global__ void
size_chains(int n, const long long* __restrict__ key, const bool* __restrict__ last, const int* __restrict__ chain,
            const long long* __restrict__ rows, const int* __restrict__ tops, int* __restrict__ size) {
    for EACH(k, n) {
        const int c = chain[k] - last[k];
        size[key[k] & 0xffffffffll] = (int)(rows[k] - (c ? rows[tops[c - 1]] : 0));
    }
}

// Adds the rows of each chain to the merge after the chain.
extern "C" __global__ void
join_chains(int chains, const long long* __restrict__ key, const long long* __restrict__ rows,
            const int* __restrict__ tops, const int* __restrict__ ends, int* joined) {
    for EACH(c, chains) {
        const long long before = c ? rows[tops[c - 1]] : 0;
        atomicAdd(joined + ends[key[tops[c]] >> 32], (int)(rows[tops[c]] - before));
    }
}

// Points each merge with at least `least` rows to itself, and each smaller merge to its parent.
extern "C" __global__ void
large_ones(int n, const int* __restrict__ size, int least, const int* __restrict__ parent, int* __restrict__ enough) {
    for EACH(i, n) enough[i] = size[i] >= least ? (int)i : parent[i];
}

// Points each merge to its parent if both have the same distance, else to itself.
extern "C" __global__ void
same_distance(int n, const double* __restrict__ far, const int* __restrict__ parent, int* __restrict__ whole) {
    for EACH(i, n) whole[i] = far[parent[i]] == far[i] ? parent[i] : (int)i;
}

// A merge is a part if it has at least `least` rows, and if its parent has a larger distance. Marks the parts. `of`:
// the merge that each merge would be a part of. Counts how many parts each such merge has.
extern "C" __global__ void
count_parts(int n, const double* __restrict__ far, const int* __restrict__ parent, const int* __restrict__ of,
            const int* __restrict__ size, int least, bool* __restrict__ part, int* parts) {
    for EACH(i, n) {
        part[i] = size[i] >= least && far[parent[i]] > far[i];
        if (part[i]) atomicAdd(parts + of[i], 1);
    }
}

// Marks the merges that are clusters: the last merge, and parts of a merge with several parts. Other merges point
// to their parent.
extern "C" __global__ void
find_tops(int n, const bool* __restrict__ part, const int* __restrict__ parts, const int* __restrict__ of,
          const int* __restrict__ parent, bool* __restrict__ top, int* __restrict__ to) {
    for EACH(i, n) {
        top[i] = i + 1 == (u32)n || (part[i] && parts[of[i]] > 1);
        to[i] = top[i] ? (int)i : parent[i];
    }
}

// Numbers the clusters: the last of `tops` becomes cluster 0.
extern "C" __global__ void
number_tops(int m, const int* __restrict__ tops, int* __restrict__ number) {
    for EACH(i, m) number[tops[i]] = m - 1 - (int)i;
}

__device__ __forceinline__ double density_of(double far) {
    return far > 0 ? 1.0 / far : __longlong_as_double(0x7ff0000000000000ll);
}

// Writes parent, 1 / distance of birth, and number of rows of each cluster, in the order of their numbers: see
// `Clusters`.
extern "C" __global__ void
tell_tops(int m, const int* __restrict__ tops, const int* __restrict__ of, const int* __restrict__ cluster,
          const int* __restrict__ number, const double* __restrict__ far, const int* __restrict__ size,
          int* __restrict__ from, double* __restrict__ density, int* __restrict__ sizes) {
    for EACH(i, m) {
        const int c = m - 1 - (int)i, t = tops[i];
        from[c] = c ? number[cluster[of[t]]] : -1;
        density[c] = c ? density_of(far[of[t]]) : 0.0;
        sizes[c] = size[t];
    }
}

// Writes the cluster of each row, and 1 / distance where the row leaves it. `falls`: the merge where this happens.
extern "C" __global__ void
tell_rows(int n, const int* __restrict__ falls, const int* __restrict__ cluster, const int* __restrict__ number,
          const double* __restrict__ far, int* __restrict__ own, double* __restrict__ density) {
    for EACH(i, n) {
        own[i] = number[cluster[falls[i]]];
        density[i] = density_of(far[falls[i]]);
    }
}

// Writes a key for each row. Sorted keys are in the order of clusters, and of rows within each cluster.
extern "C" __global__ void
leaving_keys(int n, const int* __restrict__ row_parent, long long* __restrict__ key) {
    for EACH(i, n) key[i] = (long long)row_parent[i] << 32 | i;
}

// Writes the first position of each cluster in `key`, which has `rows` sorted keys; the last value is `rows`.
extern "C" __global__ void
find_leaving(int n, const long long* __restrict__ key, int rows, int* __restrict__ begin) {
    for EACH(c, n) {
        int low = 0, high = rows;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (key[middle] >> 32 < (long long)c) low = middle + 1;
            else high = middle;
        }
        begin[c] = low;
    }
}

// Returns the number of the first run of a cluster whose first position is `from`. A cluster with k rows has k / length
// runs, rounded up. These are at most (from + k) / length - from / length + 1, all rounded down, so that runs of
// clusters are disjoint.
__device__ __forceinline__ int run_of(int cluster, int from, int length) { return from / length + cluster; }

// Sums 1 / distance - birth of the rows of each run, in the order of rows, and finds the largest 1 / distance. See
// `RUN` in sizes.py. `birth`: of each of the `number` clusters.
extern "C" __global__ void
sum_runs(int n, const long long* __restrict__ key, const int* __restrict__ begin, int number, int length,
         const double* __restrict__ row_lambda, const double* __restrict__ birth, double* __restrict__ sums,
         double* __restrict__ most) {
    for EACH(r, n) {
        int c = 0, high = number;  // the last cluster whose first run is at most r
        while (high - c > 1) {
            const int middle = c + (high - c) / 2;
            if (run_of(middle, begin[middle], length) <= (int)r) c = middle;
            else high = middle;
        }
        const int from = begin[c] + ((int)r - run_of(c, begin[c], length)) * length;
        const int stop = min(from + length, begin[c + 1]);
        double sum = 0, largest = 0;
        for (int k = from; k < stop; ++k) {
            const double at = row_lambda[(u32)key[k]];
            sum = __dadd_rn(sum, __dsub_rn(at, birth[c]));
            largest = fmax(largest, at);
        }
        sums[r] = sum;
        most[r] = largest;
    }
}

// Sums the runs of each cluster: see `RowMeasures` in engine/protocols.py.
extern "C" __global__ void
sum_clusters(int n, const long long* __restrict__ key, const int* __restrict__ begin, int length,
             const double* __restrict__ sums, const double* __restrict__ most, long long* __restrict__ first,
             double* __restrict__ stability, double* __restrict__ death) {
    for EACH(c, n) {
        const int from = begin[c], rows = begin[c + 1] - from;
        const int run = run_of(c, from, length), runs = (rows + length - 1) / length;
        double sum = 0, largest = 0;
        for (int k = run; k < run + runs; ++k) {
            sum = __dadd_rn(sum, sums[k]);
            largest = fmax(largest, most[k]);
        }
        first[c] = rows ? (long long)(u32)key[from] : -1;
        stability[c] = sum;
        death[c] = largest;
    }
}

// Writes the label, the probability and the outlier score of each row: see `label_rows` in
// engine/cpu/kernels/hierarchy.py, also for the arguments.
extern "C" __global__ void
label_rows(int n, const int* __restrict__ row_parent, const double* __restrict__ row_lambda,
           const int* __restrict__ of, const long long* __restrict__ names, const double* __restrict__ death,
           const double* __restrict__ deepest, double enough, long long* __restrict__ label,
           double* __restrict__ probability, double* __restrict__ score) {
    const double everywhere = __longlong_as_double(0x7ff0000000000000ll);
    for EACH(i, n) {
        const int own = row_parent[i], c = of[own];
        const double at = row_lambda[i], most = deepest[own];
        score[i] = !(most > 0 && at < everywhere) ? 0. : most < everywhere ? __ddiv_rn(__dsub_rn(most, at), most) : 1.;
        label[i] = -1;
        probability[i] = 0;
        if (c < 0 || (c == 0 && at < enough)) continue;
        label[i] = names[c];
        probability[i] = death[c] == 0 || at == everywhere ? 1. : __ddiv_rn(fmin(at, death[c]), death[c]);
    }
}
