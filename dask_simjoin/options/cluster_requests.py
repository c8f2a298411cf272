"""Say what clusterings without a distance are asked for: see `dask_simjoin.options.requests`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.groups import Nearest, about
from dask_simjoin.options.messages import shown
from dask_simjoin.options.requests import SAMPLES
from dask_simjoin.options.resolve import check_flag, resolve
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.options.units import without_unit
from dask_simjoin.options.validate import check_choice, check_eps, check_metric, check_whole

Selection = Literal["eom", "leaf"]


@dataclass(frozen=True)
class Choice:
    """Say which clusters of a condensed tree are chosen: the options of those names, checked."""

    cluster_selection_method: str = "eom"
    cluster_selection_epsilon: float = 0.0
    max_cluster_size: float = math.inf
    allow_single_cluster: bool = False


@dataclass(frozen=True, kw_only=True)
class SpanningTree(Nearest):
    """Ask for the minimum spanning tree of mutual reachability."""

    names_rows: ClassVar[bool] = False

    min_samples: int = field(default=1, metadata=SAMPLES)

    def samples(self) -> int:
        """How many rows make a core row."""
        return check_whole("min_samples", self.min_samples, 1)

    def spec(self, meta: Frame) -> JoinSpec:
        """Resolve it for frames like `meta`."""
        return resolve(self, meta, 0.0)


@dataclass(frozen=True, kw_only=True)
class Hdbscan(Nearest):
    """Ask for the clusters of HDBSCAN."""

    names_rows: ClassVar[bool] = False

    min_cluster_size: int = field(default=5, kw_only=False, metadata=about("rows of a cluster at least"))
    min_samples: int | None = field(default=None, kw_only=False, metadata=SAMPLES)
    cluster_selection_method: Selection = field(
        default="eom", metadata=about("which clusters are chosen", choices=get_args(Selection))
    )
    cluster_selection_epsilon: float = field(
        default=0.0, metadata=about("distance within which clusters are not split")
    )
    max_cluster_size: int | None = field(default=None, metadata=about("rows of a cluster at most"))
    allow_single_cluster: bool = field(default=False, metadata=about("let all rows be one cluster"))

    def least(self) -> int:
        """How many rows a cluster has at least."""
        return check_whole("min_cluster_size", self.min_cluster_size, 2)

    def samples(self) -> int:
        """How many rows make a core row: by default as many as a cluster has at least."""
        return self.least() if self.min_samples is None else check_whole("min_samples", self.min_samples, 1)

    def choice(self) -> Choice:
        """Which clusters are chosen."""
        check_choice("cluster_selection_method", self.cluster_selection_method, get_args(Selection))
        name, (metric, _) = "cluster_selection_epsilon", check_metric(self.metric, self.p)
        most = self.max_cluster_size
        if most is not None:
            most = check_whole("max_cluster_size", most, 1)
        if most is not None and most < self.least():
            raise OptionError(
                f"max_cluster_size={shown(most)} is less than min_cluster_size={self.least()}; use at least "
                "as many, or None."
            )
        return Choice(
            self.cluster_selection_method,
            check_eps(without_unit(self.cluster_selection_epsilon, metric, name), name),
            math.inf if most is None else float(most),
            check_flag("allow_single_cluster", self.allow_single_cluster),
        )

    def spec(self, meta: Frame) -> JoinSpec:
        """Resolve it for frames like `meta`."""
        return resolve(self, meta, 0.0)
