#include "common.cuh"
// Finds the region of each point, and the regions with lower numbers whose boxes are within reach of the point.
//
// Constants: DIMS; NORM; DEPTH: size of the stack, more than the levels of the tree.

extern "C" __global__ void own_regions(const double* __restrict__ x, long long points, long long stride,
                                       const long long* __restrict__ dim, const double* __restrict__ split,
                                       const long long* __restrict__ child, long long nodes,
                                       long long* __restrict__ own) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < points;
         i += (long long)gridDim.x * blockDim.x) {
        long long node = nodes ? 0 : -1;
        while (node >= 0) node = child[2 * node + (x[i + dim[node] * stride] >= split[node])];
        own[i] = -1 - node;
    }
}

// For each point, finds the other regions whose halo contains it. If `rows` is null, writes the number of these regions
// to `begin`. Otherwise writes the point to `rows` and the regions to `regions`, from position `begin` on.
extern "C" __global__ void halo_regions(const double* __restrict__ x, long long points, long long stride,
                                        const long long* __restrict__ dim, const double* __restrict__ split,
                                        const long long* __restrict__ child, const long long* __restrict__ middle,
                                        const double* __restrict__ lower, const double* __restrict__ upper,
                                        const long long* __restrict__ own, double reach, double threshold,
                                        long long* __restrict__ begin, long long* __restrict__ rows,
                                        long long* __restrict__ regions) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < points;
         i += (long long)gridDim.x * blockDim.x) {
        long long found = 0, first = rows ? begin[i] : 0;
        int stack[DEPTH], size = 0;
        if (own[i] > 0) stack[size++] = 0;
        while (size) {
            const int node = stack[--size];
            if (node < 0) {
                const long long region = -1 - node;
                if (region >= own[i]) continue;
                double sum = 0.0;
                for (int k = 0; k < DIMS; k++) {
                    const double at = x[i + k * stride];
                    const double gap = fmax(fmax(__dsub_rn(lower[region * DIMS + k], at),
                                                 __dsub_rn(at, upper[region * DIMS + k])), 0.0);
                    sum = add_term(sum, gap);
                }
                if (sum <= threshold) {
                    if (rows) {
                        rows[first + found] = i;
                        regions[first + found] = region;
                    }
                    found++;
                }
                continue;
            }
            const double away = __dsub_rn(x[i + dim[node] * stride], split[node]);
            if (away >= -reach && middle[node] < own[i]) stack[size++] = (int)child[2 * node + 1];
            if (away <= reach) stack[size++] = (int)child[2 * node];
        }
        if (!rows) begin[i] = found;
    }
}
