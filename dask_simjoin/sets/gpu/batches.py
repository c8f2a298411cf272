"""Launch set-join kernels in batches, and collect or count what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Protocol

import cupy
import numpy as np

from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.gpu.kernels.sources import SOURCES
from dask_simjoin.sets.gpu.operands import Operands

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


THREADS = 256
"""Of a block, where nothing else is asked for."""

MOST_BLOCKS = 1 << 16
"""Of kernels whose threads go on with the next items: more would not keep a GPU busier."""

SHARED_BYTES = 48 << 10
"""Of shared memory that every GPU gives a block without being asked."""


def over(items: int, name: str, function: str, arguments: tuple[Any, ...], **constants: int) -> None:
    """Start a kernel whose threads take items in a loop."""
    blocks = max(1, min(-(-items // THREADS), MOST_BLOCKS))
    load.kernel(SOURCES[name], function, **constants)((blocks,), (THREADS,), arguments)


def blocks(number: int, threads: int, name: str, function: str, arguments: tuple[Any, ...], shared: int = 0,
           **constants: int) -> None:  # fmt: skip
    """Start so many blocks of a kernel, of so many threads and bytes of shared memory."""
    load.kernel(SOURCES[name], function, **constants)((number,), (threads,), arguments, shared_mem=shared)


NOWHERE = np.uint64(0)
"""The address of what a kernel does not use."""

TOLD = 2
"""Numbers that kernels count: pairs of sets, and the weight of them all."""


class SetPairSink(Protocol):
    """Takes the pairs of batches, one after the other."""

    number: ClassVar[int]
    """As `sets.cuh` calls it."""

    def take(self, most: int) -> tuple[Any, ...]:
        """Arguments of the kernel that verifies a batch with so many pairs at most."""

    def done(self) -> None:
        """Note what the last batch had."""


class Select:
    """Writes pairs: positions of both sets, and their overlap."""

    number: ClassVar[int] = 0

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array, Array]] = []
        self._told = cupy.zeros(TOLD, cupy.uint64)
        self.pairs = 0

    def take(self, most: int) -> tuple[Any, ...]:
        self._told.fill(0)
        self._out = tuple(cupy.empty(most, cupy.int32) for _ in range(3))
        return (*self._out, np.uint64(most), *(NOWHERE,) * 4, self._told)

    def done(self) -> None:
        found = int(self._told[0])
        self.pairs += found
        left, right, overlap = (column[:found] for column in self._out)
        if found:
            self._parts.append((left.astype(cupy.int64), right.astype(cupy.int64), overlap.copy()))
        del self._out

    def columns(self) -> tuple[Array, Array, Array]:
        """Left, right and overlap of all pairs."""
        if not self._parts:
            return cupy.empty(0, cupy.int64), cupy.empty(0, cupy.int64), cupy.empty(0, cupy.int32)
        left, right, overlap = (cupy.concatenate(parts) for parts in zip(*self._parts, strict=True))
        return left, right, overlap


class SetPairCount:
    """Counts pairs of sets, and of the rows that they stand for."""

    number: ClassVar[int] = 1

    def __init__(self, join: Operands) -> None:
        self._weights = join.left.block["weights"], join.right.block["weights"]
        self._told = cupy.zeros(TOLD, cupy.uint64)

    def take(self, most: int) -> tuple[Any, ...]:
        return (*(NOWHERE,) * 4, *self._weights, NOWHERE, NOWHERE, self._told)

    def done(self) -> None:
        pass

    def totals(self) -> tuple[int, int]:
        """Pairs of sets, and of rows."""
        pairs, rows = self._told.get().tolist()
        return pairs, rows


class Each:
    """Adds to each set's count what its partners weigh."""

    number: ClassVar[int] = 2

    def __init__(self, join: Operands) -> None:
        self._weights = join.left.block["weights"], join.right.block["weights"]
        left = cupy.zeros(len(join.left), cupy.int64)
        self.counts = left, left if join.same else cupy.zeros(len(join.right), cupy.int64)
        self._told = cupy.zeros(TOLD, cupy.uint64)

    def take(self, most: int) -> tuple[Any, ...]:
        return (*(NOWHERE,) * 4, *self._weights, *self.counts, self._told)

    def done(self) -> None:
        pass
