"""Keep filters where their conditions hold, and heads and tails above what holds values of rows.

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
from typing import Any

import dask

from dask_simjoin.errors import PlanningError
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import (
    MOVES_FILTERS,
    TAKES_ENDS,
    Blockwise,
    Expr,
    Filter,
    FilterAlign,
)
from dask_simjoin.metrics.types import Series


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
