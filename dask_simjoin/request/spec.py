"""The checked options of one join, with the names of its columns."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from dask_simjoin.catalog import MAX_DIMS, METHODS, Method, choices_of, name_of
from dask_simjoin.errors import TABLES, OptionError
from dask_simjoin.metrics.distances import (
    ByFormula,
    Formula,
    Gated,
    Grouped,
    Metric,
    Periodic,
    Totals,
    make_metric,
)
from dask_simjoin.metrics.gates import Compared, Gates
from dask_simjoin.metrics.norms import Array, ArrayModule, DType, Norm, Series
from dask_simjoin.request.column_names import are_points
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import Settings, read_settings

NO_GATES = Gates()


class DistanceUnit(NamedTuple):
    """A unit for returned distances."""

    name: str
    size: float  # size of one unit, in the unit of the metric; in radians for "cosine"


class Limit(NamedTuple):
    """The largest distance of a pair, and how it was passed."""

    # finite and not negative; the largest of several, and after the column of radii has
    # been read, its maximum
    eps: float
    option: str = "eps"  # name of the option
    # a value, and the text with a unit that it was passed as
    text: tuple[float, str] | None = None
    radius: Hashable | None = None  # column with one largest distance per row
    several: tuple[float, ...] = ()  # distances that are counted separately


class MetricOptions(NamedTuple):
    name: str = "euclidean"
    p: Norm = 2


class Coordinates(NamedTuple):
    """How the columns `on` are read."""

    # number of dimensions; None: unknown before the data are read
    dims: int | None = None
    lists: bool = False  # whether `on` is one column of lists
    # columns that must be equal in both rows of a pair. If there are any, the last
    # column of `on` has group numbers
    by: tuple[Hashable, ...] = ()
    dropna: bool = False
    # whether tasks read narrow points, because the plan says so: see `engine.compat`
    narrow: bool = False
    # further conditions on both rows of a pair. If there are any, their columns are the
    # last columns of `on`
    gates: Gates = NO_GATES
    # length of each named column in a periodic box, 0 if it is open; empty: no column
    # is periodic
    box: tuple[float, ...] = ()

    @property
    def added(self) -> int:
        """Number of columns at the end of `on` that were added for `by` and gates."""
        return bool(self.by) + len(self.gates.columns)


class DefaultColumns(NamedTuple):
    """Notes about columns of coordinates that were chosen by default."""

    # integer columns among them, if there are also float columns
    integers: tuple[Hashable, ...]
    # numeric columns that are not among them, such as decimals, and their dtypes
    left_out: tuple[tuple[Hashable, str], ...] = ()


class ResultOptions(NamedTuple):
    """Which pairs a result has, and whether it has their distances."""

    pairs: str = "unique"
    include_self: bool = False
    distance: bool = False
    matching: bool = False  # whether each row is in at most one pair
    # the unit of returned distances; None: the unit of the metric
    unit: DistanceUnit | None = None
    # counts of at least this number need not be exact; None: all counts are exact
    enough: int | None = None


class SearchOptions(NamedTuple):
    method: str | Method = "auto"  # a name, or an object with options of the method
    approximate: bool = False


class ChunkOptions(NamedTuple):
    partitioning: str = "auto"
    blocksize: int | None = None  # see `RowSpec`


class RowSpec:
    """Options that all kinds of joins share: columns, ids, kept columns and settings."""

    on: tuple[Hashable, ...]  # columns that are compared
    id: Hashable | None  # column of ids; None: the index
    # dtype of the ids in the empty example of the frame; partitions may have other
    # dtypes
    id_dtype: DType
    keep: tuple[Hashable, ...]  # columns that are copied to the result
    # names of these columns in the result: first of left rows, then of right rows
    names: tuple[str, ...]
    # the names that the result has, in order; None: all of them
    wanted: tuple[str, ...] | None
    # the configuration when the join was built; joins with different settings are
    # different joins to Dask
    settings: Settings
    library: str  # the data frame library of the partitions
    is_swapped: bool  # whether the left table is the right table of the call

    kind: ClassVar[str] = ""
    """Begins the names of verbs, before "self_join": "set_", say."""

    @property
    def of_lists(self) -> bool:
        """Whether the compared column holds lists."""
        return False

    @property
    def same_options(self) -> str | None:
        """The options that determine distances, as a message repeats them for
        `k_distances`: ", on=['x', 'y'], metric='manhattan'". None: it does not have
        them.
        """
        return None

    @property
    def blocksize(self) -> int | None:
        """Bytes of a chunk; None: derived from the memory of the workers."""
        raise NotImplementedError

    @property
    def request(self) -> str:
        """The option that limits the pairs, with its value, as messages show it:
        "eps=1".
        """
        raise NotImplementedError

    @property
    def unnamed(self) -> str:
        """A note for reports if columns were chosen by default; "" if the user named
        them.
        """
        return ""

    @property
    def score(self) -> str | None:
        """Name of the result column with distances or similarities; None if it was not
        requested.
        """
        raise NotImplementedError

    @property
    def matching(self) -> bool:
        """Whether each row is in at most one pair of the result."""
        return False

    def ranked(self, position: str | None) -> Self:
        """Return the options of the join whose pairs are matched one to one. Its result
        has row numbers, and totals or similarities.

        `position`: name of the column of row numbers; None: the index has them.
        """
        raise NotImplementedError

    def scores(self, totals: Array, left: Series, right: Series) -> Array:
        """Return the values of `score` for pairs, from the totals of `ranked`. `left`,
        `right`: the compared values of both rows.
        """
        raise NotImplementedError

    @property
    def shown_columns(self) -> tuple[Hashable, ...]:
        """The compared columns that reports show."""
        return self.on

    @property
    def other(self) -> Self | None:
        """The options for the right table; None: there is only one table."""
        return None

    @property
    def radius(self) -> Hashable | None:
        """Name of the column with one largest distance per row; None: `eps` applies to
        all rows.
        """
        return None

    @property
    def several(self) -> tuple[float, ...]:
        """Several distances that are counted separately; empty: there is only one."""
        return ()

    @property
    def tables(self) -> tuple[str, str]:
        """The names of both tables in messages."""
        return TABLES[::-1] if self.is_swapped else TABLES

    @property
    def columns(self) -> list[Hashable]:
        """The columns that the join reads."""
        own = [] if self.id is None else [self.id]
        own += [] if self.radius is None else [self.radius]
        return list(dict.fromkeys([*self.on, *own, *self.keep]))

    @property
    def right(self) -> Self:
        """The options for the right table; there must be two tables."""
        assert self.other is not None
        return self.other

    @property
    def kept_left(self) -> dict[str, Hashable]:
        """Kept columns of left rows: name in the result -> column."""
        return dict(zip(self.names, self.keep, strict=False))

    @property
    def kept_right(self) -> dict[str, Hashable]:
        """Kept columns of right rows: name in the result -> column."""
        if self.other is not None:
            return self.other.kept_left
        return dict(zip(self.names[len(self.keep) :], self.keep, strict=True))


@dataclass(frozen=True)
class JoinSpec(RowSpec):
    """The options of one join by distance. Fields without a comment are as in
    `RowSpec`.
    """

    limit: Limit
    on: tuple[Hashable, ...]  # columns of coordinates; squares are summed in this order
    id: Hashable | None = None
    id_dtype: DType = None
    keep: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    wanted: tuple[str, ...] | None = None
    metric: MetricOptions = field(default_factory=MetricOptions)
    coordinates: Coordinates = field(default_factory=Coordinates)
    defaults: DefaultColumns | None = None  # None: the user named the coordinates
    result: ResultOptions = field(default_factory=ResultOptions)
    search: SearchOptions = field(default_factory=SearchOptions)
    chunks: ChunkOptions = field(default_factory=ChunkOptions)
    settings: Settings = field(default_factory=read_settings)
    library: str = "pandas"
    is_swapped: bool = False
    # options for the right table; None: there is only one table
    other: JoinSpec | None = None

    @property
    def eps(self) -> float:
        """Largest distance of a pair."""
        return self.limit.eps

    def with_eps(self, eps: float) -> Self:
        return replace(self, limit=self.limit._replace(eps=eps))

    def with_dims(self, dims: int | None) -> Self:
        return replace(self, coordinates=self.coordinates._replace(dims=dims))

    @property
    def radius(self) -> Hashable | None:
        """Name of the column with one largest distance per row; None: `eps` applies to
        all rows.
        """
        return self.limit.radius

    @property
    def several(self) -> tuple[float, ...]:
        """Several distances that are counted separately; empty: there is only one."""
        return self.limit.several

    @property
    def blocksize(self) -> int | None:
        """Bytes of a chunk; None: derived from the memory of the workers."""
        return self.chunks.blocksize

    @property
    def read_together(self) -> tuple[tuple[Hashable, ...], ...]:
        """The columns of coordinates, in tuples of columns that are read by one call.

        A column of lists is read alone.
        """
        if self.coordinates.lists and self.coordinates.added:
            return self.on[:1], self.on[1:]
        return (self.on,)

    @property
    def named(self) -> tuple[Hashable, ...]:
        """The columns of coordinates that the user named or that were chosen by
        default.
        """
        return self.on[: len(self.on) - self.coordinates.added]

    @property
    def shown_columns(self) -> tuple[Hashable, ...]:
        return self.on[: len(self.on) - self.coordinates.gates.words]

    @property
    def gates(self) -> Gates:
        """The conditions on both rows of a pair, besides the distance."""
        gates = self.coordinates.gates
        # in a self-join, joiners find each pair once, and tasks check both directions
        return gates.two_sided if self.other is None else gates

    @property
    def gated(self) -> bool:
        """Whether pairs in all coordinates are candidates, which other rules decide."""
        box = self.coordinates.box
        return bool(self.coordinates.gates.columns or box or self.measure.formula)

    @property
    def compared(self) -> Compared:
        """The columns whose own numbers decide."""
        box = self.coordinates.box
        if box:
            return Compared(len(box), len(box) + sum(map(bool, box)), box)
        metric = make_metric(*self.metric)
        if not isinstance(metric, Formula):
            return Compared()
        numbers = len(self.named)
        if self.coordinates.lists:
            dims = self.coordinates.dims or 0
            numbers = (dims - self.coordinates.added - metric.more) // 3
        return Compared(numbers, numbers + metric.more, (), metric.formula)

    @property
    def words(self) -> int:
        """Number of coordinates that are words: see `dask_simjoin.metrics.gates`."""
        return self.coordinates.gates.words + 2 * self.compared.numbers

    @property
    def conditions(self) -> tuple[Hashable, ...]:
        """The columns of ``by=``, ``within=`` and ``different=``."""
        return (*self.coordinates.by, *self.coordinates.gates.conditions)

    @property
    def directed(self) -> bool:
        """Whether two rows of a table may be a pair in only one direction."""
        one_sided = self.other is None and self.coordinates.gates.one_sided
        return self.radius is not None or one_sided

    @property
    def unnamed(self) -> str:
        """A note for reports if coordinates were chosen by default; "" if the user
        named them.
        """
        return "" if self.defaults is None else ", all numeric columns"

    @property
    def request(self) -> str:
        """The option that limits the pairs, with its value, as messages show it:
        "eps=1".
        """
        eps, option, text, radius, several = self.limit
        if text is not None and text[0] == eps:
            return f"{option}={text[1]}"
        value = eps if radius is None else repr(radius)
        if several:
            value = shown(list(several))
        return f"{option}={value} {self.measure.unit}".rstrip()

    @property
    def of_lists(self) -> bool:
        """Whether the compared column holds lists."""
        return self.coordinates.lists

    @property
    def same_options(self) -> str | None:
        if self.coordinates.added or self.coordinates.box:  # not in `k_distances`
            return None
        given: dict[str, Any] = {}
        if self.defaults is None and not are_points(self.named):
            given["on"] = list(self.named)
        if self.metric.name != MetricOptions().name:
            given["metric"] = self.metric.name
        if self.metric.name == "minkowski":
            given["p"] = self.metric.p
        return "".join(f", {name}={value!r}" for name, value in given.items())

    @property
    def score(self) -> str | None:
        """Name of the result column with distances; None if it was not requested."""
        return "distance" if self.result.distance else None

    @property
    def matching(self) -> bool:
        return self.result.matching

    def numbered(self, position: str | None, **changes: Any) -> TotalsSpec:
        """Return the options of a search whose result has row numbers and totals, for
        one table.

        A total is a distance before its root is taken. `position`: name of the column
        of row numbers; None: the index has them.
        """
        none: dict[str, Any] = {"keep": (), "names": (), "wanted": None, "other": None}
        number = np.dtype(np.int64)
        return TotalsSpec.of(self, id=position, id_dtype=number, **none | changes)

    def ranked(self, position: str | None) -> JoinSpec:
        result = self.result._replace(distance=True, unit=None)
        other = None if self.other is None else self.other.ranked(position)
        return self.numbered(position, result=result, other=other)

    @property
    def measure(self) -> Metric:
        """The metric."""
        metric = plain = make_metric(*self.metric)
        if self.coordinates.by:
            metric = Grouped(metric)
        gates, box = self.coordinates.gates, self.coordinates.box
        if gates.columns:
            metric = Gated(metric, gates)
        if isinstance(plain, Formula):
            added, lists = self.coordinates.added, self.coordinates.lists
            return ByFormula(metric, plain, self.on, added, lists)
        return Periodic(metric, box, self.on) if box else metric

    @property
    def norm(self) -> Norm:
        """The norm of the coordinate differences.

        Its totals are compared with thresholds. A total is the sum before the root is
        taken.
        """
        return self.measure.norm

    @property
    def threshold(self) -> float:
        """Largest total of a pair in all coordinates: see `norm` and `limit_of_pairs`."""
        return self.measure.widened(self.limit_of_pairs)

    @property
    def limit_of_pairs(self) -> float:
        """Largest total of a pair, without the coordinates of gates."""
        return self.measure.threshold(self.eps)

    def limits_of_ties(self, totals: Array, xp: ArrayModule) -> Array:
        """For each total (n,), return the largest total with the same distance in the
        result.
        """
        metric, unit, totals = self.measure, self.result.unit, xp.array(totals)
        if unit is None:
            return metric.threshold(metric.distance(totals, xp), xp)
        away = metric.in_unit(totals, unit.size, xp)
        return metric.threshold(metric.from_unit(away, unit.size, xp), xp)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Largest total for each distance of `several`."""
        return tuple(self.measure.threshold(eps) for eps in self.several)


@dataclass(frozen=True)
class TotalsSpec(JoinSpec):
    """The options of a join that returns totals instead of distances.

    A later step converts them to `unit`.
    """

    @classmethod
    def of(cls, spec: JoinSpec, **changes: Any) -> Self:
        """Return a copy of `spec` that returns totals, with `changes`."""
        return cls(
            **{one.name: getattr(spec, one.name) for one in fields(JoinSpec)} | changes
        )

    @property
    def measure(self) -> Metric:
        """A metric whose distances are the totals."""
        return Totals(super().measure)


def without_ids(spec: JoinSpec) -> JoinSpec:
    """Remove the ids from a spec. Results without row ids do not need them, so ids may
    repeat.
    """
    return replace(spec, id=None, id_dtype=None)


Spec = TypeVar("Spec", bound=RowSpec)


def bare(spec: Spec) -> Spec:
    """Remove the ids and the kept columns from a spec, for a result that has neither."""
    other = None if spec.other is None else bare(spec.other)
    found: Any = spec  # Any, because mypy does not know that every spec is a dataclass
    resolved: Spec = replace(
        found, id=None, id_dtype=None, keep=(), names=(), wanted=None, other=other
    )
    return resolved


def for_matches(spec: Spec) -> Spec:
    """Return the spec of counts that only show which rows have a match."""
    found: Any = bare(spec)
    if isinstance(found, JoinSpec):
        found = replace(found, result=found.result._replace(enough=1))
    resolved: Spec = found
    return resolved


OWN_OF_TABLE = ("on", "id", "id_dtype", "keep", "names", "coordinates")
"""The options that may differ between both tables."""


def swapped(spec: Spec) -> Spec:
    """Return the options of the same join from the right table to the left one.

    Rows must be a pair in either both directions or none, except for ranges in
    ``within=``, which are mirrored. Messages name the tables as before.
    """
    found: Any = spec
    other: Any = spec.right
    names = [name for name in OWN_OF_TABLE if hasattr(found, name)]
    first, second = (
        {name: getattr(own, name) for name in names} for own in (other, found)
    )
    if "coordinates" in names:
        for own in (first, second):
            coordinates = own["coordinates"]
            own["coordinates"] = coordinates._replace(gates=coordinates.gates.mirrored)
    flag = not spec.is_swapped
    resolved: Spec = replace(
        found, **first, is_swapped=flag, other=replace(other, **second, is_swapped=flag)
    )
    return resolved


def check_dims(spec: JoinSpec) -> None:
    """Raise an error if there are more dimensions than the method or the library
    supports.
    """
    dims, lists, by = spec.coordinates[:3]
    if dims is None:
        return  # the number of dimensions is checked during planning, when it is known
    max_dims = MAX_DIMS[spec.library]
    has = f"the lists of column {spec.on[0]!r} have" if lists else "on= names"
    what = "numbers" if lists else "columns"
    gates = spec.coordinates.gates
    dims -= spec.words  # words are not compared
    added = [*["by="] * bool(by), *["within="] * len(gates.within)]
    has = f"{has} {dims - len(added):,}"
    if added:
        more = "one" if len(added) == 1 else f"{len(added)}"
        options = " and ".join(dict.fromkeys(added))
        has = f"{has}, and {options} {'adds' if len({*added}) == 1 else 'add'} {more}"
    served, method = choices_of(dims), name_of(spec.search.method)
    if method not in served:
        raise OptionError(
            f"method={method!r} takes at most {METHODS[method].max_dims} {what}, and "
            f"{has}; "
            f"use method={' or '.join(map(repr, served))}."
        )
    if max_dims is not None and dims > max_dims:
        raise OptionError(
            f"Frames of {spec.library!r} are joined on at most {max_dims:,} {what}, "
            f"and {has}; use "
            "fewer, or ddf.to_backend('pandas')."
        )
