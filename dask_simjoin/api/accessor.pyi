"""The accessor `.simjoin`, whose methods are the verbs.

Made from the table of verbs by `python -m tools.generate`.
"""

# where pandas and Dask have no types, all their frames are Any
# mypy: disable-error-code="overload-cannot-match"

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, overload

import dask.dataframe as dd
import pandas as pd

from dask_simjoin.api.counts import Matrix
from dask_simjoin.disk_index.index import Index
from dask_simjoin.disk_index.verbs import PathLike, Policy, StorageOptions
from dask_simjoin.metrics.norms import Columns, Frame
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.reports.run import ProfileReport, RunReport
from dask_simjoin.request.clusters import Grouping, OrderMode, Selection
from dask_simjoin.request.options import (
    Box,
    Distance,
    Keep,
    Method,
    MetricName,
    Pairs,
    Partitioning,
    Radius,
    Size,
)
from dask_simjoin.request.requests import GraphMode, How, Matching, NearestHow, Ties
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.sets.requests import AnyTokenizer, Comparison, Similarity, Threshold
from dask_simjoin.sets.requests import Method as SetsMethod
from dask_simjoin.strings.blocks import EditPlanReport

F = TypeVar("F")

class SimJoinAccessor(Generic[F]):
    """Similarity joins of a DataFrame: ``frame.simjoin``."""

    @overload
    def __init__(self: SimJoinAccessor[pd.DataFrame], frame: pd.DataFrame) -> None: ...
    @overload
    def __init__(self: SimJoinAccessor[dd.DataFrame], frame: dd.DataFrame) -> None: ...
    @overload
    def __init__(self: SimJoinAccessor[Any], frame: object) -> None: ...
    def report(self) -> RunReport:
        """Report the work of the join behind this lazy result; see `dask_simjoin.report`."""

    def self_join(
        self,
        eps: Radius,
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        return_distance: bool = False,
        distance_unit: str | None = None,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        pairs: Pairs = "unique",
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> F:
        """Find all pairs of rows that are at most `eps` apart."""

    def join(
        self,
        other: Frame,
        eps: Radius,
        *,
        how: How = "inner",
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        return_distance: bool = False,
        distance_unit: str | None = None,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        matching: Matching = "all",
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> F:
        """Find all pairs of a row of this frame and a row of `other` that are at most `eps` apart."""

    def knn_join(
        self,
        other: Frame | None = None,
        k: int = 10,
        *,
        max_distance: Distance | None = None,
        min_distance: Distance | None = None,
        how: NearestHow = "inner",
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        distance_unit: str | None = None,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        mutual: bool = False,
        ties: Ties = "first",
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Literal["auto", "entity", "spatial"] = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> F:
        """Find the `k` nearest rows of each row, exactly."""

    def closest_pairs(
        self,
        n: int,
        other: Frame | None = None,
        *,
        max_distance: Distance | None = None,
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        distance_unit: str | None = None,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        by: Columns = None,
        per_group: bool = False,
        dropna: bool = False,
        p: float = 2,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Literal["auto", "entity", "spatial"] = "auto",
        method: Method = "auto",
    ) -> F:
        """Find the `n` closest pairs of rows, exactly and without an `eps`."""

    @overload
    def neighbor_counts(
        self: SimJoinAccessor[pd.DataFrame],
        eps: Radius,
        *,
        other: Frame | None = None,
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> pd.Series:
        """Count the other rows within a distance `eps` of each row, or the rows of another table."""
    @overload
    def neighbor_counts(
        self: SimJoinAccessor[dd.DataFrame],
        eps: Radius,
        *,
        other: Frame | None = None,
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> dd.Series:
        """Count the other rows within a distance `eps` of each row, or the rows of another table."""
    @overload
    def neighbor_counts(
        self: SimJoinAccessor[Any],
        eps: Radius,
        *,
        other: Frame | None = None,
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> Any:
        """Count the other rows within a distance `eps` of each row, or the rows of another table."""
    @overload
    def neighbor_counts(
        self: SimJoinAccessor[pd.DataFrame],
        eps: Sequence[float],
        *,
        other: Frame | None = None,
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> pd.DataFrame:
        """Count the other rows within a distance `eps` of each row, or the rows of another table."""
    @overload
    def neighbor_counts(
        self: SimJoinAccessor[dd.DataFrame],
        eps: Sequence[float],
        *,
        other: Frame | None = None,
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> dd.DataFrame:
        """Count the other rows within a distance `eps` of each row, or the rows of another table."""
    @overload
    def neighbor_counts(
        self: SimJoinAccessor[Any],
        eps: Sequence[float],
        *,
        other: Frame | None = None,
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> Any:
        """Count the other rows within a distance `eps` of each row, or the rows of another table."""

    @overload
    def count_pairs(
        self: SimJoinAccessor[pd.DataFrame],
        eps: Radius,
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        pairs: Pairs = "unique",
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> int:
        """Count the pairs that `self_join` returns with the same options."""
    @overload
    def count_pairs(
        self: SimJoinAccessor[dd.DataFrame],
        eps: Radius,
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        pairs: Pairs = "unique",
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> Any:
        """Count the pairs that `self_join` returns with the same options."""
    @overload
    def count_pairs(
        self: SimJoinAccessor[Any],
        eps: Radius,
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        pairs: Pairs = "unique",
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> Any:
        """Count the pairs that `self_join` returns with the same options."""
    @overload
    def count_pairs(
        self: SimJoinAccessor[pd.DataFrame],
        eps: Sequence[float],
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        pairs: Pairs = "unique",
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> pd.Series:
        """Count the pairs that `self_join` returns with the same options."""
    @overload
    def count_pairs(
        self: SimJoinAccessor[dd.DataFrame],
        eps: Sequence[float],
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        pairs: Pairs = "unique",
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> dd.Series:
        """Count the pairs that `self_join` returns with the same options."""
    @overload
    def count_pairs(
        self: SimJoinAccessor[Any],
        eps: Sequence[float],
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        pairs: Pairs = "unique",
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> Any:
        """Count the pairs that `self_join` returns with the same options."""

    @overload
    def near_duplicated(
        self: SimJoinAccessor[pd.DataFrame],
        eps: Distance,
        *,
        grouping: Grouping = "greedy",
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        keep: Hashable = "first",
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> pd.Series:
        """Mark the rows that are near a kept row."""
    @overload
    def near_duplicated(
        self: SimJoinAccessor[dd.DataFrame],
        eps: Distance,
        *,
        grouping: Grouping = "greedy",
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        keep: Hashable = "first",
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> dd.Series:
        """Mark the rows that are near a kept row."""
    @overload
    def near_duplicated(
        self: SimJoinAccessor[Any],
        eps: Distance,
        *,
        grouping: Grouping = "greedy",
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        keep: Hashable = "first",
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> Any:
        """Mark the rows that are near a kept row."""

    def drop_near_duplicates(
        self,
        eps: Distance,
        *,
        grouping: Grouping = "greedy",
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        keep: Hashable = "first",
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> F:
        """Drop the rows that `near_duplicated` marks."""

    @overload
    def dbscan(
        self: SimJoinAccessor[pd.DataFrame],
        eps: Distance,
        min_samples: int = 5,
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> pd.Series:
        """Cluster rows by density: DBSCAN."""
    @overload
    def dbscan(
        self: SimJoinAccessor[dd.DataFrame],
        eps: Distance,
        min_samples: int = 5,
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> dd.Series:
        """Cluster rows by density: DBSCAN."""
    @overload
    def dbscan(
        self: SimJoinAccessor[Any],
        eps: Distance,
        min_samples: int = 5,
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> Any:
        """Cluster rows by density: DBSCAN."""

    def optics(
        self,
        max_eps: Distance,
        min_samples: int = 5,
        *,
        mode: OrderMode = "auto",
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> F:
        """Order rows so that the order shows clusters at all distances up to `max_eps`: OPTICS."""

    def hdbscan(
        self,
        min_cluster_size: int = 5,
        min_samples: int | None = None,
        *,
        cluster_selection_method: Selection = "eom",
        cluster_selection_epsilon: float = 0.0,
        max_cluster_size: int | None = None,
        allow_single_cluster: bool = False,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        dropna: bool = False,
        p: float = 2,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Literal["auto", "entity", "spatial"] = "auto",
    ) -> F:
        """Cluster rows by density, without a fixed distance: HDBSCAN."""

    def spanning_tree(
        self,
        *,
        min_samples: int = 1,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        dropna: bool = False,
        p: float = 2,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Literal["auto", "entity", "spatial"] = "auto",
    ) -> F:
        """Return the minimum spanning tree of all rows. It gives the single-linkage clusters at every
        distance."""

    @overload
    def k_distances(
        self: SimJoinAccessor[pd.DataFrame],
        k: int,
        *,
        max_distance: Distance | None = None,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        distance_unit: str | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Literal["auto", "entity", "spatial"] = "auto",
    ) -> pd.Series:
        """Return the distance from each row to its k-th nearest neighbor."""
    @overload
    def k_distances(
        self: SimJoinAccessor[dd.DataFrame],
        k: int,
        *,
        max_distance: Distance | None = None,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        distance_unit: str | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Literal["auto", "entity", "spatial"] = "auto",
    ) -> dd.Series:
        """Return the distance from each row to its k-th nearest neighbor."""
    @overload
    def k_distances(
        self: SimJoinAccessor[Any],
        k: int,
        *,
        max_distance: Distance | None = None,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        distance_unit: str | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Literal["auto", "entity", "spatial"] = "auto",
    ) -> Any:
        """Return the distance from each row to its k-th nearest neighbor."""

    def neighbor_graph(
        self,
        eps: Distance,
        *,
        mode: GraphMode = "distance",
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        distance_unit: str | None = None,
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
    ) -> Matrix:
        """Return a sparse matrix of the distances between rows that are at most `eps` apart."""

    def set_self_join(
        self,
        on: Hashable,
        threshold: Threshold,
        *,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        id: Hashable | None = None,
        return_similarity: bool = False,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        best: bool | int = False,
        ties: Ties = "first",
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> F:
        """Find every pair of rows with similar sets of tokens."""

    def set_join(
        self,
        other: Frame,
        on: Hashable | None = None,
        threshold: Threshold | None = None,
        *,
        how: How = "inner",
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        return_similarity: bool = False,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        best: bool | int = False,
        ties: Ties = "first",
        matching: Matching = "all",
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> F:
        """Find every pair of a row of this frame and a row of `other` with similar sets of tokens."""

    @overload
    def set_neighbor_counts(
        self: SimJoinAccessor[pd.DataFrame],
        on: Hashable | None = None,
        threshold: Threshold | None = None,
        *,
        other: Frame | None = None,
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> pd.Series:
        """Count for each row the other rows whose sets match its set, or such rows of another table."""
    @overload
    def set_neighbor_counts(
        self: SimJoinAccessor[dd.DataFrame],
        on: Hashable | None = None,
        threshold: Threshold | None = None,
        *,
        other: Frame | None = None,
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> dd.Series:
        """Count for each row the other rows whose sets match its set, or such rows of another table."""
    @overload
    def set_neighbor_counts(
        self: SimJoinAccessor[Any],
        on: Hashable | None = None,
        threshold: Threshold | None = None,
        *,
        other: Frame | None = None,
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> Any:
        """Count for each row the other rows whose sets match its set, or such rows of another table."""

    @overload
    def count_set_pairs(
        self: SimJoinAccessor[pd.DataFrame],
        on: Hashable,
        threshold: Threshold,
        *,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> int:
        """Count the pairs that `set_self_join` would return, without storing them."""
    @overload
    def count_set_pairs(
        self: SimJoinAccessor[dd.DataFrame],
        on: Hashable,
        threshold: Threshold,
        *,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> Any:
        """Count the pairs that `set_self_join` would return, without storing them."""
    @overload
    def count_set_pairs(
        self: SimJoinAccessor[Any],
        on: Hashable,
        threshold: Threshold,
        *,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> Any:
        """Count the pairs that `set_self_join` would return, without storing them."""

    @overload
    def set_near_duplicated(
        self: SimJoinAccessor[pd.DataFrame],
        on: Hashable,
        threshold: Threshold,
        *,
        grouping: Grouping = "greedy",
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        keep: Hashable = "first",
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> pd.Series:
        """Mark rows whose sets match the set of a row that stays: `near_duplicated` for texts, tags and
        items."""
    @overload
    def set_near_duplicated(
        self: SimJoinAccessor[dd.DataFrame],
        on: Hashable,
        threshold: Threshold,
        *,
        grouping: Grouping = "greedy",
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        keep: Hashable = "first",
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> dd.Series:
        """Mark rows whose sets match the set of a row that stays: `near_duplicated` for texts, tags and
        items."""
    @overload
    def set_near_duplicated(
        self: SimJoinAccessor[Any],
        on: Hashable,
        threshold: Threshold,
        *,
        grouping: Grouping = "greedy",
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        keep: Hashable = "first",
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> Any:
        """Mark rows whose sets match the set of a row that stays: `near_duplicated` for texts, tags and
        items."""

    def drop_set_near_duplicates(
        self,
        on: Hashable,
        threshold: Threshold,
        *,
        grouping: Grouping = "greedy",
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        keep: Hashable = "first",
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> F:
        """Drop rows whose sets match the set of a row that stays: `drop_near_duplicates` for texts."""

    def set_plan(
        self,
        on: Hashable | None = None,
        threshold: Threshold | None = None,
        *,
        other: Frame | None = None,
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        return_similarity: bool = False,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        matching: Matching = "all",
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        threads: int | None = None,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> SetPlanReport:
        """Show the tasks of `set_self_join` with the same options, and the estimated size of its result."""

    def set_profile(
        self,
        on: Hashable,
        threshold: Threshold,
        *,
        similarity: Similarity = "jaccard",
        tokenizer: AnyTokenizer = None,
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        blocksize: Size = None,
        method: SetsMethod = "auto",
    ) -> ProfileReport:
        """Run a self-join of sets without keeping its pairs, and report its work and time."""

    def edit_self_join(
        self,
        on: Hashable,
        k: int | None = None,
        *,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        id: Hashable | None = None,
        return_distance: bool = False,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        by: Columns = None,
        best: bool | int = False,
        ties: Ties = "first",
        threads: int | None = None,
        blocksize: Size = None,
    ) -> F:
        """Find every pair of rows whose texts differ in at most `k` edits."""

    def edit_join(
        self,
        other: Frame,
        on: Hashable | None = None,
        k: int | None = None,
        *,
        how: How = "inner",
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        return_distance: bool = False,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        by: Columns = None,
        best: bool | int = False,
        ties: Ties = "first",
        matching: Matching = "all",
        threads: int | None = None,
        blocksize: Size = None,
    ) -> F:
        """Find every pair of a row of this frame and a row of `other` whose texts differ in at most `k`
        edits."""

    @overload
    def edit_neighbor_counts(
        self: SimJoinAccessor[pd.DataFrame],
        on: Hashable | None = None,
        k: int | None = None,
        *,
        other: Frame | None = None,
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> pd.Series:
        """Count for each row the other rows whose texts differ in at most `k` edits, or such rows of
        another table."""
    @overload
    def edit_neighbor_counts(
        self: SimJoinAccessor[dd.DataFrame],
        on: Hashable | None = None,
        k: int | None = None,
        *,
        other: Frame | None = None,
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> dd.Series:
        """Count for each row the other rows whose texts differ in at most `k` edits, or such rows of
        another table."""
    @overload
    def edit_neighbor_counts(
        self: SimJoinAccessor[Any],
        on: Hashable | None = None,
        k: int | None = None,
        *,
        other: Frame | None = None,
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> Any:
        """Count for each row the other rows whose texts differ in at most `k` edits, or such rows of
        another table."""

    @overload
    def count_edit_pairs(
        self: SimJoinAccessor[pd.DataFrame],
        on: Hashable,
        k: int | None = None,
        *,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> int:
        """Count the pairs that `edit_self_join` would return, without storing them."""
    @overload
    def count_edit_pairs(
        self: SimJoinAccessor[dd.DataFrame],
        on: Hashable,
        k: int | None = None,
        *,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> Any:
        """Count the pairs that `edit_self_join` would return, without storing them."""
    @overload
    def count_edit_pairs(
        self: SimJoinAccessor[Any],
        on: Hashable,
        k: int | None = None,
        *,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> Any:
        """Count the pairs that `edit_self_join` would return, without storing them."""

    @overload
    def edit_near_duplicated(
        self: SimJoinAccessor[pd.DataFrame],
        on: Hashable,
        k: int | None = None,
        *,
        grouping: Grouping = "greedy",
        similarity: Threshold | None = None,
        transpositions: bool = False,
        keep: Hashable = "first",
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> pd.Series:
        """Mark rows whose texts are within `k` edits of a row that stays: `near_duplicated` for names."""
    @overload
    def edit_near_duplicated(
        self: SimJoinAccessor[dd.DataFrame],
        on: Hashable,
        k: int | None = None,
        *,
        grouping: Grouping = "greedy",
        similarity: Threshold | None = None,
        transpositions: bool = False,
        keep: Hashable = "first",
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> dd.Series:
        """Mark rows whose texts are within `k` edits of a row that stays: `near_duplicated` for names."""
    @overload
    def edit_near_duplicated(
        self: SimJoinAccessor[Any],
        on: Hashable,
        k: int | None = None,
        *,
        grouping: Grouping = "greedy",
        similarity: Threshold | None = None,
        transpositions: bool = False,
        keep: Hashable = "first",
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> Any:
        """Mark rows whose texts are within `k` edits of a row that stays: `near_duplicated` for names."""

    def drop_edit_near_duplicates(
        self,
        on: Hashable,
        k: int | None = None,
        *,
        grouping: Grouping = "greedy",
        similarity: Threshold | None = None,
        transpositions: bool = False,
        keep: Hashable = "first",
        by: Columns = None,
        threads: int | None = None,
        blocksize: Size = None,
    ) -> F:
        """Drop rows whose texts are within `k` edits of a row that stays: `drop_near_duplicates` for
        names."""

    def edit_plan(
        self,
        on: Hashable | None = None,
        k: int | None = None,
        *,
        other: Frame | None = None,
        left_on: Hashable | None = None,
        right_on: Hashable | None = None,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        return_distance: bool = False,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        by: Columns = None,
        matching: Matching = "all",
        threads: int | None = None,
        blocksize: Size = None,
    ) -> EditPlanReport:
        """Show the tasks of `edit_self_join` with the same options, and the estimated size of its
        result."""

    def edit_profile(
        self,
        on: Hashable,
        k: int | None = None,
        *,
        similarity: Threshold | None = None,
        transpositions: bool = False,
        by: Columns = None,
        blocksize: Size = None,
    ) -> ProfileReport:
        """Run a self-join by edit distance without keeping its pairs, and report its work and time."""

    def index(
        self,
        eps: Distance,
        path: PathLike,
        *,
        on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        return_distance: bool = False,
        distance_unit: str | None = None,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        dropna: bool = False,
        p: float = 2,
        blocksize: Size = None,
        storage_options: StorageOptions = None,
        store_pairs: bool = False,
        recluster: Policy | float = "auto",
        row_group: int = 16384,
    ) -> Index:
        """Write the rows to disk as an index that can be updated: each update returns only changed
        pairs."""

    def plan(
        self,
        eps: Radius | None = None,
        *,
        other: Frame | None = None,
        k: int | None = None,
        on: Columns = None,
        left_on: Columns = None,
        right_on: Columns = None,
        metric: MetricName = "euclidean",
        id: Hashable | None = None,
        left_id: Hashable | None = None,
        right_id: Hashable | None = None,
        return_distance: bool = False,
        distance_unit: str | None = None,
        keep: Keep = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        by: Columns = None,
        within: Mapping[Hashable, Any] | None = None,
        different: Columns = None,
        matching: Matching = "all",
        pairs: Pairs = "unique",
        include_self: bool = False,
        dropna: bool = False,
        p: float = 2,
        box: Box = None,
        threads: int | None = None,
        blocksize: Size = None,
        partitioning: Partitioning = "auto",
        method: Method = "auto",
        approximate: bool = False,
    ) -> PlanReport:
        """Estimate the cost and the result of a join, without running it."""

    def profile(
        self,
        eps: Distance | None = None,
        *,
        k: int | None = None,
        threshold: Threshold | None = None,
        on: Columns = None,
        metric: MetricName = "euclidean",
        similarity: Similarity | Threshold | None = None,
        tokenizer: AnyTokenizer = None,
        transpositions: bool = False,
        id: Hashable | None = None,
        by: Columns = None,
        dropna: bool = False,
        p: float = 2,
        comparison: Comparison = ">=",
        allow_empty: bool = False,
        allow_missing: bool = False,
        method: Method = "auto",
        approximate: bool = False,
    ) -> ProfileReport:
        """Run a join, discard its result, and return counters of its work and the seconds of each step."""

    def with_row_id(self, name: str = "row_id") -> F:
        """Add a column with the number of each row, from 0."""
