#include "sets.cuh"
// Verifies candidates: pairs of sets that passed the filters. The first three kernels are by Bellas and Gounaris.
// They need candidates that are grouped by probe: probe k is left set `probes[k]`. Its candidates are right sets
// `candidates[starts[k]]` ... `candidates[starts[k + 1] - 1]`.

extern __shared__ int shared[];

// A: one thread verifies all candidates of a probe.
extern "C" __global__ void
verify_by_thread(SIDE_PARAMETERS, const int* probes, const i64* starts, const int* candidates, int number,
                 int turned, SINK_PARAMETERS) {
    const Sets left = {left_offsets, left_tokens}, right = {right_offsets, right_tokens};
    const Rule rule = {needs, limits};
    const Found found = SINK_OF_PARAMETERS;
    Told own = {0, 0};
    const i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (k < number) {
        const int p = probes[k], a = left.size(p);
        const int* x = left.tokens + left.offsets[p];
        for (i64 at = starts[k]; at < starts[k + 1]; at++) {
            const int c = candidates[at], b = right.size(c), need = need_of(rule, a, b);
            const int o = overlap_of(x, a, right.tokens + right.offsets[c], b, need);
            if (o >= need && matches(rule, a, b, o)) take(found, own, turned ? c : p, turned ? p : c, o);
        }
    }
    __syncwarp();
    tell(found, own);
}

// B: one block verifies the candidates of a probe, with one thread per candidate. The probe is in shared memory if
// it fits.
extern "C" __global__ void
verify_by_block(SIDE_PARAMETERS, const int* probes, const i64* starts, const int* candidates, int held,
                int turned, SINK_PARAMETERS) {
    const Sets left = {left_offsets, left_tokens}, right = {right_offsets, right_tokens};
    const Rule rule = {needs, limits};
    const Found found = SINK_OF_PARAMETERS;
    Told own = {0, 0};
    const int p = probes[blockIdx.x], a = left.size(p);
    const int* x = left.tokens + left.offsets[p];
    if (a <= held) {
        for (int i = threadIdx.x; i < a; i += blockDim.x) shared[i] = x[i];
        __syncthreads();
        x = shared;
    }
    for (i64 at = starts[blockIdx.x] + threadIdx.x; at < starts[blockIdx.x + 1]; at += blockDim.x) {
        const int c = candidates[at], b = right.size(c), need = need_of(rule, a, b);
        const int o = overlap_of(x, a, right.tokens + right.offsets[c], b, need);
        if (o >= need && matches(rule, a, b, o)) take(found, own, turned ? c : p, turned ? p : c, o);
    }
    __syncwarp();
    tell(found, own);
}

// C: one block verifies each candidate. Its threads divide the merge path of the two sets. Both sets are in shared
// memory if they fit.
extern "C" __global__ void
verify_by_path(SIDE_PARAMETERS, const int* probes, const i64* starts, const int* candidates, int held,
               int turned, SINK_PARAMETERS) {
    const Sets left = {left_offsets, left_tokens}, right = {right_offsets, right_tokens};
    const Rule rule = {needs, limits};
    const Found found = SINK_OF_PARAMETERS;
    __shared__ int parts[32];
    Told own = {0, 0};
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int p = probes[blockIdx.x], a = left.size(p);
    const int* x = left.tokens + left.offsets[p];
    const bool near = a <= held;
    if (near) {
        for (int i = threadIdx.x; i < a; i += blockDim.x) shared[i] = x[i];
        x = shared;
    }
    for (i64 at = starts[blockIdx.x]; at < starts[blockIdx.x + 1]; at++) {
        const int c = candidates[at], b = right.size(c);
        const int* y = right.tokens + right.offsets[c];
        if (near && a + b <= held) {
            for (int j = threadIdx.x; j < b; j += blockDim.x) shared[a + j] = y[j];
            y = shared + a;
        }
        __syncthreads();
        int o = part_of_overlap(x, a, y, b, threadIdx.x, blockDim.x);
        for (int away = 16; away; away >>= 1) o += __shfl_down_sync(FULL, o, away);
        if (lane == 0) parts[warp] = o;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int k = 1; k < warps; k++) o += parts[k];
            if (o >= need_of(rule, a, b) && matches(rule, a, b, o))
                take(found, own, turned ? c : p, turned ? p : c, o);
        }
    }
    __syncwarp();
    tell(found, own);
}

// Pairs in any order: one thread per pair.
extern "C" __global__ void
verify_pairs(SIDE_PARAMETERS, const int2* pairs, u64 number, SINK_PARAMETERS) {
    const Sets left = {left_offsets, left_tokens}, right = {right_offsets, right_tokens};
    const Rule rule = {needs, limits};
    const Found found = SINK_OF_PARAMETERS;
    Told own = {0, 0};
    for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < number; k += (u64)gridDim.x * blockDim.x) {
        const int p = pairs[k].x, c = pairs[k].y, a = left.size(p), b = right.size(c);
        const int need = need_of(rule, a, b);
        const int o = overlap_of(left.tokens + left.offsets[p], a, right.tokens + right.offsets[c], b, need);
        if (o >= need && matches(rule, a, b, o)) take(found, own, p, c, o);
    }
    __syncwarp();
    tell(found, own);
}

// Pairs in any order: one warp per pair, whose threads divide the merge path of the two sets.
extern "C" __global__ void
verify_pairs_by_warp(SIDE_PARAMETERS, const int2* pairs, u64 number, SINK_PARAMETERS) {
    const Sets left = {left_offsets, left_tokens}, right = {right_offsets, right_tokens};
    const Rule rule = {needs, limits};
    const Found found = SINK_OF_PARAMETERS;
    Told own = {0, 0};
    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    for (u64 k = (u64)blockIdx.x * warps + (threadIdx.x >> 5); k < number; k += (u64)gridDim.x * warps) {
        const int p = pairs[k].x, c = pairs[k].y, a = left.size(p), b = right.size(c);
        const int* x = left.tokens + left.offsets[p];
        int o = part_of_overlap(x, a, right.tokens + right.offsets[c], b, lane, 32);
        for (int away = 16; away; away >>= 1) o += __shfl_down_sync(FULL, o, away);
        if (lane == 0 && o >= need_of(rule, a, b) && matches(rule, a, b, o)) take(found, own, p, c, o);
        __syncwarp();
    }
    tell(found, own);
}

// Writes or counts pairs that are already known to match.
extern "C" __global__ void
take_pairs(const int2* pairs, const int* overlaps, u64 number, SINK_PARAMETERS) {
    const Found found = SINK_OF_PARAMETERS;
    Told own = {0, 0};
    for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < number; k += (u64)gridDim.x * blockDim.x)
        take(found, own, pairs[k].x, pairs[k].y, overlaps[k]);
    __syncwarp();
    tell(found, own);
}

// Converts candidates that are grouped by probe to pairs: one thread per candidate.
extern "C" __global__ void
flatten(const int* probes, const i64* starts, int probes_number, const int* candidates, u64 number, int turned,
        int2* pairs) {
    for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < number; k += (u64)gridDim.x * blockDim.x) {
        int low = 0, high = probes_number - 1;
        while (low < high) {
            const int middle = (low + high + 1) >> 1;
            if (starts[middle] <= (i64)k) low = middle;
            else high = middle - 1;
        }
        const int p = probes[low], c = candidates[k];
        pairs[k] = turned ? make_int2(c, p) : make_int2(p, c);
    }
}
