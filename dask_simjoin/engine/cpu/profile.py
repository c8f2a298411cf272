"""Counts what methods do on the CPU."""

from __future__ import annotations

import time

import numpy as np

from dask_simjoin.engine.base import HOME, method_module
from dask_simjoin.engine.cpu.methods.method import CpuMethod
from dask_simjoin.engine.cpu.methods.sinks import Shown
from dask_simjoin.engine.profile import Counters, Numbers, compared_ratio
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.types import Index

WARM = 100
"""Points whose join compiles the kernels, or finds them compiled, before anything is timed."""


class CpuProfiler:
    """See `Profiler`."""

    def profile(self, x: np.ndarray, layout: Layout) -> Counters:
        module: CpuMethod = method_module(layout.method, HOME)
        if not len(x):
            return Counters({"pairs": 0.0}, {})
        self._run(module, x[:WARM], layout)
        numbers, seconds, index = self._run(module, x, layout)
        numbers |= module.tell(index, layout)
        return Counters(numbers | compared_ratio(numbers, len(x)), seconds)

    def _run(self, module: CpuMethod, x: np.ndarray,
             layout: Layout) -> tuple[Numbers, dict[str, float], Index]:  # fmt: skip
        """Join once: numbers, seconds, and the index."""
        found = np.zeros(1, np.int64)

        def add(left: np.ndarray, right: np.ndarray) -> None:
            found[0] += len(left)

        begin = time.perf_counter()
        index = module.build(x, layout)
        built = time.perf_counter()
        names = [np.arange(len(index["order"]), dtype=np.int32)] * 2
        decided, refused = module.pairs(index, index, layout, True, names, Shown(add), False)
        seconds = {"index": built - begin, "join": time.perf_counter() - built}
        numbers: Numbers = {"decided": decided, "refused": refused, "pairs": int(found[0])}
        numbers["selectivity"] = 2 * numbers["pairs"] / len(x)
        return numbers, seconds, index


PROFILER = CpuProfiler()
