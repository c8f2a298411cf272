"""The first paper's cost model for the number of indexed dimensions, if it knew of the masks.

The published model counts 3**k lookups per query. The join looks up only the adjacent coordinates that some
cell has, dimension by dimension, which its masks tell. So this model takes the mean number of these cells.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.papers.rows import Row
from benchmarks.papers.runs import SAMPLE, eps_of, prepared
from dask_simjoin.metrics.norms import reach
from dask_simjoin.papers.grid import Grid, coordinates, costs, dims_in_order, make_cells


class Estimate(NamedTuple):
    """Estimated reads of a join: of lookups as published, of those that masks leave, and of comparisons."""

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


@functools.lru_cache(maxsize=4)
def _estimates(data: str, rows: int, eps: float, options: Grid) -> list[Estimate]:
    x, m = prepared(data, rows)
    some = x[np.random.default_rng(2).choice(len(x), min(len(x), SAMPLE), replace=False)]
    return list(estimates(options, some, len(x), m.variance, eps**2))


def of(row: Row, rows: int) -> list[Estimate]:
    """Return the estimates for a row's points and options."""
    options = dataclasses.replace(row.method, indexed=None)
    return _estimates(row.data, rows, eps_of(row.data, rows, row.eps), options)


def estimated(row: Row, rows: int) -> dict[str, float]:
    """Estimate the reads that a row's `search_ops` and `compare_ops` count, and its lookups with masks."""
    one = next(one for one in of(row, rows) if one.indexed == row.method.indexed)
    return {
        "estimated search_ops": one.search, "estimated compare_ops": one.compare,
        "estimated search_ops with masks": one.masked,
    }  # fmt: skip


def cheapest(row: Row, rows: int) -> Grid:
    """Return a row's options with the number of dimensions that costs least with masks."""
    best = min(of(row, rows), key=lambda one: one.masked + one.compare)
    return dataclasses.replace(row.method, indexed=best.indexed)
