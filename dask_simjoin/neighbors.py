"""Estimators of neighbors with the interface of scikit-learn: `NearestNeighbors` and
two transformers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Self

from dask_simjoin.api.nearest_neighbors import NearestNeighbors
from dask_simjoin.cluster.points_estimator import (
    ClassNamePrefixFeaturesOutMixin,
    Points,
    TransformerMixin,
    check_fitted,
)
from dask_simjoin.metrics.norms import Columns, SparseMatrix
from dask_simjoin.request.options import Box, Method, MetricName, check_whole
from dask_simjoin.request.requests import GraphMode
from dask_simjoin.request.units import check_choice
from dask_simjoin.tasks.csr import MODES

__all__ = ["KNeighborsTransformer", "NearestNeighbors", "RadiusNeighborsTransformer"]

DISTANCE = "distance"
"""The mode that gives matrices of distances."""


class NeighborsTransformer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, NearestNeighbors
):
    """Base of both transformers. It checks `mode`, and has one output column per fitted
    row.
    """

    mode: GraphMode

    def fit(self, X: Points, y: object = None) -> Self:
        """Store the rows of `X`: see `NearestNeighbors.fit`."""
        check_choice("mode", self.mode, MODES)
        super().fit(X)
        self._n_features_out = self.n_samples_fit_
        return self


class KNeighborsTransformer(NeighborsTransformer):
    """Returns a sparse matrix of the nearest fitted rows, like
    ``sklearn.neighbors.KNeighborsTransformer``.

    Estimators with ``metric="precomputed"`` take these matrices, for example
    ``sklearn.manifold.TSNE``.

    Parameters
    ----------
    mode : {"distance", "connectivity"}, default "distance"
        Entries of the matrix: distances, or 1.
    n_neighbors : int, default 5
        Number of neighbors of a row. With ``mode="distance"``, the matrix has one more
        neighbor per row, as in scikit-learn, because a fitted row is usually its own
        nearest neighbor. With many copies of a row, the first copies are chosen.
    max_distance, metric, p, on, by, within, different, box, method
        As in `NearestNeighbors`.
    distance_unit : str, optional
        Unit of the distances in the matrix, as in `self_join`. Default: the unit of the
        metric.
    algorithm, leaf_size
        Accepted for compatibility with scikit-learn, and ignored.
    n_jobs : int, optional
        Number of threads; -1 means all cores, and -2 all but one. Default: as
        `threads` of `self_join`.

    Attributes
    ----------
    n_samples_fit_ : int
        Number of fitted rows.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns of a fitted frame, if they are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.neighbors import KNeighborsTransformer
    >>> x = np.array([[0.0], [1.0], [5.0]])
    >>> KNeighborsTransformer(n_neighbors=1).fit_transform(x).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 4.0, 0.0]]
    """

    def __init__(
        self,
        *,
        mode: GraphMode = "distance",
        n_neighbors: int = 5,
        max_distance: float | str | None = None,
        metric: MetricName | None = None,
        p: float = 2,
        on: Columns = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        box: Box = None,
        method: Method = "auto",
        distance_unit: str | None = None,
        algorithm: str = "auto",
        leaf_size: int = 30,
        n_jobs: int | None = None,
    ) -> None:
        self.mode, self.n_neighbors = mode, n_neighbors
        self.max_distance = max_distance
        self.metric, self.p, self.on, self.method = metric, p, on, method
        self.by, self.within, self.different, self.box = by, within, different, box
        self.distance_unit = distance_unit
        self.algorithm, self.leaf_size, self.n_jobs = algorithm, leaf_size, n_jobs

    radius = 1.0
    """Default of `radius_neighbors`; not a parameter of this estimator."""

    def transform(self, X: Points) -> SparseMatrix:
        """Return the nearest fitted rows of each row of `X`.

        Parameters
        ----------
        X : array (m, d), DataFrame or table
            The rows; a fitted row is among its own neighbors, unless
            enough earlier rows equal it.

        Returns
        -------
        csr_matrix (m, n)
            Each row has its neighbors in ascending order of distance, fewer if
            `max_distance` excludes some. Distances of 0 are stored.
        """
        check_fitted(self, "n_samples_fit_")
        k = check_whole("n_neighbors", self.n_neighbors, 1) + (self.mode == DISTANCE)
        return self.kneighbors_graph(X, k, mode=self.mode)


class RadiusNeighborsTransformer(NeighborsTransformer):
    """Returns a sparse matrix of near fitted rows, like
    ``sklearn.neighbors.RadiusNeighborsTransformer``.

    Estimators with ``metric="precomputed"`` take these matrices, for example
    ``sklearn.cluster.DBSCAN``.

    Parameters
    ----------
    mode : {"distance", "connectivity"}, default "distance"
        Entries of the matrix: distances, or 1.
    radius : float or str, default 1.0
        Largest distance of a neighbor. It may have a unit, like `eps` of `self_join`.
    metric, p, on, by, within, different, box, method
        As in `NearestNeighbors`.
    distance_unit : str, optional
        Unit of the distances in the matrix, as in `self_join`. Default: the unit in
        `radius`, or the unit of the metric.
    algorithm, leaf_size
        Accepted for compatibility with scikit-learn, and ignored.
    n_jobs : int, optional
        Number of threads; -1 means all cores, and -2 all but one. Default: as
        `threads` of `self_join`.

    Attributes
    ----------
    n_samples_fit_ : int
        Number of fitted rows.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns of a fitted frame, if they are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.neighbors import RadiusNeighborsTransformer
    >>> x = np.array([[0.0], [1.0], [5.0]])
    >>> made = RadiusNeighborsTransformer(radius=2.0, mode="connectivity").fit(x)
    >>> made.transform([[0.5], [6.0]]).toarray().tolist()
    [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        *,
        mode: GraphMode = "distance",
        radius: float | str = 1.0,
        metric: MetricName | None = None,
        p: float = 2,
        on: Columns = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        box: Box = None,
        method: Method = "auto",
        distance_unit: str | None = None,
        algorithm: str = "auto",
        leaf_size: int = 30,
        n_jobs: int | None = None,
    ) -> None:
        self.mode, self.radius = mode, radius
        self.metric, self.p, self.on, self.method = metric, p, on, method
        self.by, self.within, self.different, self.box = by, within, different, box
        self.distance_unit = distance_unit
        self.algorithm, self.leaf_size, self.n_jobs = algorithm, leaf_size, n_jobs

    n_neighbors = 5
    """Default of `kneighbors`; not a parameter of this estimator."""

    max_distance = None
    """Neighbors of `kneighbors` may be at any distance."""

    def transform(self, X: Points) -> SparseMatrix:
        """Return all fitted rows within the radius of each row of `X`.

        Parameters
        ----------
        X : array (m, d), DataFrame or table
            The rows; a fitted row is its own neighbor.

        Returns
        -------
        csr_matrix (m, n)
            Each row has its neighbors in ascending order of distance. Distances of 0
            are stored.
        """
        check_fitted(self, "n_samples_fit_")
        return self.radius_neighbors_graph(X, mode=self.mode, sort_results=True)
