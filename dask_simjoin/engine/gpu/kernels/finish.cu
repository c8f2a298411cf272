#include "common.cuh"
// Converts pairs of places in two indexes to results. `name_pairs` writes positions in the chunks, or labels, and
// totals. In a self-join, the row with the smaller position becomes the left row. `keep_columns` writes kept columns of
// both rows. `measure_pairs` is `name_pairs` for positions, without swapping rows.
//
// Constants: DIMS; NORM; LABELS 0 (positions, int32) or 1 (labels, int64).

#if LABELS
typedef long long row_name;
#else
typedef int row_name;
#endif

extern "C" __global__ void name_pairs(const int2* __restrict__ places, u64 number, const int* __restrict__ q_order,
                                      const int* __restrict__ d_order, const row_name* __restrict__ q_names,
                                      const row_name* __restrict__ d_names, int same,
                                      const stored* __restrict__ qy, const stored* __restrict__ dy,
                                      row_name* __restrict__ left, row_name* __restrict__ right,
                                      double* __restrict__ total) {
    for (u64 n = blockIdx.x * (u64)blockDim.x + threadIdx.x; n < number; n += (u64)gridDim.x * blockDim.x) {
        const int2 pair = places[n];
        const bool swap = same && d_order[pair.y] < q_order[pair.x];
        const row_name a = q_names[pair.x], b = d_names[pair.y];
        left[n] = swap ? b : a;
        right[n] = swap ? a : b;
        if (total) total[n] = total_of(point_at(qy, pair.x), point_at(dy, pair.y));
    }
}

// A column of the left or the right rows that the result keeps. Its values have 1, 2, 4 or 8 bytes.
struct kept_column {
    const void* from;
    void* to;
    u64 bytes;
    u64 of_right;
};

template <typename T>
static __device__ void keep(const kept_column& column, u64 n, int row) {
    ((T*)column.to)[n] = ((const T*)column.from)[row];
}

extern "C" __global__ void keep_columns(const int2* __restrict__ places, u64 number,
                                        const int* __restrict__ q_order, const int* __restrict__ d_order, int same,
                                        const kept_column* __restrict__ columns, int how_many) {
    for (u64 n = blockIdx.x * (u64)blockDim.x + threadIdx.x; n < number; n += (u64)gridDim.x * blockDim.x) {
        const int2 pair = places[n];
        const bool swap = same && d_order[pair.y] < q_order[pair.x];
        for (int k = 0; k < how_many; k++) {
            const kept_column column = columns[k];
            const int row = (column.of_right != 0) != swap ? pair.y : pair.x;
            if (column.bytes == 8) keep<u64>(column, n, row);
            else if (column.bytes == 4) keep<unsigned>(column, n, row);
            else if (column.bytes == 2) keep<unsigned short>(column, n, row);
            else keep<unsigned char>(column, n, row);
        }
    }
}

extern "C" __global__ void measure_pairs(const int2* __restrict__ places, u64 number, const int* __restrict__ q_order,
                                         const int* __restrict__ d_order, const stored* __restrict__ qy,
                                         const stored* __restrict__ dy, int* __restrict__ left,
                                         int* __restrict__ right, double* __restrict__ total) {
    for (u64 n = blockIdx.x * (u64)blockDim.x + threadIdx.x; n < number; n += (u64)gridDim.x * blockDim.x) {
        const int2 pair = places[n];
        left[n] = q_order[pair.x];
        right[n] = d_order[pair.y];
        total[n] = total_of(point_at(qy, pair.x), point_at(dy, pair.y));
    }
}
