"""What becomes of pairs that match: they are written, counted, or added to their sets' counts."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import cupy
import numpy as np

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu.operands import Operands

NOWHERE = np.uint64(0)
"""The address of what a kernel does not use."""

TOLD = 2
"""Numbers that kernels count: pairs of sets, and the weight of them all."""


class Sink(Protocol):
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


class Count:
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
