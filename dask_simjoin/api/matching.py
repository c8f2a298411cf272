"""Join two tables one to one, by ascending distance: see `dask_simjoin.tasks.matching`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.api.near_duplicates import with_row_id
from dask_simjoin.api.numbered import (
    POSITION,
    by_number,
    check_ids,
    in_one_task,
    numbered_by_index,
    rows_of_pairs,
)
from dask_simjoin.calls.drivers import Drivers
from dask_simjoin.calls.examples import pairs_example
from dask_simjoin.calls.inputs import same_library
from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.engine.native import native
from dask_simjoin.errors import TABLES
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import Cause, within_memory
from dask_simjoin.request.columns import example_of, free_name
from dask_simjoin.request.requests import KEEPS, JoinRequest
from dask_simjoin.request.spec import JoinSpec, TotalsSpec
from dask_simjoin.tasks.closest import RowPairs
from dask_simjoin.tasks.left_out import rows_of
from dask_simjoin.tasks.matching import greedy_of_frames
from dask_simjoin.tasks.pairs import cast_like, unmatched


class Wanted(NamedTuple):
    """A one-to-one join. `how`: see `join`; `example`: an empty frame like the result."""

    spec: JoinSpec
    how: str
    example: Frame


def one_to_one(frame: Frame, request: JoinRequest) -> Frame:
    """Join two tables such that each row is in at most one pair."""
    frame, other, left, right = same_library(frame, request.other)
    spec = request.spec(left, right)
    example = pairs_example(left, right, spec, request.how)
    return MATCHES.of([frame, other], Wanted(spec, request.how, example))


def _numbers_of(spec: JoinSpec, position: str | None) -> TotalsSpec:
    """Return the options of the join that finds all pairs, with row numbers and totals."""
    result = spec.result._replace(distance=True, unit=None)
    right = by_number(spec.right, position, result=result)
    return by_number(spec, position, result=result, other=right)


def _all_pairs(tables: Sequence[Frame], made: TotalsSpec) -> Frame:
    left, right = (example_of(table) for table in tables)
    return DISTANCES.of(tables, made).pairs(pairs_example(left, right, made))


def _matched(tables: Sequence[Frame], wanted: Wanted) -> Frame:
    """Match the rows of plain frames."""
    spec = wanted.spec
    sides = list(zip(TABLES, tables, (spec, spec.right), strict=True))
    for which, table, own in sides:
        check_ids(table, own, which)
    made = _numbers_of(spec, None)
    numbered = [
        numbered_by_index(table, own.columns)
        for table, own in zip(tables, (made, made.right), strict=True)
    ]
    with within_memory(Cause.of(spec, True)):
        best = greedy_of_frames(_all_pairs(numbered, made))
        found = _rows(tables[0], tables[1], wanted, best)
        alone = [
            _alone(table, own, np.arange(len(table)), best, wanted, which)
            for which, table, own in sides
            if which in KEEPS.get(wanted.how, ())
        ]
        return frames_for(wanted.example).stacked([found, *alone]) if alone else found


def _matched_lazily(tables: Sequence[Frame], wanted: Wanted) -> Frame:
    """Match the rows of Dask DataFrames. One task receives the numbers of the rows of
    all pairs, and another one the rows that have a partner.
    """
    import dask.dataframe as dd

    from dask_simjoin.graph.dask_private import new_collection
    from dask_simjoin.graph.matching import GreedyMatches
    from dask_simjoin.graph.source import computed_once

    spec = wanted.spec
    position = free_name(POSITION, [example_of(table) for table in tables])
    specs = spec, spec.right
    numbered = [
        with_row_id(computed_once(table[own.columns]), position)
        for table, own in zip(tables, specs, strict=True)
    ]
    pairs = _all_pairs(numbered, _numbers_of(spec, position))
    best = new_collection(GreedyMatches(pairs.expr, spec, 0))
    rows = [
        table.map_partitions(
            _rows_among, position, side, best, meta=table._meta, clear_divisions=True
        )
        for table, side in zip(numbered, TABLES, strict=True)
    ]
    second = in_one_task(rows[1])
    found = rows[0].repartition(npartitions=1)
    found = found.map_partitions(
        _pairs_of_rows, wanted, position, second, best, meta=wanted.example
    )
    alone = [
        table.map_partitions(
            _rows_alone,
            own,
            position,
            best,
            wanted,
            side,
            meta=wanted.example,
            clear_divisions=True,
        )
        for table, own, side in zip(numbered, specs, TABLES, strict=True)
        if side in KEEPS.get(wanted.how, ())
    ]
    return dd.concat([found, *alone]) if alone else found


MATCHES = Drivers(_matched, lambda: _matched_lazily)
"""The two ways to match rows; see `Wanted`."""


def _rows(left: Frame, right: Frame, wanted: Wanted, best: RowPairs) -> Frame:
    """Make rows of the result from pairs of positions."""
    found = rows_of_pairs((left, right), wanted.spec, best, wanted.example)
    return cast_like(found, wanted.example)


def _rows_among(rows: Frame, position: str, side: str, best: RowPairs) -> Frame:
    """Return the rows of a partition that have a partner."""
    rows = native(rows)  # Dask may describe big-endian columns as native ones
    return rows[rows[position].isin(getattr(best, side))]


def _pairs_of_rows(
    left: Frame, wanted: Wanted, position: str, right: Frame, best: RowPairs
) -> Frame:
    """Make rows of the result from the rows that have a partner."""
    specs = wanted.spec, wanted.spec.right
    places = []
    for which, rows, own in zip(TABLES, (left, right), specs, strict=True):
        check_ids(rows, own, which)
        numbers = to_host(values_of(rows[position]))
        order = np.argsort(numbers)
        places.append(order[np.searchsorted(numbers[order], getattr(best, which))])
    found = best._replace(left=places[0], right=places[1])
    return _rows(left, right, wanted, found)


def _rows_alone(
    rows: Frame,
    own: JoinSpec,
    position: str,
    best: RowPairs,
    wanted: Wanted,
    side: str,
) -> Frame:
    """Make rows of the result for the rows of a partition without a partner."""
    rows = native(rows)
    numbers = to_host(values_of(rows[position]))
    return _alone(rows, own, numbers, best, wanted, side)


def _alone(
    rows: Frame,
    own: JoinSpec,
    numbers: np.ndarray,
    best: RowPairs,
    wanted: Wanted,
    side: str,
) -> Frame:
    """Make rows of the result for the rows of a table without a partner. `numbers`
    (rows,): numbers of the rows.
    """
    frames = frames_for(wanted.example)
    hit = frames.xp.asarray(np.isin(numbers, getattr(best, side)).astype(np.int64))
    return unmatched(rows_of(rows, own), hit, wanted.spec, wanted.example, side)
