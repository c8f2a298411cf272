// The rounds of Boruvka's algorithm besides searches: what is known of components' least edges, and which these are.
//
// Nodes are rows' places; weights are not negative, and so ordered as their bits are.  An edge of a component is
// less than another by (weight, smaller name, larger name): `offer_edges` finds the least weights, then `name_edges`
// the least names of those that have them, then `take_edges` who it is.

#define BOX 64

__device__ __forceinline__ u64 bits_of(double weight) { return (u64)__double_as_longlong(weight); }

// Of each node the edge that it knows: the one that was found before, or to the nearest of its nearest nodes that
// are of another component; -1: none.  See `offer_listed` of engine/cpu/kernels/boruvka.py.
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
                } else if (lightest < beyond[i]) { // than all others
                    to[i] = chosen;
                    least[i] = lightest;
                }
            }
        }
        weight[i] = lightest;
        end[i] = chosen;
    }
}

// An edge's ends; `start`: null if it is the node of its number.  Whether it leaves a component.
__device__ __forceinline__ bool ends_of(u32 e, const int* start, const int* end, const int* component, int* from,
                                        int* to) {
    *to = end[e];
    *from = start ? start[e] : (int)e;
    return *to >= 0 && component[*from] != component[*to];
}

// Lowers `bounds` of the components of edges' starts to their weights.
extern "C" __global__ void
offer_edges(int n, const int* __restrict__ start, const int* __restrict__ end, const double* __restrict__ weight,
            const int* __restrict__ component, u64* bounds) {
    for (u32 e = blockIdx.x * blockDim.x + threadIdx.x; e < (u32)n; e += gridDim.x * blockDim.x) {
        int from, to;
        if (ends_of(e, start, end, component, &from, &to)) atomicMin(bounds + component[from], bits_of(weight[e]));
    }
}

__device__ __forceinline__ u64 both_names(int a, int b) {
    return (u64)(u32)min(a, b) << 32 | (u32)max(a, b);
}

// Lowers `least` of components to the names of those edges of theirs that are of the least weight.
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

// Writes the ends of the edges that are so named.
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

// Of each box the value that all of its `BOX` values are, or -1; a warp a box.
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
