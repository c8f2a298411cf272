"""Cluster rows by density: estimators with the interface of scikit-learn, and plots."""

from typing import TYPE_CHECKING, Any

from dask_simjoin.cluster.algorithms.condensed_tree import (
    choose_clusters,
    condensed_tree,
)
from dask_simjoin.cluster.hierarchy import cluster_optics_dbscan, cluster_optics_xi
from dask_simjoin.cluster.knee import Knee, k_distance_knee
from dask_simjoin.request.columns import load

if TYPE_CHECKING:
    from dask_simjoin.cluster.estimators import DBSCAN, OPTICS
    from dask_simjoin.cluster.hdbscan_estimator import HDBSCAN

__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "OPTICS",
    "Knee",
    "choose_clusters",
    "cluster_optics_dbscan",
    "cluster_optics_xi",
    "condensed_tree",
    "k_distance_knee",
]


def __getattr__(name: str) -> Any:
    """Import the estimators only when they are first used, because importing
    scikit-learn takes long.
    """
    if name not in ("DBSCAN", "HDBSCAN", "OPTICS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "hdbscan_estimator" if name == "HDBSCAN" else "estimators"
    return getattr(load(f"{__name__}.{module}"), name)
