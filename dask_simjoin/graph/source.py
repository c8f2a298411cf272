"""Freeze the expressions of sources, and compute functions of their partitions.

Dask may merge the partitions of a source if only few columns are read.  Block pairs would then refer to
other chunks than the planned ones.  So the source is hidden from Dask's optimizer, and optimized here
without merging.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.optimization import cull
from dask.tokenize import normalize_token

from dask_simjoin.graph.base import RowValues
from dask_simjoin.graph.dask_private import (
    IO,
    Alias,
    Blockwise,
    Expr,
    Filter,
    FromGraph,
    Fused,
    GraphNode,
    Projection,
    Task,
    TaskRef,
)
from dask_simjoin.graph.workers import end_without_workers, on_worker
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.options import current_client


class FrozenSource:
    """Hide an expression from Dask's optimizer, and keep the plans made for it."""

    def __init__(self, expr: Expr) -> None:
        self.inner = expr
        self.plans: dict[Any, Any] = {}
        self.lock = threading.Lock()
        self._steps: dict[str, FrozenSource] = {}

    def in_step(self, frame: Expr) -> FrozenSource:
        """Freeze the rows with the partitions of `frame`, which Dask has optimized with other operands.

        Equal partitions share one frozen source, and so its plans.
        """
        frame = optimise_beside(frame)
        with self.lock:
            return self._steps.setdefault(frame._name, FrozenSource(frame))

    def __reduce__(self) -> Any:
        return FrozenSource, (self.inner,)

    def __dask_tokenize__(self) -> Any:
        return normalize_token(("dask_simjoin.FrozenSource", self.inner._name))

    def __repr__(self) -> str:
        return f"<{self.inner._name}>"


def freeze(ddf: Frame, columns: list[Any]) -> FrozenSource:
    """Make the columns of a Dask DataFrame a frozen source.

    The columns keep the frame's order: in any other order, readers would copy each partition.
    """
    wanted = set(columns)
    return FrozenSource(ddf[[name for name in ddf.columns if name in wanted]].expr)


def optimise_in_place(expr: Expr) -> Expr:
    """Optimize the expression without Dask's tuning, which may merge partitions."""
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
    """Optimize the rows of a frame, and fix their partitions.

    Steps that do not work partition by partition are kept as they are.  A second optimization of these steps
    could move rows to other partitions, or change their order.
    """
    if all(isinstance(node, (Blockwise, IO)) for node in frame.walk()):
        return _held(frame.lower_completely(), {}).simplify()
    columns, whole = list(frame.columns), frame
    while isinstance(whole, Projection) and not isinstance(whole.frame, RowValues):
        whole = whole.frame
    return Given(FrozenSource(whole.lower_completely().simplify()))[columns]


def _held(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Keep the filters of an expression above their frames."""
    if expr._name not in known:
        operands = [
            _held(operand, known) if isinstance(operand, Expr) else operand for operand in expr.operands
        ]
        if isinstance(expr, Filter):
            operands[0] = FilterBarrier(operands[0])
        changed = any(new is not old for new, old in zip(operands, expr.operands, strict=True))
        # a copy would hash all its rows again to make its name
        known[expr._name] = type(expr)(*operands) if changed else expr
    return known[expr._name]


class FilterBarrier(Blockwise):
    """Keep filters from moving beneath a frame."""

    _parameters = ["frame"]
    _projection_passthrough = True

    @staticmethod
    def operation(frame: Frame) -> Frame:
        """Pass the frame on."""
        return frame


class Given(Expr):
    """Stand for a frame whose tasks are fixed."""

    _parameters = ["frozen"]

    @property
    def _meta(self) -> Any:
        return self.operand("frozen").inner._meta

    def _divisions(self) -> Any:
        return self.operand("frozen").inner.divisions

    def _layer(self) -> dict[Any, Any]:
        inner = self.operand("frozen").inner
        keys = inner.__dask_keys__()
        aliases = {(self._name, n): Alias((self._name, n), key) for n, key in enumerate(keys)}
        return dict(inner.__dask_graph__()) | aliases


def map_frozen(name: str, function: Callable[..., Any], source: FrozenSource, *args: Any,
               each: Any = None) -> Expr:  # fmt: skip
    """Call `function` for each partition of the source, fused with the reader of the partition.

    `each`: the second argument for each partition, if any.
    """
    return optimise_in_place(MapPartition(source.inner, name, function, args, each))


class Shared(Expr):
    """Share a value among tasks by a task of its own, so that it is not sent with each of them."""

    _parameters = ["label", "value"]

    @functools.cached_property
    def _meta(self) -> Any:
        return None

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.operand('label')}-{self.deterministic_token}"

    @property
    def ref(self) -> TaskRef:
        """The reference to the value, as a task's argument."""
        return TaskRef((self._name, 0))

    def _layer(self) -> dict[Any, Any]:
        key = (self._name, 0)
        return {key: Task(key, itself, self.operand("value"))}


def itself(value: Any) -> Any:
    """Pass the value on."""
    return value


def pick(parts: Any, key: Any) -> Any:
    """Return one of several values."""
    return parts[key]


def picked(parts: TaskRef, key: Any) -> Task:
    """Return an argument for a task, which picks one of another task's results before it runs."""
    return Task(None, pick, parts, key)


class Listed(Sequence[Any]):
    """Hold numbers and texts for each partition, with a token made from one text.

    By default Dask makes a token for each item, which takes longer than planning with them.
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
    """Call a function for each partition; its result may be any object."""

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
    """Fuse a step of a join with the steps before it, under the label of that step."""

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.exprs[0].operand('label')}-{self.deterministic_token}"


def is_held(frame: Expr) -> TypeGuard[FromGraph]:
    """Return whether a frame's partitions are in memory, in this process or on a cluster."""
    return isinstance(frame, FromGraph) and not any(map(_is_work, frame.operand("layer").values()))


def held_keys(frame: FromGraph) -> list[Any]:
    """List the keys of partitions in memory; the keys of the expression itself are aliases of them."""
    return list(frame.operand("keys"))


def _is_work(value: Any) -> bool:
    """Return whether a value of a graph is a task."""
    return isinstance(value, (GraphNode, tuple, list))


def gather(graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """Compute the keys of a graph with the scheduler that Dask is set to use.

    Each value comes from its own worker.  A task that lists all values would bring them to one worker first.
    Samples in 256 dimensions are 134 MB, and workers of 600 MB died of them, one after the other.
    """
    if not keys:
        return []
    end_without_workers(current_client())
    run = get_scheduler(cls=Delayed)
    return list(run(cull(graph, keys)[0], keys))
