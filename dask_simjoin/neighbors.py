"""Neighbors of new rows, with the interface of scikit-learn."""

from dask_simjoin.api.nearest_neighbors import NearestNeighbors
from dask_simjoin.api.neighbor_transformers import KNeighborsTransformer, RadiusNeighborsTransformer

__all__ = ["KNeighborsTransformer", "NearestNeighbors", "RadiusNeighborsTransformer"]
