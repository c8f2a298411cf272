"""Finds pairs in the intervals of lists in Z-order, on GPUs: see `dask_simjoin.engine.zorder`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu.methods.method import Found
from dask_simjoin.engine.gpu.methods.one_kernel import OneKernel, bounds_for, filtered, is_none, limits
from dask_simjoin.engine.gpu.zorder_lists import Keys, blocks, kernel
from dask_simjoin.engine.index.grid_batches import Batch
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.index.zorder import ZOrderLayout, make_zorder_layout, shifts_of
from dask_simjoin.engine.index.zorder_choice import FULL_SHARE, Costs, fitted
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.engine.zorder import ZOrder
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Array, Index

COSTS = Costs(entry=8.0, column=0.0, row=0.015, term=0.0, search=2e7)
"""With 65,536 to a million rows of 16 columns, on an H200; choosing takes some 20 ms."""


@dataclass(frozen=True)
class Walks:
    """What queries walk through; arrays of the queries, int32.

    Attributes
    ----------
    starts, stops : array
        Where each query's interval is, in its list.
    lists : array
        The number of that.
    orders : array (lists, points), int32
        The places of the rows of each list.
    half : bool
        Whether intervals begin behind the query itself, all in one list.
    """

    starts: Array
    stops: Array
    lists: Array
    orders: Array
    half: bool


def _constants(layout: ZOrderLayout, **constants: int) -> dict[str, int]:
    return {"EXACT": layout.bounds is None, "COUNTING": 0} | constants


def intervals(q: Index, d: Index, layout: ZOrderLayout, same: bool) -> Walks:
    """Choose what the rows of `q` walk through, building list after list of those of `d`."""
    x, y = q["y"], d["y"]
    walk = layout.options.walk if same else "full"
    made = Keys("zorder", layout, **_constants(layout))
    starts, stops = cupy.empty(len(x), cupy.int32), cupy.empty(len(x), cupy.int32)
    best = [cupy.zeros(len(x), cupy.int32) for _ in range(3)]
    best[1] += np.int32(2**31 - 1)
    orders = cupy.empty((len(layout.shifts), len(y)), cupy.int32)
    half: tuple[int, Walks] | None = None
    for number, shift in enumerate(layout.shifts):
        order, keys = made.in_order(y, shift)
        orders[number] = order
        limits = np.float64(layout.corner), keys, np.int32(len(y)), starts, stops
        made.kernel("find_intervals")(*blocks(len(x)), (x, np.int32(len(x)), *made.of(shift), *limits))
        if walk != "half":
            better = stops - starts < best[1] - best[0]
            best = [
                cupy.where(better, new, old)
                for new, old in zip((starts, stops, np.int32(number)), best, strict=True)
            ]
        if walk != "full":  # places tell a row's own, where keys are equal
            after = cupy.empty(len(x), cupy.int32)
            after[order] = cupy.arange(1, len(x) + 1, dtype=cupy.int32)
            total = int((stops - after).astype(cupy.int64).sum())
            if half is None or total < half[0]:
                one = cupy.full(len(x), number, cupy.int32)
                half = total, Walks(after, stops.copy(), one, orders, True)
    full = Walks(best[0], best[1], best[2].astype(cupy.int32), orders, False)
    if half is None or (
        walk == "auto" and FULL_SHARE * int((full.stops - full.starts).astype(cupy.int64).sum()) <= half[0]
    ):
        return full
    return half[1]


@dataclass(frozen=True)
class Launch:
    """One join of two indexes, or of one with itself, of whose queries any can be asked for."""

    q: Index
    d: Index
    layout: ZOrderLayout
    same: bool
    turned: bool
    walks: Walks
    places: Array
    constants: dict[str, int]

    @classmethod
    def of(cls, q: Index, d: Index, layout: ZOrderLayout, same: bool, rows: Rows | None = None,
           **constants: int) -> Launch:  # fmt: skip
        """Choose which side is sorted, and put the queries, those of `rows` if there are such, in order."""
        asked = layout.options.index
        smaller = asked == "left" or (asked == "smaller" and len(q["y"]) < len(d["y"]))
        turned = smaller and not same and rows is None  # `rows` are queries
        if turned:
            q, d = d, q
        walks = intervals(q, d, layout, same)
        places = cupy.lexsort(cupy.stack([walks.starts, walks.lists])).astype(cupy.int32)
        if rows is not None:
            places = places[(places >= rows[0]) & (places < rows[1])]
        return cls(q, d, layout, same, turned, walks, places, constants)

    @property
    def asked(self) -> ZOrder:
        """How queries are cut into batches."""
        return self.layout.options

    @property
    def queries(self) -> int:
        """How many there are."""
        return len(self.places)

    def run(self, batch: Batch, room: int, out: Array | np.uint64, counts: tuple[Any, Any],
            state: Array) -> None:  # fmt: skip
        """Launch a batch on the current stream; `state`: zeros, and afterwards what the kernel tells."""
        layout, asked, q, d, walks = self.layout, self.layout.options, self.q, self.d, self.walks
        name = "y" if layout.bounds is None else "z"
        arguments = (
            self.places, np.int64(batch.first), np.int64(batch.step), np.uint32(batch.number),
            np.int32(asked.threads), walks.starts, walks.stops, walks.lists, walks.orders,
            np.int32(len(d["y"])), np.int32(self.same and not walks.half), np.int32(self.turned), q[name],
            q["y"], d[name], d["y"], *limits(layout.threshold, layout.bounds), np.uint64(room), out,
            *(counts[::-1] if self.turned else counts), state,
        )  # fmt: skip
        walk = kernel("zorder", layout, "walk_lists", **_constants(layout, **self.constants))
        walk(*blocks(batch.number * asked.threads), arguments)


def _mean_length(queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout) -> float:
    q, d = ({"y": cupy.ascontiguousarray(cupy.asarray(x, np.float64))} for x in (queries, points))
    walks = intervals(q, d, layout, False)
    return float((walks.stops - walks.starts).astype(cupy.float64).mean())


def layout(options: ZOrder, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
           threshold: float, norm: Norm, drawn: Drawn | None = None) -> ZOrderLayout:  # fmt: skip
    bounds = bounds_for(options.precision, lower, upper, mean, threshold, norm)
    made = replace(make_zorder_layout(options, lower, upper, variance, threshold, norm), bounds=bounds)
    chosen = fitted(options, made, drawn, _mean_length, COSTS)
    return replace(made, options=chosen, shifts=shifts_of(chosen, made.dims))


def build(x: Array, layout: ZOrderLayout) -> Index:
    """Return the rows as they are: lists are made of the smaller side, once it is known."""
    order, y = cupy.arange(len(x), dtype=cupy.int32), cupy.ascontiguousarray(x)
    if layout.bounds is None:
        return {"order": order, "y": y}
    return {"order": order, "y": y, "z": cupy.ascontiguousarray(filtered(y, layout.bounds))}


_KERNEL = OneKernel(Launch.of)
count, pass_to = _KERNEL.count, _KERNEL.pass_to


def batches(q: Index, d: Index, layout: ZOrderLayout, *, same: bool,
            rows: Rows | None = None, most: int | None = None) -> Iterator[Found]:  # fmt: skip
    """See `GpuMethod.batches`; pairs that are to be in order are one batch."""
    if is_none(q, d, rows):
        return
    found = _KERNEL.batches(q, d, layout, same=same, rows=rows, most=most)
    if layout.options.output == "staged":
        yield from found
        return
    parts, told = [cupy.empty((0, 2), cupy.int32)], (0, 0)
    for one in found:
        parts.append(cupy.sort(one.places, axis=1) if same else one.places.copy())
        told = one.decided, one.refused
    places = cupy.concatenate(parts)
    yield Found(places[cupy.lexsort(cupy.stack([places[:, 1], places[:, 0]]))], *told)
