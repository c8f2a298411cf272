"""Freeze the expressions of sources, compute functions of their partitions, and keep their rows.

If a step reads few columns, Dask may merge partitions of a source.  Chunks would then have other rows than
planned.  So a source is frozen: it is hidden from Dask's optimizer, and optimized here without merging.

Rows that planning reads from files are kept until the join needs them, so that each file is read only once.
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
    """An expression that is hidden from Dask's optimizer, and the plans that were made for it.

    `expr`: the expression.  `is_final`: whether Dask's optimizer cannot change its number of partitions.
    """

    def __init__(self, expr: Expr, is_final: bool = True) -> None:
        self._expr, self._is_final = expr, is_final
        self.plans: dict[Any, Any] = {}
        self.lock = threading.Lock()
        self._steps: dict[str, FrozenSource] = {}
        self.small: Any = None  # a `SmallFrame` that was read for planning, and is still needed by the tasks

    @functools.cached_property
    def inner(self) -> Expr:
        """The expression; lowering a frame may compute something in Dask, so it waits until it is needed."""
        return self._expr if self._is_final else _with_final_partitions(self._expr)

    @functools.cached_property
    def simple(self) -> Expr:
        """The simplified expression, without projections that keep all columns."""
        return self.inner.simplify()

    def in_step(self, frame: Expr) -> FrozenSource:
        """Freeze a frame as Dask has optimized it; equal frames share a frozen source and its plans."""
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
    """Return a frozen source with some columns of a Dask DataFrame.

    The columns have the order of the frame: in any other order, Dask's readers would copy each partition.
    """
    wanted, whole = set(columns), ddf.expr
    while isinstance(whole, Projection):
        whole = whole.frame
    if type(whole) is FromPandas:
        seed_divisions(whole)
    return FrozenSource(ddf.expr[[name for name in ddf.columns if name in wanted]], is_final=False)


def _with_final_partitions(expr: Expr) -> Expr:
    """Return an equal expression whose number of partitions does not change when Dask lowers it.

    For example, Dask removes a shuffle into three partitions if `drop_duplicates` follows.  The number of
    partitions is then that before the shuffle.
    """
    if all(isinstance(node, (Blockwise, IO)) for node in expr.walk()):
        return expr
    lowered = _lowered(expr)
    return expr if lowered.npartitions == expr.npartitions else Given(FrozenSource(lowered))


def _lowered(expr: Expr) -> Expr:
    """Lower an expression, or return it unchanged if Dask cannot sort names that are not strings."""
    try:
        return expr.simplify().lower_completely().simplify()
    except TypeError:
        return expr


def computed_once(ddf: Frame) -> Frame:
    """Return an equal frame whose rows are the same for all steps of a graph.

    Without it, Dask may optimize each step on its own and compute the frame several times.  After a shuffle,
    rows can then have another order in each step, so their positions would not fit together.
    """
    return new_collection(Given(FrozenSource(_lowered(ddf.expr)))) if may_move(ddf.expr) else ddf


STEADY = (Blockwise, IO, CumulativeAggregations, Repartition, Partitions)
"""Expressions that return the same rows in the same order each time they are run."""


def may_move(frame: Expr) -> bool:
    """Return whether the rows of a frame may have another order when it is run again."""
    return not all(isinstance(node, STEADY) for node in frame.walk())


def optimise_in_place(expr: Expr) -> Expr:
    """Optimize an expression without those steps of Dask's optimizer that may merge partitions."""
    return _labelled(expr.simplify().lower_completely().simplify().fuse(), {})


def _labelled(expr: Expr, known: dict[str, Expr]) -> Expr:
    """If a fused expression ends in a step of a join, give it the label of that step."""
    if expr._name not in known:
        operands = [_labelled(one, known) if isinstance(one, Expr) else one for one in expr.operands]
        named = isinstance(expr, Fused) and isinstance(expr.exprs[0], MapPartition)
        changed = named or any(new is not old for new, old in zip(operands, expr.operands, strict=True))
        known[expr._name] = (LabelledFused if named else type(expr))(*operands) if changed else expr
    return known[expr._name]


def optimise_beside(frame: Expr) -> Expr:
    """Optimize a frame, and fix its partitions: each keeps its rows.

    If any step does not work partition by partition, all tasks are fixed as well.  If Dask optimized such a
    step again, rows could move to other partitions, or change their order.
    """
    if all(isinstance(node, (Blockwise, IO)) for node in frame.walk()):
        return _held(frame.lower_completely(), {}).simplify()
    columns, whole = list(frame.columns), frame
    while isinstance(whole, Projection) and not isinstance(whole.frame, RowValues):
        whole = whole.frame
    return Given(FrozenSource(whole.lower_completely().simplify()))[columns]


def _held(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Insert a `FilterBarrier` beneath each filter of an expression."""
    if expr._name not in known:
        operands = [
            _held(operand, known) if isinstance(operand, Expr) else operand for operand in expr.operands
        ]
        if isinstance(expr, Filter):
            operands[0] = FilterBarrier(operands[0])
        changed = any(new is not old for new, old in zip(operands, expr.operands, strict=True))
        # unchanged expressions are not copied: for the name of a copy, Dask would hash all its rows
        known[expr._name] = type(expr)(*operands) if changed else expr
    return known[expr._name]


class FilterBarrier(Blockwise):
    """Pass a frame on; Dask moves no filter beneath this step."""

    _parameters = ["frame"]
    _projection_passthrough = True

    @staticmethod
    def operation(frame: Frame) -> Frame:
        """Pass the frame on."""
        return frame


class Given(Expr):
    """A frame whose tasks are fixed, so that Dask does not optimize them again."""

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
    """Call `function` for each partition of the source, in the same task that reads the partition.

    `each`: for each partition, a second argument; None: there is none.
    """
    return optimise_in_place(MapPartition(source.inner, name, function, args, each))


class Listed(Sequence[Any]):
    """A sequence of plain values, such as numbers and texts for each partition, with a fast Dask token.

    The token is made from one text.  Dask would make a token for each item, which takes longer than planning.
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
    """Call a function for each partition; the results may be any objects."""

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
    """Several expressions as one task, which has the label of the last step: it belongs to a join."""

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.exprs[0].operand('label')}-{self.deterministic_token}"


def is_held(frame: Expr) -> TypeGuard[FromGraph]:
    """Return whether all partitions of a frame are in memory, in this process or on a cluster."""
    if not isinstance(frame, FromGraph):
        return False
    return not any(isinstance(value, (GraphNode, tuple, list)) for value in frame.operand("layer").values())


def held_keys(frame: FromGraph) -> list[Any]:
    """List the keys of partitions in memory; the keys of the expression itself are only aliases."""
    return list(frame.operand("keys"))


def gather(graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """Compute keys of a graph with the scheduler that Dask would use.

    Each value is sent from the worker that has it.  If a task listed all values, one worker would hold them
    all: 134 MB of samples in 256 dimensions killed workers with 600 MB.
    """
    if not keys:
        return []
    end_without_workers(current_client())
    run = get_scheduler(cls=Delayed)
    return list(run(cull(graph, keys)[0], keys))


SHARE = 16
"""Kept rows may take 1 / SHARE of the memory: of this process, or of all workers."""

PROBES = 4
"""Workers first read this many partitions, to estimate the memory of all partitions."""

_NUMBERS = itertools.count()


def _elsewhere() -> bool:
    """Return whether other processes than this one run the tasks."""
    return current_client() is not None or dask.config.get("scheduler", None) in PROCESSES


def _bytes(frame: Frame) -> float:
    """Return the estimated memory of a partition."""
    row_bytes = sum(value_bytes(frame[name]) for name in frame.columns)
    if not isinstance(frame.index, pd.RangeIndex):
        row_bytes += value_bytes(frame.index)
    return float(row_bytes * len(frame))


def _new_name(source: FrozenSource) -> str:
    """Return a new, unique name for the rows of a source."""
    return f"simjoin_rows-{next(_NUMBERS)}-{source.inner._name}"


Shares = dict[str | None, list[Any]]
"""The keys of partitions that each worker reads; with None instead of a worker, any worker reads them."""


def shared_by_workers(keys: list[Any], threads: dict[str, int]) -> Shares:
    """Share out keys of partitions, in proportion to the threads of workers; each gets consecutive ones.

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
    """The rows of a source under a given name, because Dask would hash all values to make a name."""

    @functools.cached_property
    def _name(self) -> str:
        return str(self.operand("name_prefix"))


class PassedRows:
    """Collect the partitions that are read in a pass over a source; drop all if they take too much memory.

    `most`: largest number of bytes.  `copies`: whether to copy partitions, because they may be views of
    frames with more columns.
    """

    def __init__(self, most: int, copies: bool) -> None:
        self.frames: dict[int, Frame] | None = {}
        self.bytes = 0.0
        self._most, self._copies = most, copies
        self._lock = threading.Lock()

    def __dask_tokenize__(self) -> Any:
        return "dask_simjoin.PassedRows"

    def add(self, number: int, frame: Frame) -> None:
        """Add a partition, unless the rows take too much memory."""
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
    """Keep the rows of sources, up to `most` bytes; the oldest rows are dropped first.

    Without a cluster, rows are kept in this process.  On a cluster, each worker keeps the rows that it reads.
    A join takes rows out of the cache when its graph is made, so they live as long as the graph.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: weakref.WeakKeyDictionary[FrozenSource, tuple[Expr, float]] = weakref.WeakKeyDictionary()
        self._taken: weakref.WeakKeyDictionary[FrozenSource, weakref.ref[Expr]] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()  # garbage collection may remove sources while the lock is held

    def passed(self, source: FrozenSource, library: str) -> PassedRows | None:
        """Return a collector for the rows of a source; None: other processes read them, or GPUs hold them."""
        if _elsewhere() or frames_of_library(library).memory() is not None:
            return None
        return PassedRows(self.most, not isinstance(source.simple, IO))

    def keep(self, source: FrozenSource, passed: PassedRows) -> None:
        """Keep the rows of a source until a join takes them, or until other rows need the memory."""
        frames, inner = passed.frames, source.inner
        if frames is None or len(frames) < inner.npartitions:
            return
        name = _new_name(source)
        layer = {(f"{name}-read", n): frames[n] for n in range(inner.npartitions)}
        self._keep(source, name, layer, passed.bytes)

    def read_on_workers(self, source: FrozenSource, library: str) -> FrozenSource:
        """Let the workers of a cluster read and keep the rows of a source; return the rows as a source.

        Without a cluster, or if the rows take too much of the workers' memory, return the source itself.
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
        """Keep the partitions of a source under a name; drop the oldest rows if all exceed `most` bytes."""
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
        """Take the kept rows of a source out of the cache; without kept rows, return the source itself.

        Other joins can also take the rows as long as a graph refers to them.
        """
        with self._lock:
            rows = self._found(source)
            if rows is not None and self._kept.pop(source, None) is not None:
                self._taken[source] = weakref.ref(rows)
        return source if rows is None else FrozenSource(rows)

    def look_up(self, source: FrozenSource) -> FrozenSource:
        """Return what `take` would return, but leave the rows in the cache."""
        with self._lock:
            rows = self._found(source)
        return source if rows is None else FrozenSource(rows)

    def _found(self, source: FrozenSource) -> Expr | None:
        """Return the kept rows of a source; None: the processes that would run tasks now do not have them."""
        rows = self._kept[source][0] if source in self._kept else None
        if rows is None and source in self._taken:
            rows = self._taken[source]()
        if rows is None:
            return None
        parts = list(rows.operand("layer").values())
        client = getattr(parts[0], "client", None)  # only futures have one
        if client is None:
            return None if _elsewhere() else rows
        lost = any(future.status not in ("pending", "finished") for future in parts)  # after a restart
        return None if lost or client is not current_client() else rows


ROWS = RowCache(MEMORY_LIMIT // SHARE)
