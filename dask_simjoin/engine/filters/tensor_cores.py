"""The kernels of the tensor cores: which serves how many dimensions, slices of long vectors, when it pays.

Vectors of more dimensions than registers hold are read slice by slice.  They and their bounds are those of
`dask_simjoin.engine.filters.float16`.  Nothing in them depends on how many
products there are but g, which grows with them: 3 K 2**-23 is 1.5e-4 for 384 dimensions and 7.4e-4 for 2,048.
It is small enough that what it leaves out, its square, is far below the factor of two it has to spare; what
is added last, s, comes after the coordinates here too, so no partial sum leaves the range that is assumed.
The norm and r, sums of K squares in float64, err by K 2**-53 < 2**-41 of themselves, which is below what is
added to them.

**When it pays.**  Candidates that are no pairs get through, to be decided in float64, up to a distance of
about

    sqrt((E + 2 r)**2 + 4 g N)

for points of norm N: in high dimensions it is g that counts.  Of unit vectors of 384 dimensions within a
cosine distance of 0.05 that is 1.004 E, within 0.001 it is 1.14 E.  As long as it is at most `FURTHER` times
E, the filter is used: float32 took 49 times as long (100,000 points of 384 dimensions on an H200), and at
least 300 million candidates a second were decided.
"""

from __future__ import annotations

import math

from dask_simjoin.engine.filters import float16 as half

FURTHER = 2.0
"""How many times E a candidate that gets through may typically be away."""

SLICINGS = ((4, 3), (2, 3), (2, 2))
"""How vectors are cut, the fastest first: slices of so many times 16 numbers, and how many are held."""


def shared_bytes(slicing: tuple[int, int], *, counting: bool = False) -> int:
    """Shared memory that a block of the kernel of slices asks for when it is launched."""
    depth, stages = slicing
    return stages * 3 * half.TILE * 16 * depth * 2 + (0 if counting else 8 * half.STAGE * 4)


def shared_in_all(dims: int, slicing: tuple[int, int]) -> int:
    """The same, with what the kernel has anyway: lists of tiles, and the queries' box."""
    return shared_bytes(slicing) + 9216 + 8 * dims


def program(dims: int, shared: int, *, counting: bool = False) -> tuple[str, dict[str, int], int] | None:
    """The kernel for so many dimensions, its constants, and the shared memory that it is launched with.

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


def pays(dims: int, outer: float, typical: float) -> bool:
    """Whether the filter is of use to points that are `typical` away from the center."""
    g = 3 * half.width(dims) * 2.0**-23
    return math.hypot(outer + 2 * 2.0**-12 * typical, 2 * math.sqrt(g) * typical) <= FURTHER * outer
