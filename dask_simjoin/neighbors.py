"""Neighbors of new rows, with the interface of scikit-learn."""

from dask_simjoin.api.nearest_neighbors import NearestNeighbors

__all__ = ["NearestNeighbors"]
