#include "common.cuh"
#include "components.cuh"
// Disjoint sets of nodes: links edges, finds roots, and numbers sets in the order of their smallest rows.

extern "C" __global__ void link_edges(const long long* __restrict__ left, const long long* __restrict__ right,
                                      long long edges, node* parent) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < edges;
         n += (long long)gridDim.x * blockDim.x)
        tie(parent, (node)left[n], (node)right[n]);
}

// Makes the root of every node its parent. Does not halve paths, because a delayed write of another thread could
// replace a root by an inner node.
extern "C" __global__ void tie_to_roots(volatile node* parent, long long nodes) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < nodes;
         n += (long long)gridDim.x * blockDim.x) {
        node root = parent[n], up;
        while ((up = parent[root]) != root) root = up;
        parent[n] = root;
    }
}

// Writes the smallest row of each set to the entry of its root in `least`. The caller fills `least` with a copy of
// `order`, the row of each node.
extern "C" __global__ void least_rows(const node* __restrict__ parent, const int* __restrict__ order, long long nodes,
                                      int* least) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < nodes;
         n += (long long)gridDim.x * blockDim.x)
        if (parent[n] != n && order[n] < *(volatile int*)(least + parent[n])) atomicMin(least + parent[n], order[n]);
}

// Marks the smallest row of each set. `taking`: mask of the nodes that take part; null if all do. `least`: smallest
// row of each root; null if nodes are rows, so that roots are the smallest rows.
extern "C" __global__ void mark_sets(const node* __restrict__ parent, const bool* __restrict__ taking,
                                     const int* __restrict__ least, long long nodes, long long* __restrict__ marks) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < nodes;
         n += (long long)gridDim.x * blockDim.x)
        if (parent[n] == n && (!taking || taking[n])) marks[least ? least[n] : n] = 1;
}

// Writes the number of each node's set, or -1 if the node does not take part. A set's number is the number of marks
// before its smallest row. `marked`: running count of marks.
extern "C" __global__ void number_sets(const node* __restrict__ parent, const bool* __restrict__ taking,
                                       const int* __restrict__ least, const long long* __restrict__ marked,
                                       long long nodes, long long* __restrict__ numbers) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < nodes;
         n += (long long)gridDim.x * blockDim.x) {
        const node root = parent[n];
        numbers[n] = taking && !taking[n] ? -1 : marked[least ? least[root] : root] - 1;
    }
}
