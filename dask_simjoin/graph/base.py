"""Names and empty examples of lazy results.

Dask merges two filters, and moves filters beneath other steps, so that fewer rows are read and moved.
Conditions are rewritten for the rows beneath, which is wrong for those that depend on all rows: values of
the rows that one filter has left have no meaning among the rows that it is given.  Dask looks for reductions
only, has no way for an expression to object, and gives wrong rows for its own cumulative sums.

Dask takes the head of a step row by row from the heads of what it is made of, and that of a sorted frame from
the smallest rows of the frame beneath, in another order than the first of the sorted partitions have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import dask
import numpy as np
import pandas as pd

from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, PlanningError
from dask_simjoin.graph.dask_private import (
    MOVES_FILTERS,
    TAKES_ENDS,
    UNKNOWN_CATEGORIES,
    Blockwise,
    BlockwiseIO,
    Expr,
    Filter,
    FilterAlign,
    PartitionsFiltered,
    Task,
)
from dask_simjoin.graph.inputs import example_ids
from dask_simjoin.graph.records import Recorded
from dask_simjoin.metrics.norms import Array, DType, Frame, Series
from dask_simjoin.request.spec import JoinSpec, RowSpec

Layer = dict[Any, Any]
"""Tasks by their keys."""

OURS = "simjoin_"
"""What the keys of steps of joins begin with."""


class LabelledExpr(Expr):
    """Begin keys with a label; the example, if there is one, is the operand `meta`.

    The tasks of an expression that has a plan, or the name of a run, are recorded for that.

    Attributes
    ----------
    _makes_result : bool
        Whether its partitions are the result, or all that is found for it.
    """

    _label: str
    _makes_result: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_layer" in vars(cls) and {"plan", "run"} & set(cls._parameters):
            cls._layer = _recorded(vars(cls)["_layer"])

    @property
    def _run(self) -> str:
        """The name of what its tasks are recorded for."""
        run: str = self.operand("run").name if "run" in self._parameters else self.operand("plan").run
        return run

    @functools.cached_property
    def _name(self) -> str:
        return f"{self._label}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta") if "meta" in self._parameters else None


class RowsExpr(LabelledExpr, PartitionsFiltered, BlockwiseIO):
    """Make rows of a result; the operand `columns` says which of the example's are wanted, None: all."""

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
        return {key: _told(key, task, run, of * (key[0] == expr._name)) for key, task in layer(expr).items()}

    return tasks


def _told(key: Any, task: Any, run: str, of: int) -> Any:
    """Make a task of a step one that is recorded; what reads the source, and what is none, stays as it is."""
    label = key[0].rpartition("-")[0] if isinstance(key, tuple) else ""
    if not run or not label.startswith(OURS) or type(task) is not Task:
        return task
    place = key[1] if len(key) == 2 else key[1:]
    return Task(key, Recorded(task.func, run, label.removeprefix(OURS), place, of), *task.args, **task.kwargs)


NEIGHBORS = "neighbors"
"""Name of the Series of numbers of rows that are near, or match."""

PAIRS, EPS = "pairs", "eps"
"""Names of the Series of numbers of pairs within several distances, and of its index."""


def series_example(meta: Frame, name: str | None, dtype: DType = np.int64) -> Series:
    """An empty example of numbers of rows, with the frame's index."""
    return frames_for(meta).series(np.zeros(0, dtype), meta.index[:0], name)


def counts_example(meta: Frame, spec: JoinSpec) -> Series | Frame:
    """An empty example of numbers of neighbours: of several distances a column for each."""
    example = series_example(meta, NEIGHBORS)
    if not spec.several:
        return example
    values = frames_for(meta).xp.zeros((0, len(spec.several)), np.int64)
    shape = pd.DataFrame(columns=pd.Index(spec.several, dtype=np.float64), dtype=np.int64)
    return frames_for(meta).rows(values, meta.index[:0], shape)


def pairs_by_eps(numbers: Array | int, spec: JoinSpec, meta: Frame) -> Series:
    """A Series of numbers of pairs within each of several distances; `meta`: an example of the frame."""
    frames = frames_for(meta)
    values = frames.xp.zeros(len(spec.several), np.int64) + frames.xp.asarray(numbers)
    index = frames.index(np.array(spec.several)).rename(EPS)
    return frames.series(values, index, PAIRS)


def pairs_example(left: Frame, right: Frame, spec: RowSpec, some_missing: bool = False) -> Frame:
    """An empty example of pairs; `some_missing`: right rows may be missing."""
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
                "not know; use other.categorize() first, which reads them, or convert it, for example with "
                ".astype('object')."
            )
    return example.astype({name: frames.optional(example[name].dtype) for name in of_right})


def nearest_example(left: Frame, right: Frame, spec: JoinSpec) -> Frame:
    """An empty example of the rows of a nearest-neighbour join."""
    pairs = pairs_example(left, right, spec, False)
    columns = {name: pairs[name] for name in pairs.columns}
    kept = {
        name: columns.pop(name) for name in list(columns) if name in spec.kept_left or name in spec.kept_right
    }
    own = {"left": columns["left"], "right": columns["right"], "rank": np.zeros(0, np.int64)}
    return frames_for(left).result(own | {"distance": columns["distance"]} | kept, 0)


class RowValues(Expr):
    """Mark values of the rows of one frame, which no others have."""

    @property
    def of_filtered(self) -> bool:
        """Tell whether a filter chose the rows."""
        return True


class FilteredRows(RowValues, Blockwise):
    """Mark values that are to be found, of rows that a filter chose."""

    _parameters = ["frame"]

    @staticmethod
    def operation(values: Series) -> Series:
        """Pass the values on."""
        return values


def is_filtered(frame: Expr) -> bool:
    """Tell whether a filter chose some of the rows that a frame was made of."""
    return any(isinstance(node, (Filter, FilterAlign)) for node in frame.walk())


def must_stay(step: Expr, condition: Expr) -> bool:
    """Tell whether a filter above a step by such a condition must not move beneath it."""
    values = [node for node in condition.walk() if isinstance(node, RowValues)]
    if isinstance(step, (Filter, FilterAlign)):
        return any(found.of_filtered for found in values)
    return bool(values)


ASKED = "is_filter_pushdown_available"
"""What Dask calls the function that says whether a filter may move."""


MOVED = "_simplify_down"
"""What Dask calls the method by which a head moves beneath a step."""


def guard(modules: Iterable[Any], ends: Iterable[Any] = ()) -> bool:
    """Have modules of Dask ask `must_stay` besides, and heads stay; False: one of them has no such function.

    Filters whose conditions hold no `RowValues`, and heads of what holds none, move as before.  A second call
    changes nothing.
    """
    known = True
    for kind in ends:
        moves = vars(kind).get(MOVED)
        if moves is None:
            known = False
        elif not hasattr(moves, "of_simjoin"):
            setattr(kind, MOVED, _stays(moves))
    for module in modules:
        available = getattr(module, ASKED, None)
        if available is None:
            known = False
        elif not hasattr(available, "of_simjoin"):
            setattr(module, ASKED, _asked(available))
    return known


def _asked(available: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(available)
    def asked(expr: Expr, parent: Any, *args: Any, **kwargs: Any) -> bool:
        if not available(expr, parent, *args, **kwargs):
            return False
        condition = getattr(parent, "predicate", None)
        return not (isinstance(condition, Expr) and must_stay(expr, condition))

    asked.of_simjoin = True  # type: ignore[attr-defined]
    return asked


def _stays(moves: Callable[[Any], Expr | None]) -> Callable[[Any], Expr | None]:
    @functools.wraps(moves)
    def stays(expr: Any) -> Expr | None:
        # values that are planned may be marked no more, and where those are, nothing is to move
        ours = (RowValues, LabelledExpr) if isinstance(expr, Blockwise) else RowValues
        return None if any(isinstance(node, ours) for node in expr.frame.walk()) else moves(expr)

    stays.of_simjoin = True  # type: ignore[attr-defined]
    return stays


GUARDED = guard(MOVES_FILTERS, TAKES_ENDS)


def check_guarded() -> None:
    """Refuse values of rows where Dask could move filters beneath what their values depend on."""
    if not GUARDED:
        raise PlanningError(
            f"This version of Dask ({dask.__version__}) has no function {ASKED!r}, or moves heads otherwise, "
            "so that these cannot be kept above the rows that values are of, and results could be wrong; use "
            "an older version of Dask, or compute() the frame and ask for the values of that."
        )
