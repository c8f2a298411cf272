// Decides a candidate by its total; then writes or counts the pair, or passes it to a sink.
//
// Pairs beyond `capacity` are counted but not written. The caller then discards the batch, and runs its halves instead.
// With BOUNDED, each candidate has its own slot in the output, so pairs are not counted.
//
// Constants: EXACT, COUNTING, SINK, BOUNDED.

#ifndef BOUNDED
#define BOUNDED 0
#endif

typedef long long i64;

// Indexes of `state`: pairs, and candidates that float64 decided and refused.
#define PAIRS 0
#define DECIDED 2
#define REFUSED 3

struct Tally {              // counters of a thread
    u32 decided, refused;
    u64 mine;              // number of pairs of the thread's query
    i64 slot;              // slot of the candidate
};

// Decides the candidate of query p and row j with the total `sum`. `turned`: whether queries are rows of the right
// table.
__device__ __forceinline__ void meet(int p, int j, real sum, real reach, real sure, double threshold,
                                     const double* __restrict__ qy, const double* __restrict__ dy, int turned,
                                     u64 capacity, int2* __restrict__ out, u64* __restrict__ d_counts,
                                     u64* __restrict__ state, Tally& tally) {
    bool hit = sum <= reach;
#if !EXACT
    if (hit && sum > sure) {
        hit = squared_distance(qy + (size_t)p * DIMS, dy + (size_t)j * DIMS) <= threshold;
        tally.decided++;
        tally.refused += !hit;
    }
#endif
    if (!hit) return;
#if COUNTING
    tally.mine++;
    if (d_counts) atomicAdd(d_counts + j, (u64)1);
#elif SINK
    take(turned ? j : p, turned ? p : j, (const u64*)out);
#elif BOUNDED
    out[tally.slot] = turned ? make_int2(j, p) : make_int2(p, j);
#else
    // all lanes with a pair reserve their slots by one atomic operation; the order of slots does not matter
    const u32 active = __activemask();
    const int lane = threadIdx.x & 31, leader = __ffs(active) - 1;
    u64 slot = 0;
    if (lane == leader) slot = atomicAdd(state + PAIRS, (u64)__popc(active));
    slot = __shfl_sync(active, slot, leader) + __popc(active & ((1u << lane) - 1));
    if (slot < capacity) out[slot] = turned ? make_int2(j, p) : make_int2(p, j);
#endif
}

__device__ __forceinline__ void add_tally(int p, const Tally& tally, u64* q_counts, u64* state) {
#if COUNTING
    if (tally.mine && q_counts) atomicAdd(q_counts + p, tally.mine);
#endif
    if (tally.decided) {
        atomicAdd(state + DECIDED, (u64)tally.decided);
        if (tally.refused) atomicAdd(state + REFUSED, (u64)tally.refused);
    }
}
