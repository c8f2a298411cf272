"""Kernels that sort the edges of a spanning tree by weight, smaller id and larger id.

NumPy sorts numbers much faster than it finds their order. So the leading bits of an
edge's weight are packed into one number, with the position of the edge. Edges with the
same leading bits are put in order later.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.tile_simd import prefetch
from dask_simjoin.metrics.norms import Array

MAX_INSERTION = 32
"""Up to this many keys, or edges with the same leading bits, are sorted by insertion."""


AHEAD = 32
"""Edges are prefetched by this many before they are laid out, because they are anywhere
in memory.
"""


@kernel
def pack_edges(
    own: Array,
    nodes: Array,
    core: Array,
    names: Array,
    start: int,
    stop: int,
    at: int,
    position_bits: int,
    weight: Array,
    edges: Array,
    packed: Array,
) -> None:
    """Name and pack the edges `start` ... `stop` - 1 of a batch.

    `own`: weights of the edges; if it is empty, they are the larger core distances of
    the ends. `nodes`: see `best_edges`. `names`: row id of each node. `at`: number of
    the first edge of the batch. Output, for all edges: `edges` (n, 2), int64, the bits
    of the weight, and the smaller and the larger id; `weight` (n, 2), float64, has the
    same memory. And `packed`, uint64.
    """
    for e in range(start, stop):
        a, b, to = nodes[e] >> 32, nodes[e] & 0xFFFFFFFF, at + e
        weight[to, 0] = own[e] if own.size > 0 else max(core[a], core[b])
        low, high = np.int64(names[a]), np.int64(names[b])
        edges[to, 1] = (min(low, high) << 32) | max(low, high)
        # the sign is dropped, because no weight is below 0
        leading = np.uint64(edges[to, 0] << 1) >> np.uint64(position_bits)
        packed[to] = (leading << np.uint64(position_bits)) | np.uint64(to)


@device_function
def _comes_before(
    away: Array, low: Array, high: Array, i: int, weight: float, a: int, b: int
) -> bool:
    """Whether edge `i` comes before the edge of ids `a` and `b`."""
    if away[i] != weight:
        return bool(away[i] < weight)
    return bool(low[i] < a or (low[i] == a and high[i] < b))


@kernel
def lay_out_edges(
    packed: Array,
    start: int,
    stop: int,
    position_bits: int,
    weight: Array,
    edges: Array,
    away: Array,
    low: Array,
    high: Array,
    many: Array,
) -> int:
    """Write the edges that `packed`, sorted, has at the places `start` ... `stop` - 1.

    `weight`, `edges`: see `pack_edges`. Output: `away`, `low`, `high`, the weight and the
    ids of each edge. Runs of more than `MAX_INSERTION` edges with the same leading bits
    are not in order. They are listed in `many` (n, 2), by start and stop. Return their
    number.
    """
    bits = np.uint64(position_bits)
    position = (np.uint64(1) << bits) - np.uint64(1)
    first, number = start, 0
    for i in range(start, stop + 1):
        if i == stop or packed[i] >> bits != packed[first] >> bits:
            if i - first > MAX_INSERTION:
                many[number, 0], many[number, 1] = first, i
                number += 1
            first = i
            if i == stop:
                break
        ahead = np.int64(packed[min(i + AHEAD, stop - 1)] & position)
        prefetch(edges.ctypes.data + ahead * 16)
        e = np.int64(packed[i] & position)
        w, key, to = weight[e, 0], edges[e, 1], i
        a, b = key >> 32, key & 0xFFFFFFFF
        if i - first < MAX_INSERTION:
            while to > first and not _comes_before(away, low, high, to - 1, w, a, b):
                away[to], low[to], high[to] = away[to - 1], low[to - 1], high[to - 1]
                to -= 1
        away[to], low[to], high[to] = w, a, b
    return number
