"""Tell a method which of the rows of two indexes take part, by their places, and the rows what it found."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels import components
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.cpu.methods import one_by_one
from dask_simjoin.engine.cpu.methods.method import CpuMethod, ManyAtOnce
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.engine.threads import shared_out
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
    nodes |= taking[rows].view(np.int8) - np.int8(1)  # a fifth of the time of choosing where
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


def least_rows(parent: np.ndarray, order: np.ndarray, threads: int) -> np.ndarray:
    """Find at the root of each set of nodes its least row: see `Joiner.least_rows`."""
    n = len(parent)
    first = np.full(n, n, np.int32)

    def lower(start: int, stop: int) -> np.ndarray:
        components.first_rows(parent, order, start, stop, first)
        return np.flatnonzero(parent[start:stop] < start) + start

    for tied in shared_out(lower, n, threads):  # to what another thread was at
        np.minimum.at(first, parent[tied], order[tied])
    return first


def numbers(parent: np.ndarray, taking: np.ndarray, order: np.ndarray, threads: int) -> np.ndarray:
    """Number sets of nodes by their least rows: see `Joiner.numbers`."""
    n, first = len(parent), least_rows(parent, order, threads)

    def rooted(start: int, stop: int) -> np.ndarray:
        some = parent[start:stop]
        return np.flatnonzero(taking[start:stop] & (some == np.arange(start, stop, dtype=some.dtype))) + start

    roots = np.concatenate(shared_out(rooted, n, threads))
    number, labels = np.empty(n, np.int32), np.empty(n, np.int64)  # of what is no root it says nothing
    number[roots[np.argsort(first[roots])]] = np.arange(len(roots), dtype=np.int32)

    def tell(start: int, stop: int) -> None:
        components.labels_of_roots(parent, taking, number, start, stop, labels)

    shared_out(tell, n, threads)
    return labels
