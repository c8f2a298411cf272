"""The validated options of one join."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from dask_simjoin.budget import Settings, current_settings, parse_size
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from dask_simjoin.index.layout import METHODS
from dask_simjoin.lists import lists_of
from dask_simjoin.metrics import METRICS, Metric, make_metric
from dask_simjoin.norms import Norm

ROW_ID = "row_id"
"""Name of the column that `with_row_id` adds; never a coordinate unless `on` names it."""

PAIRS = ("unique", "both")

PARTITIONINGS = ("auto", "entity", "spatial", "replicated")

MOST_SHOWN = 100
"""Characters of a value that a message shows."""

MOST_P = 2**31 - 1
"""Largest finite p."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class JoinSpec:
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
    pairs, method : str
    include_self, return_distance, dropna : bool
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
    method: str = "auto"
    partitioning: str = "auto"
    blocksize: int | None = None
    settings: Settings = field(default_factory=current_settings)
    id_dtype: Any = None
    library: str = "pandas"
    radius: Hashable | None = None
    keep: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    other: JoinSpec | None = None

    @property
    def measure(self) -> Metric:
        """The metric itself."""
        return make_metric(self.metric, self.p)

    @property
    def norm(self) -> Norm:
        """Of the metric's decision."""
        return self.measure.norm

    @property
    def threshold(self) -> float:
        """What the metric's decision compares with."""
        return self.measure.threshold(self.eps)

    @property
    def columns(self) -> list[Hashable]:
        """The columns of the frame that the join reads."""
        own = [] if self.id is None else [self.id]
        own += [] if self.radius is None else [self.radius]
        return list(dict.fromkeys([*self.on, *own, *self.keep]))

    @property
    def kept_left(self) -> dict[str, Hashable]:
        """Columns of the result, and which columns of the left row they are."""
        return dict(zip(self.names, self.keep, strict=False))

    @property
    def kept_right(self) -> dict[str, Hashable]:
        """The same of the right row."""
        if self.other is not None:
            return self.other.kept_left
        return dict(zip(self.names[len(self.keep) :], self.keep, strict=True))


def known_options(function: F) -> F:
    """Refuse unknown keywords with the list of the known ones."""
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name not in ("self", "frame")]

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        for name in options:
            if name not in signature.parameters:
                raise OptionTypeError(
                    f"{function.__name__}() has no option {name!r}{_did_you_mean(name, known)}; "
                    f"its options are {', '.join(known) or 'none'}."
                )
        return function(*args, **options)

    return checked  # type: ignore[return-value]


def make_spec(meta: Any, eps: Any, *, on: Any, id: Hashable | None = None, eps_name: str = "eps",
              radii: bool = False, **options: Any) -> JoinSpec:  # fmt: skip
    """Validate the options of a join of a frame like `meta` (its empty example).

    `radii`: `eps` may name a column.
    """
    radius = own_radius(meta, eps) if radii else None
    eps = 0.0 if radius is not None else _check_eps(eps, eps_name)
    metric = _check_metric(options)
    _check_choice("pairs", options.get("pairs", "unique"), PAIRS)
    _check_choice("method", options.get("method", "auto"), METHODS)
    _check_choice("partitioning", options.get("partitioning", "auto"), PARTITIONINGS)
    if options.get("blocksize") is not None:
        options["blocksize"] = parse_size("blocksize", options["blocksize"])
    for name in ("include_self", "return_distance", "dropna"):
        value = options.get(name, False)
        if not isinstance(value, (bool, np.bool_)):
            raise OptionTypeError(f"{name}={shown(value)} is not allowed; use True or False.")
        options[name] = bool(value)
    check_columns(meta)
    if id is not None and not _has(meta.columns, id):
        raise ColumnError(
            f"id={id!r} is not a column; the columns are {_listed(meta.columns)}. "
            "Leave out id to name rows by their index labels."
        )
    on = _check_on(meta, on, id, radius)
    _check_columns_of(metric, on)
    lists = lists_of(meta[on[0]]) if len(on) == 1 else None
    columns = len(on) if lists is None else lists.length
    dtype = meta.index.dtype if id is None else meta[id].dtype
    if dtype == np.float16:
        raise ColumnError(
            f"id={id!r} is of dtype float16, of which pandas has no index; convert it, for example with "
            ".astype('float64')."
        )
    dims = None if columns is None else metric.dims(columns)
    return JoinSpec(eps, on, id, dims=dims, lists=lists is not None, id_dtype=dtype, radius=radius, **options)


def _check_eps(eps: Any, name: str) -> float:
    # NumPy counts timedelta64 among its integers
    if isinstance(eps, (bool, np.bool_, np.timedelta64)) or not isinstance(eps, numbers.Real):
        raise OptionTypeError(f"{name}={shown(eps)} is not a number; use a finite number >= 0.")
    try:
        value = float(eps)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or eps < 0:  # a tiny negative Fraction would be -0.0
        raise OptionError(f"{name}={shown(eps)} is not allowed; use a finite number >= 0.")
    return value


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        if len(allowed) == 1:
            choices = f"use {allowed[0]!r}, the only one so far"
        else:
            names = ", ".join(repr(choice) for choice in allowed)
            choices = f"use one of {names}{_did_you_mean(value, allowed)}"
        raise OptionError(f"{name}={shown(value)} is not allowed; {choices}.")


def _check_metric(options: dict[str, Any]) -> Metric:
    """The metric of some options, in which `p` is made a plain number."""
    name, p = options.get("metric", "euclidean"), options.get("p", 2)
    _check_choice("metric", name, tuple(METRICS))
    if isinstance(p, (bool, np.bool_, np.timedelta64)) or not isinstance(p, numbers.Real):
        raise OptionTypeError(f"p={shown(p)} is not a number; use a whole number >= 1, or inf.")
    try:
        value = float(p)
    except OverflowError:
        value = math.nan  # which is in no range
    if value != math.inf and not (1 <= value <= MOST_P and value == math.floor(value)):
        raise OptionError(
            f"p={shown(p)} is not allowed; use a whole number from 1 to {MOST_P:,}, or float('inf')."
        )
    if name != "minkowski" and p != 2:
        raise OptionError(
            f"p={shown(p)} is of metric='minkowski', and metric={name!r} takes none; use "
            "metric='minkowski', or leave out p."
        )
    options["p"] = value if value == math.inf else int(value)
    return make_metric(name, options["p"])


def _check_columns_of(metric: Metric, on: tuple[Hashable, ...]) -> None:
    """Refuse columns that are not those that the metric is of, as far as numbers and names tell."""
    wanted = metric.columns
    if not wanted:
        return
    order = f"on=[{', '.join(repr(name) for name in wanted)}]"
    if len(on) != len(wanted):
        raise ColumnError(
            f"metric={metric.name!r} is of {len(wanted)} columns, {' and '.join(wanted)}, and on= names "
            f"{len(on)}: {_listed(on)}; name them in this order, such as {order}."
        )
    starts = [name[:3] for name in wanted]
    if [str(name).lower()[:3] for name in on] == starts[::-1]:
        raise ColumnError(
            f"metric={metric.name!r} is of {' and '.join(wanted)} in this order, and by their names "
            f"{_listed(on)} are the other way round; use on=[{_listed(on[::-1])}]."
        )


def check_columns(meta: Any) -> None:
    """Refuse columns that names do not tell apart."""
    if getattr(meta.columns, "nlevels", 1) > 1:
        raise ColumnError(
            "The columns are a MultiIndex, which cannot be joined on; flatten it, "
            "for example df.columns = ['_'.join(c) for c in df.columns]."
        )
    repeated = list(meta.columns[meta.columns.duplicated()].unique())
    if repeated:
        raise ColumnError(
            f"The frame has several columns named {_listed(repeated)}; column names must be "
            "unique: rename or drop all but one."
        )


def _check_on(meta: Any, on: Any, id: Hashable | None, radius: str | None) -> tuple[Hashable, ...]:
    dtypes = dict(zip(meta.columns, meta.dtypes, strict=True))
    if on is None:
        found = numeric_columns(meta, (id, radius, ROW_ID))
        if not found:
            raise ColumnError(
                f"The frame has no numeric column to join on besides ids and booleans (columns: "
                f"{_listed(meta.columns)}); name the coordinates with on=[...]."
            )
        return tuple(found)
    if isinstance(on, (set, frozenset)):
        raise ColumnError(
            f"on={shown(on)} has no order, and squares are summed in the order of on=; use a list."
        )
    names = [on] if isinstance(on, (str, bytes)) or not hasattr(on, "__iter__") else list(on)
    if isinstance(on, tuple) and _has(meta.columns, on):
        names = [on]
    if not names:
        raise ColumnError(
            f"on={shown(on)} names no column; name at least one, or leave out on= for all numeric columns."
        )
    for name in names:
        if not _has(meta.columns, name):
            raise ColumnError(
                f"on= names {name!r}, which is not a column"
                f"{_did_you_mean(name, meta.columns, 0.5)}; "
                f"the columns are {_listed(meta.columns)}."
            )
        if names.count(name) > 1:
            raise ColumnError(f"on= names {name!r} more than once; name each column once.")
        lists = lists_of(meta[name])
        if lists is not None and len(names) == 1:
            continue
        if lists is not None and lists.kind is not None:
            raise ColumnError(
                f"on= names {name!r} of dtype {dtypes[name]} together with others; a column of lists is "
                f"named alone: on={name!r}."
            )
        if _kind(dtypes[name]) not in ("i", "u", "f", "b"):
            raise ColumnError(
                f"on= names {name!r} of dtype {dtypes[name]}, which is no real number of at most "
                "64 bits; name numeric columns only, or convert it, for example with "
                f".astype('float64').{_strings_of_lists(dtypes[name])}"
            )
    return tuple(names)


def check_neighbors(k: Any) -> None:
    """Refuse what is no number of neighbours."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise OptionError(f"k={shown(k)} is not allowed; use a whole number >= 1.")


def own_radius(meta: Any, eps: Any) -> str | None:
    """The column of rows' own distances, if that is what `eps` names; refuses one that has none."""
    if not isinstance(eps, str):
        return None
    if not _has(meta.columns, eps):
        raise OptionTypeError(
            f"eps={shown(eps)} is not a number; use a finite number >= 0, or the name of a column of each "
            f"row's own{_did_you_mean(eps, meta.columns)}."
        )
    if _kind(meta[eps].dtype) not in ("i", "u", "f"):
        raise ColumnError(
            f"eps={eps!r} names a column of dtype {meta[eps].dtype}, which holds no distances; name a column "
            "of real numbers, or use a number for all rows."
        )
    return eps


def numeric_columns(meta: Any, besides: tuple[Any, ...]) -> list[Hashable]:
    """The columns of real numbers, those of truth values and some others left out."""
    kinds = zip(meta.columns, meta.dtypes, strict=True)
    return [name for name, dtype in kinds if name not in besides and _kind(dtype) in ("i", "u", "f")]


def check_named(option: str, name: Any, tables: list[Any]) -> None:
    """Refuse the name of a column that none of the tables has."""
    if not any(_has(table.columns, name) for table in tables):
        columns = " and ".join(_listed(table.columns) for table in tables)
        raise ColumnError(
            f"{option}= names {name!r}, which is not a column"
            f"{_did_you_mean(name, [c for table in tables for c in table.columns], 0.5)}; the columns are "
            f"{columns}."
        )


def _strings_of_lists(dtype: Any) -> str:
    """A hint for who gave Dask lists."""
    if not isinstance(dtype, pd.StringDtype):
        return ""
    return (
        " (Of lists in a pandas DataFrame Dask makes strings; not within "
        "dask.config.set({'dataframe.convert-string': False}).)"
    )


def _kind(dtype: Any) -> str:
    """NumPy's letter for the kind of number, or "" for what cannot be a coordinate."""
    kind = str(getattr(dtype, "kind", ""))
    size = getattr(dtype, "itemsize", 8)
    return kind if kind in "iufb" and size <= 8 else ""


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    try:
        text = repr(value)
    except ValueError:  # an int of very many digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _has(columns: Any, name: Any) -> bool:
    try:
        return name in columns
    except TypeError:
        raise ColumnError(f"{name!r} cannot be the name of a column.") from None


def _listed(names: Any, most: int = 12) -> str:
    names = [repr(name) for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _did_you_mean(name: Any, known: Any, cutoff: float = 0.6) -> str:
    names = [other for other in known if isinstance(other, str)]
    close = get_close_matches(name, names, n=1, cutoff=cutoff) if isinstance(name, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""
