"""Freeze the expressions of sources, and call functions on their partitions.

If a step reads few columns, Dask may merge partitions of a source. Chunks would then
have other rows than planned. So a source is frozen: it is hidden from Dask's optimizer,
and optimized in this module without merging.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.optimization import cull
from dask.tokenize import normalize_token
from distributed import Future

from dask_simjoin.engine.process import forkable
from dask_simjoin.errors import PlanningError, UnsupportedFrameError
from dask_simjoin.graph.base import RowValues, aliases, is_filtered
from dask_simjoin.graph.dask_private import (
    IO,
    Blockwise,
    BlockwiseIO,
    CumulativeAggregations,
    CustomReduction,
    Expr,
    Filter,
    FromGraph,
    FromPandas,
    Fused,
    FusedIO,
    GraphNode,
    Head,
    NLargest,
    Partitions,
    Projection,
    Repartition,
    SortValues,
    Tail,
    Task,
    TaskRef,
    new_collection,
    seed_divisions,
    without_token,
)
from dask_simjoin.graph.workers import end_without_workers, on_worker
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import current_client


class FrozenSource:
    """An expression that is hidden from Dask's optimizer, with the plans of the joins
    that read it.

    `expr`: the expression.  `is_final`: whether Dask's optimizer cannot change its
    number of partitions. `given`: the same rows as the user gave them, if Dask has
    optimized `expr`; None: `expr`.
    """

    def __init__(
        self, expr: Expr, is_final: bool = True, given: Expr | None = None
    ) -> None:
        self._expr, self._is_final, self._given = expr, is_final, given
        self.plans: dict[Any, Any] = {}
        self.lock = forkable(threading.Lock())
        self._steps: dict[str, FrozenSource] = {}
        # a `SmallFrame` that planning has read, and that the tasks still need
        self.small: Any = None

    @functools.cached_property
    def inner(self) -> Expr:
        """The expression to compute. Lowering a frame may run a computation in Dask, so
        it is delayed until now.
        """
        return self._expr if self._is_final else _with_final_partitions(self._expr)

    @functools.cached_property
    def simple(self) -> Expr:
        """The simplified expression, without projections that keep all columns."""
        return self.inner.simplify()

    def in_step(self, frame: Expr) -> FrozenSource:
        """Freeze a frame as Dask has optimized it. Equal frames share one frozen source
        and its plans.
        """
        frame = optimise_beside(frame)
        with self.lock:
            return self._steps.setdefault(frame._name, FrozenSource(frame))

    @property
    def given(self) -> Expr:
        """The expression whose rows get values, so that Dask sees that both belong
        together.
        """
        return self.inner if self._given is None else self._given

    @functools.cached_property
    def is_filtered(self) -> bool:
        # Dask may have moved filters of `inner` into readers of files
        return is_filtered(self.given)

    def __reduce__(self) -> Any:
        return FrozenSource, (self.inner, True, self._given)

    def __dask_tokenize__(self) -> Any:
        return normalize_token(("dask_simjoin.FrozenSource", self._expr._name))

    def __repr__(self) -> str:
        return f"<{self._expr._name}>"


def check_selections(ddf: Frame) -> None:
    """Raise an error if a Dask DataFrame was indexed by a function, or by anything else
    that does not name its columns.

    Dask itself stops when it computes such a frame. But a step that reads only some
    columns would replace the selection, and so read all rows.
    """
    for node in ddf.expr.walk():
        if not isinstance(node, Projection):
            continue
        wanted, columns = node.operand("columns"), node.frame._meta.columns
        several = isinstance(wanted, (list, np.ndarray, pd.Index))
        if not all(
            _is_column(one, columns) for one in (wanted if several else [wanted])
        ):
            raise UnsupportedFrameError(
                f"The Dask DataFrame was indexed by {shown(wanted)}, which is neither "
                "the name of a column nor a mask. Use a mask or query(), such as "
                "ddf[ddf['x'] > 0] instead of ddf[lambda frame: frame['x'] > 0]; "
                "ddf.loc[...] accepts functions."
            )


def _is_column(name: Any, columns: Any) -> bool:
    try:
        return name in columns
    except (TypeError, ValueError):  # not hashable, such as a frame
        return False


def freeze(ddf: Frame, columns: list[Any]) -> FrozenSource:
    """Return a frozen source that reads some columns of a Dask DataFrame.

    The columns keep the order of the frame. With any other order, Dask's readers would
    copy each partition.
    """
    check_selections(ddf)
    wanted, whole = set(columns), ddf.expr
    while isinstance(whole, Projection):
        whole = whole.frame
    if type(whole) is FromPandas:
        seed_divisions(whole)
    names = [name for name in ddf.columns.tolist() if name in wanted]
    expr = _with_sorted_columns(ddf.expr, {})
    found = _with_partitions_of_dask(expr)
    given = None if found is expr else expr[names]
    return FrozenSource(found[names], is_final=False, given=given)


def _with_sorted_columns(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Insert a `ColumnBarrier` above the first, last, largest and smallest rows.
    `known`: name of an expression -> the result.

    Dask moves a projection below these steps without the columns that sort the rows,
    and then fails.
    """
    if expr._name not in known:
        found = _with_operands(expr, _with_sorted_columns, known)
        known[expr._name] = ColumnBarrier(found) if _sorts(found) else found
    return known[expr._name]


def _sorts(node: Expr) -> bool:
    """Return whether Dask chooses rows by sorting them, in one reduction."""
    return isinstance(node, NLargest) or (
        isinstance(node, (Head, Tail))
        and any(isinstance(below, SortValues) for below in node.walk())
    )


CHOOSING = (Partitions, Head, Tail)
"""Expressions that choose rows by the numbers of partitions."""

BY_PARTITION = ("MapPartitions", "Sample", "LocUnknown")
"""Names of expressions whose rows may depend on the other rows of their partition."""


def _with_partitions_of_dask(expr: Expr) -> Expr:
    """Divide files among partitions as Dask does, where this decides which rows there
    are.

    Dask merges small files, and how many depends on the columns that it reads. So rows
    that are chosen by partition are read as Dask reads them for the whole frame. But
    nothing changes if the frame reads other files, too.
    """
    if not any(map(_depends_on_partitions, expr.walk())):
        return expr
    found = _optimized_by_partition(expr, {})
    return expr if found is expr or _reads_files(found) else found


def _depends_on_partitions(node: Expr) -> bool:
    return isinstance(node, CHOOSING) or type(node).__name__ in BY_PARTITION


def _optimized_by_partition(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Let Dask optimize the parts of an expression whose rows depend on partitions.
    `known`: name of an expression -> the result.

    The innermost parts come first: if two steps read the same part, both must get the
    same partitions of it. But if a step adds a column to a frame, both are optimized
    together, because Dask then merges the same partitions of both.
    """
    if expr._name not in known:
        found = _with_operands(expr, _optimized_by_partition, known)
        if found is not expr and not _has_equal_partitions(found):
            found = expr.optimize(fuse=False)
        elif _depends_on_partitions(found) and _reads_files(found):
            divided = any(isinstance(node, Repartition) for node in found.walk())
            if divided or not isinstance(found, CHOOSING):
                found = found.optimize(fuse=False)
        known[expr._name] = found
    return known[expr._name]


def _has_equal_partitions(node: Expr) -> bool:
    """Return whether all inputs of a step have the same divisions, if it needs that."""
    if not isinstance(node, Blockwise):
        return True
    inputs = [one for one in node.dependencies() if not node._broadcast_dep(one)]
    return len({one.divisions for one in inputs}) < 2


def _with_operands(
    expr: Expr,
    change: Callable[[Expr, dict[str, Expr]], Expr],
    known: dict[str, Expr],
    kind: type[Expr] | None = None,
) -> Expr:
    """Return an expression whose operands are changed by `change(operand, known)`.

    `kind`: its class; None: the class of `expr`. If nothing changes, `expr` is
    returned, because Dask would hash all the rows of a copy to name it.
    """
    operands = [
        change(one, known) if isinstance(one, Expr) else one for one in expr.operands
    ]
    pairs = zip(operands, expr.operands, strict=True)
    if kind is None and all(new is old for new, old in pairs):
        return expr
    return (kind or type(expr))(*operands)


def _reads_files(expr: Expr) -> bool:
    """Return whether Dask may still merge partitions that an expression reads.

    Reductions by a function are left out: they do not depend on partitions.
    """
    stack, seen = [expr], set()
    while stack:
        node = stack.pop()
        if node._name in seen or isinstance(node, (FusedIO, CustomReduction)):
            continue
        seen.add(node._name)
        if _is_mergeable(node):
            return True
        stack += node.dependencies()
    return False


def may_merge(frame: Expr) -> bool:
    """Return whether Dask may merge partitions of a frame if it reads only some of the
    columns.
    """
    return any(map(_is_mergeable, frame.walk()))


def _is_mergeable(node: Expr) -> bool:
    return (
        isinstance(node, BlockwiseIO)
        and not isinstance(node, FusedIO)
        and type(node)._fusion_compression_factor
        is not BlockwiseIO._fusion_compression_factor
    )


def _with_final_partitions(expr: Expr) -> Expr:
    """Return an equal expression whose number of partitions stays the same when Dask
    lowers it.

    For example, Dask removes a shuffle into three partitions if `drop_duplicates`
    follows.  The frame then has as many partitions as before the shuffle.
    """
    if all(isinstance(node, (Blockwise, IO)) for node in expr.walk()):
        return expr
    lowered = _lowered(expr)
    return (
        expr
        if lowered.npartitions == expr.npartitions
        else Given(FrozenSource(lowered))
    )


def _lowered(expr: Expr) -> Expr:
    """Lower an expression. If that fails, because Dask cannot sort names that are not
    strings, return it unchanged.
    """
    try:
        return expr.simplify().lower_completely().simplify()
    except TypeError:
        return expr


def computed_once(ddf: Frame) -> Frame:
    """Return an equal frame that all steps of a graph read from the same tasks.

    Otherwise Dask may optimize each step on its own, and compute the frame several
    times. After a shuffle, rows may then have another order in each step, so their
    positions would not agree.
    """
    return (
        new_collection(Given(FrozenSource(_lowered(ddf.expr))))
        if may_move(ddf.expr)
        else ddf
    )


STEADY = (Blockwise, IO, CumulativeAggregations, Repartition, Partitions)
"""Expressions that return the same rows in the same order each time they are computed.
"""


def may_move(frame: Expr) -> bool:
    """Return whether the rows of a frame may have another order when they are computed
    again.
    """
    return not all(isinstance(node, STEADY) for node in frame.walk())


def optimise_in_place(expr: Expr) -> Expr:
    """Optimize an expression, but without the steps of Dask's optimizer that may merge
    partitions.
    """
    return _labelled(expr.simplify().lower_completely().simplify().fuse(), {})


def _labelled(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Give fused expressions that end in a step of a join the label of that step."""
    if expr._name not in known:
        named = isinstance(expr, Fused) and isinstance(expr.exprs[0], MapPartition)
        kind = LabelledFused if named else None
        known[expr._name] = _with_operands(expr, _labelled, known, kind)
    return known[expr._name]


def optimise_beside(frame: Expr) -> Expr:
    """Optimize a frame so that each partition keeps its rows.

    If some step does not work partition by partition, fix all tasks as well. If Dask
    optimized such a step again, rows could move to other partitions, or change their
    order.
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
        found = _with_operands(expr, _held, known)
        if isinstance(found, Filter):
            below, *others = found.operands
            found = type(found)(FilterBarrier(below), *others)
        known[expr._name] = found
    return known[expr._name]


class ColumnBarrier(Blockwise):
    """Returns a frame unchanged. Dask moves no projection and no filter below this
    step.
    """

    _parameters = ["frame"]

    @staticmethod
    def operation(frame: Frame) -> Frame:
        """Return the frame unchanged."""
        return frame


class FilterBarrier(ColumnBarrier):
    """Returns a frame unchanged. Dask moves no filter below this step."""

    _projection_passthrough = True


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


def map_frozen(
    name: str,
    function: Callable[..., Any],
    source: FrozenSource,
    *args: Any,
    each: Any = None,
) -> Expr:
    """Call `function` for each partition of a source, in the task that reads the
    partition.

    `each`: a second argument for each partition; None: there is no second argument.
    """
    return optimise_in_place(MapPartition(source.inner, name, function, args, each))


class Listed(Sequence[Any]):
    """A sequence of plain values, for example one per partition, whose Dask token is
    made quickly.

    The token is made from one text. For a list, Dask would make a token of each item,
    which takes longer than planning.
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
    """Calls a function for each partition. The results may be any objects, not only
    frames.
    """

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

    @functools.cached_property
    def _held(self) -> list[Any]:
        """Keys of the partitions in memory; empty if they are not in memory."""
        return held_keys(self.frame) if is_held(self.frame) else []

    def _task(self, name: Any, index: int) -> Task:
        held = self._held
        frame = TaskRef(held[index] if held else (self.frame._name, index))
        each = self.operand("each")
        own = () if each is None else (each[index],)
        if self.operand("shared") is not None:
            own += (self.operand("shared").ref,)
        return Task(
            name,
            on_worker,
            self.operand("function"),
            frame,
            *own,
            *self.operand("arguments"),
        )


class LabelledFused(Fused):
    """Several expressions, fused to one task. The last one is a step of a join; the
    task has its label.
    """

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.exprs[0].operand('label')}-{self.deterministic_token}"


def is_held(frame: Expr) -> TypeGuard[FromGraph]:
    """Return whether all partitions of a frame are in memory, in this process or on a
    cluster.
    """
    if not isinstance(frame, FromGraph):
        return False
    return not any(
        isinstance(value, (GraphNode, tuple, list))
        for value in frame.operand("layer").values()
    )


def held_keys(frame: FromGraph) -> list[Any]:
    """List the keys of the partitions in memory. Keys with the name of the expression
    are only aliases for them.
    """
    return list(frame.operand("keys"))


def gather(graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """Compute keys of a graph with the scheduler that Dask would use here.

    Each value is sent directly from the worker that has it. If a task made a list of
    all values, one worker would hold them all. For 256 dimensions, 134 MB of samples
    exceeded the memory of workers with 600 MB.
    """
    if not keys:
        return []
    client, graph = current_client(), cull(graph, keys)[0]
    if client is not None:
        end_without_workers(client)
        return list(client.get(without_token(graph), keys))
    check_no_futures(graph)
    return list(get_scheduler(cls=Delayed)(graph, keys))


def check_no_futures(graph: dict[Any, Any]) -> None:
    """Refuse to compute partitions without the cluster that holds them.

    Dask would report a missing dependency.
    """
    if any(isinstance(value, Future) for value in graph.values()):
        raise PlanningError(
            "The rows are in the memory of a cluster, and the join runs without one. "
            "Leave out scheduler=, or call compute() of the DataFrame on the cluster "
            "first, and join the result."
        )
