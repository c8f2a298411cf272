"""The best known edge of each component, which several threads may replace by better
ones.

Edges are ordered by (weight, smaller row id, larger row id). A best edge is only ever
replaced by an edge that comes before it. So the final one does not depend on the order
of the offers or on the threads that make them.

The weight and the two nodes of an edge are in two arrays. Writers of a component take a
lock, decide again, write the nodes first and the weight last. Readers take no lock.
They read the weight first and the nodes last. So they see nodes that are as new as the
weight, or newer, and there are three cases for an edge that they compare:

- It is heavier than the weight they read. The best edge is at most that heavy.
- It is as heavy, and the nodes belong to this weight: the comparison is exact.
- It is as heavy, and the nodes belong to a lighter edge: the edge cannot be the best
  any more, whatever its ids are.

So a reader never leaves out the best edge. Offers are decided under the lock.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dask_simjoin.engine.cpu.kernels.jit import device_function
from dask_simjoin.engine.cpu.kernels.simd import (
    F64,
    I32,
    I64,
    Builder,
    Value,
    item_of,
    llvm_function,
)
from dask_simjoin.engine.process import shared_out
from dask_simjoin.metrics.norms import Array

LOCKS, SPACING = 256, 16
"""Number of locks, which components share, and how many int32 apart they are: a cache
line.
"""

NO_EDGE = -1

Best = tuple[Array, Array, Array, Array]
"""Weight of the best edge of each component; its nodes, as one int64; the row id of
each node; the locks.
"""


def no_edges(components: int, names: np.ndarray, threads: int = 1) -> Best:
    """Return a `Best` without any edge yet. `names`: row id of each node."""
    weights, nodes = np.empty(components), np.empty(components, np.int64)

    def clear(start: int, stop: int) -> None:
        weights[start:stop], nodes[start:stop] = np.inf, NO_EDGE

    shared_out(clear, components, threads)
    return with_locks(weights, nodes, names)


def with_locks(weights: np.ndarray, nodes: np.ndarray, names: np.ndarray) -> Best:
    return weights, nodes, names, np.zeros(LOCKS * SPACING, np.int32)


def ends_of(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the start nodes and the end nodes of edges, int32."""
    start, end = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int32)
    np.right_shift(nodes, 32, out=start, casting="unsafe")
    np.bitwise_and(nodes, 0xFFFFFFFF, out=end, casting="unsafe")
    return start, end


@llvm_function(types.float64, types.int64, types.int64)
def weight_of(builder: Builder, weights: Value, c: Value) -> Value:
    """Return the weight of component `c`. Later reads see memory at least as new."""
    found = builder.load_atomic(item_of(builder, weights, c, I64), "acquire", 8)
    return builder.bitcast(found, F64)


@llvm_function(types.void, types.int64, types.int64, types.float64)
def put_weight(builder: Builder, weights: Value, c: Value, weight: Value) -> None:
    """Write the weight of component `c`, after all earlier writes."""
    value = builder.bitcast(weight, I64)
    builder.store_atomic(value, item_of(builder, weights, c, I64), "release", 8)


@llvm_function(types.int64, types.int64, types.int64)
def nodes_of_best(builder: Builder, nodes: Value, c: Value) -> Value:
    return builder.load_atomic(item_of(builder, nodes, c, I64), "monotonic", 8)


@llvm_function(types.void, types.int64, types.int64, types.int64)
def put_nodes(builder: Builder, nodes: Value, c: Value, both: Value) -> None:
    builder.store_atomic(both, item_of(builder, nodes, c, I64), "monotonic", 8)


@llvm_function(types.boolean, types.int64)
def take_lock(builder: Builder, address: Value) -> Value:
    """Try to take a lock; return whether it was free."""
    lock = builder.inttoptr(address, I32.as_pointer())
    free, taken = I32(0), I32(1)
    done = builder.cmpxchg(lock, free, taken, "acquire", "monotonic")
    return builder.extract_value(done, 1)


@llvm_function(types.void, types.int64)
def free_lock(builder: Builder, address: Value) -> None:
    builder.store_atomic(
        I32(0), builder.inttoptr(address, I32.as_pointer()), "release", 4
    )


@device_function
def comes_first(best: Best, c: int, a: int, b: int) -> bool:
    """Whether an edge between row ids `a` and `b` wins a tie against the best edge of
    component `c`.
    """
    _, nodes, names, _ = best
    both = nodes_of_best(nodes.ctypes.data, c)
    if both == NO_EDGE:
        return True
    low, high = names[both >> 32], names[both & 0xFFFFFFFF]
    if low > high:
        low, high = high, low
    if a > b:
        a, b = b, a
    return bool(a < low or (a == low and b < high))


@device_function
def _improves(best: Best, c: int, weight: float, a: int, b: int) -> bool:
    now = weight_of(best[0].ctypes.data, c)
    return weight < now or (weight == now and comes_first(best, c, a, b))


@device_function
def offer(
    best: Best, c: int, weight: float, a: int, b: int, start: int, end: int
) -> bool:
    """If the given edge comes before the best edge of component `c`, replace the best
    edge and return True.

    `start`, `end`: nodes of the edge; `a`, `b`: their row ids.
    """
    if not _improves(best, c, weight, a, b):
        return False
    lock = best[3].ctypes.data + (c % LOCKS) * SPACING * 4
    while not take_lock(lock):
        pass
    better = _improves(best, c, weight, a, b)
    if better:
        put_nodes(best[1].ctypes.data, c, (np.int64(start) << 32) | np.int64(end))
        put_weight(best[0].ctypes.data, c, weight)
    free_lock(lock)
    return better
