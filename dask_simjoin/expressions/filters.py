"""Keeps filters where their conditions hold.

Dask merges two filters, and moves filters beneath other steps, so that fewer rows are read and moved.
Conditions are rewritten for the rows beneath, which is wrong for those that depend on all rows: values of
the rows that one filter has left have no meaning among the rows that it is given.  Dask looks for reductions
only, has no way for an expression to object, and gives wrong rows for its own cumulative sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dask_simjoin.expressions.dask_private import MOVES_FILTERS, Blockwise, Expr, Filter, FilterAlign


class RowValues(Expr):
    """Values of the rows of one frame, which no others have."""

    @property
    def of_filtered(self) -> bool:
        """Whether a filter chose the rows."""
        return True


class FilteredRows(RowValues, Blockwise):
    """Values that are to be found, of rows that a filter chose."""

    _parameters = ["frame"]

    @staticmethod
    def operation(values: Any) -> Any:
        """The values."""
        return values


def is_filtered(frame: Expr) -> bool:
    """Whether a filter chose some of the rows that a frame was made of."""
    return any(isinstance(node, (Filter, FilterAlign)) for node in frame.walk())


def must_stay(step: Expr, condition: Expr) -> bool:
    """Whether a filter above a step by such a condition must not move beneath it."""
    values = [node for node in condition.walk() if isinstance(node, RowValues)]
    if isinstance(step, (Filter, FilterAlign)):
        return any(found.of_filtered for found in values)
    return bool(values)


def _asked(available: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(available)
    def is_filter_pushdown_available(expr: Expr, parent: Any, *args: Any, **kwargs: Any) -> bool:
        return not must_stay(expr, parent.predicate) and available(expr, parent, *args, **kwargs)

    return is_filter_pushdown_available


for _module in MOVES_FILTERS:
    _module.is_filter_pushdown_available = _asked(_module.is_filter_pushdown_available)
