"""Several GPUs as in the first paper (section 6): query sets, simulated speedups, and
what a ring moves.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.papers.rows import Row
from benchmarks.papers.runs import layout_for, prepared
from dask_simjoin.methods import Grid
from dask_simjoin.papers.cpu import grid as on_cpu

SETS = 32
"""Query sets: 460.58 s in all, of 13.88 to 14.95 s each, are about as many."""

DEVICES = (1, 2, 4, 8, 16, 32)
NODES = (2, 4, 8, 16, 32, 64, 128)
BYTES_A_SECOND = 40e9 / 8
"""Bandwidth of the paper's network."""

ROW = Row(
    "gpu_join", "fig10-11", "Syn16D", 500_000, 0.05, "32 query sets", Grid.gpu_join()
)


def speedups(times: np.ndarray, devices: tuple[int, ...] = DEVICES) -> dict[int, float]:
    """Return T(1) / T(p), where device i of p joins the sets j = i, i + p, ... one
    after the other.
    """
    return {
        p: float(times.sum() / max(times[i::p].sum() for i in range(p)))
        for p in devices
    }


def told(kind: str, times: np.ndarray, unit: str) -> dict[str, Any]:
    """Return how balanced sets are; the paper's largest set is 1.077 times its
    smallest.
    """
    least, most = float(times.min()), float(times.max())
    return {
        "sets": kind,
        "unit": unit,
        "least": least,
        "mean": float(times.mean()),
        "most": most,
        "most/least": most / least,
        "speedup": speedups(times),
        "times": times.tolist(),
    }


def _cuts(places: Any) -> dict[str, list[Any]]:
    """Query sets as the paper takes them, and of neighbors: each a part of the queries
    in their order.
    """
    ends = np.linspace(0, len(places), SETS + 1).astype(int)
    return {
        "strided": [places[j::SETS] for j in range(SETS)],
        "contiguous": [places[a:b] for a, b in itertools.pairwise(ends)],
    }


def sets_by_model(rows: int) -> list[dict[str, Any]]:
    """Return the work of sets without a GPU: the points that their queries visit."""
    layout = layout_for(ROW, rows, replace(ROW.method, sort=False), "pandas")
    built = on_cpu.build(prepared(ROW.data, rows)[0], layout)
    work = on_cpu.workload(built, built, layout, True)
    cell = np.searchsorted(built["starts"], np.arange(rows), side="right") - 1
    # rows of a cell lie together: sets are contiguous in places, but strided in rows
    by_row = np.argsort(built["order"][:rows])
    found = []
    for kind, places in (("strided", by_row), ("contiguous", np.arange(rows))):
        times = np.array(
            [float(work[cell[some]].sum()) for some in _cuts(places)[kind]]
        )
        found.append(told(kind, times, "points visited"))
    return found


def sets_on_gpu(rows: int, repeat: int) -> list[dict[str, Any]]:
    """Time the sets one after the other on one GPU, each a join of its queries with all
    points.
    """
    import cupy  # imported late, because it is installed only where there is a GPU

    from dask_simjoin.papers.gpu import grid
    from dask_simjoin.papers.gpu.flow import estimate, flow, found_by

    layout = layout_for(ROW, rows, ROW.method, "cudf")
    built = grid.build(cupy.asarray(prepared(ROW.data, rows)[0]), layout)
    whole = grid.GridLaunch.of(built, built, layout, True)
    ends = cupy.arange(rows, dtype=cupy.int32)
    found = []
    for kind, places in (("strided", whole.places), ("contiguous", ends)):
        runs: list[list[float]] = []
        for some in _cuts(places)[kind]:
            join = replace(whole, places=cupy.ascontiguousarray(some))
            seconds = []
            for _ in range(repeat):
                running, made = flow(join, estimate(join))
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                for _ in found_by(running, made, len(some)):
                    pass
                end.record()
                end.synchronize()
                seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1000)
            runs.append(seconds)
        found.append(told(kind, np.median(runs, axis=1), "seconds") | {"runs": runs})
    return found


def ring(rows: int, dims: int, width: int = 4) -> list[dict[str, Any]]:
    """Return the bytes that the ring moves (section 6.3), and the most that meeting
    once would move.

    In the ring, all entries move in each of p - 1 phases, and each two chunks meet
    twice.  In a graph of tasks, each two chunks meet once, so at most one of them
    moves.  That is half as much, and no GPU waits.
    """
    size = rows * dims * width
    return [
        {
            "nodes": p,
            "phases": p - 1,
            "bytes a phase": size,
            "bytes": size * (p - 1),
            "bytes of a node": size * (p - 1) // p,
            "seconds at 40 Gbit/s": size / p * (p - 1) / BYTES_A_SECOND,
            "bytes of a graph, at most": size * (p - 1) // 2,
        }
        for p in NODES
    ]
