// Code that all kernels of set joins share. It includes no headers, so NVRTC needs no include path.
//
// A block of sets consists of the start of each set's tokens (int64), and the tokens, ascending in each set. Sets
// are sorted by size. KIND: whether the required overlap depends on the sum of sizes (by a table), on the product
// of sizes, or on neither (see `sets.predicate`). So kernels do not depend on the similarity. SINK: whether
// matching pairs are written or counted.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;

#define FULL 0xffffffffu

#define SUM 0
#define PRODUCT 1
#define NONE 2

#define SELECT 0           // write pairs
#define COUNT 1            // add up the products of weights
#define EACH 2             // add up the weights of each set's partners

struct Sets {
    const i64* offsets;
    const int* tokens;
    __device__ __forceinline__ int size(int k) const { return (int)(offsets[k + 1] - offsets[k]); }
};

struct Rule {
    const int* needs;      // smallest overlap, and smallest too large overlap: for each sum of sizes, or once
    const i64* limits;     // for products: numerator, denominator, and `above` in need_of and in matches
};

__device__ __forceinline__ int least_of_product(const i64* limits, i64 above, int a, int b) {
    const i64 top = limits[0] * a * b + above, denominator = limits[1];
    i64 o = (i64)sqrt((double)top / (double)denominator);
    while (o * o * denominator >= top) o--;
    while (o * o * denominator < top) o++;
    return (int)o;
}

// The smallest overlap of matching sets of sizes `a` and `b`.
__device__ __forceinline__ int need_of(Rule rule, int a, int b) {
#if KIND == SUM
    return rule.needs[2 * (a + b)];
#elif KIND == PRODUCT
    return least_of_product(rule.limits, rule.limits[2], a, b);
#else
    return rule.needs[0];
#endif
}

// Whether sets of sizes `a` and `b` match with overlap `o`, which must be at least `need_of(rule, a, b)`.
__device__ __forceinline__ bool matches(Rule rule, int a, int b, int o) {
#if !EXACTLY
    return true;
#elif KIND == SUM
    return o < rule.needs[2 * (a + b) + 1];
#elif KIND == PRODUCT
    return o < least_of_product(rule.limits, rule.limits[3], a, b);
#else
    return o < rule.needs[1];
#endif
}

#if WORDS
// Whether the bitmaps of two sets differ in at most `most` bits. Each token flips one bit. So if bitmaps differ in
// d bits, at least d tokens are in only one of the sets.
__device__ __forceinline__ bool bits_near(const u32* left_bits, const u32* right_bits, int p, int c, int most) {
    int differ = 0;
#pragma unroll
    for (int w = 0; w < WORDS; w++)
        differ += __popc(left_bits[(size_t)p * WORDS + w] ^ right_bits[(size_t)c * WORDS + w]);
    return differ <= most;
}
#endif

// The number of common tokens of two sets; if it is below `need`, any number below `need`.
__device__ __forceinline__ int overlap_of(const int* x, int a, const int* y, int b, int need) {
    int i = 0, j = 0, o = 0, u = x[0], v = y[0];
    while (true) {
        const bool step_x = u <= v, step_y = v <= u;
        o += step_x && step_y;
        i += step_x;
        j += step_y;
        if (i == a || j == b || o + min(a - i, b - j) < need) return o;
        if (step_x) u = x[i];
        if (step_y) v = y[j];
    }
}

// How many tokens of the first set precede a diagonal on the merge path of two sets. Of equal tokens, the path takes
// the token of the first set first. So a part that takes this token sees the equal token next.
__device__ __forceinline__ int crossing(const int* x, int a, const int* y, int b, int diagonal) {
    int low = max(0, diagonal - b), high = min(diagonal, a);
    while (low < high) {
        const int i = (low + high) >> 1;
        if (x[i] <= y[diagonal - 1 - i]) low = i + 1;
        else high = i;
    }
    return low;
}

// The number of common tokens on part `part` of the merge path, which is divided into `parts` equal parts.
__device__ __forceinline__ int part_of_overlap(const int* x, int a, const int* y, int b, int part, int parts) {
    const int steps = (a + b + parts - 1) / parts;
    const int begin = min(part * steps, a + b), end = min(begin + steps, a + b);
    int i = crossing(x, a, y, b, begin), j = begin - i, o = 0;
    for (int k = begin; k < end; k++) {
        if (i < a && (j == b || x[i] <= y[j])) {
            o += j < b && x[i] == y[j];
            i++;
        } else j++;
    }
    return o;
}

struct Told {              // counters of a kernel
    u64 pairs;             // matching pairs; for SELECT also the next position to write
    u64 weight;
};

struct Found {             // output for matching pairs
    int* left;
    int* right;
    int* overlap;
    u64 room;
    const i64* left_weights;
    const i64* right_weights;
    u64* left_counts;
    u64* right_counts;
    Told* told;
};

// The next position from a counter, for each active thread of a warp; the warp needs one atomic addition.
__device__ __forceinline__ u64 next_place(u64* counter) {
    const u32 active = __activemask(), lane = threadIdx.x & 31;
    const int first = __ffs(active) - 1;
    u64 at = 0;
    if (lane == first) at = atomicAdd(counter, (u64)__popc(active));
    return __shfl_sync(active, at, first) + __popc(active & ((1u << lane) - 1));
}

// Writes or counts a matching pair. `own`: the counts of this thread, which `tell` adds up at the end.
__device__ __forceinline__ void take(const Found& found, Told& own, int left, int right, int o) {
#if SINK == SELECT
    const u64 at = next_place(&found.told->pairs);
    if (at < found.room) {
        found.left[at] = left;
        found.right[at] = right;
        found.overlap[at] = o;
    }
#elif SINK == COUNT
    own.pairs++;
    own.weight += (u64)found.left_weights[left] * (u64)found.right_weights[right];
#else
    own.pairs++;
    atomicAdd(found.left_counts + left, (u64)found.right_weights[right]);
    atomicAdd(found.right_counts + right, (u64)found.left_weights[left]);
#endif
}

// Adds the counts of all threads of a warp to the counters. All its threads must call this.
__device__ __forceinline__ void tell(const Found& found, Told own) {
#if SINK != SELECT
    for (int away = 16; away; away >>= 1) {
        own.pairs += __shfl_down_sync(FULL, own.pairs, away);
        own.weight += __shfl_down_sync(FULL, own.weight, away);
    }
    if ((threadIdx.x & 31) == 0 && own.pairs) {
        atomicAdd(&found.told->pairs, own.pairs);
        atomicAdd(&found.told->weight, own.weight);
    }
#endif
}

#define SINK_PARAMETERS                                                                                        \
    int *out_left, int *out_right, int *out_overlap, u64 room, const i64 *left_weights,                        \
        const i64 *right_weights, u64 *left_counts, u64 *right_counts, Told *told
#define SINK_OF_PARAMETERS                                                                                     \
    {                                                                                                          \
        out_left, out_right, out_overlap, room, left_weights, right_weights, left_counts, right_counts, told   \
    }
#define SIDE_PARAMETERS                                                                                        \
    const i64 *left_offsets, const int *left_tokens, const i64 *right_offsets, const int *right_tokens,        \
        const int *needs, const i64 *limits
