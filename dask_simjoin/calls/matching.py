"""Join two tables one to one, best pairs first: see `dask_simjoin.tasks.matching`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.calls.drivers import Drivers
from dask_simjoin.calls.examples import pairs_example
from dask_simjoin.calls.numbered import (
    POSITION,
    check_ids,
    in_one_task,
    numbered_by_index,
    rows_of_pairs,
)
from dask_simjoin.calls.tables import table_of
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.engine.native import native
from dask_simjoin.errors import TABLES
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import Cause, free_memory, within_memory
from dask_simjoin.planning.checks import check_matching
from dask_simjoin.request.columns import example_of, free_name
from dask_simjoin.request.requests import KEEPS
from dask_simjoin.request.spec import RowSpec
from dask_simjoin.tasks.closest import RowPairs
from dask_simjoin.tasks.left_out import rows_of
from dask_simjoin.tasks.matching import greedy_of_frames
from dask_simjoin.tasks.pairs import cast_like, unmatched


class Wanted(NamedTuple):
    """A one-to-one join. `how`: see `join`; `example`: an empty frame like the result."""

    spec: RowSpec
    how: str
    example: Frame


def one_to_one(tables: Sequence[Frame], wanted: Wanted, drivers: Drivers) -> Frame:
    """Join two tables such that each row is in at most one pair. `drivers`: find all
    pairs.
    """
    return MATCHES.of(tables, (drivers, wanted))


def _all_pairs(tables: Sequence[Frame], made: RowSpec, drivers: Drivers) -> Frame:
    left, right = (example_of(table) for table in tables)
    return drivers.of(tables, made).pairs(pairs_example(left, right, made))


def _matched(tables: Sequence[Frame], given: tuple[Drivers, Wanted]) -> Frame:
    """Match the rows of plain frames. `given`: see `one_to_one`."""
    drivers, wanted = given
    spec = wanted.spec
    sides = list(zip(TABLES, tables, (spec, spec.right), strict=True))
    for which, table, own in sides:
        check_ids(table, own, which)
    made = spec.ranked(None)
    numbered = [
        numbered_by_index(table, own.columns)
        for table, own in zip(tables, (made, made.right), strict=True)
    ]
    with within_memory(Cause.of(spec, True)):
        pairs = _all_pairs(numbered, made, drivers)
        check_matching(free_memory(), Cause.of(spec, True), len(pairs))
        best = greedy_of_frames(pairs)
        found = _rows(tables[0], tables[1], wanted, best)
        alone = [
            _alone(table, own, np.arange(len(table)), best, wanted, which)
            for which, table, own in sides
            if which in KEEPS.get(wanted.how, ())
        ]
        return frames_for(wanted.example).stacked([found, *alone]) if alone else found


def _matched_lazily(tables: Sequence[Frame], given: tuple[Drivers, Wanted]) -> Frame:
    """Match the rows of Dask DataFrames. One task receives the numbers of the rows of
    all pairs, and another one the rows that have a partner.
    """
    import dask.dataframe as dd

    from dask_simjoin.graph.dask_private import new_collection
    from dask_simjoin.graph.matching import GreedyMatches
    from dask_simjoin.graph.source import computed_once

    drivers, wanted = given
    spec = wanted.spec
    position = free_name(POSITION, [example_of(table) for table in tables])
    specs = spec, spec.right
    numbered = [
        table_of(computed_once(table[own.columns])).numbered(position)
        for table, own in zip(tables, specs, strict=True)
    ]
    pairs = _all_pairs(numbered, spec.ranked(position), drivers)
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
    return table_of(dd.concat([found, *alone]) if alone else found).recorded()


MATCHES = Drivers(_matched, lambda: _matched_lazily)
"""The two ways to match rows: see `one_to_one`."""


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
    own: RowSpec,
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
    own: RowSpec,
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
