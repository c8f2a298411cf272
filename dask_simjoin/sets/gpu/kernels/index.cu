#include "sets.cuh"
// Finds candidates with an index of the sets' prefixes.
//
// An entry is a token of a set's prefix. Entries of right sets are sorted by token, and then by set, which is also
// the order of sizes. For each entry of a left set, the range of entries with the same token and admissible sizes
// is looked up. Each entry in the range is a meeting: a common token of two sets. A pair of sets becomes a candidate
// only in its first meeting.

// The index of the last number that is at most `value`. Numbers ascend, and the first one must be at most `value`.
__device__ __forceinline__ i64 last_at_most(const i64* numbers, i64 low, i64 high, i64 value) {
    while (low < high) {
        const i64 middle = (low + high + 1) >> 1;
        if (numbers[middle] <= value) low = middle;
        else high = middle - 1;
    }
    return low;
}

// The index of the first ascending key that is at least `value`.
__device__ __forceinline__ i64 first_at_least(const u64* keys, i64 number, u64 value) {
    i64 low = 0, high = number;
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if (keys[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Writes the entries, set by set: token and set as one key, and the position of the token in the set.
extern "C" __global__ void
list_entries(const i64* offsets, const int* tokens, const i64* starts, i64 sets, i64 entries, u64* keys,
             int* places) {
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < entries; e += (i64)gridDim.x * blockDim.x) {
        const i64 set = last_at_most(starts, 0, sets - 1, e), place = e - starts[set];
        keys[e] = (u64)(u32)tokens[offsets[set] + place] << 32 | (u32)set;
        places[e] = (int)place;
    }
}

// Finds for each left entry the range of right entries with its token, and with sets `low` ... `high` - 1.
extern "C" __global__ void
look_up(const u64* keys, i64 number, const u64* index, i64 indexed, const int* low, const int* high, i64* first,
        i64* meetings) {
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < number; e += (i64)gridDim.x * blockDim.x) {
        const u64 token = keys[e] >> 32 << 32;
        const u32 set = (u32)keys[e];
        const i64 begin = first_at_least(index, indexed, token | (u32)low[set]);
        const i64 end = first_at_least(index, indexed, token | (u32)high[set]);
        first[e] = begin;
        meetings[e] = max(end - begin, (i64)0);
    }
}

// Whether two ascending lists have no common element.
__device__ __forceinline__ bool apart(const int* x, int a, const int* y, int b) {
    int i = 0, j = 0;
    while (i < a && j < b) {
        const int u = x[i], v = y[j];
        if (u == v) return false;
        if (u < v) i++;
        else j++;
    }
    return true;
}

// Processes meetings first_meeting ... first_meeting + number - 1; the meetings of left entry e start at work[e].
// A meeting gives a candidate if it passes the filters by size, position and bitmap, and is the first of its pair.
extern "C" __global__ void
meet(SIDE_PARAMETERS, const u64* keys, const int* places, const i64* first, const i64* work, i64 entries,
     const u64* index, const int* index_places, i64 first_meeting, i64 number, const u32* left_bits,
     const u32* right_bits, int2* out, u64 room, u64* told) {
    __shared__ i64 bounds[2];
    const Sets left = {left_offsets, left_tokens}, right = {right_offsets, right_tokens};
    const Rule rule = {needs, limits};
    const i64 base = (i64)blockIdx.x * blockDim.x * EACH_THREAD;
    if (threadIdx.x < 2) {
        const i64 at = threadIdx.x ? min(base + (i64)blockDim.x * EACH_THREAD, number) - 1 : base;
        bounds[threadIdx.x] = last_at_most(work, 0, entries - 1, first_meeting + at);
    }
    __syncthreads();
    for (int turn = 0; turn < EACH_THREAD; turn++) {
        const i64 at = base + (i64)turn * blockDim.x + threadIdx.x;
        if (at >= number) break;
        const i64 meeting = first_meeting + at, e = last_at_most(work, bounds[0], bounds[1], meeting);
        const i64 entry = first[e] + (meeting - work[e]);
        const int p = (int)(u32)keys[e], c = (int)(u32)index[entry];
        const int a = left.size(p), b = right.size(c), need = need_of(rule, a, b);
        if (need > min(a, b)) continue;
        const int i = places[e], j = index_places[entry];
#if POSITIONAL
        if (min(a - i, b - j) < need) continue;
#endif
#if WORDS
        if (!bits_near(left_bits, right_bits, p, c, a + b - 2 * need)) continue;
#endif
        if (!apart(left.tokens + left.offsets[p], i, right.tokens + right.offsets[c], j)) continue;
        const u64 to = next_place(told);
        if (to < room) out[to] = make_int2(p, c);
    }
}
