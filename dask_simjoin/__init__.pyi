"""Exact similarity joins for Dask, pandas and cuDF DataFrames.

Importing this package adds the accessor ``.simjoin`` to these frames.

Made from the table of verbs by `python -m tools.generate`.
"""

from dask_simjoin import methods
from dask_simjoin.api.accessor import SimJoinAccessor
from dask_simjoin.api.closest_pairs import closest_pairs
from dask_simjoin.api.compile_kernels import compile_kernels
from dask_simjoin.api.counts import count_pairs, neighbor_counts, neighbor_graph
from dask_simjoin.api.introspect import plan, report
from dask_simjoin.api.joins import join, self_join
from dask_simjoin.api.knn import k_distances, knn_join
from dask_simjoin.api.near_duplicates import (
    drop_near_duplicates,
    near_duplicated,
    with_row_id,
)
from dask_simjoin.api.profiles import profile
from dask_simjoin.cluster.hierarchy import hdbscan, spanning_tree
from dask_simjoin.cluster.verbs import connected_components, dbscan, optics
from dask_simjoin.disk_index.verbs import index, open_index
from dask_simjoin.sets.verbs import (
    count_set_pairs,
    drop_set_near_duplicates,
    set_join,
    set_near_duplicated,
    set_neighbor_counts,
    set_plan,
    set_profile,
    set_self_join,
)
from dask_simjoin.strings.verbs import (
    count_edit_pairs,
    drop_edit_near_duplicates,
    edit_join,
    edit_near_duplicated,
    edit_neighbor_counts,
    edit_plan,
    edit_profile,
    edit_self_join,
)

__version__: str

__all__ = [
    "SimJoinAccessor",
    "closest_pairs",
    "compile_kernels",
    "connected_components",
    "count_edit_pairs",
    "count_pairs",
    "count_set_pairs",
    "dbscan",
    "drop_edit_near_duplicates",
    "drop_near_duplicates",
    "drop_set_near_duplicates",
    "edit_join",
    "edit_near_duplicated",
    "edit_neighbor_counts",
    "edit_plan",
    "edit_profile",
    "edit_self_join",
    "hdbscan",
    "index",
    "join",
    "k_distances",
    "knn_join",
    "methods",
    "near_duplicated",
    "neighbor_counts",
    "neighbor_graph",
    "open_index",
    "optics",
    "plan",
    "profile",
    "report",
    "self_join",
    "set_join",
    "set_near_duplicated",
    "set_neighbor_counts",
    "set_plan",
    "set_profile",
    "set_self_join",
    "spanning_tree",
    "with_row_id",
]
