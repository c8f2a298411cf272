"""Import and patch parts of Dask that it does not document: only this module must
change when Dask does.

Dask documents no way to define new expressions, so expressions of joins derive from
Dask's own classes. Once Dask documents one, the imports of `dask.dataframe.dask_expr`
and `dask._task_spec` can be removed.

Each patch keeps the original function as `__wrapped__`. A note says from when on the
patch can be removed.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
from dask import threaded
from dask._expr import LLGExpr, collect_dependents
from dask._task_spec import Alias, GraphNode, List, Task, TaskRef

# Can be removed once a public function converts texts as `from_pandas` does.
from dask.dataframe._pyarrow import to_pyarrow_string
from dask.dataframe.core import _concat as concat_partitions
from dask.dataframe.dask_expr import _expr, _merge, _shuffle, new_collection
from dask.dataframe.dask_expr._categorical import Categorize
from dask.dataframe.dask_expr._collection import FrameBase
from dask.dataframe.dask_expr._cumulative import CumulativeAggregations
from dask.dataframe.dask_expr._expr import (
    Blockwise,
    Elemwise,
    Expr,
    Filter,
    FilterAlign,
    Fused,
    Head,
    Partitions,
    PartitionsFiltered,
    Projection,
    Tail,
)
from dask.dataframe.dask_expr._indexing import LocBase
from dask.dataframe.dask_expr._reductions import Chunk as ReducedPartition
from dask.dataframe.dask_expr._reductions import CustomReduction, NLargest, TreeReduce
from dask.dataframe.dask_expr._repartition import Repartition, RepartitionToFewer
from dask.dataframe.dask_expr._shuffle import Shuffle, SortValues
from dask.dataframe.dask_expr.io.io import (
    IO,
    BlockwiseIO,
    FromGraph,
    FromPandas,
    FusedIO,
)
from dask.dataframe.dask_expr.io.parquet import ToParquetBarrier

# Can be removed once `read_csv` parses only the columns of a projection.
from dask.dataframe.io.csv import AUTO_BLOCKSIZE as AUTO_BLOCKSIZE

# Can be removed once a categorical dtype has a public attribute for categories that
# Dask does not know.
from dask.dataframe.utils import UNKNOWN_CATEGORIES

# Can be removed once the name in a task's key is a public attribute.
from dask.utils import key_split, natural_sort_key

# Can be removed with Python 3.11. There, all objects of a class share one lock per
# cached property. Reading the divisions of a lazy join plans it, so tasks are computed
# while the lock is held. If the scheduler in this process then needs the divisions of
# another frame, it waits for the lock forever.
if sys.version_info < (3, 12):
    for _class in (Expr, PartitionsFiltered):
        _divisions: Any = vars(_class)["divisions"]
        _divisions.lock = contextlib.nullcontext()


def drop_pools(module: Any = threaded) -> None:
    """Drop the thread pools of Dask's scheduler in a forked process, which has none of
    their threads.

    Tasks would wait for these threads forever. This function can be removed once Dask
    drops the pools.
    """
    pools = [pool for some in list(module.pools.values()) for pool in some.values()]
    for pool in (*pools, module.default_pool):
        if pool is not None:
            # it would wait for a lock that a missing thread may hold
            atexit.unregister(pool.shutdown)
    module.default_pool, module.pools_lock = None, threading.Lock()
    module.pools.clear()


os.register_at_fork(after_in_child=drop_pools)
# if this module is first imported after a fork
if any(
    not thread.is_alive() for thread in getattr(threaded.default_pool, "_threads", ())
):
    drop_pools()

FILTER_MODULES = (_expr, _merge, _shuffle)
"""Dask's modules that import the function `FILTER_HOOK`."""

FILTER_HOOK = "is_filter_pushdown_available"
"""Name of Dask's function that decides whether a filter may move below a step."""

END_CLASSES = (Head, Tail)
"""Dask's expressions for the first and the last rows of a frame."""

CHOICE_HOOK = "_simplify_down"
"""Dask's method that simplifies a step, such as moving the head of a frame beneath
another step.
"""

REPR_HOOK = "_repr_divisions"
"""Name of Dask's property that returns the divisions shown in the repr of a collection.
"""

PERSIST_HOOK = "_postpersist"
"""Name of Dask's function that makes a collection of computed partitions."""

MARK = "of_simjoin"
"""Name of an attribute that marks functions of Dask as replaced by ours."""


def guard_filters(
    must_stay: Callable[[Any, Any], bool], modules: Iterable[Any] = FILTER_MODULES
) -> bool:
    """Keep Dask from moving a filter below a step if ``must_stay(step, condition)`` is
    true.

    Return False if one of the modules has no function `FILTER_HOOK`. A second call
    changes nothing. This patch can be removed once an expression can forbid that
    filters move below it.
    """
    complete = True
    for module in modules:
        available = getattr(module, FILTER_HOOK, None)
        if available is None:
            complete = False
        elif not hasattr(available, MARK):
            setattr(module, FILTER_HOOK, _guarded_filter(available, must_stay))
    return complete


def _guarded_filter(
    available: Callable[..., bool], must_stay: Callable[[Any, Any], bool]
) -> Callable[..., bool]:
    @functools.wraps(available)
    def guarded(expr: Expr, parent: Any, *args: Any, **kwargs: Any) -> bool:
        if not available(expr, parent, *args, **kwargs):
            return False
        condition = getattr(parent, "predicate", None)
        return not (isinstance(condition, Expr) and must_stay(expr, condition))

    setattr(guarded, MARK, True)
    return guarded


def guard_choices(
    must_stay: Callable[[Any], bool], classes: Iterable[Any] = END_CLASSES
) -> bool:
    """Keep Dask from moving a choice of rows, such as `Head`, below the steps of its
    frame if ``must_stay(choice)`` is true.

    Return False if one of the classes has no method `CHOICE_HOOK`. A second call
    changes nothing. This patch can be removed once an expression can forbid that heads
    and choices of partitions move below it.
    """
    complete = True
    for one in classes:
        moves = vars(one).get(CHOICE_HOOK)
        if moves is None:
            complete = False
        elif not hasattr(moves, MARK):
            setattr(one, CHOICE_HOOK, _guarded_choice(moves, must_stay))
    return complete


def _guarded_choice(
    moves: Callable[[Any], Expr | None], must_stay: Callable[[Any], bool]
) -> Callable[[Any], Expr | None]:
    @functools.wraps(moves)
    def guarded(expr: Any) -> Expr | None:
        return None if must_stay(expr) else moves(expr)

    setattr(guarded, MARK, True)
    return guarded


def guard_repr(
    shown_instead: Callable[[Any], Any], collections: type = FrameBase
) -> bool:
    """Let the repr of collections show ``shown_instead(expr)`` as their divisions,
    unless this is None.

    Return False if collections have no property `REPR_HOOK`. A second call changes
    nothing. This patch can be removed once an expression can say that its divisions are
    not known yet.
    """
    shown = vars(collections).get(REPR_HOOK)
    if not isinstance(shown, property) or shown.fget is None:
        return False
    if not hasattr(shown.fget, MARK):
        setattr(
            collections, REPR_HOOK, property(_guarded_repr(shown.fget, shown_instead))
        )
    return True


def _guarded_repr(divisions: Any, shown_instead: Callable[[Any], Any]) -> Any:
    @functools.wraps(divisions)
    def guarded(collection: Any) -> Any:
        instead = shown_instead(collection.expr)
        return divisions(collection) if instead is None else instead

    setattr(guarded, MARK, True)
    return guarded


def fuse_writes(
    is_ours: Callable[[Any], bool], barrier: type = ToParquetBarrier
) -> bool:
    """Let `to_parquet` write a partition in the task that makes it, if
    ``is_ours(step)`` is true for some step.

    Dask fuses steps in `compute` and `persist`, but not in `to_parquet`: a partition
    passed through four tasks, and workers sent partitions between them. Return False if
    Dask already simplifies this step. A second call changes nothing. This patch can be
    removed once Dask fuses writes.
    """
    simplify = vars(barrier).get(CHOICE_HOOK)
    if simplify is not None:
        return hasattr(simplify, MARK)

    def fused(written: Any) -> Expr | None:
        before = written.operand("frame")
        after = _fused_from_ours(before.simplify(), is_ours)
        return (
            None
            if after._name == before._name
            else type(written)(after, *written.operands[1:])
        )

    setattr(fused, MARK, True)
    setattr(barrier, CHOICE_HOOK, fused)
    return True


def _fused_from_ours(last: Expr, is_ours: Callable[[Any], bool]) -> Expr:
    """Fuse a step with the steps before it, except reads: partitions that were read may
    be in memory.
    """
    group, left, parents = (
        {last._name: last},
        [*last.dependencies()],
        collect_dependents(last),
    )
    for step in left:
        used = {
            found._name
            for parent in parents[step._name]
            if (found := parent()) is not None
        }
        alike = isinstance(step, Blockwise) and step.npartitions == last.npartitions
        if alike and used <= group.keys() and any(is_ours(one) for one in step.walk()):
            group[step._name] = step
            left += step.dependencies()
    fused = list(group.values())
    return FusedWrite(fused, *_inputs_of(fused)) if len(fused) > 1 else last


def _inputs_of(steps: list[Expr]) -> list[Expr]:
    """Return the inputs of steps, in order, that are not among these steps."""
    own = {step._name for step in steps}
    return [
        found
        for step in steps
        for found in step.dependencies()
        if found._name not in own
    ]


class FusedWrite(Fused):
    """Steps that are fused before Dask has finished its optimization, which may still
    replace the inputs: in `dependencies`, but not in `exprs`.
    """

    def _task(self, name: Any, index: int) -> Task:
        task = super()._task(name, index)
        pairs = zip(_inputs_of(self.exprs), self.dependencies(), strict=True)
        new = {old._name: found._name for old, found in pairs}
        subs = {
            key: (new[key[0]], *key[1:])
            for key in task.dependencies
            if new.get(key[0], key[0]) != key[0]
        }
        return task.substitute(subs)


def list_fused_columns(fused: type = Fused) -> bool:
    """Let a fused step request all columns of its inputs, not only the columns that it
    returns.

    `persist` optimizes a graph twice. The second time, Dask dropped columns that the
    fused steps read, so their inputs were missing. Return False if Dask itself lists
    the columns; then this patch can be removed.
    """
    if "_projection_columns" in vars(fused):
        return False
    fused._projection_columns = property(_columns_read)  # type: ignore[attr-defined]
    return True


def seed_divisions(frame: Any) -> None:
    """If the index of a `FromPandas` is a range, compute its divisions here, and store
    them where Dask looks for them.

    Dask would list and sort all labels, which takes 4 ms for 100,000 rows. For other
    indexes nothing is stored. This function can be removed once Dask divides a range
    without listing its labels.
    """
    held = frame.operand("frame")
    stored, index = getattr(held, "_division_info", None), held._data.index
    if stored is None or not isinstance(index, pd.RangeIndex) or index.step < 0:
        return
    parts, rows = frame.operand("npartitions"), len(index)
    key = (parts, frame.sort)
    if key in stored or parts is None or not 0 < parts <= rows:
        return
    size, more = divmod(rows, parts)
    locations = [size * n + min(n, more) for n in range(parts + 1)]
    stored[key] = [index[start] for start in locations[:-1]] + [index[-1]], locations


def frames_given(frame: Any) -> list[Any]:
    """Return the pandas frames that `from_pandas` has converted to a lazy frame.

    Dask may describe their big-endian columns as native ones.
    """
    expr = getattr(frame, "expr", None)
    nodes = expr.walk() if isinstance(expr, Expr) else ()
    return [
        node.operand("frame")._data for node in nodes if isinstance(node, FromPandas)
    ]


def without_categorize(frame: Any) -> Any:
    """Hide `categorize()` of a lazy frame from Dask's optimizer.

    When several selections of columns are moved before `categorize()`, Dask returns the
    columns of all of them for each. This can be removed once it returns only its own.
    """
    expr = getattr(frame, "expr", None)
    if not isinstance(expr, Expr) or not any(
        isinstance(node, Categorize) for node in expr.walk()
    ):
        return frame
    return frame.map_partitions(_unchanged, meta=frame._meta)


def _unchanged(rows: Any) -> Any:
    return rows


def without_token(graph: dict[Any, Any]) -> Expr:
    """Return a graph for `Client.get`, as an expression with a random token.

    From a dict, Dask makes such an expression with a token of all tasks. For 32 tasks
    this takes 11 ms, and meanwhile none of them can start. This function can be removed
    once Dask makes no token of a given graph.
    """
    return LLGExpr(graph, _determ_token=uuid.uuid4().hex)


def persist_without_token(prefix: str, collections: type = FrameBase) -> bool:
    """Let `persist` give results whose names begin with `prefix` a random token.

    Dask makes the token of all their rows, in the calling thread. For 13 million pairs
    this takes .1 s. Return False if collections have no function `PERSIST_HOOK`. A
    second call changes nothing. This patch can be removed once Dask makes no token of
    persisted rows.
    """
    rebuilt = getattr(collections, PERSIST_HOOK, None)
    if rebuilt is None:
        return False
    if not hasattr(rebuilt, MARK):
        setattr(
            collections, PERSIST_HOOK, staticmethod(_with_random_token(rebuilt, prefix))
        )
    return True


def _with_random_token(rebuilt: Callable[..., Any], prefix: str) -> Any:
    @functools.wraps(rebuilt)
    def named(rows: Any, meta: Any, divisions: Any, name: str) -> Any:
        if not name.startswith(prefix):
            return rebuilt(rows, meta, divisions, name)
        graph = rows, meta, divisions, sorted(rows), name
        return new_collection(FromGraph(*graph, _determ_token=uuid.uuid4().hex))

    setattr(named, MARK, True)
    return named


TRANSFER, UNPACK = "shuffle-transfer", "p2pshuffle"
"""Names of Dask's tasks that send rows by a p2p shuffle, and that receive a partition of
them.
"""


def fuse_with_shuffles(
    graph: dict[Any, Any], sending: str, receiving: str, finding: str | None = None
) -> dict[Any, Any]:
    """Fuse the tasks before and after p2p shuffles with the tasks that send and receive
    their rows.

    `sending`, `receiving`: names of the tasks that make rows to send, and of those that
    use received rows. `finding`: name of the tasks whose results only `sending` uses.
    No other task may use these rows or results. This function can be removed once Dask
    fuses these tasks.
    """
    before, fused = {TRANSFER: sending, receiving: UNPACK}, dict(graph)
    for key in graph:
        name = before.get(key_split(key))
        chain = [key]
        while name is not None:
            used = graph[chain[-1]].dependencies
            chain += [one for one in used if key_split(one) == name]
            name = finding if name == sending and len(chain) == 2 else None
        if len(chain) > 1:
            fused[key] = Task.fuse(*(fused.pop(one) for one in reversed(chain)))
    return fused


def _columns_read(fused: Any) -> list[Any]:
    # others are single values
    frames = [read for read in fused.dependencies() if read.ndim]
    return list(dict.fromkeys(column for read in frames for column in read.columns))


__all__ = [
    "CHOICE_HOOK",
    "END_CLASSES",
    "FILTER_HOOK",
    "FILTER_MODULES",
    "IO",
    "UNKNOWN_CATEGORIES",
    "Alias",
    "Blockwise",
    "BlockwiseIO",
    "CumulativeAggregations",
    "CustomReduction",
    "Elemwise",
    "Expr",
    "Filter",
    "FilterAlign",
    "FrameBase",
    "FromGraph",
    "FromPandas",
    "Fused",
    "FusedIO",
    "GraphNode",
    "Head",
    "List",
    "LocBase",
    "NLargest",
    "Partitions",
    "PartitionsFiltered",
    "Projection",
    "ReducedPartition",
    "Repartition",
    "RepartitionToFewer",
    "Shuffle",
    "SortValues",
    "Tail",
    "Task",
    "TaskRef",
    "TreeReduce",
    "concat_partitions",
    "drop_pools",
    "fuse_with_shuffles",
    "fuse_writes",
    "guard_choices",
    "guard_filters",
    "guard_repr",
    "key_split",
    "list_fused_columns",
    "natural_sort_key",
    "new_collection",
    "persist_without_token",
    "seed_divisions",
    "to_pyarrow_string",
    "without_token",
]
