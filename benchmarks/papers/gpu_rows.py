"""Rows of the grid papers, timed on a GPU.

Kernels are compiled in the background at first, and run on a few points. Then runs are
timed: index, order, estimate, and pairs batch by batch, which are dropped. One more run
counts the work. Work that rows share, such as the plain join of a set of points, is
measured once.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Iterable
from typing import Any

import cupy
import numpy as np

from benchmarks.harness.repeats import rounded, summaries, timed
from benchmarks.papers.data import PRESORTED, points, presorted
from benchmarks.papers.rows import FOUR, Row
from benchmarks.papers.runs import layout_for, prepared
from dask_simjoin.engine.base import profiler_of_library
from dask_simjoin.engine.gpu import load
from dask_simjoin.papers.gpu import grid
from dask_simjoin.papers.gpu.flow import STATE_SIZE, estimate, flow, found_by
from dask_simjoin.papers.grid import Grid, GridLayout
from dask_simjoin.papers.grid_batches import Batch

WARM = 4096
"""Number of points of a join that runs before the clock starts."""

COUNTED = ("fig6", "fig7", "fig8", "fig9")
"""Figures whose rows are counted; other figures are counted only at the distances of
tables III to V.
"""

MOST_COUNTED = 6.0
"""If a join takes more seconds, its work is not counted: counting takes about as long
once more.
"""

TIMED = ("order", "estimate", "join")
"""Steps of a run whose sum is the time of a row; the index is not among them, as in the
papers.
"""


def begin(rows: Iterable[tuple[Row, int]]) -> None:
    """Start to compile the kernels of rows, on several threads."""
    for row, number in rows:
        layout = layout_for(row, number, row.method, "cudf")
        assert isinstance(layout, GridLayout)
        shape = {
            "DIMS": layout.dims,
            "INDEXED": len(layout.cells.dims),
            "EXACT": layout.bounds is None,
        }
        for more in ({}, {"TELLING": 1}):
            load.begin(("papers/grid", "join_grid", {"COUNTING": 0} | more | shape))


@functools.lru_cache(maxsize=2)
def on_device(data: str, rows: int) -> Any:
    """Return the points of a set on the GPU."""
    return cupy.asarray(prepared(data, rows)[0])


def whole(x: Any, layout: Any) -> tuple[dict[str, float], int]:
    """Join from the points on, and drop the pairs; seconds of each step, and how many
    pairs there are.
    """
    marks = [time.perf_counter()]

    def mark() -> None:
        cupy.cuda.Device().synchronize()
        marks.append(time.perf_counter())

    cupy.cuda.Device().synchronize()
    marks[0] = time.perf_counter()
    index = grid.build(x, layout)
    mark()
    join = grid.GridLaunch.of(index, index, layout, True)
    mark()
    expected = estimate(join)
    mark()
    pairs = sum(
        len(found.places) for found in found_by(*flow(join, expected), join.queries)
    )
    mark()
    steps = zip(
        ("index", "order", "estimate", "join"), np.diff(marks).tolist(), strict=True
    )
    return {"whole": marks[-1] - marks[0]} | dict(steps), pairs


def measured(row: Row, rows: int, repeat: int, seconds: float) -> dict[str, Any]:
    """Time a row, at most `repeat` times and about `seconds` in all, and the package's
    own engine.
    """
    more: dict[str, float] = {}
    counting = row.figure in COUNTED or FOUR.get(row.data) == row.eps
    found = _joined(row.data, rows, row.eps, row.method, repeat, seconds, counting)
    tiles = _tiles(row.data, rows, row.eps, repeat)
    if tiles["pairs"] != found["pairs"]:
        raise AssertionError(
            f"{row}: {found['pairs']} pairs, and tiles find {tiles['pairs']}"
        )
    if row.data.endswith(PRESORTED):
        given = points(row.data.removesuffix(PRESORTED), rows)
        more["presort"] = rounded(
            min(timed(lambda: presorted(given)) for _ in range(3))
        )
    return (
        found
        | more
        | {
            "tiles": tiles["join"],
            "tiles runs": tiles["runs"],
            "grid/tiles": found["total"] / tiles["join"],
        }
    )


_KNOWN: dict[tuple[str, int, float, Grid], dict[str, Any]] = {}
"""Counts by points, distance and options."""


def _joined(
    data: str,
    rows: int,
    eps: float,
    method: Grid,
    repeat: int,
    seconds: float,
    counting: bool,
) -> dict[str, Any]:
    key = data, rows, eps, method
    if key not in _KNOWN:
        _KNOWN[key] = _timed(*key, repeat, seconds, counting)
    return dict(_KNOWN[key])


def _timed(
    data: str,
    rows: int,
    eps: float,
    method: Grid,
    repeat: int,
    seconds: float,
    counting: bool,
) -> dict[str, Any]:
    began = time.perf_counter()
    x = on_device(data, rows)
    layout = layout_for(Row("", "", data, rows, eps, "", method), rows, method, "cudf")
    assert isinstance(layout, GridLayout)
    whole(x[:WARM], layout)
    runs: list[dict[str, float]] = []
    while not runs or (len(runs) < repeat and _fits(began, len(runs), seconds)):
        steps, pairs = whole(x, layout)
        runs.append(steps | {"total": sum(steps[name] for name in TIMED)})
    medians = summaries(runs)
    found: dict[str, Any] = {
        "pairs": pairs,
        "indexed": len(layout.cells.dims),
        "runs": medians.pop("runs"),
        "total": medians.pop("total"),
        "seconds": medians,
    }
    if counting and found["total"] <= MOST_COUNTED:
        found |= _counted(x, layout)
    return found


def _fits(began: float, runs: int, seconds: float) -> bool:
    """Return whether one more run fits into the seconds of a row."""
    spent = time.perf_counter() - began
    return spent + spent / runs <= seconds


def _counted(x: Any, layout: GridLayout) -> dict[str, float]:
    """Count the work of the kernel in one more run."""
    index = grid.build(x, layout)
    join = grid.GridLaunch.of(index, index, layout, True, TELLING=1)
    state, none = cupy.zeros(STATE_SIZE, cupy.uint64), np.uint64(0)
    join.run(Batch(0, 1, join.queries), 0, none, (none, none), state)
    names = (
        "lookups",
        "found",
        "candidates",
        "comparisons",
        "terms",
        "active",
        "lanes",
    )
    told: dict[str, float] = dict(zip(names, state.get().tolist()[4:], strict=True))
    active, lanes = told.pop("active"), told.pop("lanes")
    cells = len(index["keys"])
    told["cells"] = cells
    told["search_ops"] = (
        len(x) * 3.0 ** len(layout.cells.dims) * max(1.0, math.log2(max(cells, 1)))
    )
    told["compare_ops"] = layout.dims * told["comparisons"]
    return told | ({"warp_efficiency": active / lanes} if lanes else {})


@functools.lru_cache(maxsize=64)
def _tiles(data: str, rows: int, eps: float, repeat: int) -> dict[str, Any]:
    row = Row("", "", data, rows, eps, "", Grid())
    layout = layout_for(row, rows, "tiles", "cudf")
    told = [
        profiler_of_library("cudf").profile(on_device(data, rows), layout)
        for _ in range(repeat)
    ]
    runs = [rounded(one.seconds["join"]) for one in told]
    return {
        "pairs": told[0].numbers["pairs"],
        "join": statistics.median(runs),
        "runs": runs,
    }
