"""Keep the rows that planning reads from files for the tasks of the join.

So each file is read only once. Without a cluster, rows are kept in this process. On a cluster, each worker
keeps the rows that it has read.
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
from distributed import Client, Future

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import value_bytes
from dask_simjoin.graph.dask_private import IO, Blockwise, Expr, FromGraph
from dask_simjoin.graph.source import FrozenSource, optimise_in_place
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import MEMORY_LIMIT
from dask_simjoin.planning.resources import PROCESSES, resources_for
from dask_simjoin.request.options import current_client

SHARE = 16
"""Kept rows may take 1 / SHARE of the memory: of this process, or of all workers together."""

PROBES = 4
"""Workers first read this many partitions, to estimate the memory of all partitions."""

_NUMBERS = itertools.count()


def _elsewhere() -> bool:
    """Return whether tasks run in other processes than this one."""
    return current_client() is not None or dask.config.get("scheduler", None) in PROCESSES


def _bytes(frame: Frame) -> float:
    """Return the estimated memory of a partition in bytes."""
    row_bytes = sum(value_bytes(frame[name]) for name in frame.columns)
    if not isinstance(frame.index, pd.RangeIndex):
        row_bytes += value_bytes(frame.index)
    return float(row_bytes * len(frame))


def _new_name(source: FrozenSource) -> str:
    """Return a name for the rows of a source that is unique in this process."""
    return f"simjoin_rows-{next(_NUMBERS)}-{source.inner._name}"


Shares = dict[str | None, list[Any]]
"""The keys of partitions that each worker reads; with None instead of a worker, any worker reads them."""


def shared_by_workers(keys: list[Any], threads: dict[str, int]) -> Shares:
    """Divide the keys of partitions among workers, in proportion to their threads. Each gets consecutive
    keys.

    Chunks consist of consecutive partitions, so workers index them without sending rows.
    """
    each = [worker for worker in sorted(threads) for _ in range(threads[worker])]
    shares: Shares = {}
    for n, key in enumerate(keys):
        shares.setdefault(each[n * len(each) // len(keys)], []).append(key)
    return shares


def _submitted(client: Client, graph: dict[Any, Any], shares: Shares) -> list[Future]:
    """Let workers compute their shares of keys; return the futures in the order of the shares."""
    found: list[Future] = []
    for worker, keys in shares.items():
        on = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        found += client.get(cull(graph, keys)[0], keys, sync=False, **on) if keys else []
    return found


class KeptRows(FromGraph):
    """The rows of a source, with a given name. Without this name, Dask would hash all values to make one."""

    @functools.cached_property
    def _name(self) -> str:
        return str(self.operand("name_prefix"))


class PassedRows:
    """Collects the partitions that one pass over a source reads. If they take too much memory, all are
    dropped.

    `most`: maximum number of bytes. `copies`: whether to copy each partition; otherwise views would keep
    frames with more columns in memory.
    """

    def __init__(self, most: int, copies: bool) -> None:
        self.frames: dict[int, Frame] | None = {}
        self.bytes = 0.0
        self._most, self._copies = most, copies
        self._lock = threading.Lock()

    def __dask_tokenize__(self) -> Any:
        return "dask_simjoin.PassedRows"

    def add(self, number: int, frame: Frame) -> None:
        """Add a partition. If the rows now take too much memory, drop all of them."""
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
    """Keeps the rows of sources, up to `most` bytes in all. The oldest rows are dropped first.

    Without a cluster, rows are kept in this process. On a cluster, each worker keeps the rows that it has
    read. A join takes rows out of the cache when its graph is made. From then on they live as long as the
    graph.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: weakref.WeakKeyDictionary[FrozenSource, tuple[Expr, float]] = weakref.WeakKeyDictionary()
        self._taken: weakref.WeakKeyDictionary[FrozenSource, weakref.ref[Expr]] = weakref.WeakKeyDictionary()
        # reentrant, because garbage collection may remove sources while this thread holds the lock
        self._lock = threading.RLock()

    def passed(self, source: FrozenSource, library: str) -> PassedRows | None:
        """Return a collector for the rows of a source; None if other processes read them, or if they are on a
        GPU.
        """
        if _elsewhere() or frames_of_library(library).memory() is not None:
            return None
        return PassedRows(self.most, not isinstance(source.simple, IO))

    def keep(self, source: FrozenSource, passed: PassedRows) -> None:
        """Keep the rows of a source until a join takes them, or until newer rows need the memory."""
        frames, inner = passed.frames, source.inner
        if frames is None or len(frames) < inner.npartitions:
            return
        name = _new_name(source)
        layer = {(f"{name}-read", n): frames[n] for n in range(inner.npartitions)}
        self._keep(source, name, layer, passed.bytes)

    def read_on_workers(self, source: FrozenSource, library: str) -> FrozenSource:
        """Let the workers of a cluster read and keep the rows of a source. Return a source with these rows.

        Without a cluster, or if the rows would take too much of the workers' memory, return the source
        itself.
        """
        client, number = current_client(), source.inner.npartitions
        if client is None or client.asynchronous or frames_of_library(library).memory() is not None:
            return source
        resources = resources_for(library)
        most = (resources.limit or 0) * resources.workers // SHARE
        if not most:
            return source
        expr = optimise_in_place(source.inner)
        by_partition = all(isinstance(node, (Blockwise, IO)) for node in expr.walk())
        graph, keys = dict(expr.__dask_graph__()), expr.__dask_keys__()
        shares: Shares = {None: keys}
        if by_partition:
            shares = shared_by_workers(keys, client.nthreads())
        probed = {keys[number * k // PROBES] for k in range(PROBES)}
        some = {worker: [key for key in share if key in probed] for worker, share in shares.items()}
        read = _submitted(client, graph, some)
        size = max(client.gather(client.map(_bytes, read, key="simjoin_size", pure=False))) * number
        if size > most:
            return source
        layer = {future.key: future for future in _submitted(client, graph, shares)}
        return FrozenSource(self._keep(source, _new_name(source), layer, self.most * size / most))

    def _keep(self, source: FrozenSource, name: str, layer: dict[Any, Any], size: float) -> Expr:
        """Keep the partitions of a source under a name. While all kept rows exceed `most` bytes, drop the
        oldest.
        """
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
        """Take the kept rows of a source out of the cache. If there are none, return the source itself.

        Until the graphs that refer to these rows are deleted, other joins can take them as well.
        """
        with self._lock:
            rows = self._found(source)
            if rows is not None and self._kept.pop(source, None) is not None:
                self._taken[source] = weakref.ref(rows)
        return source if rows is None else FrozenSource(rows)

    def look_up(self, source: FrozenSource) -> FrozenSource:
        """Return the same as `take`, but leave the rows in the cache."""
        with self._lock:
            rows = self._found(source)
        return source if rows is None else FrozenSource(rows)

    def _found(self, source: FrozenSource) -> Expr | None:
        """Return the kept rows of a source; None if there are none that the current scheduler can use."""
        rows = self._kept[source][0] if source in self._kept else None
        if rows is None and source in self._taken:
            rows = self._taken[source]()
        if rows is None:
            return None
        parts = list(rows.operand("layer").values())
        # only futures, which refer to rows on a cluster, have a client
        client = getattr(parts[0], "client", None)
        if client is None:
            return None if _elsewhere() else rows
        # a worker has lost rows, for example in a restart
        lost = any(future.status not in ("pending", "finished") for future in parts)
        return None if lost or client is not current_client() else rows


ROWS = RowCache(MEMORY_LIMIT // SHARE)
