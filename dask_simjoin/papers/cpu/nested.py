"""Find pairs by comparing each row with each other row, on CPUs; see `dask_simjoin.papers.lists`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.sinks import NO_COUNTS, NO_PAIRS, Sink, fill
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.norms import Index, Norm
from dask_simjoin.papers.cpu.kernels import lists as list_kernels
from dask_simjoin.papers.list_index import NestedLayout, compared
from dask_simjoin.papers.lists import NestedLoop


def build(x: np.ndarray, layout: Layout, threads: int = 1) -> Index:
    """Return the rows in their order, and their positions."""
    order = np.zeros(len(x) + SWEEP_LANES, np.int32)
    order[: len(x)] = np.arange(len(x))
    return {"order": order, "y": np.ascontiguousarray(x)}


def part(index: Index, start: int, stop: int) -> Index:
    return {"order": index["order"][start : stop + SWEEP_LANES], "y": index["y"][start:stop]}


def points(index: Index) -> np.ndarray:
    return index["y"]


def end(index: Index, stop: int, layout: Layout) -> int:
    return len(index["y"])


writes_names = False

KINDS = {"rotation": list_kernels.ROTATION, "triangle": list_kernels.TRIANGLE}

WORK_PARTS = 64
"""Number of parts of a triangle whose work is computed."""


def layout(options: NestedLoop, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
           variance: np.ndarray, threshold: float, norm: Norm,
           drawn: Drawn | None = None) -> NestedLayout:  # fmt: skip
    return NestedLayout(threshold, options, len(lower), norm)


def _jobs(q: Index, d: Index, layout: NestedLayout, is_self_join: bool) -> np.ndarray:
    kind = KINDS[layout.options.schedule] if is_self_join else list_kernels.ACROSS
    return np.array([[0, len(q["y"]), 0, len(d["y"]), kind]], np.int64)


def _run(q: Index, d: Index, layout: NestedLayout, is_self_join: bool, names: Any, sink: Sink | None,
         counts: tuple[np.ndarray, np.ndarray] | None) -> None:  # fmt: skip
    """Write all pairs to a sink, or count them per position."""
    jobs, state = _jobs(q, d, layout, is_self_join), np.zeros(4, np.int64)
    positions = np.arange(len(q["y"]), dtype=np.int32)
    scratch = list_kernels.scratch(q["y"].shape[1], layout.options.block)

    def write() -> tuple[int, int]:
        left, right, capacity = (*NO_PAIRS, 0) if sink is None else (sink.left, sink.right, sink.capacity)
        n = list_kernels.join(
            jobs, q["y"], positions, names[0], d["y"], names[1], layout.options.block, layout.threshold,
            kind_of(layout.norm), is_self_join, left, right, capacity, counts is not None,
            *(counts or NO_COUNTS), state, *scratch,
        )  # fmt: skip
        return n, int(state[list_kernels.ROOM])

    if sink is None:
        write()
    else:
        fill(sink, write)


def pairs(q: Index, d: Index, layout: NestedLayout, is_self_join: bool, names: list[np.ndarray],
          sink: Sink, orient_by_position: bool) -> tuple[int, int]:  # fmt: skip
    """Write all pairs of two indexes to a sink; float64 decides all, without a filter."""
    _run(q, d, layout, is_self_join, names, sink, None)
    return 0, 0


def counts(q: Index, d: Index, layout: NestedLayout, is_self_join: bool, q_counts: np.ndarray,
           d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
    """Add the pairs of each position to the counts of both sides."""
    _run(q, d, layout, is_self_join, [q["order"], d["order"]], None, (q_counts, d_counts))


def layout_stats(index: Index, layout: NestedLayout) -> Numbers:
    """Return the counters of two nested loops."""
    return compared(len(index["y"]), layout.dims)


def work(q: Index, d: Index, layout: NestedLayout, is_self_join: bool) -> np.ndarray:
    """Return the relative work of parts of queries: in a self-join, early ones meet more later rows."""
    return np.arange(WORK_PARTS, 0, -1) - 0.5 if is_self_join else np.ones(1)
