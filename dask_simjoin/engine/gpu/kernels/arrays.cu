#include "common.cuh"
// Array operations for spanning trees, with values of 1, 4 or 8 bytes and positions of 4 or 8 bytes: see
// engine/gpu/arrays.py.

#define EACH(i, n) (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (u64)(n); i += gridDim.x * blockDim.x)

#define FILL(name, T)                                                                                                  \
    extern "C" __global__ void name(long long n, T value, T* __restrict__ out) {                                             \
        for EACH(i, n) out[i] = value;                                                                                 \
    }
FILL(fill_1, unsigned char)
FILL(fill_4, u32)
FILL(fill_8, u64)

#define MOVE(name, T)                                                                                                  \
    extern "C" __global__ void name(long long n, const T* __restrict__ values, T* __restrict__ out) {                        \
        for EACH(i, n) out[i] = values[i];                                                                             \
    }
MOVE(move_1, unsigned char)
MOVE(move_4, u32)
MOVE(move_8, u64)

#define TAKE(name, T, P)                                                                                               \
    extern "C" __global__ void name(long long n, const P* __restrict__ places, const T* __restrict__ values,                 \
                                    T* __restrict__ out) {                                                             \
        for EACH(i, n) out[i] = values[places[i]];                                                                     \
    }
TAKE(take_1_at_4, unsigned char, int)
TAKE(take_4_at_4, u32, int)
TAKE(take_8_at_4, u64, int)
TAKE(take_1_at_8, unsigned char, long long)
TAKE(take_4_at_8, u32, long long)
TAKE(take_8_at_8, u64, long long)

extern "C" __global__ void
number_on(long long n, int first, int* __restrict__ out) {
    for EACH(i, n) out[i] = first + (int)i;
}

extern "C" __global__ void
as_numbers(long long n, const bool* __restrict__ flags, int* __restrict__ out) {
    for EACH(i, n) out[i] = flags[i];
}

// Writes the positions of set flags. `upto`: running count of set flags, including the flag itself.
extern "C" __global__ void
places_set(long long n, const bool* __restrict__ flags, const int* __restrict__ upto, int* __restrict__ places) {
    for EACH(i, n) {
        if (flags[i]) places[upto[i] - 1] = (int)i;
    }
}
