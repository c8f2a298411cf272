"""Clusterings as estimators, in the manner of scikit-learn: for its users, and for arrays."""

from __future__ import annotations

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

from dask_simjoin import joins


class DBSCAN:
    """Clusters of rows by density, with the labels of ``sklearn.cluster.DBSCAN(algorithm="kd_tree")``.

    Parameters
    ----------
    eps : float
        Largest distance of neighbours.
    min_samples : int
        A row with at least so many rows within `eps`, itself included, is a core row.
    metric : {"euclidean"}
    on, dropna, method, partitioning, blocksize
        As in `SimJoinAccessor.dbscan`; `on` is for frames.

    Attributes
    ----------
    labels_ : array or Series (n,), int64
        After `fit`: the number of each row's cluster, or -1. A NumPy array of a NumPy array, lazy and a
        Dask array of a Dask array, else a Series as `SimJoinAccessor.dbscan` gives it: of a Dask
        DataFrame it is lazy, and `fit` has computed nothing.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from dask_simjoin.cluster import DBSCAN
    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0]])
    >>> DBSCAN(eps=1.0, min_samples=2).fit_predict(x)
    array([ 0,  0,  0, -1])
    """

    def __init__(self, eps: float = 0.5, *, min_samples: int = 5, metric: str = "euclidean", on: Any = None,
                 dropna: bool = False, method: str = "auto", partitioning: str = "auto",
                 blocksize: Any = None) -> None:  # fmt: skip
        self.eps, self.min_samples, self.metric, self.on = eps, min_samples, metric, on
        self.dropna, self.method, self.partitioning, self.blocksize = dropna, method, partitioning, blocksize

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; `deep` changes nothing."""
        names = ("eps", "min_samples", "metric", "on", "dropna", "method", "partitioning", "blocksize")
        return {name: getattr(self, name) for name in names}

    def set_params(self, **parameters: Any) -> DBSCAN:
        """Set parameters by name; unknown ones are an error."""
        known = self.get_params()
        for name in parameters:
            if name not in known:
                raise ValueError(f"DBSCAN has no parameter {name!r}; its parameters are {', '.join(known)}.")
        vars(self).update(parameters)
        return self

    def fit(self, X: Any, y: Any = None) -> DBSCAN:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array (n, d) of NumPy or Dask, or a DataFrame of Dask or pandas
        y : ignored
        """
        parameters = self.get_params()
        eps = parameters.pop("eps")
        frame, back = X, None
        if isinstance(X, da.Array):
            frame, back = dd.from_dask_array(X.rechunk({1: -1})), "dask"
        elif not hasattr(X, "columns"):
            frame, back = pd.DataFrame(np.asarray(X)), "numpy"
        self.n_features_in_ = len(frame.columns) if self.on is None else np.size(self.on)
        labels = joins.dbscan(frame, eps, **parameters)
        if back == "dask":
            labels = labels.to_dask_array(lengths=X.chunks[0] if not self.dropna else None)
        self.labels_ = labels.to_numpy() if back == "numpy" else labels
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """`fit`, and the labels."""
        return self.fit(X).labels_
