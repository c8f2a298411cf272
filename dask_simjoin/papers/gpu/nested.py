"""Find pairs by comparing every row with every other row, on GPUs: see `NestedLoop`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.sources import norm_constant
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Array, Index, Norm
from dask_simjoin.papers.gpu.flow import OneKernel, bounds_for, filtered, limits
from dask_simjoin.papers.grid_batches import Batch
from dask_simjoin.papers.list_index import NestedLayout, compared
from dask_simjoin.papers.lists import NestedLoop


@dataclass(frozen=True)
class NestedLaunch:
    """A `Launch` of a nested loop. Blocks of rows take the place of queries in it."""

    q: Index
    d: Index
    layout: NestedLayout
    is_self_join: bool
    first: int
    queries: int
    constants: dict[str, int]

    @classmethod
    def of(
        cls,
        q: Index,
        d: Index,
        layout: NestedLayout,
        is_self_join: bool,
        rows: Rows | None = None,
        **constants: int,
    ) -> NestedLaunch:
        """Cut the queries into blocks. `rows`: range of positions of the requested
        queries.
        """
        block = layout.options.block
        start, stop = rows or (0, len(q["y"]))
        return cls(
            q,
            d,
            layout,
            is_self_join,
            start // block,
            -(-stop // block) - start // block,
            constants,
        )

    def run(
        self,
        batch: Batch,
        capacity: int,
        out: Array | np.uint64,
        counts: tuple[Any, Any],
        state: Array,
    ) -> None:
        layout, options, q, d = self.layout, self.layout.options, self.q, self.d
        arguments = (
            np.int64(self.first + batch.first),
            np.int64(batch.step),
            np.uint32(batch.number),
            q["z"],
            q["y"],
            np.int32(len(q["y"])),
            d["z"],
            d["y"],
            np.int32(len(d["y"])),
            np.int32(self.is_self_join),
            *limits(layout.threshold, layout.bounds),
            np.uint64(capacity),
            out,
            *counts,
            state,
        )
        shape = {
            "DIMS": layout.dims,
            "BLOCK": options.block,
            "EXACT": layout.bounds is None,
        }
        shape |= {"ROTATION": options.schedule == "rotation"}
        constants = {"COUNTING": 0} | self.constants | norm_constant(layout.norm)
        kernel = load.kernel("papers/nested", "join_nested", **shape, **constants)
        kernel((batch.number,), (options.block,), arguments)


def layout(
    options: NestedLoop,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> NestedLayout:
    bounds = bounds_for(options.precision, lower, upper, mean, threshold, norm)
    return NestedLayout(threshold, options, len(lower), norm, bounds)


def build(x: Array, layout: NestedLayout) -> Index:
    """Return an index that keeps the rows in their order; ``z`` (d, n): transposed rows
    for the kernel.
    """
    order, y = cupy.arange(len(x), dtype=cupy.int32), cupy.ascontiguousarray(x)
    z = y if layout.bounds is None else filtered(y, layout.bounds)
    return {"order": order, "y": y, "z": cupy.ascontiguousarray(z.T)}


_KERNEL = OneKernel(NestedLaunch.of)
batches, count, pass_to = _KERNEL.batches, _KERNEL.count, _KERNEL.pass_to


def layout_stats(index: Index, layout: NestedLayout) -> Numbers:
    return compared(len(index["y"]), layout.dims)
