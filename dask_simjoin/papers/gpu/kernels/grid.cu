#include "common.cuh"
#include "components.cuh"
// The grid joins of two papers: see dask_simjoin/papers/grid.py. P1 is GPU-Join (Gowanlock & Karsin 2019). P2 is its
// successor, which balances the load in few dimensions (Gallet & Gowanlock 2019).
//
// A group of `threads` lanes handles one query. Each lane looks up the cells around the query, and the group shares
// the points of every cell (P2, III-A). The queries of a batch are `places[first + n * step]`. With `queue`, each group
// takes the next free query of its batch (P2, III-D). Timing then affects the order of the queries, but not the set of
// queries in a batch. With `parts` > 1, `parts` groups share the points of each query. This keeps the GPU busy even if
// there are few queries.
//
// If lanes read the same point at the same time, the warp loads it only once. So lanes with queries of the same cell
// visit the same points.
//
// Pairs beyond `capacity` are counted but not written. The caller then discards the batch, and runs its halves instead.
//
// Constants: DIMS; INDEXED: number of indexed dimensions; NORM; EXACT 0 or 1 (1 for norms other than 2); COUNTING 0
// (writes pairs) or 1 (counts neighbors); TELLING 1 to fill the counters of work, for profiles; SINK.

#define THREADS 256
#define FULL_PATTERN 0
#define UNICOMP 1
#define LID 2
#define TERMS 8 // a sum is compared with the limit after every this many terms

// The first HELD coordinates of a query are in registers. Columns have descending variances, so most sums exceed the
// limit within these coordinates.
#if DIMS <= 64
#define HELD DIMS
#else
#define HELD 32
#endif

// Number of coordinates that one instruction loads. Rows must be aligned to this number.
constexpr int WIDTH = DIMS % 4 == 0 && !EXACT ? 4 : DIMS % 2 == 0 ? 2 : 1;

#ifndef TELLING
#define TELLING 0
#endif

constexpr int POINTS = TELLING ? 1 : 2;  // number of points that a thread compares at the same time

typedef long long i64;

// Indexes of `state`: pairs, the next query of the queue, candidates that float64 decided and refused, then the
// counters for TELLING.
#define PAIRS 0
#define HEAD 1
#define DECIDED 2
#define REFUSED 3
#define LOOKUPS 4
#define FOUND 5
#define CANDIDATES 6
#define COMPARISONS 7
#define SUMMED 8
#define ACTIVE 9
#define LANES 10

__device__ __forceinline__ int find(const i64* __restrict__ numbers, int begin, int end, i64 number) {
    const int stop = end;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (numbers[middle] < number) begin = middle + 1;
        else end = middle;
    }
    return begin < stop && numbers[begin] == number ? begin : -1;
}

// Calls `visit` for each non-empty cell that a query in the cell `own` visits, and returns the number of lookups.
// Stage i visits adjacent cells that differ from `own` in dimension i, but in no later dimension. UNICOMP visits all of
// these if the coordinate i of `own` is odd. LID visits those whose coordinate i is larger than that of `own`. Their
// cell numbers are then larger, too, because the first dimension varies fastest.
template <class Visit>
__device__ __forceinline__ u32 visit_cells(const i64* __restrict__ own, const i64* __restrict__ mask,
                                           const i64* __restrict__ mask_starts, const i64* __restrict__ strides,
                                           const i64* __restrict__ keys, int cells, int pattern, Visit visit) {
    u64 there = 0;  // 3 bits per dimension: whether any cell has the coordinate of `own` plus -1, 0 or 1
    u32 odd = 0, lookups = 0;
    i64 key = 0;
    int from = -1;  // stage -1 visits the own cell
#pragma unroll
    for (int j = 0; j < INDEXED; j++) {
        const i64 c = own[j];
        key += c * strides[j];
        odd |= (u32)(c & 1) << j;
#pragma unroll
        for (int s = 0; s < 3; s++)
            if (find(mask, (int)mask_starts[j], (int)mask_starts[j + 1], c + s - 1) >= 0) there |= 1ull << (3 * j + s);
        // no cell of the other index has this coordinate, so stages before j would find nothing
        if (!(there >> (3 * j + 1) & 1)) from = j;
    }
    for (int i = from; i < INDEXED; i++) {
        if (i >= 0 && pattern == UNICOMP && !(odd >> i & 1)) continue;
        for (int s = i < 0 || pattern == LID ? 2 : 0; s < 3; s += 2) {
            if (i >= 0 && !(there >> (3 * i + s) & 1)) continue;
            i64 target = i < 0 ? key : key + (s - 1) * strides[i];
            u32 digits = 0;  // 2 bits per earlier dimension: the coordinate minus that of `own`, plus 1
            bool more = true;
            for (int j = 0; j < i; j++) {
                const u32 bits = (u32)(there >> (3 * j)) & 7;
                if (!bits) {
                    more = false;
                    break;
                }
                const int digit = __ffs(bits) - 1;
                digits |= (u32)digit << (2 * j);
                target += (digit - 1) * strides[j];
            }
            while (more) {
                lookups++;
                const int at = find(keys, 0, cells, target);
                if (at >= 0) visit(at);
                int j = 0;
                for (; j < i; j++) {  // go on to the next combination of coordinates in the dimensions before i
                    const u32 bits = (u32)(there >> (3 * j)) & 7, old = digits >> (2 * j) & 3;
                    const u32 rest = bits >> (old + 1);
                    if (rest) {
                        const int up = __ffs(rest);
                        digits += (u32)up << (2 * j);
                        target += up * strides[j];
                        break;
                    }
                    const u32 down = old - (__ffs(bits) - 1);
                    digits -= down << (2 * j);
                    target -= (i64)down * strides[j];
                }
                more = j < i;
            }
        }
    }
    return lookups;
}

// Writes the number of candidates of a query in each cell (P2, III-C).
extern "C" __global__ void __launch_bounds__(THREADS)
grid_work(const i64* __restrict__ coords, int number, const i64* __restrict__ mask,
          const i64* __restrict__ mask_starts, const i64* __restrict__ strides, const i64* __restrict__ keys,
          const i64* __restrict__ starts, int cells, int pattern, i64* __restrict__ work) {
    const i64 c = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (c >= number) return;
    i64 total = 0;
    visit_cells(coords + c * INDEXED, mask, mask_starts, strides, keys, cells, pattern,
                [&](int at) { total += starts[at + 1] - starts[at]; });
    work[c] = total;
}

struct alignas(WIDTH * sizeof(real)) several {
    real at[WIDTH];
};

// Adds TERMS terms from dimension k0 on to the sums of POINTS points, and returns the smallest sum.
__device__ __forceinline__ real add_terms(real* sums, const real* const* other, const real* query, int k0) {
    real loaded[POINTS][TERMS];
#pragma unroll
    for (int u = 0; u < POINTS; u++)
#pragma unroll
        for (int k = 0; k < TERMS; k += WIDTH)
            if (k0 + k < DIMS) {
                const several some = *(const several*)(other[u] + k0 + k);
#pragma unroll
                for (int m = 0; m < WIDTH; m++) loaded[u][k + m] = some.at[m];
            }
    real smallest = 0;
#pragma unroll
    for (int u = 0; u < POINTS; u++) {
#pragma unroll
        for (int k = 0; k < TERMS; k++)
            if (k0 + k < DIMS) sums[u] = add_term(sums[u], minus(query[k0 + k], loaded[u][k]));
        smallest = u && smallest < sums[u] ? smallest : sums[u];
    }
    return smallest;
}

extern "C" __global__ void __launch_bounds__(THREADS)
join_grid(const int* __restrict__ places, i64 first, i64 step, u32 number, int threads, int parts, int queue,
          const real* __restrict__ qz, const double* __restrict__ qy, const i64* __restrict__ q_starts, int q_cells,
          const i64* __restrict__ q_coords, const real* __restrict__ dz, const double* __restrict__ dy,
          const i64* __restrict__ keys, const i64* __restrict__ starts, int cells, const i64* __restrict__ mask,
          const i64* __restrict__ mask_starts, const i64* __restrict__ strides, int same, int pattern, int sort_dim,
          int short_circuit, double window, real reach, real sure, double threshold, u64 capacity,
          int2* __restrict__ out, u64* __restrict__ q_counts, u64* __restrict__ d_counts, u64* __restrict__ state) {
    const int lane = threadIdx.x & 31, rank = lane % threads;
    const u32 group = (threads == 32 ? FULL : (1u << threads) - 1) << (lane - rank);
    u32 taken;
    int part = 0;
    if (queue) {
        taken = 0;
        if (rank == 0) taken = (u32)min(atomicAdd(state + HEAD, (u64)1), (u64)0xffffffffu);
        taken = __shfl_sync(group, taken, lane - rank);
        if (taken >= number) return;  // all lanes of a group return together
    } else {
        const u64 at = ((u64)blockIdx.x * THREADS + threadIdx.x) / threads;
        if (at >= (u64)number * parts) return;  // all lanes of a group return together
        taken = (u32)(at % number);
        part = (int)(at / number);
    }
    const int p = places[first + taken * step];
    int low = 0, high = q_cells;  // binary search for the cell of query p
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (q_starts[middle] <= p) low = middle;
        else high = middle;
    }
    const int cell = low;
    const real* my = qz + (size_t)p * DIMS;
    real query[HELD];
#pragma unroll
    for (int k = 0; k < HELD; k++) query[k] = my[k];
    // Queries of the same cell share one window of sorted values (P1, 4.3), if it is at most 1.5 times as long as
    // their own windows.
    double lowest = 0, highest = 0;
    if (sort_dim >= 0) {
        lowest = highest = qy[(size_t)p * DIMS + sort_dim];
        if (threads == 1) {
            const u32 alike = __match_any_sync(__activemask(), cell);
            double least = lowest, most = highest;
            for (u32 rest = alike; rest; rest &= rest - 1) {
                const double x = __shfl_sync(alike, lowest, __ffs((int)rest) - 1);
                least = min(least, x);
                most = max(most, x);
            }
            if (most - least <= window) {
                lowest = least;
                highest = most;
            }
        }
    }
    u32 decided = 0, refused = 0;
#if COUNTING
    u64 mine = 0;
#endif
#if TELLING
    u64 found = 0, candidates = 0, comparisons = 0, summed = 0, used = 0, lanes = 0;
#endif
    const u32 lookups = visit_cells(
        q_coords + (size_t)cell * INDEXED, mask, mask_starts, strides, keys, cells, pattern, [&](int c) {
            int lo = (int)starts[c], hi = (int)starts[c + 1];
#if TELLING
            found++;
            candidates += hi - lo;
#endif
            // needs no tolerance for rounding, because rounded differences have the same order as the values
            if (sort_dim >= 0) {
                const double* u = dy + sort_dim;
                int end = hi;
                while (lo < end) {
                    const int middle = lo + (end - lo) / 2;
                    if (__dsub_rn(lowest, u[(size_t)middle * DIMS]) > window) lo = middle + 1;
                    else end = middle;
                }
                int begin = lo;
                while (begin < hi) {
                    const int middle = begin + (hi - begin) / 2;
                    if (__dsub_rn(u[(size_t)middle * DIMS], highest) > window) hi = middle;
                    else begin = middle + 1;
                }
            }
            // whether the pair would be found from both points
            const bool twice = same && (pattern == FULL_PATTERN || c == cell);
            // The points of a lane depend only on the points' positions. They must not depend on `lo`, because groups
            // that share a query may have different windows.
            const int shares = threads * parts, share = part * threads + rank;
            for (int j = lo + (share + shares - lo % shares) % shares; j < hi; j += POINTS * shares) {
                const real* other[POINTS];
#pragma unroll
                for (int u = 0; u < POINTS; u++) other[u] = dz + (size_t)min(j + u * shares, hi - 1) * DIMS;
                real sums[POINTS] = {};
#if TELLING
                const bool compared = sort_dim < 0 || fabs(__dsub_rn(dy[(size_t)j * DIMS + sort_dim],
                                                                     qy[(size_t)p * DIMS + sort_dim])) <= window;
                if (compared) {
                    const u32 active = __activemask();
                    comparisons++;
                    if (lane == __ffs(active) - 1) {
                        used += __popc(active);
                        lanes += 32;
                    }
                }
#endif
                // rounded terms are not negative, so if a partial sum is above `reach`, the full sum is above it, too
                bool beyond = false;
#pragma unroll
                for (int k0 = 0; k0 < HELD; k0 += TERMS) {
                    const real least = add_terms(sums, other, query, k0);
#if TELLING
                    if (compared) summed += min(TERMS, DIMS - k0);
#endif
                    if (short_circuit && least > reach) {
                        beyond = true;
                        break;
                    }
                }
                if (beyond) continue;
#if HELD < DIMS
                for (int k0 = HELD; k0 < DIMS; k0 += TERMS) {
                    const real least = add_terms(sums, other, my, k0);
#if TELLING
                    if (compared) summed += min(TERMS, DIMS - k0);
#endif
                    if (short_circuit && least > reach) break;
                }
#endif
#pragma unroll
                for (int u = 0; u < POINTS; u++) {
                    const int at = j + u * shares;
                    bool hit = sums[u] <= reach && at < hi && !(twice && at <= p);
#if !EXACT
                    if (hit && sums[u] > sure) {
                        hit = squared_distance(qy + (size_t)p * DIMS, dy + (size_t)at * DIMS) <= threshold;
                        decided++;
                        refused += !hit;
                    }
#endif
                    if (!hit) continue;
#if COUNTING
                    mine++;
                    if (d_counts) atomicAdd(d_counts + at, (u64)1);
#elif SINK
                    take(p, at, (const u64*)out);
#else
                    // all lanes with a pair reserve their slots by one atomic operation; the order of slots does not
                    // matter
                    const u32 active = __activemask();
                    const int leader = __ffs(active) - 1;
                    u64 slot = 0;
                    if (lane == leader) slot = atomicAdd(state + PAIRS, (u64)__popc(active));
                    slot = __shfl_sync(active, slot, leader) + __popc(active & ((1u << lane) - 1));
                    if (slot < capacity) out[slot] = make_int2(p, at);
#endif
                }
            }
        });
#if COUNTING
    if (mine) atomicAdd(q_counts + p, mine);
#endif
    if (decided) {
        atomicAdd(state + DECIDED, (u64)decided);
        if (refused) atomicAdd(state + REFUSED, (u64)refused);
    }
#if TELLING
    if (rank == 0 && part == 0) {
        atomicAdd(state + LOOKUPS, (u64)lookups);
        atomicAdd(state + FOUND, found);
        atomicAdd(state + CANDIDATES, candidates);
    }
    atomicAdd(state + COMPARISONS, comparisons);
    atomicAdd(state + ACTIVE, used);
    atomicAdd(state + LANES, lanes);
    atomicAdd(state + SUMMED, summed);
#endif
}
