"""Choose a tensor-core kernel by the number of dimensions, and decide whether its filter pays.

Kernels read vectors slice by slice if they are too long for registers.  The vectors and their bounds come
from `dask_simjoin.engine.filters.float16`.

Long vectors need no other bounds.  Only g = 3 K 2**-23 depends on the number K of products.  It is 1.5e-4 for
384 dimensions and 7.4e-4 for 2,048.  The bound neglects the square of g.  This is safe, because g is twice as
large as necessary.  The term s is added after the coordinates here too, so partial sums stay in the assumed
range.  The norm N and r are sums of K squares in float64.  Their relative error is K 2**-53 < 2**-41, less
than the slack that is added to them.

**When it pays.**  The filter passes candidates up to a distance somewhat above E, and float64 then refuses
those that are not pairs.  That distance is about

    sqrt((E + 2 r)**2 + 4 g N)

for points of squared norm N; in high dimensions g dominates.  For unit vectors of 384 dimensions it is
1.004 E for a cosine distance of 0.05, and 1.14 E for 0.001.  The filter is used if this distance is at most
`MAX_PASS_RATIO` times E.

For 100,000 points of 384 dimensions on an H200, this filter was 49 times as fast as the float32 filter.
Float64 decided at least 300 million candidates per second.
"""

from __future__ import annotations

import math

from dask_simjoin.engine.filters import float16 as half

MAX_PASS_RATIO = 2.0
"""Do not use the filter if typical candidates pass it at distances above this multiple of E."""

SLICED_DIMS = 32
"""Minimum dimensions for `tensor_hopper.cu`; with fewer, other kernels were faster on an H100."""

SLICE, ALIGNED = 64, 1024
"""For `tensor_hopper.cu`: numbers per slice of a vector, and alignment of slices in bytes."""

SLICINGS = ((4, 3), (2, 3), (2, 2))
"""Ways to slice vectors, fastest first: (numbers per slice / 16, slices in shared memory)."""


def shared_bytes(slicing: tuple[int, int], *, counting: bool = False) -> int:
    """Return the bytes of dynamic shared memory for a block of `tensor_wide.cu`."""
    depth, stages = slicing
    return stages * 3 * half.TILE * 16 * depth * 2 + (0 if counting else 8 * half.STAGE * 4)


def shared_in_all(dims: int, slicing: tuple[int, int]) -> int:
    """Return all bytes of shared memory for a block of `tensor_wide.cu`, including static arrays."""
    return shared_bytes(slicing) + 9216 + 8 * dims


def program(dims: int, shared: int, *, counting: bool = False) -> tuple[str, dict[str, int], int] | None:
    """Return the kernel for `dims` dimensions, its constants, and its bytes of dynamic shared memory.

    None means that it needs more than the `shared` bytes that a block may use.
    """
    constants = {"WIDTH": half.width(dims)}
    if dims <= half.MAX_DIMS:
        if half.shared_in_all(dims) > shared:
            return None
        return "tensor", constants, half.shared_bytes(dims, counting=counting)
    slicing = next((one for one in SLICINGS if shared_in_all(dims, one) <= shared), None)
    if slicing is None:
        return None
    constants |= dict(zip(("DEPTH", "STAGES"), slicing, strict=True))
    return "tensor_wide", constants, shared_bytes(slicing, counting=counting)


def hopper_program(
    dims: int, shared: int, *, counting: bool = False
) -> tuple[str, dict[str, int], int] | None:
    """Return the kernel for compute capability 9.0, `tensor_hopper.cu`: see `program`."""
    width, pairs = half.width(dims), 0 if counting else 8 * half.STAGE * 4
    static = 10496 + 8 * dims  # static arrays: lists of tiles, counts of queries, box of queries
    for stages in (4, 3, 2):
        size = ALIGNED + stages * 3 * half.TILE * SLICE * 2 + pairs
        if size + static <= shared:
            later = steps_later(-(-width // SLICE), stages)
            constants = {
                "WIDTH": width,
                "STAGES": stages,
                "LATER": later,
                "SHARE": clusters_of_queries(width),
            }
            return "tensor_hopper", constants, size
    return None


def sliced_width(width: int) -> int:
    """Return the padded length of a vector in `tensor_hopper.cu`: its last slice has 16, 32 or 64 numbers."""
    rest = (width - 1) % SLICE + 1
    return width if rest <= SLICE // 2 else width - rest + SLICE


def clusters_of_queries(width: int) -> int:
    """Return how many clusters of `tensor_hopper.cu` have the same queries at the same time.

    On an H200, two clusters instead of one made joins of 1,024 and 1,536 dimensions 2 and 6 % faster. They
    made joins of 768 and 2,048 dimensions 4 and 2 % slower.
    """
    return 2 if 1024 <= width < 2048 else 1


def steps_later(slices: int, stages: int) -> int:
    """Return how many tiles later a block of `tensor_hopper.cu` stops after its output has become full.

    Call the result n. All warps of a block must stop at the same tile. A warp that fills the output at its
    tile j announces that tile j + n is the first to leave out. Every warp must see this before it writes tile
    j + n.

    Before that, a warp multiplies the last slice of tile j + n, number (j + n) * slices + slices - 1. This
    slice overwrote the slice that is `stages` numbers earlier, so all warps had released that one. A warp
    that has released a slice of tile j + 1 has written tile j, and announced its stop. So n is large enough
    if the earlier slice is number (j + 1) * slices or later. This means n >= (stages + 1) / slices.
    """
    return -(-(stages + 1) // slices)


def pays(dims: int, outer: float, typical: float) -> bool:
    """Return whether the filter pays. `typical`: typical scaled distance of points from the center."""
    g = 3 * half.width(dims) * 2.0**-23
    return math.hypot(outer + 2 * 2.0**-12 * typical, 2 * math.sqrt(g) * typical) <= MAX_PASS_RATIO * outer
