// What dendrograms of trees are made with, and clusters in them: see engine/gpu/dendrogram.py.

#define EACH(i, n) (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)(n); i += gridDim.x * blockDim.x)

// Lowers `first` of both vertices of edges to the number of the edge.
extern "C" __global__ void
first_edges(int n, const int* __restrict__ a, const int* __restrict__ b, int* first) {
    for EACH(e, n) {
        atomicMin(first + a[e], (int)e);
        atomicMin(first + b[e], (int)e);
    }
}

// Counts at places, of which several may be the same.
extern "C" __global__ void
count_at(int n, const int* __restrict__ place, int* out) {
    for EACH(i, n) atomicAdd(out + place[i], 1);
}

// Where each place leads in two steps, and whether that is elsewhere than in one.
extern "C" __global__ void
follow(int n, const int* __restrict__ to, int* __restrict__ further, int* moved) {
    for EACH(i, n) {
        further[i] = to[to[i]];
        if (further[i] != to[i]) *moved = 1;
    }
}

// The other end of the first edge of each vertex.
extern "C" __global__ void
other_ends(int n, const int* __restrict__ a, const int* __restrict__ b, const int* __restrict__ first,
           int* __restrict__ to) {
    for EACH(v, n) {
        const int e = first[v];
        to[v] = a[e] == (int)v ? b[e] : a[e];
    }
}

// The same, but of two whose first edge is one, and which lead to each other, the smaller leads to itself.
extern "C" __global__ void
open_pairs(int n, const int* __restrict__ to, int* __restrict__ up) {
    for EACH(v, n) up[v] = to[to[v]] == (int)v && (int)v < to[v] ? (int)v : to[v];
}

// 1 where places lead to themselves, else 0.
extern "C" __global__ void
mark_roots(int n, const int* __restrict__ root, int* __restrict__ kept) {
    for EACH(v, n) kept[v] = root[v] == (int)v;
}

// The numbers of places' roots; `number`: of roots, counted from 1.
extern "C" __global__ void
number_of(int n, const int* __restrict__ root, const int* __restrict__ number, int* __restrict__ found) {
    for EACH(v, n) found[v] = number[root[v]] - 1;
}

// Which edges are the first one at either end, and which are not.
extern "C" __global__ void
inner_edges(int n, const int* __restrict__ a, const int* __restrict__ b, const int* __restrict__ first,
            bool* __restrict__ inner, bool* __restrict__ outer) {
    for EACH(e, n) {
        inner[e] = first[a[e]] == (int)e || first[b[e]] == (int)e;
        outer[e] = !inner[e];
    }
}

// Which edges come before the first edge of the vertex that they are in, and which do not.
extern "C" __global__ void
ended_edges(int n, const int* __restrict__ own, const int* __restrict__ inside, const int* __restrict__ ends,
            bool* __restrict__ before, bool* __restrict__ after) {
    for EACH(k, n) {
        before[k] = own[k] < ends[inside[k]];
        after[k] = !before[k];
    }
}

// Edges by their vertices, and by their order in them, as numbers.
extern "C" __global__ void
chain_keys(int n, const int* __restrict__ own, const int* __restrict__ inside, long long* __restrict__ key) {
    for EACH(k, n) key[k] = (long long)inside[k] << 32 | (u32)own[k];
}

// Links what is next to each other in a chain, and the last edge of each with that which the chain ends below;
// `rows`: those that are joined by each edge besides.
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

// Rows of merges in chains; `chain`: how many chains have ended up to each edge, its own too; `rows`: added up;
// `tops`: the last edges of chains.
extern "C" __global__ void
size_chains(int n, const long long* __restrict__ key, const bool* __restrict__ last, const int* __restrict__ chain,
            const long long* __restrict__ rows, const int* __restrict__ tops, int* __restrict__ size) {
    for EACH(k, n) {
        const int c = chain[k] - last[k];
        size[key[k] & 0xffffffffll] = (int)(rows[k] - (c ? rows[tops[c - 1]] : 0));
    }
}

// Adds the rows of chains to what is joined by the edges that they end below.
extern "C" __global__ void
join_chains(int chains, const long long* __restrict__ key, const long long* __restrict__ rows,
            const int* __restrict__ tops, const int* __restrict__ ends, int* joined) {
    for EACH(c, chains) {
        const long long before = c ? rows[tops[c - 1]] : 0;
        atomicAdd(joined + ends[key[tops[c]] >> 32], (int)(rows[tops[c]] - before));
    }
}

// Merges of enough rows, or where those that are not go on.
extern "C" __global__ void
large_ones(int n, const int* __restrict__ size, int least, const int* __restrict__ parent, int* __restrict__ enough) {
    for EACH(i, n) enough[i] = size[i] >= least ? (int)i : parent[i];
}

// Where merges go on at the same distance; themselves, if it is larger.
extern "C" __global__ void
same_distance(int n, const double* __restrict__ far, const int* __restrict__ parent, int* __restrict__ whole) {
    for EACH(i, n) whole[i] = far[parent[i]] == far[i] ? parent[i] : (int)i;
}

// Which merges of enough rows are parts of one at a larger distance, `of`, and how many parts that has.
extern "C" __global__ void
count_parts(int n, const double* __restrict__ far, const int* __restrict__ parent, const int* __restrict__ of,
            const int* __restrict__ size, int least, bool* __restrict__ part, int* parts) {
    for EACH(i, n) {
        part[i] = size[i] >= least && far[parent[i]] > far[i];
        if (part[i]) atomicAdd(parts + of[i], 1);
    }
}

// Which merges are clusters: one of several parts, and the last one; and where the others lead.
extern "C" __global__ void
find_tops(int n, const bool* __restrict__ part, const int* __restrict__ parts, const int* __restrict__ of,
          const int* __restrict__ parent, bool* __restrict__ top, int* __restrict__ to) {
    for EACH(i, n) {
        top[i] = i + 1 == (u32)n || (part[i] && parts[of[i]] > 1);
        to[i] = top[i] ? (int)i : parent[i];
    }
}

// Numbers clusters, of `tops` in their order the last one first.
extern "C" __global__ void
number_tops(int m, const int* __restrict__ tops, int* __restrict__ number) {
    for EACH(i, m) number[tops[i]] = m - 1 - (int)i;
}

__device__ __forceinline__ double density_of(double far) {
    return far > 0 ? 1.0 / far : __longlong_as_double(0x7ff0000000000000ll);
}

// What clusters are told, by their numbers: see `Clusters`.
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

// What rows are told; `falls`: the merges at which they fall out.
extern "C" __global__ void
tell_rows(int n, const int* __restrict__ falls, const int* __restrict__ cluster, const int* __restrict__ number,
          const double* __restrict__ far, int* __restrict__ own, double* __restrict__ density) {
    for EACH(i, n) {
        own[i] = number[cluster[falls[i]]];
        density[i] = density_of(far[falls[i]]);
    }
}
