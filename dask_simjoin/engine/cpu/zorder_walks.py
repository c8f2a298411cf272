"""What rows walk through to find their neighbours: intervals of lists in Z-order, list after list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.cpu.kernels import zorder as kernels
from dask_simjoin.engine.index.zorder import ZOrderLayout
from dask_simjoin.engine.index.zorder_choice import FULL_SHARE


@dataclass(frozen=True)
class Walks:
    """What queries walk through.

    Attributes
    ----------
    orders : list of array (points,), int32
        The places of the rows of each list.
    starts, stops : array (queries,), int64
        Where each query's interval is, in its list.
    lists : array (queries,), int16
    half : bool
        Whether intervals begin behind the query itself, all in one list.
    """

    orders: list[np.ndarray]
    starts: np.ndarray
    stops: np.ndarray
    lists: np.ndarray
    half: bool

    @property
    def lengths(self) -> np.ndarray:
        """How many rows each query walks through."""
        return self.stops - self.starts


def keys(x: np.ndarray, layout: ZOrderLayout, shift: float, corner: float = 0.0) -> np.ndarray:
    """Make the keys (n, words) of points, or of upper or (negative `corner`) lower corners around them."""
    out = np.empty((len(x), layout.options.words), np.uint64)
    columns, low = np.array(layout.columns, np.int64), np.array(layout.low)
    kernels.make_keys(
        x, columns, low, layout.extent, layout.scale, shift, layout.bits, corner, out, np.empty_like(columns)
    )
    return out


def sort(found: np.ndarray, stable: bool = False) -> np.ndarray:
    """Return the order (n,), int32, of keys; `stable`: equal ones stay in theirs, which takes longer."""
    if found.shape[1] > 1:
        return np.lexsort(found.T[::-1]).astype(np.int32)
    return np.argsort(found[:, 0], kind="stable" if stable else None).astype(np.int32)


def intervals(queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout, same: bool) -> Walks:
    """Choose what queries walk through, building list after list of the points."""
    m, walk = len(queries), layout.options.walk if same else "full"
    best = np.zeros(m, np.int64), np.zeros(m, np.int64), np.full(m, -1, np.int16)
    starts, stops = np.empty(m, np.int64), np.empty(m, np.int64)
    orders: list[np.ndarray] = []
    halves: tuple[int, Walks] | None = None
    for number, shift in enumerate(layout.shifts):
        own = keys(points, layout, shift)
        order = sort(own)
        corners = (keys(queries, layout, shift, side) for side in (-layout.corner, layout.corner))
        kernels.bounds(own[order], *corners, starts, stops)
        orders.append(order)
        if walk != "half":
            kernels.shortest(starts, stops, number, *best)
        if walk != "full":  # places tell a row's own, where keys are equal
            behind = np.empty(m, np.int64)
            behind[order] = np.arange(1, m + 1)
            total = int((stops - behind).sum())
            if halves is None or total < halves[0]:
                halves = total, Walks([order], behind, stops.copy(), np.zeros(m, np.int16), True)
    full = Walks(orders, *best, False)
    if halves is None or (walk == "auto" and FULL_SHARE * int(full.lengths.sum()) <= halves[0]):
        return full
    return halves[1]
