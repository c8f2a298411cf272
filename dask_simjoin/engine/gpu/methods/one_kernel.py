"""What methods share whose join is one kernel, launched on batches of queries: grids, lists, nested loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds, make_bounds
from dask_simjoin.engine.gpu.methods.flow import Launch, at_once, estimate, flow, found_by
from dask_simjoin.engine.gpu.methods.method import Found, Sink
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Array, Index

NOWHERE = np.uint64(0)
"""The address of what a kernel does not use."""


def bounds_for(precision: str, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, threshold: float,
               norm: Norm) -> Bounds | None:  # fmt: skip
    """Choose the bounds of the float32 filter; None: there is none."""
    return make_bounds(lower, upper, mean, threshold) if precision == "float32" and norm == 2 else None


def filtered(y: Array, bounds: Bounds) -> Array:
    """Return points (n, d) as the filter sees them, float32."""
    return ((y - cupy.asarray(np.array(bounds.centre))) * bounds.scale).astype(cupy.float32)


def limits(threshold: float, bounds: Bounds | None) -> tuple[Any, Any, np.float64]:
    """Return up to which totals of the filter candidates may be pairs, and surely are; and that of float64.

    Where there is no filter the first and the last are one, and nothing is sure.
    """
    decided = np.float64(threshold)
    return (decided, np.float64(-1), decided) if bounds is None else (bounds.reach, bounds.sure, decided)


class OneKernel:
    """Three functions of a `GpuMethod`.

    Parameters
    ----------
    launch : callable
        Makes the launch of a join: of two indexes, their layout, whether they are one, the places of queries
        that are asked for or None, and constants of the kernel by name.
    """

    def __init__(self, launch: Callable[..., Launch]) -> None:
        self._launch = launch

    def batches(self, q: Index, d: Index, layout: Any, *, same: bool, rows: Rows | None = None,
                most: int | None = None) -> Iterator[Found]:  # fmt: skip
        """See `GpuMethod.batches`."""
        if is_none(q, d, rows):
            return
        join = self._launch(q, d, layout, same, rows)
        yield from found_by(*flow(join, estimate(join), most), join.queries)

    def count(self, q: Index, d: Index, layout: Any, *, same: bool, both: bool = True,
              rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """See `GpuMethod.count`.

        Of one index with itself they are one array: pairs of each place, or (not `both`) only those that
        `batches` gives for it.
        """
        counts = [cupy.zeros(len(side["y"]), cupy.uint64) for side in ((q,) if same else (q, d))]
        if not is_none(q, d, rows):
            join = self._launch(q, d, layout, same, rows, COUNTING=1)
            at_once(join, NOWHERE, (counts[0], counts[-1] if both else NOWHERE))
        return [c.view(cupy.int64) for c in counts]

    def pass_to(self, sink: Sink, q: Index, d: Index, layout: Any, arguments: Sequence[Array | int], *,
                same: bool, nodes_64: bool = False, rows: Rows | None = None) -> None:  # fmt: skip
        """See `GpuMethod.pass_to`."""
        if is_none(q, d, rows):
            return
        join = self._launch(q, d, layout, same, rows, SINK=sink.value, NODES_64=int(nodes_64))
        given = [q["order"], d["order"], *arguments]
        at = cupy.asarray([a if isinstance(a, int) else a.data.ptr for a in given], np.uint64)
        at_once(join, at, (NOWHERE, NOWHERE))


def is_none(q: Index, d: Index, rows: Rows | None) -> bool:
    """Tell that there is nothing to compare."""
    return not len(q["y"]) or not len(d["y"]) or (rows is not None and rows[0] >= rows[1])
