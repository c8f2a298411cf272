"""Condense a minimum spanning tree to its clusters, and choose clusters.

Edges of equal weight are removed together, so that clusters do not depend on the order of rows.
See Campello, Moulavi, Zimek & Sander (2015), "Hierarchical density estimates for data clustering,
visualization, and outlier detection", ACM Transactions on Knowledge Discovery from Data 10.

Clusters that are born within a distance are merged.  See Malzer & Baum (2020), "A hybrid approach to
hierarchical density-based cluster selection".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.base import host_kernels, spanner_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.clusters import Choice


class Condensed(NamedTuple):
    """Hold a condensed tree, whose clusters have a minimum size; cluster 0 is the root with all rows.

    Attributes
    ----------
    row_parent, row_lambda : array (n,)
        The cluster that each row leaves, and 1 / distance where it leaves.
    parent, birth, rows : array (clusters,)
        The cluster that each cluster splits from, 1 / distance of that split, and its number of rows.
    """

    row_parent: np.ndarray
    row_lambda: np.ndarray
    parent: np.ndarray
    birth: np.ndarray
    rows: np.ndarray


def condense(
    start: np.ndarray, end: np.ndarray, away: np.ndarray, min_rows: int, example: Frame
) -> Condensed:
    """Condense a spanning tree of n rows to its clusters of at least `min_rows` rows.

    Parameters
    ----------
    start, end : array (n - 1,), int
        The rows at both ends of each edge; edges are sorted by distance, with ties in a fixed order.
    away : array (n - 1,), float64
        The distances of the edges.
    min_rows : int
    example : DataFrame
        An empty frame, whose library selects the kernels.
    """
    if not len(start):
        alone = np.zeros(1, np.int32), np.full(1, np.inf)  # a single row is connected at any distance
        return Condensed(*alone, np.full(1, -1, np.int32), np.zeros(1), np.ones(1, np.int32))
    return Condensed(*spanner_for(example).condense(start, end, away, min_rows))


def chosen_clusters(tree: Condensed, choice: Choice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which clusters are chosen, and the largest 1 / distance in each cluster and in its subtree."""
    kernels = host_kernels("hierarchy")
    number = len(tree.parent)
    stability, death, deepest = (np.empty(number) for _ in range(3))
    kernels.measure(*tree, stability, death, deepest)
    chosen = np.zeros(number, np.bool_)
    single, eps = choice.allow_single_cluster, choice.cluster_selection_epsilon
    if choice.cluster_selection_method == "eom":
        kernels.most_stable(
            tree.parent, tree.rows, stability, choice.max_cluster_size, single, np.zeros(number), chosen
        )
    elif number > 1:
        chosen[:] = True
        chosen[tree.parent[1:]] = False
    if eps > 0 and number > 1 and not chosen[0]:
        found = np.empty(number, np.bool_)
        kernels.widen(tree.parent, tree.birth, eps, single, chosen, np.zeros(number, np.bool_), found)
        chosen = found
        chosen[0] &= chosen.sum() == 1  # the root is a cluster only if it is the only one
    return chosen, death, deepest


class ChosenClusters(NamedTuple):
    """Hold for each cluster the chosen cluster that contains it, or -1, and the data to label rows.

    Attributes
    ----------
    of, names, death, deepest : array (clusters,)
        See `dask_simjoin.engine.cpu.kernels.hierarchy.label_rows`.
    enough : float
    """

    of: np.ndarray
    names: np.ndarray
    death: np.ndarray
    deepest: np.ndarray
    enough: float


RowLabels = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Labels of rows (n,), probabilities and outlier scores."""


def choose(tree: Condensed, choice: Choice) -> ChosenClusters:
    """Choose clusters, and number them by their first rows."""
    chosen, death, deepest = chosen_clusters(tree, choice)
    number, eps = len(tree.parent), choice.cluster_selection_epsilon
    enough = 1 / eps if eps > 0 else float(death[0])
    of, names = np.empty(number, np.int32), np.empty(number, np.int64)
    host_kernels("hierarchy").name_clusters(
        tree.row_parent, tree.row_lambda, tree.parent, chosen, enough, of, names
    )
    return ChosenClusters(of, names, death, deepest, enough)


def label_rows(row_parent: np.ndarray, row_lambda: np.ndarray, chosen: ChosenClusters) -> RowLabels:
    """Label rows from the cluster that each row leaves, and 1 / distance where it leaves."""
    n = len(row_parent)
    labels = np.empty(n, np.int64), np.empty(n), np.empty(n)
    of, names, death, deepest, enough = chosen
    host_kernels("hierarchy").label_rows(row_parent, row_lambda, of, names, death, deepest, enough, *labels)
    return labels


def label_tree(tree: Condensed, choice: Choice) -> RowLabels:
    """Choose clusters of a tree, and label all its rows."""
    return label_rows(tree.row_parent, tree.row_lambda, choose(tree, choice))


def compile_labels() -> None:
    """Label two rows to compile the kernels while a GPU searches; see `Spanner.prepare`."""
    rows = np.zeros(2, np.int32), np.zeros(2)
    label_tree(Condensed(*rows, np.full(1, -1, np.int32), np.zeros(1), np.full(1, 2, np.int32)), Choice())


def numbers_of(frame: Frame, name: str, kind: Any, verb: str) -> np.ndarray:
    """Read a column as numbers of type `kind`, on the host; refuse other and missing values.

    `verb`: the verb whose results have this column.
    """
    try:
        values = to_host(frame[name].values)
        with np.errstate(invalid="ignore"):  # NaN has no integer value
            found: np.ndarray = np.asarray(values).astype(kind)
        exact = bool((found == np.asarray(values, np.float64)).all())
    except (TypeError, ValueError):
        exact = False
    if not exact:
        raise ColumnError(
            f"Column {name!r} of dtype {frame[name].dtype} has values that are missing or not "
            f"{np.dtype(kind).name}; pass a complete result of {verb}."
        )
    return found
