// Sizes for kernels that compare blocks of 256 queries with tiles of 128 points.

#define QUERIES 256
#define TILE 128
#ifndef WARPS
#define WARPS 8
#endif
#define THREADS (32 * WARPS)

// Writes the box of query block i to `low` and `high`. A query block has two tiles, so its box covers their boxes.
__device__ __forceinline__ void box_of_queries(int i, int tiles, const real* lower, const real* upper, real* low,
                                               real* high, int tid) {
    for (int k = tid; k < DIMS; k += THREADS) {
        const int t = 2 * i;
        size_t at = ((size_t)(t / FANOUT) * DIMS + k) * FANOUT + t % FANOUT;
        real least = lower[at], most = upper[at];
        if (t + 1 < tiles) {
            least = fminf(least, lower[at + 1]);
            most = fmaxf(most, upper[at + 1]);
        }
        low[k] = least;
        high[k] = most;
    }
}
