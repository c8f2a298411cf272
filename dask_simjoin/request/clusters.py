"""The requests of clusterings, and of the verbs for near duplicates."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dask_simjoin.catalog import HOME, kind_of_number, library, may_be_times
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.columns import check_label, has_column
from dask_simjoin.request.messages import did_you_mean, listed, shown
from dask_simjoin.request.options import (
    Conditions,
    Distance,
    EngineOption,
    MetricRequest,
    Nearest,
    about,
    check_whole,
)
from dask_simjoin.request.requests import DISTANCE, SAMPLES, symmetric
from dask_simjoin.request.resolve import Spec, check_flag, resolve
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.request.units import (
    check_choice,
    check_eps,
    check_metric,
    without_unit,
)

Selection = Literal["eom", "leaf"]
OrderMode = Literal["auto", "edges", "forest"]


@dataclass(frozen=True, kw_only=True)
class DbscanRequest(MetricRequest, Conditions, EngineOption):
    """Request for DBSCAN clusters."""

    names_rows: ClassVar[bool] = False

    eps: Distance = field(kw_only=False, metadata=DISTANCE)
    min_samples: int = field(default=5, kw_only=False, metadata=SAMPLES)

    def samples(self) -> int:
        """Return the checked `min_samples`: a core row has at least this many near
        rows, itself included.
        """
        return check_whole("min_samples", self.min_samples, 1)

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        return symmetric(resolve(self, meta, self.eps), "dbscan()")


@dataclass(frozen=True, kw_only=True)
class OpticsRequest(MetricRequest, Conditions, EngineOption):
    """Request for rows in the order of OPTICS."""

    bound: ClassVar[str] = "max_eps"
    names_rows: ClassVar[bool] = False
    max_eps: Distance = field(kw_only=False, metadata=DISTANCE)
    min_samples: int = field(default=5, kw_only=False, metadata=SAMPLES)
    mode: OrderMode = field(
        default="auto",
        metadata=about(
            "edges: the order of scikit-learn; forest: an order that needs less "
            "memory, for every metric",
            choices=get_args(OrderMode),
        ),
    )

    def samples(self) -> int:
        """Return the checked `min_samples`: a core row has at least this many near
        rows, itself included.
        """
        return check_whole("min_samples", self.min_samples, 2)

    def order(self, spec: JoinSpec) -> str:
        """Return the mode; "auto" is "edges" if the metric is Euclidean, otherwise
        "forest".
        """
        fitting = "edges" if spec.measure.name == "euclidean" else "forest"
        return fitting if self.mode == "auto" else self.mode

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        spec = symmetric(resolve(self, meta, self.max_eps), "optics()")
        if self.mode == "edges" and spec.measure.name != "euclidean":
            raise OptionError(
                f"metric={self.metric!r} is not allowed in optics() with mode='edges', "
                "whose distances are "
                "Euclidean, as in scikit-learn. Use mode='forest', which takes every "
                "metric, "
                "or metric='euclidean'."
            )
        return spec


@dataclass(frozen=True)
class Choice:
    """Checked options that choose clusters of a condensed tree. Fields are named like
    the options.
    """

    cluster_selection_method: str = "eom"
    cluster_selection_epsilon: float = 0.0
    max_cluster_size: float = math.inf
    allow_single_cluster: bool = False


@dataclass(frozen=True, kw_only=True)
class SpanningTreeRequest(Nearest):
    """Request for the minimum spanning tree of mutual reachability."""

    names_rows: ClassVar[bool] = False

    min_samples: int = field(default=1, metadata=SAMPLES)

    def samples(self) -> int:
        """Return the checked `min_samples`."""
        return check_whole("min_samples", self.min_samples, 1)

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        return resolve(self, meta, 0.0)


@dataclass(frozen=True, kw_only=True)
class HdbscanRequest(Nearest):
    """Request for HDBSCAN clusters."""

    names_rows: ClassVar[bool] = False

    min_cluster_size: int = field(
        default=5, kw_only=False, metadata=about("smallest number of rows in a cluster")
    )
    min_samples: int | None = field(default=None, kw_only=False, metadata=SAMPLES)
    cluster_selection_method: Selection = field(
        default="eom",
        metadata=about("method that chooses clusters", choices=get_args(Selection)),
    )
    cluster_selection_epsilon: float = field(
        default=0.0,
        metadata=about("do not split clusters at smaller distances than this"),
    )
    max_cluster_size: int | None = field(
        default=None, metadata=about("largest number of rows in a cluster")
    )
    allow_single_cluster: bool = field(
        default=False, metadata=about("allow a single cluster of all rows")
    )

    def min_rows(self) -> int:
        """Return the checked `min_cluster_size`: the minimum number of rows of a
        cluster.
        """
        return check_whole("min_cluster_size", self.min_cluster_size, 2)

    def samples(self) -> int:
        """Return the checked `min_samples`. Default: `min_cluster_size`."""
        return (
            self.min_rows()
            if self.min_samples is None
            else check_whole("min_samples", self.min_samples, 1)
        )

    def choice(self) -> Choice:
        """Check the options that choose clusters, and return them."""
        check_choice(
            "cluster_selection_method",
            self.cluster_selection_method,
            get_args(Selection),
        )
        name, (metric, _) = (
            "cluster_selection_epsilon",
            check_metric(self.metric, self.p),
        )
        max_rows = self.max_cluster_size
        if max_rows is not None:
            max_rows = check_whole("max_cluster_size", max_rows, 1)
        if max_rows is not None and max_rows < self.min_rows():
            raise OptionError(
                f"max_cluster_size={shown(max_rows)} is less than "
                f"min_cluster_size={self.min_rows()}; use at "
                "least min_cluster_size, or None."
            )
        return Choice(
            self.cluster_selection_method,
            check_eps(without_unit(self.cluster_selection_epsilon, metric, name), name),
            math.inf if max_rows is None else float(max_rows),
            check_flag("allow_single_cluster", self.allow_single_cluster),
        )

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        return resolve(self, meta, 0.0)


Grouping = Literal["greedy", "connected"]

WORDS = ("first", "last")


@dataclass(frozen=True, kw_only=True)
class OneStays:
    """Option: which one of several near rows is kept."""

    names_rows: ClassVar[bool] = False

    keep: Hashable = field(
        default="first",
        metadata=about(
            "row of each group that stays: first, last, the largest by a named column, "
            "or False for none"
        ),
    )
    grouping: Grouping = field(
        default="greedy",
        metadata=about(
            "remove rows near a kept row (greedy), or keep one row per connected group",
            choices=get_args(Grouping),
        ),
    )

    @property
    def counted(self) -> bool:
        """Whether `keep` is False.

        Then every row with a neighbor is marked, so counts of neighbors are enough.
        """
        return is_none_kept(self.keep)


@dataclass(frozen=True, kw_only=True)
class NearDuplicatedRequest(OneStays, MetricRequest, Conditions, EngineOption):
    """Request for the rows that are near a kept row."""

    eps: Distance = field(kw_only=False, metadata=DISTANCE)

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        column = check_kept_row(meta, self.keep)
        # leave the column of `keep` out of the default coordinates: it is a coordinate
        # only if `on` names it
        own = (
            column is not None
            and self.on is None
            and column != self.id
            and len(meta.columns) > 1
        )
        resolved = resolve(self, meta.drop(columns=[column]) if own else meta, self.eps)
        found = with_representative(column, symmetric(resolved, "near_duplicated()"))
        if (
            self.grouping == "greedy"
            and not self.counted
            and found.chunks.partitioning == "auto"
        ):
            # because the greedy choice visits rows in the order of the frame
            found = replace(found, chunks=found.chunks._replace(partitioning="entity"))
        return found


def with_representative(column: Hashable | None, spec: Spec) -> Spec:
    """Add to a spec the column whose largest value determines the kept row.

    None: return the spec unchanged.
    """
    if column is None:
        return spec
    # Any, because mypy does not know that every spec is a dataclass
    changed: Any = spec
    found: Spec = replace(
        changed, keep=(column,), names=(f"{column}_left", f"{column}_right")
    )
    return found


def is_none_kept(keep: object) -> bool:
    """Return whether `keep` is False, so that every row with a neighbor is marked."""
    return isinstance(keep, (bool, np.bool_)) and not keep


def check_kept_row(meta: Frame, keep: object) -> Hashable | None:
    """Return the column that `keep` names, or None for "first", "last" and False.

    Raise an error for other values.
    """
    if is_none_kept(keep) or (isinstance(keep, str) and keep in WORDS):
        return None
    allowed = (
        "use 'first', 'last', False, or a column (the row with its largest value stays)"
    )
    if isinstance(keep, (list, tuple)) and keep not in list(meta.columns):
        first = list(keep) if keep else ["column"]
        raise OptionError(
            f"keep={shown(keep)} is not allowed, because it takes one column. To keep "
            f"the best row by several columns, sort the rows first: "
            f"df.sort_values({first!r}, ascending=False), with keep='first'."
        )
    if (
        isinstance(keep, (bool, np.bool_))
        or keep is None
        or not isinstance(keep, Hashable)
    ):
        raise OptionError(f"keep={shown(keep)} is not allowed; {allowed}.")
    if not has_column(meta.columns, keep):
        meant = did_you_mean(keep, [*WORDS, *meta.columns], 0.5)
        raise OptionError(
            f"keep={shown(keep)} is not allowed{meant}; {allowed}: the columns are "
            f"{listed(meta.columns)}."
        )
    check_label("keep", keep, meta.columns)
    dtype = meta[keep].dtype
    texts = getattr(dtype, "kind", "") == "O" and library(meta) != HOME
    if texts or not (kind_of_number(dtype) or may_be_times(dtype)):
        raise ColumnError(
            f"keep={shown(keep)} names a column of dtype {dtype}. Name a column of "
            "numbers, times or dates, whose largest value stays. Or sort the rows by "
            f"it, and use keep='first': df.sort_values({keep!r}, ascending=False)."
        )
    return keep
