"""Names and empty examples of lazy results.

Dask merges two filters, and moves filters beneath other steps, so that it reads and moves fewer rows.  It
rewrites their conditions for the rows beneath, which is wrong for a condition that depends on all rows.
Values for the rows after one filter have no meaning for the rows before it.  Dask checks for reductions
only, gives expressions no way to refuse, and returns wrong rows for its own cumulative sums.

Dask computes the head of a step from the heads of its operands.  For a sorted frame it takes the smallest
rows of the frame beneath, in another order than the first sorted partition has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import dask
import numpy as np
import pandas as pd

from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, PlanningError
from dask_simjoin.graph.dask_private import (
    FILTER_HOOK,
    UNKNOWN_CATEGORIES,
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
from dask_simjoin.graph.inputs import example_ids
from dask_simjoin.graph.records import Recorded
from dask_simjoin.metrics.norms import Array, DType, Frame, Series
from dask_simjoin.request.spec import JoinSpec, RowSpec

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
        Whether its partitions are the result.
    """

    _label: str
    _makes_result: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_layer" in vars(cls) and {"plan", "run"} & set(cls._parameters):
            cls._layer = _recorded(vars(cls)["_layer"])

    @property
    def _run(self) -> str:
        """The name of the run that its tasks are recorded for."""
        run: str = self.operand("run").name if "run" in self._parameters else self.operand("plan").run
        return run

    @functools.cached_property
    def _name(self) -> str:
        return f"{self._label}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta") if "meta" in self._parameters else None


class RowsExpr(LabelledExpr, PartitionsFiltered, BlockwiseIO):
    """Make rows of a result; the operand `columns` lists the wanted ones, None means all."""

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
        return {
            key: _record_task(key, task, run, of * (key[0] == expr._name))
            for key, task in layer(expr).items()
        }

    return tasks


def _record_task(key: Any, task: Any, run: str, of: int) -> Any:
    """Return a task of a join step as one that is recorded, and anything else unchanged."""
    label = key[0].rpartition("-")[0] if isinstance(key, tuple) else ""
    if not run or not label.startswith(OURS) or type(task) is not Task:
        return task
    place = key[1] if len(key) == 2 else key[1:]
    return Task(key, Recorded(task.func, run, label.removeprefix(OURS), place, of), *task.args, **task.kwargs)


NEIGHBORS = "neighbors"
"""Name of the Series of neighbor or match counts."""

PAIRS, EPS = "pairs", "eps"
"""Names of the Series of pair counts by distance, and of its index."""


def series_example(meta: Frame, name: str | None, dtype: DType = np.int64) -> Series:
    """Return an empty example of row counts, with the frame's index."""
    return frames_for(meta).series(np.zeros(0, dtype), meta.index[:0], name)


def counts_example(meta: Frame, spec: JoinSpec) -> Series | Frame:
    """Return an empty example of neighbor counts, with one column per distance if there are several."""
    example = series_example(meta, NEIGHBORS)
    if not spec.several:
        return example
    values = frames_for(meta).xp.zeros((0, len(spec.several)), np.int64)
    shape = pd.DataFrame(columns=pd.Index(spec.several, dtype=np.float64), dtype=np.int64)
    return frames_for(meta).rows(values, meta.index[:0], shape)


def pairs_by_eps(numbers: Array | int, spec: JoinSpec, meta: Frame) -> Series:
    """Return a Series of pair counts by distance; `meta`: an example of the frame."""
    frames = frames_for(meta)
    values = frames.xp.zeros(len(spec.several), np.int64) + frames.xp.asarray(numbers)
    index = frames.index(np.array(spec.several)).rename(EPS)
    return frames.series(values, index, PAIRS)


def pairs_example(left: Frame, right: Frame, spec: RowSpec, some_missing: bool = False) -> Frame:
    """Return an empty example of pairs; `some_missing`: right rows may be missing."""
    frames = frames_for(left)
    none = np.zeros(0, np.int64)
    columns = {"left": example_ids(left, spec), "right": example_ids(right, spec.other or spec)}
    if spec.score is not None:
        columns[spec.score] = np.empty(0)
    columns |= {called: frames.values(left, name, none) for called, name in spec.kept_left.items()}
    columns |= {called: frames.values(right, name, none) for called, name in spec.kept_right.items()}
    example = frames.result(columns, 0)
    if not some_missing:
        return example
    of_right = ["right", *spec.kept_right]
    for name in of_right:
        if UNKNOWN_CATEGORIES in getattr(example[name].dtype, "categories", ()):
            column = spec.kept_right.get(name, spec.other and spec.other.id)
            named = "the index" if column is None else repr(column)
            raise ColumnError(
                f"how='left' makes missing values of {named} of the right table, whose categories Dask does "
                "not know. Use other.categorize() first, which reads them, or convert it, for example with "
                ".astype('object')."
            )
    return example.astype({name: frames.optional(example[name].dtype) for name in of_right})


def nearest_example(left: Frame, right: Frame, spec: JoinSpec, some_missing: bool = False) -> Frame:
    """Return an empty example of the rows of a nearest-neighbor join; `some_missing`: as `pairs_example`."""
    pairs = pairs_example(left, right, spec, some_missing)
    columns = {name: pairs[name] for name in pairs.columns}
    kept = {
        name: columns.pop(name) for name in list(columns) if name in spec.kept_left or name in spec.kept_right
    }
    own = {"left": columns["left"], "right": columns["right"], "rank": np.zeros(0, np.int64)}
    frames = frames_for(left)
    example = frames.result(own | {"distance": columns["distance"]} | kept, 0)
    return example.astype({"rank": frames.optional(example["rank"].dtype)}) if some_missing else example


class RowValues(Expr):
    """Mark values of the rows of one frame, which no others have."""

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
            f"This version of Dask ({dask.__version__}) has no function {FILTER_HOOK!r}, or moves heads in "
            "another way. Dask could then filter rows before their values are computed, and results could be "
            "wrong. Use an older version of Dask, or compute() the frame and call this verb on the result."
        )
