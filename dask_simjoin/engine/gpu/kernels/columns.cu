#include "common.cuh"
// Converts columns of any numeric type to float64, all by one kernel: see dask_simjoin/engine/gpu/columns.py.
//
// Constants: those of common.cuh, THREADS (per block), and ROWS (rows that a block converts, of one column).

enum Letter { SIGNED, UNSIGNED, FLOAT, BOOL };

// Converts a float32 number exactly, from the value and its bits. A plain cast would flush numbers below 2**-126 to 0
// with the options that CuPy passes to NVRTC.
__device__ __forceinline__ double exactly(float value, u32 bits) {
    if (bits & 0x7f800000u) return value;
    const double size = (bits & 0x7fffffu) * (1.0 / (1ull << 50) / (1ull << 50) / (1ull << 49));
    return bits >> 31 ? -size : size;
}

// Returns the value `i` of a column. `size`: bytes of a value.
__device__ __forceinline__ double value_at(const void* data, int letter, int size, u64 i) {
    if (letter == FLOAT)
        return size == 8 ? ((const double*)data)[i] : exactly(((const float*)data)[i], ((const u32*)data)[i]);
    if (letter == BOOL) return ((const unsigned char*)data)[i] != 0;
    if (letter == SIGNED) {
        if (size == 8) return (double)((const long long*)data)[i];
        if (size == 4) return ((const int*)data)[i];
        return size == 2 ? ((const short*)data)[i] : ((const signed char*)data)[i];
    }
    if (size == 8) return (double)((const u64*)data)[i];
    if (size == 4) return ((const u32*)data)[i];
    return size == 2 ? ((const unsigned short*)data)[i] : ((const unsigned char*)data)[i];
}

// Writes columns to `out` (rows, columns), column by column; missing values become NaN. `table` has a line for each
// column: the address of its values, the address of its mask or 0, the position of its first value in both, the letter
// of its type, and the bytes of a value. A set bit of the mask means that there is a value. A block converts ROWS rows
// of one column.
extern "C" __global__ void
convert_columns(const u64* __restrict__ table, u64 rows, u64 parts, double* __restrict__ out) {
    const u64 k = blockIdx.x / parts, first = blockIdx.x % parts * ROWS;
    const u64* line = table + 5 * k;
    const void* data = (const void*)line[0];
    const u32* mask = (const u32*)line[1];
    const u64 offset = line[2];
    const int letter = (int)line[3], size = (int)line[4];
    const u64 stop = first + ROWS < rows ? first + ROWS : rows;
    for (u64 i = first + threadIdx.x; i < stop; i += THREADS) {
        const u64 at = offset + i;
        const bool missing = mask && !(mask[at >> 5] >> (at & 31) & 1);
        out[k * rows + i] = missing ? nan("") : value_at(data, letter, size, at);
    }
}
