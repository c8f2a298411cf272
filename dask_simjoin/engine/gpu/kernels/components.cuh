// Sinks, which consume pairs in kernels instead of writing them. One sink links the rows of each pair, and the other
// records the lowest label among the neighbors of each row. So neither needs memory for pairs.
//
// Constants: SINK 0 (write pairs), 1 (link) or 2 (lowest label); NODES_64: nodes are int32 (0) or int64 (1).
//
// Rows are nodes of a disjoint-set forest in which no parent is larger than its child. The root of a set is its
// smallest node. Threads hook roots without locks and halve paths on the way, as in ECL-CC (Jaiganesh & Burtscher
// 2018, "A high-performance connected components implementation for GPUs", section 3). Only roots are hooked, by a
// compare-and-swap that fails if the node is no longer a root. Halving replaces a parent by an ancestor. This is
// correct even if another thread has changed the parent meanwhile.

#ifndef SINK
#define SINK 0
#endif

#if NODES_64
typedef u64 node;
#else
typedef u32 node;
#endif

__device__ __forceinline__ node find(volatile node* parent, node i) {
    node up = parent[i];
    while (up != i) {
        const node over = parent[up];
        if (over == up) return up;
        parent[i] = over;
        i = up;
        up = over;
    }
    return i;
}

__device__ __forceinline__ void tie(node* parent, node i, node j) {
    node a = find(parent, i), b = find(parent, j);
    while (a != b) {
        const node large = a < b ? b : a, small = a < b ? a : b;
        const node was = atomicCAS(parent + large, large, small);
        if (was == large) return;
        a = find(parent, was);
        b = small;
    }
}

// Passes a pair to the sink. p and q are its places in two indexes. `at` has the addresses of arrays. The first two are
// the orders of the indexes, which convert places to positions in the chunks. The others are indexed by position:
//
// link: for both chunks, a mask of the rows that take part; then the parents of all nodes, and the node of the second
// chunk's first row;
//
// lowest: for both chunks, labels of rows (-1: none), then the lowest labels among the neighbors of rows.
#if SINK
__device__ __forceinline__ void take(int p, int q, const u64* at) {
    const long long i = ((const int*)at[0])[p], j = ((const int*)at[1])[q];
#if SINK == 1
    if (((const bool*)at[2])[i] && ((const bool*)at[3])[j])
        tie((node*)at[4], (node)i, (node)(j + (long long)at[5]));
#else
    const long long a = ((const long long*)at[2])[i], b = ((const long long*)at[3])[j];
    if (a < 0 && b >= 0) atomicMin((long long*)at[4] + i, b);
    if (b < 0 && a >= 0) atomicMin((long long*)at[5] + j, a);
#endif
}
#endif
