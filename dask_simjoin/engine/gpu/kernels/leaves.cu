#include "common.cuh"
#include "leaves.cuh"
// Builds the binary trees of boxes that rows search one by one: see `nearest_rows.cu` and `spanning_rows.cu`.
//
// Constants: DIMS; EXACT 1; LEAF, a power of two of at most 64.

#define TILE 64
#define WARPS 4

// Writes the order in which a tree holds the points: within each tile of consecutive points, halves of halves along the
// widest dimension, down to the leaves. `place` (n,): the positions in `y`. One warp per tile.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
order_leaves(const double* __restrict__ y, int n, int tiles, int* __restrict__ place) {
    __shared__ double s_x[WARPS][TILE * DIMS];
    __shared__ int s_at[WARPS][TILE];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    double* x = s_x[warp];
    int* at = s_at[warp];
    for (int t = blockIdx.x * WARPS + warp; t < tiles; t += gridDim.x * WARPS) {
        const int begin = t * TILE, count = min(TILE, n - begin);
        for (int k = lane; k < count * DIMS; k += 32) x[k] = y[(size_t)begin * DIMS + k];
        for (int p = lane; p < TILE; p += 32) at[p] = p;
        __syncwarp();
        for (int size = TILE; size > LEAF; size >>= 1) {
            int own[2], to[2] = {-1, -1};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int p = lane + 32 * h;
                if (p >= count) continue;
                own[h] = at[p];
                const int first = p & ~(size - 1), stop = min(first + size, count);
                double widest = -1;
                int dim = 0;
                for (int k = 0; k < DIMS; k++) {
                    double low = x[at[first] * DIMS + k], high = low;
                    for (int m = first + 1; m < stop; m++) {
                        low = fmin(low, x[at[m] * DIMS + k]);
                        high = fmax(high, x[at[m] * DIMS + k]);
                    }
                    if (high - low > widest) {
                        widest = high - low;
                        dim = k;
                    }
                }
                const double value = x[own[h] * DIMS + dim];
                to[h] = first;
                for (int m = first; m < stop; m++) {
                    const double other = x[at[m] * DIMS + dim];
                    to[h] += other < value || (other == value && m < p);
                }
            }
            __syncwarp();
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (to[h] >= 0) at[to[h]] = own[h];
            __syncwarp();
        }
        for (int p = lane; p < count; p += 32) place[begin + p] = begin + at[p];
        __syncwarp();
    }
}

// Numbers that are not 0 must be in this range. Then squares of their differences are normal float32 numbers.
#define SMALLEST 1.8189894035458565e-12 // 2**-39
#define GREATEST 1.152921504606847e18   // 2**60

// Writes the points and their ids in the order `place` (n,) of the tree. `points` (leaves, DIMS, LEAF) ends with zeros.
// Sets `differ` if a coordinate is not a float32 number in that range.
extern "C" __global__ void
fill_leaves(const double* __restrict__ y, const int* __restrict__ place, const u64* __restrict__ names, int n,
            int leaves, float* __restrict__ points, u64* __restrict__ tree_names, int* __restrict__ differ) {
    for (u32 p = blockIdx.x * blockDim.x + threadIdx.x; p < (u32)leaves * LEAF; p += gridDim.x * blockDim.x) {
        const bool there = p < (u32)n;
        const int from = there ? place[p] : 0;
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            const double value = there ? y[(size_t)from * DIMS + k] : 0, size = fabs(value);
            const float stored = (float)value;
            if ((double)stored != value || (size != 0 && !(size >= SMALLEST && size <= GREATEST))) *differ = 1;
            points[((size_t)(p / LEAF) * DIMS + k) * LEAF + p % LEAF] = stored;
        }
        if (there) tree_names[p] = names[from];
    }
}

// Writes the boxes of the leaves, and their smallest ids. Node i above the leaves has the boxes of leaves 2 i and
// 2 i + 1 in `pairs` (nodes, DIMS): low and high of the first, then of the second. A leaf that is missing has an empty
// box.
extern "C" __global__ void
pair_leaves(const float* __restrict__ points, const u64* __restrict__ names, int n, int leaves, int number,
            float4* __restrict__ pairs, u64* __restrict__ least) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)number; i += gridDim.x * blockDim.x) {
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            float low[2], high[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const u32 leaf = 2 * i + c;
                low[c] = infinity(), high[c] = -infinity();
                for (u32 j = leaf * LEAF; j < min((leaf + 1) * LEAF, (u32)n); j++) {
                    const float value = points[((size_t)leaf * DIMS + k) * LEAF + j % LEAF];
                    low[c] = fminf(low[c], value);
                    high[c] = fmaxf(high[c], value);
                }
            }
            pairs[(size_t)i * DIMS + k] = make_float4(low[0], high[0], low[1], high[1]);
        }
        for (u32 leaf = 2 * i; leaf < min(2 * i + 2, (u32)leaves); leaf++) {
            u64 name = NO_NAME;
            for (u32 j = leaf * LEAF; j < min((leaf + 1) * LEAF, (u32)n); j++) name = min(name, names[j]);
            least[leaf] = name;
        }
    }
}

// Writes the boxes of a level's children, and the smallest ids of the level: of `number` nodes from `start`, whose
// children are the nodes from `below` to `start`. The first of all nodes are `leaves`, which have no boxes in `pairs`.
extern "C" __global__ void
pair_nodes(int number, int start, int first, int leaves, float4* __restrict__ pairs, u64* __restrict__ least) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)number; i += gridDim.x * blockDim.x) {
        const u32 a = first + 2 * i, b = a + 1;
        const bool both = b < (u32)start;
        least[start + i] = both ? min(least[a], least[b]) : least[a];
        if (first == 0) continue; // the boxes of leaves are there already
#pragma unroll
        for (int k = 0; k < DIMS; k++) {
            const float4 one = pairs[(size_t)(a - leaves) * DIMS + k];
            float4 two = make_float4(infinity(), -infinity(), infinity(), -infinity());
            if (both) two = pairs[(size_t)(b - leaves) * DIMS + k];
            pairs[(size_t)(start - leaves + i) * DIMS + k] = make_float4(
                fminf(one.x, one.z), fmaxf(one.y, one.w), fminf(two.x, two.z), fmaxf(two.y, two.w));
        }
    }
}
