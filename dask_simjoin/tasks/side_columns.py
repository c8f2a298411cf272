"""The columns that a result has of the rows of one chunk."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.growing import GrowingColumns, longer
from dask_simjoin.engine.ids import from_id_keys
from dask_simjoin.metrics.types import Array, Values
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import kept_values

PLACE = object()
"""The name of rows' places, which are kept of rows some of whose columns only a frame can take."""

ROOM = 1 << 16
"""Pairs for which memory is reserved at first where they are written some at a time."""


class SideColumns:
    """What to keep of the left or of the right rows of pairs, and the columns that this makes.

    Parameters
    ----------
    chunk : Chunk
        Of these rows.
    names : mapping
        Kept columns of the chunk, by their names in the result.

    Attributes
    ----------
    labels : array (n,)
        What to call the chunk's rows, in the order of its index: integers as wide as the ids, or positions.
    kept : list of array (n,)
        What else to keep of them, in the same order.
    """

    def __init__(self, chunk: Chunk, names: Mapping[Any, Hashable]) -> None:
        self._chunk, self._names = chunk, names
        frames, n = frames_for(chunk["example"]), len(chunk["ids"])
        plain = {name: frames.plain(chunk["kept"], column) for name, column in names.items()}
        found: dict[Any, Array] = {name: values for name, values in plain.items() if values is not None}
        if len(found) < len(names):
            found[PLACE] = frames.xp.arange(n, dtype=frames.xp.int32)
        self._found, self.kept = list(found), list(found.values())
        keys = chunk["id_keys"]
        self._keyed = keys is not None
        if keys is None:
            keys = chunk["order"][:n]
        elif isinstance(keys, np.ndarray):
            keys = keys.astype(f"i{chunk['ids'].dtype.itemsize}", copy=False)
        self.labels = keys

    @property
    def tables(self) -> list[Array]:
        """List the labels, and what else to keep."""
        return [self.labels, *self.kept]

    def columns(self, arrays: list[Array], id_name: str) -> dict[Any, Values]:
        """Make columns of what was kept of the rows of pairs: labels, and what `kept` lists.

        `arrays` is emptied, so that memory is free as soon as it can be.
        """
        chunk, found = self._chunk, {}
        for name in reversed(self._found):
            found[name] = arrays.pop()
        labels = arrays.pop()
        for name, column in self._names.items():
            if name not in found:
                found[name] = kept_values((chunk,), column, found[PLACE])
        found.pop(PLACE, None)
        if self._keyed:
            found[id_name] = from_id_keys(labels, chunk["ids"])
        else:
            found[id_name] = frames_for(chunk["example"]).ids(chunk["ids"], labels)
        return found


class PairColumns:
    """Writes columns of pairs of two chunks on the host, some pairs at a time, where they stay.

    Parameters
    ----------
    chunks : pair of Chunk
        Of the left and of the right rows.
    names : pair of mappings
        Their kept columns: see `SideColumns`.
    measures : sequence of str
        What else is known of each pair, float64.
    """

    def __init__(self, chunks: Sequence[Chunk], names: Sequence[Mapping[Any, Hashable]],
                 measures: Sequence[str]) -> None:  # fmt: skip
        self._sides = [SideColumns(chunk, own) for chunk, own in zip(chunks, names, strict=True)]
        self._tables = [side.tables for side in self._sides]
        dtypes = [table.dtype for tables in self._tables for table in tables]
        self._measures = measures
        self._columns = GrowingColumns([*dtypes, *[np.float64] * len(measures)], ROOM)

    def add(self, left: np.ndarray, right: np.ndarray, *measures: np.ndarray | None) -> None:
        """Write some pairs, given as places in the indexes of both chunks."""
        n = len(left)
        self._columns.advance(0, n)
        out = iter(self._columns.free())
        for tables, places in zip(self._tables, (left, right), strict=True):
            for table in tables:
                next(out)[:n] = table[places]
        for values, column in zip(measures, out, strict=False):
            column[:n] = values
        self._columns.advance(n)

    def rows(self) -> tuple[int, dict[str, Values]]:
        """Return how many pairs were written, and their columns."""
        found = list(self._columns.end())
        number, first = len(found[0]), len(self._tables[0])
        columns = dict(zip(self._measures, found[first + len(self._tables[1]) :], strict=True))
        arrays = found[:first], found[first : first + len(self._tables[1])]
        del found
        for side, own, name in zip(self._sides, arrays, ("left", "right"), strict=True):
            columns |= side.columns(own, name)
        return number, columns


def both_ways(left: Sequence[Array], right: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Append to arrays of left rows those of right rows, and the other way round; both are given up."""
    sides: tuple[list[Array], list[Array]] = [], []
    for one, other in zip(left, right, strict=True):
        n = len(one)
        a = longer(one, 2 * n)
        a[n:] = other
        b = longer(other, 2 * n)
        b[n:] = a[:n]
        sides[0].append(a)
        sides[1].append(b)
    return sides


def twice(values: Array) -> Array:
    """Put values behind themselves; they are given up."""
    n = len(values)
    whole = longer(values, 2 * n)
    whole[n:] = whole[:n]
    return whole
