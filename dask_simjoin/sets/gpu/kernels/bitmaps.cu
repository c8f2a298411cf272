#include "sets.cuh"
// Builds bitmaps of sets, and finds pairs of sets whose bitmaps do not exclude a match.
//
// Each token flips one bit of its set's bitmap. So if two bitmaps differ in d bits, at least d tokens are in only
// one of the sets. WORDS: 32-bit words of a bitmap. ROWS: threads of a block, and left sets of a tile. COLUMNS:
// right sets that a block compares with its tile.

#define STAGE 64           // right sets whose bitmaps are in shared memory at a time

#if ROWS
#define SLICE (WORDS < 8 ? WORDS : 8)    // a warp checks for an early exit after this many words

// Writes the first `number` pairs of a warp's queue. All threads of the warp must call this.
__device__ __forceinline__ void write_survivors(const int2* queue, int number, int2* out, u64 room, u64* told) {
    const int lane = threadIdx.x & 31;
    u64 at = 0;
    if (lane == 0 && number) at = atomicAdd(told, (u64)number);
    at = __shfl_sync(FULL, at, 0) + lane;
    if (lane < number && at < room) out[at] = queue[lane];
}

// Compares a tile of left sets with COLUMNS right sets: one unit of work per block. The tile must be compared with
// right sets `low[tile]` ... `high[tile]` - 1, which are `work[tile + 1] - work[tile]` units. Remaining pairs are
// written to positions from the counter `told`, if there is space.
extern "C" __global__ void __launch_bounds__(ROWS)
survivors(const u32* left_bits, const int* left_sizes, int left_number, const u32* right_bits,
          const int* right_sizes, const int* needs, const i64* limits, const i64* work, const int* low,
          const int* high, int tiles, i64 first_unit, int same, int2* out, u64 room, u64* told) {
    __shared__ __align__(16) u32 stage[STAGE * WORDS];
    __shared__ int stage_sizes[STAGE];
    __shared__ int2 queues[ROWS / 32][64];    // one per warp, so that pairs are written 32 at a time
    const Rule rule = {needs, limits};
    const i64 unit = first_unit + blockIdx.x;
    int tile = 0, last = tiles - 1;
    while (tile < last) {
        const int middle = (tile + last + 1) >> 1;
        if (work[middle] <= unit) tile = middle;
        else last = middle - 1;
    }
    const int row = tile * ROWS + threadIdx.x, lane = threadIdx.x & 31;
    const i64 from = low[tile] + (unit - work[tile]) * COLUMNS;
    const int begin = (int)from, end = (int)min(from + COLUMNS, (i64)high[tile]);
    const bool there = row < left_number;
    const int a = there ? left_sizes[row] : 0, after = same ? row : -1;
    u32 bits[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) bits[w] = there ? left_bits[(size_t)row * WORDS + w] : 0;
    int2* own = queues[threadIdx.x >> 5];
    int held = 0;
    int b = -1, most = -1;     // size of the current right sets, and in how many bits a match may differ
    for (int start = begin; start < end; start += STAGE) {
        const int number = min(STAGE, end - start);
        __syncthreads();
        for (int k = threadIdx.x; k < number * WORDS; k += ROWS) stage[k] = right_bits[(size_t)start * WORDS + k];
        for (int k = threadIdx.x; k < number; k += ROWS) stage_sizes[k] = right_sizes[start + k];
        __syncthreads();
        for (int k = 0; k < number; k++) {
            if (stage_sizes[k] != b) {   // the same for all threads
                b = stage_sizes[k];
                const int need = there ? need_of(rule, a, b) : 0;
                most = there && need <= min(a, b) ? a + b - 2 * need : -1;
            }
            int differ = 0;
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                if (w && w % SLICE == 0 && !__any_sync(FULL, differ <= most)) break;
                differ += __popc(bits[w] ^ stage[k * WORDS + w]);
            }
            const bool hit = differ <= most && start + k > after;
            const u32 hits = __ballot_sync(FULL, hit);
            if (hits == 0) continue;
            if (hit) own[held + __popc(hits & ((1u << lane) - 1))] = make_int2(row, start + k);
            held += __popc(hits);
            __syncwarp();
            if (held < 32) continue;
            write_survivors(own, 32, out, room, told);
            held -= 32;
            const int2 rest = own[32 + lane];
            __syncwarp();
            own[lane] = rest;
            __syncwarp();
        }
    }
    write_survivors(own, held, out, room, told);
}

#else

// Builds bitmaps: one warp per set, in shared memory.
extern "C" __global__ void make_bitmaps(const i64* offsets, const int* tokens, i64 number, u32* out) {
    __shared__ u32 words[8 * WORDS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32* own = words + warp * WORDS;
    for (i64 k = (i64)blockIdx.x * 8 + warp; k < number; k += (i64)gridDim.x * 8) {
        if (lane < WORDS) own[lane] = 0;
        __syncwarp();
        for (i64 at = offsets[k] + lane; at < offsets[k + 1]; at += 32) {
            const u32 bit = (u32)tokens[at] % (32 * WORDS);
            atomicXor(own + bit / 32, 1u << (bit & 31));
        }
        __syncwarp();
        if (lane < WORDS) out[k * WORDS + lane] = own[lane];
        __syncwarp();
    }
}
#endif
