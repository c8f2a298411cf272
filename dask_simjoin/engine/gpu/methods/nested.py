"""Finds pairs by comparing each row with each other one, on GPUs: see `dask_simjoin.engine.nested`."""

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
from dask_simjoin.engine.index.grid_batches import Batch
from dask_simjoin.engine.index.nested import NestedLayout
from dask_simjoin.engine.nested import NestedLoop
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Array, Index


@dataclass(frozen=True)
class Launch:
    """One join of two indexes, or of one with itself; a query of it is a block of rows."""

    q: Index
    d: Index
    layout: NestedLayout
    same: bool
    first: int
    queries: int
    constants: dict[str, int]

    @classmethod
    def of(cls, q: Index, d: Index, layout: NestedLayout, same: bool, rows: Rows | None = None,
           **constants: int) -> Launch:  # fmt: skip
        """Cut the rows of the first side, those of `rows` if there are such, into blocks."""
        block = layout.options.block
        start, stop = rows or (0, len(q["y"]))
        return cls(q, d, layout, same, start // block, -(-stop // block) - start // block, constants)

    @property
    def asked(self) -> NestedLoop:
        """How blocks are cut into batches."""
        return self.layout.options

    def run(self, batch: Batch, room: int, out: Array | np.uint64, counts: tuple[Any, Any],
            state: Array) -> None:  # fmt: skip
        """Launch a batch on the current stream; `state`: zeros, and afterwards what the kernel tells."""
        layout, asked, q, d = self.layout, self.layout.options, self.q, self.d
        limits: list[Any] = [np.float64(layout.threshold), np.float64(-1)]
        if layout.bounds is not None:
            limits = [layout.bounds.reach, layout.bounds.sure]
        arguments = (
            np.int64(self.first + batch.first), np.int64(batch.step), np.uint32(batch.number),
            q["z"], q["y"], np.int32(len(q["y"])), d["z"], d["y"], np.int32(len(d["y"])), np.int32(self.same),
            *limits, np.float64(layout.threshold), np.uint64(room), out, *counts, state,
        )  # fmt: skip
        shape = {"DIMS": layout.dims, "BLOCK": asked.block, "EXACT": layout.bounds is None}
        shape |= {"ROTATION": asked.schedule == "rotation"}
        constants = {"COUNTING": 0} | self.constants | norm_constant(layout.norm)
        kernel = load.kernel("nested", "join_nested", **shape, **constants)
        kernel((batch.number,), (asked.block,), arguments)


def layout(options: NestedLoop, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
           variance: np.ndarray, threshold: float, norm: Norm) -> NestedLayout:  # fmt: skip
    filtered = options.precision == "float32" and norm == 2
    bounds = make_bounds(lower, upper, mean, threshold) if filtered else None
    return NestedLayout(threshold, options, len(lower), norm, bounds)


def build(x: Array, layout: NestedLayout) -> Index:
    """Return the rows as they are; ``z`` (d, n): as the kernel compares them, a column after the other."""
    order, y = cupy.arange(len(x), dtype=cupy.int32), cupy.ascontiguousarray(x)
    if layout.bounds is None:
        return {"order": order, "y": y, "z": cupy.ascontiguousarray(y.T)}
    scaled = (y - cupy.asarray(np.array(layout.bounds.centre))) * layout.bounds.scale
    return {"order": order, "y": y, "z": cupy.ascontiguousarray(scaled.astype(cupy.float32).T)}


def _is_none(q: Index, d: Index, rows: Rows | None) -> bool:
    """Tell that there is nothing to compare."""
    return not len(q["y"]) or not len(d["y"]) or (rows is not None and rows[0] >= rows[1])


def batches(q: Index, d: Index, layout: NestedLayout, *, same: bool,
            rows: Rows | None = None, most: int | None = None) -> Iterator[Found]:  # fmt: skip
    """All pairs of two indexes, or of one with itself (`same`: each once), as places in them.

    `rows`: only the pairs that the queries at these places meet.  `most`: pairs of a batch.
    """
    if _is_none(q, d, rows):
        return
    join = Launch.of(q, d, layout, same, rows)
    yield from found_by(*flow(join, estimate(join), most), join.queries)


def count(q: Index, d: Index, layout: NestedLayout, *, same: bool, both: bool = True,
          rows: Rows | None = None) -> list[Array]:  # fmt: skip
    """Numbers of pairs of each place of the queries, and (`both`) of each place of the other side.

    Of one index with itself they are one array: pairs of each place, or (not `both`) only those that
    `batches` gives for it.  `rows`: as there.
    """
    counts = [cupy.zeros(len(side["y"]), cupy.uint64) for side in ((q,) if same else (q, d))]
    if not _is_none(q, d, rows):
        join = Launch.of(q, d, layout, same, rows, COUNTING=1)
        at_once(join, np.uint64(0), (counts[0], counts[-1] if both else np.uint64(0)))
    return [c.view(cupy.int64) for c in counts]


def pass_to(sink: Sink, q: Index, d: Index, layout: NestedLayout, arguments: Sequence[Array | int], *,
            same: bool, nodes_64: bool = False, rows: Rows | None = None) -> None:  # fmt: skip
    """Show all pairs, or those of `rows`, to one of the sinks of `components.cuh`, with its arguments."""
    if _is_none(q, d, rows):
        return
    join = Launch.of(q, d, layout, same, rows, SINK=sink.value, NODES_64=int(nodes_64))
    given = [q["order"], d["order"], *arguments]
    at = cupy.asarray([a if isinstance(a, int) else a.data.ptr for a in given], np.uint64)
    at_once(join, at, (np.uint64(0), np.uint64(0)))
