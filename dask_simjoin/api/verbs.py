"""List the verbs: what each is asked for, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from dask_simjoin.api.counts import count_pairs, neighbor_counts
from dask_simjoin.api.join import join
from dask_simjoin.api.knn import k_distances, knn_join
from dask_simjoin.api.neighbor_graph import neighbor_graph
from dask_simjoin.api.plan import plan
from dask_simjoin.api.profile import profile
from dask_simjoin.api.row_id import with_row_id
from dask_simjoin.api.self_join import self_join
from dask_simjoin.cluster.verbs import dbscan, optics
from dask_simjoin.options import requests
from dask_simjoin.options.groups import Coordinates

Gives = Literal["pairs", "values", "number", "matrix", "rows", "report"]
"""A row for each pair, a value or more for each row, a number, a sparse matrix, the frame's rows, text."""


@dataclass(frozen=True)
class Verb:
    """A verb of the accessor, which is a function of the package too.

    Attributes
    ----------
    request : type
        The class of its options: its fields have help, choices and units as metadata.
    function : callable
        Of a frame and those options; with `__signature__` and documentation.
    gives : str
    """

    request: type[Coordinates] | type[requests.RowId]
    function: Callable[..., Any]
    gives: Gives

    @property
    def name(self) -> str:
        """What it is called."""
        return self.function.__name__


VERBS = {
    verb.name: verb
    for verb in (
        Verb(requests.SelfJoin, self_join, gives="pairs"),
        Verb(requests.Join, join, gives="pairs"),
        Verb(requests.KnnJoin, knn_join, gives="pairs"),
        Verb(requests.NeighborCounts, neighbor_counts, gives="values"),
        Verb(requests.CountPairs, count_pairs, gives="number"),
        Verb(requests.Dbscan, dbscan, gives="values"),
        Verb(requests.Optics, optics, gives="values"),
        Verb(requests.KDistances, k_distances, gives="values"),
        Verb(requests.NeighborGraph, neighbor_graph, gives="matrix"),
        Verb(requests.Plan, plan, gives="report"),
        Verb(requests.Profile, profile, gives="report"),
        Verb(requests.RowId, with_row_id, gives="rows"),
    )
}
"""Verbs by name, in the order in which they are told of."""
