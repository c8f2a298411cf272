"""Find the columns of one table or two that ``by=``, ``within=`` and ``different=`` name.

A column of two tables has one name, or is a pair: its name in the left table, and its
name in the right table.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dask_simjoin.errors import TABLES, ColumnError, in_table
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.columns import (
    as_names,
    check_column_exists,
    check_columns,
    has_column,
)

NEW = "NAME"
"""Stands for a name to fill in, in messages."""


def names_of(given: Any, examples: list[Frame]) -> tuple[Hashable, ...]:
    """Return the columns that an option names: one, or several in a list. The name of a
    column may be a tuple.
    """
    whole = isinstance(given, tuple) and all(
        has_column(example.columns, given) for example in examples
    )
    return (given,) if whole else tuple(as_names(given))


def names_in_tables(
    names: tuple[Hashable, ...], examples: list[Frame], option: str = "by"
) -> list[tuple[Hashable, ...]]:
    """Return the names of the columns in each table, for what an option names.

    Raise an error if a table lacks a column, or a column is named twice. `names`: names
    of columns and pairs of names. Several values of `within` may name the same column.
    """
    if not names:
        raise ColumnError(
            f"{option}=[] names no column; name at least one, or leave out {option}=."
        )
    for example in examples:
        check_columns(example)
    found: list[tuple[Hashable, ...]] = []
    for name in names:
        own = _in_each(name, examples, option)
        _check_exist(own, name, examples, option)
        found.append(own)
    sides = list(zip(*found, strict=True))
    if option != "within":
        _check_unlike(sides, option)
    return sides


def _in_each(
    name: Hashable, examples: list[Frame], option: str
) -> tuple[Hashable, ...]:
    """Return the name of a column in each table. A tuple that names a column is not a
    pair.
    """
    is_pair = (
        isinstance(name, tuple)
        and len(name) == 2
        and not any(has_column(example.columns, name) for example in examples)
    )
    if not is_pair:
        return (name,) * len(examples)
    assert isinstance(name, tuple)
    if len(examples) == 1:
        raise ColumnError(
            f"{option}= names {name!r}, which is not a column. A pair of names is for "
            "two tables, whose columns have different names; within one table, each "
            f"column has one name{_one_table(name, option)}."
        )
    return name


def _one_table(name: tuple[Hashable, ...], option: str) -> str:
    """Return what to use in one table instead of a pair, to end a message."""
    if option == "within":
        return f". Use within={{{name[0]!r}: ...}}"
    return f". For two columns, use {option}={list(name)!r}"


def _check_unlike(sides: list[tuple[Hashable, ...]], option: str) -> None:
    """Raise an error if a column of a table is named twice."""
    for which, names in zip(TABLES, sides, strict=False):
        for number, name in enumerate(names):
            if name in names[:number]:
                with in_table(None if sides[0] == sides[-1] else which):
                    raise ColumnError(
                        f"{option}= names {name!r} more than once; name each column "
                        "once."
                    )


def _check_exist(
    own: tuple[Hashable, ...], name: Hashable, examples: list[Frame], option: str
) -> None:
    """Raise an error if a table lacks its column. `own`: the column in each table;
    `name`: how the user named them.
    """
    for k, (column, example) in enumerate(zip(own, examples, strict=True)):
        with in_table(TABLES[k] if len(examples) > 1 else None):
            try:
                check_column_exists(option, column, [example])
            except ColumnError as error:
                if len(examples) == 1:
                    raise
                remedy = _remedy(own, name, examples, option, k)
                raise ColumnError(f"{error}{remedy}") from None


def _remedy(
    own: tuple[Hashable, ...],
    name: Hashable,
    examples: list[Frame],
    option: str,
    lacking: int,
) -> str:
    """Return advice for a column that a table lacks, as sentences after a message."""
    left, right = (example.columns for example in examples)
    if own[0] is not name:
        is_swapped = has_column(left, own[1]) and has_column(right, own[0])
        return " A pair has the name in the left table first." if is_swapped else ""
    pair = (name, NEW) if lacking else (NEW, name)
    use = f"{{{pair!r}: ...}}" if option == "within" else f"[{pair!r}]"
    remedy = (
        " If the column has different names in the tables, name the one of the left "
        f"table first: {option}={use}."
    )
    if option == "by" and not lacking and has_column(right, name):
        remedy += (
            f" To compare each row with the rows of each {name!r}, join once per value: "
            f"with other[other[{name!r}] == value], and without by=."
        )
    return remedy
