"""Names and empty examples of lazy results.

Dask merges two filters, and moves filters beneath other steps, so that it reads and moves fewer rows.  It
rewrites a filter's condition for the rows beneath, which is wrong if the condition depends on all rows.
Values for the rows after a filter have no meaning for the rows before that filter.  Dask looks for reductions
only, and gives expressions no way to refuse.  It returns wrong rows for its own cumulative sums, too.

Dask computes the head of a step from the heads of its operands.  For a sorted frame it takes the smallest
rows of the unsorted frame.  Their order can differ from the order in the first sorted partition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import dask

from dask_simjoin.errors import PlanningError
from dask_simjoin.graph.dask_private import (
    FILTER_HOOK,
    Blockwise,
    BlockwiseIO,
    Expr,
    Filter,
    FilterAlign,
    PartitionsFiltered,
    Task,
    guard_ends,
    guard_filters,
    list_fused_columns,
)
from dask_simjoin.graph.records import RUNS, Recorded
from dask_simjoin.metrics.norms import Series

Layer = dict[Any, Any]
"""Tasks by their keys."""

OURS = "simjoin_"
"""Prefix of the keys of join steps."""


class LabelledExpr(Expr):
    """Begin keys with a label; the operand `meta`, if any, is the empty example.

    An expression with the operand `plan` or `run` records its tasks under the name of that run.

    Attributes
    ----------
    _makes_result : bool
        Whether the expression's partitions are the result.
    """

    _label: str
    _makes_result: ClassVar[bool] = False

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
        return f"{self._label}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta") if "meta" in self._parameters else None


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
    """Mark values that belong to the rows of one frame, and to no other rows."""

    @property
    def of_filtered(self) -> bool:
        """Whether a filter chose the rows."""
        return True


class FilteredRows(RowValues, Blockwise):
    """Mark planned values of rows that a filter chose."""

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
    # planning replaces `RowValues`, so a lowered head or tail stays above every step of a join
    ours = (RowValues, LabelledExpr) if isinstance(end, Blockwise) else RowValues
    return any(isinstance(node, ours) for node in end.frame.walk())


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
