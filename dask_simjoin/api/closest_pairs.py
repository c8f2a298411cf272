"""Find the closest pairs of one table or of two."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dask_simjoin.api.knn import nearest
from dask_simjoin.api.near_duplicates import with_row_id
from dask_simjoin.calls.decorators import frame_verb
from dask_simjoin.calls.drivers import Drivers
from dask_simjoin.calls.examples import pairs_example
from dask_simjoin.calls.groups import moved_apart
from dask_simjoin.calls.inputs import check_other, one_or_two
from dask_simjoin.calls.numbered import (
    POSITION,
    check_ids,
    in_one_task,
    numbered_by_index,
    rows_of_pairs,
)
from dask_simjoin.calls.tables import table_of
from dask_simjoin.engine.base import searcher_for
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.engine.native import native
from dask_simjoin.errors import TABLES, SimJoinWarning
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.columns import example_of, free_name
from dask_simjoin.request.messages import shown
from dask_simjoin.request.requests import ClosestPairsRequest
from dask_simjoin.request.spec import JoinSpec, TotalsSpec
from dask_simjoin.tasks.closest import (
    RowPairs,
    closest,
    first_pairs,
)
from dask_simjoin.tasks.nearest import Neighbors

GROUPS = ["left_group", "right_group"]
"""Names of the columns with the group numbers of the left and the right row of a pair.
"""


class Choice(NamedTuple):
    """Limits of the result: the number of pairs, their distance, and their groups."""

    n: int  # number of pairs, of all groups together or of each group
    # largest total of a pair; a total is a distance before its root is taken
    max_total: float
    per_group: bool  # whether to find n pairs of each group


class Wanted(NamedTuple):
    """A search for the closest pairs."""

    spec: JoinSpec
    choice: Choice
    example: Frame  # an empty frame like the result


@frame_verb(ClosestPairsRequest)
def closest_pairs(frame: Frame, request: ClosestPairsRequest) -> Frame:
    """Find the `n` closest pairs of rows, exactly and without an `eps`.

    Parameters
    ----------
    n : int
        Number of pairs, at least 1. If there are fewer pairs, the result has all of
        them.
    other : DataFrame, optional
        The right table: each pair has one row of this frame and one of `other`.
        Default: pairs of different rows of this frame, each pair once.
    max_distance : float or str, optional
        Largest distance of a pair. It may have a unit, like `eps` of `self_join`.
        Default: no limit.
    distance_unit : str, optional
        Unit of the column `distance`, as in `self_join`. Default: the unit in
        `max_distance`, or the unit of the metric.
    on, left_on, right_on, id, left_id, right_id, keep, suffixes
        As in `join`, and without `other` as in `self_join`.
    by : column or list of columns, optional
        Columns whose values must be equal in both rows, as in `self_join` or `join`.
        Without `per_group`, the result has the `n` closest pairs of all groups together.
    per_group : bool, default False
        Whether to find the `n` closest pairs of each group of `by`, instead of all
        groups together.
    metric, dropna, p, threads, blocksize
        As in `self_join`.
    partitioning : {"auto", "entity", "spatial"}, default "auto"
        As in `knn_join`.
    method : {"auto", "tiles", "zorder"} or methods.ZOrder, default "auto"
        As in `knn_join`; all methods return the same pairs.

    Returns
    -------
    DataFrame
        One row per pair, the closest first. If one of the tables is lazy, the result is
        lazy, with one partition:

        - ``left`` and ``right``: the ids of the two rows, with the dtypes of the ids.
          Without `other`, `left` is the row that comes first in the frame;
        - ``distance``: float64, in `distance_unit`;
        - the columns of `keep`.

    Raises
    ------
    UnsupportedFrameError, OptionError, OptionTypeError, ColumnError
        At the call; see `join`.
    CoordinateError, BudgetError
        During planning; see `join`.
    DuplicateIdError
        Ids repeat. In a Dask DataFrame only the ids of rows that may be in the result
        are compared.
    SourceChangedError
        During the computation: a table changed after planning.

    Notes
    -----
    Pairs at equal distances are in the order of their left rows, and then of their
    right rows. So results do not depend on partitions or machines. Distances are
    compared before the root of a metric is taken, as in `self_join`. With `per_group`,
    this order selects the pairs of each group, and the whole result is sorted in the
    same order.

    The closest pairs are pairs of nearest neighbors. The search first finds the nearest
    neighbor of each row. The n-th smallest of these distances bounds the distance of
    the n-th closest pair, so at most 2 n rows (n of each table) remain. Rows that may
    be in several of the closest pairs are searched again, with twice the number of
    neighbors each time. Memory grows with n and with the number of rows, but not with
    the number of duplicates. With `per_group` it grows with n times the number of
    groups. For Dask DataFrames, one task receives the remaining rows and makes the
    result, so both must fit in the memory of a worker.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 4.0, 5.0, 7.0, 9.0]}, index=list("abcde"))
    >>> df.simjoin.closest_pairs(2)
      left right  distance
    0    b     c       1.0
    1    c     d       2.0

    The closest pair of two tables:

    >>> shops = pd.DataFrame({"x": [2.0, 8.0], "name": ["A", "B"]})
    >>> df.simjoin.closest_pairs(1, shops, keep="name")
      left  right  distance name
    0    d      1       1.0    B

    The closest pair of each group:

    >>> df["kind"] = ["u", "v", "u", "v", "u"]
    >>> df.simjoin.closest_pairs(1, by="kind", per_group=True, keep="kind")
      left right  distance kind_left kind_right
    0    b     d       3.0         v          v
    1    c     e       4.0         u          u
    """
    if request.other is not None:
        check_other("closest_pairs(n, other)", request.other, n=request.n)
    n = request.number()
    frame, other, left, right = one_or_two(frame, request.other)
    spec = request.spec(left, right)
    searcher_for(left)
    choice = Choice(n, request.max_total(spec), request.per_group)
    tables, specs = (
        ([frame], [spec]) if other is None else ([frame, other], [spec, spec.right])
    )
    if spec.coordinates.by and request.max_distance is None:
        tables = moved_apart(tables, specs)
    example = pairs_example(left, left if right is None else right, spec)
    return CLOSEST.of(tables, Wanted(spec, choice, example))


def _lazy_pairs(tables: Sequence[Frame], wanted: Wanted) -> Frame:
    """Find the closest pairs of Dask DataFrames.

    First, each row's nearest neighbor is found. The n closest of these pairs bound the
    distances in the result, so only few rows can be in the result. One task joins these
    rows.
    """
    from dask_simjoin.graph.source import computed_once

    spec, choice, example = wanted
    one_table = len(tables) == 1
    given = list(zip(tables, [spec] if one_table else [spec, spec.right], strict=True))
    position = free_name(POSITION, [example_of(table) for table, _ in given])
    numbered = [
        with_row_id(computed_once(table[own.columns]), position) for table, own in given
    ]
    searched = _by_number(spec, position)
    neighbor = Neighbors(1, (0.0, choice.max_total), what=f"n={shown(choice.n)}")
    left, right = numbered[0], None if one_table else numbered[1]
    best = [_best_pairs(nearest(left, right, searched, neighbor), choice, one_table)]
    # with two tables, also search from right to left, because a right row's nearest
    # left row may be in the result
    if right is not None:
        swapped = replace(searched.right, other=replace(searched, other=None))
        back = nearest(right, left, swapped, neighbor)
        best.append(
            _best_pairs(
                back.rename(columns={"left": "right", "right": "left"}), choice, False
            )
        )
    rows = [
        table.map_partitions(
            _rows_among,
            position,
            side,
            choice,
            *best,
            meta=table._meta,
            clear_divisions=True,
        )
        for table, side in zip(numbered, ("left", "right"), strict=False)
    ]
    second = map(in_one_task, rows[1:])
    first = rows[0].repartition(npartitions=1)
    found = first.map_partitions(_pairs_of_rows, *wanted, *second, meta=example)
    return table_of(found).recorded()


def _best_pairs(found: Frame, choice: Choice, one_table: bool) -> Any:
    """Reduce lazy nearest neighbors to the n closest pairs. Return a lazy frame with
    one partition.
    """
    first = functools.partial(_first_of_frame, choice=choice, one_table=one_table)
    groups = [name for name in GROUPS if name in found.columns]
    return found[["left", "right", "distance", *groups]].reduction(
        first, aggregate=first, combine=first, meta=0
    )


def _first_of_frame(found: Frame, choice: Choice, one_table: bool) -> pd.DataFrame:
    best = first_pairs([_as_pairs(found, choice)], choice.n, one_table)
    columns = {"left": best.left, "right": best.right, "distance": best.total}
    return pd.DataFrame(
        columns if best.group is None else columns | dict.fromkeys(GROUPS, best.group)
    )


def _rows_among(
    rows: Frame, position: str, side: str, choice: Choice, *best: pd.DataFrame
) -> Frame:
    """Return the rows of a partition that may be in the result.

    `best`: the closest pairs of nearest neighbors, from one search or from a search in
    each direction.
    """
    one_table = len(best) == 1
    first = first_pairs(
        [_as_pairs(found, choice) for found in best], choice.n, one_table
    )
    wanted = (
        np.concatenate([first.left, first.right]) if one_table else getattr(first, side)
    )
    rows = native(rows)  # Dask may describe big-endian columns as native ones
    return rows[rows[position].isin(wanted)]


def _pairs_of_rows(
    frame: Frame, spec: JoinSpec, choice: Choice, example: Frame, *other: Frame
) -> Frame:
    """Find the closest pairs among the selected rows."""
    # do not warn again, because the first search has already warned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimJoinWarning)
        return _pairs_of([frame, *other], Wanted(spec, choice, example))


def _pairs_of(tables: Sequence[Frame], wanted: Wanted) -> Frame:
    """Find the closest pairs of plain frames."""
    spec, choice, example = wanted
    one_table = len(tables) == 1
    specs = [spec] if one_table else [spec, spec.right]
    for which, table, own in zip(TABLES, tables, specs, strict=False):
        check_ids(table, own, None if one_table else which)
    plain = [
        numbered_by_index(table, list(own.on))
        for table, own in zip(tables, specs, strict=True)
    ]
    search = functools.partial(_search, plain, _by_number(spec, None), choice)
    sides = tables[0], tables[-1]
    rows = len(sides[0]), len(sides[1])
    best = closest(search, choice.n, rows, one_table, choice.max_total)
    return rows_of_pairs(sides, spec, best, example)


CLOSEST = Drivers(_pairs_of, lambda: _lazy_pairs)
"""The two ways to find the closest pairs; see `Wanted`."""


def _search(
    plain: list[Frame],
    spec: TotalsSpec,
    choice: Choice,
    rows: np.ndarray | None,
    others: np.ndarray | None,
    k: int,
    max_total: float,
) -> RowPairs:
    """Search the nearest rows of some rows: see `dask_simjoin.tasks.closest.Search`."""
    data = plain[-1]
    wanted = Neighbors(k, (0.0, max_total), what=f"n={shown(choice.n)}")
    if rows is None:
        other = plain[1] if len(plain) > 1 else None
        return _as_pairs(nearest(plain[0], other, spec, wanted), choice)
    data = data if others is None else data.iloc[others]
    among_itself = len(plain) == 1
    # search k + 1 neighbors, because each row also finds itself, and is removed below
    if among_itself:
        wanted = wanted._replace(k=k + 1)
        others_spec = replace(spec, names=spec.names[1:])
        spec = replace(spec, names=spec.names[:1], other=others_spec)
    # do not warn again, because the first search has already warned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimJoinWarning)
        pairs = _as_pairs(nearest(plain[0].iloc[rows], data, spec, wanted), choice)
    return pairs.take(pairs.left != pairs.right) if among_itself else pairs


def _as_pairs(found: Frame, choice: Choice) -> RowPairs:
    """Convert neighbors to pairs, and drop pairs of different groups.

    The result has group numbers only with `choice.per_group`.
    """
    left, right, total = (
        to_host(values_of(found[name])) for name in ("left", "right", "distance")
    )
    if GROUPS[0] not in found.columns:
        return RowPairs(left, right, total)
    group, other = (to_host(values_of(found[name])) for name in GROUPS)
    pairs = RowPairs(left, right, total, group if choice.per_group else None)
    # without a largest distance, a neighbor may be in another group
    same = group == other
    return pairs if same.all() else pairs.take(same)


def _by_number(spec: JoinSpec, position: str | None) -> TotalsSpec:
    """Return the options of a search whose result has row numbers, totals and group
    numbers.

    A total is a distance before its root is taken. `position`: name of the column of
    row numbers; None: the index has them.
    """
    made = _named_by(spec, position, GROUPS[:1] if spec.other is not None else GROUPS)
    return (
        made
        if spec.other is None
        else replace(made, other=_named_by(spec.other, position, GROUPS[1:]))
    )


def _named_by(spec: JoinSpec, position: str | None, groups: list[str]) -> TotalsSpec:
    """Return the options of `_by_number` for one table.

    `groups`: names of the result columns of group numbers.
    """
    keep, names = (spec.on[-1:], tuple(groups)) if spec.coordinates.by else ((), ())
    return spec.numbered(position, keep=keep, names=names)
