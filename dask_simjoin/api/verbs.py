"""List the verbs, and what each is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask_simjoin.api.counts import count_pairs, neighbor_counts, neighbor_graph
from dask_simjoin.api.introspect import plan, profile
from dask_simjoin.api.joins import join, self_join
from dask_simjoin.api.knn import k_distances, knn_join
from dask_simjoin.api.near_duplicates import drop_near_duplicates, near_duplicated, with_row_id
from dask_simjoin.cluster.hierarchy import hdbscan, spanning_tree
from dask_simjoin.cluster.verbs import dbscan, optics
from dask_simjoin.disk_index.making import index
from dask_simjoin.disk_index.requests import MakeIndex
from dask_simjoin.request import clusters, requests
from dask_simjoin.request.clusters import NearDuplicated
from dask_simjoin.request.options import Coordinates
from dask_simjoin.request.requests import Plan, Profile
from dask_simjoin.sets import requests as sets
from dask_simjoin.sets.introspect import set_plan, set_profile
from dask_simjoin.sets.verbs import (
    count_set_pairs,
    drop_set_near_duplicates,
    set_join,
    set_near_duplicated,
    set_neighbor_counts,
    set_self_join,
)


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
        Verb(clusters.Hdbscan, hdbscan),
        Verb(clusters.SpanningTree, spanning_tree),
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
