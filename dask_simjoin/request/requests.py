"""The requests of the verbs: their options, with types, defaults and checks.

A request holds the options of one call. `spec` checks them against the frames, and
returns the options of the join. Fields that are not keyword-only are positional
options.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, get_args

from dask_simjoin.catalog import AUTO, HOME, LOSSY_NEAREST, NEAREST, name_of
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.columns import ROW_ID
from dask_simjoin.request.messages import did_you_mean, shown
from dask_simjoin.request.options import (
    EPS_HELP,
    PAIRS,
    Conditions,
    Coordinates,
    Distance,
    EngineOption,
    Kept,
    MayLose,
    Method,
    MetricRequest,
    Nearest,
    OfTwoTables,
    Paired,
    Pairs,
    Radii,
    Radius,
    TwoTableOptions,
    Within,
    WithUnit,
    about,
    check_whole,
)
from dask_simjoin.request.resolve import (
    check_flag,
    check_one_table,
    keeping,
    losing,
    resolve,
    resolve_two,
    searched,
)
from dask_simjoin.request.spec import JoinSpec, bare, for_matches
from dask_simjoin.request.units import (
    check_choice,
    check_distance,
    check_once,
    in_unit,
    several_of,
    with_unit,
    within_several,
)

How = Literal["inner", "left", "right", "outer", "leftsemi", "leftanti"]
GraphMode = Literal["distance", "connectivity"]
NearestHow = Literal["inner", "left", "leftanti"]
Ties = Literal["first", "all"]
Matching = Literal["all", "greedy"]

INNER, LEFT, RIGHT, OUTER, SEMI, ANTI = HOW = get_args(How)

KEEPS = {LEFT: ("left",), RIGHT: ("right",), OUTER: ("left", "right")}
"""Value of `how` -> the tables whose rows without a match are in the result, too."""

FULL = {"full": OUTER, "fullouter": OUTER, "full_outer": OUTER}
"""Other names of a value of `how`."""

ALL_TIES = "all"
"""Value of `ties` for a result with all rows at the distance of the last neighbor."""

ALL_PAIRS, GREEDY = get_args(Matching)
"""Values of `matching`. With "greedy", each row is in at most one pair."""

MIN_DISTANCE = (AUTO, "tiles")
"""Methods that support `min_distance` and ``ties="all"``."""

DISTANCE = about("largest distance of neighbors, finite")
SAMPLES = about(
    "a core row has at least this many rows within the distance, counting itself"
)
HOW_HELP = (
    "pairs (inner), also rows without a pair (left, right, outer), or rows with or "
    "without one (leftsemi, leftanti)"
)
SEVERAL = about(
    "largest distance of a pair, several distances, or a column with one distance per "
    "row"
)


@dataclass(frozen=True, kw_only=True)
class CountPairsRequest(Paired):
    """Request for the number of pairs."""

    names_rows: ClassVar[bool] = False

    eps: Radii = field(kw_only=False, metadata=SEVERAL)  # type: ignore[assignment]

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        several = several_of(self.eps, self.metric, self.p)
        spec = resolve(self, meta, self.eps if several is None else max(several))
        return _paired(self, within_several(spec, several))


@dataclass(frozen=True, kw_only=True)
class SelfJoinRequest(Paired, Kept, WithUnit):
    """Request for the pairs of rows of one table."""

    return_distance: bool = field(
        default=False, metadata=about("add the distance of each pair")
    )

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        spec = keeping(self, _paired(self, resolve(self, meta, self.eps)), meta)
        return with_unit(spec, self.distance_unit, self.eps)


@dataclass(frozen=True, kw_only=True)
class NeighborCountsRequest(OfTwoTables, Conditions, MayLose):
    """Request for the number of neighbors of each row, in the same table or in another."""

    radii: ClassVar[bool] = True
    names_rows: ClassVar[bool] = False

    eps: Radii = field(kw_only=False, metadata=SEVERAL)
    other: Frame | None = field(
        default=None,
        repr=False,
        compare=False,
        metadata=about("table whose rows are counted; default: the same table"),
    )

    def spec(self, left: Frame, right: Frame | None = None) -> JoinSpec:
        """Check the request for frames like `left` and `right`, or for one; return the
        join's options.
        """
        several = several_of(self.eps, self.metric, self.p)
        check_once(several or ())
        eps = self.eps if several is None else max(several)
        if right is None:
            check_one_table(self)
            return within_several(resolve(self, left, eps), several)
        return within_several(resolve_two(self, left, right, eps), several)


@dataclass(frozen=True, kw_only=True)
class NeighborGraphRequest(MetricRequest, Conditions, EngineOption, WithUnit):
    """Request for the neighbors of rows as a sparse matrix."""

    names_rows: ClassVar[bool] = False

    eps: Distance = field(kw_only=False, metadata=DISTANCE)
    mode: GraphMode = field(
        default="distance",
        metadata=about("values of the matrix entries", choices=get_args(GraphMode)),
    )
    include_self: bool = field(
        default=False, metadata=about("count each row as its own neighbor")
    )

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        spec = symmetric(resolve(self, meta, self.eps), "neighbor_graph()")
        return in_unit(spec, self.distance_unit, self.eps)


@dataclass(frozen=True, kw_only=True)
class FittedRowsRequest(SelfJoinRequest):
    """Request for the rows that an estimator of neighbors searches."""

    names_rows: ClassVar[bool] = False

    pairs: Pairs = field(default="both", metadata=PAIRS)
    return_distance: bool = field(default=True, metadata=about("always"))


@dataclass(frozen=True, kw_only=True)
class OneToOne:
    """Option: whether each row is in at most one pair."""

    matching: Matching = field(
        default=ALL_PAIRS,
        metadata=about(
            "all pairs, or each row in at most one pair, best pairs first (greedy)",
            choices=get_args(Matching),
        ),
    )

    def is_greedy(self, how: str = INNER) -> bool:
        """Return whether pairs are matched. Raise an error for joins whose result has no
        pairs.
        """
        if self.matching == GREEDY and how in (SEMI, ANTI):
            raise OptionError(
                f"how={how!r} is not allowed with matching={GREEDY!r}. Use "
                f"how={LEFT!r}, and select the rows whose 'right' is missing or not."
            )
        return self.matching == GREEDY

    def check_all_pairs(self) -> None:
        """Raise an error for plans of one table, or of nearest rows."""
        check_choice("matching", self.matching, get_args(Matching))
        if self.matching == GREEDY:
            raise OptionError(
                f"matching={shown(self.matching)} is for joins of two tables within a "
                "distance; leave it out."
            )


@dataclass(frozen=True, kw_only=True)
class JoinRequest(TwoTableOptions, Conditions, MayLose, WithUnit, OneToOne):
    """Request for the pairs of two tables, or for the left rows with or without a
    match.
    """

    radii: ClassVar[bool] = True

    other: Frame = field(
        kw_only=False, repr=False, compare=False, metadata=about("right table")
    )
    eps: Radius = field(kw_only=False, metadata=about(EPS_HELP))
    how: How = field(default="inner", metadata=about(HOW_HELP, choices=HOW))
    return_distance: bool = field(
        default=False, metadata=about("add the distance of each pair")
    )

    def spec(self, left: Frame, right: Frame) -> JoinSpec:
        """Check the request for these two frames; return the options of the join."""
        check_how(self.how)
        spec = keeping(self, resolve_two(self, left, right, self.eps), left, right)
        greedy = self.is_greedy(self.how)
        if self.how in (SEMI, ANTI):
            return for_matches(spec)
        if self.how in (RIGHT, OUTER) and not greedy:
            self._check_both_directions(spec)
        spec = replace(spec, result=spec.result._replace(matching=greedy))
        return with_unit(spec, self.distance_unit, self.eps)

    def _check_both_directions(self, spec: JoinSpec) -> None:
        """Raise an error if matches cannot be counted for each row of `other`."""
        if spec.radius is not None:
            raise OptionError(
                f"how={self.how!r} is not allowed with eps={spec.radius!r}, a column "
                f"with one distance per left row. Use how={LEFT!r}, and add the rows "
                "of other whose ids are not in the column 'right' of the result."
            )
        if spec.search.approximate:
            raise OptionError(
                f"how={self.how!r} is not allowed with approximate=True, because a row "
                "could be missing from the result, or be in it twice. Leave out "
                f"approximate=, or use how={LEFT!r}."
            )


@dataclass(frozen=True, kw_only=True)
class NearestPairsRequest(Nearest, TwoTableOptions, Within, WithUnit):
    """Base of requests for pairs of nearest neighbors, in one table or two."""

    bound: ClassVar[str] = "max_distance"
    return_distance: ClassVar[bool] = True

    max_distance: Distance | None = field(
        default=None, metadata=about("largest distance of a pair")
    )
    method: Method = field(
        default="auto",
        metadata=about("algorithm that finds neighbors", choices=NEAREST),
    )

    def max_total(self, spec: JoinSpec) -> float:
        """Return the largest total of a pair. A total is a distance before its root is
        taken.
        """
        return math.inf if self.max_distance is None else spec.limit_of_pairs

    def _searched(self, left: Frame, right: Frame | None) -> JoinSpec:
        """Check the request for these frames. Raise an error if the method cannot
        search neighbors.
        """
        eps = 0.0 if self.max_distance is None else self.max_distance
        if right is None:
            check_one_table(self)
            return keeping(self, searched(resolve(self, left, eps)), left)
        return keeping(self, searched(resolve_two(self, left, right, eps)), left, right)


@dataclass(frozen=True, kw_only=True)
class KnnJoinRequest(NearestPairsRequest, Conditions, MayLose):
    """Request for the nearest rows of each row, in the same table or in another."""

    lossy: ClassVar[tuple[str, ...]] = LOSSY_NEAREST

    other: Frame | None = field(
        default=None,
        kw_only=False,
        repr=False,
        compare=False,
        metadata=about("table to search for neighbors; default: the same table"),
    )
    k: int = field(
        default=10, kw_only=False, metadata=about("number of neighbors per row")
    )
    how: NearestHow = field(
        default="inner",
        metadata=about(
            "pairs (inner), also rows without a neighbor (left), or only these rows "
            "(leftanti)",
            choices=get_args(NearestHow),
        ),
    )
    mutual: bool = field(
        default=False,
        metadata=about(
            "keep only pairs whose rows are among the k nearest of each other"
        ),
    )
    ties: Ties = field(
        default="first",
        metadata=about(
            "of rows at the distance of the k-th neighbor, return the first ones or "
            "all",
            choices=get_args(Ties),
        ),
    )
    max_distance: Distance | None = field(
        default=None, metadata=about("largest distance of a neighbor")
    )
    min_distance: Distance | None = field(
        default=None, metadata=about("smallest distance of a neighbor")
    )
    approximate: bool = field(
        default=False,
        metadata=about(
            "with method='zorder', return neighbors that may not be the nearest"
        ),
    )

    def number(self) -> int:
        """Return the checked `k`: the number of neighbors per row."""
        return check_whole("k", self.k, 1)

    @property
    def all_ties(self) -> bool:
        """Whether rows at the distance of the last neighbor are all returned."""
        return self.ties == ALL_TIES

    def spec(self, left: Frame, right: Frame | None = None) -> JoinSpec:
        """Check the request for frames like `left` and `right`, or for one; return the
        join's options.
        """
        self._check_how()
        spec = self._searched(left, right)
        self._check_min_distance(spec)
        if self.all_ties:
            self._check_engine(spec, f"ties={self.ties!r}", "rows at the same distance")
        if self.mutual:
            symmetric(spec, "mutual=True")
        if self.how == ANTI:
            return bare(spec)
        return with_unit(spec, self.distance_unit, self.max_distance, self.min_distance)

    def _check_min_distance(self, spec: JoinSpec) -> None:
        """Raise an error if `min_distance` is invalid, or if the method or library does
        not support it.
        """
        least = self._least(spec)
        if least is None:
            return
        given = f"min_distance={shown(self.min_distance)}"
        if self.max_distance is not None and least > spec.eps:
            raise OptionError(
                f"{given} is larger than max_distance={shown(self.max_distance)}, so "
                "no row would have a "
                "neighbor; use a smaller min_distance=."
            )
        self._check_engine(spec, given, "neighbors beyond it")

    def _check_engine(self, spec: JoinSpec, given: str, missed: str) -> None:
        """Raise an error if the method or library does not support an option.

        `given`: the option with its value. `missed`: what the method does not find.
        """
        if spec.search.approximate or name_of(spec.search.method) not in MIN_DISTANCE:
            raise OptionError(
                f"{given} is not allowed with method={name_of(spec.search.method)!r}"
                f"{' and approximate=True' if spec.search.approximate else ''}, which may "
                f"miss {missed}; "
                f"use method={' or '.join(map(repr, MIN_DISTANCE))}, which finds all "
                "neighbors."
            )
        if spec.library != HOME:
            raise OptionError(
                f"{given} is not allowed for frames of {spec.library!r}: searches on "
                "GPUs do not support it. "
                "Convert the tables with ddf.to_backend('pandas'), or "
                "frame.to_pandas()."
            )

    def _least(self, spec: JoinSpec) -> float | None:
        """Return `min_distance` in the unit of the metric; None: no limit."""
        least = self.min_distance
        return (
            None
            if least is None
            else check_distance(least, spec.measure, "min_distance")
        )

    def _check_how(self) -> None:
        """Raise an error if `how` is unknown, or if it cannot be combined with
        `mutual`.
        """
        check_how(
            self.how,
            f"other.simjoin.knn_join(frame, k, how={LEFT!r})",
            get_args(NearestHow),
        )
        if self.mutual and self.how != INNER:
            raise OptionError(
                f"how={self.how!r} is not allowed with mutual=True; leave out one of "
                "them. To find rows "
                "without a mutual neighbor, drop the ids of the mutual neighbors from "
                "the frame."
            )

    def min_total(self, spec: JoinSpec) -> float:
        """Return the smallest total of a neighbor: see `max_total`."""
        least = self._least(spec)
        return 0.0 if least is None else spec.measure.least_total(least)


@dataclass(frozen=True, kw_only=True)
class ClosestPairsRequest(NearestPairsRequest):
    """Request for the closest pairs of one table or two."""

    groups_need_bound: ClassVar[bool] = False

    n: int = field(kw_only=False, metadata=about("number of pairs"))
    other: Frame | None = field(
        default=None,
        kw_only=False,
        repr=False,
        compare=False,
        metadata=about("right table"),
    )
    per_group: bool = field(
        default=False, metadata=about("find the n closest pairs of each group of by")
    )

    def number(self) -> int:
        """Return the checked `n`: the number of pairs."""
        return check_whole("n", self.n, 1)

    def spec(self, left: Frame, right: Frame | None = None) -> JoinSpec:
        """Check the request for frames like `left` and `right`, or for one; return the
        join's options.
        """
        if check_flag("per_group", self.per_group) and self.by is None:
            raise OptionError("per_group=True needs by=, the columns of the groups.")
        return with_unit(
            self._searched(left, right), self.distance_unit, self.max_distance
        )


@dataclass(frozen=True, kw_only=True)
class KDistancesRequest(Nearest, Conditions, WithUnit):
    """Request for the distance from each row to its k-th nearest neighbor."""

    names_rows: ClassVar[bool] = False
    bound: ClassVar[str] = "max_distance"

    k: int = field(
        kw_only=False, metadata=about("rank of the neighbor whose distance is returned")
    )
    max_distance: Distance | None = field(
        default=None, metadata=about("largest distance of a neighbor")
    )

    def number(self) -> int:
        """Return the checked `k`: the rank of the neighbor."""
        return check_whole("k", self.k, 1)

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the request for frames like `meta`; return the options of the join."""
        eps = 0.0 if self.max_distance is None else self.max_distance
        spec = searched(resolve(self, meta, eps))
        return in_unit(spec, self.distance_unit, self.max_distance)

    def totals(self, spec: JoinSpec) -> tuple[float, float]:
        """Return the smallest and the largest total of a neighbor."""
        return 0.0, math.inf if self.max_distance is None else spec.limit_of_pairs


@dataclass(frozen=True, kw_only=True)
class RowIdRequest:
    """Request for a column of row numbers."""

    name: str = field(
        default=ROW_ID, kw_only=False, metadata=about("name of the new column")
    )


def check_how(how: object, swapped: str = "", allowed: tuple[str, ...] = HOW) -> None:
    """Raise an error if `how` is unknown.

    `swapped`: the call that the message recommends instead of a right join, for verbs
    that have none.
    """
    if not isinstance(how, str) or how not in allowed:
        meant = FULL.get(how, how) if isinstance(how, str) else how
        hint = did_you_mean(meant, allowed)
        if isinstance(how, str) and how == "right":
            hint = (
                f". Or swap the tables: {swapped}. The columns 'left' and 'right' of "
                "the result are then swapped, too"
            )
        elif isinstance(how, str) and how == "outer":
            anti = swapped.replace(repr(LEFT), "'leftanti'")
            hint = f". Or use how={LEFT!r}, and add the rows of {anti}"
        raise OptionError(
            f"how={shown(how)} is not allowed; use one of "
            f"{', '.join(map(repr, allowed))}{hint}."
        )


def _paired(request: Paired, spec: JoinSpec) -> JoinSpec:
    """Raise an error for ``pairs="unique"`` if each row has its own distance."""
    if spec.radius is not None and spec.result.pairs != "both":
        raise OptionError(
            f"eps={spec.radius!r} names a column with one distance per row, so a pair "
            "may match in one "
            "direction only. Use pairs='both': each pair is then within the distance "
            "of its left row."
        )
    if spec.directed and spec.result.pairs != "both":
        raise OptionError(
            "within= has a range that is not the same in both directions, so a pair "
            "may match in one direction only. Use pairs='both': the right row's value "
            "minus the left row's value is then in the range."
        )
    return spec


def symmetric(spec: JoinSpec, verb: str) -> JoinSpec:
    """Raise an error if `within` has a range that is not the same in both directions."""
    if spec.coordinates.gates.one_sided:
        raise OptionError(
            f"within= has a range that is not the same in both directions, and {verb} "
            "needs rows that are near each other. Use a tolerance, such as '10 min', "
            "or a range such as ('-10 min', '10 min')."
        )
    return spec


NO_EPS = "eps= is missing; use a finite number >= 0, or k= for a join with nearest neighbors."


@dataclass(frozen=True, kw_only=True)
class PlannedKnnJoinRequest(KnnJoinRequest):
    """Request for the plan of a nearest-neighbor join. Its largest distance is called
    `eps`.
    """

    bound: ClassVar[str] = "eps"


@dataclass(frozen=True, kw_only=True)
class PlanRequest(TwoTableOptions, Conditions, MayLose, WithUnit, OneToOne):
    """Request for the plan of a self-join, a join of two tables, or a nearest-neighbor
    join.
    """

    eps: Radius | None = field(default=None, kw_only=False, metadata=about(EPS_HELP))
    other: Frame | None = field(
        default=None, repr=False, compare=False, metadata=about("right table")
    )
    k: int | None = field(default=None, metadata=about("number of neighbors per row"))
    pairs: Pairs = field(default="unique", metadata=PAIRS)
    include_self: bool = field(
        default=False, metadata=about("also pair each row with itself")
    )
    return_distance: bool = field(
        default=False, metadata=about("add the distance of each pair")
    )

    def planned(self) -> SelfJoinRequest | JoinRequest | PlannedKnnJoinRequest:
        """Return the request of the join to plan."""
        if self.k is not None:
            self.check_all_pairs()
            return PlannedKnnJoinRequest(
                **self._shared(PlannedKnnJoinRequest) | {"max_distance": self.eps}
            )
        if self.eps is None:
            raise OptionTypeError(NO_EPS)
        if self.other is not None:
            return JoinRequest(**self._shared(JoinRequest))
        check_one_table(self)
        self.check_all_pairs()
        return SelfJoinRequest(**self._shared(SelfJoinRequest))

    def _shared(self, kind: type[MetricRequest]) -> dict[str, Any]:
        own = {option.name for option in fields(self)}
        return {
            option.name: getattr(self, option.name)
            for option in fields(kind)
            if option.name in own
        }


@dataclass(frozen=True, kw_only=True)
class ProfiledKnnJoinRequest(PlannedKnnJoinRequest):
    """Request for the profile of a nearest-neighbor search. Row ids are not read."""

    names_rows: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class DistanceProfileRequest(Coordinates, MayLose):
    """Request for the profile of a self-join by distance, or of a nearest-neighbor
    search within one table.
    """

    eps: Distance | None = field(default=None, kw_only=False, metadata=DISTANCE)
    k: int | None = field(default=None, metadata=about("number of neighbors per row"))

    def nearest(self) -> ProfiledKnnJoinRequest | None:
        """Return the request of the search to profile; None: profile a self-join."""
        if self.k is None:
            return None
        return ProfiledKnnJoinRequest(
            **self._shared() | {"k": self.k, "max_distance": self.eps}
        )

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the options of a self-join for frames like `meta`."""
        if self.eps is None:
            raise OptionTypeError(NO_EPS)
        same = self._shared() | {"eps": self.eps}
        approximate = same.pop("approximate")
        return losing(NeighborGraphRequest(**same).spec(meta), approximate)

    def _shared(self) -> dict[str, Any]:
        return {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in ("eps", "k")
        }
