"""Say what plans and profiles are asked for: the request of the join that they are of."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, get_args

from dask_simjoin.errors import OptionTypeError
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.groups import (
    Coordinates,
    Distance,
    MayLose,
    MetricRequest,
    Pairs,
    Radius,
    TwoTables,
    Within,
    about,
)
from dask_simjoin.options.requests import Join, KnnJoin, NeighborGraph, SelfJoin
from dask_simjoin.options.resolve import losing
from dask_simjoin.options.resolve_two import check_one_table
from dask_simjoin.options.spec import JoinSpec

NO_EPS = "eps= is missing; use a finite number >= 0, or k= of a join with nearest neighbours."


@dataclass(frozen=True, kw_only=True)
class PlannedKnnJoin(KnnJoin):
    """Ask for the plan of a join with nearest neighbours, whose largest distance is called `eps`."""

    bound: ClassVar[str] = "eps"


@dataclass(frozen=True, kw_only=True)
class Plan(TwoTables, Within, MayLose):
    """Ask for the plan of a self-join, of a join of two tables, or of one with nearest neighbours."""

    eps: Radius | None = field(
        default=None, kw_only=False, metadata=about("largest distance, or column of each row's own")
    )
    other: Frame | None = field(default=None, repr=False, compare=False, metadata=about("right table"))
    k: int | None = field(default=None, metadata=about("how many rows are found of each"))
    pairs: Pairs = field(
        default="unique", metadata=about("each pair once, or in both directions", choices=get_args(Pairs))
    )
    include_self: bool = field(default=False, metadata=about("pair each row with itself"))
    return_distance: bool = field(default=False, metadata=about("add each pair's distance"))

    def planned(self) -> SelfJoin | Join | PlannedKnnJoin:
        """The request that is to be planned."""
        if self.k is not None:
            return PlannedKnnJoin(**self._shared(PlannedKnnJoin) | {"max_distance": self.eps})
        if self.eps is None:
            raise OptionTypeError(NO_EPS)
        if self.other is not None:
            return Join(**self._shared(Join))
        check_one_table(self)
        return SelfJoin(**self._shared(SelfJoin))

    def _shared(self, kind: type[MetricRequest]) -> dict[str, Any]:
        own = {option.name for option in fields(self)}
        return {option.name: getattr(self, option.name) for option in fields(kind) if option.name in own}


@dataclass(frozen=True, kw_only=True)
class ProfiledKnnJoin(PlannedKnnJoin):
    """Ask what a search for nearest neighbours does; rows are not told by their ids."""

    names_rows: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Profile(Coordinates, MayLose):
    """Ask what a self-join does, or a search for the nearest neighbours of rows of one table."""

    eps: Distance | None = field(default=None, kw_only=False, metadata=about("largest distance, finite"))
    k: int | None = field(default=None, metadata=about("how many rows are found of each"))

    def nearest(self) -> ProfiledKnnJoin | None:
        """The search that is to be profiled; None: it is a self-join."""
        if self.k is None:
            return None
        return ProfiledKnnJoin(**self._shared() | {"k": self.k, "max_distance": self.eps})

    def spec(self, meta: Frame) -> JoinSpec:
        """Resolve a self-join for frames like `meta`."""
        if self.eps is None:
            raise OptionTypeError(NO_EPS)
        same = self._shared() | {"eps": self.eps}
        approximate = same.pop("approximate")
        return losing(NeighborGraph(**same).spec(meta), approximate)

    def _shared(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("eps", "k")}
