"""The estimator `HDBSCAN`, with the interfaces of scikit-learn and of the package
hdbscan.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import pandas as pd

from dask_simjoin.calls.tables import table_of
from dask_simjoin.cluster.algorithms.condensed_tree import (
    CLUSTER_FILL,
    Condensed,
    choose,
    chosen_clusters,
    condensed_columns,
    label_rows,
    numbered,
)
from dask_simjoin.cluster.centers import centroids, exemplars, medoids, persistence
from dask_simjoin.cluster.hierarchy import hierarchy_driver
from dask_simjoin.cluster.local import FittedHierarchy, LocalDistances
from dask_simjoin.cluster.points_estimator import (
    Clustering,
    Labels,
    NotFittedError,
    Points,
    advising_pipelines,
    check_fitted,
)
from dask_simjoin.cluster.verbs import LABELS, kept_points, kept_positions
from dask_simjoin.engine.base import frames_for, host_kernels
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.distances import Haversine
from dask_simjoin.metrics.norms import Columns, Frame, Ids
from dask_simjoin.planning.outputs import nearest_output
from dask_simjoin.request.clusters import HdbscanRequest, Selection
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.options import (
    MetricName,
    Partitioning,
    Size,
    check_whole,
)
from dask_simjoin.request.requests import KnnJoinRequest
from dask_simjoin.request.units import check_choice
from dask_simjoin.tasks.nearest import search_chunk

CENTROID, MEDOID, BOTH = CENTERS = ("centroid", "medoid", "both")
"""Values of `store_centers`."""

IN_MEMORY = (
    "condensed_tree_",
    "single_linkage_tree_",
    "cluster_persistence_",
    "exemplars_",
    "exemplar_indices_",
    "centroids_",
    "medoids_",
    "medoid_indices_",
    "_hierarchy",
    "_fitted",
    "_positions",
)
"""Attributes that a fit to Dask data does not set."""


class HDBSCAN(Clustering):
    """Clusters rows by density, without a fixed distance; see
    `SimJoinAccessor.hdbscan`.

    Parameters
    ----------
    min_cluster_size : int
        Smallest number of rows in a cluster, at least 2.
    min_samples : int, optional
        The core distance of a row is the distance to its `min_samples`-th nearest row.
        The row itself counts as the first. Default: `min_cluster_size`.
    cluster_selection_method : {"eom", "leaf"}
        "eom" chooses the clusters with the largest total stability, "leaf" the leaves
        of the tree of clusters.
    cluster_selection_epsilon : float
        Clusters are not split at distances below this one.
    max_cluster_size : int, optional
        Larger clusters are not chosen by "eom".
    allow_single_cluster : bool
        Whether all rows may be one cluster.
    on, metric, p, dropna, partitioning, blocksize
        As in `SimJoinAccessor.hdbscan`; `on` is for frames only. For "haversine" an
        array has latitudes and longitudes in degrees, and distances are in meters. The
        default metric is as for `DBSCAN`.
    algorithm, leaf_size
        Accepted for compatibility with scikit-learn, and ignored.
    store_centers : {"centroid", "medoid", "both"}, optional
        The centers of clusters to compute. For data in memory only. Medoids take time
        that grows with the square of the largest cluster. There are no centroids with
        metric="haversine", because means of degrees are wrong at the date line.
    n_jobs : int, optional
        Number of threads for data in memory; -1 means all cores, and -2 all but one. Default: as
        `threads` of `self_join`. Dask data use the threads of Dask.

    Attributes
    ----------
    hdbscan_ : DataFrame
        After `fit`, the result of `SimJoinAccessor.hdbscan`: lazy for a Dask DataFrame
        or array.
    labels_, probabilities_, outlier_scores_ : array or Series (n,)
        Columns of `hdbscan_`: NumPy arrays for a NumPy array, Dask arrays for a Dask
        array, else Series.
    condensed_tree_ : CondensedTree
        The tree of clusters, with `to_pandas` and `to_numpy`. Not available for Dask
        data: use the lazy `spanning_tree` and `dask_simjoin.cluster.condensed_tree`.
    single_linkage_tree_ : SingleLinkageTree
        The tree of all merges, with `to_pandas` and `to_numpy`, which returns SciPy's
        linkage matrix. Not available for Dask data.
    cluster_persistence_ : array (clusters,)
        The stability of each cluster, from 0 to 1, as in the package hdbscan. Not
        available for Dask data, like the attributes below.
    exemplars_ : list of array (rows, columns)
        For each cluster, the coordinates of its most persistent rows: those that stay
        longest in a leaf of the tree below the cluster, as in the package hdbscan.
    exemplar_indices_ : list of array (rows,), int64
        The positions of these rows in `X`.
    centroids_ : array (clusters, columns)
        With `store_centers`, the mean of each cluster, weighted by the probabilities.
    medoids_ : array (clusters, columns)
        With `store_centers`, the row of each cluster whose distances to the others have
        the least sum, weighted by the probabilities.
    medoid_indices_ : array (clusters,), int64
        The positions of these rows in `X`.
    n_features_in_ : int
    feature_names_in_ : array of str
        Names of the columns, for a frame whose column names are all strings.

    Notes
    -----
    For data in memory, the trees take about 40 bytes per row. `predict` needs the trees
    and the fitted rows, so the estimator keeps both; rows are not copied.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.cluster import HDBSCAN
    >>> x = np.array([[0.0], [1.0], [2.5], [40.0], [41.0], [42.5], [90.0]])
    >>> model = HDBSCAN(3, min_samples=2).fit(x)
    >>> model.labels_
    array([ 0,  0,  0,  1,  1,  1, -1])
    >>> model.predict([[1.5], [100.0]])
    array([ 0, -1])
    >>> model.condensed_tree_.to_pandas().head(3)
       parent  child  lambda_val  child_size
    0       7      6    0.021053           1
    1       7      8    0.026667           3
    2       7      9    0.026667           3
    >>> model.single_linkage_tree_.to_numpy()[:2].tolist()
    [[0.0, 1.0, 1.0, 2.0], [3.0, 4.0, 1.0, 2.0]]
    >>> [rows.ravel().tolist() for rows in model.exemplars_]
    [[0.0, 1.0, 2.5], [40.0, 41.0, 42.5]]
    """

    hdbscan_: Frame
    probabilities_: Labels
    outlier_scores_: Labels
    condensed_tree_: CondensedTree
    single_linkage_tree_: SingleLinkageTree
    cluster_persistence_: np.ndarray
    exemplars_: list[np.ndarray]
    exemplar_indices_: list[np.ndarray]
    centroids_: np.ndarray
    medoids_: np.ndarray
    medoid_indices_: np.ndarray

    def __init__(
        self,
        min_cluster_size: int = 5,
        *,
        min_samples: int | None = None,
        cluster_selection_method: Selection = "eom",
        cluster_selection_epsilon: float = 0.0,
        max_cluster_size: int | None = None,
        allow_single_cluster: bool = False,
        metric: MetricName | None = None,
        p: float = 2,
        on: Columns = None,
        dropna: bool = False,
        partitioning: Partitioning = "auto",
        blocksize: Size = None,
        algorithm: str = "auto",
        leaf_size: int = 40,
        n_jobs: int | None = None,
        store_centers: str | None = None,
    ) -> None:
        self.min_cluster_size, self.min_samples = min_cluster_size, min_samples
        self.cluster_selection_method = cluster_selection_method
        self.cluster_selection_epsilon = cluster_selection_epsilon
        self.max_cluster_size, self.allow_single_cluster = (
            max_cluster_size,
            allow_single_cluster,
        )
        self.metric, self.p, self.on, self.dropna = metric, p, on, dropna
        self.partitioning, self.blocksize = partitioning, blocksize
        self.algorithm, self.leaf_size, self.n_jobs = algorithm, leaf_size, n_jobs
        self.store_centers = store_centers

    def fit(self, X: Points, y: object = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array (n, d) of NumPy or Dask, or a DataFrame of Dask or pandas
        y : ignored
        """
        frame, _, request = self._frame(X, HdbscanRequest)
        self._check_centers(frame, request)
        for name in IN_MEMORY:
            if hasattr(self, name):
                delattr(self, name)
        driver, how = hierarchy_driver(frame, request)
        with advising_pipelines(self, X):
            hierarchy = driver.fitted_hierarchy(*how)
            if hierarchy is None:
                found = driver.hierarchy(*how)
            else:
                found = driver.labeled_tree(hierarchy.condensed, hierarchy.choice)
                self._keep(hierarchy, frame, request)
                self._describe(found, frame, request)
        self.hdbscan_ = found
        self.labels_ = self._as_given(found["label"], X)
        self.probabilities_ = self._as_given(found["probability"], X)
        self.outlier_scores_ = self._as_given(found["outlier_score"], X)
        return self

    def dbscan_clustering(
        self, cut_distance: float, min_cluster_size: int = 5
    ) -> np.ndarray:
        """Return the clusters of DBSCAN* at a distance, as scikit-learn does.

        Parameters
        ----------
        cut_distance : float
            Rows are in one cluster if a chain of rows connects them, each nearer than
            this to the next one by mutual reachability.
        min_cluster_size : int
            Rows of smaller clusters are noise.

        Returns
        -------
        array (n,), int64
            The labels, in the order of the first rows of the clusters; -1 for noise,
            and for rows that `dropna` leaves out.
        """
        self._in_memory()
        found = self.single_linkage_tree_.get_clusters(cut_distance, min_cluster_size)
        labels = np.full(len(self.hdbscan_), CLUSTER_FILL["label"], np.int64)
        labels[self._positions] = found
        return labels

    def predict(self, X: Points) -> Labels:
        """Return the cluster of each new row; see `approximate_predict`.

        Parameters
        ----------
        X : array, DataFrame or table
            The new rows, as in `approximate_predict`.

        Returns
        -------
        array or Series (m,), int64
            The labels, or -1 for noise: an array for an array, else a Series.
        """
        return self.approximate_predict(X)[0]

    def approximate_predict(self, X: Points) -> tuple[Labels, Labels]:
        """Return the cluster of each new row and its probability, as
        ``hdbscan.approximate_predict`` does.

        Parameters
        ----------
        X : array (m, d), DataFrame of pandas or cuDF, or table of Arrow
            The new rows. A frame needs the fitted columns and may have others.

        Returns
        -------
        labels : array or Series (m,), int64
            The labels, or -1 for noise.
        probabilities : array or Series (m,), float64
            Strength of membership, from 0 to 1. Rows that `dropna` leaves out have
            the label -1 and the probability 0.

        Notes
        -----
        A new row joins the cluster of one of its ``2 * (min_samples - 1)`` nearest
        fitted rows: the nearest one by mutual reachability. New rows do not change the
        clusters, so a fit that includes them may give other labels. If fitted rows are
        passed, their labels may differ from `labels_`. Each call builds an index of the
        fitted rows and the new rows.
        """
        hierarchy = self._in_memory()
        frame = self._queries(X, list(self._fitted.columns))
        options = self._options(KnnJoinRequest) | {
            "on": list(self._fitted.columns),
            "metric": self._metric,
        }
        with advising_pipelines(self, X):
            labels, probabilities, rows = predict_rows(
                frame.reset_index(drop=True),
                self._fitted,
                hierarchy,
                KnnJoinRequest(**options),
            )
        places = to_host(values_of(rows))
        all_labels = np.full(len(frame), CLUSTER_FILL["label"], np.int64)
        all_probabilities = np.full(len(frame), CLUSTER_FILL["probability"])
        all_labels[places], all_probabilities[places] = labels, probabilities
        frames = frames_for(frame)
        found = (
            frames.series(all_labels, frame.index, LABELS),
            frames.series(all_probabilities, frame.index, "probability"),
        )
        return self._as_given(found[0], X), self._as_given(found[1], X)

    def _in_memory(self) -> FittedHierarchy:
        """Return the trees of data in memory; raise an error if there are none."""
        hierarchy: FittedHierarchy | None = getattr(self, "_hierarchy", None)
        if hierarchy is None:
            check_fitted(self, "labels_")
            raise NotFittedError(
                f"This {type(self).__name__} instance is fitted to Dask data; fit it "
                "to data in memory."
            )
        return hierarchy

    def _check_centers(self, frame: Frame, request: HdbscanRequest) -> None:
        """Raise an error if `store_centers` is unknown or not supported."""
        wanted = self.store_centers
        if wanted is None:
            return
        check_choice("store_centers", wanted, CENTERS)
        given = f"store_centers={wanted!r}"
        if table_of(frame).known_length() is None:
            raise OptionError(
                f"{given} is for data in memory. For Dask data, group the rows by the "
                "labels of hdbscan()."
            )
        if wanted != MEDOID and request.metric == Haversine.name:
            raise OptionError(
                f"{given} is not allowed with metric={Haversine.name!r}, because means "
                f"of degrees are wrong at the date line; use {MEDOID!r}."
            )

    def _describe(self, found: Frame, frame: Frame, request: HdbscanRequest) -> None:
        """Compute the attributes of clusters. `found`: the result for all rows."""
        hierarchy = self._hierarchy
        kept = np.arange(len(self._fitted))
        self._positions = kept_positions(frame, request, kept)
        labels, weights = (
            to_host(values_of(found[name]))[self._positions]
            for name in ("label", "probability")
        )
        tree, choice = hierarchy.condensed, hierarchy.choice
        measured = chosen_clusters(tree, choice)
        chosen = numbered(tree, measured, choice)
        self.cluster_persistence_ = persistence(
            tree, measured.stability, chosen, labels
        )
        rows = exemplars(tree, chosen)
        columns = tuple(self._fitted.columns)
        x = to_host(frames_for(frame).coordinates(self._fitted, columns))
        self.exemplars_ = [x[some] for some in rows]
        self.exemplar_indices_ = [self._positions[some] for some in rows]
        if self.store_centers in (CENTROID, BOTH):
            self.centroids_ = centroids(x, labels, weights)
        if self.store_centers in (MEDOID, BOTH):
            spec = request.spec(example_of(frame))
            found_rows = medoids(x, labels, weights, spec)
            self.medoids_ = x[found_rows]
            self.medoid_indices_ = self._positions[found_rows]

    def _keep(
        self, hierarchy: FittedHierarchy, frame: Frame, request: HdbscanRequest
    ) -> None:
        """Keep the data that `predict` needs."""
        self._hierarchy = hierarchy
        self._fitted = kept_points(frame, request).reset_index(drop=True)
        self._metric = request.metric
        self.condensed_tree_ = CondensedTree(hierarchy.condensed)
        self.single_linkage_tree_ = SingleLinkageTree(
            hierarchy.start, hierarchy.end, hierarchy.away
        )


class CondensedTree:
    """The condensed tree of a fitted HDBSCAN, with the interface of the package
    hdbscan.
    """

    def __init__(self, tree: Condensed) -> None:
        self._tree = tree

    def to_pandas(self) -> pd.DataFrame:
        """Return the tree as a frame, as `dask_simjoin.cluster.condensed_tree` does.

        Returns
        -------
        DataFrame
            ``parent``, ``child`` and ``child_size`` (int64), and ``lambda_val``
            (float64).
        """
        return pd.DataFrame(condensed_columns(self._tree))

    def to_numpy(self) -> np.ndarray:
        """Return the tree as an array, with the columns of `to_pandas` as named fields."""
        return np.asarray(self.to_pandas().to_records(index=False))


class SingleLinkageTree:
    """The single linkage tree of a fitted HDBSCAN, with the interface of the package
    hdbscan.
    """

    def __init__(self, start: np.ndarray, end: np.ndarray, away: np.ndarray) -> None:
        # start and end row of each edge, and its length: see `FittedHierarchy`
        self._edges = start, end, away

    def to_numpy(self) -> np.ndarray:
        """Return the tree as a linkage matrix for ``scipy.cluster.hierarchy``.

        Returns
        -------
        array (n - 1, 4), float64
            The two clusters that merge, the smaller number first; their distance; and
            the number of rows in both. Numbers below n are rows; n + i is the cluster
            of row i of the matrix.
        """
        start, end, away = self._edges
        n = len(away) + 1
        left, right = np.array(start, np.int32), np.array(end, np.int32)
        scratch, size = np.empty((2, n), np.int32), np.zeros(n - 1, np.int32)
        if n > 1:
            host_kernels("hierarchy").merge_rows(
                left, right, scratch[0], scratch[1], size
            )
        return np.column_stack(
            [np.minimum(left, right), np.maximum(left, right), away, size]
        )

    def get_clusters(
        self, cut_distance: float, min_cluster_size: int = 5
    ) -> np.ndarray:
        """Return the clusters that remain if all merges from a distance on are undone.

        Parameters
        ----------
        cut_distance : float
            Merges at this distance or a larger one are undone.
        min_cluster_size : int
            Rows of smaller clusters are noise.

        Returns
        -------
        array (n,), int64
            The labels, in the order of the first rows of the clusters; -1 for noise.
        """
        least = check_whole("min_cluster_size", min_cluster_size, 1)
        merges = self.to_numpy()
        n = len(merges) + 1
        made = int(np.searchsorted(merges[:, 2], cut_distance))
        above = np.arange(n + made)
        for side in (0, 1):
            above[merges[:made, side].astype(np.int64)] = np.arange(n, n + made)
        while (above != (further := above[above])).any():
            above = further
        roots, first, own, rows = np.unique(
            above[:n], return_index=True, return_inverse=True, return_counts=True
        )
        names = np.full(len(roots), CLUSTER_FILL["label"], np.int64)
        large = np.flatnonzero(rows >= least)
        names[large[np.argsort(first[large])]] = np.arange(len(large))
        return names[own]

    def to_pandas(self) -> pd.DataFrame:
        """Return the merges as a frame.

        Returns
        -------
        DataFrame
            ``parent``, ``left_child``, ``right_child`` and ``size`` (int64), and
            ``distance`` (float64).
        """
        found = self.to_numpy()
        left, right, size = (found[:, column].astype(np.int64) for column in (0, 1, 3))
        parent = np.arange(len(found)) + len(found) + 1
        columns = {
            "parent": parent,
            "left_child": left,
            "right_child": right,
            "distance": found[:, 2],
        }
        return pd.DataFrame(columns | {"size": size})


def predict_rows(
    queries: Frame, fitted: Frame, hierarchy: FittedHierarchy, request: KnnJoinRequest
) -> tuple[np.ndarray, np.ndarray, Ids]:
    """Assign new rows to clusters: return the clusters, the probabilities, and the ids
    of the new rows.

    `request`: the request with the metric and the columns. See McInnes & Healy (2017),
    "Accelerated hierarchical density based clustering", and
    ``hdbscan.approximate_predict``.
    """
    spec = request.spec(example_of(queries), example_of(fitted))
    others = hierarchy.samples - 1
    k = min(max(2 * others, hierarchy.samples), len(fitted))
    driver = LocalDistances([queries, fitted], spec)
    (new, data), plan, _ = driver.indexed(nearest_output(k))
    ids = new["ids"]
    if not len(ids):
        return np.zeros(0, np.int64), np.zeros(0), ids
    how = plan.layout, k, (0, 0)
    state = search_chunk(new, data, *how, is_self_join=False, threads=driver.threads)
    distance = spec.measure.distance(to_host(state["totals"]), np)
    near = to_host(state["row_numbers"])
    own_core = distance[:, [min(others, k - 1)]]
    reach = np.maximum(np.maximum(distance, own_core), hierarchy.core[near])
    nearest = reach.argmin(axis=1)[:, None]
    with np.errstate(divide="ignore"):
        density = 1 / np.take_along_axis(reach, nearest, 1)[:, 0]
    at = _clusters_at(
        hierarchy.condensed, np.take_along_axis(near, nearest, 1)[:, 0], density
    )
    labels, probabilities, _ = label_rows(
        at, density, choose(hierarchy.condensed, hierarchy.choice)
    )
    return labels, probabilities, ids


def _clusters_at(tree: Condensed, rows: np.ndarray, density: np.ndarray) -> np.ndarray:
    """For each of `rows` (m,), return the smallest cluster that contains it at
    `density` (m,).

    A density is 1 / distance.
    """
    at = tree.row_parent[rows]
    above = np.flatnonzero((tree.row_lambda[rows] > density) & (at > 0))
    while len(above):
        above = above[tree.birth[at[above]] >= density[above]]
        at[above] = tree.parent[at[above]]
        above = above[at[above] > 0]
    return at
