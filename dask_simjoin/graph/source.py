"""Freeze the expressions of sources, call functions on their partitions, and keep rows that were read.

If a step reads few columns, Dask may merge partitions of a source. Chunks would then have other rows than
planned. So a source is frozen: it is hidden from Dask's optimizer, and optimized in this module without
merging.

Rows that planning reads from files are kept for the tasks of the join, so that each file is read only once.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import dask
import pandas as pd
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.optimization import cull
from dask.tokenize import normalize_token
from distributed import Client, Future

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import value_bytes
from dask_simjoin.graph.base import RowValues, aliases
from dask_simjoin.graph.dask_private import (
    IO,
    Blockwise,
    CumulativeAggregations,
    Expr,
    Filter,
    FromGraph,
    FromPandas,
    Fused,
    GraphNode,
    Partitions,
    Projection,
    Repartition,
    Task,
    TaskRef,
    new_collection,
    seed_divisions,
)
from dask_simjoin.graph.workers import end_without_workers, on_worker
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import MEMORY_LIMIT
from dask_simjoin.planning.resources import PROCESSES, resources_for
from dask_simjoin.request.options import current_client


class FrozenSource:
    """An expression that is hidden from Dask's optimizer, with the plans of the joins that read it.

    `expr`: the expression.  `is_final`: whether Dask's optimizer cannot change its number of partitions.
    """

    def __init__(self, expr: Expr, is_final: bool = True) -> None:
        self._expr, self._is_final = expr, is_final
        self.plans: dict[Any, Any] = {}
        self.lock = threading.Lock()
        self._steps: dict[str, FrozenSource] = {}
        self.small: Any = None  # a `SmallFrame` that planning has read, and that the tasks still need

    @functools.cached_property
    def inner(self) -> Expr:
        """The expression to compute. Lowering a frame may run a computation in Dask, so it is delayed until
        now.
        """
        return self._expr if self._is_final else _with_final_partitions(self._expr)

    @functools.cached_property
    def simple(self) -> Expr:
        """The simplified expression, without projections that keep all columns."""
        return self.inner.simplify()

    def in_step(self, frame: Expr) -> FrozenSource:
        """Freeze a frame as Dask has optimized it. Equal frames share one frozen source and its plans."""
        frame = optimise_beside(frame)
        with self.lock:
            return self._steps.setdefault(frame._name, FrozenSource(frame))

    def __reduce__(self) -> Any:
        return FrozenSource, (self.inner,)

    def __dask_tokenize__(self) -> Any:
        return normalize_token(("dask_simjoin.FrozenSource", self._expr._name))

    def __repr__(self) -> str:
        return f"<{self._expr._name}>"


def freeze(ddf: Frame, columns: list[Any]) -> FrozenSource:
    """Return a frozen source that reads some columns of a Dask DataFrame.

    The columns keep the order of the frame. With any other order, Dask's readers would copy each partition.
    """
    wanted, whole = set(columns), ddf.expr
    while isinstance(whole, Projection):
        whole = whole.frame
    if type(whole) is FromPandas:
        seed_divisions(whole)
    return FrozenSource(ddf.expr[[name for name in ddf.columns if name in wanted]], is_final=False)


def _with_final_partitions(expr: Expr) -> Expr:
    """Return an equal expression whose number of partitions stays the same when Dask lowers it.

    For example, Dask removes a shuffle into three partitions if `drop_duplicates` follows.  The frame then
    has as many partitions as before the shuffle.
    """
    if all(isinstance(node, (Blockwise, IO)) for node in expr.walk()):
        return expr
    lowered = _lowered(expr)
    return expr if lowered.npartitions == expr.npartitions else Given(FrozenSource(lowered))


def _lowered(expr: Expr) -> Expr:
    """Lower an expression. If that fails, because Dask cannot sort names that are not strings, return it
    unchanged.
    """
    try:
        return expr.simplify().lower_completely().simplify()
    except TypeError:
        return expr


def computed_once(ddf: Frame) -> Frame:
    """Return an equal frame that all steps of a graph read from the same tasks.

    Otherwise Dask may optimize each step on its own, and compute the frame several times. After a shuffle,
    rows may then have another order in each step, so their positions would not agree.
    """
    return new_collection(Given(FrozenSource(_lowered(ddf.expr)))) if may_move(ddf.expr) else ddf


STEADY = (Blockwise, IO, CumulativeAggregations, Repartition, Partitions)
"""Expressions that return the same rows in the same order each time they are computed."""


def may_move(frame: Expr) -> bool:
    """Return whether the rows of a frame may have another order when they are computed again."""
    return not all(isinstance(node, STEADY) for node in frame.walk())


def optimise_in_place(expr: Expr) -> Expr:
    """Optimize an expression, but without the steps of Dask's optimizer that may merge partitions."""
    return _labelled(expr.simplify().lower_completely().simplify().fuse(), {})


def _labelled(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Give fused expressions that end in a step of a join the label of that step."""
    if expr._name not in known:
        operands = [_labelled(one, known) if isinstance(one, Expr) else one for one in expr.operands]
        named = isinstance(expr, Fused) and isinstance(expr.exprs[0], MapPartition)
        changed = named or any(new is not old for new, old in zip(operands, expr.operands, strict=True))
        known[expr._name] = (LabelledFused if named else type(expr))(*operands) if changed else expr
    return known[expr._name]


def optimise_beside(frame: Expr) -> Expr:
    """Optimize a frame so that each partition keeps its rows.

    If some step does not work partition by partition, fix all tasks as well. If Dask optimized such a step
    again, rows could move to other partitions, or change their order.
    """
    if all(isinstance(node, (Blockwise, IO)) for node in frame.walk()):
        return _held(frame.lower_completely(), {}).simplify()
    columns, whole = list(frame.columns), frame
    while isinstance(whole, Projection) and not isinstance(whole.frame, RowValues):
        whole = whole.frame
    return Given(FrozenSource(whole.lower_completely().simplify()))[columns]


def _held(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Insert a `FilterBarrier` below each filter of an expression."""
    if expr._name not in known:
        operands = [
            _held(operand, known) if isinstance(operand, Expr) else operand for operand in expr.operands
        ]
        if isinstance(expr, Filter):
            operands[0] = FilterBarrier(operands[0])
        changed = any(new is not old for new, old in zip(operands, expr.operands, strict=True))
        # copy only expressions that changed: to name a copy, Dask would hash all its rows
        known[expr._name] = type(expr)(*operands) if changed else expr
    return known[expr._name]


class FilterBarrier(Blockwise):
    """Returns a frame unchanged. Dask moves no filter below this step."""

    _parameters = ["frame"]
    _projection_passthrough = True

    @staticmethod
    def operation(frame: Frame) -> Frame:
        """Return the frame unchanged."""
        return frame


class Given(Expr):
    """A frame whose tasks are given, so that Dask cannot optimize them again."""

    _parameters = ["frozen"]

    @property
    def _meta(self) -> Any:
        return self.operand("frozen").inner._meta

    def _divisions(self) -> Any:
        return self.operand("frozen").inner.divisions

    def _layer(self) -> dict[Any, Any]:
        inner = self.operand("frozen").inner
        return dict(inner.__dask_graph__()) | aliases(self._name, inner.__dask_keys__())


def map_frozen(name: str, function: Callable[..., Any], source: FrozenSource, *args: Any,
               each: Any = None) -> Expr:  # fmt: skip
    """Call `function` for each partition of a source, in the task that reads the partition.

    `each`: a second argument for each partition; None: there is no second argument.
    """
    return optimise_in_place(MapPartition(source.inner, name, function, args, each))


class Listed(Sequence[Any]):
    """A sequence of plain values, for example one per partition, whose Dask token is made quickly.

    The token is made from one text. For a list, Dask would make a token of each item, which takes longer than
    planning.
    """

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = tuple(items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        return self._items[place]

    def __dask_tokenize__(self) -> Any:
        return normalize_token(("dask_simjoin.Listed", repr(self._items)))


class MapPartition(Blockwise):
    """Calls a function for each partition. The results may be any objects, not only frames."""

    _parameters = ["frame", "label", "function", "arguments", "each", "meta", "shared"]
    _defaults = {"each": None, "meta": None, "shared": None}

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("meta")

    def _divisions(self) -> Any:
        return self.frame.divisions

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.operand('label')}-{self.deterministic_token}"

    def _task(self, name: Any, index: int) -> Task:
        frame = TaskRef(held_keys(self.frame)[index] if is_held(self.frame) else (self.frame._name, index))
        each = self.operand("each")
        own = () if each is None else (each[index],)
        if self.operand("shared") is not None:
            own += (self.operand("shared").ref,)
        return Task(name, on_worker, self.operand("function"), frame, *own, *self.operand("arguments"))


class LabelledFused(Fused):
    """Several expressions, fused to one task. The last one is a step of a join; the task has its label."""

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.exprs[0].operand('label')}-{self.deterministic_token}"


def is_held(frame: Expr) -> TypeGuard[FromGraph]:
    """Return whether all partitions of a frame are in memory, in this process or on a cluster."""
    if not isinstance(frame, FromGraph):
        return False
    return not any(isinstance(value, (GraphNode, tuple, list)) for value in frame.operand("layer").values())


def held_keys(frame: FromGraph) -> list[Any]:
    """List the keys of the partitions in memory. Keys with the name of the expression are only aliases for
    them.
    """
    return list(frame.operand("keys"))


def gather(graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """Compute keys of a graph with the scheduler that Dask would use here.

    Each value is sent directly from the worker that has it. If a task made a list of all values, one worker
    would hold them all. For 256 dimensions, 134 MB of samples exceeded the memory of workers with 600 MB.
    """
    if not keys:
        return []
    end_without_workers(current_client())
    run = get_scheduler(cls=Delayed)
    return list(run(cull(graph, keys)[0], keys))


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
