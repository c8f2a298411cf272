// Lists in Z-order: see dask_simjoin/engine/index/zorder.py.
//
// Keys of points and of corners are made by the same operations, each rounded by itself, so that none is smaller where
// no coordinate is.  Queries look the interval between the keys of their corners up, in one list after the other, and
// then walk through the best one: a group of `threads` lanes has one query, and shares its interval.
//
// Constants: DIMS; COLUMNS of a key; WORDS of 64 bits; NORM; EXACT 0 or 1 (of other norms than 2: 1); COUNTING 0
// (pairs) or 1 (numbers of neighbours); SINK.

#define THREADS 256
#define TERMS 8            // summed before a sum is looked at

struct Key {
    u64 word[WORDS];
};

// The key of a point, or of the upper (corner > 0) or lower corner of the box around it.
__device__ __forceinline__ Key key_of(const double* __restrict__ x, const int* __restrict__ columns,
                                      const double* __restrict__ low, double extent, double scale, double shift,
                                      int bits, double corner) {
    u32 cells[COLUMNS];
    const double most = (double)((1u << bits) - 1), half = (double)(1u << (bits - 1));
    for (int j = 0; j < COLUMNS; j++) {
        const double value = __dadd_rn(x[columns[j]], corner);
        const double part = __ddiv_rn(__dsub_rn(__dmul_rn(value, scale), low[j]), extent);
        cells[j] = (u32)fmin(fmax(__dmul_rn(__dadd_rn(part, shift), half), 0.0), most);
    }
    Key key;
    for (int w = 0; w < WORDS; w++) key.word[w] = 0;
    int filled = 0;
    for (int bit = bits - 1; bit >= 0; bit--)
        for (int j = 0; j < COLUMNS && filled < 64 * WORDS; j++, filled++)
            key.word[filled / 64] |= (u64)(cells[j] >> bit & 1) << (63 - filled % 64);
    return key;
}

__device__ __forceinline__ bool before(const Key& one, const u64* __restrict__ other) {
    for (int w = 0; w < WORDS; w++)
        if (one.word[w] != other[w]) return one.word[w] < other[w];
    return false;
}

__device__ __forceinline__ bool behind(const Key& one, const u64* __restrict__ other) {
    for (int w = 0; w < WORDS; w++)
        if (one.word[w] != other[w]) return one.word[w] > other[w];
    return false;
}

extern "C" __global__ void __launch_bounds__(THREADS)
make_keys(const double* __restrict__ x, int number, const int* __restrict__ columns, const double* __restrict__ low,
          double extent, double scale, double shift, int bits, u64* __restrict__ keys) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= number) return;
    const Key key = key_of(x + i * DIMS, columns, low, extent, scale, shift, bits, 0.0);
    for (int w = 0; w < WORDS; w++) keys[i * WORDS + w] = key.word[w];
}

// Where the keys between the corners of each query begin and end among ascending ones.
extern "C" __global__ void __launch_bounds__(THREADS)
find_intervals(const double* __restrict__ x, int number, const int* __restrict__ columns,
               const double* __restrict__ low, double extent, double scale, double shift, int bits, double corner,
               const u64* __restrict__ keys, int points, int* __restrict__ starts, int* __restrict__ stops) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= number) return;
    const Key least = key_of(x + i * DIMS, columns, low, extent, scale, shift, bits, -corner);
    const Key largest = key_of(x + i * DIMS, columns, low, extent, scale, shift, bits, corner);
    int begin = 0, end = points;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (behind(least, keys + (size_t)middle * WORDS)) begin = middle + 1;
        else end = middle;
    }
    starts[i] = begin;
    end = points;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (before(largest, keys + (size_t)middle * WORDS)) end = middle;
        else begin = middle + 1;
    }
    stops[i] = begin;
}

// `queries`: places of those that walk; `orders`: places of the rows of each list, one list after the other.
// `later`: only rows after the query are compared.
extern "C" __global__ void __launch_bounds__(THREADS)
walk_lists(const int* __restrict__ queries, i64 first, i64 step, u32 number, int threads,
           const int* __restrict__ starts, const int* __restrict__ stops, const int* __restrict__ lists,
           const int* __restrict__ orders, int points, int later, int turned, const real* __restrict__ qz,
           const double* __restrict__ qy, const real* __restrict__ dz, const double* __restrict__ dy, real reach,
           real sure, double threshold, u64 room, int2* __restrict__ out, u64* __restrict__ q_counts,
           u64* __restrict__ d_counts, u64* __restrict__ state) {
    const i64 thread = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (thread / threads >= number) return;
    const int p = queries[first + thread / threads * step];
    const int* order = orders + (size_t)lists[p] * points;
    const real* my = qz + (size_t)p * DIMS;
    Told told = {0, 0, 0};
    for (int at = starts[p] + (int)(thread % threads); at < stops[p]; at += threads) {
        const int j = order[at];
        if (later && j <= p) continue;
        const real* other = dz + (size_t)j * DIMS;
        real sum = 0;
        // terms are not negative, however they are rounded: beyond `reach` a sum stays so
        for (int k0 = 0; k0 < DIMS; k0 += TERMS) {
#pragma unroll
            for (int k = k0; k < k0 + TERMS; k++)
                if (k < DIMS) sum = add_term(sum, minus(my[k], other[k]));
            if (sum > reach) break;
        }
        meet(p, j, sum, reach, sure, threshold, qy, dy, turned, room, out, d_counts, state, told);
    }
    tell(p, told, q_counts, state);
}
