"""Find connected components: of edges between numbers, and of a frame of pairs of ids."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dask_simjoin.engine.base import frames_for, host_joiner, joiner_for
from dask_simjoin.engine.compat import on_gpu
from dask_simjoin.engine.ids import decoded, joined, listed_values, rounded_together
from dask_simjoin.engine.protocols import Frames, Joiner
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.types import Array, ArrayModule, Frame, Ids
from dask_simjoin.tasks.row_numbers import CHUNK, CHUNK_BITS

ID, COMPONENT = "id", "component"


def new_nodes(number: int, xp: ArrayModule = np) -> Array:
    """Make the nodes 0 ... number-1, each its own parent: int32 while that suffices."""
    return xp.arange(number, dtype=np.int32 if number <= np.iinfo(np.int32).max else np.int64)


def component_roots(nodes: int, left: Array, right: Array, joiner: Joiner | None = None) -> Array:
    """Find for each of the nodes 0 ... nodes-1 the smallest node that edges connect it with.

    `joiner`: of the edges' arrays; the host's unless another is given.
    """
    joiner = joiner or host_joiner()
    parent = new_nodes(nodes, joiner.xp)
    joiner.link(parent, left, right)
    joiner.roots(parent)
    return parent


NODES_OF_EDGE = 8
"""Numbers for each edge, of which few enough have none for a node for each of them to be worth it."""

Edges = tuple[Array, Array]
"""The numbers (k,), int64, of both ends of edges, where their backend has arrays."""


def no_edges(xp: ArrayModule = np) -> Edges:
    """Make edges that connect nothing."""
    return xp.zeros(0, np.int64), xp.zeros(0, np.int64)


def spanning_forest(parts: Sequence[Edges], joiner: Joiner) -> Edges:
    """Connect by as few edges as do what all parts connect.

    `joiner`: of their arrays.  Each edge goes from a number, which no other edge is from, to the smallest of
    its component; the edges are in the order of the numbers that they are from.
    """
    xp = joiner.xp
    left, right = (xp.concatenate([xp.asarray(side) for side in sides]) for sides in zip(*parts, strict=True))
    if xp is np and len(left):
        found = _forest_of_ranges(left, right, joiner)
        if found is not None:
            return found
    names, places = xp.unique(xp.concatenate([left, right]), return_inverse=True)
    places = places.reshape(-1)
    root = component_roots(len(names), places[: len(left)], places[len(left) :], joiner)
    other = xp.flatnonzero(root != xp.arange(len(names)))
    return names[other], names[root[other]]


def _forest_of_ranges(left: np.ndarray, right: np.ndarray, joiner: Joiner) -> Edges | None:
    """Do as `spanning_forest` does with a node for each number up to the last one, chunk by chunk.

    Where few numbers have no edge, that takes a fifth of the time of sorting them; None: many have none.
    """
    if min(int(left.min()), int(right.min())) < 0:
        return None
    sides = [(side >> CHUNK_BITS, side & (CHUNK - 1)) for side in (left, right)]
    ends = np.zeros(1 + max(int(chunks.max()) for chunks, _ in sides), np.int64)
    for chunks, places in sides:
        np.maximum.at(ends, chunks, places + 1)
    starts = np.concatenate([[0], np.cumsum(ends)])
    nodes = int(starts[-1])
    if nodes > NODES_OF_EDGE * len(left):
        return None
    one, other = (starts[chunks] + places for chunks, places in sides)
    root = component_roots(nodes, one, other, joiner)
    tied = np.flatnonzero(root != np.arange(nodes, dtype=root.dtype))

    def numbered(some: np.ndarray) -> np.ndarray:
        chunks = np.searchsorted(starts, some, side="right") - 1
        return some + (np.arange(len(starts)) * CHUNK - starts)[chunks]

    return numbered(tied), numbered(root[tied])


def forest_of_ids(pairs: Frame) -> Frame:
    """Reduce a frame of pairs to each id once, with an id that stands for its component."""
    if not len(pairs):
        return pairs
    frames, joiner = frames_for(pairs), joiner_for(pairs)
    ids, left, right = _coded(pairs, frames)
    root = component_roots(len(ids), left, right, joiner)
    return frames.result({"left": ids, "right": ids.take(root)}, len(ids))


def components_of_ids(pairs: Frame) -> Frame:
    """Number the components of the ids of a frame of pairs, in the order of their smallest ids."""
    frames, joiner = frames_for(pairs), joiner_for(pairs)
    ids, left, right = _coded(pairs, frames)
    xp = frames.xp
    order = xp.asarray(_order(ids))
    rank = xp.empty(len(ids), np.int64)
    rank[order] = xp.arange(len(ids))
    root = component_roots(len(ids), rank[left], rank[right], joiner)
    return frames.result({ID: ids.take(order), COMPONENT: joiner.numbers(root)}, len(ids))


def _order(ids: Ids) -> Array:
    """Order ids, in all partitionings alike: first by their kinds where kinds do not compare."""
    with contextlib.suppress(TypeError):
        return ids.argsort()
    kinds = ["" if isinstance(value, numbers.Number) else type(value).__name__ for value in ids]
    with contextlib.suppress(TypeError):
        return np.array(sorted(range(len(ids)), key=lambda k: (kinds[k], ids[k])))
    return np.array(sorted(range(len(ids)), key=lambda k: (kinds[k], repr(ids[k]))))


def _coded(pairs: Frame, frames: Frames) -> tuple[Ids, Array, Array]:
    """List the ids, each once, and the places among them of both ends of pairs.

    Where one end is missing, as in a left join, the other one is an id, but there is no pair.
    """
    left, right = frames.index(pairs["left"]), frames.index(pairs["right"])
    if left.dtype != right.dtype or not isinstance(left.dtype, (np.dtype, pd.CategoricalDtype)):
        left, right = decoded(left), decoded(right)
    if rounded_together(left, right):
        if on_gpu(left):
            raise ColumnError(
                f"Columns 'left' and 'right' are of dtypes {left.dtype} and {right.dtype}, and none has the "
                "numbers of both; convert one of them."
            )
        left, right = (pd.Index(listed_values(side), dtype=object) for side in (left, right))
    codes, ids = joined([left, right]).factorize()
    codes, n = frames.xp.asarray(codes), len(pairs)
    if not left.hasnans and not right.hasnans:
        return ids, codes[:n], codes[n:]
    both = (codes[:n] >= 0) & (codes[n:] >= 0)
    return ids, codes[:n][both], codes[n:][both]


def no_components(pairs: Frame) -> Frame:
    """Make an empty example of what `components_of_ids` gives."""
    return components_of_ids(pairs.iloc[:0])
