"""Give HDBSCAN as an estimator in the manner of scikit-learn."""

from __future__ import annotations

from dask_simjoin.cluster.estimator_base import ClusterMixin, Points, PointsEstimator
from dask_simjoin.cluster.hierarchy_verbs import hdbscan
from dask_simjoin.metrics.types import Columns
from dask_simjoin.options.cluster_requests import Hdbscan, Selection
from dask_simjoin.options.groups import MetricName, Partitioning, Size


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
        Of a frame whose columns have strings for names.

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
        options = self._options(Hdbscan)
        found = hdbscan(self._frame(X, Hdbscan(**options)), **options)
        self.hdbscan_ = found
        self.labels_ = self._as_given(found["label"], X)
        self.probabilities_ = self._as_given(found["probability"], X)
        self.outlier_scores_ = self._as_given(found["outlier_score"], X)
        return self
