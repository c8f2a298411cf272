"""Clusterings as scikit-learn estimators."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import numpy as np
import pandas as pd
from dask.base import is_dask_collection

from dask_simjoin.cluster import verbs
from dask_simjoin.cluster.hierarchy import cluster_optics_dbscan, cluster_optics_xi, hdbscan
from dask_simjoin.cluster.verbs import checked_weights, kept_points
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.graph.inputs import as_frame, is_dask_array
from dask_simjoin.metrics.norms import Columns, Frame, Series
from dask_simjoin.request import requests
from dask_simjoin.request.clusters import HdbscanRequest, Selection
from dask_simjoin.request.inputs import example_of, is_frame
from dask_simjoin.request.options import Method, MetricName, Partitioning, Size
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.request.units import check_choice, check_eps

try:
    from sklearn.base import BaseEstimator, ClusterMixin
    from sklearn.exceptions import NotFittedError
except ImportError:  # it is optional: the same, but for what needs its tools

    class BaseEstimator:  # type: ignore[no-redef]
        """Parameters by name."""

        @classmethod
        def _get_param_names(cls) -> list[str]:
            return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """The parameters by name; `deep` changes nothing."""
            return {name: getattr(self, name) for name in self._get_param_names()}

        def set_params(self, **parameters: Any) -> Any:
            """Set parameters by name; unknown ones are an error."""
            names = self._get_param_names()
            for name in parameters:
                if name not in names:
                    raise ValueError(
                        f"Invalid parameter {name!r} for estimator {self!r}. Valid parameters are: {names!r}."
                    )
            vars(self).update(parameters)
            return self

        def __repr__(self) -> str:
            every = inspect.signature(type(self).__init__).parameters
            given = [(name, getattr(self, name)) for name in every if name != "self"]
            changed = (f"{name}={value!r}" for name, value in given if value != every[name].default)
            return f"{type(self).__name__}({', '.join(changed)})"

    class NotFittedError(ValueError, AttributeError):  # type: ignore[no-redef]
        """Raised by methods of an estimator that is not fitted."""

    class ClusterMixin:  # type: ignore[no-redef]
        """`fit_predict`."""

        def fit_predict(self, X: Any, y: object = None, **options: Any) -> Any:
            """`fit`, and the labels."""
            return self.fit(X, **options).labels_  # type: ignore[attr-defined]


__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "OPTICS",
    "BaseEstimator",
    "ClusterMixin",
    "NotFittedError",
    "PointsEstimator",
    "cluster_optics_dbscan",
    "cluster_optics_xi",
    "frame_like",
    "points_frame",
]

NOTHING = "Found array with 0 {what} (shape={shape}) while a minimum of 1 is required."
"""In the words that scikit-learn looks for."""

Points = Any
"""An array (n, d) of NumPy or Dask, or a data frame: lazy, or a plain one."""

Labels = Any
"""An array (n,) of NumPy or Dask, or a Series, as the points are."""


class PointsEstimator(BaseEstimator):
    """Estimators of rows of arrays and of frames.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the points that it was fitted to.
    feature_names_in_ : array of str
        Their names, of a frame whose columns all have such.
    """

    n_features_in_: int
    feature_names_in_: np.ndarray

    def _options(self, request: Any) -> dict[str, Any]:
        """The parameters that are options of a request."""
        known = inspect.signature(request).parameters
        return {name: value for name, value in self.get_params().items() if name in known}

    def _frame(self, X: Points, request: Any) -> Frame:
        """Make a frame from the points to fit; `request`: of this fit."""
        frame = points_frame(X)
        spec: JoinSpec = request.spec(example_of(frame))
        self.n_features_in_ = len(spec.on)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if frame_like(X) and all(isinstance(name, str) for name in spec.on):
            self.feature_names_in_ = np.array(spec.on, object)
        return frame

    def _as_given(self, column: Series, X: Points) -> Labels:
        """Return a column of a result in the form of `X`: an array for an array, a Series for a frame."""
        if is_dask_array(X):
            known = not getattr(self, "dropna", False)
            return column.to_dask_array(lengths=X.chunks[0] if known else None)
        return column if frame_like(X) else to_host(values_of(column))


def frame_like(X: Points) -> bool:
    """Return whether points are a frame or a table with named columns, and not an array."""
    return is_frame(X) or hasattr(X, "__arrow_c_stream__")


def points_frame(X: Points) -> Frame:
    """Make a frame of points; refuse anything else, in words that scikit-learn's checks expect."""
    if frame_like(X):
        return _with_rows(as_frame(X, "X"))
    if hasattr(X, "tocsr"):
        raise OptionTypeError("X is sparse data, and dense data is required; use X.toarray().")
    if is_dask_array(X):
        import dask.dataframe as dd

        return dd.from_dask_array(_checked(X).rechunk({1: -1}))
    return pd.DataFrame(_checked(np.asarray(X)))


def _checked(x: Any) -> Any:
    if x.ndim != 2:
        raise OptionError(
            f"X of shape {x.shape} is not allowed; use a dense array (n, d) of NumPy or Dask, or a "
            "DataFrame. Reshape your data with X.reshape(-1, 1), of one column, or X.reshape(1, -1)."
        )
    if x.dtype.kind == "c":
        raise OptionError("Complex data not supported: X is of dtype complex; use its real numbers.")
    for size, what in ((x.shape[0], "sample(s)"), (x.shape[1], "feature(s)")):
        if size == 0:
            raise OptionError(NOTHING.format(what=what, shape=x.shape))
    return x.astype(np.float64) if x.dtype.kind == "O" else x


def _with_rows(frame: Frame) -> Frame:
    if not is_dask_collection(frame) and not len(frame):
        raise OptionError(NOTHING.format(what="sample(s)", shape=frame.shape))
    return frame


class DBSCAN(ClusterMixin, PointsEstimator):
    """Clusters of rows by density, with the labels of ``sklearn.cluster.DBSCAN(algorithm="kd_tree")``.

    Parameters
    ----------
    eps : float
        Largest distance of neighbors.
    min_samples : int
        Core rows have at least this many rows within `eps`, themselves included.
    on, metric, p, dropna, method, partitioning, blocksize
        As in `SimJoinAccessor.dbscan`. `on` is for frames.  For "haversine", an array has
        latitudes and longitudes in degrees, and `eps` is in meters.

    Attributes
    ----------
    labels_ : array or Series (n,), int64
        After `fit`: the number of each row's cluster, or -1. It is an array for an array, and a Series as
        from `SimJoinAccessor.dbscan` for a frame. For Dask it is lazy, and `fit` computes nothing.
    core_sample_indices_ : array (k,), int64
        The numbers of core rows, counted among labeled rows. Not available for Dask's, which stay lazy.
    components_ : array (k, d), or DataFrame as `X`
        Copies of the core rows.
    n_features_in_ : int
    feature_names_in_ : array of str
        Their names, for a frame whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.cluster import DBSCAN
    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0]])
    >>> DBSCAN(eps=1.0, min_samples=2).fit_predict(x)
    array([ 0,  0,  0, -1])
    """

    def __init__(
        self,
        eps: float = 0.5,
        *,
        min_samples: int = 5,
        metric: MetricName = "euclidean",
        p: float = 2,
        on: Columns = None,
        dropna: bool = False,
        method: Method = "auto",
        partitioning: Partitioning = "auto",
        blocksize: Size = None,
    ) -> None:
        self.eps, self.min_samples, self.metric, self.p, self.on = eps, min_samples, metric, p, on
        self.dropna, self.method, self.partitioning, self.blocksize = dropna, method, partitioning, blocksize

    def fit(self, X: Points, y: object = None, sample_weight: Any = None) -> DBSCAN:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array (n, d) of NumPy or Dask, a DataFrame of Dask, pandas or cuDF, or a table of Arrow
        y : ignored
        sample_weight : array (n,), optional
            The weight of each row: a row is a core row if the weights within `eps`, its own included, add up
            to at least `min_samples`. Negative weights may keep rows from being core rows. Weights are for
            arrays and frames in memory only. They are summed as integer multiples of a power of two, so that
            the sum does not depend on the order. It is exact if weights span up to about 40 bits.
        """
        request = requests.DbscanRequest(**self._options(requests.DbscanRequest))
        frame = self._frame(X, request)
        if is_dask_collection(frame):
            if sample_weight is not None:
                raise OptionTypeError(
                    "sample_weight= is of arrays and frames in memory; compute() the rows first."
                )
            self.labels_ = self._as_given(verbs.dbscan(frame, **self._options(requests.DbscanRequest)), X)
            return self
        labels, core = verbs.labels_and_cores(frame, request, checked_weights(sample_weight, len(frame)))
        self.labels_ = self._as_given(labels, X)
        self.core_sample_indices_ = np.flatnonzero(to_host(core))
        rows = kept_points(frame, request)
        some = rows.iloc[self.core_sample_indices_]
        self.components_ = some if frame_like(X) else some.to_numpy()
        return self


class OPTICS(ClusterMixin, PointsEstimator):
    """Rows in the order of ``sklearn.cluster.OPTICS(algorithm="kd_tree")``, and clusters from it.

    Parameters
    ----------
    max_eps : float
        Largest distance of neighbours, finite: scikit-learn's default, infinity, would keep all pairs.
    min_samples : int
        A row with at least so many rows within `max_eps`, itself included, is a core row.
    cluster_method : {"xi", "dbscan"}
        How labels are found: see `cluster_optics_xi`, which needs scikit-learn, and `cluster_optics_dbscan`.
    eps : float, optional
        Of "dbscan", at most `max_eps`, which is the default.
    xi, min_cluster_size, predecessor_correction
        Of "xi".
    mode : {"edges", "forest"}
        As in `SimJoinAccessor.optics`: exactly scikit-learn's order, of the Euclidean metric, or one that
        needs less memory, of any.
    on, metric, p, dropna, method, partitioning, blocksize
        As in `SimJoinAccessor.optics`; `on` is for frames.

    Attributes
    ----------
    optics_ : DataFrame
        After `fit`, what `SimJoinAccessor.optics` gives: lazy for a Dask DataFrame or array.
    labels_, reachability_, core_distances_, predecessor_ : array or Series (n,)
        In the order of the rows; lazy where `X` is.
    ordering_ : array (n,), int64
        The rows in order. Not of a Dask array or DataFrame: ``optics_["ordering"]`` has their places in it.
    n_features_in_ : int
    feature_names_in_ : array of str
        Their names, for a frame whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.cluster import OPTICS
    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0]])
    >>> found = OPTICS(max_eps=5.0, min_samples=2, cluster_method="dbscan").fit(x)
    >>> found.ordering_, found.reachability_, found.labels_
    (array([0, 1, 2, 3]), array([inf,  1.,  1., inf]), array([ 0,  0,  0, -1]))
    """

    def __init__(
        self,
        max_eps: float = 0.5,
        *,
        min_samples: int = 5,
        cluster_method: Literal["xi", "dbscan"] = "xi",
        eps: float | None = None,
        xi: float = 0.05,
        min_cluster_size: float | None = None,
        predecessor_correction: bool = True,
        mode: requests.OrderMode = "edges",
        metric: MetricName = "euclidean",
        p: float = 2,
        on: Columns = None,
        dropna: bool = False,
        method: Method = "auto",
        partitioning: Partitioning = "auto",
        blocksize: Size = None,
    ) -> None:
        self.max_eps, self.min_samples, self.cluster_method, self.eps = (
            max_eps,
            min_samples,
            cluster_method,
            eps,
        )
        self.xi, self.min_cluster_size, self.mode = xi, min_cluster_size, mode
        self.metric, self.p = metric, p
        self.predecessor_correction, self.on, self.dropna = predecessor_correction, on, dropna
        self.method, self.partitioning, self.blocksize = method, partitioning, blocksize

    def fit(self, X: Points, y: object = None) -> OPTICS:
        """Put the rows of `X` in order, and cluster them.

        Parameters
        ----------
        X : array (n, d) of NumPy or Dask, or a DataFrame of Dask, pandas or cuDF
        y : ignored
        """
        check_choice("cluster_method", self.cluster_method, ("xi", "dbscan"))
        max_eps = check_eps(self.max_eps, "max_eps")
        eps = max_eps if self.eps is None or self.cluster_method != "dbscan" else check_eps(self.eps, "eps")
        if eps > max_eps:
            raise OptionError(f"eps={self.eps!r} is not allowed; use at most max_eps={self.max_eps!r}.")
        options = self._options(requests.OpticsRequest)
        found = verbs.optics(self._frame(X, requests.OpticsRequest(**options)), **options)
        self.optics_ = found
        if self.cluster_method == "dbscan":
            labels = cluster_optics_dbscan(found, eps)
        else:
            labels = cluster_optics_xi(
                found, self.min_samples, xi=self.xi, min_cluster_size=self.min_cluster_size,
                predecessor_correction=self.predecessor_correction,
            )  # fmt: skip
        self.labels_ = self._as_given(labels, X)
        self.reachability_ = self._as_given(found["reachability"], X)
        self.core_distances_ = self._as_given(found["core_distance"], X)
        self.predecessor_ = self._as_given(found["predecessor"], X)
        if not is_dask_collection(found):
            self.ordering_ = np.argsort(to_host(values_of(found["ordering"])))
        return self


class HDBSCAN(ClusterMixin, PointsEstimator):
    """Clusters of rows by density, each at distances of its own; see `SimJoinAccessor.hdbscan`.

    Parameters
    ----------
    min_cluster_size : int
        How many rows a cluster has at least; at least 2.
    min_samples : int, optional
        A row's core distance is that of the nearest so many rows, itself included. By default
        `min_cluster_size`.
    cluster_selection_method : {"eom", "leaf"}
        Whether clusters are those of the largest total stability, or the smallest ones.
    cluster_selection_epsilon : float
        Clusters are not split at distances below this.
    max_cluster_size : int, optional
        Larger clusters are not chosen by "eom".
    allow_single_cluster : bool
        Whether all rows may be one cluster.
    on, metric, p, dropna, partitioning, blocksize
        As in `SimJoinAccessor.hdbscan`; `on` is for frames.  Of "haversine" an array has latitudes and
        longitudes in degrees, and distances are in metres.

    Attributes
    ----------
    hdbscan_ : DataFrame
        After `fit`, what `SimJoinAccessor.hdbscan` gives: lazy for a Dask DataFrame or array.
    labels_, probabilities_, outlier_scores_ : array or Series (n,)
        Its columns, in the manner of `X`: a NumPy array of a NumPy array, lazy and a Dask array of a Dask
        array, else a Series.
    n_features_in_ : int
    feature_names_in_ : array of str
        Their names, for a frame whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.cluster import HDBSCAN
    >>> x = np.array([[0.0], [1.0], [2.5], [40.0], [41.0], [42.5], [90.0]])
    >>> HDBSCAN(3, min_samples=2).fit_predict(x)
    array([ 0,  0,  0,  1,  1,  1, -1])
    """

    def __init__(
        self,
        min_cluster_size: int = 5,
        *,
        min_samples: int | None = None,
        cluster_selection_method: Selection = "eom",
        cluster_selection_epsilon: float = 0.0,
        max_cluster_size: int | None = None,
        allow_single_cluster: bool = False,
        metric: MetricName = "euclidean",
        p: float = 2,
        on: Columns = None,
        dropna: bool = False,
        partitioning: Partitioning = "auto",
        blocksize: Size = None,
    ) -> None:
        self.min_cluster_size, self.min_samples = min_cluster_size, min_samples
        self.cluster_selection_method = cluster_selection_method
        self.cluster_selection_epsilon = cluster_selection_epsilon
        self.max_cluster_size, self.allow_single_cluster = max_cluster_size, allow_single_cluster
        self.metric, self.p, self.on, self.dropna = metric, p, on, dropna
        self.partitioning, self.blocksize = partitioning, blocksize

    def fit(self, X: Points, y: object = None) -> HDBSCAN:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array (n, d) of NumPy or Dask, or a DataFrame of Dask or pandas
        y : ignored
        """
        options = self._options(HdbscanRequest)
        found = hdbscan(self._frame(X, HdbscanRequest(**options)), **options)
        self.hdbscan_ = found
        self.labels_ = self._as_given(found["label"], X)
        self.probabilities_ = self._as_given(found["probability"], X)
        self.outlier_scores_ = self._as_given(found["outlier_score"], X)
        return self
