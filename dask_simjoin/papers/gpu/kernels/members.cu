#include "common.cuh"
#include "components.cuh"
#include "meet.cuh"
#include "apart.cuh"
// Compares lists of queries with the members of their clusters: see dask_simjoin/papers/gpu/kmeans.py.
//
// A block has a job: up to SIDE queries of one cluster. It compares them with SIDE members of the cluster at a time.
// With BOXES, it skips members that are not near the queries' box.
//
// Constants: DIMS; BOXES 0 or 1; NORM; EXACT 0 or 1 (1 for norms other than 2); COUNTING 0 (writes pairs) or 1 (counts
// neighbors); SINK.

#define WARPS (THREADS / 32)

// Returns entry i of a list, or i if the list is null.
__device__ __forceinline__ int at(const int* __restrict__ list, int i) { return list ? list[i] : i; }

// Writes lower and upper bounds (DIMS, number) of the rows in each part of the lists.
extern "C" __global__ void __launch_bounds__(THREADS)
member_boxes(const int* __restrict__ list, const int* __restrict__ begins, const int* __restrict__ ends, i64 number,
             const real* __restrict__ z, real* __restrict__ lower, real* __restrict__ upper) {
    const i64 b = blockIdx.x;
    for (int k = threadIdx.x; k < DIMS; k += THREADS) {
        real low = z[(size_t)at(list, begins[b]) * DIMS + k], high = low;
        for (int i = begins[b] + 1; i < ends[b]; i++) {
            const real value = z[(size_t)at(list, i) * DIMS + k];
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
        lower[k * number + b] = low;
        upper[k * number + b] = high;
    }
}

// Returns whether this cluster writes the pair: it does if no cluster with a higher number contains both rows.
__device__ __forceinline__ bool owns(const u64* __restrict__ by_row, int words, int cluster, int p, int j) {
    const u64 *one = by_row + (size_t)p * words, *other = by_row + (size_t)j * words;
    int w = cluster / 64;
    u64 common = one[w] & other[w] & ~(((u64)2 << cluster % 64) - 1);
    while (!common && ++w < words) common = one[w] & other[w];
    return !common;
}

// items: the queries of all jobs. job_begins, job_ends: each job's range of items. members: rows to compare, in tiles.
// tile_first: first tile of each cluster. later: whether to compare only members after the query. by_row: bit mask of
// the clusters that contain each row, for `owns`; null if a pair can be in one cluster only.
extern "C" __global__ void __launch_bounds__(THREADS)
join_members(i64 first, i64 step, const int* __restrict__ items, const int* __restrict__ job_begins,
             const int* __restrict__ job_ends, const int* __restrict__ job_clusters,
             const real* __restrict__ job_lower, const real* __restrict__ job_upper, i64 jobs,
             const int* __restrict__ members, const int* __restrict__ tile_begins, const int* __restrict__ tile_ends,
             const int* __restrict__ tile_first, const real* __restrict__ tile_lower,
             const real* __restrict__ tile_upper, i64 tiles, int later, const u64* __restrict__ by_row, int words,
             int first_cluster, const real* __restrict__ qz, const double* __restrict__ qy,
             const real* __restrict__ dz, const double* __restrict__ dy, real reach, real sure, double threshold,
             u64 capacity, int2* __restrict__ out, u64* __restrict__ q_counts, u64* __restrict__ d_counts,
             u64* __restrict__ state) {
    __shared__ int s_query[SIDE], s_member[SIDE];
    __shared__ u32 s_near[WARPS];
    const i64 job = first + (i64)blockIdx.x * step;
    const int begin = job_begins[job], queries = job_ends[job] - begin, cluster = job_clusters[job];
    const int tid = threadIdx.x, t_end = tile_first[cluster + 1], least = at(items, begin);
    if (tid < SIDE) s_query[tid] = tid < queries ? at(items, begin + tid) : -1;
    Tally tally[EACH];
    for (int r = 0; r < EACH; r++) tally[r] = {0, 0, 0};
    __syncthreads();
    const auto row = [&](int r, int k) { return s_query[r] < 0 ? (real)0 : qz[(size_t)s_query[r] * DIMS + k]; };
    const auto other = [&](int r, int k) { return s_member[r] < 0 ? (real)0 : dz[(size_t)s_member[r] * DIMS + k]; };
    const auto difference = [&](real a, real b) { return minus(a, b); };
    for (int t0 = tile_first[cluster]; t0 < t_end; t0 += THREADS) {
        const int mine = t0 + tid;
        bool near = mine < t_end && !(later && at(members, tile_ends[mine] - 1) <= least);
#if BOXES
        if (near) {
            real sum = 0;
            for (int k = 0; k < DIMS && sum <= reach; k++) {
                const real gap = larger(minus(tile_lower[k * tiles + mine], job_upper[k * jobs + job]),
                                        minus(job_lower[k * jobs + job], tile_upper[k * tiles + mine]));
                sum = add_term(sum, larger(gap, (real)0));
            }
            near = sum <= reach;
        }
#endif
        const u32 lanes = __ballot_sync(FULL, near);
        if (tid % 32 == 0) s_near[tid / 32] = lanes;
        __syncthreads();
        for (int w = 0; w < WARPS; w++)
            for (u32 some = s_near[w]; some; some &= some - 1) {
                const int tile = t0 + 32 * w + __ffs(some) - 1;
                const int from = tile_begins[tile], held = tile_ends[tile] - from;
                __syncthreads();  // wait until no thread uses the previous members
                if (tid < SIDE) s_member[tid] = tid < held ? at(members, from + tid) : -1;
                real sum[EACH][EACH];
                __syncthreads();
                sum_up<true>(row, other, difference, reach, sum);
#pragma unroll
                for (int r = 0; r < EACH; r++)
#pragma unroll
                    for (int g = 0; g < EACH; g++) {
                        const int p = s_query[row_of(r)], j = s_member[other_of(g)];
                        if (!(sum[r][g] <= reach) || p < 0 || j < 0 || (later && j <= p)) continue;
                        if (by_row && !owns(by_row, words, cluster + first_cluster, p, j)) continue;
                        meet(p, j, sum[r][g], reach, sure, threshold, qy, dy, 0, capacity, out, d_counts, state,
                             tally[r]);
                    }
            }
        __syncthreads();  // wait until all threads have read which tiles are near
    }
#pragma unroll
    for (int r = 0; r < EACH; r++)
        if (row_of(r) < queries) add_tally(s_query[row_of(r)], tally[r], q_counts, state);
}
