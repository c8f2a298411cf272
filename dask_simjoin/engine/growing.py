"""Columns in the host's memory that grow where they lie, so that a result is never there twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dask_simjoin.metrics.types import Array, DType

GROWTH = 8
"""Columns grow by one part in so many: NumPy writes zeros there, which takes memory before it is used."""

AT_ONCE = 1 << 20
"""Values that are looked up or converted at a time."""


class GrowingColumns:
    """Columns of one length, which is not known before.

    Memory that is not written costs nothing, so the first room is generous.  Longer columns are moved by
    the system, which maps their pages elsewhere, and what is left over is given back in the same way.

    Parameters
    ----------
    dtypes : sequence of dtype
    room : int
        Values for which memory is reserved at first.
    spare : int, optional
        Values behind the room that may be written, but are not kept.
    """

    def __init__(self, dtypes: Sequence[DType], room: int, spare: int = 0) -> None:
        self._columns = tuple(np.empty(room + spare, dtype) for dtype in dtypes)
        self._room, self._spare, self._used = room, spare, 0

    @property
    def room(self) -> int:
        """Values that can be added without growing."""
        return self._room - self._used

    def free(self) -> list[np.ndarray]:
        """Views of what is not used yet: they are invalid once the columns grow or end."""
        return [column[self._used :] for column in self._columns]

    def advance(self, used: int, least: int = 0) -> None:
        """Keep the first `used` free values of each column, and make room for at least `least` more."""
        self._used += used
        if self.room < least:
            self._room = self._used + max(least, self._used // GROWTH)
            self._resize(self._room + self._spare)

    def end(self) -> tuple[np.ndarray, ...]:
        """Give back what is left over, and return the columns."""
        self._room, self._spare = self._used, 0
        self._resize(self._used)
        return self._columns

    def _resize(self, length: int) -> None:
        for column in self._columns:
            column.resize(length, refcheck=False)


def blocks(length: int, parts: int = 1) -> Iterator[slice]:
    """Cut so many values into slices of `AT_ONCE`, or of a part of that."""
    size = AT_ONCE // parts
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def longer(values: np.ndarray, length: int) -> np.ndarray:
    """Return an array with room for more values behind its own, which is given up: it grows where it lies.

    Nobody else may use it, nor a view of it, besides those that know its former length.
    """
    owner = values if values.base is None else values.base
    own = isinstance(owner, np.ndarray) and owner.flags.owndata and owner.nbytes == values.nbytes
    if not own or owner.ndim != 1 or owner.dtype.itemsize != values.dtype.itemsize:
        grown = np.empty(length, values.dtype)
        grown[: len(values)] = values
        return grown
    owner.resize(length, refcheck=False)
    return owner if owner.dtype == values.dtype else owner.view(values.dtype)


def appended(parts: Sequence[Array]) -> np.ndarray:
    """Put arrays one after the other; the first one is given up: see `longer`."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([len(part) for part in parts]).tolist()
    whole = longer(parts[0], ends[-1])
    for part, start, stop in zip(parts[1:], ends, ends[1:], strict=False):
        whole[start:stop] = part
    return whole


def look_up(table: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Take values of a table by their places, some at a time: NumPy makes 8 bytes of each of them."""
    found = np.empty(len(places), table.dtype)
    for some in blocks(len(places)):
        found[some] = table[places[some]]
    return found
