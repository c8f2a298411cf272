// Known edges before a search for spanning trees.
//
// Constants: DIMS; EXACT 0 or 1; NORM.

// Lowers the bounds of components to the weights of edges between rows that are consecutive in kd order. So every
// component has a bound before the first search.
extern "C" __global__ void
offer_beside(const double* __restrict__ y, const int* __restrict__ component, const double* __restrict__ core, int n,
             u64* bounds) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i + 1 < (u32)n; i += gridDim.x * blockDim.x) {
        const int own = component[i], other = component[i + 1];
        if (own == other) continue;
        const double total = away_from(y + (size_t)i * DIMS, y + (size_t)(i + 1) * DIMS);
        const u64 weight = bits_of(fmax(total, fmax(core[i], core[i + 1])));
        lower_bound(bounds + own, weight);
        lower_bound(bounds + other, weight);
    }
}
