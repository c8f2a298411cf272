// A warp collects ("stages") pairs in shared memory. Once there are many, it writes all of them to the output or passes
// them to a sink.
//
// Constants: SINK, see components.cuh.

struct Stage {             // pairs of a warp that are not written yet
    int held;
    bool stopped;          // the output is full, except for the space that the pairs of the current tile need
};

// Adds to `state` how many candidates of a warp were decided by float64, and how many of these are not pairs.
__device__ __forceinline__ void tell_decided(u64* state, u32 decided, u32 refused, int lane) {
    for (int o = 16; o; o >>= 1) {
        decided += __shfl_down_sync(FULL, decided, o);
        refused += __shfl_down_sync(FULL, refused, o);
    }
    if (lane == 0 && decided) {
        atomicAdd(state + 3, (u64)decided);
        atomicAdd(state + 4, (u64)refused);
    }
}

// Writes the staged pairs to the output, or passes them to the sink. A pair is a place in each index.
__device__ __forceinline__ void flush(Stage& stage, const int2* buffer, int lane, u64* count, u64 room,
                                      int2* out) {
    __syncwarp();
#if SINK
    for (int i = lane; i < stage.held; i += 32) take(buffer[i].x, buffer[i].y, (const u64*)out);
    __syncwarp();
#else
    u64 base = 0;
    if (lane == 0) base = atomicAdd(count, (u64)stage.held);
    base = __shfl_sync(FULL, base, 0);
    for (int i = lane; i < stage.held; i += 32) out[base + i] = buffer[i];
    __syncwarp();
    stage.stopped = stage.stopped || base + stage.held >= room;
#endif
    stage.held = 0;
}
