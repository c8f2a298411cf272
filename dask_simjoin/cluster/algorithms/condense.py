"""Condense a minimum spanning tree to its clusters, and select some of them.

Campello, Moulavi, Zimek & Sander (2015), "Hierarchical density estimates for data clustering, visualization,
and outlier detection", ACM Transactions on Knowledge Discovery from Data 10: edges of one weight are removed
together, so that clusters do not depend on the order of rows.  Clusters that are born within a distance are
merged as Malzer & Baum (2020), "A hybrid approach to hierarchical density-based cluster selection", say.
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
    """Hold the clusters of enough rows, of which the first is that of all rows.

    Attributes
    ----------
    row_parent, row_lambda : array (n,)
        The cluster that each row falls out of, and at which 1 / distance.
    parent, birth, rows : array (clusters,)
        Of each cluster the one that it splits from, at which 1 / distance, and its rows.
    """

    row_parent: np.ndarray
    row_lambda: np.ndarray
    parent: np.ndarray
    birth: np.ndarray
    rows: np.ndarray


def condense(start: np.ndarray, end: np.ndarray, away: np.ndarray, least: int, example: Frame) -> Condensed:
    """Condense a spanning tree of n rows to its clusters of at least `least` rows.

    Parameters
    ----------
    start, end : array (n - 1,), int
        Rows that edges join, those of the smallest distance first; of equal ones in a certain order.
    away : array (n - 1,), float64
        The distances.
    least : int
    example : DataFrame
        Of the library whose arrays are worked on.
    """
    if not len(start):
        alone = np.zeros(1, np.int32), np.full(1, np.inf)  # connected at any distance
        return Condensed(*alone, np.full(1, -1, np.int32), np.zeros(1), np.ones(1, np.int32))
    return Condensed(*spanner_for(example).condense(start, end, away, least))


def chosen_clusters(tree: Condensed, choice: Choice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tell which clusters are chosen, and the largest 1 / distance in each, and in it and below it."""
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
        chosen[0] &= chosen.sum() == 1  # beside others it is none
    return chosen, death, deepest


class ChosenClusters(NamedTuple):
    """Hold what rows are told by: of clusters, in which chosen one each lies, or -1, its name, and the rest.

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


Told = tuple[np.ndarray, np.ndarray, np.ndarray]
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


def told_of_rows(row_parent: np.ndarray, row_lambda: np.ndarray, chosen: ChosenClusters) -> Told:
    """Tell of rows, each with the cluster that it falls out of, and where."""
    n = len(row_parent)
    told = np.empty(n, np.int64), np.empty(n), np.empty(n)
    of, names, death, deepest, enough = chosen
    host_kernels("hierarchy").label_rows(row_parent, row_lambda, of, names, death, deepest, enough, *told)
    return told


def told_of_all(tree: Condensed, choice: Choice) -> Told:
    """Tell of all rows of a tree."""
    return told_of_rows(tree.row_parent, tree.row_lambda, choose(tree, choice))


def tell_some() -> None:
    """Tell of two rows: so what that takes is compiled while a GPU searches; see `Spanner.prepare`."""
    rows = np.zeros(2, np.int32), np.zeros(2)
    told_of_all(Condensed(*rows, np.full(1, -1, np.int32), np.zeros(1), np.full(1, 2, np.int32)), Choice())


def numbers_of(frame: Frame, name: str, kind: Any, verb: str) -> np.ndarray:
    """Read a column as numbers of a kind, on the host; refuses others, and missing ones.

    `verb`: what gives such columns.
    """
    try:
        values = to_host(frame[name].values)
        with np.errstate(invalid="ignore"):  # NaN as a whole number
            found: np.ndarray = np.asarray(values).astype(kind)
        same = bool((found == np.asarray(values, np.float64)).all())
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ColumnError(
            f"Column {name!r} of dtype {frame[name].dtype} holds missing values or others than "
            f"{np.dtype(kind).name}; give a whole result of {verb}."
        )
    return found
