// Makes the keys of lists in Z-order: see dask_simjoin/papers/list_index.py.
//
// Keys of points and of corners use the same operations, without fused multiply-add. So if all coordinates of a point
// are at least as large as another point's, its key is at least as large, too.
//
// Constants: DIMS; COLUMNS: dimensions of a key; WORDS: 64-bit words of a key.

#define THREADS 256

typedef long long i64;

struct Key {
    u64 word[WORDS];
};

// Returns the key of a point (corner = 0), or of the upper (corner > 0) or lower (corner < 0) corner of the box around
// it.
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

// Writes start and stop of the ascending keys that are from `least` to `largest`.
__device__ __forceinline__ void between(const Key& least, const Key& largest, const u64* __restrict__ keys, int points,
                                        int* __restrict__ start, int* __restrict__ stop) {
    int begin = 0, end = points;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (behind(least, keys + (size_t)middle * WORDS)) begin = middle + 1;
        else end = middle;
    }
    *start = begin;
    end = points;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (before(largest, keys + (size_t)middle * WORDS)) end = middle;
        else begin = middle + 1;
    }
    *stop = begin;
}
