"""Resolve which columns of rows a result keeps besides their ids, and what they are called."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from dask_simjoin.metrics.types import Columns, Frame
from dask_simjoin.options.columns import as_names, check_column_exists, has_column
from dask_simjoin.options.groups import SUFFIXES
from dask_simjoin.options.messages import listed, shown

OWN = ("left", "right", "rank", "distance", "similarity")
"""Columns of results that are no rows' attributes."""


def check_suffixes(suffixes: Any) -> tuple[str, str]:
    """Two endings of names."""
    if isinstance(suffixes, str) or len(as_names(suffixes)) != 2:
        raise OptionTypeError(f"suffixes={shown(suffixes)} are not two strings; use such as {SUFFIXES!r}.")
    first, second = suffixes
    if not (isinstance(first, str) and isinstance(second, str)):
        raise OptionTypeError(f"suffixes={shown(suffixes)} are not two strings; use such as {SUFFIXES!r}.")
    return first, second


def _wanted(keep: Columns, tables: list[Frame]) -> list[Hashable]:
    if keep is None:
        return []
    if isinstance(keep, tuple) and any(has_column(table.columns, keep) for table in tables):
        return [keep]
    if isinstance(keep, (set, frozenset)):
        raise ColumnError(f"keep={shown(keep)} has no order; use a list.")
    names = as_names(keep)
    for name in names:
        if not isinstance(name, Hashable):
            raise ColumnError(f"keep= names {shown(name)}, which cannot be the name of a column.")
        if names.count(name) > 1:
            raise ColumnError(f"keep= names {name!r} more than once; name each column once.")
    return names


KeptColumns = tuple[tuple[Hashable, ...], tuple[Hashable, ...], tuple[str, ...]]
"""Columns of left and of right rows, and what all of them are called, the left ones first."""


def resolve_keep(
    keep: Columns, suffixes: tuple[str, str], left: Frame, right: Frame | None = None
) -> KeptColumns:
    """The columns that are kept.

    `left`, `right`: empty examples of the tables; without a right one both rows are of the left one, and
    every name gets an ending.  Of two tables, as in `pandas.merge`, columns that both have get endings.
    """
    first, second = check_suffixes(suffixes)
    tables = [left] if right is None else [left, right]
    wanted = _wanted(keep, tables)
    for name in wanted:
        check_column_exists("keep", name, tables)
    of_left = [name for name in wanted if name in left.columns]
    of_right = of_left if right is None else [name for name in wanted if name in right.columns]
    names = [f"{name}{first}" if name in of_right else str(name) for name in of_left]
    names += [f"{name}{second}" if name in of_left else str(name) for name in of_right]
    taken: set[str] = set()
    for called in names:
        if called in OWN:
            raise OptionError(
                f"keep={shown(keep)} with suffixes={shown(suffixes)} would make a column {called!r}, a name "
                f"that is reserved for columns of results ({listed(OWN)}); rename the column first"
                f"{', or use other suffixes' if called not in wanted or suffixes != SUFFIXES else ''}."
            )
        if called in taken:
            raise OptionError(
                f"The result would have two columns {called!r}, with keep={shown(keep)} and "
                f"suffixes={shown(suffixes)}; use other suffixes, or rename the column first."
            )
        taken.add(called)
    return tuple(of_left), tuple(of_right), tuple(names)
