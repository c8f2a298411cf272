"""The estimators `DBSCAN` and `OPTICS`, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Literal, Self

import numpy as np

from dask_simjoin.calls.examples import series_example
from dask_simjoin.cluster import verbs
from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.cluster.hierarchy import cluster_optics_dbscan, cluster_optics_xi
from dask_simjoin.cluster.points_estimator import (
    Clustering,
    Labels,
    Points,
    advising_pipelines,
    frame_like,
)
from dask_simjoin.cluster.verbs import kept_points, kept_positions
from dask_simjoin.errors import (
    OptionError,
)
from dask_simjoin.metrics.norms import Columns, Frame
from dask_simjoin.request import clusters
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.options import (
    Box,
    Method,
    MetricName,
    Partitioning,
    Size,
)
from dask_simjoin.request.units import check_choice, check_eps, without_unit


class DBSCAN(Clustering):
    """Clusters rows by density, with the same labels as
    ``sklearn.cluster.DBSCAN(algorithm="kd_tree")``.

    Parameters
    ----------
    eps : float or str
        Largest distance of neighbors.
    min_samples : int
        A row is a core row if at least this many rows are within `eps`, counting the
        row itself.
    on, metric, p, dropna, method, partitioning, blocksize
        As in `SimJoinAccessor.dbscan`. `on` is for frames only. For "haversine", an
        array has latitudes and longitudes in degrees, and `eps` is in meters. The
        default metric is "euclidean", and "haversine" for longitudes and latitudes of a
        GeoDataFrame.
    by, within, different, box
        As in `SimJoinAccessor.dbscan`. The columns of an array are named 0, 1, 2, and
        so on. With ``within={2: 0.5}``, the third column has a tolerance.
    algorithm, leaf_size
        Accepted for compatibility with scikit-learn, and ignored.
    n_jobs : int, optional
        Number of threads for data in memory; -1 means all cores, and -2 all but one. Default: as
        `threads` of `self_join`. Dask data use the threads of Dask.

    Attributes
    ----------
    labels_ : array or Series (n,), int64
        After `fit`: the number of each row's cluster, or -1. It is an array if `X` is
        an array. For a frame, it is the Series of `SimJoinAccessor.dbscan`. For Dask
        data it is lazy, and `fit` computes no labels.
    core_sample_indices_ : array (k,), int64
        The positions of core rows. Not available for Dask data, which stay lazy.
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
        eps: float | str = 0.5,
        *,
        min_samples: int = 5,
        metric: MetricName | None = None,
        p: float = 2,
        on: Columns = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        box: Box = None,
        dropna: bool = False,
        method: Method = "auto",
        partitioning: Partitioning = "auto",
        blocksize: Size = None,
        algorithm: str = "auto",
        leaf_size: int = 30,
        n_jobs: int | None = None,
    ) -> None:
        self.eps, self.min_samples, self.metric, self.p, self.on = (
            eps,
            min_samples,
            metric,
            p,
            on,
        )
        self.by, self.within, self.different, self.box = by, within, different, box
        self.dropna, self.method, self.partitioning, self.blocksize = (
            dropna,
            method,
            partitioning,
            blocksize,
        )
        self.algorithm, self.leaf_size, self.n_jobs = algorithm, leaf_size, n_jobs

    def fit(self, X: Points, y: object = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array (n, d) of NumPy or Dask, a DataFrame of Dask, pandas or cuDF, or a
        table of Arrow y : ignored sample_weight : array (n,), optional
            The weight of each row. A row is a core row if its own weight and the
            weights of the other rows within `eps` add up to at least `min_samples`.
            Weights may be negative. `X` must be in memory. Weights are summed as
            integer multiples of a power of two, so that sums do not depend on the
            order. Sums are exact if weights span up to about 40 bits.
        """
        frame, _, request = self._frame(X, clusters.DbscanRequest)
        meta = example_of(frame)
        driver = DISTANCES.of([frame], request.spec(meta))
        example = series_example(meta, verbs.LABELS)
        with advising_pipelines(self, X):
            labels, cores = driver.labels_and_cores(
                request.samples(), sample_weight, example
            )
        self.labels_ = self._as_given(labels, X)
        if cores is None:
            return self
        self.core_sample_indices_ = kept_positions(frame, request, cores)
        points = self._points
        rows = kept_points(frame, request, None if points is None else [points.name])
        some = rows.iloc[cores]
        self.components_ = some if frame_like(X) else some.to_numpy()
        return self


class OPTICS(Clustering):
    """Orders rows as ``sklearn.cluster.OPTICS(algorithm="kd_tree")``, and extracts
    clusters from the order.

    Parameters
    ----------
    max_eps : float or str
        Largest distance of neighbors; it must be finite. Scikit-learn's default,
        infinity, would keep all pairs.
    min_samples : int
        A row is a core row if at least this many rows are within `max_eps`, counting
        the row itself.
    cluster_method : {"xi", "dbscan"}
        How labels are extracted: see `cluster_optics_xi`, which needs scikit-learn, and
        `cluster_optics_dbscan`.
    eps : float, optional
        For "dbscan": the distance at which clusters are extracted, at most `max_eps`.
        Default: `max_eps`.
    xi, min_cluster_size, predecessor_correction
        For "xi": see `cluster_optics_xi`.
    mode : {"auto", "edges", "forest"}
        As in `SimJoinAccessor.optics`. "edges" gives exactly the order of scikit-learn,
        for the Euclidean metric only. "forest" needs less memory, works with any
        metric, and gives another order.
    on, metric, p, dropna, method, partitioning, blocksize
        As in `SimJoinAccessor.optics`; `on` is for frames only. The default metric is
        as for `DBSCAN`.
    by, within, different, box
        As in `SimJoinAccessor.optics`. The columns of an array are named as for
        `DBSCAN`.
    algorithm, leaf_size
        Accepted for compatibility with scikit-learn, and ignored.
    n_jobs : int, optional
        Number of threads for data in memory; -1 means all cores, and -2 all but one. Default: as
        `threads` of `self_join`. Dask data use the threads of Dask.

    Attributes
    ----------
    optics_ : DataFrame
        After `fit`, the result of `SimJoinAccessor.optics`: lazy for a Dask DataFrame
        or array.
    labels_, reachability_, core_distances_, predecessor_ : array or Series (n,)
        One value per row, in the order of the rows; lazy if `X` is lazy.
    ordering_ : array (n,), int64
        The row numbers in the order of OPTICS, without rows that `dropna` leaves out.
        Not available for Dask data: use ``optics_["ordering"]``, which has the position
        of each row in this order.
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
        max_eps: float | str = 0.5,
        *,
        min_samples: int = 5,
        cluster_method: Literal["xi", "dbscan"] = "xi",
        eps: float | str | None = None,
        xi: float = 0.05,
        min_cluster_size: float | None = None,
        predecessor_correction: bool = True,
        mode: clusters.OrderMode = "auto",
        metric: MetricName | None = None,
        p: float = 2,
        on: Columns = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        box: Box = None,
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
        self.by, self.within, self.different, self.box = by, within, different, box
        self.predecessor_correction = predecessor_correction
        self.metric, self.p, self.on, self.dropna = metric, p, on, dropna
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
        # `eps` is not an option of the verb, but its unit is converted likewise
        frame, options, request = self._frame(X, clusters.OpticsRequest)
        spec = request.spec(example_of(frame))
        max_eps, eps = spec.eps, spec.eps
        if self.eps is not None and self.cluster_method == "dbscan":
            given = {"eps": self.eps, "metric": spec.metric.name}
            if self._points is not None:
                self._points.adapt(given, has_unit=False)
            eps = check_eps(without_unit(given["eps"], spec.measure, "eps"), "eps")
        if eps > max_eps:
            raise OptionError(
                f"eps={self.eps!r} is not allowed; use at most "
                f"max_eps={self.max_eps!r}."
            )
        with advising_pipelines(self, X):
            found = verbs.optics(frame, **options)
        self.optics_ = found
        if self.cluster_method == "dbscan":
            labels = cluster_optics_dbscan(found, eps)
        else:
            labels = cluster_optics_xi(
                found,
                self.min_samples,
                xi=self.xi,
                min_cluster_size=self.min_cluster_size,
                predecessor_correction=self.predecessor_correction,
            )
        self.labels_ = self._as_given(labels, X)
        self.reachability_ = self._as_given(found["reachability"], X)
        self.core_distances_ = self._as_given(found["core_distance"], X)
        self.predecessor_ = self._as_given(found["predecessor"], X)
        ordering = DISTANCES.of([frame], spec).ordering(found)
        if ordering is not None:
            self.ordering_ = ordering
        return self
