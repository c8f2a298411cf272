// Loads operands of the tensor cores from a ring of slices in shared memory. Pieces of 16 bytes are swizzled, so that
// reads have no bank conflicts.
//
// Constants: DEPTH of a slice in units of 16 numbers: 2 or 4.

#define SLICE (16 * DEPTH)
#define PIECES (SLICE / 8)

struct Fragments {         // queries (a) and points (b) that a warp multiplies in one step
    u32 a[4][4], b[4][4];
};

// Piece p (16 bytes) of a row is stored at position p XOR `swizzle(row)`.
__device__ __forceinline__ int swizzle(int row) { return row / (8 / PIECES) % PIECES; }

__device__ __forceinline__ void read_step(Fragments& to, u32 queries, u32 points, int step) {
#pragma unroll
    for (int m = 0; m < 4; m++) {
        read_matrices(to.a[m], (queries ^ step * 32) + m * 16 * SLICE * 2);
        read_matrices(to.b[m], (points ^ step * 32) + m * 16 * SLICE * 2);
    }
}
