// What dendrograms of trees are made with: see engine/gpu/dendrogram.py.

// Lowers `first` of both vertices of edges to the number of the edge.
extern "C" __global__ void
first_edges(int n, const int* __restrict__ a, const int* __restrict__ b, int* first) {
    for (u32 e = blockIdx.x * blockDim.x + threadIdx.x; e < (u32)n; e += gridDim.x * blockDim.x) {
        atomicMin(first + a[e], (int)e);
        atomicMin(first + b[e], (int)e);
    }
}

// Adds values to what is at some places, of which several may be the same.
extern "C" __global__ void
add_at(int n, const int* __restrict__ place, const int* __restrict__ value, int* out) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x)
        atomicAdd(out + place[i], value[i]);
}
