"""OPTICS of random cases, compared with scikit-learn, and with DBSCAN of its forest."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from sklearn.cluster import compute_optics_graph

from dask_simjoin.cluster import cluster_optics_dbscan


def sklearn_optics(x: np.ndarray, max_eps: float, min_samples: int) -> pd.DataFrame:
    """Return scikit-learn's result in this package's form."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        order, core, reach, predecessor = compute_optics_graph(
            x,
            min_samples=min_samples,
            max_eps=max_eps,
            metric="minkowski",
            p=2,
            metric_params=None,
            algorithm="kd_tree",
            leaf_size=30,
            n_jobs=None,
        )
    place = np.empty(len(x), int)
    place[order] = np.arange(len(x))
    columns = {
        "ordering": place,
        "reachability": reach,
        "core_distance": core,
        "predecessor": predecessor,
    }
    return pd.DataFrame(columns)


def check_forest(
    found: pd.DataFrame, eps: float, core: list[bool], labels: list[int]
) -> None:
    """Check that the forest's core rows and clusters at `eps` equal DBSCAN's, except
    for cluster numbers.
    """
    assert (found["core_distance"] <= eps).tolist() == core
    mine = cluster_optics_dbscan(found, eps).tolist()
    both = {(a, b) for a, b, is_core in zip(mine, labels, core, strict=True) if is_core}
    assert len(both) == len({a for a, _ in both}) == len({b for _, b in both}), (
        "clusters differ"
    )
