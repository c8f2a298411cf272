"""The hierarchy that a fitted HDBSCAN keeps: its trees, and how they label new rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from dask_simjoin.cluster.algorithms.condense import Condensed, choose, condense, label_rows
from dask_simjoin.cluster.algorithms.edges import rows_of_places
from dask_simjoin.cluster.algorithms.spanning import (
    distances_of,
    in_order,
    known_of_whole,
    neighbors_needed,
    tree_of_chunk,
)
from dask_simjoin.cluster.condensed_tree import condensed_columns
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.norms import Frame, Ids
from dask_simjoin.planning.checks import check_samples
from dask_simjoin.planning.outputs import nearest_output, tree_output
from dask_simjoin.request.clusters import Choice, HdbscanRequest
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.requests import KnnJoinRequest
from dask_simjoin.tasks.chunks import whole_chunk, whole_chunks
from dask_simjoin.tasks.nearest import search_chunk


class CondensedTree:
    """The condensed tree of a fitted HDBSCAN, with the interface of the package hdbscan.

    Parameters
    ----------
    tree : Condensed
    """

    def __init__(self, tree: Condensed) -> None:
        self._tree = tree

    def to_pandas(self) -> pd.DataFrame:
        """Return the tree as a frame, as `dask_simjoin.cluster.condensed_tree` does.

        Returns
        -------
        DataFrame
            ``parent``, ``child`` and ``child_size`` (int64), and ``lambda_val`` (float64).
        """
        return pd.DataFrame(condensed_columns(self._tree))

    def to_numpy(self) -> np.ndarray:
        """Return the tree as an array; its named fields are the columns of `to_pandas`."""
        return np.asarray(self.to_pandas().to_records(index=False))


class SingleLinkageTree:
    """The single linkage tree of a fitted HDBSCAN, with the interface of the package hdbscan.

    Parameters
    ----------
    start, end : array (n - 1,), int
        Row numbers of both ends of each edge; edges are sorted by distance.
    away : array (n - 1,), float64
        Mutual reachability distances of the edges.
    """

    def __init__(self, start: np.ndarray, end: np.ndarray, away: np.ndarray) -> None:
        self._edges = start, end, away

    def to_numpy(self) -> np.ndarray:
        """Return the linkage matrix of SciPy, for ``scipy.cluster.hierarchy``.

        Returns
        -------
        array (n - 1, 4), float64
            The two clusters that merge, the smaller number first, their distance and the number of rows.
            Numbers below n are rows; n + i is the cluster of row i of the matrix.
        """
        start, end, away = self._edges
        n = len(away) + 1
        left, right = np.array(start, np.int32), np.array(end, np.int32)
        scratch, size = np.empty((2, n), np.int32), np.zeros(n - 1, np.int32)
        if n > 1:
            host_kernels("hierarchy").merge_rows(left, right, scratch[0], scratch[1], size)
        return np.column_stack([np.minimum(left, right), np.maximum(left, right), away, size])

    def to_pandas(self) -> pd.DataFrame:
        """Return the merges as a frame.

        Returns
        -------
        DataFrame
            ``parent``, ``left_child``, ``right_child`` and ``size`` (int64), and ``distance`` (float64).
        """
        found = self.to_numpy()
        left, right, size = (found[:, column].astype(np.int64) for column in (0, 1, 3))
        parent = np.arange(len(found)) + len(found) + 1
        return pd.DataFrame(
            {
                "parent": parent, "left_child": left, "right_child": right, "distance": found[:, 2],
                "size": size,
            }
        )  # fmt: skip


class FittedHierarchy(NamedTuple):
    """Hold the data that a fitted HDBSCAN keeps, on the host.

    Attributes
    ----------
    start, end, away : array (n - 1,)
        The minimum spanning tree of mutual reachability; see `condense`.
    condensed : Condensed
    core : array (n,), float64
        Core distances of the rows.
    samples : int
        The value of `min_samples`, which counts the row itself.
    choice : Choice
    """

    start: np.ndarray
    end: np.ndarray
    away: np.ndarray
    condensed: Condensed
    core: np.ndarray
    samples: int
    choice: Choice


def fit_hierarchy(frame: Frame, request: HdbscanRequest) -> tuple[FittedHierarchy | None, Ids]:
    """Find the hierarchy of the rows of a plain frame, and return their ids; None: there are no rows."""
    meta = example_of(frame)
    samples, choice, spec = request.samples(), request.choice(), request.spec(meta)
    min_rows = request.min_rows()
    chunk, plan = whole_chunk(frame, spec, tree_output(neighbors_needed(samples)))
    ids = chunk["ids"]
    n = len(ids)
    check_samples(None if request.min_samples is None else samples, n)
    if not n:
        return None, ids
    chunk["id_keys"] = None  # results are in row order, so ids are not looked up
    known = known_of_whole(chunk, plan.layout, samples)
    # on a copy: distances overwrite totals, which the tree still needs
    core = spec.measure.distance(np.array(to_host(known["core"])[:n]), np)
    core = rows_of_places(core, to_host(chunk["order"])[:n])
    weight, start, end = tree_of_chunk(chunk, 0, plan.layout, known, last=True)
    edges = in_order(start, end, distances_of(weight, spec.measure))
    condensed = condense(*edges, min_rows, meta)
    return FittedHierarchy(*edges, condensed, core, samples, choice), ids


def predict_rows(
    queries: Frame, fitted: Frame, hierarchy: FittedHierarchy, request: KnnJoinRequest
) -> tuple[np.ndarray, np.ndarray, Ids]:
    """Return the clusters of new rows, their probabilities and the rows' ids.

    `request`: the metric and the columns of a search.  See McInnes & Healy (2017), "Accelerated hierarchical
    density based clustering", and ``hdbscan.approximate_predict``.
    """
    spec = request.spec(example_of(queries), example_of(fitted))
    others = hierarchy.samples - 1
    k = min(max(2 * others, hierarchy.samples), len(fitted))
    (new, data), plan = whole_chunks([queries, fitted], spec, nearest_output(k))
    ids = new["ids"]
    if not len(ids):
        return np.zeros(0, np.int64), np.zeros(0), ids
    state = search_chunk(new, data, plan.layout, k, (0, 0), is_self_join=False)
    distance = spec.measure.distance(to_host(state["totals"]), np)
    near = to_host(state["row_numbers"])
    own_core = distance[:, [min(others, k - 1)]]
    reach = np.maximum(np.maximum(distance, own_core), hierarchy.core[near])
    nearest = reach.argmin(axis=1)[:, None]
    with np.errstate(divide="ignore"):
        density = 1 / np.take_along_axis(reach, nearest, 1)[:, 0]
    at = _clusters_at(hierarchy.condensed, np.take_along_axis(near, nearest, 1)[:, 0], density)
    labels, probabilities, _ = label_rows(at, density, choose(hierarchy.condensed, hierarchy.choice))
    return labels, probabilities, ids


def _clusters_at(tree: Condensed, rows: np.ndarray, density: np.ndarray) -> np.ndarray:
    """Return the cluster that contains each of `rows` (m,) at `density` (m,), which is 1 / distance."""
    at = tree.row_parent[rows]
    above = np.flatnonzero((tree.row_lambda[rows] > density) & (at > 0))
    while len(above):
        above = above[tree.birth[at[above]] >= density[above]]
        at[above] = tree.parent[at[above]]
        above = above[at[above] > 0]
    return at
