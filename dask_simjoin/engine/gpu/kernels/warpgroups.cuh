// Barriers for the warps that multiply: the last warp, which copies, must not wait for them. And the swizzling of rows.

#define SYNC() asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory")
#define SYNC_OR(flag) any_of_warps(flag)

__device__ __forceinline__ bool any_of_warps(bool flag) {
    int any;
    asm volatile("{\n.reg .pred mine, all;\nsetp.ne.b32 mine, %1, 0;\nbar.red.or.pred all, 1, %2, mine;\n"
                 "selp.b32 %0, 1, 0, all;\n}"
                 : "=r"(any)
                 : "r"((int)flag), "n"(THREADS)
                 : "memory");
    return any;
}

// Piece p (16 bytes) of a row is stored at position p XOR `swizzled(row)`. A row has NUMBERS numbers.
template <int NUMBERS> __device__ __forceinline__ int swizzled(int row) {
    return row / (64 / NUMBERS) % (NUMBERS / 8);
}
