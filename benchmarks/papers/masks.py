"""The first paper's cost model for the number of indexed dimensions, if it knew of the
masks.

The published model counts 3**k lookups per query. The join looks up only the adjacent
coordinates that some cell has, dimension by dimension, according to its masks. So this
model takes the mean number of these cells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from benchmarks.papers.rows import MASKED, Row
from benchmarks.papers.runs import SAMPLE, eps_of, prepared
from dask_simjoin.metrics.norms import reach
from dask_simjoin.papers.grid import Grid, coordinates, costs, dims_in_order, make_cells


class Estimate(NamedTuple):
    """Estimated reads of a join: of lookups as published, of those that masks leave,
    and of comparisons.
    """

    indexed: int
    search: float
    masked: float
    compare: float


def estimates(
    options: Grid, x: np.ndarray, rows: float, variance: np.ndarray, threshold: float
) -> Iterator[Estimate]:
    """Yield the estimates for 1, 2, ... indexed dimensions; `x` (m, d): a sample."""
    order, width = dims_in_order(options, variance), reach(2, threshold)
    lower, upper = x.min(axis=0), x.max(axis=0)
    left = np.ones(len(x))
    for cost in costs(options, x, rows, variance, threshold):
        dim = order[cost.indexed - 1 : cost.indexed]
        cell = coordinates(x, make_cells(lower, upper, dim, width), np)[:, 0]
        there = np.zeros(int(cell.max()) + 2, bool)
        there[cell] = True
        left *= there[cell - 1] * 1.0 + there[cell] + there[cell + 1]
        share = float(left.mean()) / 3.0**cost.indexed
        yield Estimate(cost.indexed, cost.search, cost.search * share, cost.compare)


_POOL = ThreadPoolExecutor(8)

_FOUND: dict[tuple[str, int, float, Grid], Future[list[Estimate]]] = {}
"""Estimates by points, distance and options."""


def begin(row: Row, rows: int) -> Future[list[Estimate]]:
    """Start to estimate the costs of a row's points and options, which takes seconds."""
    options = dataclasses.replace(row.method, indexed=None)
    key = row.data, rows, eps_of(row.data, rows, row.eps), options
    if key not in _FOUND:
        x, m = prepared(row.data, rows)
        some = x[
            np.random.default_rng(2).choice(len(x), min(len(x), SAMPLE), replace=False)
        ]
        work = estimates(options, some, len(x), m.variance, key[2] ** 2)
        _FOUND[key] = _POOL.submit(list, work)
    return _FOUND[key]


def estimated(row: Row, rows: int) -> dict[str, float]:
    """Estimate the reads that a row's `search_ops` and `compare_ops` count, and its
    lookups with masks.
    """
    one = next(
        one for one in begin(row, rows).result() if one.indexed == row.method.indexed
    )
    return {
        "estimated search_ops": one.search,
        "estimated compare_ops": one.compare,
        "estimated search_ops with masks": one.masked,
    }


def fitted(row: Row, rows: int) -> Row:
    """Return a row with the number of dimensions that costs least: as published, or
    with masks.
    """
    if row.method.indexed != "auto":
        return row
    every = begin(row, rows).result()
    if row.setting.endswith(MASKED):
        best = min(every, key=lambda one: one.masked + one.compare)
    else:
        best = min(every, key=lambda one: one.search + one.compare)
    return dataclasses.replace(
        row, method=dataclasses.replace(row.method, indexed=best.indexed)
    )
