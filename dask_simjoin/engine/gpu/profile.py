"""Counts what methods do on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu.methods import kmeans
from dask_simjoin.engine.gpu.methods.flow import TOLD, estimate, flow, found_by
from dask_simjoin.engine.gpu.methods.grid import Launch
from dask_simjoin.engine.gpu.methods.method import GpuLayout
from dask_simjoin.engine.gpu.pairs import method_of
from dask_simjoin.engine.index.clusters import KMeansLayout
from dask_simjoin.engine.index.grid import GridLayout
from dask_simjoin.engine.index.grid_batches import Batch
from dask_simjoin.engine.index.grid_model import facts
from dask_simjoin.engine.index.nested import NestedLayout, compared
from dask_simjoin.engine.profile import Counters, Numbers, compared_ratio
from dask_simjoin.metrics.types import Array, Index

WARM = 1000
"""Points whose join compiles the kernels before anything is timed."""


class _Steps:
    """Times steps to their end on the GPU."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, step: Callable[[], Any]) -> Any:
        cupy.cuda.get_current_stream().synchronize()
        begin = time.perf_counter()
        done = step()
        cupy.cuda.get_current_stream().synchronize()
        self.seconds[name] = time.perf_counter() - begin
        return done


class GpuProfiler:
    """See `Profiler`."""

    def profile(self, x: Array, layout: GpuLayout) -> Counters:
        if not len(x):
            return Counters({"pairs": 0.0}, {})
        self._run(x[:WARM], layout)  # all kernels are compiled
        return self._run(x, layout)

    def _run(self, x: Array, layout: GpuLayout) -> Counters:
        steps = _Steps()
        index = steps.time("index", lambda: method_of(layout.method).build(x, layout))
        if isinstance(layout, GridLayout):
            numbers = _grid(index, layout, steps)
        else:
            numbers = _any(index, layout, steps)
        if isinstance(layout, NestedLayout):
            numbers |= compared(len(x), layout.dims)
        if isinstance(layout, KMeansLayout):
            numbers |= kmeans.tell(index, layout)
        numbers["selectivity"] = 2 * numbers["pairs"] / len(x)
        return Counters(numbers | compared_ratio(numbers, len(x)), steps.seconds)


def _any(index: Index, layout: GpuLayout, steps: _Steps) -> Numbers:
    """Count the batches of a join of whose kernel no more is known."""
    numbers: Numbers = {"pairs": 0, "batches": 0, "largest_batch": 0, "decided": 0, "refused": 0}

    def join() -> None:
        for found in method_of(layout.method).batches(index, index, layout, same=True):
            _add(numbers, len(found.places), found.decided, found.refused)

    steps.time("join", join)
    return numbers


def _add(numbers: Numbers, pairs: int, decided: int, refused: int) -> None:
    numbers["pairs"] += pairs
    numbers["batches"] += 1
    numbers["largest_batch"] = max(numbers["largest_batch"], pairs)
    numbers |= {"decided": decided, "refused": refused}


def _grid(index: Index, layout: GridLayout, steps: _Steps) -> Numbers:
    """Count what the grid join's kernel does, in a run of a build that tells it, which is not timed."""
    numbers: Numbers = {"pairs": 0, "batches": 0, "largest_batch": 0, "decided": 0, "refused": 0}
    join = steps.time("order", lambda: Launch.of(index, index, layout, True))
    estimated = steps.time("estimate", lambda: estimate(join))
    running, made = flow(join, estimated)

    def work() -> None:
        for found in found_by(running, made, join.queries):
            _add(numbers, len(found.places), found.decided, found.refused)

    steps.time("join", work)
    telling = Launch.of(index, index, layout, True, TELLING=1)
    state = cupy.zeros(TOLD, cupy.uint64)
    telling.run(Batch(0, 1, len(join.places)), 0, np.uint64(0), (np.uint64(0), np.uint64(0)), state)
    _, _, _, _, lookups, found, candidates, comparisons, terms, active, lanes = state.get().tolist()
    host = {"keys": index["keys"].get(), "starts": index["starts"].get()}
    places, workload = join.places.get(), join.workload().get()
    numbers |= facts(host, layout, places, workload, estimated, comparisons) | {
        "lookups": lookups, "found": found, "candidates": candidates, "comparisons": comparisons,
        "terms": terms, "estimated_pairs": estimated, "batches": len(made),
        "repeated_batches": running.repeated, "largest_batch": running.largest,
    }  # fmt: skip
    if lanes:
        numbers["warp_efficiency"] = active / lanes
    return numbers


PROFILER = GpuProfiler()
