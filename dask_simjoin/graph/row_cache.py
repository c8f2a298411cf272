"""Keep the rows that planning reads from files for the tasks of the join.

So each file is read only once. Without a cluster, rows are kept in this process. On a
cluster, each worker keeps the rows that it has read.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import dask
import numpy as np
import pandas as pd
from dask.optimization import cull
from distributed import Client, Future, as_completed, wait

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import value_bytes
from dask_simjoin.engine.process import forkable
from dask_simjoin.graph.dask_private import (
    IO,
    Blockwise,
    Expr,
    FromGraph,
    without_token,
)
from dask_simjoin.graph.placement import place_tasks
from dask_simjoin.graph.source import (
    FrozenSource,
    MapPartition,
    map_frozen,
    optimise_in_place,
)
from dask_simjoin.graph.workers import outside_pool
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.limits import MEMORY_LIMIT
from dask_simjoin.planning.resources import PROCESSES, limits_for
from dask_simjoin.request.options import current_client
from dask_simjoin.sizes import CACHE_SHARE, FEW

_NUMBERS = itertools.count()


def _elsewhere() -> bool:
    """Return whether tasks run in other processes than this one."""
    return (
        current_client() is not None or dask.config.get("scheduler", None) in PROCESSES
    )


def _bytes(frame: Frame) -> float:
    """Return the estimated memory of a partition in bytes."""
    # without selecting each column, which took 6 ms for 384 columns
    row_bytes = sum(
        dtype.itemsize
        if isinstance(dtype, np.dtype) and dtype.kind != "O"
        else value_bytes(frame[name])
        for name, dtype in zip(frame.columns, frame.dtypes, strict=True)
    )
    if not isinstance(frame.index, pd.RangeIndex):
        row_bytes += value_bytes(frame.index)
    return float(row_bytes * len(frame))


def _new_name(source: FrozenSource) -> str:
    """Return a name for the rows of a source that is unique in this process."""
    return f"simjoin_rows-{next(_NUMBERS)}-{source.inner._name}"


Shares = dict[str | None, list[Any]]
"""The keys of partitions that each worker reads; with None instead of a worker, any
worker reads them.
"""


def shared_by_workers(keys: list[Any], threads: dict[str, int]) -> Shares:
    """Divide the keys of partitions among workers, in proportion to their threads. Each
    gets consecutive keys.

    Chunks consist of consecutive partitions, so workers index them without sending
    rows.
    """
    each = [worker for worker in sorted(threads) for _ in range(threads[worker])]
    shares: Shares = {}
    for n, key in enumerate(keys):
        shares.setdefault(each[n * len(each) // len(keys)], []).append(key)
    return shares


def _with_bytes(
    frame: Frame, number: int, function: Callable[..., Any], *args: Any
) -> tuple[float, Any]:
    """Return the estimated memory of a partition in bytes, and ``function(frame,
    number, *args)``.
    """
    return _bytes(frame), function(frame, number, *args)


class KeptRows(FromGraph):
    """The rows of a source, with a given name. Without this name, Dask would hash all
    values to make one.
    """

    @functools.cached_property
    def _name(self) -> str:
        return str(self.operand("name_prefix"))


class PassedRows:
    """Collects the partitions that one pass over a source reads. If they take too much
    memory, all are dropped.

    `most`: maximum number of bytes. `copies`: whether to copy each partition; otherwise
    views would keep frames with more columns in memory.
    """

    def __init__(self, most: int, copies: bool) -> None:
        self.frames: dict[int, Frame] | None = {}
        self.bytes = 0.0
        self._most, self._copies = most, copies
        self._lock = forkable(threading.Lock())

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


class WorkersPass:
    """One pass of a cluster's workers over a source. They read partitions, keep them,
    and call a function on each.

    The function is called as soon as its partition is read, and the results are
    gathered meanwhile. They show how much memory all partitions would take. If it is
    more than `most` bytes, the rows are dropped, and partitions that no worker has yet
    are read without keeping them.
    """

    def __init__(
        self,
        client: Client,
        source: FrozenSource,
        most: float,
        label: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        each: Sequence[Any],
    ) -> None:
        self._client, self._most = client, most
        self._step = label, _with_bytes, source, function, *args
        self._each = each
        read = optimise_in_place(source.inner)
        self._by_partition = all(
            isinstance(node, (Blockwise, IO)) for node in read.walk()
        )
        step = MapPartition(read, label, _with_bytes, (function, *args), each)
        self._graph, self._keys = (
            dict(step.__dask_graph__()),
            list(step.__dask_keys__()),
        )
        self._rows = list(read.__dask_keys__())
        self._together = 1  # number of results to gather together
        # the results that are still to come, of each graph
        self._submitted: list[list[Future]] = []
        self.fit = True  # whether all partitions seem to take at most `most` bytes
        self.kept: dict[int, Future] = {}  # the partitions that workers keep
        self.results: dict[int, Any] = {}
        self.bytes = 0.0  # estimated memory of the partitions with results

    def run(self) -> list[Any]:
        """Run the pass; return the results in the order of the partitions."""
        with outside_pool():
            self._client.sync(self._run, *self._shares())
        return [self.results[n] for n in range(len(self._keys))]

    async def _run(self, first: Shares, rest: Shares) -> None:
        try:
            waiting = as_completed(self._submit(first), loop=self._client.loop)
            done: list[Future] = []
            async for future in waiting:
                done.append(future)
                # gather few results at a time, but not each on its own
                if self.results and len(done) < self._together and waiting.count():
                    continue
                found = await self._client.gather(done, asynchronous=True)
                for (_, number), (size, result) in zip(
                    (one.key for one in done), found, strict=True
                ):
                    self._add(number, size, result)
                done = []
                if rest:
                    waiting.update(self._submit(rest))
                    rest = {}
        except BaseException:
            await self._release()
            raise

    def _add(self, number: int, size: float, result: Any) -> None:
        """Add the size of a partition and the result of its function."""
        self.results[number] = result
        self.bytes += size
        if self.fit and self.bytes * len(self._keys) <= self._most * len(self.results):
            return
        # only partitions with results: the scheduler ignores that others are released
        # if their graph has not arrived yet, and would keep them
        for n in list(self.results) if self.fit else [number]:
            self.kept.pop(n, None)
        self.fit = False

    async def _release(self) -> None:
        """Release all futures after an error, which would keep them."""
        for futures in self._submitted:
            # see `_add`: the graph has arrived as soon as one of its tasks is done
            if not any(future.done() for future in futures):
                with contextlib.suppress(Exception):
                    await wait(futures, return_when="FIRST_COMPLETED")
        for future in (
            *itertools.chain.from_iterable(self._submitted),
            *self.kept.values(),
        ):
            future.release()

    def _shares(self) -> tuple[Shares, Shares]:
        """Divide the numbers of the partitions among workers: the first ones, and the
        rest.

        If partitions depend on each other, for example by a shuffle, all of them are
        the first ones.
        """
        numbers = list(range(len(self._keys)))
        # without the plugin, a task whose preferred worker has left may never run
        if not self._by_partition or place_tasks() is None:
            return {None: numbers}, {}
        threads = self._client.nthreads()
        number = sum(threads.values())
        self._together = number * min(max(2, len(numbers) // (FEW * number)), FEW)
        shares = shared_by_workers(numbers, threads)
        first = {worker: own[: FEW * threads[worker]] for worker, own in shares.items()}
        rest = {worker: own[FEW * threads[worker] :] for worker, own in shares.items()}
        return first, {worker: own for worker, own in rest.items() if own}

    def _submit(self, shares: Shares) -> list[Future]:
        """Let workers pass over their partitions; return the futures of the results."""
        numbers = [n for own in shares.values() for n in own]
        if self.fit:
            graph: dict[Any, Any] = {}
            where: dict[Any, list[str]] = {}
            for worker, own in shares.items():
                part = cull(
                    self._graph,
                    [keys[n] for keys in (self._keys, self._rows) for n in own],
                )[0]
                graph |= part
                where |= {} if worker is None else {key: [worker] for key in part}
            # all workers get their tasks by one graph, because the scheduler needs some
            # milliseconds for each
            on = {"workers": where.get, "allow_other_workers": True} if where else {}
            wanted = [keys[n] for keys in (self._keys, self._rows) for n in numbers]
        else:
            expr = map_frozen(*self._step, each=self._each)
            wanted, on = [expr.__dask_keys__()[n] for n in numbers], {}
            graph = cull(dict(expr.__dask_graph__()), wanted)[0]
        with dask.annotate(**on):
            made = list(self._client.get(without_token(graph), wanted, sync=False))
        self.kept.update(zip(numbers, made[len(numbers) :], strict=False))
        self._submitted.append(made[: len(numbers)])
        return self._submitted[-1]


class RowCache:
    """Keeps the rows of sources, up to `most` bytes in all. The oldest rows are dropped
    first.

    Without a cluster, rows are kept in this process. On a cluster, each worker keeps
    the rows that it has read. A join takes rows out of the cache when its graph is
    made. From then on they live as long as the graph.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: weakref.WeakKeyDictionary[FrozenSource, tuple[Expr, float]] = (
            weakref.WeakKeyDictionary()
        )
        self._taken: weakref.WeakKeyDictionary[FrozenSource, weakref.ref[Expr]] = (
            weakref.WeakKeyDictionary()
        )
        # reentrant, because garbage collection may remove sources while this thread
        # holds the lock
        self._lock = forkable(threading.RLock())

    def passed(self, source: FrozenSource, library: str) -> PassedRows | None:
        """Return a collector for the rows of a source; None if other processes read
        them, or if they are on a GPU.
        """
        if _elsewhere() or frames_of_library(library).memory() is not None:
            return None
        return PassedRows(self.most, not isinstance(source.simple, IO))

    def keep(self, source: FrozenSource, passed: PassedRows) -> None:
        """Keep the rows of a source until a join takes them, or until newer rows need
        the memory.
        """
        frames, inner = passed.frames, source.inner
        if frames is None or len(frames) < inner.npartitions:
            return
        name = _new_name(source)
        layer = {(f"{name}-read", n): frames[n] for n in range(inner.npartitions)}
        self._keep(source, name, layer, passed.bytes)

    def pass_on_workers(
        self,
        source: FrozenSource,
        library: str,
        label: str,
        function: Callable[..., Any],
        *args: Any,
        each: Sequence[Any],
    ) -> list[Any] | None:
        """Let the workers of a cluster read and keep the rows of a source, and call a
        function on each partition.

        Return the results. Without a cluster, or for rows on a GPU, return None. For
        the other arguments, see `map_frozen`.
        """
        client = current_client()
        if (
            client is None
            or client.asynchronous
            or frames_of_library(library).memory() is not None
        ):
            return None
        limits = limits_for(library)
        most = (limits.limit or 0) * limits.workers // CACHE_SHARE
        if not most or not source.inner.npartitions:
            return None
        passed = WorkersPass(client, source, most, label, function, args, each)
        found = passed.run()
        if passed.fit:
            layer = {passed.kept[n].key: passed.kept[n] for n in range(len(found))}
            self._keep(
                source, _new_name(source), layer, self.most * passed.bytes / most
            )
        return found

    def _keep(
        self, source: FrozenSource, name: str, layer: dict[Any, Any], size: float
    ) -> Expr:
        """Keep the partitions of a source under a name. While all kept rows exceed
        `most` bytes, drop the oldest.
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
        """Take the kept rows of a source out of the cache. If there are none, return
        the source itself.

        Until the graphs that refer to these rows are deleted, other joins can take them
        as well.
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
        """Return the kept rows of a source; None if there are none that the current
        scheduler can use.
        """
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


ROWS = RowCache(MEMORY_LIMIT // CACHE_SHARE)
