"""Choose a tensor-core kernel by the number of dimensions, and decide whether its filter pays.

Vectors that are too long for registers are read slice by slice.  The vectors and their bounds come from
`dask_simjoin.engine.filters.float16`.

Among these bounds, only g = 3 K 2**-23 depends on the number K of products.  It is 1.5e-4 for 384 dimensions
and 7.4e-4 for 2,048.  The bound neglects the square of g, which is far below the factor of two to spare.  The
last summand, s, comes after the coordinates here too, so no partial sum leaves the assumed range.  The norm
and r are sums of K squares in float64.  Their relative error is K 2**-53 < 2**-41, less than their slack.

**When it pays.**  Candidates pass the filter up to some distance, and float64 refuses those that are not
pairs.  That distance is about

    sqrt((E + 2 r)**2 + 4 g N)

for points of squared norm N; in high dimensions g dominates.  For unit vectors of 384 dimensions it is
1.004 E for a cosine distance of 0.05, and 1.14 E for 0.001.  The filter is used if this distance is at most
E times `FURTHER`.  For 100,000 points of 384 dimensions on an H200, the float32 filter took 49 times as
long as this filter.  Float64 decided at least 300 million candidates per second.
"""

from __future__ import annotations

import math

from dask_simjoin.engine.filters import float16 as half

FURTHER = 2.0
"""The filter is used if candidates pass it up to this typical distance, as a multiple of E."""

SLICED_DIMS = 32
"""Fewest dimensions for `tensor_hopper.cu`: in fewer, the other kernels were faster on an H100."""

SLICE, ALIGNED = 64, 1024
"""Numbers of a slice in `tensor_hopper.cu`, and bytes that align slices in shared memory."""

SLICINGS = ((4, 3), (2, 3), (2, 2))
"""Ways to slice vectors, the fastest first: length of a slice in 16 numbers, and slices in memory."""


def shared_bytes(slicing: tuple[int, int], *, counting: bool = False) -> int:
    """Return the shared memory in bytes that a block of the kernel of slices requests at launch."""
    depth, stages = slicing
    return stages * 3 * half.TILE * 16 * depth * 2 + (0 if counting else 8 * half.STAGE * 4)


def shared_in_all(dims: int, slicing: tuple[int, int]) -> int:
    """Return the total shared memory in bytes of the kernel of slices, with tile lists and queries' box."""
    return shared_bytes(slicing) + 9216 + 8 * dims


def program(dims: int, shared: int, *, counting: bool = False) -> tuple[str, dict[str, int], int] | None:
    """Return the kernel for `dims` dimensions, its constants, and its shared memory in bytes.

    None if blocks with `shared` bytes of shared memory cannot run it.
    """
    told = {"WIDTH": half.width(dims)}
    if dims <= half.MAX_DIMS:
        if half.shared_in_all(dims) > shared:
            return None
        return "tensor", told, half.shared_bytes(dims, counting=counting)
    slicing = next((one for one in SLICINGS if shared_in_all(dims, one) <= shared), None)
    if slicing is None:
        return None
    told |= dict(zip(("DEPTH", "STAGES"), slicing, strict=True))
    return "tensor_wide", told, shared_bytes(slicing, counting=counting)


def hopper_program(
    dims: int, shared: int, *, counting: bool = False
) -> tuple[str, dict[str, int], int] | None:
    """Return the kernel for compute capability 9.0, `tensor_hopper.cu`: see `program`."""
    width, pairs = half.width(dims), 0 if counting else 8 * half.STAGE * 4
    static = 10496 + 8 * dims  # lists of tiles, counts of queries, and queries' box
    for stages in (4, 3, 2):
        size = ALIGNED + stages * 3 * half.TILE * SLICE * 2 + pairs
        if size + static <= shared:
            told = {"WIDTH": width, "STAGES": stages, "LATER": steps_later(-(-width // SLICE), stages)}
            return "tensor_hopper", told, size
    return None


def sliced_width(width: int) -> int:
    """Return the numbers that a vector takes in `tensor_hopper.cu`: its last slice has 16, 32 or 64."""
    rest = (width - 1) % SLICE + 1
    return width if rest <= SLICE // 2 else width - rest + SLICE


def steps_later(slices: int, stages: int) -> int:
    """Return the number of tiles whose pairs a block of `tensor_hopper.cu` writes after its output is full.

    All warps of a block must stop at the same tile.  A warp that finds the output full at its tile j names
    tile j + n as the first one to leave out.  Every warp must know this before it writes tile j + n.

    By then it has multiplied slice (j + n) * slices + slices - 1.  This slice was copied to the place of an
    earlier slice, with number (j + n) * slices + slices - 1 - stages, which all warps had released.  A warp
    that has released a slice of tile j + 1 has written tile j.  So n is enough if that number is at least
    (j + 1) * slices.  This means n >= (stages + 1) / slices.
    """
    return -(-(stages + 1) // slices)


def pays(dims: int, outer: float, typical: float) -> bool:
    """Return whether the filter pays for points at a `typical` distance from the center."""
    g = 3 * half.width(dims) * 2.0**-23
    return math.hypot(outer + 2 * 2.0**-12 * typical, 2 * math.sqrt(g) * typical) <= FURTHER * outer
