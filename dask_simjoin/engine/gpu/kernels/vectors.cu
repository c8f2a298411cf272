#include "common.cuh"
// Builds float16 vectors in one launch. dask_simjoin/engine/filters/float16.py derives them and their bounds. Array
// expressions would spend most of their time on launches and on float64 temporaries.
//
// Constants: EXACT 1; NEAREST 0 (for joins) or 1 (for searches); SLICED 1 for tensor_hopper.cu. A block takes the
// rows of one tile; each of its warps takes some of them, one after the other.

#define TILE 128
#define WARPS 8

__device__ __forceinline__ unsigned short to_half(double a) {
    unsigned short h;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(a));
    return h;
}

__device__ __forceinline__ double from_half(unsigned short h) {
    double a;
    asm("cvt.f64.f16 %0, %1;" : "=d"(a) : "h"(h));
    return a;
}

// Returns the position of number k of a row among all numbers of its tile.
__device__ __forceinline__ int place_in_tile(int row, int k, int width) {
#if SLICED
    const int slice = k / 64, slices = (width + 63) / 64, rest = width - (slices - 1) * 64;
    const int numbers = slice < slices - 1 || rest > 32 ? 64 : rest;   // numbers per row in this slice
    const int piece = k % 64 / 8 ^ row / (64 / numbers) % (numbers / 8);
    return slice * TILE * 64 + row * numbers + piece * 8 + k % 8;
#else
    return row * width + k;
#endif
}

// Powers of two for the slack of the bounds.
#define U20 9.5367431640625e-7
#define U23 1.1920928955078125e-7
#define U24 5.9604644775390625e-8
#define U29 1.862645149230957e-9
#define U30 9.313225746154785e-10
#define U40 9.094947017729282e-13
#define U50 8.881784197001252e-16
#define NOWHERE -60000.0

// Writes the vectors of points y (n, dims) to `vectors`. It has n rows, rounded up to a multiple of 256. A row has
// `stride` numbers, and the first `width` of them are in use. For joins, `sure` gets the largest v of each tile. For
// searches, `norms` gets N, `errors` gets r, and `most_error` gets the bits of the largest r.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
make_vectors(const stored* __restrict__ y, int n, int dims, int width, int stride, const double* __restrict__ centre,
             double scale, double outer, double inner, unsigned short* __restrict__ vectors,
             float* __restrict__ sure, double* __restrict__ norms, double* __restrict__ errors,
             u64* __restrict__ most_error) {
#if !NEAREST
    __shared__ float s_sure[WARPS];
    float tile_sure = 0;
#else
    double most = 0;
#endif
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const double g = 3 * width * U23;
    for (int row = warp; row < TILE; row += WARPS) {
        const long long i = (long long)blockIdx.x * TILE + row;
        unsigned short* tile = vectors + (long long)blockIdx.x * TILE * stride;
        const bool there = i < n;
        const Point point = stored_point(y + (there ? i : 0) * STORED_NUMBERS(dims), dims);
        double norm = 0, lost = 0;
        for (int k = lane; k < width - 8; k += 32) {
            unsigned short h = 0;
            if (there && k < dims) {
                const double a = (point[k] - centre[k]) * scale;
                h = to_half(a);
                const double rounded = from_half(h), away = rounded - a;
                norm += rounded * rounded;
                lost += away * away;
            }
            tile[place_in_tile(row, k, width)] = h;
        }
#pragma unroll
        for (int o = 16; o; o >>= 1) {
            norm += __shfl_xor_sync(FULL, norm, o);
            lost += __shfl_xor_sync(FULL, lost, o);
        }
        const double r = sqrt(lost) * (1 + U40) + sqrt(norm) * U50;
        const double t = NEAREST ? 2 * r * r : outer * outer / 2 + 2 * outer * r + 2 * r * r;
        const double p = norm + t + 1;
        double s = (t - norm) / 2 + g * p + U24;
        s += U30 * fabs(s);
        if (there) {
#if NEAREST
            most = fmax(most, r);
            if (lane == 0) {
                norms[i] = norm;
                errors[i] = r;
            }
#else
            const double v = (t - inner * inner / 2 + 2 * inner * r) / 2 + 2 * g * p + U23 + U29 * fabs(s);
            // the join kernel adds two of these in float32, and U20 covers its rounding
            tile_sure = fmaxf(tile_sure, (float)(v * (1 + U20)));
#endif
        }
        if (lane < 8) {
            unsigned short last = 0;
            // each number is the rounded rest of s after the numbers before it
            for (int place = 0; there && place < 3; place++) {
                const unsigned short h = to_half(s);
                s -= from_half(h);
                if (lane == place) last = h;
            }
            if (!there && lane == 0) last = to_half(NOWHERE);
            if (lane >= 4 && lane < 7) last = to_half(1.0);
            tile[place_in_tile(row, width - 8 + lane, width)] = last;
        }
    }
#if NEAREST
    // errors are not negative, so their bits have the same order
    if (lane == 0) atomicMax(most_error, (u64)__double_as_longlong(most));
#else
    if (lane == 0) s_sure[warp] = tile_sure;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) tile_sure = fmaxf(tile_sure, s_sure[w]);
    if (threadIdx.x < TILE) sure[(long long)blockIdx.x * TILE + threadIdx.x] = tile_sure;
#endif
}
