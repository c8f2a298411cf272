"""Layouts of the grid papers' rows, and the counts of a row without a GPU."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.papers.data import distance_of, points
from benchmarks.papers.rows import GPU_JOIN, Row
from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.papers import grid as index
from dask_simjoin.papers.cpu import grid as on_cpu
from dask_simjoin.papers.grid import Grid, GridLayout
from dask_simjoin.papers.grid_batches import facts
from dask_simjoin.planning.sample import Moments, moments

SAMPLE = 20_000
"""Size of the sample that chooses the number of indexed dimensions."""

COUNTED = 20_000
"""Points of rows whose comparisons only a run can count, where there is no GPU."""


@functools.lru_cache(maxsize=12)
def prepared(data: str, rows: int) -> tuple[np.ndarray, Moments]:
    """Return the points of a set, and their moments."""
    x = points(data, rows)
    return x, moments(x)


@functools.cache
def eps_of(data: str, rows: int, eps: float) -> float:
    """Return a row's distance."""
    return eps if eps >= 0 else distance_of(prepared(data, rows)[0], -eps)


def layout_for(row: Row, rows: int, method: Grid | str, library: str) -> Any:
    """Choose how to index a row's points."""
    x, m = prepared(row.data, rows)
    eps = eps_of(row.data, rows, row.eps)
    if isinstance(method, Grid):
        some = x[
            np.random.default_rng(2).choice(len(x), min(len(x), SAMPLE), replace=False)
        ]
        method = method.fitted(some, len(x), m.variance, eps**2)
    return joiner_of_library(library).layout(
        method, m.lower, m.upper, m.mean, m.variance, eps**2
    )


def by_model(row: Row, rows: int) -> dict[str, Any]:
    """Describe a row without a GPU: by workloads of cells, or counted in a run of fewer
    points.
    """
    # one unit of a figure, also where workloads alone would do
    counted = row.paper == GPU_JOIN
    comparisons = 0.0
    rows = min(rows, COUNTED) if counted else rows
    layout: GridLayout = layout_for(row, rows, row.method, "pandas")
    x, _ = prepared(row.data, rows)
    built = on_cpu.build(x, layout)
    if counted:
        told: dict[str, Any] = on_cpu.layout_stats(built, layout)
    else:
        work = on_cpu.workload(built, built, layout, True)
        comparisons = float(work @ np.diff(built["starts"]))
        places = index.queries(built, work, layout.options)
        told = {"comparisons": comparisons} | facts(
            built, layout, places, work, 0.0, comparisons
        )
    # coordinates that are read; or the steps of all lanes, if a warp waits for its
    # slowest
    total = (
        told["terms"] + told["search_ops"]
        if counted
        else comparisons / told["warp_efficiency_model"]
    )
    return told | {"rows": rows, "indexed": _indexed(layout), "total": total}


def _indexed(layout: Any) -> int:
    return len(layout.cells.dims) if isinstance(layout, GridLayout) else 0
