#include "common.cuh"
#include "components.cuh"
#include "tensor.cuh"
#include "staged.cuh"
#include "blocks.cuh"
#include "near.cuh"
#include "ring.cuh"
#include "decide.cuh"
// Joins tiles of 128 points with blocks of 256 queries on tensor cores. It replaces tensor.cu in higher dimensions,
// where queries do not fit into registers.
//
// Vectors of queries and points are read slice by slice, through a ring of STAGES buffers in shared memory, called
// stages. Up to STAGES slices are copied ahead, also slices of the next tile. Sums stay in registers, 64 x 64 per warp.
// The next slice is read before the last products of the current slice, so tensor cores do not wait. Pieces of 16 bytes
// are swizzled within the rows of a slice, so that reads have no bank conflicts.
//
// Vectors and bounds, and how the sign of a product decides, are as in tensor.cu.
//
// Constants: DIMS; WIDTH of a vector, a multiple of 16; DEPTH of a slice in units of 16 numbers: 2 or 4; STAGES, 2
// or more; COUNTING 0 or 1; SINK.

#define STEPS (WIDTH / 16)
#define SLICES ((STEPS + DEPTH - 1) / DEPTH)
#define REST (STEPS - (SLICES - 1) * DEPTH) // number of steps, of 16 dimensions each, in the last slice
#define AT_ONCE (THREADS / PIECES)          // number of rows that all threads together copy at a time
#define STAGE_BYTES ((QUERIES + TILE) * SLICE * 2)
#define PART 64                             // number of queries, and of points, that a warp compares

template <int N> struct Steps { // passes a compile-time constant to the lambdas below
    static constexpr int number = N;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
join_tensor_wide(const half_bits* __restrict__ qh, const float* __restrict__ q_sure,
                 const stored* __restrict__ qy, const real* __restrict__ q_lower,
                 const real* __restrict__ q_upper, int q_points, int q_first, int q_last,
                 const half_bits* __restrict__ dh, const float* __restrict__ d_sure,
                 const stored* __restrict__ dy, const real* __restrict__ d_lower,
                 const real* __restrict__ d_upper, int d_points, int d_level1, int same, int ranges, int span,
                 real reach, double threshold, u64 room, int2* __restrict__ out, u64* __restrict__ q_counts,
                 u64* __restrict__ d_counts, u64* __restrict__ state, int* __restrict__ resume) {
    // state: pairs written, next unit, blocks that stopped, candidates decided, candidates refused
    // resume, for each block: unit (-1: none), range, position in the list of tiles
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Lists s_lists;
    __shared__ real s_low[DIMS], s_high[DIMS];
    __shared__ int s_unit, s_from, s_stop;
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int warp_row = (warp >> 1) * PART, warp_point = (warp & 1) * PART;
#if COUNTING
    __shared__ u32 s_rows[QUERIES], s_points[TILE];
    if (tid < TILE) s_points[tid] = 0;
#else
    u32* buffer = (u32*)(memory + STAGES * STAGE_BYTES) + warp * BUFFER;
    Stage stage = {0, false};
#endif
    const int tiles = (d_points + TILE - 1) / TILE;
    const int q_tiles = (q_points + TILE - 1) / TILE, blocks = (q_points + QUERIES - 1) / QUERIES;
    const int per_query = (ranges + span - 1) / span;
    const u64 units = (u64)(q_last - q_first) * per_query;
    u32 decided = 0, refused = 0;
    // a thread copies the same piece of every AT_ONCE-th row, and reads the same row of every matrix
    const int copied = tid / PIECES * WIDTH + tid % PIECES * 8;
    const int copied_to = tid / PIECES * SLICE + (tid % PIECES ^ swizzle(tid / PIECES)) * 8;
    const u32 ring = (u32)__cvta_generic_to_shared(memory);
    const u32 read_queries = ring + (warp_row + (lane & 15)) * SLICE * 2 + (lane >> 4 ^ swizzle(lane & 7)) * 16;
    const u32 read_points = ring + (QUERIES + warp_point + (lane & 7) + (lane >> 4) * 8) * SLICE * 2
                            + ((lane >> 3 & 1) ^ swizzle(lane & 7)) * 16;
    bool again = resume[blockIdx.x * 3] >= 0;

    for (;;) {
        __syncthreads();
        if (tid == 0) {
            int* note = resume + blockIdx.x * 3;
            s_unit = again ? note[0] : (int)min(atomicAdd(state + 1, (u64)1), (u64)0x7fffffff);
            s_from = again ? note[2] : 0;
            if (again) note[0] = -1;
            s_stop = 0;
        }
        __syncthreads();
        const int unit = s_unit;
        int from = s_from;
        if ((u64)unit >= units) break;
        const int i = q_first + unit / per_query, r_begin = unit % per_query * span;
        const int r_end = min(r_begin + span, ranges), row0 = i * QUERIES + warp_row;
        int r = again ? resume[blockIdx.x * 3 + 1] : r_begin;
        again = false;
        box_of_queries(i, q_tiles, q_lower, q_upper, s_low, s_high, tid);
#if COUNTING
        s_rows[tid] = 0;
#endif
        __syncthreads();
        for (; r < r_end; r++) {
            const int tile0 = r * RANGE;
            const int listed = list_tiles(s_lists, i, r, tiles, blocks, same, d_lower, d_upper, d_level1,
                                          s_low, s_high, reach, tid);
            int n = from, ahead = from, ahead_slice = 0, filled = 0, used = 0;
            from = 0;
            if (!listed) continue;
            auto copy_slice = [&]() {          // copies a slice of tile `ahead` of the list into stage `filled`
                if (ahead < listed) {
                    if (ahead_slice < SLICES - 1 || tid % PIECES < 2 * REST) {
                        const half_bits* q = qh + (size_t)i * QUERIES * WIDTH + ahead_slice * SLICE + copied;
                        const half_bits* d = dh + (size_t)(tile0 + s_lists.tiles[ahead]) * TILE * WIDTH
                                             + ahead_slice * SLICE + copied;
                        half_bits* to = (half_bits*)(memory + filled * STAGE_BYTES) + copied_to;
#pragma unroll
                        for (int row = 0; row < QUERIES; row += AT_ONCE) copy16(to + row * SLICE, q + row * WIDTH);
#pragma unroll
                        for (int row = 0; row < TILE; row += AT_ONCE)
                            copy16(to + (QUERIES + row) * SLICE, d + row * WIDTH);
                    }
                    filled = filled + 1 == STAGES ? 0 : filled + 1;
                    ahead_slice++;
                    if (ahead_slice == SLICES) {
                        ahead_slice = 0;
                        ahead++;
                    }
                }
                end_of_copies();
            };
            for (int k = 0; k < STAGES; k++) copy_slice();
            copies_done<STAGES - 1>();
            __syncthreads();
            Fragments parts[2];
            float sums[4][8][4];
            read_step(parts[0], read_queries, read_points, 0);
            // multiplies one slice; its first step is already in registers
            auto multiply = [&](auto steps, bool biased) {
                constexpr int number = decltype(steps)::number;
#pragma unroll
                for (int k = 0; k < number; k++) {
                    Fragments &now = parts[k & 1], &next = parts[k + 1 & 1];
                    if (k == number - 1) {     // wait until the next slice is there, and all threads have read this one
                        copies_done<STAGES - 2>();
                        __syncthreads();
                        used = used + 1 == STAGES ? 0 : used + 1;
                    }
                    const u32 base = used * STAGE_BYTES;
                    read_step(next, read_queries + base, read_points + base, k == number - 1 ? 0 : k + 1);
                    if (biased && k == number - 1) {            // swap the halves of a query's last eight numbers
#pragma unroll
                        for (int m = 0; m < 4; m++) {
                            now.a[m][2] = __shfl_xor_sync(FULL, now.a[m][2], 2);
                            now.a[m][3] = __shfl_xor_sync(FULL, now.a[m][3], 2);
                        }
                    }
#pragma unroll
                    for (int m = 0; m < 4; m++)
#pragma unroll
                        for (int c = 0; c < 8; c++)
                            multiply_add(sums[m][c], now.a[m], now.b[c >> 1][(c & 1) * 2],
                                         now.b[c >> 1][(c & 1) * 2 + 1]);
                    if (k == number - 1) copy_slice();          // the copy runs while the tensor cores multiply
                }
                if (number & 1) parts[0] = parts[1];
            };
            for (; n < listed; n++) {
#pragma unroll
                for (int e = 0; e < 128; e++) sums[e >> 5][e >> 2 & 7][e & 3] = 0.f;
                multiply(Steps<DEPTH>(), false);
                // since the last barrier, all threads see the same value, so all stop at the same tile
                if (s_stop) break;
#pragma unroll 1
                for (int s = 1; s < SLICES - 1; s++) multiply(Steps<DEPTH>(), false);
                multiply(Steps<REST>(), true);
                int signs = -1;
#pragma unroll
                for (int e = 0; e < 128; e++) signs &= __float_as_int(sums[e >> 5][e >> 2 & 7][e & 3]);
                if (__any_sync(FULL, signs >= 0)) {
                    const int t = tile0 + s_lists.tiles[n], point0 = t * TILE + warp_point;
                    const float sure = q_sure[row0] + d_sure[point0];
                    const bool own = same && (t >> 1) == i;
                    u32 all_hits[4] = {}, all_doubt[4] = {};
#pragma unroll
                    for (int m = 0; m < 4; m++) {
                        split<0>(&sums[m][0][0], sure, all_hits[m], all_doubt[m]);
                        split<16>(&sums[m][4][0], sure, all_hits[m], all_doubt[m]);
                    }
#pragma unroll 1
                    for (int m = 0; m < 4; m++) {
                        u32 hits = m == 0 ? all_hits[0] : m == 1 ? all_hits[1] : m == 2 ? all_hits[2] : all_hits[3];
                        u32 open = m == 0 ? all_doubt[0] : m == 1 ? all_doubt[1] : m == 2 ? all_doubt[2] : all_doubt[3];
                        const int row1 = m * 16;
                        if (own) {             // a tile is compared with itself: only points after the query count
                            hits = later(hits, row0 + row1 - point0, lane);
                            open = later(open, row0 + row1 - point0, lane);
                        }
                        hits = decide(hits, open, qy + (size_t)(row0 + row1) * ROW, dy + (size_t)point0 * ROW,
                                      threshold, lane, decided, refused);
#if COUNTING
                        while (hits) {
                            const int e = __ffs(hits) - 1;
                            hits &= hits - 1;
                            atomicAdd(s_rows + warp_row + row1 + row_of(lane, e), 1u);
                            if (d_counts) atomicAdd(s_points + warp_point + point_of(lane, e), 1u);
                        }
#else
                        stage_hits<PART>(hits, n << 13 | row1 << 7 | warp_point, stage, buffer, lane, row0,
                                         s_lists.tiles, tile0, state, room, out);
#endif
                    }
                }
#if COUNTING
                __syncthreads();
                if (d_counts && tid < TILE && s_points[tid]) {
                    atomicAdd(d_counts + (tile0 + s_lists.tiles[n]) * TILE + tid, (u64)s_points[tid]);
                    s_points[tid] = 0;
                }
#else
                if (stage.stopped && lane == 0) s_stop = 1;
#endif
            }
#if !COUNTING
            // write staged pairs now, because they refer to the list of this range, which the next range replaces
            if (stage.held) flush<PART>(stage, buffer, lane, row0, s_lists.tiles, tile0, state, room, out);
#endif
            copies_done<0>();
            __syncthreads();
            if (s_stop) {
                if (tid == 0) {
                    int* note = resume + blockIdx.x * 3;
                    note[0] = unit;
                    note[1] = r;
                    note[2] = n;
                    atomicAdd(state + 2, (u64)1);
                }
                break;
            }
        }
#if COUNTING
        if (s_rows[tid]) atomicAdd(q_counts + i * QUERIES + tid, (u64)s_rows[tid]);
#endif
        if (s_stop) break;
    }
    tell_decided(state, decided, refused, lane);
}
