"""Every pair of rows closer than a distance in a Dask DataFrame, exactly.

Importing this package gives Dask, pandas and cuDF DataFrames the accessor ``.simjoin``.
"""

from dask_simjoin.accessor import SimJoinAccessor, register
from dask_simjoin.clusterings import connected_components, dbscan, k_distances, optics
from dask_simjoin.joins import count_pairs, neighbor_counts, self_join, with_row_id

__version__ = "0.1.0"

__all__ = [
    "SimJoinAccessor",
    "connected_components",
    "count_pairs",
    "dbscan",
    "k_distances",
    "neighbor_counts",
    "optics",
    "self_join",
    "with_row_id",
]

register()
