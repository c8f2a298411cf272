"""Condense a minimum spanning tree to a tree of clusters, and choose clusters from it.

If several edges have the same weight, they are removed in one step, so clusters do not
depend on the order of rows. See Campello, Moulavi, Zimek & Sander (2015), "Hierarchical
density estimates for data clustering, visualization, and outlier detection", ACM
Transactions on Knowledge Discovery from Data 10. For `cluster_selection_epsilon`, see
Malzer & Baum (2020), "A hybrid approach to hierarchical density-based cluster
selection".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.calls.tables import table_of
from dask_simjoin.engine.base import (
    frames_for,
    host_kernels,
    spanner_for,
    spanner_of,
)
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.protocols import RowMeasures
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.request.clusters import Choice, HdbscanRequest, Selection
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.options import check_whole

CLUSTERS: dict[str, Any] = {
    "label": np.int64,
    "probability": np.float64,
    "outlier_score": np.float64,
}
"""Columns of clustering results, with their dtypes."""

CLUSTER_FILL = {"label": -1, "probability": 0.0, "outlier_score": math.nan}
"""The result for rows that `dropna` leaves out."""

EDGES: dict[str, Any] = {"left": np.int64, "right": np.int64, "distance": np.float64}
"""Columns and dtypes of a spanning tree."""

COLUMNS: dict[str, Any] = {
    "parent": np.int64,
    "child": np.int64,
    "lambda_val": np.float64,
    "child_size": np.int64,
}
"""Columns and dtypes of a condensed tree."""


class Condensed(NamedTuple):
    """A condensed tree: clusters that split into smaller ones as the distance
    decreases. Cluster 0 has all rows.
    """

    # (n,): for each row, the smallest cluster that contains it
    row_parent: Array
    row_lambda: Array  # (n,): 1 / the distance where the row leaves that cluster
    # (clusters,): for each cluster, the cluster that it was split from
    parent: np.ndarray
    birth: np.ndarray  # (clusters,): 1 / the distance where it was split off
    rows: np.ndarray  # (clusters,): number of rows in each cluster

    def on_host(self) -> Condensed:
        """Return the tree with all arrays on the host."""
        rows = to_host(self.row_parent), to_host(self.row_lambda)
        return Condensed(*rows, *self[2:])


def condense(
    start: Array,
    end: Array,
    away: Array,
    min_rows: int,
    example: Frame,
    threads: int = 1,
) -> Condensed:
    """Condense a spanning tree to a tree of clusters with at least `min_rows` rows
    each.

    `start`, `end`: the rows at both ends of each edge. `away` (n - 1,), float64:
    lengths of the edges, ascending, with ties in a fixed order. The library of
    `example` selects the kernels.
    """
    if not len(start):
        # a single row has no edge, so it never leaves its cluster
        alone = np.zeros(1, np.int32), np.full(1, np.inf)
        return Condensed(
            *alone, np.full(1, -1, np.int32), np.zeros(1), np.ones(1, np.int32)
        )
    return Condensed(
        *spanner_for(example).condense(start, end, away, min_rows, threads)
    )


class MeasuredClusters(NamedTuple):
    """The clusters of a condensed tree, and which of them are chosen. Each array has one
    value per cluster.
    """

    chosen: np.ndarray  # mask of the chosen clusters
    first: np.ndarray  # the first row that leaves the cluster itself; -1: none does
    # the sum over its rows of how much 1 / distance grows while they are in the cluster
    stability: np.ndarray
    death: np.ndarray  # the largest 1 / distance where a row leaves the cluster
    deepest: np.ndarray  # the largest `death` of the cluster and those below it


def chosen_clusters(tree: Condensed, choice: Choice) -> MeasuredClusters:
    """Measure the clusters, and choose some."""
    rows = tree.row_parent, tree.row_lambda
    return chosen_of(tree, spanner_of(rows[0]).measure_rows(*rows, tree.birth), choice)


def chosen_of(
    tree: Condensed, measures: RowMeasures, choice: Choice
) -> MeasuredClusters:
    """Choose clusters. `measures`: of the rows that leave each cluster."""
    kernels = host_kernels("hierarchy")
    number = len(tree.parent)
    first, stability, death = measures
    deepest = np.empty(number)
    kernels.measure(tree.parent, tree.birth, tree.rows, stability, death, deepest)
    chosen = np.zeros(number, np.bool_)
    single, eps = choice.allow_single_cluster, choice.cluster_selection_epsilon
    if choice.cluster_selection_method == "eom":
        kernels.most_stable(
            tree.parent,
            tree.rows,
            stability,
            choice.max_cluster_size,
            single,
            np.zeros(number),
            chosen,
        )
    elif number > 1:
        chosen[:] = True
        chosen[tree.parent[1:]] = False
    if eps > 0 and number > 1 and not chosen[0]:
        found = np.empty(number, np.bool_)
        kernels.widen(
            tree.parent,
            tree.birth,
            eps,
            single,
            chosen,
            np.zeros(number, np.bool_),
            found,
        )
        chosen = found
        chosen[0] &= chosen.sum() == 1  # the root is chosen only if no other cluster is
    return MeasuredClusters(chosen, first, stability, death, deepest)


class ChosenClusters(NamedTuple):
    """The chosen clusters, as the kernel `label_rows` takes them; each array has one
    value per cluster.
    """

    of: np.ndarray
    names: np.ndarray
    death: np.ndarray
    deepest: np.ndarray
    enough: float


RowLabels = tuple[Array, Array, Array]
"""Labels, probabilities and outlier scores of rows, each (n,)."""


def choose(tree: Condensed, choice: Choice) -> ChosenClusters:
    """Choose clusters, and number them in the order of their first rows."""
    return numbered(tree, chosen_clusters(tree, choice), choice)


def numbered(
    tree: Condensed, measured: MeasuredClusters, choice: Choice
) -> ChosenClusters:
    """Number the chosen clusters in the order of their first rows."""
    chosen, first, _, death, deepest = measured
    number, eps = len(tree.parent), choice.cluster_selection_epsilon
    enough = 1 / eps if eps > 0 else float(death[0])
    of, names = np.empty(number, np.int32), np.full(number, -1, np.int64)
    host_kernels("hierarchy").first_rows(tree.parent, chosen, of, first)
    places = np.flatnonzero(chosen)
    names[places[np.argsort(first[places])]] = np.arange(len(places))
    return ChosenClusters(of, names, death, deepest, enough)


def label_rows(
    row_parent: Array,
    row_lambda: Array,
    chosen: ChosenClusters,
    threads: int = 1,
) -> RowLabels:
    """Label rows, on their device. `row_parent` and `row_lambda` are as in `Condensed`,
    and may be for a part of the rows.
    """
    spanner = spanner_of(row_parent)
    return spanner.label_rows(row_parent, row_lambda, chosen, threads)


def label_tree(tree: Condensed, choice: Choice, threads: int = 1) -> RowLabels:
    return label_rows(tree.row_parent, tree.row_lambda, choose(tree, choice), threads)


def compile_labels() -> None:
    """Compile the kernels that choose clusters, which always run on the host, by
    choosing from one. The CPU does this while a GPU searches: see `Spanner.prepare`.
    """
    rows = np.zeros(2, np.int32), np.zeros(2)
    tree = Condensed(
        *rows, np.full(1, -1, np.int32), np.zeros(1), np.full(1, 2, np.int32)
    )
    measures = np.zeros(1, np.int64), np.zeros(1), np.ones(1)
    numbered(tree, chosen_of(tree, measures, Choice()), Choice())


def numbers_of(frame: Frame, name: str, kind: Any, verb: str) -> np.ndarray:
    """Convert a column of a result of `verb` to dtype `kind`; raise an error if that
    would change a value.
    """
    try:
        values = to_host(frame[name].values)
        # NaN has no integer value, so NumPy would warn; the comparison below finds it
        with np.errstate(invalid="ignore"):
            found: np.ndarray = np.asarray(values).astype(kind)
        exact = bool((found == np.asarray(values, np.float64)).all())
    except (TypeError, ValueError):
        exact = False
    if not exact:
        raise ColumnError(
            f"Column {name!r} of dtype {frame[name].dtype} has values that are missing "
            "or not "
            f"{np.dtype(kind).name}; pass a complete result of {verb}."
        )
    return found


def condensed_tree(tree: Frame, min_cluster_size: int = 5) -> Frame:
    """Condense a spanning tree to clusters of at least `min_cluster_size` rows, as the
    package hdbscan does.

    Parameters
    ----------
    tree : DataFrame
        A complete result of `SimJoinAccessor.spanning_tree`.
    min_cluster_size : int
        At least 2.

    Returns
    -------
    DataFrame
        ``parent`` (int64) is a cluster. ``child`` (int64) is a row or a cluster that
        leaves the parent. With n rows, numbers 0 to n - 1 are rows, n is the cluster of
        all rows, and larger numbers are other clusters. ``lambda_val`` (float64) is 1 /
        the distance where the child leaves. ``child_size`` (int64) is the number of
        rows of the child. The result is sorted by parent, lambda and child. If `tree`
        is lazy, the result is lazy with one partition.

    Raises
    ------
    ColumnError
        A column is missing, or the edges are not a tree.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from dask_simjoin.cluster import condensed_tree
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 10.0, 12.0]})
    >>> condensed_tree(df.simjoin.spanning_tree(), 2)
       parent  child  lambda_val  child_size
    0       4      5    0.111111           2
    1       4      6    0.111111           2
    2       5      2    0.500000           1
    3       5      3    0.500000           1
    4       6      0    1.000000           1
    5       6      1    1.000000           1
    """
    min_rows = check_whole("min_cluster_size", min_cluster_size, 2)
    meta = example_of_result(tree, EDGES, "spanning_tree()")
    return _of_all_rows(tree, _condensed, empty_result(meta, COLUMNS), min_rows)


def choose_clusters(
    condensed: Frame,
    *,
    cluster_selection_method: Selection = "eom",
    cluster_selection_epsilon: float = 0.0,
    max_cluster_size: int | None = None,
    allow_single_cluster: bool = False,
) -> Frame:
    """Choose clusters of a condensed tree, as `hdbscan` does. This is fast, so you can
    try several options.

    Parameters
    ----------
    condensed : DataFrame
        A complete result of `condensed_tree`.
    cluster_selection_method, cluster_selection_epsilon, max_cluster_size,
    allow_single_cluster
        As in `SimJoinAccessor.hdbscan`.

    Returns
    -------
    DataFrame
        ``label``, ``probability`` and ``outlier_score`` of each row, in the order of
        row numbers. If `condensed` is lazy, the result is lazy with one partition.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from dask_simjoin.cluster import choose_clusters, condensed_tree
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 10.0, 12.0]})
    >>> choose_clusters(condensed_tree(df.simjoin.spanning_tree(), 2))["label"].tolist()
    [0, 0, 1, 1]
    """
    choice = HdbscanRequest(
        min_cluster_size=2,
        cluster_selection_method=cluster_selection_method,
        cluster_selection_epsilon=cluster_selection_epsilon,
        max_cluster_size=max_cluster_size,
        allow_single_cluster=allow_single_cluster,
    ).choice()
    meta = example_of_result(condensed, COLUMNS, "condensed_tree()")
    return _of_all_rows(condensed, _chosen, empty_result(meta, CLUSTERS), choice)


def condensed_columns(tree: Condensed) -> dict[str, np.ndarray]:
    n = len(tree.row_parent)
    if n == 1:
        return {name: np.zeros(0, kind) for name, kind in COLUMNS.items()}
    parent = np.concatenate([tree.parent[1:], tree.row_parent]).astype(np.int64) + n
    child = np.concatenate([np.arange(1, len(tree.parent)) + n, np.arange(n)])
    density = np.concatenate([tree.birth[1:], tree.row_lambda])
    size = np.concatenate([tree.rows[1:], np.ones(n, np.int32)]).astype(np.int64)
    order = np.lexsort((child, density, parent))
    columns = zip(COLUMNS, (parent, child, density, size), strict=True)
    return {name: column[order] for name, column in columns}


def condensed_of(frame: Frame) -> Condensed:
    """Convert a result of `condensed_tree` to a `Condensed`."""
    columns = [
        numbers_of(frame, name, kind, "condensed_tree()")
        for name, kind in COLUMNS.items()
    ]
    parent, child, density, size = columns
    root = int(parent.min()) if len(parent) else 0
    rows, clusters = child < root, child >= root
    number = int(clusters.sum()) + 1
    order = np.argsort(child[clusters])
    whole = (
        rows.sum() == root
        and (np.sort(child[rows]) == np.arange(root)).all()
        and (child[clusters][order] == np.arange(root + 1, root + number)).all()
        and (parent[clusters] < child[clusters]).all()
        and (parent < root + number).all()
        and (density >= 0).all()
    )
    if not whole:
        raise ColumnError(
            f"{len(parent):,} rows are not a complete condensed tree; pass all rows of "
            "a result of "
            "condensed_tree()."
        )
    row_parent, row_lambda = np.empty(root, np.int32), np.empty(root)
    row_parent[child[rows]], row_lambda[child[rows]] = (
        parent[rows] - root,
        density[rows],
    )
    above = np.concatenate([[-1], parent[clusters][order] - root]).astype(np.int32)
    birth = np.concatenate([[0.0], density[clusters][order]])
    sizes = np.concatenate([[root], size[clusters][order]]).astype(np.int32)
    return Condensed(row_parent, row_lambda, above, birth, sizes)


def example_of_result(frame: Frame, columns: Iterable[str], verb: str) -> Frame:
    """Return an empty example of a result of `verb`; raise an error if a column is
    missing.
    """
    meta = example_of(frame)
    for name in columns:
        if name not in meta.columns:
            raise ColumnError(
                f"The frame has no column {name!r}; pass a complete result of {verb}."
            )
    return meta


def empty_result(meta: Frame, columns: dict[str, Any]) -> Frame:
    return frames_for(meta).result(
        {name: np.zeros(0, kind) for name, kind in columns.items()}, 0
    )


def _of_all_rows(frame: Frame, function: Any, example: Frame, how: Any) -> Frame:
    whole = table_of(frame).in_one()
    return whole.by_partition(function, example, how, meta=example)


def _condensed(tree: Frame, example: Frame, min_rows: int) -> Frame:
    start, end, away = (
        numbers_of(tree, name, kind, "spanning_tree()") for name, kind in EDGES.items()
    )
    n = len(start) + 1
    order = np.lexsort((end, start, away))
    start, end, away = start[order], end[order], np.ascontiguousarray(away[order])
    inside = (
        all(((some >= 0) & (some < n)).all() for some in (start, end))
        and not (away < 0).any()
    )
    if (
        not inside
        or host_kernels("optics").spanning(
            start, end, np.arange(n), np.empty(n, np.int64)
        )
        < n - 1
    ):
        raise ColumnError(
            f"The {n - 1:,} edges do not connect {n:,} rows, so they are not a "
            "spanning tree; pass a "
            "complete result of spanning_tree()."
        )
    if n == 1:
        return example
    found = condense(start, end, away, min_rows, example)
    return frames_for(example).result(
        condensed_columns(found), len(found.row_parent) + len(found.parent) - 1
    )


def _chosen(condensed: Frame, example: Frame, choice: Choice) -> Frame:
    if not len(condensed):
        return example
    found = label_tree(condensed_of(condensed), choice)
    return frames_for(example).result(
        dict(zip(CLUSTERS, found, strict=True)), len(found[0])
    )
