"""The verbs that all similarities have: distances, sets and strings."""

from __future__ import annotations

from typing import Any

from dask_simjoin.calls.drivers import Drivers, Number
from dask_simjoin.calls.examples import (
    NEIGHBORS,
    counts_example,
    pairs_example,
    series_example,
)
from dask_simjoin.calls.inputs import check_other, one_or_two, same_library
from dask_simjoin.calls.matching import Wanted, one_to_one
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.requests import ANTI, GREEDY, INNER, SEMI


def self_join(frame: Frame, request: Any, drivers: Drivers) -> Frame:
    meta = example_of(frame)
    spec = request.spec(meta)
    example = pairs_example(meta, meta, spec)
    driver = drivers.of([frame], spec)
    if getattr(request, "best", False):
        return driver.best(example, INNER)
    return driver.pairs(example)


def join(frame: Frame, request: Any, drivers: Drivers) -> Frame:
    """Find the pairs of matching rows of two tables, or the left rows with or without a
    match.
    """
    frame, other, left, right = same_library(frame, request.other)
    spec = request.spec(left, right)
    if request.how in (SEMI, ANTI):
        driver = drivers.of([frame, other], spec)
        matches = driver.counts(series_example(left, NEIGHBORS))
        return frame[(matches > 0) if request.how == SEMI else (matches == 0)]
    example, tables = pairs_example(left, right, spec, request.how), [frame, other]
    if request.matching == GREEDY:
        return one_to_one(tables, Wanted(spec, request.how, example), drivers)
    driver = drivers.of(tables, spec)
    if getattr(request, "best", False):
        return driver.best(example, request.how)
    return driver.pairs(example, request.how)


def neighbor_counts(frame: Frame, request: Any, drivers: Drivers) -> Series | Frame:
    """Count the matches of each row, in the same table or in another."""
    tables, spec, left, _ = _tables(frame, request, request)
    return drivers.of(tables, spec).counts(counts_example(left, spec))


def count_pairs(frame: Frame, request: Any, drivers: Drivers) -> Number:
    meta = example_of(frame)
    spec = request.spec(meta)
    return drivers.of([frame], spec).number(meta)


def near_duplicated(frame: Frame, request: Any, drivers: Drivers) -> Series:
    """Mark the rows to drop: each of them matches a row that is kept."""
    meta = example_of(frame)
    spec = request.spec(meta)
    example = series_example(meta, None)
    return drivers.of([frame], spec).marks(request, example)


def plan(frame: Frame, request: Any, drivers: Drivers) -> Any:
    """Plan a join of one or two tables. Return the report of the plan."""
    tables, spec, left, right = _tables(frame, request, request.planned())
    pairs_example(left, right, spec)
    return drivers.of(tables, spec).plan()


def _tables(frame: Frame, request: Any, planned: Any) -> tuple[Any, ...]:
    """Return a list of one table or two, their spec, and empty examples of both.

    `planned`: the request that makes the spec.
    """
    given = getattr(request, "other", None)
    if given is not None:
        check_other("other=frame", given)
    frame, other, left, right = one_or_two(frame, given)
    if other is None:
        return [frame], planned.spec(left), left, left
    return [frame, other], planned.spec(left, right), left, right
