"""Cluster rows by density: estimators as scikit-learn has them, and pictures."""

from dask_simjoin.cluster.condensed_tree import choose_clusters, condensed_tree
from dask_simjoin.cluster.estimators import DBSCAN, OPTICS
from dask_simjoin.cluster.hdbscan_estimator import HDBSCAN
from dask_simjoin.cluster.optics_labels import cluster_optics_dbscan, cluster_optics_xi

__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "OPTICS",
    "choose_clusters",
    "cluster_optics_dbscan",
    "cluster_optics_xi",
    "condensed_tree",
]
