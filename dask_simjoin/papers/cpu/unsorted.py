"""The index of methods without one: the rows and their positions."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.norms import Index


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
