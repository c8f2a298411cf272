"""Join within groups: a pair must have equal values in the columns `by`.

Each group has a number. It is multiplied by a distance that is larger than the distance
of any pair, and becomes one more coordinate (see `dask_simjoin.metrics.distances`). So
rows of different groups are never near. The number of a group is the position of its
values among the distinct values of all partitions. A reduction finds the distinct
values when the join is planned.
"""

from __future__ import annotations

import datetime
import functools
import math
import numbers
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection

from dask_simjoin.calls.column_pairs import names_in_tables, names_of
from dask_simjoin.calls.tables import table_of
from dask_simjoin.catalog import arrow_type, is_text, kind_of_number
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import module_of, on_gpu, to_host
from dask_simjoin.engine.ids import decoded, joined, listed_values, rounded_together
from dask_simjoin.engine.native import native
from dask_simjoin.errors import TABLES, ColumnError, OptionError
from dask_simjoin.metrics.distances import Metric, separation
from dask_simjoin.metrics.norms import Array, Frame, Ids, Series, power
from dask_simjoin.planning.partition import columns_of
from dask_simjoin.request.columns import (
    Groups,
    example_of,
    free_name,
    has_column,
    meta_of,
)
from dask_simjoin.request.messages import NO_UNICODE, listed, shown
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.request.units import check_distance, check_metric, several_of

MOST = 2.0**1000
"""Largest coordinate that a group may get; the difference of two such coordinates is
still finite.
"""

NUMBERS, DECIMALS, TEXTS, OBJECTS = "numbers", "decimal numbers", "texts", "objects"
"""Some kinds of values; `kind_of` returns further ones."""

OF_ARROW = {
    "bytes": (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
    ),
    "dates": (pa.types.is_date,),
    "times of day": (pa.types.is_time,),
    DECIMALS: (pa.types.is_decimal,),
    TEXTS: (is_text,),
}
"""Kind -> functions that recognize its Arrow types. Without Arrow, pandas stores such
values as objects.
"""

FAMILIES = (
    (numbers.Number, np.bool_),
    str,
    bytes,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    pd.Period,
    pd.Interval,
    tuple,
)
"""Families of classes, such that objects of two families are never equal. A class
belongs to the first that matches.
"""


def kind_of(values: Series | Ids) -> str:
    """Return the kind of the values in a column. Values of two kinds are never equal,
    except for objects and decimals.
    """
    dtype = decoded(values.iloc[:0] if hasattr(values, "iloc") else values[:0]).dtype
    arrow = arrow_type(dtype)
    for kind, tests in OF_ARROW.items():
        if arrow is not None and any(is_kind(arrow) for is_kind in tests):
            return kind
    if kind_of_number(dtype):
        return NUMBERS
    if isinstance(dtype, pd.StringDtype):
        return TEXTS
    if isinstance(dtype, pd.IntervalDtype):
        return f"intervals closed on {dtype.closed}"
    if getattr(dtype, "kind", "") == "M":
        zone = getattr(dtype, "tz", None) if arrow is None else arrow.tz
        return "times without a time zone" if zone is None else "times with a time zone"
    if getattr(dtype, "kind", "") == "m":
        return "time spans"
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return TEXTS if on_gpu(values) else OBJECTS
    return str(dtype)


def check_kinds(name: Hashable, sides: Sequence[Series | Ids]) -> None:
    """Raise an error if the dtypes of a column in two tables show that its values can
    never be equal.
    """
    kinds = set(map(kind_of, sides))
    if len(kinds) > 1 and OBJECTS not in kinds and kinds != {NUMBERS, DECIMALS}:
        raise _never_equal(name, sides, "")


def _check_values(name: Hashable, parts: list[Ids]) -> None:
    """Raise an error if the values of a column in two tables can never be equal.
    `parts`: distinct values in each table.
    """
    if len(parts) < 2 or not all(map(len, parts)):
        return
    check_kinds(name, parts)
    if OBJECTS not in map(kind_of, parts):
        return
    one, other = ({_family(kind) for kind in set(map(type, part))} for part in parts)
    if None not in one | other and not one & other:
        raise _never_equal(
            name, parts, f" ({shown(parts[0][0])} and {shown(parts[1][0])})"
        )


def _family(kind: type) -> object:
    return next((family for family in FAMILIES if issubclass(kind, family)), None)


def _never_equal(
    name: Hashable, sides: Sequence[Series | Ids], such: str
) -> ColumnError:
    held = [
        f"of dtype {side.dtype} in the {table} table"
        for side, table in zip(sides, TABLES, strict=True)
    ]
    return ColumnError(
        f"by= names {name!r}, which is {held[0]} and "
        f"{held[1].replace(' table', ' one')}. Their values are "
        f"never equal{such}; convert one of the columns."
    )


def distinct(column: Series, option: str = "by") -> Series:
    """Return the distinct values of a column, without missing values; sorted if they
    can be compared. `option`: the option that names the column.
    """
    try:
        values = _comparable(decoded(column)).dropna().drop_duplicates()
        if values.dtype.kind == "O" and not on_gpu(values):
            # `hash` raises an error for a list or similar value; `drop_duplicates` of
            # pandas does not always
            values.map(hash)
    except (
        TypeError,
        NotImplementedError,
    ):  # lists, or other values that cannot be hashed
        some = f", such as {shown(column.iloc[0])}" if len(column) else ""
        raise ColumnError(
            f"{option}= names column {column.name!r} of dtype {column.dtype}. Its values "
            f"are not scalars{some}. "
            "Use columns of numbers, texts, dates or categories."
        ) from None
    try:
        return values.sort_values()
    except TypeError:
        return values


def group_codes(
    rows: Frame, names: list[Hashable], scale: float, sides: int, *values: Frame
) -> Series:
    """Return for each row the coordinate of its group (n,), float64; NaN if one of its
    `by` values is missing.

    `rows`: the columns of `by`.  `names`: what `by` names, for messages.  `scale`:
    distance between groups.  `sides`: number of tables.  `values`: the
    distinct values of each column in each table, as frames with one column.
    """
    rows, frames = native(rows), frames_for(rows)
    xp = frames.xp
    code, missing, groups = xp.zeros(len(rows), np.int64), xp.zeros(len(rows), bool), 1
    for k, name in enumerate(names):
        parts = keys_of_sides(values[k * sides : (k + 1) * sides])
        _check_values(name, parts)
        place, number = places_among(rows.iloc[:, k], parts)
        place = xp.asarray(place)
        groups *= max(number, 1)
        if groups * scale > MOST or groups >= 2**53:
            raise ColumnError(
                f"by= makes {groups:,} groups, too many for this distance. Use a "
                "smaller distance, or by= "
                "columns with fewer groups."
            )
        code, missing = code * number + place, missing | (place < 0)
    coordinate = code * scale
    coordinate[missing] = np.nan
    return frames.series(coordinate, rows.index, None)


def keys_of_sides(values: Sequence[Frame]) -> list[Ids]:
    """Return the distinct values of a column in each table; they are in frames with one
    column.
    """
    return [_keys(some["value"]) for some in values]


def places_among(column: Series, parts: list[Ids]) -> tuple[Array, int]:
    """Return the result of `_places` for the values of a column."""
    return _places(_keys(decoded(column)), parts)


def _keys(column: Series) -> Ids:
    """Return the values as an index."""
    return frames_for(column).index(_comparable(column))


def _comparable(column: Series) -> Series:
    """Return a column as values that pandas and Arrow can look up: 16-bit floats become
    32-bit floats, and long doubles become objects.
    """
    kind, size = (getattr(column.dtype, name, "") for name in ("kind", "itemsize"))
    if kind == "f" and size == 2:
        return column.astype("Float32" if arrow_type(column.dtype) else "float32")
    if isinstance(column.dtype, np.dtype) and (kind, size) in LONG:
        return column.astype(object)
    return column


def _places(own: Ids, parts: list[Ids]) -> tuple[Array, int]:
    """For each value in `own`, return its position (n,) among the distinct values of
    all parts.

    The position is -1 if the value is missing. Also return the number of distinct
    values.
    """
    dtypes, kinds = (
        {some.dtype for some in (own, *parts)},
        set(map(kind_of, (own, *parts))),
    )
    if len(dtypes) == 1 or (
        len(kinds) == 1 and kinds <= {NUMBERS, TEXTS} and not rounded_together(*parts)
    ):
        every = joined(parts).drop_duplicates()
        return every.get_indexer(own), len(every)
    places: dict[Any, int] = {}
    for part in parts:
        for value in listed_values(part):
            places.setdefault(value, len(places))
    return np.array(
        [places.get(value, -1) for value in listed_values(own)], np.int64
    ), len(places)


LONG = (("f", 16), ("f", 12), ("c", 32), ("c", 24))
"""Kinds and sizes in bytes of long doubles and of complex numbers of them."""

BOUNDS = ("eps", "max_eps", "max_distance")
"""Options that limit the distance of a pair."""


def with_groups(
    frame: Frame, options: Mapping[str, Any], needs_bound: bool = True
) -> tuple[Frame, dict[str, Any], list[str]]:
    """If `by` is given, add a column of group numbers to the frame, and to the right
    table if there is one.

    Return the frame, the options with the changed right table, and the names of the
    added columns. `needs_bound`: whether the options must limit the distance of pairs.
    If they do not, group numbers are 0, 1, 2, ..., and `moved_apart` multiplies them
    later.
    """
    given, by = dict(options), options.get("by")
    # another verb called this one, and has added the column of group numbers already
    if by is None or isinstance(by, Groups):
        return frame, given, []
    other = given.get("other")
    tables = [frame] if other is None else [frame, other]
    tables = [table_of(table).without_categorize() for table in tables]
    examples = [example_of(table) for table in tables]
    names = names_of(by, examples)
    own = names_in_tables(names, examples)
    keys = [table[list(some)] for table, some in zip(tables, own, strict=True)]
    lazy = [key for key in keys if is_dask_collection(key)]
    if len(keys) == 2 and len(lazy) == 1:
        (like,) = lazy
        keys = [key if key is like else _as_texts(key, like._meta) for key in keys]
    for k, name in enumerate(names):
        # Dask may not know the categories of lazy columns yet, so their kinds are
        # checked with the values
        if not any(hasattr(key._meta.dtypes.iloc[k], "categories") for key in lazy):
            check_kinds(name, [meta_of(key).iloc[:, k] for key in keys])
    scale = _scale(examples[0], given, needs_bound)
    code = free_name(f"by={','.join(map(str, own[0]))}", examples)
    values = [
        table_of(key[[some[k]]]).reduced(framed, framed)
        for k in range(len(names))
        for key, some in zip(keys, own, strict=True)
    ]
    coded = [
        _with_codes(table, key, list(names), scale, values, code)
        for table, key in zip(tables, keys, strict=True)
    ]
    given["by"] = Groups(own[0], code, own[-1])
    if other is not None:
        given["other"] = coded[1]
    return coded[0], given, [code]


def _as_texts(rows: Frame, held: Frame) -> Frame:
    """Convert the objects in the `by` columns of a plain table to texts.

    Dask does so for a Dask DataFrame, whose `by` columns `held` has. Otherwise equal
    values would differ.
    """
    texts = {
        name: dtype
        for name, dtype in zip(rows.columns, held.dtypes, strict=True)
        if isinstance(dtype, pd.StringDtype)
        and not on_gpu(rows[name])
        and kind_of(rows[name]) == OBJECTS
    }
    try:
        return rows.astype(texts) if texts else rows
    except UnicodeEncodeError as error:
        raise ColumnError(
            f"by= names {listed(texts)}, a column of strings in the Dask DataFrame. "
            "The other table has the "
            f"value {shown(error.object)}, {NO_UNICODE}. Or create the Dask DataFrame "
            "with "
            "dask.config.set({'dataframe.convert-string': False}), so that any text is "
            "allowed."
        ) from None


def moved_apart(tables: list[Frame], specs: list[JoinSpec]) -> list[Frame]:
    """Multiply group numbers 0, 1, 2, ... by a distance larger than all distances
    between rows, so that groups are far apart.
    """
    code = str(specs[0].on[-1])
    extents = [
        _extents(table[list(spec.on)], spec)
        for table, spec in zip(tables, specs, strict=True)
    ]
    how = code, specs[0], *extents
    return [
        table_of(table).by_partition(
            _multiplied, *how, meta=meta_of(table), clear_divisions=True
        )
        for table in tables
    ]


def _multiplied(
    rows: Frame, code: str, spec: JoinSpec, *extents: pd.DataFrame
) -> Frame:
    return rows.assign(
        **{code: rows[code] * _beyond(_merged(pd.concat(extents)), spec.measure)}
    )


def _beyond(extents: pd.DataFrame, metric: Metric) -> float:
    """Return a distance between groups: a power of two that is larger than all
    distances between points within `extents`.
    """
    with np.errstate(over="ignore"):
        widths = (extents["high"] - extents["low"]).to_numpy()
        # points on the unit sphere are at most 2 apart
        most = 2.0 if metric.embeds else float(widths[widths > 0].sum())
        scale = 2.0 ** max(0, math.frexp(most)[1] + 1) if most < MOST else math.inf
        if math.isfinite(power(scale, metric.norm)):
            return scale
    raise OptionError(
        "by= needs max_distance= here. Without it, groups are kept apart by a "
        "coordinate that is larger than "
        "all distances. Here it would be too large for float64. Pass the largest "
        "distance that you need."
    )


def _extents(rows: Frame, spec: JoinSpec) -> Any:
    """Return the smallest and the largest value in each column of coordinates; for a
    lazy frame, the result is lazy.
    """
    return table_of(rows).reduced(functools.partial(_extent, spec=spec), _merged)


def _extent(rows: Frame, spec: JoinSpec) -> pd.DataFrame:
    x = columns_of(rows, spec)[:, :-1]
    if spec.measure.embeds:
        x = x[:, :0]
    xp = module_of(x)
    finite = xp.isfinite(x)
    low, high = (
        to_host(how(xp.where(finite, x, none), axis=0)) if len(x) else np.zeros(0)
        for how, none in ((xp.min, math.inf), (xp.max, -math.inf))
    )
    return pd.DataFrame({"low": low, "high": high})


def _merged(extents: pd.DataFrame) -> pd.DataFrame:
    column = extents.groupby(level=0)
    return pd.DataFrame({"low": column["low"].min(), "high": column["high"].max()})


def _scale(example: Frame, given: Mapping[str, Any], needs_bound: bool) -> float:
    """Return the distance between groups. If it depends on the rows, return 1.0;
    `moved_apart` then multiplies later.
    """
    bound = next((name for name in BOUNDS if given.get(name) is not None), None)
    if bound is None and not needs_bound:
        return 1.0
    if bound is None:
        raise OptionError(
            "by= needs a largest distance here, to keep groups apart. Pass "
            "max_distance= (in plan, eps=). If "
            "you want no limit, pass a number that is larger than all distances of "
            "these rows."
        )
    value = given[bound]
    if isinstance(value, str) and has_column(example.columns, value):
        raise OptionError(
            f"{bound}={value!r} names a column, which by= does not support. Use one "
            "distance for all rows, "
            "or join without by=, keep the columns with keep=, and filter the pairs."
        )
    metric, _ = check_metric(given.get("metric", "euclidean"), given.get("p", 2))
    scale = max(separation(metric, eps) for eps in distances_of(given, bound))
    if not math.isfinite(scale) or scale > MOST:
        raise OptionError(
            f"{bound}={shown(value)} is too large for by=. Groups are kept apart by a "
            "coordinate that "
            f"differs by more than {bound}, and no float64 is large enough. Use a "
            f"smaller {bound}."
        )
    return scale


def distances_of(given: Mapping[str, Any], bound: str) -> tuple[float, ...]:
    """Return the distances that the option `bound` gives: one, or several for `eps`."""
    named = given.get("metric", "euclidean"), given.get("p", 2)
    several = several_of(given[bound], *named) if bound == "eps" else None
    return several or (check_distance(given[bound], check_metric(*named)[0], bound),)


def _with_codes(
    table: Frame,
    key: Frame,
    names: list[Hashable],
    scale: float,
    values: list[Any],
    code: str,
) -> Frame:
    sides = len(values) // len(names)

    def meta() -> Any:
        none = key._meta.iloc[:0]
        none_of_each = [
            framed(none[[name]]) for name in none.columns for _ in range(sides)
        ]
        return group_codes(key._meta, names, scale, sides, *none_of_each)

    codes = table_of(key).by_partition(
        group_codes, names, scale, sides, *values, meta=meta
    )
    return table.assign(**{code: codes})


def framed(column: Frame, option: str = "by") -> Frame:
    """Return the distinct values of a frame's only column as a frame: see `distinct`."""
    return distinct(native(column).iloc[:, 0], option).to_frame("value")
