"""Find pairs by looking up the cells of a grid, on GPUs: see
`dask_simjoin.papers.grid`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.load import THREADS
from dask_simjoin.engine.gpu.pairs import Timed, count_batches
from dask_simjoin.engine.gpu.sources import norm_constant
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Array, Index, Norm, reach
from dask_simjoin.papers import grid as grid_index
from dask_simjoin.papers.gpu.flow import (
    STATE_SIZE,
    OneKernel,
    bounds_for,
    estimate,
    filtered,
    flow,
    found_by,
    limits,
)
from dask_simjoin.papers.grid import PATTERNS, Grid, GridLayout, make_grid_layout
from dask_simjoin.papers.grid_batches import Batch, facts

FILL = 1 << 19
"""Number of threads that keep a GPU busy.

If there are fewer queries, several groups of threads share each query.
"""

MIN_SHARE = 1024
"""Minimum number of points per group of threads, if several groups share the points of
a query.
"""


@dataclass(frozen=True)
class GridLaunch:
    """A `Launch` of a grid join.

    `places`: the queries in the order of their processing, as positions in the index.
    """

    q: Index
    d: Index
    layout: GridLayout
    is_self_join: bool
    places: Array
    strides: Array
    constants: dict[str, int]

    @classmethod
    def of(
        cls,
        q: Index,
        d: Index,
        layout: GridLayout,
        is_self_join: bool,
        rows: Rows | None = None,
        **constants: int,
    ) -> GridLaunch:
        """Create the launch, and choose the order of the queries.

        `rows`: range of positions of the requested queries.
        """
        strides = cupy.asarray(np.array(layout.cells.strides, np.int64))
        join = cls(
            q, d, layout, is_self_join, cupy.empty(0, cupy.int32), strides, constants
        )
        options = layout.options
        work = (
            cupy.empty(0, cupy.int64) if options.order == "given" else join.workload()
        )
        places = grid_index.queries(q, work, options, cupy)
        if rows is not None:
            places = places[(places >= rows[0]) & (places < rows[1])]
        return cls(q, d, layout, is_self_join, places, strides, constants)

    @property
    def queries(self) -> int:
        return len(self.places)

    @property
    def _pattern(self) -> np.int32:
        """Return the pattern of the join.

        It is "full" for two different indexes, which need all adjacent cells.
        """
        return np.int32(
            PATTERNS.index(self.layout.options.pattern if self.is_self_join else "full")
        )

    def parts(self, queries: int) -> int:
        """Return how many groups of threads share the points of a query. `queries`:
        size of a batch.
        """
        if self.layout.options.order == "queue" or self.layout.sort_dim < 0:
            return 1
        return max(
            1,
            min(
                FILL // (queries * self.layout.options.threads),
                len(self.d["y"]) // MIN_SHARE,
            ),
        )

    def _kernel(self, function: str) -> Any:
        layout = self.layout
        constants = {"COUNTING": 0} | self.constants | norm_constant(layout.norm)
        shape = {
            "DIMS": layout.dims,
            "INDEXED": len(layout.cells.dims),
            "EXACT": layout.bounds is None,
        }
        return load.kernel("papers/grid", function, **shape, **constants)

    def workload(self) -> Array:
        """For each cell of `q`, return the number of candidates that a query in this
        cell has (cells,), int64.
        """
        q, d, number = self.q, self.d, len(self.q["keys"])
        work = cupy.zeros(number, cupy.int64)
        cells = (
            d["mask"],
            d["mask_starts"],
            self.strides,
            d["keys"],
            d["starts"],
            np.int32(len(d["keys"])),
        )
        arguments = (q["coords"], np.int32(number), *cells, self._pattern, work)
        self._kernel("grid_work")((-(-number // THREADS),), (THREADS,), arguments)
        return work

    def run(
        self,
        batch: Batch,
        capacity: int,
        out: Array | np.uint64,
        counts: tuple[Any, Any],
        state: Array,
    ) -> None:
        layout, options, q, d = self.layout, self.layout.options, self.q, self.d
        name = "y" if layout.bounds is None else "z"
        sides = (
            q[name],
            q["y"],
            q["starts"],
            np.int32(len(q["keys"])),
            q["coords"],
            d[name],
            d["y"],
            d["keys"],
            d["starts"],
            np.int32(len(d["keys"])),
            d["mask"],
            d["mask_starts"],
            self.strides,
        )
        parts = self.parts(batch.number)
        arguments = (
            self.places,
            np.int64(batch.first),
            np.int64(batch.step),
            np.uint32(batch.number),
            np.int32(options.threads),
            np.int32(parts),
            np.int32(options.order == "queue"),
            *sides,
            np.int32(self.is_self_join),
            self._pattern,
            np.int32(layout.sort_dim),
            np.int32(options.short_circuit),
            np.float64(reach(layout.norm, layout.threshold)),
            *limits(layout.threshold, layout.bounds),
            np.uint64(capacity),
            out,
            *counts,
            state,
        )
        blocks = -(-batch.number * options.threads * parts // THREADS)
        self._kernel("join_grid")((blocks,), (THREADS,), arguments)


def layout(
    options: Grid,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> GridLayout:
    bounds = bounds_for(options.precision, lower, upper, mean, threshold, norm)
    return make_grid_layout(options, lower, upper, variance, threshold, norm, bounds)


def build(x: Array, layout: GridLayout) -> Index:
    """Return the index of a chunk; ``z`` (n, d), float32, has the points for the
    filter.

    Its columns are sorted by descending variance, so that sums exceed the threshold
    after few terms. The bounds of the filter hold for any order of summation.
    """
    index = grid_index.build(x, layout, 0, cupy)
    if layout.bounds is not None:
        index["z"] = cupy.ascontiguousarray(
            filtered(index["y"], layout.bounds)[:, list(layout.order)]
        )
    return index


_KERNEL = OneKernel(GridLaunch.of)
batches, count, pass_to = _KERNEL.batches, _KERNEL.count, _KERNEL.pass_to


def profile_join(index: Index, layout: GridLayout, timed: Timed) -> Numbers:
    """Join an index with itself and time the steps; then run it again to count the work
    of the kernel.
    """
    join = timed("order", lambda: GridLaunch.of(index, index, layout, True))
    estimated = timed("estimate", lambda: estimate(join))
    running, made = flow(join, estimated)
    numbers: Numbers = timed(
        "join", lambda: count_batches(found_by(running, made, join.queries))
    )
    counting = GridLaunch.of(index, index, layout, True, TELLING=1)
    state = cupy.zeros(STATE_SIZE, cupy.uint64)
    counting.run(
        Batch(0, 1, len(join.places)),
        0,
        np.uint64(0),
        (np.uint64(0), np.uint64(0)),
        state,
    )
    _, _, _, _, lookups, found, candidates, comparisons, terms, active, lanes = (
        state.get().tolist()
    )
    host = {"keys": index["keys"].get(), "starts": index["starts"].get()}
    places, workload = join.places.get(), join.workload().get()
    numbers |= facts(host, layout, places, workload, estimated, comparisons) | {
        "lookups": lookups,
        "found": found,
        "candidates": candidates,
        "comparisons": comparisons,
        "terms": terms,
        "estimated_pairs": estimated,
        "batches": len(made),
        "repeated_batches": running.repeated,
        "largest_batch": running.largest,
    }
    if lanes:
        numbers["warp_efficiency"] = active / lanes
    return numbers
