// Code that all kernels of set joins share. It includes no header, so NVRTC needs none.
//
// A block of sets consists of the starts of each set's tokens (int64), and the tokens, ascending. Sets are sorted
// by size. KIND is what the required overlap depends on (see `sets.predicate`): the sum of sizes by a table, the
// product of sizes, or nothing. So kernels do not depend on the similarity. SINK: what happens to matching pairs.

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
    const int* needs;      // per sum of sizes, or once: the smallest overlap, and the smallest that is too large
    const i64* limits;     // for products: numerator, denominator, `above` for need_of and for matches
};

__device__ __forceinline__ int least_of_product(const i64* limits, i64 above, int a, int b) {
    const i64 top = limits[0] * a * b + above, denominator = limits[1];
    i64 o = (i64)sqrt((double)top / (double)denominator);
    while (o * o * denominator >= top) o--;
    while (o * o * denominator < top) o++;
    return (int)o;
}

// The smallest overlap with which sets of these sizes match.
__device__ __forceinline__ int need_of(Rule rule, int a, int b) {
#if KIND == SUM
    return rule.needs[2 * (a + b)];
#elif KIND == PRODUCT
    return least_of_product(rule.limits, rule.limits[2], a, b);
#else
    return rule.needs[0];
#endif
}

// Whether sets of these sizes match with overlap `o`, which must be at least `need_of` them.
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
// Whether the bitmaps of two sets differ in at most this many bits. Each token flips one bit, so bitmaps differ in
// at most as many bits as there are tokens in only one of the sets.
__device__ __forceinline__ bool bits_near(const u32* left_bits, const u32* right_bits, int p, int c, int most) {
    int differ = 0;
#pragma unroll
    for (int w = 0; w < WORDS; w++)
        differ += __popc(left_bits[(size_t)p * WORDS + w] ^ right_bits[(size_t)c * WORDS + w]);
    return differ <= most;
}
#endif

// The number of common tokens of two sets, or a number below `need` once `need` is out of reach.
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

// Where the merge path of two sets crosses a diagonal, as a number of tokens of the first set. The path takes the
// first set's token before an equal one of the second set. So a part that takes it has the equal token next.
__device__ __forceinline__ int crossing(const int* x, int a, const int* y, int b, int diagonal) {
    int low = max(0, diagonal - b), high = min(diagonal, a);
    while (low < high) {
        const int i = (low + high) >> 1;
        if (x[i] <= y[diagonal - 1 - i]) low = i + 1;
        else high = i;
    }
    return low;
}

// The common tokens that one of `parts` threads finds. Each thread merges an equal part of the path.
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
    u64 pairs;             // matching pairs; for SELECT also the next place to write
    u64 weight;
};

struct Found {             // where matching pairs go
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

// The next place that a counter assigns: one atomic addition for all active threads of a warp.
__device__ __forceinline__ u64 next_place(u64* counter) {
    const u32 active = __activemask(), lane = threadIdx.x & 31;
    const int first = __ffs(active) - 1;
    u64 at = 0;
    if (lane == first) at = atomicAdd(counter, (u64)__popc(active));
    return __shfl_sync(active, at, first) + __popc(active & ((1u << lane) - 1));
}

// Takes a matching pair. `own`: the counts of this thread, for `tell`.
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

// Adds up the counts of a warp's threads. All threads call it.
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
