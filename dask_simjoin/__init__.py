"""Every pair of rows closer than a distance in a Dask DataFrame, exactly.

Importing this package gives Dask, pandas and cuDF DataFrames the accessor ``.simjoin``.
"""

from dask_simjoin.accessor import SimJoinAccessor, register
from dask_simjoin.clusterings import connected_components, dbscan, k_distances, optics
from dask_simjoin.joins import count_pairs, neighbor_counts, self_join, with_row_id
from dask_simjoin.neighbor_graphs import neighbor_graph
from dask_simjoin.two_joins import join, knn_join

__version__ = "0.1.0"

__all__ = [
    "SimJoinAccessor",
    "connected_components",
    "count_pairs",
    "dbscan",
    "join",
    "k_distances",
    "knn_join",
    "neighbor_counts",
    "neighbor_graph",
    "optics",
    "self_join",
    "with_row_id",
]

register()
