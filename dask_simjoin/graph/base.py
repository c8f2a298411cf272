"""Base classes of lazy results, and the tasks that they add to a graph.

Dask merges two filters, and moves filters beneath other steps, so that it reads and moves fewer rows.  It
rewrites a filter's condition for the rows beneath, which is wrong if the condition depends on all rows.
Values for the rows after a filter have no meaning for the rows before that filter.  Dask makes an exception
only for reductions, and returns wrong rows even for its own cumulative sums.

Dask computes the head of a step from the heads of its operands.  For a sorted frame it takes the smallest
rows of the unsorted frame.  Their order can differ from the order in the first sorted partition.

The guards at the end of this module keep such filters, heads and tails above values of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import dask

from dask_simjoin.errors import PlanningError
from dask_simjoin.graph.dask_private import (
    FILTER_HOOK,
    Alias,
    Blockwise,
    BlockwiseIO,
    Expr,
    Filter,
    FilterAlign,
    PartitionsFiltered,
    Task,
    TaskRef,
    guard_ends,
    guard_filters,
    list_fused_columns,
)
from dask_simjoin.graph.records import RUNS, Recorded
from dask_simjoin.metrics.norms import Series
from dask_simjoin.planning.plan import Plan

Layer = dict[Any, Any]
"""Tasks by their keys."""

OURS = "simjoin_"
"""Prefix of the keys of join steps."""


class LabelledExpr(Expr):
    """Begin the keys of tasks with a label, and take properties from operands of given names.

    `label` replaces the class attribute `_label`.  `meta` is the empty example of the result.
    `source_divisions` are the divisions; without this operand there is one partition.  With the operand
    `plan` or `run`, tasks are recorded under the run's name.
    """

    _label: str
    _makes_result: ClassVar[bool] = False  # whether the expression's partitions are the result

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_layer" in vars(cls) and {"plan", "run"} & set(cls._parameters):
            cls._layer = _recorded(vars(cls)["_layer"])

    @property
    def _run(self) -> str:
        """The name of the run under which the tasks are recorded."""
        run: str = self.operand("run").name if "run" in self._parameters else self.operand("plan").run
        return run

    @functools.cached_property
    def _name(self) -> str:
        label = self.operand("label") if "label" in self._parameters else self._label
        return f"{label}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta") if "meta" in self._parameters else None

    def _divisions(self) -> Any:
        return self.operand("source_divisions") if "source_divisions" in self._parameters else (None, None)


class RowsExpr(LabelledExpr, PartitionsFiltered, BlockwiseIO):
    """Make rows of a result.  The operand `columns` lists the columns to make; None: all."""

    _absorb_projections = True

    @functools.cached_property
    def columns(self) -> list[str]:
        chosen = self.operand("columns")
        return list(self.operand("meta").columns) if chosen is None else list(chosen)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("meta")[self.columns]


def _recorded(layer: Callable[[Any], Layer]) -> Callable[[Any], Layer]:
    @functools.wraps(layer)
    def tasks(expr: LabelledExpr) -> Layer:
        run, of = expr._run, expr.npartitions if expr._makes_result else 0
        if run and of:
            RUNS.name_result(expr._name, run)
        return {
            key: _record_task(key, task, run, of * (key[0] == expr._name))
            for key, task in layer(expr).items()
        }

    return tasks


def _record_task(key: Any, task: Any, run: str, of: int) -> Any:
    """Make a task of a join step record itself; return anything else unchanged."""
    label = key[0].rpartition("-")[0] if isinstance(key, tuple) else ""
    if not run or not label.startswith(OURS) or type(task) is not Task:
        return task
    place = key[1] if len(key) == 2 else key[1:]
    return Task(key, Recorded(task.func, run, label.removeprefix(OURS), place, of), *task.args, **task.kwargs)


class RowValues(Expr):
    """Base class of values that belong to the rows of one frame, and to no other rows."""

    @property
    def of_filtered(self) -> bool:
        """Whether a filter chose the rows."""
        return True


class FilteredRows(RowValues, Blockwise):
    """Values of rows that a filter chose, after planning."""

    _parameters = ["frame"]

    @staticmethod
    def operation(values: Series) -> Series:
        """Pass the values on."""
        return values


def is_filtered(frame: Expr) -> bool:
    """Return whether a filter chose rows for a frame."""
    return any(isinstance(node, (Filter, FilterAlign)) for node in frame.walk())


def must_stay(step: Expr, condition: Expr) -> bool:
    """Return whether a filter with this condition must not move beneath a step."""
    values = [node for node in condition.walk() if isinstance(node, RowValues)]
    if isinstance(step, (Filter, FilterAlign)):
        return any(found.of_filtered for found in values)
    return bool(values)


def end_must_stay(end: Expr) -> bool:
    """Return whether a head or a tail must not move beneath the steps of its frame."""
    # planning replaces `RowValues` by other steps of a join, so lowered ends stay above all of these
    ours = (RowValues, LabelledExpr) if isinstance(end, Blockwise) else RowValues
    return any(isinstance(node, ours) for node in end.frame.walk())


class Shared(LabelledExpr):
    """Share a value among tasks by a task of its own, so that it is not sent with each of them."""

    _parameters = ["label", "value"]

    @property
    def ref(self) -> TaskRef:
        """The reference to the value, as a task's argument."""
        return TaskRef((self._name, 0))

    def _layer(self) -> dict[Any, Any]:
        key = (self._name, 0)
        return {key: Task(key, itself, self.operand("value"))}


def aliases(name: str, keys: Iterable[Any]) -> Layer:
    """Return tasks with this name that stand for the tasks with these keys."""
    return {(name, n): Alias((name, n), key) for n, key in enumerate(keys)}


def itself(value: Any) -> Any:
    """Pass the value on."""
    return value


def pick(parts: Any, key: Any) -> Any:
    """Return one of several values."""
    return parts[key]


def picked(parts: TaskRef, key: Any) -> Task:
    """Return an argument for a task, which picks one of another task's results before it runs."""
    return Task(None, pick, parts, key)


Call = tuple[Any, Callable[..., Any], tuple[Any, ...]]
"""A task of a step: its place, its function and its arguments."""

SUM_FAN_IN = 16
"""Results of block pairs that one task combines."""

LISTS = 2
"""Lists per thread that are in memory at a time: one is being made, and one is being picked."""


def blocks_of_chunks(plan: Plan) -> list[list[tuple[int, int, int]]]:
    """List for each chunk its block pairs: number, the chunk's side (0 or 1), and the other chunk."""
    own: list[list[tuple[int, int, int]]] = [[] for _ in range(len(plan.chunks))]
    for b, (i, j) in enumerate(plan.blocks.tolist()):
        own[i].append((b, 0, j))
        if i != j:
            own[j].append((b, 1, i))
    return own


class Steps:
    """Collect the tasks of an algorithm in `layer`; their names are a label and the step."""

    def __init__(self, label: str, token: str) -> None:
        self._label, self._token = label, token
        self.layer: dict[Any, Any] = {}

    def add(self, step: str, place: Any, function: Callable[..., Any], *arguments: Any) -> TaskRef:
        """Add a task; `place` differs between the tasks of a step."""
        key = (f"{self._label}_{step}-{self._token}", place)
        self.layer[key] = Task(key, function, *arguments)
        return TaskRef(key)

    def merged(self, step: str, function: Callable[..., Any], parts: list[TaskRef],
               fan_in: int = SUM_FAN_IN) -> TaskRef:  # fmt: skip
        """Add tasks that merge some values in a tree."""
        depth = 0
        while len(parts) > fan_in:
            groups = [parts[s : s + fan_in] for s in range(0, len(parts), fan_in)]
            parts = [self.add(step, (depth, n), function, *group) for n, group in enumerate(groups)]
            depth += 1
        return self.add(step, (depth, 0), function, *parts)

    def spread(self, step: str, taking: str, calls: list[Call], items: Iterable[int],
               threads: int | None) -> list[dict[int, TaskRef | Task]]:  # fmt: skip
        """Add tasks that make lists; return for each list references to some of its items.

        `threads`: count of a cluster's threads, or None.  On a cluster, further tasks pick the items, so that
        workers send items instead of lists.  At most `LISTS` lists per thread wait for that.  Otherwise Dask
        would make all lists first, and if memory is short read a list from disk for each item.
        """
        if threads is None:
            made = [self.add(step, place, function, *arguments) for place, function, arguments in calls]
            return [{n: picked(one, n) for n in items} for one in made]
        found: list[dict[int, TaskRef | Task]] = []
        taken: list[TaskRef] = []
        for place, function, arguments in calls:
            first = () if len(taken) < LISTS * threads else (after, taken[-LISTS * threads])
            one = self.add(step, place, *first, function, *arguments)
            found.append({n: self.add(taking, (place, n), pick, one, n) for n in items})
            taken.append(self.add(f"{taking}s", place, nothing, *found[-1].values()))
        return found

    def row_numbers(self, plan: Plan, chunks: list[TaskRef]) -> list[int | TaskRef]:
        """List the row positions of each chunk, or the chunk's number if chunks are in frame order."""
        if plan.counted.in_frame_order:
            return list(range(len(chunks)))
        return [self.add("names", c, pick, chunk, "position") for c, chunk in enumerate(chunks)]


def nothing(*values: Any) -> None:
    """Return None; the task of this call is done once all values are computed."""


def after(done: None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in a task that waits for another task's check."""
    return function(*arguments)


list_fused_columns()
GUARDED = all([guard_filters(must_stay), guard_ends(end_must_stay)])


def check_guarded() -> None:
    """Refuse values of rows if Dask could move filters beneath their rows."""
    if not GUARDED:
        raise PlanningError(
            f"This version of Dask ({dask.__version__}) has no function {FILTER_HOOK!r}, or moves heads in a "
            "different way. Dask could then filter rows before their values are computed, and results could "
            "be wrong. Use an older version of Dask, or compute() the frame and call this verb on the result."
        )
