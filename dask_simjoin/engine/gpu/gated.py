"""Joins on the GPU in periodic boxes and by formulas: another method finds candidates,
and the numbers of their rows decide.

See `dask_simjoin.metrics.gates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import count_up
from dask_simjoin.engine.gated import GatedLayout, columns_of_index, totals_of
from dask_simjoin.engine.gpu.pairs import GpuLayout, GpuMethod, PairBatch, method_of
from dask_simjoin.engine.gpu.sources import Sink
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.gates import values_of
from dask_simjoin.metrics.norms import Array, Index

CANDIDATES = 2**24
"""Most candidates that are decided together."""

_LOWER = cupy.ElementwiseKernel(
    "S place, int64 label",
    "raw int64 low",
    "atomicMin(&low[place], label)",
    "simjoin_lower",
)


def lower_to(low: Array, places: Array, labels: Array) -> None:
    """Lower the entries of `low` at `places` to labels; all arrays are int64."""
    if len(places):
        _LOWER(places, labels, low)


@dataclass(frozen=True)
class GatedMethod:
    """See `GpuMethod`. `method`: finds the candidates.

    Layouts are of the class `GatedLayout`. An index is one of the method, with two more
    entries, float64 (n, columns) in index order. "rows" has all columns of the points,
    and "compared" has the columns that the metric compares.
    """

    method: GpuMethod

    def layout(self, *args: Any, **options: Any) -> GpuLayout:
        raise NotImplementedError  # `JoinStatistics.layout` makes it

    def build(self, x: Array, layout: Any) -> Index:
        indexed, measured = columns_of_index(layout, x.shape[1])
        index = self.method.build(cupy.asfortranarray(x[:, :indexed]), layout.inner)
        rows = x[index["order"]]
        numbers = values_of(rows[:, indexed:]).view(np.float64)
        others = rows[:, layout.compared.coordinates : measured]
        compared = cupy.concatenate([numbers, others], axis=1)
        return index | {"rows": rows, "compared": compared}

    def batches(
        self,
        q: Index,
        d: Index,
        layout: Any,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
        max_pairs: int | None = None,
    ) -> Iterator[PairBatch]:
        decided = pairs = 0
        for found in self.method.batches(
            q,
            d,
            layout.inner,
            is_self_join=is_self_join,
            rows=rows,
            max_pairs=min(max_pairs or CANDIDATES, CANDIDATES),
        ):
            places = found.places
            left, right = (
                side["compared"][places[:, k]] for k, side in enumerate((q, d))
            )
            totals = totals_of(left, right, layout.compared, layout.norm)
            near = cupy.flatnonzero(totals <= layout.limit)
            decided, pairs = decided + len(places), pairs + len(near)
            yield PairBatch(
                places[near], decided, decided - pairs, found.left, totals[near]
            )

    def count(
        self,
        q: Index,
        d: Index,
        layout: Any,
        *,
        is_self_join: bool,
        both: bool = True,
        rows: Rows | None = None,
    ) -> list[Array]:
        counts = [
            cupy.zeros(len(side["order"]), cupy.int64)
            for side in ((q,) if is_self_join else (q, d))
        ]
        for found in self.batches(q, d, layout, is_self_join=is_self_join, rows=rows):
            left, right = cupy.ascontiguousarray(found.places.T)
            count_up(counts[0], left)
            if both:
                count_up(counts[-1], right)
        return counts

    def pass_to(
        self,
        sink: Sink,
        q: Index,
        d: Index,
        layout: Any,
        arguments: Sequence[Array | int],
        *,
        is_self_join: bool,
        nodes_64: bool = False,
        rows: Rows | None = None,
    ) -> None:
        raise NotImplementedError  # `GpuJoiner` passes visited pairs


def method_for(layout: GpuLayout | GatedLayout) -> GpuMethod:
    """Return the GPU module of a layout's method, or the method that decides its
    candidates.
    """
    method = method_of(layout.method)
    return GatedMethod(method) if isinstance(layout, GatedLayout) else method
