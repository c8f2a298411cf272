"""List the verbs, and what each is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask_simjoin.api.counts import count_pairs, neighbor_counts
from dask_simjoin.api.join import join
from dask_simjoin.api.knn import k_distances, knn_join
from dask_simjoin.api.near_duplicates import drop_near_duplicates, near_duplicated
from dask_simjoin.api.neighbor_graph import neighbor_graph
from dask_simjoin.api.plan import plan
from dask_simjoin.api.profile import profile
from dask_simjoin.api.row_id import with_row_id
from dask_simjoin.api.self_join import self_join
from dask_simjoin.cluster.hierarchy_verbs import hdbscan, spanning_tree
from dask_simjoin.cluster.verbs import dbscan, optics
from dask_simjoin.incremental.making import index
from dask_simjoin.incremental.requests import MakeIndex
from dask_simjoin.options import cluster_requests, requests
from dask_simjoin.options.groups import Coordinates
from dask_simjoin.options.near_duplicates import NearDuplicated
from dask_simjoin.options.planned import Plan, Profile
from dask_simjoin.sets import requests as sets
from dask_simjoin.sets.duplicates import drop_set_near_duplicates, set_near_duplicated
from dask_simjoin.sets.reports import set_plan, set_profile
from dask_simjoin.sets.verbs import count_set_pairs, set_join, set_neighbor_counts, set_self_join


@dataclass(frozen=True)
class Verb:
    """A verb of the accessor, which is a function of the package too.

    Attributes
    ----------
    request : type
        The class of its options: its fields have help, choices and units as metadata.
    function : callable
        Of a frame and those options; with `__signature__` and documentation.
    """

    request: type[Coordinates] | type[sets.SetOptions] | type[requests.RowId]
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.function.__name__


VERBS = {
    verb.name: verb
    for verb in (
        Verb(requests.SelfJoin, self_join),
        Verb(requests.Join, join),
        Verb(requests.KnnJoin, knn_join),
        Verb(requests.NeighborCounts, neighbor_counts),
        Verb(requests.CountPairs, count_pairs),
        Verb(NearDuplicated, near_duplicated),
        Verb(NearDuplicated, drop_near_duplicates),
        Verb(requests.Dbscan, dbscan),
        Verb(requests.Optics, optics),
        Verb(cluster_requests.Hdbscan, hdbscan),
        Verb(cluster_requests.SpanningTree, spanning_tree),
        Verb(requests.KDistances, k_distances),
        Verb(requests.NeighborGraph, neighbor_graph),
        Verb(sets.SetSelfJoin, set_self_join),
        Verb(sets.SetJoin, set_join),
        Verb(sets.SetNeighborCounts, set_neighbor_counts),
        Verb(sets.CountSetPairs, count_set_pairs),
        Verb(sets.SetNearDuplicated, set_near_duplicated),
        Verb(sets.SetNearDuplicated, drop_set_near_duplicates),
        Verb(sets.SetPlanned, set_plan),
        Verb(sets.SetProfile, set_profile),
        Verb(MakeIndex, index),
        Verb(Plan, plan),
        Verb(Profile, profile),
        Verb(requests.RowId, with_row_id),
    )
}
"""Verbs by name, in the order in which they are told of."""
