"""Freeze the expressions of sources, and compute what is asked of their partitions.

The source's partitioning is frozen: Dask may merge partitions of a source of which few columns are
read, after which block pairs would name other chunks than were planned.  So the source is no operand
that Dask's optimiser could see, but frozen, and optimised here without that step.
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
    """Hide an expression from Dask's optimiser, and keep the plans made for it."""

    def __init__(self, expr: Expr) -> None:
        self.inner = expr
        self.plans: dict[Any, Any] = {}
        self.lock = threading.Lock()
        self._steps: dict[str, FrozenSource] = {}

    def in_step(self, frame: Expr) -> FrozenSource:
        """Freeze the rows in the partitions that `frame`, which Dask has optimised with others, will have.

        Where these are those of another time, so are the plans.
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

    They keep the frame's order, in which readers give them: in another one each partition would be copied.
    """
    wanted = set(columns)
    return FrozenSource(ddf[[name for name in ddf.columns if name in wanted]].expr)


def optimise_in_place(expr: Expr) -> Expr:
    """Optimise the expression with the partitions it has.

    Dask's tuning, which may merge them, is left out.
    """
    return _labelled(expr.simplify().lower_completely().simplify().fuse(), {})


def _labelled(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Call what ends in a step of a join as that step is called, however much is fused into it."""
    if expr._name not in known:
        operands = [_labelled(one, known) if isinstance(one, Expr) else one for one in expr.operands]
        named = isinstance(expr, Fused) and isinstance(expr.exprs[0], MapPartition)
        changed = named or any(new is not old for new, old in zip(operands, expr.operands, strict=True))
        known[expr._name] = (LabelledFused if named else type(expr))(*operands) if changed else expr
    return known[expr._name]


def optimise_beside(frame: Expr) -> Expr:
    """Optimise the rows of a frame in partitions that are those of the frame, and stay so.

    What is not done partition by partition is kept as it is beside it: were it optimised apart, its rows
    might lie in other partitions, or in another order.
    """
    if all(isinstance(node, (Blockwise, IO)) for node in frame.walk()):
        return _held(frame.lower_completely(), {}).simplify()
    columns, whole = list(frame.columns), frame
    while isinstance(whole, Projection) and not isinstance(whole.frame, RowValues):
        whole = whole.frame
    return Given(FrozenSource(whole.lower_completely().simplify()))[columns]


def _held(expr: Expr, known: dict[str, Expr]) -> Expr:
    """Hold the filters of an expression above what they filter."""
    if expr._name not in known:
        operands = [
            _held(operand, known) if isinstance(operand, Expr) else operand for operand in expr.operands
        ]
        if isinstance(expr, Filter):
            operands[0] = FilterBarrier(operands[0])
        changed = any(new is not old for new, old in zip(operands, expr.operands, strict=True))
        # another of the same would get its name from all rows that it holds, once more
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
    """Stand for a frame whose tasks are settled."""

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
    """`function` of each partition of the source, fused with what reads it.

    `each`: for each partition its second argument, if it has one.
    """
    return optimise_in_place(MapPartition(source.inner, name, function, args, each))


class Shared(Expr):
    """Give many tasks a value by a task of its own, so that it does not travel with each of them."""

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
        """Refer to the value, as a task's argument."""
        return TaskRef((self._name, 0))

    def _layer(self) -> dict[Any, Any]:
        key = (self._name, 0)
        return {key: Task(key, itself, self.operand("value"))}


def itself(value: Any) -> Any:
    """Pass the value on."""
    return value


def pick(parts: Any, key: Any) -> Any:
    """Take one of some values."""
    return parts[key]


def picked(parts: TaskRef, key: Any) -> Task:
    """Take one of what a task gives, as another task's argument: within that task, by none of its own."""
    return Task(None, pick, parts, key)


class Listed(Sequence[Any]):
    """Hold what is known of each partition: numbers and texts, whose token Dask makes of one text for all.

    Left to itself it goes through each of them, which takes longer than to plan with them.
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
    """Make one task for each partition; what it returns need not be a frame."""

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
    """Hold the steps before a step of a join, and that one, whose label they have."""

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.exprs[0].operand('label')}-{self.deterministic_token}"


def is_held(frame: Expr) -> TypeGuard[FromGraph]:
    """Tell whether a frame's partitions are held, by Dask or by a cluster, and need no task."""
    return isinstance(frame, FromGraph) and not any(map(_is_work, frame.operand("layer").values()))


def held_keys(frame: FromGraph) -> list[Any]:
    """List the keys of partitions that are held: Dask's own of the frame are tasks that give the same."""
    return list(frame.operand("keys"))


def _is_work(value: Any) -> bool:
    """Tell whether a graph holds a task where a value could be."""
    return isinstance(value, (GraphNode, tuple, list))


def gather(graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """Compute the keys of a graph, with whatever scheduler Dask is set to use.

    Each value comes from where it is.  A task that lists them would bring all of them to one worker first:
    samples in 256 dimensions are 134 MB, of which workers of 600 MB died, one after the other.
    """
    if not keys:
        return []
    end_without_workers(current_client())
    run = get_scheduler(cls=Delayed)
    return list(run(cull(graph, keys)[0], keys))
