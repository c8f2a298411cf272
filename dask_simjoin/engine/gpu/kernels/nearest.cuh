// Lists of the k nearest neighbors of each query, for both nearest-neighbor searches.
//
// Neighbors are ordered by (d2, name), where d2 is their total and name is the row's id. A free entry is (inf, -1).
// Ids are compared as unsigned numbers, so -1 is larger than any id, and free entries come last. So a neighbor with
// d2 = inf can still take a free entry.
//
// Each lane owns some queries, here called rows. Candidates that pass the filter wait in queues until the warp drains
// them. Draining computes their d2 by its definition, and updates the lists. Until then the filter uses an outdated
// bound. It is larger than the current one, so no neighbor is lost.
//
// With LISTS, sorted lists are in shared memory: first entry 0 of all rows of a warp, then entry 1, and so on. If
// shared memory is too small, each row has a buffer in scratch memory that is longer than its list. New neighbors are
// appended unsorted. When the buffer is full, the warp keeps the nearest k. Johnson, Douze & Jegou 2017,
// "Billion-scale similarity search with GPUs", section 4, sort the buffer instead of selecting from it.

#define STRIDE ROWS // distance in memory between consecutive entries of a list

struct Worst {             // the last entry of a row's list
    double d2;
    u64 name;
};

__device__ __forceinline__ bool before(double d2, u64 name, double other_d2, u64 other) {
    return d2 < other_d2 || (d2 == other_d2 && name < other);
}

#if LISTS
// Inserts a neighbor into a sorted list of k entries, and drops the last entry. The neighbor must come before that one.
__device__ __forceinline__ Worst insert(double* d2s, u64* names, int k, double d2, u64 name) {
    int at = 0;
    for (int end = k - 1; at < end;) { // binary search for the first entry that comes after the new neighbor
        const int middle = (at + end) >> 1;
        if (before(d2, name, d2s[middle * STRIDE], names[middle * STRIDE])) end = middle;
        else at = middle + 1;
    }
    // move entries by one, four at a time: four reads before the four writes let a thread wait less often
    for (int end = k - 1; end > at; end -= 4) {
        double d[4];
        u64 n[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const int from = max(end - m - 1, 0) * STRIDE;
            d[m] = d2s[from];
            n[m] = names[from];
        }
#pragma unroll
        for (int m = 0; m < 4; m++) {
            if (end - m > at) {
                d2s[(end - m) * STRIDE] = d[m];
                names[(end - m) * STRIDE] = n[m];
            }
        }
    }
    d2s[at * STRIDE] = d2;
    names[at * STRIDE] = name;
    return {d2s[(k - 1) * STRIDE], names[(k - 1) * STRIDE]};
}

#else
#define CHILDREN 64 // number of values of a digit: radix selection uses digits of 6 bits

// Returns the capacity of a row's buffer, enough for k entries padded to a power of two.
__device__ __forceinline__ int room_of(int k) { return 2 * k + 32; }

// Radix selection of the `need` smallest among the first n numbers in `of`. Returns a limit. Numbers below it are
// selected. `left`: how many of the numbers equal to the limit are selected, too; 0: all of them. With `only`,
// considers just numbers whose d2 is `d2`. All lanes must call it.
__device__ __noinline__ u64 smallest(const u64* of, const u64* d2s, bool only, u64 d2, int n, int need, u32* count,
                                     int* left) {
    const int lane = threadIdx.x & 31;
    u64 found = 0;
    *left = 0;
    for (int end = 64; end > 0;) { // the lowest `end` bits are still unknown
        const int width = end > 6 ? 6 : end, shift = end - width;
        count[lane] = count[lane + 32] = 0;
        __syncwarp();
        for (int e = lane; e < n; e += 32) {
            const u64 v = of[e];
            const bool like = (end == 64 || v >> end == found >> end) && (!only || d2s[e] == d2);
            if (like) atomicAdd(count + (v >> shift & ((1 << width) - 1)), 1u);
        }
        __syncwarp();
        const int n0 = count[2 * lane], n1 = count[2 * lane + 1];
        int sum = n0 + n1;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            const int before = __shfl_up_sync(FULL, sum, o);
            if (lane >= o) sum += before;
        }
        // the first lane where the running count reaches `need`
        const int holder = __ffs(__ballot_sync(FULL, sum >= need)) - 1;
        const int start = __shfl_sync(FULL, sum - n0 - n1, holder), low = __shfl_sync(FULL, n0, holder);
        const int high = __shfl_sync(FULL, n1, holder), second = start + low < need;
        const int here = second ? high : low;
        need -= start + (second ? low : 0);
        found |= (u64)(2 * holder + second) << shift;
        end = shift;
        __syncwarp();
        // exactly the numbers with this prefix are still needed
        if (here == need) return found | ((1ull << shift) - 1);
    }
    *left = need;
    return found;
}

// Keeps the nearest k of the n > k entries of a row, and clears the others. Returns the last of the k. All lanes must
// call it with equal arguments. `count`: space for 64 numbers in shared memory.
__device__ __noinline__ Worst keep_nearest(double* d2s, u64* names, int n, int k, u32* count) {
    const int lane = threadIdx.x & 31;
    __syncwarp();
    u64* bits = (u64*)d2s; // d2 is not negative, so its bits, as integers, have the same order
    int left;
    const u64 d2 = smallest(bits, bits, false, 0, n, k, count, &left);
    const u64 name = left ? smallest(names, bits, true, d2, n, left, count, &left) : ~0ull;
    int kept = 0;
    u64 most = 0, most_name = 0;
    for (int first = 0; first < n; first += 32) {
        const int e = first + lane;
        const u64 own = e < n ? bits[e] : ~0ull, own_name = e < n ? names[e] : ~0ull;
        // free entries are not copied here; they are written again at the end of the list
        const bool stays = own_name != ~0ull && (own < d2 || (own == d2 && own_name <= name));
        const u32 all = __ballot_sync(FULL, stays);
        if (stays) {
            const int to = kept + __popc(all & ((1u << lane) - 1));
            bits[to] = own;
            names[to] = own_name;
            if (own > most || (own == most && own_name > most_name)) {
                most = own;
                most_name = own_name;
            }
        }
        kept += __popc(all);
        __syncwarp();
    }
    for (int e = kept + lane; e < k; e += 32) {
        bits[e] = 0x7ff0000000000000ull;
        names[e] = ~0ull;
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const u64 other = __shfl_xor_sync(FULL, most, o), other_name = __shfl_xor_sync(FULL, most_name, o);
        if (other > most || (other == most && other_name > most_name)) {
            most = other;
            most_name = other_name;
        }
    }
    __syncwarp();
    if (kept < k) return {__longlong_as_double(0x7ff0000000000000ll), ~0ull};
    return {__longlong_as_double((long long)most), most_name};
}

// Sorts the k entries of a row (Batcher 1968, "Sorting networks and their applications"). All lanes must call it.
__device__ __noinline__ void sort_row(double* d2s, u64* names, int k) {
    const int lane = threadIdx.x & 31;
    int size = 32;
    while (size < k) size <<= 1;
    __syncwarp();
    for (int e = k + lane; e < size; e += 32) {
        d2s[e] = __longlong_as_double(0x7ff0000000000000ll);
        names[e] = ~0ull;
    }
    __syncwarp();
    for (int run = 2; run <= size; run <<= 1) {
        for (int step = run >> 1; step; step >>= 1) {
            for (int m = lane; m < size / 2; m += 32) {
                const int i = 2 * m - (m & (step - 1)), j = i + step;
                const double a = d2s[i], b = d2s[j];
                const u64 x = names[i], y = names[j];
                if (before(b, y, a, x) == ((i & run) == 0)) {
                    d2s[i] = b;
                    d2s[j] = a;
                    names[i] = y;
                    names[j] = x;
                }
            }
            __syncwarp();
        }
    }
}

// Copies the k entries of a row between its buffer and the arrays `best_d2` and `best_name`. All lanes must call it.
__device__ __forceinline__ void copy_row(double* d2s, u64* names, const double* from_d2s, const u64* from_names,
                                         int k) {
    for (int e = threadIdx.x & 31; e < k; e += 32) {
        d2s[e] = from_d2s[e];
        names[e] = from_names[e];
    }
}
#endif
