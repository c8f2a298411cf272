"""Keep the rows that planning has read from files until a join needs them, so each file is read once.

Threads keep rows in this process.  Workers of a cluster keep the rows that they read.  All rows must take a
small part of the memory.  A join takes the rows when its graph is made, so they live as long as the graph.  A
second computation reads the files again.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from typing import Any

import dask
import pandas as pd
from dask.optimization import cull

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import value_bytes
from dask_simjoin.graph.dask_private import IO, Expr, FromGraph
from dask_simjoin.graph.source import FrozenSource, optimise_in_place
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import MEMORY_LIMIT
from dask_simjoin.planning.resources import PROCESSES, resources_for
from dask_simjoin.request.options import current_client

SHARE = 16
"""Kept rows may take one part in `SHARE` of the memory of this process, or of all workers."""

PROBES = 3
"""Number of partitions that workers read first, to estimate the memory of all partitions."""

_NUMBERS = itertools.count()


def _elsewhere() -> bool:
    """Return whether other processes compute."""
    return current_client() is not None or dask.config.get("scheduler", None) in PROCESSES


def _bytes(frame: Frame) -> float:
    """Return the estimated memory of a partition."""
    row_bytes = sum(value_bytes(frame[name]) for name in frame.columns)
    if not isinstance(frame.index, pd.RangeIndex):
        row_bytes += value_bytes(frame.index)
    return float(row_bytes * len(frame))


def _new_name(source: FrozenSource) -> str:
    """Return another name for the rows of a source."""
    return f"simjoin_rows-{next(_NUMBERS)}-{source.inner._name}"


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
        size = _bytes(frame)
        with self._lock:
            self.bytes += size
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
        name = _new_name(source)
        layer = {(f"{name}-read", n): frames[n] for n in range(inner.npartitions)}
        self._keep(source, name, layer, passed.bytes)

    def read_on_workers(self, source: FrozenSource, library: str) -> FrozenSource:
        """Make the workers of a cluster read and keep the rows of a source; return the rows.

        Return the source itself without a cluster, or if the rows take too much of the workers' memory.
        """
        client, number = current_client(), source.inner.npartitions
        if client is None or client.asynchronous or frames_of_library(library).memory() is not None:
            return source
        resources = resources_for(library)
        most = (resources.limit or 0) * resources.workers // SHARE
        if not most:
            return source
        expr = optimise_in_place(source.inner)
        graph, keys = dict(expr.__dask_graph__()), expr.__dask_keys__()
        probed = [keys[n] for n in sorted({number * k // PROBES for k in range(PROBES)})]
        read = client.get(cull(graph, probed)[0], probed, sync=False)
        size = max(client.gather(client.map(_bytes, read, key="simjoin_size", pure=False))) * number
        if size > most:
            return source
        layer = {future.key: future for future in client.get(graph, keys, sync=False)}
        return FrozenSource(self._keep(source, _new_name(source), layer, self.most * size / most))

    def _keep(self, source: FrozenSource, name: str, layer: dict[Any, Any], size: float) -> Expr:
        """Keep the partitions of a source under a name, and drop the oldest rows beyond `most` bytes."""
        inner = source.inner
        rows: Expr = KeptRows(layer, inner._meta, inner.divisions, list(layer), name)
        with self._lock:
            self._kept[source] = rows, size
            total = sum(size for _, size in self._kept.values())
            for oldest in list(self._kept):
                if total > self.most:
                    total -= self._kept.pop(oldest)[1]
        return rows

    def take(self, source: FrozenSource) -> FrozenSource:
        """Return the rows that were kept of a source, or else the source itself.

        Further joins of one computation get the same rows.
        """
        with self._lock:
            rows = self._found(source)
            if rows is not None and self._kept.pop(source, None) is not None:
                self._taken[source] = weakref.ref(rows)
        return source if rows is None else FrozenSource(rows)

    def look_up(self, source: FrozenSource) -> FrozenSource:
        """Return the rows that are kept of a source, or else the source itself; the rows stay kept."""
        with self._lock:
            rows = self._found(source)
        return source if rows is None else FrozenSource(rows)

    def _found(self, source: FrozenSource) -> Expr | None:
        """Return the rows of a source that are in memory where the tasks run."""
        rows = self._kept[source][0] if source in self._kept else None
        if rows is None and source in self._taken:
            rows = self._taken[source]()
        if rows is None:
            return None
        client = getattr(next(iter(rows.operand("layer").values())), "client", None)  # of futures
        there = not _elsewhere() if client is None else client is current_client()
        return rows if there else None


ROWS = RowCache(MEMORY_LIMIT // SHARE)
