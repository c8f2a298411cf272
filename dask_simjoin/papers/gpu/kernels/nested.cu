#include "common.cuh"
#include "components.cuh"
#include "meet.cuh"
// Nested loops: see NestedLoop in dask_simjoin/papers/lists.py. GPU-NLJ and GPU-INLJ are algorithms 4 and 5 of Korkmaz
// (2012).
//
// Each thread has one query, and each thread block has the BLOCK queries of one block of rows. In a rotation
// (GPU-INLJ), a thread block loads the other blocks of rows to shared memory, one after the other, and all its threads
// read the same row. If rows are long, it loads only a part of a block at a time, because shared memory is small. In a
// triangle (GPU-NLJ), each query visits the rows after it, without shared memory. Coordinates are stored column by
// column, so that reads of a warp are adjacent.
//
// Constants: DIMS; BLOCK; ROTATION 0 or 1; NORM; EXACT 0 or 1 (1 for norms other than 2); COUNTING 0 (writes pairs) or
// 1 (counts neighbors); SINK.

#define SMALL (DIMS <= 16) // queries fit into registers

#if ROTATION
__device__ constexpr int rows_at_once() {
    int rows = BLOCK;
    while (rows > 1 && rows * DIMS * sizeof(real) > 32768) rows /= 2;
    return rows;
}
constexpr int ROWS = rows_at_once();           // number of rows in shared memory
constexpr int TOGETHER = ROWS < 4 ? ROWS : 4;  // a coordinate of the query is read once for this many rows
#endif

// Returns the number of blocks that block b is compared with in a rotation, including itself. Blocks are arranged on a
// circle. If their number is even, two opposite blocks are compared only once, by the first of them.
__device__ __forceinline__ i64 partners(i64 blocks, i64 b) {
    return blocks / 2 + (blocks % 2 || b < blocks / 2 ? 1 : 0);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
join_nested(i64 first, i64 step, u32 number, const real* __restrict__ qz, const double* __restrict__ qy, int queries,
            const real* __restrict__ dz, const double* __restrict__ dy, int points, int same, real reach, real sure,
            double threshold, u64 capacity, int2* __restrict__ out, u64* __restrict__ q_counts,
            u64* __restrict__ d_counts, u64* __restrict__ state) {
    const i64 b = first + (i64)blockIdx.x * step;  // the number of launched blocks is `number`
    const int p = (int)min(b * BLOCK + (i64)threadIdx.x, (i64)queries - 1);
    const bool there = b * BLOCK + (i64)threadIdx.x < queries;
    Tally tally = {0, 0, 0};
#if SMALL
    real query[DIMS];
#pragma unroll
    for (int k = 0; k < DIMS; k++) query[k] = qz[(size_t)k * queries + p];
#define QUERY(k) query[k]
#else
#define QUERY(k) qz[(size_t)(k) * queries + p]
#endif
#if ROTATION
    __shared__ real rows[ROWS * DIMS];
    const i64 blocks = ((i64)points + BLOCK - 1) / BLOCK, met = same ? partners(blocks, b) : blocks;
    for (i64 i = 0; i < met; i++) {
        const i64 other = (b + i) % blocks * BLOCK;
        const int some = (int)min((i64)points - other, (i64)BLOCK);
        for (int at = 0; at < some; at += ROWS) {
            __syncthreads();  // wait until no thread uses the previous rows
            for (int c = threadIdx.x; c < ROWS * DIMS; c += BLOCK) {
                const int k = c / ROWS, r = c % ROWS;
                rows[c] = at + r < some ? dz[(size_t)k * points + other + at + r] : (real)0;
            }
            __syncthreads();
            const int held = min(some - at, ROWS);
            if (!there) continue;
            for (int r = 0; r < held; r += TOGETHER) {
                real sum[TOGETHER];
#pragma unroll
                for (int g = 0; g < TOGETHER; g++) sum[g] = 0;
#pragma unroll 16
                for (int k = 0; k < DIMS; k++) {
                    const real x = QUERY(k);
#pragma unroll
                    for (int g = 0; g < TOGETHER; g++) sum[g] = add_term(sum[g], minus(x, rows[k * ROWS + r + g]));
                }
#pragma unroll
                for (int g = 0; g < TOGETHER; g++) {
                    const int j = (int)other + at + r + g;
                    if (r + g < held && !(same && i == 0 && j <= p))
                        meet(p, j, sum[g], reach, sure, threshold, qy, dy, 0, capacity, out, d_counts, state, tally);
                }
            }
        }
    }
#else
    if (there)
        for (int j = same ? p + 1 : 0; j < points; j++) {
            real sum = 0;
#pragma unroll 16
            for (int k = 0; k < DIMS; k++) sum = add_term(sum, minus(QUERY(k), dz[(size_t)k * points + j]));
            meet(p, j, sum, reach, sure, threshold, qy, dy, 0, capacity, out, d_counts, state, tally);
        }
#endif
    if (there) add_tally(p, tally, q_counts, state);
}
