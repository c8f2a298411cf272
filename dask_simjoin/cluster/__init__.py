"""Cluster rows by density: estimators as scikit-learn has them, and pictures."""

from dask_simjoin.cluster.estimators import DBSCAN, OPTICS
from dask_simjoin.cluster.optics_labels import cluster_optics_dbscan, cluster_optics_xi

__all__ = ["DBSCAN", "OPTICS", "cluster_optics_dbscan", "cluster_optics_xi"]
