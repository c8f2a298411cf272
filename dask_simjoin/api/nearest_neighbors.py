"""The estimator `NearestNeighbors`, with the interface of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from dask_simjoin.api.joins import join, self_join
from dask_simjoin.api.knn import knn_join
from dask_simjoin.calls.tables import table_of
from dask_simjoin.cluster.local import LocalDistances
from dask_simjoin.cluster.points_estimator import (
    Points,
    PointsEstimator,
    advising_pipelines,
    check_fitted,
)
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.errors import OptionError, UnsupportedFrameError
from dask_simjoin.metrics.distances import Haversine
from dask_simjoin.metrics.norms import Columns, Frame, SparseMatrix
from dask_simjoin.planning.outputs import LISTS
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.options import Box, Method, MetricName, check_whole
from dask_simjoin.request.requests import (
    FittedRowsRequest,
    GraphMode,
    KnnJoinRequest,
)
from dask_simjoin.request.units import (
    check_choice,
    check_distance,
    check_metric,
    parsed,
)
from dask_simjoin.tasks.csr import CONNECTIVITY, MODES, sparse

Found = np.ndarray | tuple[np.ndarray, np.ndarray]
"""Row numbers of neighbors, or distances and row numbers."""


class NearestNeighbors(PointsEstimator):
    """Finds the fitted rows that are nearest to new rows, like
    ``sklearn.neighbors.NearestNeighbors``.

    It accepts arrays, and pandas and cuDF frames in memory, and returns NumPy arrays.
    For Dask DataFrames use the lazy verbs `knn_join` and `join`.

    Parameters
    ----------
    n_neighbors : int, default 5
        Number of neighbors that `kneighbors` returns by default.
    radius : float or str, default 1.0
        Distance that `radius_neighbors` uses by default. It may have a unit, like `eps`
        of `self_join`.
    max_distance : float or str, optional
        Largest distance of a neighbor in `kneighbors`. A row may then have fewer
        neighbors. The conditions below need it there.
    metric, p, on, method
        As in `SimJoinAccessor.self_join`; `on` is for frames only. With "haversine" an
        array has latitudes and longitudes in degrees. Distances are in meters, unless
        `distance_unit` is set. The default metric is "euclidean", and "haversine" for
        longitudes and latitudes of a GeoDataFrame.
    by, within, different, box
        Conditions on a row and its neighbor, as in `SimJoinAccessor.join`. New rows
        need these columns, too. The columns of an array are named 0, 1, 2, and so on.
        With ``within={2: (-1, 0)}``, the third column of a neighbor is at most 1
        smaller than the one of the query.
    distance_unit : str, optional
        Unit of the returned distances, as in `self_join`. Default: the unit in the
        radius or in `max_distance`, such as kilometers for ``radius="2 km"``. If they
        have no unit: the unit of the metric.
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
        Names of the columns of a fitted frame, if all are strings.

    Notes
    -----
    Distances equal the distances that verbs return, in float64. Among rows at equal
    distances, the first one in the fitted table counts as nearest. Each call indexes
    the fitted rows and the queries.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.neighbors import NearestNeighbors
    >>> neighbors = NearestNeighbors(n_neighbors=2, radius=1.0).fit(np.array([[0.0], [1.0], [5.0]]))
    >>> neighbors.kneighbors([[0.4]])
    (array([[0.4, 0.6]]), array([[0, 1]]))
    >>> neighbors.radius_neighbors([[4.5], [9.0]], return_distance=False)
    array([array([2]), array([], dtype=int64)], dtype=object)
    >>> neighbors.kneighbors_graph(n_neighbors=1).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """

    n_samples_fit_: int

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float | str = 1.0,
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
        self.n_neighbors, self.radius = n_neighbors, radius
        self.max_distance, self.metric, self.p = max_distance, metric, p
        self.by, self.within, self.different, self.box = by, within, different, box
        self.on, self.method, self.distance_unit = on, method, distance_unit
        self.algorithm, self.leaf_size, self.n_jobs = algorithm, leaf_size, n_jobs

    def fit(self, X: Points, y: object = None) -> Self:
        """Keep the rows of `X` for later queries.

        Parameters
        ----------
        X : array (n, d), pandas or cuDF DataFrame, or Arrow table
            The rows to search.
        y : ignored
            Present for compatibility with scikit-learn.

        Returns
        -------
        NearestNeighbors
            The estimator itself.
        """
        # conditions do not depend on this distance; each call has its own
        frame, _, request = self._frame(X, FittedRowsRequest, eps=0.0)
        frame = _numbered(frame)
        self._metric = request.metric
        radius = self._distance(self.radius)
        spec = request.spec(example_of(frame))
        # raise errors for invalid rows now; with another `bound`, warnings about `eps`
        # are left to `radius_neighbors`
        with advising_pipelines(self, X):
            limit = spec.limit._replace(eps=radius, option="radius")
            spec = replace(spec, limit=limit)
            LocalDistances([frame], spec).indexed(LISTS)
        self._named = list(spec.named)
        self._columns = list(dict.fromkeys([*spec.named, *spec.conditions]))
        self._fitted = frame[self._columns]
        self.n_samples_fit_ = len(frame)
        return self

    def kneighbors(
        self,
        X: Points = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
    ) -> Found:
        """Return the nearest fitted rows of each row.

        Parameters
        ----------
        X : array (m, d), DataFrame or table, optional
            The queries. Default: the fitted rows; then no row is its own neighbor. A
            frame needs the fitted columns and may have others. An array has these
            columns in the same order. For fitted points, a GeoDataFrame needs points in
            the same coordinate system.
        n_neighbors : int, optional
            Number of neighbors of a row; default: the value of the estimator.
        return_distance : bool, default True
            Whether to return distances too.

        Returns
        -------
        array (m, k) float64, if `return_distance`, and array (m, k) int64
            Distances in ascending order, and the numbers of the fitted rows. A row may
            have fewer than k neighbors, because of `max_distance` or a condition. The
            others then have the distance inf and the number `n_samples_fit_`, as in
            ``scipy.spatial.KDTree.query``.

        Raises
        ------
        OptionError
            There are fewer than `n_neighbors` fitted rows, and `max_distance` is not
            given. `X` does not have as many columns as the fitted rows. The condition
            `by` is given, and `max_distance` is not.
        ColumnError
            `X` lacks a fitted column.
        """
        k = check_whole(
            "n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors, 1
        )
        fitted, queries = self._rows(X)
        available = len(fitted) - (queries is None)
        if k > available and self.max_distance is None:
            raise OptionError(
                f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k}, "
                f"n_samples_fit = {len(fitted)}"
                f"{', and no row is its own neighbor' if queries is None else ''}; use "
                f"at most {available}."
            )
        with advising_pipelines(self, X):
            if queries is None:
                found = knn_join(fitted, k=k, **self._search(KnnJoinRequest))
            else:
                found = knn_join(queries, fitted, k, **self._search(KnnJoinRequest))
        shape = len(fitted if queries is None else queries), k
        rows, distances = _host(found["right"]), _host(found["distance"])
        if len(found) < math.prod(shape):
            at = _host(found["left"]), _host(found["rank"]) - 1
            rows = _placed(rows, at, np.full(shape, len(fitted)))
            distances = _placed(distances, at, np.full(shape, np.inf))
        rows, distances = rows.reshape(shape), distances.reshape(shape)
        return (distances, rows) if return_distance else rows

    def radius_neighbors(
        self,
        X: Points = None,
        radius: float | str | None = None,
        return_distance: bool = True,
        sort_results: bool = False,
    ) -> Found:
        """Return all fitted rows within a distance of each row.

        Parameters
        ----------
        X : array (m, d), DataFrame or table, optional
            The queries. Default: the fitted rows; then no row is its own neighbor.
        radius : float or str, optional
            Largest distance; default: the value of the estimator.
        return_distance : bool, default True
            Whether to return distances too.
        sort_results : bool, default False
            Whether to sort the neighbors of each row by distance, instead of by row
            number.

        Returns
        -------
        array (m,) of float64 arrays, if `return_distance`, and array (m,) of int64
        arrays
            Distances, and the numbers of the fitted rows.

        Raises
        ------
        OptionError
            `X` has another number of columns.
        ColumnError
            `X` lacks a fitted column.
        """
        ends, rows, distances = self._within(X, radius, sort_results)
        found = _ragged(rows, ends)
        return (_ragged(distances, ends), found) if return_distance else found

    def kneighbors_graph(
        self,
        X: Points = None,
        n_neighbors: int | None = None,
        mode: GraphMode = "connectivity",
    ) -> SparseMatrix:
        """Return the result of `kneighbors` as a sparse SciPy matrix (m, n).

        Entries are 1 for ``mode="connectivity"``, and distances for
        ``mode="distance"``.
        """
        check_choice("mode", mode, MODES)
        distances, rows = self.kneighbors(X, n_neighbors)
        there = rows < self.n_samples_fit_
        rows, distances = rows[there], distances[there]
        values = np.ones(len(rows)) if mode == CONNECTIVITY else distances
        ends = np.concatenate([[0], np.cumsum(there.sum(1))])
        return sparse(np).csr_matrix(
            (values, rows, ends), shape=(len(there), self.n_samples_fit_)
        )

    def radius_neighbors_graph(
        self,
        X: Points = None,
        radius: float | str | None = None,
        mode: GraphMode = "connectivity",
        sort_results: bool = False,
    ) -> SparseMatrix:
        """Return the result of `radius_neighbors` as a sparse SciPy matrix (m, n).

        Entries are 1 for ``mode="connectivity"``, and distances for
        ``mode="distance"``.
        """
        check_choice("mode", mode, MODES)
        ends, rows, distances = self._within(X, radius, sort_results)
        values = np.ones(len(rows)) if mode == CONNECTIVITY else distances
        return sparse(np).csr_matrix(
            (values, rows, ends), shape=(len(ends) - 1, self.n_samples_fit_)
        )

    def _search(self, request: Any = FittedRowsRequest) -> dict[str, Any]:
        options = self._options(request) | {
            "on": self._named,
            "metric": self._metric,
        }
        self._adapt(options, "distance_unit" in options)
        return options

    def _adapt(self, options: dict[str, Any], has_unit: bool = False) -> None:
        """Convert the units of distances to the unit of fitted points."""
        if self._points is not None:
            self._points.adapt(options, has_unit)

    def _distance(self, radius: float | str) -> float:
        """Convert a radius to the unit of the metric; raise an error if it is not
        allowed.
        """
        metric, _ = check_metric(self._metric, self.p)
        given: dict[str, Any] = {"radius": radius}
        if self.metric is not None:
            given["metric"] = self.metric
        self._adapt(given)
        return check_distance(given["radius"], metric, "radius")

    def _unit(self, radius: float | str) -> str | None:
        """Return the unit of returned distances; None stands for the unit of the
        metric.
        """
        text = parsed(radius)
        return (
            self.distance_unit
            if text is None or self.distance_unit is not None
            else text[1]
        )

    def _within(
        self, X: Points, radius: float | str | None, by_distance: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the fitted rows within a radius of each of m queries; return (bounds,
        rows, distances).

        The rows of query q are rows[bounds[q] : bounds[q + 1]], and their distances are
        in the same range of `distances`. `bounds` has the shape (m + 1,).
        """
        radius = self.radius if radius is None else radius
        eps: float | str = self._distance(radius)
        if self._metric == Haversine.name and parsed(radius) is not None:
            eps = radius  # a warning about units depends on the text
        fitted, queries = self._rows(X)
        how = self._search() | {"return_distance": True}
        how["distance_unit"] = self._unit(radius)
        self._adapt(how, has_unit=True)
        with advising_pipelines(self, X):
            if queries is None:
                found = self_join(fitted, eps, pairs="both", **how)
            else:
                found = join(queries, fitted, eps, **how)
        left, right, distances = (
            _host(found[name]) for name in ("left", "right", "distance")
        )
        order = np.lexsort((right, distances, left) if by_distance else (right, left))
        number = len(fitted if queries is None else queries)
        return (
            np.searchsorted(left[order], np.arange(number + 1)),
            right[order],
            distances[order],
        )

    def _rows(self, X: Points) -> tuple[Frame, Frame | None]:
        """Return the fitted rows and the queries. The queries are None if the fitted
        rows are the queries.
        """
        check_fitted(self, "_fitted")
        if X is None:
            return self._fitted, None
        return self._fitted, _numbered(self._queries(X, self._columns))


def _numbered(frame: Frame) -> Frame:
    """Return a frame with row numbers as its index."""
    lazy = UnsupportedFrameError(
        "Estimators of neighbors need rows in memory. For Dask DataFrames use "
        "frame.simjoin.knn_join(other, k) or frame.simjoin.join(other, eps), which "
        "are lazy, or "
        "compute() the rows first."
    )
    return table_of(frame).in_memory(lazy).reset_index(drop=True)


def _host(column: Any) -> np.ndarray:
    """Return a column as a writable NumPy array."""
    return np.require(to_host(values_of(column)), requirements="W")


def _placed(
    values: np.ndarray, at: tuple[np.ndarray, np.ndarray], fill: np.ndarray
) -> np.ndarray:
    """Return `fill` with values at some of its places."""
    fill[at] = values
    return fill


def _ragged(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Split values at `ends` into an object array of arrays."""
    out = np.empty(len(ends) - 1, object)
    out[:] = np.split(values, ends[1:-1]) if len(out) > 1 else [values]
    return out
