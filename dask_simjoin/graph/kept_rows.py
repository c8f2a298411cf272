"""Keep the rows that planning has read from files until a join needs them, so each file is read once.

Rows are kept only in this process, and only while they take a small part of its memory.  A join takes the
rows when its graph is made, so they live as long as the graph.  A second computation reads the files again.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from typing import Any

import dask
import pandas as pd

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import value_bytes
from dask_simjoin.graph.dask_private import IO, Expr, FromGraph
from dask_simjoin.graph.source import FrozenSource
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import MEMORY_LIMIT
from dask_simjoin.planning.resources import PROCESSES
from dask_simjoin.request.options import current_client

SHARE = 16
"""Kept rows may take one part in `SHARE` of this process's memory."""

_NUMBERS = itertools.count()


def _elsewhere() -> bool:
    """Return whether other processes compute."""
    return current_client() is not None or dask.config.get("scheduler", None) in PROCESSES


class KeptRows(FromGraph):
    """The rows of a source, with a given name: by default Dask would hash all values to make a name."""

    @functools.cached_property
    def _name(self) -> str:
        return str(self.operand("name_prefix"))


class PassedRows:
    """Collect the partitions that a pass over a source reads; drop them if they take too much memory.

    `copies`: whether to copy partitions, because they may be views of frames with more columns.
    """

    def __init__(self, most: int, copies: bool) -> None:
        self.frames: dict[int, Frame] | None = {}
        self.bytes = 0.0
        self._most, self._copies = most, copies
        self._lock = threading.Lock()

    def __dask_tokenize__(self) -> Any:
        return "dask_simjoin.PassedRows"

    def add(self, number: int, frame: Frame) -> None:
        """Take a partition."""
        row_bytes = sum(value_bytes(frame[name]) for name in frame.columns)
        if not isinstance(frame.index, pd.RangeIndex):
            row_bytes += value_bytes(frame.index)
        with self._lock:
            self.bytes += row_bytes * len(frame)
            if self.bytes > self._most:
                self.frames = None
            if self.frames is None:
                return
        frame = frame.copy() if self._copies else frame
        with self._lock:
            if self.frames is not None:
                self.frames[number] = frame


class RowCache:
    """Hold kept rows by source, up to `most` bytes; the oldest ones are dropped first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: weakref.WeakKeyDictionary[FrozenSource, tuple[Expr, float]] = weakref.WeakKeyDictionary()
        self._taken: weakref.WeakKeyDictionary[FrozenSource, weakref.ref[Expr]] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()  # garbage collection may remove sources while the lock is held

    def passed(self, source: FrozenSource, library: str) -> PassedRows | None:
        """Return a collector for the rows of a source; None: other processes read them, or GPUs hold them."""
        if _elsewhere() or frames_of_library(library).memory() is not None:
            return None
        return PassedRows(self.most, not isinstance(source.inner.simplify(), IO))

    def keep(self, source: FrozenSource, passed: PassedRows) -> None:
        """Keep the rows of a source until they are taken, or until others need the memory."""
        frames, inner = passed.frames, source.inner
        if frames is None or len(frames) < inner.npartitions:
            return
        name = f"simjoin_rows-{next(_NUMBERS)}-{inner._name}"
        layer = {(f"{name}-read", n): frames[n] for n in range(inner.npartitions)}
        rows = KeptRows(layer, inner._meta, inner.divisions, list(layer), name)
        with self._lock:
            self._kept[source] = rows, passed.bytes
            total = sum(size for _, size in self._kept.values())
            for oldest in list(self._kept):
                if total > self.most:
                    total -= self._kept.pop(oldest)[1]

    def take(self, source: FrozenSource) -> FrozenSource:
        """Return the rows that were kept of a source, or else the source itself.

        Further joins of one computation get the same rows.
        """
        if _elsewhere():
            return source
        with self._lock:
            if source in self._kept:
                rows, _ = self._kept.pop(source)
                self._taken[source] = weakref.ref(rows)
            else:
                taken = self._taken.get(source)
                rows = None if taken is None else taken()
        return source if rows is None else FrozenSource(rows)


ROWS = RowCache(MEMORY_LIMIT // SHARE)
