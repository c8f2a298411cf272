// Edges between nodes, the roots of all nodes, and their sets numbered by their least rows.

extern "C" __global__ void link_edges(const long long* __restrict__ left, const long long* __restrict__ right,
                                      long long edges, node* parent) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < edges;
         n += (long long)gridDim.x * blockDim.x)
        tie(parent, (node)left[n], (node)right[n]);
}

// Without halving: what a slow thread writes on its way would undo what another has found.
extern "C" __global__ void tie_to_roots(volatile node* parent, long long nodes) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < nodes;
         n += (long long)gridDim.x * blockDim.x) {
        node root = parent[n], up;
        while ((up = parent[root]) != root) root = up;
        parent[n] = root;
    }
}

// Lowers what roots have in `least`, at first their own rows, to the least row of their sets; `order`: rows of nodes.
extern "C" __global__ void least_rows(const node* __restrict__ parent, const int* __restrict__ order, long long nodes,
                                      int* least) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < nodes;
         n += (long long)gridDim.x * blockDim.x)
        if (parent[n] != n) atomicMin(least + parent[n], order[n]);
}

// Marks the least row of each set; `taking`: nodes whose sets count, null: all; `least`: null: roots are those rows.
extern "C" __global__ void mark_sets(const node* __restrict__ parent, const bool* __restrict__ taking,
                                     const int* __restrict__ least, long long nodes, long long* __restrict__ marks) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < nodes;
         n += (long long)gridDim.x * blockDim.x)
        if (parent[n] == n && (!taking || taking[n])) marks[least ? least[n] : n] = 1;
}

// The number of each node's set, by how many marks there are up to its row; -1 where it does not count.
extern "C" __global__ void number_sets(const node* __restrict__ parent, const bool* __restrict__ taking,
                                       const int* __restrict__ least, const long long* __restrict__ marked,
                                       long long nodes, long long* __restrict__ numbers) {
    for (long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x; n < nodes;
         n += (long long)gridDim.x * blockDim.x) {
        const node root = parent[n];
        numbers[n] = taking && !taking[n] ? -1 : marked[least ? least[root] : root] - 1;
    }
}
