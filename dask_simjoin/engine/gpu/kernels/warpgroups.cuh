// Barriers of the eight warps that multiply, beside a ninth that copies; and the place of a row's pieces.

#define SYNC() asm volatile("bar.sync 1, 256;" ::: "memory")
#define SYNC_OR(flag) any_of_warps(flag)

__device__ __forceinline__ bool any_of_warps(bool flag) {
    int any;
    asm volatile("{\n.reg .pred mine, all;\nsetp.ne.b32 mine, %1, 0;\nbar.red.or.pred all, 1, 256, mine;\n"
                 "selp.b32 %0, 1, 0, all;\n}"
                 : "=r"(any)
                 : "r"((int)flag)
                 : "memory");
    return any;
}

// Piece p of a row, 16 bytes, lies where piece p XOR this number would be; a row has NUMBERS numbers.
template <int NUMBERS> __device__ __forceinline__ int swizzled(int row) {
    return row / (64 / NUMBERS) % (NUMBERS / 8);
}
