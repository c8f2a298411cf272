// Computes the totals between SIDE rows and SIDE other rows or centers, for all combinations. Each thread computes
// EACH by EACH totals, in column order. The thread block loads coordinates to shared memory, DEPTH columns at a time.

#define SIDE 64
#define EACH 4
#define LANES (SIDE / EACH)
#define THREADS (LANES * LANES)
#define DEPTH (DIMS < 16 ? DIMS : 16)

typedef long long i64;

// A thread computes the totals between the rows `row_of(r)` and the other rows `other_of(g)`, for r, g < EACH.
__device__ __forceinline__ int row_of(int r) { return threadIdx.x / LANES * EACH + r; }
__device__ __forceinline__ int other_of(int g) { return threadIdx.x % LANES + LANES * g; }

// `row(r, k)`, `other(r, k)`: coordinate k of row r; `difference(a, b)`: scaled difference of two coordinates. With
// STOP, a block stops as soon as all its totals exceed `most`. This is correct, because rounded terms are not negative,
// so totals never decrease.
template <bool STOP, class Row, class Other, class Difference>
__device__ __forceinline__ void sum_up(const Row& row, const Other& other, const Difference& difference, real most,
                                       real (&sum)[EACH][EACH]) {
    __shared__ real s_row[DEPTH][SIDE + 1], s_other[DEPTH][SIDE + 1];
#pragma unroll
    for (int r = 0; r < EACH; r++)
#pragma unroll
        for (int g = 0; g < EACH; g++) sum[r][g] = 0;
    for (int k0 = 0; k0 < DIMS; k0 += DEPTH) {
        if (STOP && k0) {
            bool open = false;
#pragma unroll
            for (int r = 0; r < EACH; r++)
#pragma unroll
                for (int g = 0; g < EACH; g++) open = open || sum[r][g] <= most;
            if (!__syncthreads_or(open)) break;
        } else {
            __syncthreads();  // wait until no thread uses the previous values
        }
        for (int c = threadIdx.x; c < DEPTH * SIDE; c += THREADS) {
            const int k = c % DEPTH, r = c / DEPTH;
            s_row[k][r] = k0 + k < DIMS ? row(r, k0 + k) : (real)0;
            s_other[k][r] = k0 + k < DIMS ? other(r, k0 + k) : (real)0;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {  // zeros beyond the last column add nothing
            real mine[EACH], theirs[EACH];
#pragma unroll
            for (int r = 0; r < EACH; r++) mine[r] = s_row[k][row_of(r)];
#pragma unroll
            for (int g = 0; g < EACH; g++) theirs[g] = s_other[k][other_of(g)];
#pragma unroll
            for (int r = 0; r < EACH; r++)
#pragma unroll
                for (int g = 0; g < EACH; g++) sum[r][g] = add_term(sum[r][g], difference(mine[r], theirs[g]));
        }
    }
}
