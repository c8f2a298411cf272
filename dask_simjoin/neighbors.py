"""Neighbours of new rows, as scikit-learn has them."""

from dask_simjoin.api.nearest_neighbors import NearestNeighbors

__all__ = ["NearestNeighbors"]
