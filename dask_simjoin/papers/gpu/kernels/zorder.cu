#include "common.cuh"
#include "components.cuh"
#include "meet.cuh"
#include "zkeys.cuh"
// Joins by lists in Z-order: see dask_simjoin/papers/list_index.py.
//
// In each list, each query looks up the interval between the keys of its corners. Then it scans the shortest of these
// intervals. A group of `threads` lanes handles one query, and shares its interval.
//
// Constants: DIMS; COLUMNS: dimensions of a key; WORDS: 64-bit words of a key; NORM; EXACT 0 or 1 (1 for norms other
// than 2); COUNTING 0 (writes pairs) or 1 (counts neighbors); SINK; BOUNDED 1 if each candidate has a slot for its
// pair.

#define TERMS 8            // a sum is compared with the limit after every this many terms

// Writes for each query start and stop of the ascending keys that are between the keys of its corners.
extern "C" __global__ void __launch_bounds__(THREADS)
find_intervals(const double* __restrict__ x, int number, const int* __restrict__ columns,
               const double* __restrict__ low, double extent, double scale, double shift, int bits, double corner,
               const u64* __restrict__ keys, int points, int* __restrict__ starts, int* __restrict__ stops) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= number) return;
    const Key least = key_of(x + i * DIMS, columns, low, extent, scale, shift, bits, -corner);
    const Key largest = key_of(x + i * DIMS, columns, low, extent, scale, shift, bits, corner);
    between(least, largest, keys, points, starts + i, stops + i);
}

__device__ __forceinline__ void compare(int p, int j, const real* __restrict__ qz, const double* __restrict__ qy,
                                        const real* __restrict__ dz, const double* __restrict__ dy, real reach,
                                        real sure, double threshold, int turned, u64 capacity, int2* __restrict__ out,
                                        u64* __restrict__ d_counts, u64* __restrict__ state, Tally& tally) {
    const real* my = qz + (size_t)p * DIMS;
    const real* other = dz + (size_t)j * DIMS;
    real sum = 0;
    // rounded terms are not negative, so if a partial sum is above `reach`, the full sum is above it, too
    for (int k0 = 0; k0 < DIMS; k0 += TERMS) {
#pragma unroll
        for (int k = k0; k < k0 + TERMS; k++)
            if (k < DIMS) sum = add_term(sum, minus(my[k], other[k]));
        if (sum > reach) break;
    }
    meet(p, j, sum, reach, sure, threshold, qy, dy, turned, capacity, out, d_counts, state, tally);
}

// `queries`: positions of the queries. `orders`: for each list, the positions of its rows in list order. `later`:
// whether to compare only rows with larger positions than the query's. `slots`: slot in the output of each query's
// first candidate.
extern "C" __global__ void __launch_bounds__(THREADS)
walk_lists(const int* __restrict__ queries, i64 first, i64 step, u32 number, int threads,
           const int* __restrict__ starts, const int* __restrict__ stops, const int* __restrict__ lists,
           const int* __restrict__ orders, int points, int later, int turned, const real* __restrict__ qz,
           const double* __restrict__ qy, const real* __restrict__ dz, const double* __restrict__ dy, real reach,
           real sure, double threshold, u64 capacity, int2* __restrict__ out, u64* __restrict__ q_counts,
           u64* __restrict__ d_counts, u64* __restrict__ state, const i64* __restrict__ slots) {
    const i64 thread = (i64)blockIdx.x * THREADS + threadIdx.x;
    const i64 place = thread / threads;
    if (place >= number) return;
    const int p = queries[first + place * step];
    const int* order = orders + (size_t)lists[p] * points;
    Tally tally = {0, 0, 0, 0};
    for (int at = starts[p] + (int)(thread % threads); at < stops[p]; at += threads) {
        const int j = order[at];
        if (later && j <= p) continue;
#if BOUNDED
        tally.slot = slots[place] + (at - starts[p]);
#endif
        compare(p, j, qz, qy, dz, dy, reach, sure, threshold, turned, capacity, out, d_counts, state, tally);
    }
    add_tally(p, tally, q_counts, state);
}

// Does the same as walk_lists, but with one thread per candidate. A thread finds the query of its candidate by binary
// search in `slots`.
extern "C" __global__ void __launch_bounds__(THREADS)
walk_candidates(const int* __restrict__ queries, i64 first, i64 step, u32 number, int threads,
                const int* __restrict__ starts, const int* __restrict__ stops, const int* __restrict__ lists,
                const int* __restrict__ orders, int points, int later, int turned, const real* __restrict__ qz,
                const double* __restrict__ qy, const real* __restrict__ dz, const double* __restrict__ dy, real reach,
                real sure, double threshold, u64 capacity, int2* __restrict__ out, u64* __restrict__ q_counts,
                u64* __restrict__ d_counts, u64* __restrict__ state, const i64* __restrict__ slots) {
    const i64 candidate = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (candidate >= slots[number]) return;
    u32 low = 0, high = number;  // invariant: slots[low] <= candidate < slots[high]
    while (high - low > 1) {
        const u32 middle = low + (high - low) / 2;
        if (slots[middle] <= candidate) low = middle;
        else high = middle;
    }
    const int p = queries[first + (i64)low * step];
    const int j = orders[(size_t)lists[p] * points + starts[p] + (candidate - slots[low])];
    if (later && j <= p) return;
    Tally tally = {0, 0, 0, candidate};
    compare(p, j, qz, qy, dz, dy, reach, sure, threshold, turned, capacity, out, d_counts, state, tally);
    add_tally(p, tally, q_counts, state);
}
