"""Joins on the GPU whose candidates are decided by gates: another method finds them, and
conditions and the numbers of their rows decide.

See `dask_simjoin.metrics.gates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import count_up, lower_to
from dask_simjoin.engine.gated import (
    GatedLayout,
    columns_of_index,
    decided_by,
    totals_of,
)
from dask_simjoin.engine.gpu.components import link
from dask_simjoin.engine.gpu.pairs import (
    AT_ONCE,
    GpuLayout,
    GpuMethod,
    PairBatch,
    method_of,
)
from dask_simjoin.engine.gpu.sources import Sink
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Array, Index


@dataclass(frozen=True)
class GatedMethod:
    """See `GpuMethod`. `method`: finds the candidates.

    Layouts are of the class `GatedLayout`. An index is one of the method, with the
    entries of `dask_simjoin.engine.gated.decided_by`.
    """

    method: GpuMethod

    def layout(self, *args: Any, **options: Any) -> GpuLayout:
        raise NotImplementedError  # `JoinStatistics.layout` makes it

    def build(self, x: Array, layout: Any) -> Index:
        indexed, _ = columns_of_index(layout, x.shape[1])
        index = self.method.build(cupy.asfortranarray(x[:, :indexed]), layout.inner)
        return index | decided_by(x, index["y"], index["order"], layout)

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
            max_pairs=min(max_pairs or AT_ONCE, AT_ONCE),
        ):
            places = found.places
            if layout.gates.rules:
                values = (side["values"][places[:, k]] for k, side in enumerate((q, d)))
                places = places[cupy.flatnonzero(layout.gates.allow(*values))]
            # a column at a time, because a row may have hundreds of columns
            columns = (
                (a[places[:, 0]], b[places[:, 1]])
                for a, b in zip(_compared(q), _compared(d), strict=True)
            )
            totals = totals_of(columns, layout.compared, layout.norm)
            near = cupy.flatnonzero(totals <= layout.limit)
            decided, pairs = decided + len(found.places), pairs + len(near)
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
        arguments: Sequence[Any],
        *,
        is_self_join: bool,
        nodes_64: bool = False,
        rows: Rows | None = None,
    ) -> None:
        use = _link if sink == Sink.LINK else _lower
        for found in self.batches(q, d, layout, is_self_join=is_self_join, rows=rows):
            left, right = found.places.T
            use(q["order"][left], d["order"][right], *arguments)


def _compared(index: Index) -> Array:
    """Return the columns that the metric compares, one after the other."""
    columns: Array = index.get("numbers", index["y"])
    return columns.T[: index["measured"]]


def _link(
    left: Array, right: Array, takes: Array, takes_too: Array, parent: Array, first: int
) -> None:
    """See `Sink.LINK` in `components.cuh`."""
    both = takes[left] & takes_too[right]
    link(parent, left[both], right[both].astype(np.int64) + first)


def _lower(left: Array, right: Array, *labels_and_low: Array) -> None:
    """See `Sink.LOWEST` in `components.cuh`."""
    labels, low = labels_and_low[:2], labels_and_low[2:]
    for side, (own, other) in enumerate(((left, right), (right, left))):
        label = labels[1 - side][other]
        is_open = (labels[side][own] < 0) & (label >= 0)
        lower_to(low[side], own[is_open], label[is_open])


def method_for(layout: GpuLayout | GatedLayout) -> GpuMethod:
    """Return the GPU module of a layout's method, or the method that decides its
    candidates.
    """
    method = method_of(layout.method)
    return GatedMethod(method) if isinstance(layout, GatedLayout) else method
