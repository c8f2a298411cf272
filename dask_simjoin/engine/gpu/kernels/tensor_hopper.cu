#include "common.cuh"
#include "components.cuh"
#include "tensor.cuh"
#include "staged.cuh"
#include "blocks.cuh"
#include "warpgroups.cuh"
#include "near.cuh"
#include "decide.cuh"
// Joins tiles of 128 points with blocks of 256 queries like tensor_wide.cu, but with instructions of compute
// capability 9.0: matrix products of whole warpgroups, whose operands are in shared memory, and bulk copies.
//
// Two thread blocks form a cluster. Both have the same 256 queries, and the tiles of the list alternate between them.
// Each block copies half of the queries' slices to the shared memory of both, so queries are read only once. All warps
// but one multiply and decide, and the last one issues all copies. Slices go through a ring of STAGES buffers, called
// stages. Barriers in shared memory signal when a stage is full, and when all warps that use it have read it.
//
// If the vectors of the queries fit into shared memory (RESIDENT), they are copied once for each block of queries, and
// stages have slices of points only. Otherwise a stage also has the same slice of the queries, for each tile anew.
//
// Vectors have the same layout in global memory as in shared memory: per tile and slice, 128 rows of 64 numbers.
// Pieces of 16 bytes are swizzled (see vectors.cu). The last slice may be narrower.
//
// After the output is full, a block still writes the pairs of LATER more tiles. Then it multiplies the rest of the
// range without using the results, so that both blocks of the cluster stay in step. The next launch continues after the
// written tiles.
//
// SHARE clusters have the same queries at the same time, and each takes every SHARE-th pair of tiles. With SHARE > 1,
// fewer different queries are in use, so they stay in the L2 cache even if vectors are long.
//
// Constants: DIMS; WIDTH of a vector, a multiple of 16; STAGES; LATER, SHARE, RESIDENT, WARPS and BUFFER, see
// engine/filters/float16.py; COUNTING 0 or 1; SINK.

#define STEP (2 * SHARE)                       // a block takes every STEP-th tile of the list
#define STEPS (WIDTH / 16)
#define SLICES ((STEPS + 3) / 4)
#define REST (STEPS - (SLICES - 1) * 4)        // number of steps, of 16 dimensions each, in the last slice
#define LAST (REST < 3 ? REST * 16 : 64)       // numbers per row in the last slice
#define STRIDE ((SLICES - 1) * 64 + LAST)
#define SLICE_BYTES (TILE * 128)
#define LAST_BYTES (TILE * LAST * 2)
#define TILE_BYTES (TILE * STRIDE * 2)
#if RESIDENT
#define STAGE_BYTES (SLICES > 1 ? SLICE_BYTES : LAST_BYTES)
#define READERS WARPS                          // number of warps that release a stage
#else
#define STAGE_BYTES (3 * SLICE_BYTES)          // two tiles of queries and one of points
#define READERS (2 * WARPS)
#endif
#define QUERY_BYTES (RESIDENT * 2 * TILE_BYTES)  // at the start of shared memory
#define ALL_WARPS (WARPS + 1)
#define HALVES (16 / WARPS)                    // a warpgroup multiplies 64 queries of each half of its rows
#define PARTS (2 * HALVES)                     // a warp's sums of 16 queries and 64 points are a part
#define ROWS_OF_WARP 128  // the rows of a warp lie within a range of this length; it must be a power of two
__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

__device__ __forceinline__ u32 peer_address(u32 at, u32 rank) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}

__device__ __forceinline__ void store_in(u32 rank, int* at, int value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(peer_address(shared_address(at), rank)), "r"(value)
                 : "memory");
}

__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra after;\nbra again;\nafter:\n}" ::"r"(barrier), "r"(parity)
                 : "memory");
}

// Arrives at a barrier, which then completes when `bytes` bytes have been copied.
__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the barriers of all blocks that wait for this warp to have read a stage. It needs no memory fence, because
// all values that were read are in registers.
__device__ __forceinline__ void release(u32 barrier) {
#if RESIDENT
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#else
#pragma unroll
    for (u32 rank = 0; rank < 2; rank++)
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                         peer_address(barrier, rank))
                     : "memory");
#endif
}

__device__ __forceinline__ void copy_to_both(u32 to, const half_bits* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"((short)3)
                 : "memory");
}

__device__ __forceinline__ void copy_here(u32 to, const half_bits* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Returns the descriptor of a matrix in shared memory: swizzled rows of NUMBERS numbers (16, 32 or 64), in groups of
// eight rows.
template <int NUMBERS> __device__ __forceinline__ u64 matrix(u32 at) {
    constexpr u64 kind = NUMBERS == 64 ? 1 : NUMBERS == 32 ? 2 : 3;
    return (u64)((at & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(NUMBERS * 2 * 8 >> 4) << 32 | kind << 62;
}

#define R4(x, n) "+f"(x[n]), "+f"(x[n + 1]), "+f"(x[n + 2]), "+f"(x[n + 3])
#define R16(x, n) R4(x, n), R4(x, n + 4), R4(x, n + 8), R4(x, n + 12)
#define R64(x) R16(x, 0), R16(x, 16), R16(x, 32), R16(x, 48)
#define SUMS                                                                                                  \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
    "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,"    \
    "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"

// Multiplies 64 queries by 128 points in 16 dimensions. With `more`, adds the products to `sums`, else replaces them.
__device__ __forceinline__ void multiply(float* sums, u64 queries, u64 points, int more) {
    asm volatile("{\n.reg .pred more;\nsetp.ne.b32 more, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " SUMS " %64, %65, more, 1, 1, 0, 0;\n}"
                 : R64(sums)
                 : "l"(queries), "l"(points), "r"(more));
}

// The same for queries in registers.
__device__ __forceinline__ void multiply(float* sums, const u32* queries, u64 points, int more) {
    asm volatile("{\n.reg .pred more;\nsetp.ne.b32 more, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " SUMS
                 " {%64,%65,%66,%67}, %68, more, 1, 1, 0;\n}"
                 : R64(sums)
                 : "r"(queries[0]), "r"(queries[1]), "r"(queries[2]), "r"(queries[3]), "l"(points), "r"(more));
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void products_done() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Keeps the compiler from moving reads and writes of `sums` across this call.
__device__ __forceinline__ void hold(float* sums) {
#pragma unroll
    for (int e = 0; e < 64; e++) asm volatile("" : "+f"(sums[e])::"memory");
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32 * ALL_WARPS, 1)
join_tensor_hopper(const half_bits* __restrict__ qh, const float* __restrict__ q_sure,
                   const stored* __restrict__ qy, const real* __restrict__ q_lower,
                   const real* __restrict__ q_upper, int q_points, int q_first, int q_last,
                   const half_bits* __restrict__ dh, const float* __restrict__ d_sure,
                   const stored* __restrict__ dy, const real* __restrict__ d_lower,
                   const real* __restrict__ d_upper, int d_points, int d_level1, int same, int ranges, int span,
                   real reach, double threshold, u64 room, int2* __restrict__ out, u64* __restrict__ q_counts,
                   u64* __restrict__ d_counts, u64* __restrict__ state, int* __restrict__ resume) {
    // `state` and `resume`: see tensor_wide.cu. Both blocks of a cluster resume at the same unit.
    extern __shared__ unsigned char unaligned[];
    __shared__ Lists s_lists;
    __shared__ real s_low[DIMS], s_high[DIMS];
    __shared__ __align__(8) u64 s_full[STAGES], s_empty[STAGES], s_queries;
    __shared__ int s_unit, s_listed, s_from[2], s_stops[2][2], s_stop;
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int rank = blockIdx.x & 1;
    const u32 query_memory = (shared_address(unaligned) + 1023) & ~1023u, memory = query_memory + QUERY_BYTES;
    const u32 full = shared_address(s_full), empty = shared_address(s_empty), queried = shared_address(&s_queries);
#if COUNTING
    __shared__ u32 s_rows[QUERIES];
#else
    u32* buffer = (u32*)(unaligned + (memory - shared_address(unaligned)) + STAGES * STAGE_BYTES) + warp * BUFFER;
    Stage stage = {0, false};
#endif
    const int tiles = (d_points + TILE - 1) / TILE;
    const int q_tiles = (q_points + TILE - 1) / TILE, blocks = (q_points + QUERIES - 1) / QUERIES;
    const int per_query = (ranges + span - 1) / span;
    const u64 units = (u64)(q_last - q_first) * per_query * SHARE;
    u32 decided = 0, refused = 0, used = 0;    // used: number of slices that were copied so far, over all tiles
#if RESIDENT
    u32 turns = 0;                             // number of blocks of queries so far
#endif
    if (tid == 0) {
        for (int s = 0; s < STAGES; s++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + s * 8));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + s * 8), "r"(READERS));
        }
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(queried));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // a warpgroup has HALVES times 64 queries; each of its warps has 16 of each 64
    const int group_row = (warp >> 2) * HALVES * 64, warp_row = group_row + (warp & 3) * 16;
    int* const note = resume + blockIdx.x * 3;
    bool again = note[0] >= 0;

    for (;;) {
        sync_cluster();
        if (tid == 0) {
            const int from = again ? note[2] : 0;
            for (u32 to = 0; to < 2; to++) {
                store_in(to, s_from + rank, from);
                store_in(to, s_stops[0] + rank, 0);
                store_in(to, s_stops[1] + rank, 0);
            }
            if (rank == 0) {
                const int unit = again ? note[0] : (int)min(atomicAdd(state + 1, (u64)1), (u64)0x7fffffff);
                for (u32 to = 0; to < 2; to++) store_in(to, &s_unit, unit);
            }
            s_stop = 0x7fffffff;
        }
        sync_cluster();
        const int unit = s_unit;
        if ((u64)unit >= units) break;
        int own = s_from[rank], from = min(s_from[0], s_from[1]) & ~1;
        const int share = unit % SHARE, ranged = unit / SHARE;
        const int i = q_first + ranged / per_query, r_begin = ranged % per_query * span;
        const int r_end = min(r_begin + span, ranges), row0 = i * QUERIES + warp_row;
        int r = again ? note[1] : r_begin;
        if (again && tid == 0) note[0] = -1;
        again = false;
#if RESIDENT
        // no warp of the cluster reads the previous queries any more: see `sync_cluster` above
        if (warp == WARPS && lane == 0) {
            expect(queried, QUERY_BYTES);
            copy_to_both(query_memory + rank * TILE_BYTES, qh + (size_t)(2 * i + rank) * TILE * STRIDE, TILE_BYTES,
                         queried);
        }
        wait_for(queried, turns++ & 1);
#endif
        if (tid < THREADS) {
            box_of_queries(i, q_tiles, q_lower, q_upper, s_low, s_high, tid);
#if COUNTING
            if (tid < QUERIES) s_rows[tid] = 0;
#endif
            SYNC();
        }
        // ranges use the two rows of `s_stops` in turn: a block may write the next range's row while the other block
        // still reads this range's row
        int turn_of_stops = 0;
        bool stopped = false;
        for (; r < r_end && !stopped; r++) {
            const int tile0 = r * RANGE;
            if (tid < THREADS) {
                const int found = list_tiles(s_lists, i, r, tiles, blocks, same, d_lower, d_upper, d_level1, s_low,
                                             s_high, reach, tid);
                if (tid == 0) s_listed = found;
            }
            __syncthreads();
            const int listed = s_listed, begin = SHARE == 1 ? from : (from & ~(STEP - 1)) + 2 * share;
            // blocks that run at the same time begin with the same tile, so that it is in the L2 cache for all but the
            // first
            int turn = 0;
            if (same) {
                const int wave = (gridDim.x + STEP - 2) / STEP, first = ((i / wave + 1) * wave * 2 - tile0);
                int low = 0, high = listed;    // binary search for the first entry that is not before `first`
                while (low < high) {
                    const int middle = (low + high) >> 1;
                    if ((int)s_lists.tiles[middle] < first) low = middle + 1;
                    else high = middle;
                }
                turn = low < listed ? low : 0;
            }
            auto entry = [&](int n) { n += turn; return n < listed ? n : n - listed; };
            from = 0;
            if (begin < listed) {
                if (warp == WARPS) {
                    if (lane == 0) {
#if !RESIDENT
                        const half_bits* queries = qh + (size_t)(2 * i + rank) * TILE * STRIDE;
#endif
                        for (int n = begin; n < listed; n += STEP) {
                            const int t = tile0 + s_lists.tiles[entry(min(n + rank, listed - 1))];
                            const half_bits* points = dh + (size_t)t * TILE * STRIDE;
                            for (int s = 0; s < SLICES; s++, used++) {
                                const u32 at = used % STAGES, to = memory + at * STAGE_BYTES, on = full + at * 8;
                                const u32 bytes = s < SLICES - 1 ? SLICE_BYTES : LAST_BYTES;
                                wait_for(empty + at * 8, (used / STAGES & 1) ^ 1);
#if RESIDENT
                                expect(on, bytes);
                                copy_here(to, points + s * TILE * 64, bytes, on);
#else
                                expect(on, 3 * bytes);
                                copy_to_both(to + rank * SLICE_BYTES, queries + s * TILE * 64, bytes, on);
                                copy_here(to + 2 * SLICE_BYTES, points + s * TILE * 64, bytes, on);
#endif
                            }
                        }
                    }
                    __syncwarp();
                } else {
                    // where slice s of the warpgroup's queries is, and the slice of points, if a stage is at `here`
                    const int query_tile = group_row / TILE, query_row = group_row % TILE;
                    auto queries_at = [&](u32 here, int s) {
                        const u32 slice = RESIDENT ? query_memory + query_tile * TILE_BYTES + s * SLICE_BYTES
                                                   : here + query_tile * SLICE_BYTES;
                        return slice + query_row * (s < SLICES - 1 ? 128 : LAST * 2);
                    };
                    auto points_at = [&](u32 here) { return RESIDENT ? here : here + 2 * SLICE_BYTES; };
                    // queries of the last step, with the halves of their last eight numbers swapped: see tensor.cu
                    u32 last[HALVES][4];
                    auto read_last = [&](u32 here) {
#pragma unroll
                        for (int m = 0; m < HALVES; m++) {
                            const int row = m * 64 + (warp & 3) * 16 + (lane & 15);
                            const int piece = (REST - 1) * 2 + (lane >> 4);
                            read_matrices(last[m], here + row * LAST * 2 + (piece ^ swizzled<LAST>(row)) * 16);
                            last[m][2] = __shfl_xor_sync(FULL, last[m][2], 2);
                            last[m][3] = __shfl_xor_sync(FULL, last[m][3], 2);
                        }
                    };
                    if (RESIDENT) read_last(queries_at(0, SLICES - 1));
                    float sums[HALVES][64];
                    auto hold_all = [&]() {
#pragma unroll
                        for (int m = 0; m < HALVES; m++) hold(sums[m]);
                    };
                    for (int step = begin; step < listed; step += STEP) {
                        // multiply both halves of the queries' tile
#pragma unroll 1
                        for (int s = 0; s < SLICES - 1; s++, used++) {
                            const u32 at = used % STAGES, here = memory + at * STAGE_BYTES;
                            wait_for(full + at * 8, used / STAGES & 1);
                            const u64 a = matrix<64>(queries_at(here, s)), b = matrix<64>(points_at(here));
                            hold_all();
                            begin_products();
#pragma unroll
                            for (int k = 0; k < 4; k++)
#pragma unroll
                                for (int m = 0; m < HALVES; m++)
                                    multiply(sums[m], a + 2 * k + m * (64 * 128 >> 4), b + 2 * k, s | k);
                            end_products();
                            products_done<1>();
                            if (s && lane == 0) release(empty + (used - 1) % STAGES * 8);
                        }
                        {
                            const u32 at = used % STAGES, here = memory + at * STAGE_BYTES;
                            wait_for(full + at * 8, used / STAGES & 1);
                            const u32 queries_here = queries_at(here, SLICES - 1);
                            const u64 a = matrix<LAST>(queries_here), b = matrix<LAST>(points_at(here));
                            if (!RESIDENT) read_last(queries_here);
                            hold_all();
                            begin_products();
#pragma unroll
                            for (int m = 0; m < HALVES; m++) {
#pragma unroll
                                for (int k = 0; k < REST - 1; k++)
                                    multiply(sums[m], a + 2 * k + m * (64 * LAST * 2 >> 4), b + 2 * k, SLICES - 1 | k);
                                multiply(sums[m], last[m], b + 2 * (REST - 1), SLICES - 1 | REST - 1);
                            }
                            end_products();
                            products_done<0>();
                            hold_all();
                            if (lane == 0) {
                                if (SLICES > 1) release(empty + (used - 1) % STAGES * 8);
                                release(empty + at * 8);
                            }
                            used++;
                        }
                        const int n = step + rank;
                        if (n < own || n >= listed || n >= *(volatile int*)&s_stop) continue;
                        int signs[PARTS][2], all = -1;   // signs of 16 sums each
#pragma unroll
                        for (int e = 0; e < 32 * PARTS; e++) {
                            int& sign = signs[e / 32][e % 32 / 16];
                            const int bits = __float_as_int(sums[e / 64][e % 64]);
                            sign = e % 16 ? sign & bits : bits;
                            if (e % 16 == 15) all &= sign;
                        }
                        if (!__any_sync(FULL, all >= 0)) continue;
                        const int place = entry(n), t = tile0 + s_lists.tiles[place], point0 = t * TILE;
                        const float sure = q_sure[row0] + d_sure[point0];
                        const bool own = same && (t >> 1) == i;
                        u32 all_hits[PARTS] = {}, all_open[PARTS] = {};
#pragma unroll
                        for (int p = 0; p < PARTS; p++) {
                            const float* part = sums[p >> 1] + (p & 1) * 32;
                            const int* sign = signs[p];
                            u32 &hits = all_hits[p], &open = all_open[p];
                            if (__any_sync(FULL, sign[0] >= 0)) split<0>(part, sure, hits, open);
                            if (__any_sync(FULL, sign[1] >= 0)) split<16>(part + 16, sure, hits, open);
                        }
#pragma unroll 1
                        for (int p = 0; p < PARTS; p++) {
                            u32 hits = all_hits[0], open = all_open[0];
#pragma unroll
                            for (int other = 1; other < PARTS; other++)
                                if (p == other) hits = all_hits[other], open = all_open[other];
                            const int row1 = (p >> 1) * 64, point1 = (p & 1) * 64;
                            if (own) {         // a tile is compared with itself: only points after the query count
                                const int apart = row0 + row1 - point0 - point1;
                                hits = later(hits, apart, lane);
                                open = later(open, apart, lane);
                            }
                            hits = decide(hits, open, qy + (size_t)(row0 + row1) * ROW,
                                          dy + (size_t)(point0 + point1) * ROW, threshold, lane, decided, refused);
#if COUNTING
                            while (hits) {
                                const int e = __ffs(hits) - 1;
                                hits &= hits - 1;
                                atomicAdd(s_rows + warp_row + row1 + row_of(lane, e), 1u);
                                if (d_counts) atomicAdd(d_counts + point0 + point1 + point_of(lane, e), (u64)1);
                            }
#else
                            stage_hits<ROWS_OF_WARP>(hits, place << 14 | row1 << 7 | point1, stage, buffer, lane, row0,
                                                     s_lists.tiles, tile0, state, room, out);
                            if (stage.stopped && lane == 0) atomicMin(&s_stop, n + STEP * LATER);
#endif
                        }
                    }
#if !COUNTING
                    if (stage.held) {
                        flush<ROWS_OF_WARP>(stage, buffer, lane, row0, s_lists.tiles, tile0, state, room, out);
                        if (stage.stopped && lane == 0) atomicMin(&s_stop, listed);
                    }
#endif
                }
                __syncthreads();
                if (tid == 0 && s_stop != 0x7fffffff)
                    for (u32 to = 0; to < 2; to++) store_in(to, s_stops[turn_of_stops] + rank, 1);
                sync_cluster();
                if (s_stops[turn_of_stops][0] | s_stops[turn_of_stops][1]) {
                    if (tid == 0) {
                        note[0] = unit;
                        note[1] = r;
                        note[2] = min(s_stop, listed);
                        atomicAdd(state + 2, (u64)1);
                    }
                    stopped = true;
                }
                turn_of_stops ^= 1;
            } else {
                __syncthreads();
            }
            own = 0;
        }
#if COUNTING
        __syncthreads();
        if (tid < QUERIES && s_rows[tid]) atomicAdd(q_counts + i * QUERIES + tid, (u64)s_rows[tid]);
#endif
        if (stopped) break;
    }
    if (warp < WARPS) tell_decided(state, decided, refused, lane);
    sync_cluster();  // a block must not end while the other one may still access its shared memory
}
