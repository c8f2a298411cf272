#include "common.cuh"
#include "apart.cuh"
// Assigns rows to their nearest centers, and finds the rows in the windows of other clusters: see
// dask_simjoin/papers/cluster_index.py. A block has SIDE rows, and compares them with SIDE centers at a time.
//
// Constants: DIMS; NORM; EXACT 1.

#define WITHIN(value) __dmul_rn(value, before)

extern "C" __global__ void __launch_bounds__(THREADS)
label_rows(const double* __restrict__ y, int rows, const double* __restrict__ centers, int number, double before,
           double scale, int* __restrict__ labels, double* __restrict__ totals) {
    __shared__ double s_least[SIDE][LANES];
    __shared__ int s_label[SIDE][LANES];
    const i64 row0 = (i64)blockIdx.x * SIDE;
    double least[EACH], sum[EACH][EACH];
    int label[EACH];
    for (int r = 0; r < EACH; r++) {
        least[r] = __longlong_as_double(0x7ff0000000000000ll);
        label[r] = 0;
    }
    const auto row = [&](int r, int k) { return row0 + r < rows ? WITHIN(y[(row0 + r) * DIMS + k]) : 0.0; };
    const auto difference = [&](double a, double b) { return __dmul_rn(minus(a, b), scale); };
    for (int c0 = 0; c0 < number; c0 += SIDE) {
        const auto centre = [&](int c, int k) {
            return c0 + c < number ? WITHIN(centers[(size_t)(c0 + c) * DIMS + k]) : 0.0;
        };
        sum_up<false>(row, centre, difference, 0.0, sum);
        for (int r = 0; r < EACH; r++)
            for (int g = 0; g < EACH; g++)
                if (c0 + other_of(g) < number && sum[r][g] < least[r]) {
                    least[r] = sum[r][g];
                    label[r] = c0 + other_of(g);
                }
    }
    for (int r = 0; r < EACH; r++) {
        s_least[row_of(r)][threadIdx.x % LANES] = least[r];
        s_label[row_of(r)][threadIdx.x % LANES] = label[r];
    }
    __syncthreads();
    const int r = threadIdx.x;
    if (r < SIDE && row0 + r < rows) {
        double best = s_least[r][0];
        int first = s_label[r][0];
        for (int t = 1; t < LANES; t++)
            if (s_least[r][t] < best || (s_least[r][t] == best && s_label[r][t] < first)) {
                best = s_least[r][t];
                first = s_label[r][t];
            }
        labels[row0 + r] = first;
        totals[row0 + r] = best;
    }
}

// Writes the distances between centers, rounded up. Only norm 2 needs them.
extern "C" __global__ void __launch_bounds__(THREADS)
center_distances(const double* __restrict__ centers, int number, double before, double scale, double slack, double tiny,
              double* __restrict__ apart) {
    const i64 row0 = (i64)blockIdx.x * SIDE;
    double sum[EACH][EACH];
    const auto at = [&](i64 c, int k) { return c < number ? WITHIN(centers[(size_t)c * DIMS + k]) : 0.0; };
    const auto difference = [&](double a, double b) { return __dmul_rn(minus(a, b), scale); };
    for (int c0 = 0; c0 < number; c0 += SIDE) {
        const auto row = [&](int r, int k) { return at(row0 + r, k); };
        const auto other = [&](int r, int k) { return at(c0 + r, k); };
        sum_up<false>(row, other, difference, 0.0, sum);
        for (int r = 0; r < EACH; r++)
            for (int g = 0; g < EACH; g++)
                if (row0 + row_of(r) < number && c0 + other_of(g) < number)
                    apart[(row0 + row_of(r)) * number + c0 + other_of(g)] = sqrt(sum[r][g]) * (1.0 + slack) + tiny;
    }
}

// Finds the rows in the window of each cluster from `first`, a multiple of SIDE, to `last`. With `after`, a row is
// compared only with clusters after its own. `root`: exponent that converts totals to distances; 0: squared distances
// are compared. Rows with NaN are always in the window.
//
// inside: for each cluster, a bit mask of the rows in its window, SIDE rows per word. sizes: number of bits set in each
// word. by_row, if not null: for each row, a bit mask of the clusters whose windows it is in.
extern "C" __global__ void __launch_bounds__(THREADS)
near_clusters(const double* __restrict__ y, int rows, const int* __restrict__ labels, const double* __restrict__ totals,
              const double* __restrict__ centers, int number, int first, int last, int after,
              const double* __restrict__ apart, double gap, double slack, double tiny, double root, double before,
              double scale, u64* __restrict__ inside, int* __restrict__ sizes, u64* __restrict__ by_row) {
    __shared__ u64 s_inside[SIDE], s_by_row[SIDE];
    const i64 row0 = (i64)blockIdx.x * SIDE, blocks = ((i64)rows + SIDE - 1) / SIDE;
    const int words = (number + SIDE - 1) / SIDE;
    double own[EACH], sum[EACH][EACH];
    int label[EACH];
    for (int r = 0; r < EACH; r++) {
        const i64 p = min(row0 + row_of(r), (i64)rows - 1);
        label[r] = labels[p];
        own[r] = root == 0.0 ? totals[p] : pow(totals[p], root);
    }
    const int lowest = labels[row0];  // rows are sorted by cluster
    const auto row = [&](int r, int k) { return row0 + r < rows ? WITHIN(y[(row0 + r) * DIMS + k]) : 0.0; };
    const auto difference = [&](double a, double b) { return __dmul_rn(minus(a, b), scale); };
    for (int c0 = first; c0 < last; c0 += SIDE) {
        if (after && c0 + SIDE <= lowest + 1) continue;
        const auto centre = [&](int c, int k) {
            return c0 + c < last ? WITHIN(centers[(size_t)(c0 + c) * DIMS + k]) : 0.0;
        };
        if (threadIdx.x < SIDE) s_inside[threadIdx.x] = s_by_row[threadIdx.x] = 0;
        sum_up<false>(row, centre, difference, 0.0, sum);
        for (int r = 0; r < EACH; r++)
            for (int g = 0; g < EACH; g++) {
                const int c = c0 + other_of(g);
                if (row0 + row_of(r) >= rows || c >= last || (after && c <= label[r])) continue;
                double other = sum[r][g], most;
                if (root == 0.0) {
                    most = 2.0 * gap * apart[(size_t)label[r] * number + c] + 3.0 * slack * (other + own[r])
                           + 4.0 * slack * gap * gap + tiny;
                } else {
                    other = pow(other, root);
                    most = 2.0 * gap + 3.0 * slack * (other + own[r]) + 4.0 * slack * gap + tiny;
                }
                if (other - own[r] > most) continue;
                atomicOr(s_inside + (c - c0), (u64)1 << row_of(r));
                if (by_row) atomicOr(s_by_row + row_of(r), (u64)1 << (c - c0));
            }
        __syncthreads();
        const int t = threadIdx.x;
        if (t < SIDE && c0 + t < last) {
            const size_t at = (size_t)(c0 + t - first) * blocks + blockIdx.x;
            inside[at] = s_inside[t];
            sizes[at] = __popcll(s_inside[t]);
        }
        if (by_row && t < SIDE && row0 + t < rows) by_row[(row0 + t) * words + c0 / SIDE] = s_by_row[t];
    }
}

// Converts bit masks to lists of rows, which are ascending within each cluster. `ends`: running count of set bits up to
// and including each word.
extern "C" __global__ void __launch_bounds__(THREADS)
list_members(const u64* __restrict__ inside, const i64* __restrict__ ends, const int* __restrict__ sizes, i64 number,
             i64 blocks, int* __restrict__ members) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= number) return;
    i64 at = ends[i] - sizes[i];
    for (u64 word = inside[i]; word; word &= word - 1) members[at++] = (int)(i % blocks * SIDE) + __ffsll(word) - 1;
}
