"""Finds pairs by looking up the cells of a grid around points, on GPUs: see `dask_simjoin.engine.grid`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.filters.bounds import make_bounds
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.gpu.kernels.sources import norm_constant
from dask_simjoin.engine.gpu.methods.flow import at_once, estimate, flow, found_by
from dask_simjoin.engine.gpu.methods.method import Found, Sink
from dask_simjoin.engine.grid import PATTERNS, Grid
from dask_simjoin.engine.index import grid
from dask_simjoin.engine.index.grid import GridLayout, make_grid_layout
from dask_simjoin.engine.index.grid_batches import Batch
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Norm, reach
from dask_simjoin.metrics.types import Array, Index

THREADS = 256
"""Of a block, as in the papers."""


@dataclass(frozen=True)
class Launch:
    """One join of two indexes, or of one with itself, of whose queries any can be asked for."""

    q: Index
    d: Index
    layout: GridLayout
    same: bool
    places: Array
    strides: Array
    constants: dict[str, int]

    @classmethod
    def of(cls, q: Index, d: Index, layout: GridLayout, same: bool, rows: Rows | None = None,
           **constants: int) -> Launch:  # fmt: skip
        """Put the queries in order, those of `rows` if there are such."""
        strides = cupy.asarray(np.array(layout.cells.strides, np.int64))
        join = cls(q, d, layout, same, cupy.empty(0, cupy.int32), strides, constants)
        asked = layout.options
        work = cupy.empty(0, cupy.int64) if asked.order == "given" else join.workload()
        places = grid.queries(q, work, asked, cupy)
        if rows is not None:
            places = places[(places >= rows[0]) & (places < rows[1])]
        return cls(q, d, layout, same, places, strides, constants)

    @property
    def asked(self) -> Grid:
        """How queries are cut into batches."""
        return self.layout.options

    @property
    def queries(self) -> int:
        """How many there are."""
        return len(self.places)

    @property
    def _pattern(self) -> np.int32:
        """The number of the pattern; two indexes have cells of their own: half of them is not enough."""
        return np.int32(PATTERNS.index(self.layout.options.pattern if self.same else "full"))

    def _kernel(self, function: str) -> Any:
        layout = self.layout
        constants = {"COUNTING": 0} | self.constants | norm_constant(layout.norm)
        shape = {"DIMS": layout.dims, "INDEXED": len(layout.cells.dims), "EXACT": layout.bounds is None}
        return load.kernel("grid", function, **shape, **constants)

    def workload(self) -> Array:
        """Count the points that the queries of each cell visit."""
        q, d, number = self.q, self.d, len(self.q["keys"])
        work = cupy.zeros(number, cupy.int64)
        cells = d["mask"], d["mask_starts"], self.strides, d["keys"], d["starts"], np.int32(len(d["keys"]))
        arguments = (q["coords"], np.int32(number), *cells, self._pattern, work)
        self._kernel("grid_work")((-(-number // THREADS),), (THREADS,), arguments)
        return work

    def run(self, batch: Batch, room: int, out: Array | np.uint64, counts: tuple[Any, Any],
            state: Array) -> None:  # fmt: skip
        """Launch a batch on the current stream; `state`: zeros, and afterwards what the kernel tells."""
        layout, asked, q, d = self.layout, self.layout.options, self.q, self.d
        name = "y" if layout.bounds is None else "z"
        limits: list[Any] = [np.float64(layout.threshold), np.float64(-1)]
        if layout.bounds is not None:
            limits = [layout.bounds.reach, layout.bounds.sure]
        sides = (
            q[name], q["y"], q["starts"], np.int32(len(q["keys"])), q["coords"], d[name], d["y"], d["keys"],
            d["starts"], np.int32(len(d["keys"])), d["mask"], d["mask_starts"], self.strides,
        )  # fmt: skip
        arguments = (
            self.places, np.int64(batch.first), np.int64(batch.step), np.uint32(batch.number),
            np.int32(asked.threads), np.int32(asked.order == "queue"), *sides, np.int32(self.same),
            self._pattern, np.int32(layout.sort_dim), np.int32(asked.short_circuit),
            np.float64(reach(layout.norm, layout.threshold)), *limits, np.float64(layout.threshold),
            np.uint64(room), out, *counts, state,
        )  # fmt: skip
        blocks = -(-batch.number * asked.threads // THREADS)
        self._kernel("join_grid")((blocks,), (THREADS,), arguments)


def layout(options: Grid, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
           threshold: float, norm: Norm) -> GridLayout:  # fmt: skip
    filtered = options.precision == "float32" and norm == 2
    bounds = make_bounds(lower, upper, mean, threshold) if filtered else None
    return make_grid_layout(options, lower, upper, variance, threshold, norm, bounds)


def build(x: Array, layout: GridLayout) -> Index:
    """Index a chunk; ``z`` (n, d, float32): the points as the filter sees them, columns by variance.

    Then sums end soonest; bounds of float32 hold whatever is added first.
    """
    index = grid.build(x, layout, 0, cupy)
    if layout.bounds is not None:
        scaled = (index["y"] - cupy.asarray(np.array(layout.bounds.centre))) * layout.bounds.scale
        index["z"] = cupy.ascontiguousarray(scaled[:, list(layout.order)].astype(cupy.float32))
    return index


def batches(q: Index, d: Index, layout: GridLayout, *, same: bool,
            rows: Rows | None = None, most: int | None = None) -> Iterator[Found]:  # fmt: skip
    """All pairs of two indexes, or of one with itself (`same`: each once), as places in them.

    `rows`: only the pairs that the queries at these places meet.  `most`: pairs of a batch.
    """
    if not len(q["y"]) or not len(d["y"]) or (rows is not None and rows[0] >= rows[1]):
        return
    join = Launch.of(q, d, layout, same, rows)
    yield from found_by(*flow(join, estimate(join), most), join.queries)


def count(q: Index, d: Index, layout: GridLayout, *, same: bool, both: bool = True,
          rows: Rows | None = None) -> list[Array]:  # fmt: skip
    """Numbers of pairs of each place of the queries, and (`both`) of each place of the other side.

    Of one index with itself they are one array: pairs of each place, or (not `both`) only those that
    `batches` gives for it.  `rows`: as there.
    """
    counts = [cupy.zeros(len(side["y"]), cupy.uint64) for side in ((q,) if same else (q, d))]
    if len(q["y"]) and len(d["y"]) and (rows is None or rows[0] < rows[1]):
        join = Launch.of(q, d, layout, same, rows, COUNTING=1)
        other = counts[-1] if both else np.uint64(0)
        at_once(join, np.uint64(0), (counts[0], other))
    return [c.view(cupy.int64) for c in counts]


def pass_to(sink: Sink, q: Index, d: Index, layout: GridLayout, arguments: Sequence[Array | int], *,
            same: bool, nodes_64: bool = False, rows: Rows | None = None) -> None:  # fmt: skip
    """Show all pairs, or those of `rows`, to one of the sinks of `components.cuh`, with its arguments."""
    if not len(q["y"]) or not len(d["y"]) or (rows is not None and rows[0] >= rows[1]):
        return
    join = Launch.of(q, d, layout, same, rows, SINK=sink.value, NODES_64=int(nodes_64))
    given = [q["order"], d["order"], *arguments]
    at = cupy.asarray([a if isinstance(a, int) else a.data.ptr for a in given], np.uint64)
    at_once(join, at, (np.uint64(0), np.uint64(0)))
