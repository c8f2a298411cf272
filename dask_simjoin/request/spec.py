"""Hold the checked and resolved options of one join."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Self

from dask_simjoin.catalog.libraries import MAX_DIMS
from dask_simjoin.catalog.methods import METHODS, Method, choices_of, name_of
from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.distances import Grouped, Metric, make_metric
from dask_simjoin.metrics.norms import DType, Norm
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import Settings, current_settings


class RowSpec:
    """What every join says of the rows of its tables: how they are named, and which columns are kept.

    Attributes
    ----------
    on : tuple
        The columns that decide which rows are pairs.
    id : hashable or None
        The column that names the rows; None: the index.
    id_dtype : dtype or None
        Of the ids, by the frame's example; partitions may hold others of the same values.
    keep : tuple
        Columns whose values the result has.
    names : tuple of str
        What they are called there, where their row is the left one; and as many where it is the right one.
    blocksize : int or None
        Bytes of a chunk; None: from the workers' memory.
    settings : Settings
        The configuration when the join was built: another one makes another join.
    library : str
        The data frame library that partitions are of.
    """

    on: tuple[Hashable, ...]
    id: Hashable | None
    id_dtype: DType
    keep: tuple[Hashable, ...]
    names: tuple[str, ...]
    blocksize: int | None
    settings: Settings
    library: str

    @property
    def asked(self) -> str:
        """What pairs are asked for, in messages."""
        raise NotImplementedError

    @property
    def unnamed(self) -> str:
        """What is said of columns that nobody named."""
        return ""

    @property
    def score(self) -> str | None:
        """The column that says how near or how alike the rows of a pair are; None: the result has none."""
        raise NotImplementedError

    @property
    def other(self) -> Self | None:
        """What is asked of the right table, in a join of two."""
        return None

    @property
    def radius(self) -> Hashable | None:
        """The column of each row's own largest distance."""
        return None

    @property
    def columns(self) -> list[Hashable]:
        """The columns of the frame that the join reads."""
        own = [] if self.id is None else [self.id]
        own += [] if self.radius is None else [self.radius]
        return list(dict.fromkeys([*self.on, *own, *self.keep]))

    @property
    def right(self) -> Self:
        """What is asked of the right table, in a join of two."""
        assert self.other is not None
        return self.other

    @property
    def kept_left(self) -> dict[str, Hashable]:
        """Columns of the result, and which columns of the left row they are."""
        return dict(zip(self.names, self.keep, strict=False))

    @property
    def kept_right(self) -> dict[str, Hashable]:
        """Columns of the result, and which columns of the right row they are."""
        if self.other is not None:
            return self.other.kept_left
        return dict(zip(self.names[len(self.keep) :], self.keep, strict=True))


@dataclass(frozen=True)
class JoinSpec(RowSpec):
    """What one join is asked for.

    Attributes
    ----------
    eps : float
        Largest distance of a pair, finite and not negative.
    on : tuple
        Coordinate columns, in the order in which squares are summed.
    id : hashable or None
        The column that names the rows; None: the index.
    metric : str
    p : int or float
        Minkowski's.
    dims : int or None
        Dimensions of the space that is joined in; None: only the data tell.
    lists : bool
        Whether `on` is one column of lists.
    pairs : str
    method : str or Method
        A name, or an object with its options.
    include_self, return_distance, dropna : bool
    approximate : bool
        Whether pairs may be left out.
    partitioning : str
    blocksize : int or None
        Bytes of a chunk; None: from the workers' memory.
    settings : Settings
        The configuration when the join was built: another one makes another join.
    id_dtype : dtype or None
        Of the ids, by the frame's example; partitions may hold others of the same values.
    library : str
        The data frame library that partitions are of.
    radius : hashable or None
        The column of each row's own largest distance; `eps` is then the largest of them, once it is known.
    keep : tuple
        Columns whose values the result has.
    names : tuple of str
        What they are called there, where their row is the left one; and as many where it is the right one.
    other : JoinSpec or None
        Of a join of two tables: what is asked of the right one.
    bound : str
        The name of the option that `eps` was given by.
    several : tuple of float
        Where numbers are asked for within each of some distances: these, of which `eps` is the largest.
    chosen : tuple or None
        Where no coordinates were named: those of integers among all numeric columns, if others are of none.
        None: they were named.
    by : tuple
        Columns that must be equal in both rows of a pair: the last of `on` is then the groups' numbers.
    """

    eps: float
    on: tuple[Hashable, ...]
    id: Hashable | None = None
    metric: str = "euclidean"
    p: Norm = 2
    dims: int | None = None
    lists: bool = False
    pairs: str = "unique"
    include_self: bool = False
    return_distance: bool = False
    dropna: bool = False
    method: str | Method = "auto"
    approximate: bool = False
    partitioning: str = "auto"
    blocksize: int | None = None
    settings: Settings = field(default_factory=current_settings)
    id_dtype: DType = None
    library: str = "pandas"
    radius: Hashable | None = None
    keep: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    other: JoinSpec | None = None
    bound: str = "eps"
    several: tuple[float, ...] = ()
    chosen: tuple[Hashable, ...] | None = None
    by: tuple[Hashable, ...] = ()

    @property
    def read_together(self) -> tuple[tuple[Hashable, ...], ...]:
        """The columns of coordinates, one of lists by itself."""
        return (self.on[:-1], self.on[-1:]) if self.lists and self.by else (self.on,)

    @property
    def unnamed(self) -> str:
        """What is said of coordinates that nobody named."""
        return "" if self.chosen is None else ", all numeric columns"

    @property
    def asked(self) -> str:
        """What pairs are asked for, in messages."""
        if self.several:
            return f"{self.bound}={shown(list(self.several))}"
        return f"{self.bound}={self.eps if self.radius is None else self.radius!r}"

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
        """The norm of the metric's decision."""
        return self.measure.norm

    @property
    def threshold(self) -> float:
        """What the metric's decision compares with."""
        return self.measure.threshold(self.eps)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """What it compares with for each of several distances."""
        return tuple(self.measure.threshold(eps) for eps in self.several)


def without_ids(spec: JoinSpec) -> JoinSpec:
    """Leave out the ids: a result that names no rows does not read them, so they may repeat."""
    return replace(spec, id=None, id_dtype=None)


def check_dims(spec: JoinSpec) -> None:
    """Refuse more dimensions than the method or the library serves."""
    if spec.dims is None:
        return  # told once it is planned
    most = MAX_DIMS[spec.library]
    has = f"the lists of column {spec.on[0]!r} have" if spec.lists else "on= names"
    what = "numbers" if spec.lists else "columns"
    has = f"{has} {spec.dims - 1:,}, to which by= adds one" if spec.by else f"{has} {spec.dims:,}"
    served, method = choices_of(spec.dims), name_of(spec.method)
    if method not in served:
        raise OptionError(
            f"method={method!r} serves at most {METHODS[method].max_dims} {what}, and {has}; "
            f"use method={' or '.join(map(repr, served))}."
        )
    if most is not None and spec.dims > most:
        raise OptionError(
            f"Frames of {spec.library!r} are joined on at most {most:,} {what}, and {has}; use "
            "fewer, or ddf.to_backend('pandas')."
        )
