"""Tell a method which of the rows of two indexes take part, by their places, and the rows what it found."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.cpu.methods import one_by_one
from dask_simjoin.engine.cpu.methods.method import CpuMethod, ManyAtOnce
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.types import Index


def rows_of_places(side: Index) -> np.ndarray | slice:
    """Tell the row at each place of an index; a slice where they follow each other: nothing is copied."""
    order = side["order"][: len(side["order"]) - SWEEP_LANES]
    if not len(order):
        return slice(0, 0)
    start, n = int(order[0]), len(order)
    if int(order[-1]) - start == n - 1 and bool((order[1:] > order[:-1]).all()):
        return slice(start, start + n)
    return order


def _nodes(side: Index, taking: np.ndarray, offset: int) -> np.ndarray:
    """Tell the node of each place, or -1 where its row takes no part."""
    rows = rows_of_places(side)
    nodes = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows.astype(np.int64)
    if offset:
        nodes += offset
    nodes[~taking[rows]] = -1
    return nodes


def connect(module: CpuMethod, q: Index, d: Index, layout: Layout, parent: np.ndarray,
            taking: tuple[np.ndarray, np.ndarray], offset: int, same: bool) -> None:  # fmt: skip
    """Join the sets of all pairs of rows that take part: see `Joiner.connect`."""
    first = _nodes(q, taking[0], 0)
    sides = first, first if same else _nodes(d, taking[1], offset)
    if isinstance(module, ManyAtOnce) and parent.dtype == np.int32:
        module.connect(q, d, layout, same, sides, parent)
    else:
        one_by_one.connect(module, q, d, layout, same, sides, parent)


def lowest(module: CpuMethod, q: Index, d: Index, layout: Layout, labels: tuple[np.ndarray, np.ndarray],
           low: tuple[np.ndarray, np.ndarray], same: bool) -> None:  # fmt: skip
    """Lower what rows without a label have to the labels of their neighbours: see `Joiner.lowest`."""
    orders = rows_of_places(q), rows_of_places(d)
    by_place = [
        [np.require(some[rows], requirements="W") for some, rows in zip(each, orders, strict=True)]
        for each in (labels, low)
    ]
    if same:
        by_place = [[each[0], each[0]] for each in by_place]
    names, found = ((each[0], each[1]) for each in by_place)
    if isinstance(module, ManyAtOnce):
        module.lowest(q, d, layout, same, names, found)
    else:
        one_by_one.lowest(module, q, d, layout, same, names, found)
    for some, rows, own in zip(low, orders, found, strict=True):
        if not np.may_share_memory(some, own):
            some[rows] = own
