"""Columns of a result on a GPU that grow batch by batch, and are seldom copied."""

from __future__ import annotations

import cupy

from dask_simjoin.metrics.types import Array, DType

MOST_GROWTH = 4
"""Times as many values as there are, at most, for which room is made: what is left is only estimated."""

WASTE = 8
"""Part of the room that may be left over: more is given back, which takes a copy."""


class GrowingColumns:
    """Columns of equal length, to which batches are added."""

    def __init__(self, dtypes: list[DType]) -> None:
        self._length = 0
        self._columns = [cupy.empty(0, dtype) for dtype in dtypes]

    @property
    def _room(self) -> int:
        return min(len(column) for column in self._columns)

    def add(self, more: int, left: int) -> list[Array]:
        """Return the places of so many values more, to be written; `left`: about how many come later."""
        begin, self._length = self._length, self._length + more
        if self._length > self._room:
            try:
                self._grow(begin, min(self._length + left, MOST_GROWTH * self._length))
            except MemoryError:
                self._grow(begin, self._length)
        return [column[begin : self._length] for column in self._columns]

    def _grow(self, length: int, room: int) -> None:
        for number, column in enumerate(self._columns):
            if len(column) < room:  # another may have been made longer before memory was short
                longer = cupy.empty(room, column.dtype)
                longer[:length] = column[:length]
                self._columns[number] = longer

    def columns(self) -> list[Array]:
        """Return the columns, without the room that is left over."""
        if self._room - self._length > self._room // WASTE:
            for number in range(len(self._columns)):
                self._columns[number] = self._columns[number][: self._length].copy()
        return [column[: self._length] for column in self._columns]
