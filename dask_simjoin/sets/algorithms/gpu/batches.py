"""Candidates found by a kernel, part by part of its work, through a buffer of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import cupy

from dask_simjoin.metrics.types import Array

MEMORY_SHARE = 16
"""Part of a GPU's free memory that the buffer of candidates takes at most."""

BYTES = 24
"""Of a candidate: two positions, and what is written where it matches."""

MOST = 1 << 26
"""Candidates of a batch at most: more would not keep a GPU busier."""


class Flat(NamedTuple):
    """Candidates in any order.

    Attributes
    ----------
    pairs : array (candidates, 2), int32
        Left and right sets; valid until the next batch is asked for.
    next : int or None
        The part of the work to go on with; None: this was the last.
    """

    pairs: Array
    next: int | None


Find = Callable[[int, int, Array, Array], None]
"""Finds the candidates of so many parts of the work from a first one on, writes those that there is room for,
and adds their number to a counter."""


def room_for(chunk_bytes: int | None) -> int:
    """Return how many candidates a buffer has room for, by a budget of bytes or what memory is free."""
    if chunk_bytes is not None:
        return max(1, chunk_bytes // BYTES)
    free, _ = cupy.cuda.Device().mem_info
    return max(1 << 16, min(MOST, int(free) // MEMORY_SHARE // BYTES))


def batches(find: Find, work: int, start: int, step: int, room: int) -> Iterator[Flat]:
    """Do the parts `start` ... `work` - 1, first `step` at a time, then as many as fill the buffer.

    Parts that find more than there is room for are done again, fewer at a time; one alone that does gets as
    much room as it needs.
    """
    out, told = cupy.empty((room, 2), cupy.int32), cupy.zeros(1, cupy.uint64)
    while start < work:
        step = min(step, work - start)
        told.fill(0)
        find(start, step, out, told)
        found = int(told[0])
        if found > len(out):
            if step == 1:
                out = cupy.empty((found, 2), cupy.int32)
            step = max(1, min(step // 2, step * len(out) // (2 * found)))
            continue
        start += step
        yield Flat(out[:found], start if start < work else None)
        if found < len(out) // 4:
            step *= 2
