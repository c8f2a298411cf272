"""The verbs as methods, whose frame is an accessor's: a line for each, as type checkers need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import dask.dataframe as dd
import pandas as pd

from dask_simjoin.api import counts, knn, near_duplicates, row_id
from dask_simjoin.api import join as two_tables
from dask_simjoin.api import neighbor_graph as graphs
from dask_simjoin.api import plan as plans
from dask_simjoin.api import profile as profiles
from dask_simjoin.api import self_join as one_table
from dask_simjoin.cluster import hierarchy_verbs as hierarchies
from dask_simjoin.cluster import verbs as clusters
from dask_simjoin.incremental import making
from dask_simjoin.options.calls import as_method
from dask_simjoin.options.typed import FrameVerb, SeriesVerb
from dask_simjoin.sets import duplicates
from dask_simjoin.sets import reports as set_reports
from dask_simjoin.sets import verbs as sets

P = ParamSpec("P")
Result = TypeVar("Result")
Given = TypeVar("Given", covariant=True)
F = TypeVar("F")


class FrameMethod(Protocol[P]):
    """A method that gives a frame, of the library that the accessor's is of."""

    @overload
    def __get__(self, has: VerbMethods[pd.DataFrame], owner: Any, /) -> Callable[P, pd.DataFrame]: ...
    @overload
    def __get__(self, has: VerbMethods[dd.DataFrame], owner: Any, /) -> Callable[P, dd.DataFrame]: ...  # type: ignore[overload-cannot-match]
    @overload
    def __get__(self, has: object, owner: Any, /) -> Callable[P, Any]: ...


class SeriesMethod(Protocol[P]):
    """A method that gives a value for each row."""

    @overload
    def __get__(self, has: VerbMethods[pd.DataFrame], owner: Any, /) -> Callable[P, pd.Series]: ...
    @overload
    def __get__(self, has: VerbMethods[dd.DataFrame], owner: Any, /) -> Callable[P, dd.Series]: ...  # type: ignore[overload-cannot-match]
    @overload
    def __get__(self, has: object, owner: Any, /) -> Callable[P, Any]: ...


class Method(Protocol[P, Given]):
    """A method that gives the same of all frames."""

    def __get__(self, has: object, owner: Any, /) -> Callable[P, Given]: ...


def frame_method(function: FrameVerb[P]) -> FrameMethod[P]:
    return cast(Any, as_method(function))


def series_method(function: SeriesVerb[P]) -> SeriesMethod[P]:
    return cast(Any, as_method(function))


def method(function: Callable[Concatenate[Any, P], Result]) -> Method[P, Result]:
    return cast(Any, as_method(function))


class VerbMethods(Generic[F]):
    """All verbs of the table in `verbs.py`."""

    _frame: F

    self_join = frame_method(one_table.self_join)
    join = frame_method(two_tables.join)
    knn_join = frame_method(knn.knn_join)
    neighbor_counts = method(counts.neighbor_counts)
    count_pairs = method(counts.count_pairs)
    near_duplicated = series_method(near_duplicates.near_duplicated)
    drop_near_duplicates = frame_method(near_duplicates.drop_near_duplicates)
    dbscan = series_method(clusters.dbscan)
    optics = frame_method(clusters.optics)
    hdbscan = frame_method(hierarchies.hdbscan)
    spanning_tree = frame_method(hierarchies.spanning_tree)
    k_distances = series_method(knn.k_distances)
    neighbor_graph = method(graphs.neighbor_graph)
    set_self_join = frame_method(sets.set_self_join)
    set_join = frame_method(sets.set_join)
    set_neighbor_counts = series_method(sets.set_neighbor_counts)
    count_set_pairs = method(sets.count_set_pairs)
    set_near_duplicated = series_method(duplicates.set_near_duplicated)
    drop_set_near_duplicates = frame_method(duplicates.drop_set_near_duplicates)
    set_plan = method(set_reports.set_plan)
    set_profile = method(set_reports.set_profile)
    index = method(making.index)
    plan = method(plans.plan)
    profile = method(profiles.profile)
    with_row_id = frame_method(row_id.with_row_id)
