"""The estimators `DBSCAN` and `OPTICS`, with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster import verbs
from dask_simjoin.cluster.algorithms.edges import rows_of_places
from dask_simjoin.cluster.estimator_base import Clustering, Labels, Points, frame_like
from dask_simjoin.cluster.hierarchy import cluster_optics_dbscan, cluster_optics_xi
from dask_simjoin.cluster.verbs import checked_weights, kept_points
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.norms import Columns, Frame
from dask_simjoin.request import clusters
from dask_simjoin.request.options import Method, MetricName, Partitioning, Size
from dask_simjoin.request.units import check_choice, check_eps


class DBSCAN(Clustering):
    """Clusters rows by density, with the same labels as ``sklearn.cluster.DBSCAN(algorithm="kd_tree")``.

    Parameters
    ----------
    eps : float
        Largest distance of neighbors.
    min_samples : int
        A row is a core row if at least this many rows are within `eps`, counting the row itself.
    on, metric, p, dropna, method, partitioning, blocksize
        As in `SimJoinAccessor.dbscan`. `on` is for frames only. For "haversine", an array has latitudes and
        longitudes in degrees, and `eps` is in meters.
    algorithm, leaf_size, n_jobs
        Accepted for compatibility with scikit-learn, and ignored.

    Attributes
    ----------
    labels_ : array or Series (n,), int64
        After `fit`: the number of each row's cluster, or -1. It is an array if `X` is an array. For a frame,
        it is the Series of `SimJoinAccessor.dbscan`. For Dask data it is lazy, and `fit` computes no labels.
    core_sample_indices_ : array (k,), int64
        The positions of core rows among the rows that have labels. Not available for Dask data, which stay
        lazy.
    components_ : array (k, d), or DataFrame if `X` is one
        Copies of the core rows. Not available for Dask data.
    n_features_in_ : int
    feature_names_in_ : array of str
        Names of the columns, for a frame whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.cluster import DBSCAN
    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0]])
    >>> DBSCAN(eps=1.0, min_samples=2).fit_predict(x)
    array([ 0,  0,  0, -1])
    """

    core_sample_indices_: np.ndarray
    components_: Any

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
        algorithm: str = "auto",
        leaf_size: int = 30,
        n_jobs: int | None = None,
    ) -> None:
        self.eps, self.min_samples, self.metric, self.p, self.on = eps, min_samples, metric, p, on
        self.dropna, self.method, self.partitioning, self.blocksize = dropna, method, partitioning, blocksize
        self.algorithm, self.leaf_size, self.n_jobs = algorithm, leaf_size, n_jobs

    def fit(self, X: Points, y: object = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array (n, d) of NumPy or Dask, a DataFrame of Dask, pandas or cuDF, or a table of Arrow
        y : ignored
        sample_weight : array (n,), optional
            The weight of each row. A row is a core row if its own weight and the weights of the other rows
            within `eps` add up to at least `min_samples`. Weights may be negative. `X` must be in memory.
            Weights are summed as integer multiples of a power of two, so that sums do not depend on the
            order. Sums are exact if weights span up to about 40 bits.
        """
        request = clusters.DbscanRequest(**self._options(clusters.DbscanRequest))
        frame = self._frame(X, request)
        if is_dask_collection(frame):
            if sample_weight is not None:
                raise OptionTypeError(
                    "sample_weight= needs arrays or frames in memory; compute() the rows first."
                )
            self.labels_ = self._as_given(verbs.dbscan(frame, **self._options(clusters.DbscanRequest)), X)
            return self
        weights = checked_weights(sample_weight, len(frame))
        labels, core, order = verbs.labels_and_cores(frame, request, weights)
        self.labels_ = self._as_given(labels, X)
        self.core_sample_indices_ = np.flatnonzero(to_host(rows_of_places(core, order)))
        rows = kept_points(frame, request)
        some = rows.iloc[self.core_sample_indices_]
        self.components_ = some if frame_like(X) else some.to_numpy()
        return self


class OPTICS(Clustering):
    """Orders rows as ``sklearn.cluster.OPTICS(algorithm="kd_tree")``, and extracts clusters from the order.

    Parameters
    ----------
    max_eps : float
        Largest distance of neighbors; it must be finite. Scikit-learn's default, infinity, would keep all
        pairs.
    min_samples : int
        A row is a core row if at least this many rows are within `max_eps`, counting the row itself.
    cluster_method : {"xi", "dbscan"}
        How labels are extracted: see `cluster_optics_xi`, which needs scikit-learn, and
        `cluster_optics_dbscan`.
    eps : float, optional
        For "dbscan": the distance at which clusters are extracted, at most `max_eps`. Default: `max_eps`.
    xi, min_cluster_size, predecessor_correction
        For "xi": see `cluster_optics_xi`.
    mode : {"edges", "forest"}
        As in `SimJoinAccessor.optics`. "edges" gives exactly the order of scikit-learn, for the Euclidean
        metric only. "forest" needs less memory, works with any metric, and gives another order.
    on, metric, p, dropna, method, partitioning, blocksize
        As in `SimJoinAccessor.optics`; `on` is for frames only.
    algorithm, leaf_size, n_jobs
        Accepted for compatibility with scikit-learn, and ignored.

    Attributes
    ----------
    optics_ : DataFrame
        After `fit`, the result of `SimJoinAccessor.optics`: lazy for a Dask DataFrame or array.
    labels_, reachability_, core_distances_, predecessor_ : array or Series (n,)
        One value per row, in the order of the rows; lazy if `X` is lazy.
    ordering_ : array (n,), int64
        The row numbers in the order of OPTICS. Not available for Dask data: use ``optics_["ordering"]``,
        which has the position of each row in this order.
    n_features_in_ : int
    feature_names_in_ : array of str
        Names of the columns, for a frame whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.cluster import OPTICS
    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0]])
    >>> found = OPTICS(max_eps=5.0, min_samples=2, cluster_method="dbscan").fit(x)
    >>> found.ordering_, found.reachability_, found.labels_
    (array([0, 1, 2, 3]), array([inf,  1.,  1., inf]), array([ 0,  0,  0, -1]))
    """

    optics_: Frame
    reachability_: Labels
    core_distances_: Labels
    predecessor_: Labels
    ordering_: np.ndarray

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
        mode: clusters.OrderMode = "edges",
        metric: MetricName = "euclidean",
        p: float = 2,
        on: Columns = None,
        dropna: bool = False,
        method: Method = "auto",
        partitioning: Partitioning = "auto",
        blocksize: Size = None,
        algorithm: str = "auto",
        leaf_size: int = 30,
        n_jobs: int | None = None,
    ) -> None:
        self.max_eps, self.min_samples, self.eps = max_eps, min_samples, eps
        self.cluster_method = cluster_method
        self.xi, self.min_cluster_size, self.mode = xi, min_cluster_size, mode
        self.metric, self.p = metric, p
        self.predecessor_correction, self.on, self.dropna = predecessor_correction, on, dropna
        self.method, self.partitioning, self.blocksize = method, partitioning, blocksize
        self.algorithm, self.leaf_size, self.n_jobs = algorithm, leaf_size, n_jobs

    def fit(self, X: Points, y: object = None) -> Self:
        """Order the rows of `X`, and extract clusters.

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
        options = self._options(clusters.OpticsRequest)
        found = verbs.optics(self._frame(X, clusters.OpticsRequest(**options)), **options)
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
