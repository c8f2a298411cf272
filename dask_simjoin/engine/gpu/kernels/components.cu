// Edges between nodes, and the roots of all nodes.

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
