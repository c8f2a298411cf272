"""Connected components: of edges between numbers, and of a frame of pairs of ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.backends.base import host

ID, COMPONENT = "id", "component"


def component_roots(nodes: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """For each of the nodes 0 ... nodes-1 the smallest node that edges connect it with (int64)."""
    parent = np.arange(nodes)
    every, kernels = np.ones(nodes, bool), host().components
    kernels.link(parent, left, right, every, every, 0)
    kernels.roots(parent)
    return parent


def spanning_forest(edges: np.ndarray) -> np.ndarray:
    """As few edges (k, 2) as connect the same numbers; each goes to the smallest of its component."""
    names, places = np.unique(edges, return_inverse=True)
    places = places.reshape(-1, 2)
    root = component_roots(len(names), places[:, 0], places[:, 1])
    other = np.flatnonzero(root != np.arange(len(names)))
    return np.stack([names[other], names[root[other]]], axis=1)


def forest_of_ids(pairs: pd.DataFrame) -> pd.DataFrame:
    """Each id of a frame of pairs once, with an id that stands for its component."""
    ids, root = _roots_of_ids(pairs)
    return pd.DataFrame({"left": ids, "right": ids.take(root)}) if len(pairs) else pairs


def components_of_ids(pairs: pd.DataFrame) -> pd.DataFrame:
    """Each id of a frame of pairs, and the number of its component: in the order of the smallest ids."""
    ids, root = _roots_of_ids(pairs)
    try:
        order = np.asarray(ids.argsort())
    except TypeError:  # ids that cannot be ordered keep the order in which they were met
        order = np.arange(len(ids))
    first = pd.factorize(root[order])[0]
    return pd.DataFrame({ID: ids.take(order), COMPONENT: first.astype(np.int64)})


def _roots_of_ids(pairs: pd.DataFrame) -> tuple[pd.Index, np.ndarray]:
    """The ids, each once, and the place among them of each one's root."""
    both = pd.Index(pairs["left"]).append(pd.Index(pairs["right"]))
    codes, ids = both.factorize()
    n = len(pairs)
    return ids, component_roots(len(ids), codes[:n], codes[n:])


def no_components(pairs: Any) -> pd.DataFrame:
    """An empty example of what `components_of_ids` gives."""
    return components_of_ids(pairs.iloc[:0])
