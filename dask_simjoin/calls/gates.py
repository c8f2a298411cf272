"""Add the columns of ``within=`` and ``different=`` to tables: see
`dask_simjoin.metrics.gates`.

A column with a tolerance gives a coordinate and two columns of words. Boxes and cells
of the coordinate exclude rows, and words decide candidates exactly. Columns that must
differ get numbers, like groups in `dask_simjoin.calls.groups`, and two columns of words.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dask_simjoin.calls.column_pairs import names_in_tables, names_of
from dask_simjoin.calls.groups import (
    BOUNDS,
    DECIMALS,
    NUMBERS,
    OBJECTS,
    distances_of,
    framed,
    keys_of_sides,
    kind_of,
    places_among,
)
from dask_simjoin.calls.tables import table_of
from dask_simjoin.catalog import HOME, NANOSECONDS, kind_of_number, library
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.columns import EXACT_INTEGER
from dask_simjoin.engine.compat import any_of, to_host
from dask_simjoin.engine.native import native
from dask_simjoin.engine.times import times_of, unit_of_times
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics import gates as definition
from dask_simjoin.metrics.distances import METRICS, make_metric
from dask_simjoin.metrics.gates import RELATIVE, TIMES, UNLIKE, Gate, Gates
from dask_simjoin.metrics.norms import Array, Frame, Norm, Series
from dask_simjoin.request.columns import (
    Groups,
    as_names,
    example_of,
    free_name,
    meta_of,
    own_radius,
)
from dask_simjoin.request.conversions import if_numbers
from dask_simjoin.request.messages import listed
from dask_simjoin.request.tolerances import (
    check_within,
    is_of_numbers,
    rule_of_numbers,
    rule_of_times,
)
from dask_simjoin.request.units import check_metric

DATES, SPANS = "dates", "time spans"
CLOCKS = ("times without a time zone", "times with a time zone", DATES, SPANS)
"""Kinds of columns, as `kind_of` names them, whose tolerance is a duration."""

ROUNDED = 1024
"""Times have up to 64 bits, and the coordinates of two times are rounded to float64 by
up to this many units together.
"""


WORDS = (" word 0", " word 1")
"""Ends of the names of added columns with words."""

UNLIKE_VALUES = functools.partial(framed, option="different")
"""Return the distinct values of a column of `different`."""

OPTIONS = ("within", "different", "box")
"""Options of joins whose candidates are decided by gates."""


class Scale(NamedTuple):
    """How the coordinate of a tolerance is scaled: see `gates.scale_for`."""

    tolerance: float  # how far two values of a pair differ at most
    metric: str
    p: Norm
    dims: int  # the number of coordinates of the metric

    def width(self, eps: float) -> float:
        """Return how far the scaled values of a pair should differ at most."""
        metric = make_metric(self.metric, self.p)
        threshold = metric.candidates(float(metric.threshold(eps)))
        return definition.width_for(metric.norm, threshold, self.dims)

    def factor(self, eps: float) -> float:
        """Return what values are multiplied by. Without a largest distance, a
        coordinate excludes no rows, so it is 0.
        """
        if eps == math.inf:
            return 0.0
        return definition.scale_for(self.width(eps), self.tolerance)


def with_gates(
    frame: Frame, options: Mapping[str, Any], radii: bool
) -> tuple[Frame, dict[str, Any], list[str]]:
    """If `within` or `different` is given, add the columns of their gates to the frame,
    and to the right table if there is one.

    Return the frame, the options with the changed right table, and the names of the
    added columns. The option `within` becomes the `Gates`. `radii`: whether `eps` may
    name a column with a distance for each row.
    """
    given = dict(options)
    within: Any = given.get("within")
    different = given.get("different")
    other = given.get("other")
    # another verb called this one, and has added the columns already
    if isinstance(within, Gates):
        return frame, given, []
    option = _first_option(given)
    if option is None:
        return frame, given, []
    tables = [frame] if other is None else [frame, other]
    tables = [table_of(table).without_categorize() for table in tables]
    examples = [example_of(table) for table in tables]
    check_served(examples, given, option)
    if within is None and different is None:  # the option needs no columns
        return frame, given, []
    eps, scaled = _bound(examples[0], given, radii)
    largest: list[Any] = []
    if eps is None:
        radius = frame[[given["eps"]]]
        largest = [table_of(radius).reduced(_largest, _largest)]
    rules: list[Gate] = []
    widths: list[float | None] = []
    made: list[Made] = []
    labels: list[str] = []

    def labels_for(text: str, *ends: str) -> list[str]:
        for end in ends:
            labels.append(free_name(text + end, examples, labels))
        return labels[-len(ends) :]

    near: list[tuple[Hashable, ...]] = [()] * len(tables)
    if within is not None:
        within = check_within(within)
        near = names_in_tables(tuple(within), examples, "within")
    for k, name in enumerate(within or ()):
        sources: list[tuple[Hashable, ...]] = [(own[k],) for own in near]
        columns = [
            example[name] for example, (name,) in zip(examples, sources, strict=True)
        ]
        rule, unit = rule_of(name, within[name], columns)
        scale = scaled._replace(tolerance=_tolerance(rule))
        factor = None if eps is None else scale.factor(eps)
        widths.append(scale.tolerance * factor if factor else factor)
        how = rule.kind, unit, factor, scale, *largest
        labelled = labels_for(f"within={sources[0][0]}", "", *WORDS)
        made.append(Made(labelled, sources, columns_within, how))
        rules.append(rule)
    unlike: list[tuple[Hashable, ...]] = [()] * len(tables)
    if different is not None:
        names = names_of(different, examples)
        unlike = names_in_tables(names, examples, "different")
        _check_can_differ(unlike, names, given.get("by"))
        values = [
            table_of(table[[own[k]]]).reduced(UNLIKE_VALUES, UNLIKE_VALUES)
            for k in range(len(names))
            for table, own in zip(tables, unlike, strict=True)
        ]
        rules.append(Gate(UNLIKE))
        labelled = labels_for(f"different={','.join(map(str, unlike[0]))}", *WORDS)
        made.append(Made(labelled, unlike, columns_unlike, (len(tables), *values)))
    added = [
        *(one.labels[0] for one in made if one.function is columns_within),
        *(label for one in made for label in one.labels[-2:]),
    ]
    given["within"] = Gates(
        near[0],
        unlike[0],
        tuple(rules),
        tuple(widths),
        scaled.dims,
        tuple(added),
        (*near[-1], *unlike[-1]),
    )
    frame, *others = (
        _with_columns(table, made, side) for side, table in enumerate(tables)
    )
    if others:
        given["other"] = others[0]
    return frame, given, added


class Made(NamedTuple):
    """Columns that a function makes from the rows of some columns."""

    labels: list[str]
    columns: list[tuple[Hashable, ...]]  # in each table
    function: Any
    args: tuple[Any, ...]


def _check_can_differ(
    unlike: list[tuple[Hashable, ...]], names: tuple[Hashable, ...], by: Groups | None
) -> None:
    """Raise an error if all columns that must differ must also be equal. `unlike`: the
    columns in each table; `names`: what `different` names.
    """
    equal = [] if by is None else [by.names, by.others]
    if set(zip(unlike[0], unlike[-1], strict=True)) <= set(zip(*equal, strict=True)):
        raise OptionError(
            f"by= and different= both name {listed(names)}, so no two rows can match; "
            "leave one of them out."
        )


def check_served(examples: list[Frame], given: Mapping[str, Any], option: str) -> None:
    """Raise an error for tables and options that do not support gates. `option`: see
    `_first_option`.
    """
    if given.get("k") is not None and any(library(one) != HOME for one in examples):
        raise OptionError(
            f"{option} is for frames of pandas here: searches for nearest rows on GPUs "
            "do not support it. Convert the tables with ddf.to_backend('pandas'), or "
            "frame.to_pandas()."
        )
    if given.get("approximate"):
        raise OptionError(
            f"{option} is not allowed with approximate=True; leave out one of them."
        )
    if given.get("ties", "first") != "first":
        raise OptionError(f"{option} is not allowed with ties='all'; leave out ties=.")


def _first_option(given: Mapping[str, Any]) -> str | None:
    """Return an option whose candidates are decided by gates or by a formula, as
    messages show it; None: there is none.
    """
    named = [f"{name}=" for name in OPTIONS if given.get(name) is not None]
    return named[0] if named else _formula(given)


def _formula(given: Mapping[str, Any]) -> str | None:
    """Return the metric as messages show it, if it is not a norm."""
    name = given.get("metric")
    is_formula = isinstance(name, str) and name in METRICS and METRICS[name].formula
    return f"metric={name!r}" if is_formula else None


def _bound(
    example: Frame, given: Mapping[str, Any], radii: bool
) -> tuple[float | None, Scale]:
    """Return the largest distance of a pair, and how coordinates are scaled. The
    distance is None if each row has its own, and inf if there is no limit.
    """
    metric, p = check_metric(given.get("metric", "euclidean"), given.get("p", 2))
    on = given.get("left_on", given.get("on"))
    names = [] if on is None else as_names(on)
    dims = metric.dims(len(names)) if len(names) > 1 else 2
    scale = Scale(0.0, given.get("metric", "euclidean"), p, dims)
    bound = next((name for name in BOUNDS if given.get(name) is not None), None)
    if bound is None:
        return math.inf, scale
    if radii and own_radius(example, given[bound]) is not None:
        return None, scale
    return max(distances_of(given, bound)), scale


def rule_of(name: Hashable, value: Any, columns: list[Series]) -> tuple[Gate, str]:
    """Return the gate for the tolerance of a column, and the unit of its times; "" for
    numbers. `columns`: the column in each table.
    """
    kinds = [kind_of(column) for column in columns]
    number = next((k for k, kind in enumerate(kinds) if kind in (OBJECTS, DECIMALS)), 0)
    advice = if_numbers(columns[number].name)
    if len(set(kinds)) > 1:
        dtypes = " and ".join(str(column.dtype) for column in columns)
        may_be_numbers = {*kinds} <= {NUMBERS, OBJECTS, DECIMALS}
        raise ColumnError(
            f"within= names {name!r}, which is of dtypes {dtypes} in the two tables: "
            f"{kinds[0]} and {kinds[1]}. Convert one of the columns. "
            f"{advice * may_be_numbers}".rstrip()
        )
    if kinds[0] == DECIMALS or (kinds[0] == OBJECTS and is_of_numbers(value)):
        objects = (
            " Convert texts with pandas.to_numeric(), where errors='coerce' makes texts "
            "that are no numbers missing values. For dates, use a duration, such as '1 D'."
        )
        raise ColumnError(
            f"within= names {name!r} of dtype {columns[0].dtype}; its columns must hold "
            f"numbers (integers or floats), times or dates. {advice}"
            f"{objects * (kinds[0] == OBJECTS)}"
        )
    if kinds[0] in (*CLOCKS, OBJECTS):
        units = [unit_of_times(column.dtype) for column in columns]
        unit = max(units, key=list(NANOSECONDS).index)
        return rule_of_times(name, value, unit), unit
    if kinds[0] != NUMBERS or any(kind_of_number(c.dtype) == "b" for c in columns):
        raise ColumnError(
            f"within= names {name!r} of dtype {columns[0].dtype}; its columns must hold "
            f"numbers, times or dates. For equal values, use by={name!r}. Convert texts "
            "of times with pandas.to_datetime()."
        )
    return rule_of_numbers(name, value), ""


def _tolerance(rule: Gate) -> float:
    """Return how far the values of two rows differ at most, as coordinates before they
    are scaled.
    """
    if rule.kind == RELATIVE:
        return definition.log_tolerance(rule.high)
    most = float(max(abs(rule.low), abs(rule.high)))
    if rule.kind == TIMES:
        most = math.inf if most >= definition.OPEN else most + ROUNDED
    return most


def _with_columns(table: Frame, made: list[Made], side: int) -> Frame:
    """Add columns to the left (0) or right table, all at once: Dask optimizes nested
    assignments apart, and may then read other partitions for each.
    """

    def frame(one: Made) -> Frame:
        source = table[list(one.columns[side])]

        def meta() -> Frame:
            none = meta_of(source).iloc[:0]
            empty = frames_for(none).xp.empty(0)
            return _framed(none, dict.fromkeys(one.labels, empty))

        return table_of(source).by_partition(
            one.function, one.labels, *one.args, meta=meta
        )

    frames = [(one, frame(one)) for one in made]
    return table.assign(
        **{label: rows[label] for one, rows in frames for label in one.labels}
    )


def columns_within(
    rows: Frame,
    labels: list[str],
    kind: int,
    unit: str,
    factor: float | None,
    scale: Scale,
    *largest: pd.DataFrame,
) -> Frame:
    """Return the coordinate of a tolerance, and the two words of the values, for rows
    with one column. The coordinate is NaN for a missing value.

    `factor`: what values are multiplied by. None: it follows from `largest`, which has
    the largest distance.
    """
    if factor is None:
        factor = scale.factor(float(np.nanmax([0.0, *largest[0]["value"]])))
    values, missing = _values_of(rows, unit)
    found = definition.logarithms(values) if kind == RELATIVE else values
    coordinate = definition.coordinates(found, factor)
    coordinate[missing] = np.nan
    return _framed_words(rows, labels, values, coordinate)


def _framed_words(
    rows: Frame, labels: list[str], values: Array, *coordinates: Array
) -> Frame:
    columns = [*coordinates, *definition.words_of(values).T]
    return _framed(rows, dict(zip(labels, columns, strict=True)))


def _framed(rows: Frame, columns: dict[str, Array]) -> Frame:
    """Return columns as a frame with the labels of rows."""
    made = frames_for(rows).result(columns, len(rows))
    made.index = rows.index
    return made


def _values_of(rows: Frame, unit: str) -> tuple[Array, Array]:
    """Return the values of one column, int64 for times and float64 for numbers, and
    which of them are missing.
    """
    rows = native(rows)
    name, column = rows.columns[0], rows.iloc[:, 0]
    if not unit:
        found = frames_for(rows).numbers(rows, name)
        whole = kind_of_number(column.dtype) in ("i", "u")
        if whole and any_of(abs(found) >= EXACT_INTEGER):
            raise ColumnError(
                f"within= names {name!r}, which holds integers of 2**53 or more. They "
                "are compared as float64, which does not have all of them. Subtract a "
                "common number first."
            )
        return found, np.isnan(found)
    return times_of(column, unit, "within")


def columns_unlike(rows: Frame, labels: list[str], sides: int, *values: Frame) -> Frame:
    """Number the values of rows in all their columns together, and return the two words
    of the numbers. A missing value equals a missing value.

    `values`: the distinct values of each column in each table.
    """
    given, xp = native(rows), frames_for(rows).xp
    code, groups = xp.zeros(len(given), np.int64), 1
    for k, name in enumerate(given.columns):
        parts = keys_of_sides(values[k * sides : (k + 1) * sides])
        place, number = places_among(given[name], parts)
        groups *= number + 1
        if groups >= 2**63:
            raise ColumnError(
                f"different= names columns with {groups:,} combinations of values, "
                "too many to number; name fewer columns."
            )
        code = code * (number + 1) + xp.asarray(place) + 1
    return _framed_words(rows, labels, code)


def _largest(rows: Frame) -> pd.DataFrame:
    """Return the largest finite value of a column, in a frame with one row."""
    column = rows.iloc[:, :1]
    name = column.columns[0]
    values = to_host(frames_for(column).numbers(column, name))
    finite = values[np.isfinite(values)]
    return pd.DataFrame({"value": [finite.max(initial=0.0)]})
