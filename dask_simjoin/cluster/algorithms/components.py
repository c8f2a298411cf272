"""Find connected components: of edges between numbers, and of a frame of pairs of ids."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.base import frames_for, host_joiner, joiner_for
from dask_simjoin.engine.protocols import Frames, Joiner
from dask_simjoin.metrics.types import Array, ArrayModule, Frame, Ids

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


def spanning_forest(edges: np.ndarray) -> np.ndarray:
    """Connect the same numbers by as few edges (k, 2) as do; each goes to the smallest of its component."""
    names, places = np.unique(edges, return_inverse=True)
    places = places.reshape(-1, 2)
    root = component_roots(len(names), places[:, 0], places[:, 1])
    other = np.flatnonzero(root != np.arange(len(names)))
    return np.stack([names[other], names[root[other]]], axis=1)


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
    try:
        order = xp.asarray(ids.argsort())
    except TypeError:  # ids that cannot be ordered keep the order in which they were met
        order = xp.arange(len(ids))
    rank = xp.empty(len(ids), np.int64)
    rank[order] = xp.arange(len(ids))
    root = component_roots(len(ids), rank[left], rank[right], joiner)
    number = xp.unique(root, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return frames.result({ID: ids.take(order), COMPONENT: number}, len(ids))


def _coded(pairs: Frame, frames: Frames) -> tuple[Ids, Array, Array]:
    """List the ids, each once, and the places among them of both columns."""
    both = frames.index(pairs["left"]).append(frames.index(pairs["right"]))
    codes, ids = both.factorize()
    codes, n = frames.xp.asarray(codes), len(pairs)
    return ids, codes[:n], codes[n:]


def no_components(pairs: Frame) -> Frame:
    """Make an empty example of what `components_of_ids` gives."""
    return components_of_ids(pairs.iloc[:0])
