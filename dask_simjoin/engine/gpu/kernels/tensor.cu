#include "common.cuh"
#include "components.cuh"
#include "tensor.cuh"
#include "staged.cuh"
#include "blocks.cuh"
#include "near.cuh"
// Joins tiles of 128 points with blocks of 256 queries on tensor cores. A filter decides most candidates by products
// of float16 vectors with an error bound, and float64 decides the others.
//
// The last eight numbers of each vector are (s0, s1, s2, 0, 1, 1, 1, 0), with s = s0 + s1 + s2. Queries are read with
// the halves of these eight numbers swapped. So a product is s_i + s_j + <h_i, h_j>, and candidates with a negative
// product are refused (dask_simjoin/engine/filters/float16.py derives s). Almost all refused candidates cost no further
// work: an AND over the sign bits of eight products, and a vote of the warp, skip them.
//
// Constants: DIMS; WIDTH of a vector, a multiple of 16; COUNTING 0 or 1; SINK.

#define STEPS (WIDTH / 16)
#define LINE (WIDTH + 8)   // numbers per vector in shared memory; the 8 unused ones avoid bank conflicts
#define BUFFER 512

extern "C" __global__ void __launch_bounds__(THREADS)
join_tensor(const half_bits* __restrict__ qh, const float* __restrict__ q_sure, const stored* __restrict__ qy,
            const real* __restrict__ q_lower, const real* __restrict__ q_upper, int q_points, int q_first,
            int q_last, const half_bits* __restrict__ dh, const float* __restrict__ d_sure,
            const stored* __restrict__ dy, const real* __restrict__ d_lower, const real* __restrict__ d_upper,
            int d_points, int d_level1, int same, int ranges, int span, real reach, double threshold, u64 room,
            int2* __restrict__ out, u64* __restrict__ q_counts, u64* __restrict__ d_counts,
            u64* __restrict__ state, int* __restrict__ resume) {
    // state: pairs written, next unit, blocks that stopped, candidates decided, candidates refused
    // resume, for each block: unit (-1: none), range, position in the list of tiles
    extern __shared__ __align__(16) unsigned char memory[];
    half_bits* s_tiles = (half_bits*)memory;                       // two tiles
    __shared__ Lists s_lists;
    __shared__ real s_low[DIMS], s_high[DIMS];
    __shared__ int s_unit, s_from, s_stop;
#if COUNTING
    __shared__ u32 s_rows[QUERIES], s_points[TILE];
#else
    u32* s_buffer = (u32*)(memory + 2 * TILE * LINE * sizeof(half_bits));
#endif
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, group = lane >> 2, pair = lane & 3;
    const int tiles = (d_points + TILE - 1) / TILE;
    const int q_tiles = (q_points + TILE - 1) / TILE, blocks = (q_points + QUERIES - 1) / QUERIES;
    const int per_query = (ranges + span - 1) / span;
    const u64 units = (u64)(q_last - q_first) * per_query;
    u32 decided = 0, refused = 0;
#if !COUNTING
    Stage stage = {0, false};
#endif
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
        const int r_end = min(r_begin + span, ranges), row0 = i * QUERIES + warp * 32;
        int r = again ? resume[blockIdx.x * 3 + 1] : r_begin;
        again = false;
        box_of_queries(i, q_tiles, q_lower, q_upper, s_low, s_high, tid);
        u32 a[2][STEPS][4];
        float row_sure[4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) row_sure[2 * m + h] = q_sure[row0 + m * 16 + h * 8 + group];
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                const half_bits* p = qh + (size_t)(row0 + m * 16 + group) * WIDTH + k * 16;
                const int low = pair * 2, high = (k == STEPS - 1 ? (pair * 2) ^ 4 : pair * 2) + 8;
                a[m][k][0] = *(const u32*)(p + low);
                a[m][k][1] = *(const u32*)(p + 8 * WIDTH + low);
                a[m][k][2] = *(const u32*)(p + high);
                a[m][k][3] = *(const u32*)(p + 8 * WIDTH + high);
            }
        }
#if COUNTING
        s_rows[tid] = 0;
#endif
        __syncthreads();
        for (; r < r_end; r++) {
            const int tile0 = r * RANGE;
            const int listed = list_tiles(s_lists, i, r, tiles, blocks, same, d_lower, d_upper, d_level1,
                                          s_low, s_high, reach, tid);
            if (!listed) {
                from = 0;
                continue;
            }
            auto load = [&](int n) {
                const half_bits* source = dh + (size_t)(tile0 + s_lists.tiles[n]) * TILE * WIDTH;
                half_bits* target = s_tiles + (n & 1) * TILE * LINE;
                for (int at = tid; at < TILE * (WIDTH / 8); at += THREADS) {
                    int row = at / (WIDTH / 8), column = at % (WIDTH / 8) * 8;
                    copy16(target + row * LINE + column, source + row * WIDTH + column);
                }
                end_of_copies();
            };
            if (from < listed) load(from);
            int n = from;
            from = 0;
            for (; n < listed; n++) {
                if (n + 1 < listed) {
                    load(n + 1);
                    copies_done<1>();
                } else {
                    copies_done<0>();
                }
#if COUNTING
                if (tid < TILE) s_points[tid] = 0;
#endif
                __syncthreads();
                const half_bits* tile = s_tiles + (n & 1) * TILE * LINE;
                const int t = tile0 + s_lists.tiles[n], column0 = t * TILE;
                const bool own = same && (t >> 1) == i;
                const float tile_sure = d_sure[t * TILE];
#pragma unroll 2
                for (int b = 0; b < TILE / 8; b++) {
                    float sums[2][4] = {};
                    const half_bits* line = tile + (b * 8 + group) * LINE + pair * 2;
#pragma unroll
                    for (int k = 0; k < STEPS; k++) {
                        u32 b0 = *(const u32*)(line + k * 16), b1 = *(const u32*)(line + k * 16 + 8);
                        multiply_add(sums[0], a[0][k], b0, b1);
                        multiply_add(sums[1], a[1][k], b0, b1);
                    }
                    int signs = -1;
#pragma unroll
                    for (int e = 0; e < 8; e++) signs &= __float_as_int(sums[e >> 2][e & 3]);
                    if (!__any_sync(FULL, signs >= 0)) continue;
                    // each lane has eight sums; row_of(e) is the query of sum e, counted from the warp's first query
                    auto row_of = [&](int e) { return (e >> 2) * 16 + (e >> 1 & 1) * 8 + group; };
                    const int point0 = b * 8 + pair * 2;
                    u32 hits = 0, doubt = 0;
#pragma unroll
                    for (int e = 0; e < 8; e++) {
                        float sum = sums[e >> 2][e & 3];
                        if (sum >= row_sure[e >> 1] + tile_sure) hits |= 1u << e;
                        else if (sum >= 0.f) doubt |= 1u << e;
                    }
                    if (own) {
                        u32 later = 0;
#pragma unroll
                        for (int e = 0; e < 8; e++)
                            if (column0 + point0 + (e & 1) > row0 + row_of(e)) later |= 1u << e;
                        hits &= later;
                        doubt &= later;
                    }
                    while (doubt) {
                        const int e = __ffs(doubt) - 1;
                        doubt &= doubt - 1;
                        bool hit = squared_distance(point_at(qy, row0 + row_of(e)),
                                                    point_at(dy, column0 + point0 + (e & 1))) <= threshold;
                        if (hit) hits |= 1u << e;
                        decided++;
                        refused += !hit;
                    }
#if COUNTING
                    while (hits) {
                        const int e = __ffs(hits) - 1;
                        hits &= hits - 1;
                        atomicAdd(s_rows + warp * 32 + row_of(e), 1u);
                        if (d_counts) atomicAdd(s_points + point0 + (e & 1), 1u);
                    }
#else
                    const int found = __popc(hits);
                    int sum = found;
#pragma unroll
                    for (int o = 1; o < 32; o <<= 1) {
                        int before = __shfl_up_sync(FULL, sum, o);
                        if (lane >= o) sum += before;
                    }
                    int at = stage.held + sum - found;
                    stage.held += __shfl_sync(FULL, sum, 31);
                    u32* buffer = s_buffer + warp * BUFFER;
                    while (hits) {
                        const int e = __ffs(hits) - 1;
                        hits &= hits - 1;
                        buffer[at++] = n << 12 | row_of(e) << 7 | (point0 + (e & 1));
                    }
                    if (stage.held > BUFFER - 256)
                        flush<32>(stage, buffer, lane, row0, s_lists.tiles, tile0, state, room, out);
#endif
                }
#if COUNTING
                __syncthreads();
                if (d_counts && tid < TILE && s_points[tid])
                    atomicAdd(d_counts + column0 + tid, (u64)s_points[tid]);
#else
                if (stage.stopped && lane == 0) s_stop = 1;
#endif
                __syncthreads();
                if (s_stop) break;
            }
#if !COUNTING
            // write staged pairs now, because they refer to the list of this range, which the next range replaces
            if (stage.held) flush<32>(stage, s_buffer + warp * BUFFER, lane, row0, s_lists.tiles, tile0, state, room, out);
#endif
            copies_done<0>();
            __syncthreads();
            if (s_stop) {
                if (tid == 0) {
                    int* note = resume + blockIdx.x * 3;
                    note[0] = unit;
                    note[1] = r;
                    note[2] = n + 1;
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
