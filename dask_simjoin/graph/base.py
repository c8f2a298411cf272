"""Base classes of lazy results, and the tasks that they add to a graph.

Dask merges filters, and moves filters below other steps, so that it reads and moves
fewer rows. It then computes the condition of a filter from the rows below the step.
This is wrong if the condition depends on all rows. Neighbor counts do: a filter may
remove neighbors of a row, which changes the row's count. Dask makes an exception only
for reductions, and returns wrong rows even for its own cumulative sums.

Dask computes the head of a step from the heads of its operands. It computes the head of
a sorted frame from the smallest rows of the unsorted frame. There the order of these
rows can differ from that in the first sorted partition.

Dask chooses partitions of `ddf.loc[5:]` by choosing partitions of `ddf` with the same
numbers, which hold other rows.

So the guards at the end of this module keep filters, heads and tails from moving below
values of rows. Choices of partitions do not move below `loc`.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Sequence
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
    List,
    LocBase,
    Partitions,
    PartitionsFiltered,
    Task,
    TaskRef,
    fuse_writes,
    guard_choices,
    guard_filters,
    list_fused_columns,
    persist_without_token,
)
from dask_simjoin.graph.records import RUNS, Recorded
from dask_simjoin.graph.standstill import OURS
from dask_simjoin.metrics.norms import Series
from dask_simjoin.planning.plan import Plan
from dask_simjoin.sizes import FEW, HELD_PER_THREAD

Layer = dict[Any, Any]
"""Tasks of an expression, by key."""


class LabelledExpr(Expr):
    """Base class of expressions whose task keys begin with a label. Operands with
    certain names set its properties.

    The operand `label` replaces the class attribute `_label`. `meta` is the empty
    example of the result. `source_divisions` are the divisions; without this operand
    there is one partition. If `plan` or `run` is an operand, the tasks record their
    times for the run that it names.
    """

    _label: str
    # whether the partitions of this expression are partitions of the join's result
    _makes_result: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        layer = vars(cls).get("_layer")
        if layer is not None:
            recorded = {"plan", "run"} & set(cls._parameters)
            cls._layer = _uncollected(_recorded(layer) if recorded else layer)

    @property
    def _run(self) -> str:
        """The name of the run that the tasks record their times for."""
        run: str = (
            self.operand("run").name
            if "run" in self._parameters
            else self.operand("plan").run
        )
        return run

    @functools.cached_property
    def _name(self) -> str:
        label = self.operand("label") if "label" in self._parameters else self._label
        return f"{label}-{self.deterministic_token}"

    def place(self, n: int) -> Any:
        """Return the end of the key of partition `n`: a number, or a place that names a
        worker.
        """
        return n

    def key(self, n: int) -> tuple[Any, ...]:
        """Return the key of partition `n`."""
        return self._name, self.place(n)

    def chunk_ref(self, n: int, part: int = 0) -> Any:
        """Return a reference to the chunk that is partition `n`, for one part of the
        work on it.
        """
        return TaskRef(self.key(n))

    def _fused(self, layer: Layer) -> Layer:
        """Fuse tasks of a layer, after they are made to record their times."""
        return layer

    @property
    def _meta(self) -> Any:
        return self.operand("meta") if "meta" in self._parameters else None

    def _divisions(self) -> Any:
        return (
            self.operand("source_divisions")
            if "source_divisions" in self._parameters
            else (None, None)
        )


class RowsExpr(LabelledExpr, PartitionsFiltered, BlockwiseIO):
    """Base class of expressions that make rows of a result. `columns`: the columns to
    make; None: all columns.
    """

    _absorb_projections = True

    @functools.cached_property
    def columns(self) -> list[str]:
        chosen = self.operand("columns")
        return list(self.operand("meta").columns) if chosen is None else list(chosen)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("meta")[self.columns]


def _uncollected(layer: Callable[[Any], Layer]) -> Callable[[Any], Layer]:
    """Make a layer without collecting garbage. For 50,000 tasks, Python would visit all
    objects several times, which takes three quarters of the time.
    """

    @functools.wraps(layer)
    def tasks(expr: LabelledExpr) -> Layer:
        if not gc.isenabled():
            return layer(expr)
        gc.disable()
        try:
            return layer(expr)
        finally:
            gc.enable()

    return tasks


def _recorded(layer: Callable[[Any], Layer]) -> Callable[[Any], Layer]:
    @functools.wraps(layer)
    def tasks(expr: LabelledExpr) -> Layer:
        run, of = expr._run, expr.npartitions if expr._makes_result else 0
        if run and of:
            RUNS.name_result(expr._name, run)
        return expr._fused(
            {
                key: _record_task(key, task, run, of * (key[0] == expr._name))
                for key, task in layer(expr).items()
            }
        )

    return tasks


def _record_task(key: Any, task: Any, run: str, of: int) -> Any:
    """If `task` is a step of a join, return a task that also records its time; return
    anything else unchanged.
    """
    label = key[0].rpartition("-")[0] if isinstance(key, tuple) else ""
    if not run or not label.startswith(OURS) or type(task) is not Task:
        return task
    place = key[1] if len(key) == 2 else key[1:]
    return Task(
        key,
        Recorded(task.func, run, label.removeprefix(OURS), place, of),
        *task.args,
        **task.kwargs,
    )


class RowValues(Expr):
    """Base class of values that belong to the rows of a certain frame, and to no other
    rows.
    """

    @property
    def of_filtered(self) -> bool:
        """Whether the frame that these rows belong to is the result of a filter."""
        return True


class FilteredRows(RowValues, Blockwise):
    """Values of the rows of a filtered frame, after planning. The class marks them, so
    that `must_stay` finds them.
    """

    _parameters = ["frame"]

    @staticmethod
    def operation(values: Series) -> Series:
        """Return the values unchanged."""
        return values


def is_filtered(frame: Expr) -> bool:
    """Return whether a filter takes part in the computation of a frame."""
    return any(isinstance(node, (Filter, FilterAlign)) for node in frame.walk())


def must_stay(step: Expr, condition: Expr) -> bool:
    """Return whether a filter with this condition must stay above a step, because its
    values would change below it.
    """
    values = [node for node in condition.walk() if isinstance(node, RowValues)]
    if isinstance(step, (Filter, FilterAlign)):
        return any(found.of_filtered for found in values)
    return bool(values)


def end_must_stay(end: Expr) -> bool:
    """Return whether a head or tail must stay above the steps of its frame."""
    # Dask lowers `Head` and `Tail` to a Blockwise expression after planning. Planning
    # has replaced `RowValues` by steps of a join, so these must be found as well.
    ours = (RowValues, LabelledExpr) if isinstance(end, Blockwise) else RowValues
    return any(isinstance(node, ours) for node in end.frame.walk())


def partitions_must_stay(choice: Expr) -> bool:
    """Return whether a choice of partitions must stay above the step of its frame,
    because the partitions below have other numbers.
    """
    return isinstance(choice.frame, LocBase)


class Shared(LabelledExpr):
    """A value that many tasks use. A separate task makes it, so that the value is not
    sent with each task.
    """

    _parameters = ["label", "value"]

    @property
    def ref(self) -> TaskRef:
        """A reference to the value, to use as an argument of a task."""
        return TaskRef((self._name, 0))

    def _layer(self) -> dict[Any, Any]:
        key = (self._name, 0)
        return {key: Task(key, itself, self.operand("value"))}


def aliases(name: str, keys: Iterable[Any]) -> Layer:
    """Return tasks named `name` that only refer to the results of other tasks. `keys`:
    the keys of these tasks.
    """
    return {(name, n): Alias((name, n), key) for n, key in enumerate(keys)}


def itself(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def pick(parts: Any, key: Any) -> Any:
    """Return the item `parts[key]`."""
    return parts[key]


def picked(parts: TaskRef | List, key: Any) -> Task:
    """Return an argument for a task: an item of another task's result, or of a list of
    results.

    It is selected when the task runs.
    """
    return Task(None, pick, parts, key)


Call = tuple[Any, Callable[..., Any], tuple[Any, ...]]
"""One task of a step: a key that identifies it within the step, its function, and the
arguments.
"""


def blocks_of_chunks(plan: Plan) -> list[list[tuple[int, int, int]]]:
    """For each chunk, list its block pairs as (number of the block pair, 0 or 1 for the
    chunk's side in it, other chunk).
    """
    own: list[list[tuple[int, int, int]]] = [[] for _ in range(len(plan.chunks))]
    for b, (i, j) in enumerate(plan.work.blocks.tolist()):
        own[i].append((b, 0, j))
        if i != j:
            own[j].append((b, 1, i))
    return own


def numbers_in(plan: Plan, chunks: list[TaskRef]) -> list[int | Task]:
    """Return the `RowNumbers` of each chunk like `Steps.row_numbers`, for tasks that also
    have the chunk itself.
    """
    if plan.counted.in_frame_order:
        return list(range(len(chunks)))
    return [picked(chunk, "position") for chunk in chunks]


class Steps:
    """Collects the tasks of an algorithm in `layer`. The name in each key is a label
    and the step of the algorithm.
    """

    def __init__(self, label: str, token: str) -> None:
        self._label, self._token = label, token
        self.layer: dict[Any, Any] = {}

    def add(
        self,
        step: str,
        place: Any,
        function: Callable[..., Any],
        *arguments: Any,
        **options: Any,
    ) -> TaskRef:
        """Add a task to a step. `place` identifies the task within the step."""
        key = (f"{self._label}_{step}-{self._token}", place)
        self.layer[key] = Task(key, function, *arguments, **options)
        return TaskRef(key)

    def merged(
        self,
        step: str,
        function: Callable[..., Any],
        parts: Sequence[TaskRef | Task],
        fan_in: int = FEW,
        place: tuple[Any, ...] = (),
    ) -> TaskRef:
        """Add tasks that merge values in a tree; each task merges at most `fan_in`
        values. `place`: identifies the tree, if the step has several.
        """
        depth = 0
        while len(parts) > fan_in:
            groups = [parts[s : s + fan_in] for s in range(0, len(parts), fan_in)]
            parts = [
                self.add(step, (*place, depth, n), function, *group)
                for n, group in enumerate(groups)
            ]
            depth += 1
        return self.add(step, (*place, depth, 0), function, *parts)

    def spread(
        self,
        step: str,
        taking: str,
        calls: list[Call],
        items: Iterable[int],
        threads: int | None,
    ) -> list[dict[int, TaskRef | Task]]:
        """Add tasks that each make a list. For each list, return references to some of
        its items.

        `items`: positions of the items to refer to. `threads`: number of threads of the
        cluster; None: no cluster.

        On a cluster, further tasks pick the items, so that workers send each other
        items instead of lists. A new list is made only while fewer than `HELD_PER_THREAD` lists
        per thread wait to be picked from. Otherwise Dask would make all lists first.
        When memory is short, it would then read a list from disk again for each item.
        """
        if threads is None:
            made = [
                self.add(step, place, function, *arguments)
                for place, function, arguments in calls
            ]
            return [{n: picked(one, n) for n in items} for one in made]
        found: list[dict[int, TaskRef | Task]] = []
        taken: list[TaskRef] = []
        for place, function, arguments in calls:
            first = (
                ()
                if len(taken) < HELD_PER_THREAD * threads
                else (after, taken[-HELD_PER_THREAD * threads])
            )
            one = self.add(step, place, *first, function, *arguments)
            found.append({n: self.add(taking, (place, n), pick, one, n) for n in items})
            taken.append(self.add(f"{taking}s", place, nothing, *found[-1].values()))
        return found

    def row_numbers(self, plan: Plan, chunks: list[TaskRef]) -> list[int | TaskRef]:
        """Return the `RowNumbers` of each chunk: the chunk's number if chunks are in
        frame order, else the frame positions of its rows.
        """
        if plan.counted.in_frame_order:
            return list(range(len(chunks)))
        return [
            self.add("names", c, pick, chunk, "position")
            for c, chunk in enumerate(chunks)
        ]


def nothing(*values: Any) -> None:
    """Do nothing. A task with this function finishes when all its arguments are
    computed.
    """


def after(done: None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function. `done`: the result of a task, such as a check, that must
    finish before.
    """
    return function(*arguments)


list_fused_columns()
fuse_writes(lambda step: isinstance(step, LabelledExpr))
persist_without_token(OURS)
GUARDED = all(
    [
        guard_filters(must_stay),
        guard_choices(end_must_stay),
        guard_choices(partitions_must_stay, [Partitions]),
    ]
)


def check_guarded() -> None:
    """Raise an error if the guards do not fit this version of Dask: it might filter
    lazy values too early.
    """
    if not GUARDED:
        raise PlanningError(
            f"This version of Dask ({dask.__version__}) has no function "
            f"{FILTER_HOOK!r}, or moves head() in "
            "a different way. Dask could then filter rows before their values are "
            "computed, and results "
            "could be wrong. Use an older version of Dask, or compute() the frame and "
            "call this verb on "
            "the result."
        )
