"""Connected components: of edges between numbers, and of a frame of pairs of ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import Backend, backend_for, host

ID, COMPONENT = "id", "component"


def new_nodes(number: int, xp: Any = np) -> Any:
    """The nodes 0 ... number-1, each its own parent: int32 while that suffices."""
    return xp.arange(number, dtype=np.int32 if number <= np.iinfo(np.int32).max else np.int64)


def component_roots(nodes: int, left: Any, right: Any, backend: Backend | None = None) -> Any:
    """For each of the nodes 0 ... nodes-1 the smallest node that edges connect it with.

    `backend`: of the edges' arrays; the host's unless another is given.
    """
    backend = backend or host()
    parent = new_nodes(nodes, backend.xp)
    backend.link(parent, left, right)
    backend.roots(parent)
    return parent


def spanning_forest(edges: np.ndarray) -> np.ndarray:
    """As few edges (k, 2) as connect the same numbers; each goes to the smallest of its component."""
    names, places = np.unique(edges, return_inverse=True)
    places = places.reshape(-1, 2)
    root = component_roots(len(names), places[:, 0], places[:, 1])
    other = np.flatnonzero(root != np.arange(len(names)))
    return np.stack([names[other], names[root[other]]], axis=1)


def forest_of_ids(pairs: Any) -> Any:
    """Each id of a frame of pairs once, with an id that stands for its component."""
    if not len(pairs):
        return pairs
    ids, left, right, backend = _coded(pairs)
    root = component_roots(len(ids), left, right, backend)
    return backend.result({"left": ids, "right": ids.take(root)}, len(ids))


def components_of_ids(pairs: Any) -> Any:
    """Each id of a frame of pairs, and the number of its component: in the order of the smallest ids."""
    ids, left, right, backend = _coded(pairs)
    xp = backend.xp
    try:
        order = xp.asarray(ids.argsort())
    except TypeError:  # ids that cannot be ordered keep the order in which they were met
        order = xp.arange(len(ids))
    rank = xp.empty(len(ids), np.int64)
    rank[order] = xp.arange(len(ids))
    root = component_roots(len(ids), rank[left], rank[right], backend)
    number = xp.unique(root, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return backend.result({ID: ids.take(order), COMPONENT: number}, len(ids))


def _coded(pairs: Any) -> tuple[Any, Any, Any, Backend]:
    """The ids, each once, the places among them of both columns, and the frame's backend."""
    backend = backend_for(pairs)
    both = backend.index(pairs["left"]).append(backend.index(pairs["right"]))
    codes, ids = both.factorize()
    codes, n = backend.xp.asarray(codes), len(pairs)
    return ids, codes[:n], codes[n:], backend


def no_components(pairs: Any) -> Any:
    """An empty example of what `components_of_ids` gives."""
    return components_of_ids(pairs.iloc[:0])
