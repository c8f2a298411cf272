#include "common.cuh"
#include "zkeys.cuh"
// Searches nearest neighbors by lists in Z-order: see dask_simjoin/papers/cpu/zorder.py.
//
// A warp handles one query, and each lane compares it with another row. All lanes together insert rows that are nearer
// than the worst neighbor so far, one after another. All computations are in float64.
//
// Neighbors are ordered by (d2, name), where d2 is the total and name is the row's id. A free entry is (inf, -1). It
// comes after all neighbors, because ids are compared as unsigned numbers. If a row comes again from another list, it
// has the same d2. So it is found in the list of neighbors, and skipped.
//
// Constants: DIMS; COLUMNS: dimensions of a key; WORDS: 64-bit words of a key; NORM; EXACT 1.

#define TERMS 8            // a sum is compared with the limit after every this many terms

// Writes for each query start and stop of the ascending keys that are between the keys of the corners of its box.
// `away`: half the width of each box. Without `boxes`, it is not read, and the box is the query itself.
extern "C" __global__ void __launch_bounds__(THREADS)
find_boxes(const double* __restrict__ x, int number, const int* __restrict__ columns, const double* __restrict__ low,
           double extent, double scale, double shift, int bits, const double* __restrict__ away, int boxes,
           const u64* __restrict__ keys, int points, int* __restrict__ starts, int* __restrict__ stops) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= number) return;
    const double corner = boxes ? away[i] : 0.0;
    const Key least = key_of(x + i * DIMS, columns, low, extent, scale, shift, bits, -corner);
    const Key largest = key_of(x + i * DIMS, columns, low, extent, scale, shift, bits, corner);
    between(least, largest, keys, points, starts + i, stops + i);
}

__device__ __forceinline__ bool nearer(double d2, u64 name, double other_d2, u64 other) {
    return d2 < other_d2 || (d2 == other_d2 && name < other);
}

// Inserts a neighbor into a sorted list of k entries, unless it is already there. It must come before the last entry,
// which is dropped. All lanes must call it.
__device__ __forceinline__ void take_in(double* d2s, u64* names, int k, double d2, u64 name) {
    const int lane = threadIdx.x & 31;
    int at = 0; // number of entries that come before the neighbor
    for (int first = 0; first < k; first += 32) {
        const int e = first + lane;
        const u32 all = __ballot_sync(FULL, e < k && nearer(d2s[e], names[e], d2, name));
        at += __popc(all);
        if (all != FULL) break;
    }
    if (names[at] == name) return; // the same for all lanes
    for (int end = k - 1; end > at; end -= 32) {
        const int e = end - lane;
        double before_d2 = 0;
        u64 before_name = 0;
        if (e > at) {
            before_d2 = d2s[e - 1];
            before_name = names[e - 1];
        }
        __syncwarp();
        if (e > at) {
            d2s[e] = before_d2;
            names[e] = before_name;
        }
        __syncwarp();
    }
    __syncwarp();
    if (lane == 0) {
        d2s[at] = d2;
        names[at] = name;
    }
    __syncwarp();
}

// Updates the neighbors of queries. `queries`: positions of the queries. `lists`: number of each query's list.
// `orders`: for each list, the positions of its rows in list order. `rows`: row of each query in `best_d2` and
// `best_name`.
extern "C" __global__ void __launch_bounds__(THREADS)
look(const int* __restrict__ queries, int number, const int* __restrict__ starts, const int* __restrict__ stops,
     const int* __restrict__ lists, const int* __restrict__ orders, int points, const double* __restrict__ qy,
     const u64* __restrict__ q_names, const int* __restrict__ rows, const double* __restrict__ dy,
     const u64* __restrict__ d_names, int same, double bound2, int k, double* best_d2, u64* best_name) {
    const i64 warp = ((i64)blockIdx.x * THREADS + threadIdx.x) >> 5;
    const int lane = threadIdx.x & 31;
    if (warp >= number) return;
    const int p = queries[warp], stop = stops[p];
    const int* order = orders + (size_t)lists[p] * points;
    const double* my = qy + (size_t)p * DIMS;
    const u64 own = q_names[p];
    double* d2s = best_d2 + (size_t)rows[p] * k;
    u64* names = best_name + (size_t)rows[p] * k;
    double worst = d2s[k - 1];
    u64 worst_name = names[k - 1];
    for (int start = starts[p]; start < stop; start += 32) {
        double sum = 0;
        u64 name = own;
        bool wanted = false;
        if (start + lane < stop) {
            const int j = order[start + lane];
            name = d_names[j];
            if (!same || name != own) {
                const double* other = dy + (size_t)j * DIMS;
                const double most = fmin(bound2, worst);
                // rounded terms are not negative, so if a partial sum is above `most`, the full sum is above it, too
                for (int c0 = 0; c0 < DIMS; c0 += TERMS) {
#pragma unroll
                    for (int c = c0; c < c0 + TERMS; c++)
                        if (c < DIMS) sum = add_term(sum, minus(my[c], other[c]));
                    if (sum > most) break;
                }
                wanted = sum <= most && nearer(sum, name, worst, worst_name);
            }
        }
        u32 left = __ballot_sync(FULL, wanted);
        while (left) {
            const int from = __ffs(left) - 1;
            left &= left - 1;
            const double d2 = __shfl_sync(FULL, sum, from);
            const u64 who = __shfl_sync(FULL, name, from);
            if (!nearer(d2, who, worst, worst_name)) continue; // the same for all lanes
            take_in(d2s, names, k, d2, who);
            worst = d2s[k - 1];
            worst_name = names[k - 1];
        }
    }
}
