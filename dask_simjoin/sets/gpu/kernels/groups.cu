#include "sets.cuh"
// Groups of adjacent sets with equal sizes and prefixes; the first set of a group represents it.

// Marks the first set of each group. A set without a prefix is a group of its own.
extern "C" __global__ void
find_firsts(const i64* offsets, const int* tokens, const int* lengths, i64 number, bool* first) {
    for (i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x; k < number; k += (i64)gridDim.x * blockDim.x) {
        bool differs = k == 0 || lengths[k] == 0 || offsets[k + 1] - offsets[k] != offsets[k] - offsets[k - 1];
        for (int i = 0; !differs && i < lengths[k]; i++)
            differs = tokens[offsets[k] + i] != tokens[offsets[k - 1] + i];
        first[k] = differs;
    }
}

// Counts the pairs of members of each pair of groups. In a group paired with itself, both orders of a pair count.
extern "C" __global__ void
count_members(const int2* pairs, i64 number, const int* left_members, const int* right_members, i64* members) {
    for (i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x; k < number; k += (i64)gridDim.x * blockDim.x)
        members[k] = (i64)left_members[pairs[k].x] * right_members[pairs[k].y];
}

// Writes pairs of members first_pair ... first_pair + number - 1; the pairs of group pair k start at work[k].
// Pairs that bitmaps exclude are left out.
extern "C" __global__ void
expand(SIDE_PARAMETERS, const int2* pairs, const i64* work, i64 groups, const int* right_members, i64 first_pair,
       i64 number, int same, const u32* left_bits, const u32* right_bits, int2* out, u64 room, u64* told) {
#if WORDS
    const Sets left = {left_offsets, left_tokens}, right = {right_offsets, right_tokens};
    const Rule rule = {needs, limits};
#endif
    for (i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x; at < number; at += (i64)gridDim.x * blockDim.x) {
        i64 low = 0, high = groups - 1;
        while (low < high) {
            const i64 middle = (low + high + 1) >> 1;
            if (work[middle] <= first_pair + at) low = middle;
            else high = middle - 1;
        }
        const int p = pairs[low].x, c = pairs[low].y, across = right_members[c];
        const i64 place = first_pair + at - work[low];
        const int one = p + (int)(place / across), other = c + (int)(place % across);
        if (same && one >= other) continue;
#if WORDS
        const int a = left.size(one), b = right.size(other);
        if (!bits_near(left_bits, right_bits, one, other, a + b - 2 * need_of(rule, a, b))) continue;
#endif
        const u64 to = next_place(told);
        if (to < room) out[to] = make_int2(one, other);
    }
}
