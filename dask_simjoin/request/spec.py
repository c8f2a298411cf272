"""The checked and resolved options of one join."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self

from dask_simjoin.catalog import MAX_DIMS, METHODS, Method, choices_of, name_of
from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.distances import Grouped, Metric, Totals, make_metric
from dask_simjoin.metrics.norms import DType, Norm
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import Settings, current_settings


class DistanceUnit(NamedTuple):
    """A unit of returned distances."""

    name: str
    size: float  # in units of the metric; for "cosine", in radians of the angle


class RowSpec:
    """Options that all joins share: columns, ids, kept columns and settings."""

    on: tuple[Hashable, ...]  # the columns that decide which rows are pairs
    id: Hashable | None  # the column that names the rows; None: the index
    id_dtype: DType  # dtype of the ids in the frame's example; a partition may have another dtype
    keep: tuple[Hashable, ...]  # columns whose values the result has
    names: tuple[str, ...]  # their names in the result: first for left rows, then for right rows
    blocksize: int | None  # bytes of a chunk; None: from the workers' memory
    settings: Settings  # the configuration when the join was built: another configuration makes another join
    library: str  # the data frame library of the partitions

    @property
    def request(self) -> str:
        """The option that limits pairs, such as "eps=1", in messages."""
        raise NotImplementedError

    @property
    def unnamed(self) -> str:
        """A note for reports if columns were chosen by default, else ""."""
        return ""

    @property
    def score(self) -> str | None:
        """Name of the result column of distances or similarities; None: there is none."""
        raise NotImplementedError

    @property
    def other(self) -> Self | None:
        """The options for the right table; None: there is one table."""
        return None

    @property
    def radius(self) -> Hashable | None:
        """The column with a largest distance for each row; None: `eps` is for all rows."""
        return None

    @property
    def columns(self) -> list[Hashable]:
        """The columns of the frame that the join reads."""
        own = [] if self.id is None else [self.id]
        own += [] if self.radius is None else [self.radius]
        return list(dict.fromkeys([*self.on, *own, *self.keep]))

    @property
    def right(self) -> Self:
        """The options for the right table, which must exist."""
        assert self.other is not None
        return self.other

    @property
    def kept_left(self) -> dict[str, Hashable]:
        """Name in the result -> column of the left row."""
        return dict(zip(self.names, self.keep, strict=False))

    @property
    def kept_right(self) -> dict[str, Hashable]:
        """Name in the result -> column of the right row."""
        if self.other is not None:
            return self.other.kept_left
        return dict(zip(self.names[len(self.keep) :], self.keep, strict=True))


@dataclass(frozen=True)
class JoinSpec(RowSpec):
    """The options of one join; fields without a comment are as in `RowSpec` or in `self_join`."""

    eps: float  # largest distance of a pair, finite and not negative
    on: tuple[Hashable, ...]  # columns of coordinates; squares are summed in this order
    id: Hashable | None = None
    metric: str = "euclidean"
    p: Norm = 2
    dims: int | None = None  # dimensions of the points; None: unknown before the data are read
    lists: bool = False  # whether `on` is one column of lists
    pairs: str = "unique"
    include_self: bool = False
    return_distance: bool = False
    dropna: bool = False
    method: str | Method = "auto"  # a name, or an object with options of the method
    approximate: bool = False
    partitioning: str = "auto"
    blocksize: int | None = None
    settings: Settings = field(default_factory=current_settings)
    id_dtype: DType = None
    library: str = "pandas"
    radius: Hashable | None = None
    """The column with a largest distance for each row; `eps` is its maximum, once that is known."""
    keep: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    other: JoinSpec | None = None  # options for the right table; None: there is one table
    bound: str = "eps"  # the name of the option that gave `eps`
    several: tuple[float, ...] = ()  # several distances, for counts within each; `eps` is the largest
    chosen: tuple[Hashable, ...] | None = None
    """Integer columns among the default coordinates, if there are float columns; None: `on` was passed."""
    by: tuple[Hashable, ...] = ()
    """Columns that must be equal in both rows of a pair; group numbers are then the last column of `on`."""
    unit: DistanceUnit | None = None  # the unit of returned distances; None: the unit of the metric

    @property
    def read_together(self) -> tuple[tuple[Hashable, ...], ...]:
        """The columns of coordinates, in sets to read at once: a column of lists is read by itself."""
        return (self.on[:-1], self.on[-1:]) if self.lists and self.by else (self.on,)

    @property
    def unnamed(self) -> str:
        """A note for reports if coordinates were chosen by default, else ""."""
        return "" if self.chosen is None else ", all numeric columns"

    @property
    def request(self) -> str:
        """The option that limits pairs, such as "eps=1", in messages."""
        value = self.eps if self.radius is None else repr(self.radius)
        if self.several:
            value = shown(list(self.several))
        return f"{self.bound}={value} {self.measure.unit}".rstrip()

    @property
    def score(self) -> str | None:
        """The column of the pairs' distances."""
        return "distance" if self.return_distance else None

    @property
    def measure(self) -> Metric:
        """The metric itself."""
        metric = make_metric(self.metric, self.p)
        return Grouped(metric) if self.by else metric

    @property
    def norm(self) -> Norm:
        """The norm whose totals decide which rows are pairs."""
        return self.measure.norm

    @property
    def threshold(self) -> float:
        """Largest total of a pair."""
        return self.measure.threshold(self.eps)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Largest total for each of several distances."""
        return tuple(self.measure.threshold(eps) for eps in self.several)


@dataclass(frozen=True)
class TotalsSpec(JoinSpec):
    """The options of a join whose distances are totals, which are converted to `unit` later."""

    @classmethod
    def of(cls, spec: JoinSpec, **changes: Any) -> Self:
        """Return a copy of `spec` whose distances are totals, with `changes`."""
        return cls(**{one.name: getattr(spec, one.name) for one in fields(JoinSpec)} | changes)

    @property
    def measure(self) -> Metric:
        """The metric, whose distances are its totals."""
        return Totals(super().measure)


def without_ids(spec: JoinSpec) -> JoinSpec:
    """Leave out the ids: a result that names no rows does not need them, so they may repeat."""
    return replace(spec, id=None, id_dtype=None)


def check_dims(spec: JoinSpec) -> None:
    """Refuse more dimensions than the method or the library serves."""
    if spec.dims is None:
        return  # checked when the join is planned
    max_dims = MAX_DIMS[spec.library]
    has = f"the lists of column {spec.on[0]!r} have" if spec.lists else "on= names"
    what = "numbers" if spec.lists else "columns"
    has = f"{has} {spec.dims - 1:,}, and by= adds one" if spec.by else f"{has} {spec.dims:,}"
    served, method = choices_of(spec.dims), name_of(spec.method)
    if method not in served:
        raise OptionError(
            f"method={method!r} takes at most {METHODS[method].max_dims} {what}, and {has}; "
            f"use method={' or '.join(map(repr, served))}."
        )
    if max_dims is not None and spec.dims > max_dims:
        raise OptionError(
            f"Frames of {spec.library!r} are joined on at most {max_dims:,} {what}, and {has}; use "
            "fewer, or ddf.to_backend('pandas')."
        )
