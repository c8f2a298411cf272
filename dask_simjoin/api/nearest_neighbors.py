"""Give neighbours of new rows as an estimator in the manner of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.api.joins import join, self_join
from dask_simjoin.api.knn import knn_join
from dask_simjoin.cluster.estimators import NotFittedError, Points, PointsEstimator, frame_like, points_frame
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.errors import ColumnError, OptionError, UnsupportedFrameError
from dask_simjoin.metrics.norms import Columns, Frame, SparseMatrix
from dask_simjoin.planning.outputs import LISTS
from dask_simjoin.request.columns import has_column
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.messages import listed
from dask_simjoin.request.options import Method, MetricName
from dask_simjoin.request.requests import GraphMode, KnnJoinRequest, NeighborGraphRequest
from dask_simjoin.request.units import check_choice, check_eps, check_metric, check_whole, without_unit
from dask_simjoin.tasks.chunks import whole_chunk
from dask_simjoin.tasks.csr import CONNECTIVITY, MODES, sparse

Found = np.ndarray | tuple[np.ndarray, np.ndarray]
"""Numbers of rows; or distances, and these."""


class NearestNeighbors(PointsEstimator):
    """Neighbours of rows among those that it was fitted to, as ``sklearn.neighbors.NearestNeighbors``.

    For arrays and frames that lie in memory, of pandas or cuDF; results are arrays of NumPy. Of Dask
    DataFrames use the verbs `knn_join` and `join`, which are lazy.

    Parameters
    ----------
    n_neighbors : int
        How many `kneighbors` finds, unless it is told.
    radius : float or text
        Within which `radius_neighbors` finds all, unless it is told; see `eps` of `self_join` for units.
    metric, p, on, method
        As in `SimJoinAccessor.self_join`; `on` is for frames. Of "haversine" an array has latitudes and
        longitudes in degrees, and distances are metres.

    Attributes
    ----------
    n_samples_fit_ : int
    n_features_in_ : int
    feature_names_in_ : array of str
        Of a frame whose columns have strings for names.

    Notes
    -----
    Distances are those of the verbs, decided in float64. Of rows at the same distance those that come first
    are nearer. Rows of queries and of what it was fitted to are indexed at each call.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.neighbors import NearestNeighbors
    >>> found = NearestNeighbors(n_neighbors=2, radius=1.0).fit(np.array([[0.0], [1.0], [5.0]]))
    >>> found.kneighbors([[0.4]])
    (array([[0.4, 0.6]]), array([[0, 1]]))
    >>> found.radius_neighbors([[4.5], [9.0]], return_distance=False)
    array([array([2]), array([], dtype=int64)], dtype=object)
    >>> found.kneighbors_graph(n_neighbors=1).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float | str = 1.0,
        metric: MetricName = "euclidean",
        p: float = 2,
        on: Columns = None,
        method: Method = "auto",
    ) -> None:
        self.n_neighbors, self.radius, self.metric, self.p = n_neighbors, radius, metric, p
        self.on, self.method = on, method

    def fit(self, X: Points, y: object = None) -> NearestNeighbors:
        """Keep the rows of `X`.

        Parameters
        ----------
        X : array (n, d), DataFrame of pandas or cuDF, or table of Arrow
        y : ignored
        """
        asked = NeighborGraphRequest(eps=self._far(self.radius), **self._options(NeighborGraphRequest))
        frame = _numbered(self._frame(X, asked))
        spec = asked.spec(example_of(frame))
        whole_chunk(frame, spec, LISTS)  # so that rows that cannot be joined are refused now
        self._fitted, self._columns = frame, list(spec.on)
        self.n_samples_fit_ = len(frame)
        return self

    def kneighbors(self, X: Points = None, n_neighbors: int | None = None,
                   return_distance: bool = True) -> Found:  # fmt: skip
        """The nearest rows of each row.

        Parameters
        ----------
        X : array (m, d), DataFrame or table, optional
            Default: the rows that it was fitted to, of which none is its own neighbour. A frame has the
            columns that it was fitted to, and may have others; an array has them in that order.
        n_neighbors : int, optional
        return_distance : bool

        Returns
        -------
        array (m, k) float64, if asked for, and array (m, k) int64
            Distances, the smallest first; the numbers of the rows.
        """
        k = check_whole("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors, 1)
        fitted, queries = self._rows(X)
        there = len(fitted) - (queries is None)
        if k > there:
            raise OptionError(
                f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k}, n_samples_fit = {len(fitted)}"
                f"{', where no row is its own neighbour' if queries is None else ''}; use at most {there}."
            )
        if queries is None:
            found = knn_join(fitted, k=k, **self._search(KnnJoinRequest))
        else:
            found = knn_join(queries, fitted, k, **self._search(KnnJoinRequest))
        shape = len(fitted if queries is None else queries), k
        rows = _host(found["right"]).reshape(shape)
        return (_host(found["distance"]).reshape(shape), rows) if return_distance else rows

    def radius_neighbors(self, X: Points = None, radius: float | str | None = None,
                         return_distance: bool = True, sort_results: bool = False) -> Found:  # fmt: skip
        """All rows within a distance of each row.

        Parameters
        ----------
        X : array (m, d), DataFrame or table, optional
            Default: the rows that it was fitted to, of which none is its own neighbour.
        radius : float or text, optional
        return_distance : bool
        sort_results : bool
            Whether each row's neighbours are in the order of their distances, and not of their numbers.

        Returns
        -------
        array (m,) of arrays float64, if asked for, and array (m,) of arrays int64
            Distances, and the numbers of the rows.
        """
        rows, left, right, away = self._within(X, radius)
        order = np.lexsort((right, away, left) if sort_results else (right, left))
        ends = np.searchsorted(left[order], np.arange(rows + 1))
        each = [_ragged(values[order], ends) for values in (away, right)]
        return (each[0], each[1]) if return_distance else each[1]

    def kneighbors_graph(self, X: Points = None, n_neighbors: int | None = None,
                         mode: GraphMode = "connectivity") -> SparseMatrix:  # fmt: skip
        """`kneighbors` as a sparse matrix (m, n) of SciPy: of ones, or of distances as `mode` says."""
        check_choice("mode", mode, MODES)
        away, rows = self.kneighbors(X, n_neighbors)
        values = np.ones(rows.size) if mode == CONNECTIVITY else away.ravel()
        ends = np.arange(0, rows.size + 1, rows.shape[1])
        return sparse(np).csr_matrix((values, rows.ravel(), ends), shape=(len(rows), self.n_samples_fit_))

    def radius_neighbors_graph(self, X: Points = None, radius: float | str | None = None,
                               mode: GraphMode = "connectivity",
                               sort_results: bool = False) -> SparseMatrix:  # fmt: skip
        """`radius_neighbors` as a sparse matrix (m, n) of SciPy: of ones, or of distances as `mode` says."""
        check_choice("mode", mode, MODES)
        rows, left, right, away = self._within(X, radius)
        order = np.lexsort((right, away, left) if sort_results else (right, left))
        ends = np.searchsorted(left[order], np.arange(rows + 1))
        values = np.ones(len(order)) if mode == CONNECTIVITY else away[order]
        return sparse(np).csr_matrix((values, right[order], ends), shape=(rows, self.n_samples_fit_))

    def _search(self, request: Any = NeighborGraphRequest) -> dict[str, Any]:
        return self._options(request) | {"on": self._columns}

    def _far(self, radius: float | str) -> float:
        """A radius as a distance of the metric; refuses what is none."""
        metric, _ = check_metric(self.metric, self.p)
        return check_eps(without_unit(radius, metric, "radius"), "radius")

    def _within(
        self, X: Points, radius: float | str | None
    ) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """How many rows there are, and pairs of them with rows that it was fitted to, and their distances."""
        eps = self._far(self.radius if radius is None else radius)
        fitted, queries = self._rows(X)
        how = self._search() | {"return_distance": True}
        if queries is None:
            found = self_join(fitted, eps, pairs="both", **how)
        else:
            found = join(queries, fitted, eps, **how)
        left, right, away = (_host(found[name]) for name in ("left", "right", "distance"))
        return len(fitted if queries is None else queries), left, right, away

    def _rows(self, X: Points) -> tuple[Frame, Frame | None]:
        """The rows that it was fitted to, and those whose neighbours are sought; None: the same."""
        if not hasattr(self, "_fitted"):
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet; call fit(X) first.")
        if X is None:
            return self._fitted, None
        frame, name = _numbered(points_frame(X)), type(self).__name__
        if frame_like(X):
            missing = [one for one in self._columns if not has_column(frame.columns, one)]
            if missing:
                raise ColumnError(
                    f"X has no columns {listed(missing)}, and {name} was fitted to {listed(self._columns)} "
                    "(those of an array are numbered); use a frame that has them, or an array, X.to_numpy()."
                )
        elif frame.shape[1] != self.n_features_in_:
            raise OptionError(
                f"X has {frame.shape[1]} features, but {name} is expecting "
                f"{self.n_features_in_} features as input."
            )
        else:
            frame.columns = self._columns
        return self._fitted, frame


def _numbered(frame: Frame) -> Frame:
    """A frame whose labels are its rows' numbers."""
    if is_dask_collection(frame):
        raise UnsupportedFrameError(
            "NearestNeighbors is of rows in memory; of Dask's use frame.simjoin.knn_join(other, k) and "
            "frame.simjoin.join(other, eps), which are lazy, or compute() the rows first."
        )
    return frame.reset_index(drop=True)


def _host(column: Any) -> np.ndarray:
    return to_host(values_of(column))


def _ragged(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Arrays of the values between ends that follow each other, as an array of objects."""
    out = np.empty(len(ends) - 1, object)
    out[:] = np.split(values, ends[1:-1]) if len(out) > 1 else [values]
    return out
