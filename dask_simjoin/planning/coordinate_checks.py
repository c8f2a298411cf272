"""Checks of coordinates and radii: refusals before any task of the join runs."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.columns import A_NUMBER
from dask_simjoin.errors import CoordinateError, ListError, NumberError
from dask_simjoin.metrics.distances import Hamming
from dask_simjoin.metrics.norms import add, reach
from dask_simjoin.planning.partition import PartitionSummary
from dask_simjoin.planning.sample import moments
from dask_simjoin.request.column_names import are_points
from dask_simjoin.request.conversions import as_floats, if_numbers
from dask_simjoin.request.messages import (
    BITS,
    counted,
    listed,
)
from dask_simjoin.request.spec import JoinSpec, check_dims
from dask_simjoin.request.units import check_threshold


def check_radii(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse the column of radii if it has missing, negative or infinite values."""
    for number, summary in enumerate(summaries):
        many, label = summary.bad_radii
        if many:
            where = f" in partition {number}" if len(summaries) > 1 else ""
            raise CoordinateError(
                f"eps={spec.radius!r} names a column of distances. {many:,} of them "
                f"{'is' if many == 1 else 'are'} missing, negative or infinite (first "
                f"at label {label}{where}). Distances must be finite "
                "numbers >= 0: fill them, or drop those rows first."
            )
    largest = max((summary.largest_radius for summary in summaries), default=0.0)
    given = f"eps={spec.radius!r} names a column of distances. {largest!r}"
    check_threshold(largest, spec.measure, given, "these distances")


def check_totals(
    boxes: list[tuple[np.ndarray, np.ndarray]], spec: JoinSpec, bounded: bool
) -> None:
    """Refuse a search without a largest distance if distances could overflow.

    `boxes`: lower and upper bounds of the coordinates of each table. `bounded`: whether
    the verb has an option for the largest distance. No computed total is larger than the total
    of the farthest corners, because rounding is monotone.
    """
    (lower, upper), (low, high) = boxes[0], boxes[-1]
    metric, dims = spec.measure, len(lower) - spec.coordinates.added
    total: float = np.float64(0.0)
    with np.errstate(over="ignore"):
        width = np.maximum(upper - low, high - lower)
        for k in range(dims):
            total = add(total, width[k], metric.norm)
    # most boxes are far smaller, and the largest distance takes some time to find
    if total < SAFE_TOTAL:
        return
    most = float(metric.threshold(metric.largest_eps()))
    if total <= most:
        return
    # half of the width, which does not overflow
    half = np.maximum(upper / 2 - low / 2, high / 2 - lower / 2)[:dims]
    largest = int(np.argmax(half))
    column = "" if spec.coordinates.lists else f" of column {spec.on[largest]!r}"
    finite = np.isfinite(width[largest])
    apart = f"up to {width[largest]:.4g}" if finite else "more than 1.8e308"
    limit = f"pass {spec.limit.option}=, or " if bounded else ""
    # the smallest power after which no total overflows, or one slightly larger
    allowed = math.frexp(reach(metric.norm, most))[1] - math.frexp(dims)[1]
    scale = math.frexp(half[largest])[1] + 3 - allowed
    raise CoordinateError(
        f"Coordinates{column} are {apart} apart. With "
        f"metric={spec.metric.name!r}, distances of such rows may be more than the largest "
        f"float64, so the nearest rows are not known. To find them, {limit}"
        f"divide the coordinates by a power of two, such as 2.0**{scale}."
    )


SAFE_TOTAL = 1e300
"""Totals below this do not overflow, and neither do the powers of their distances."""


def resolve_dims(
    summaries: list[PartitionSummary], spec: JoinSpec
) -> tuple[list[PartitionSummary], JoinSpec]:
    """Set the number of dimensions in the summaries and in the spec.

    Refuse coordinates that cannot be joined.
    """
    check_coordinates(summaries, spec)
    found = [(n, s.dims) for n, s in enumerate(summaries) if s.dims is not None]
    dims = found[0][1] if found else spec.coordinates.dims or 1
    for number, other in found:
        if other != dims:
            raise ListError(
                f"The lists of column {spec.on[0]!r} must be of equal length: lists of "
                "partition "
                f"{found[0][0]} have {dims} numbers, and lists of partition {number} "
                f"have {other}. {_same_length(spec.on[0])}"
            )
    if not dims:
        raise ListError(
            f"The lists of column {spec.on[0]!r} are empty; each needs at least one "
            "number."
        )
    if spec.coordinates.dims != dims:
        spec = spec.with_dims(dims)
        check_dims(spec)
    nowhere = moments(np.empty((0, dims)))
    return [
        s if s.moments.rows else replace(s, moments=nowhere) for s in summaries
    ], spec


SHAPES = re.compile(
    r"an? ((Multi)?(Point|LineString|Polygon)|LinearRing|GeometryCollection)"
)
"""Matches the types of shapely's geometries."""


def _same_length(name: Hashable) -> str:
    """Return the sentence that recommends to keep the lists of a Dask DataFrame that
    have the most frequent length.
    """
    return (
        "To keep the lists of the most frequent length: "
        f"n = df[{name!r}].map(len, na_action='ignore', meta=({name!r}, 'float64')). "
        "Then df = df[n == max(n.mode())]."
    )


MOST_LENGTHS = 3
"""Number of lengths of lists that a message names."""


def _unlike_lengths(
    name: Hashable, summary: PartitionSummary, number: int, partitions: int
) -> ListError:
    """Return the error for lists of several lengths. `number`: of the partition with
    these lists.
    """
    # of several frequent lengths, the largest, as in `_same_length`
    frequent = max(summary.lengths, key=lambda one: (one[1], one[0]))
    others = [one for one in summary.lengths if one is not frequent]
    named = [
        one for one in summary.lengths if one in (frequent, *others[: MOST_LENGTHS - 1])
    ]
    *texts, last = [
        f"{counted(many, 'list')} {'has' if many == 1 else 'have'} length {length} "
        f"(first in row {row}, label {label})"
        for length, many, row, label in named
    ]
    if rest := sum(one[1] for one in others[MOST_LENGTHS - 1 :]):
        texts.append(last)
        last = f"{counted(rest, 'list')} {'has' if rest == 1 else 'have'} other lengths"
    where = f"in partition {number}, " if partitions > 1 else ""
    use = (
        _same_length(name)
        if partitions > 1
        else f"To keep only the lists of length {frequent[0]}: "
        f"df = df[df[{name!r}].map(len, na_action='ignore') == {frequent[0]}]."
    )
    return ListError(
        f"Column {name!r} must hold lists of numbers of equal length, but {where}"
        f"{', '.join(texts)} and {last}. {use}"
    )


def _unlike(name: Hashable, what: str, where: str) -> ListError:
    """Return the error for a row of a column that has no list of numbers. `what`: the
    value; `where`: its row.
    """
    kind, column = what.partition(",")[0], f"df[{name!r}]"
    if "not a list" not in what:
        return ListError(
            f"Column {name!r} must hold lists of numbers of equal length: {where} holds "
            f"{what}. Leave such rows out first, or convert the lists."
        )
    if what.endswith(A_NUMBER):
        return ListError(
            f"Column {name!r} holds {kind} in {where}, but coordinates must have a dtype "
            f"of integers or floats. {if_numbers(name)} This rounds each to the nearest "
            "float64."
        )
    problem = (
        f"Column {name!r} holds {kind} in {where}, but coordinates must be numbers, or "
        "lists of numbers of equal length."
    )
    if SHAPES.fullmatch(kind):
        return ListError(
            f"{problem} Shapes cannot be joined; use the coordinates of their "
            f"centroids: {column} = {column}.map(lambda shape: [shape.centroid.x, "
            "shape.centroid.y])."
        )
    if kind in ("a date", "a datetime"):
        return ListError(
            f"{problem} For rows that are near in time as well, use on= with the other "
            f"columns and within={{{name!r}: '1 d'}}. To use the times in seconds: "
            f"{column} = pd.to_datetime({column}).map(pd.Timestamp.timestamp)."
        )
    return ListError(
        f"{problem} If other rows hold lists, leave such rows out first. Otherwise "
        "name columns of numbers with on=."
    )


DROPNA = "Use dropna=True"
"""Begins the remedy for missing values."""


@contextlib.contextmanager
def without_dropna(instead: str) -> Iterator[None]:
    """Replace the remedy for missing values where `dropna` is not an option."""
    try:
        yield
    except CoordinateError as error:
        problem, dropna, _ = str(error).partition(DROPNA)
        if dropna:
            error.args = (f"{problem}{instead}",)
        raise


def check_coordinates(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse values that are not finite, not allowed by the metric, or not exact in
    float64.
    """
    for number, summary in enumerate(summaries):
        if summary.unlike is not None:
            if summary.lengths:
                raise _unlike_lengths(spec.on[0], summary, number, len(summaries))
            row, what, label = summary.unlike
            place = _place(row, number, label, len(summaries))
            raise _unlike(spec.on[0], what, place)
        if summary.no_number is not None:
            wrong, label = summary.no_number
            place = _place(wrong.row, number, label, len(summaries))
            raise NumberError.at(wrong.column, wrong.row, wrong.value, place)
    problems, groups, gates = [], "", spec.coordinates.gates
    for name in spec.on:
        found = [(n, *s.bad[name]) for n, s in enumerate(summaries) if name in s.bad]
        if not found:
            continue
        number, *_, label = found[0]
        where = f"(first at label {label}{f' in partition {number}' if len(summaries) > 1 else ''})"
        missing, infinite = sum(bad[1] for bad in found), sum(bad[2] for bad in found)
        if spec.coordinates.by and name == spec.on[len(spec.named)]:
            lacking = f"{listed(spec.coordinates.by)}, missing in {counted(missing, 'row')} {where}"
            groups = f"Columns of by= must not have missing values: {lacking}. "
            continue
        is_gate = name in gates.columns
        if is_gate:
            name = gates.within[gates.columns.index(str(name))]
        kinds = [
            f"{counted(many, 'row')} with {kind} numbers"
            if spec.coordinates.lists and not is_gate
            else counted(many, f"{kind} value")
            for many, kind in ((missing, "missing"), (infinite, "infinite"))
            if many
        ]
        if are_points(spec.named) and not infinite and not is_gate:
            # both coordinates of a missing point are missing
            kinds = [
                f"{missing:,} missing or empty geometr{'y' if missing == 1 else 'ies'}"
            ]
            name = str(name)[:-2]
        problem = f"column {name!r} has {' and '.join(kinds)} {where}"
        if problem not in problems:
            problems.append(problem)
    if problems or groups:
        numbers = (
            f"Coordinates must be finite numbers: {'; '.join(problems)}. "
            if problems
            else ""
        )
        raise CoordinateError(
            f"{numbers}{groups}{DROPNA} (those rows then have no partner), or "
            f"{'drop such rows' if are_points(spec.named) else 'replace these values'} first."
        )
    _check_directions(summaries, spec)
    _check_limits(summaries, spec)
    _check_box(summaries, spec)
    _check_allowed(summaries, spec)
    for name in spec.on:
        for number, summary in enumerate(summaries):
            if name in summary.inexact:
                advice = (
                    f"{BITS.format(name=name)}. To compare whole integers, number them "
                    f"first: df[{name!r}] = pandas.factorize(df[{name!r}])[0]."
                    if spec.metric.name == Hamming.name
                    else "Otherwise subtract an offset first. Or, if rounding is fine, "
                    f"convert the column: {as_floats(name)}."
                )
                raise CoordinateError(
                    f"Column {name!r} holds the integer {summary.inexact[name]}"
                    f"{f' (partition {number})' if len(summaries) > 1 else ''}. Beyond "
                    "2**53, float64 cannot represent every integer. If these are ids, "
                    f"use id={name!r} and other coordinates. {advice}"
                )


def _place(row: int, number: int, label: str, partitions: int) -> str:
    """Return the place of a row, with its partition if there are several."""
    where = f" of partition {number}" if partitions > 1 else ""
    return f"row {row}{where} (label {label})"


def _check_directions(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    found = [(n, s.zero) for n, s in enumerate(summaries) if s.zero is not None]
    if found:
        number, (_, row, label) = found[0]
        zeros = sum(zero[0] for _, zero in found)
        rows, it = (
            ("There is 1 such row: ", "it")
            if zeros == 1
            else (f"There are {zeros:,} such rows; the first is ", "them")
        )
        place = _place(row, number, label, len(summaries))
        raise CoordinateError(
            f"metric={spec.metric.name!r} compares directions, and a row of zeros has no "
            f"direction. {rows}{place}. {DROPNA} to leave {it} out, or drop {it} first."
        )


class Outside(NamedTuple):
    """The values of a column that are outside its limits."""

    name: Hashable
    number: int
    markers: int  # how many of them often stand for a missing value
    example: str  # with its place

    @property
    def counted(self) -> str:
        return counted(self.number, "value")


def _outside(
    summaries: list[PartitionSummary], spec: JoinSpec, *each: Iterable[Any]
) -> Iterator[tuple[Any, ...]]:
    """For each column with values outside its limits, yield the `Outside`, and what
    `each` has for the column.
    """
    for name, *about in zip(spec.on, *each, strict=False):
        found = [
            (n, s.beyond[name]) for n, s in enumerate(summaries) if name in s.beyond
        ]
        if found:
            partition, first = found[0]
            where = f" in partition {partition}" if len(summaries) > 1 else ""
            number = sum(beyond.number for _, beyond in found)
            markers = sum(beyond.markers for _, beyond in found)
            example = f"{first.example!r} at label {first.label}{where}"
            yield Outside(name, number, markers, example), *about


def _check_box(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse coordinates outside a periodic box."""
    for found, length in _outside(summaries, spec, spec.coordinates.box):
        raise CoordinateError(
            f"Column {found.name!r} has {found.counted} outside the box, 0 to "
            f"{length:g}: for example {found.example}. To wrap them: "
            f"df[{found.name!r}] %= {length!r}."
        )


def _check_allowed(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse numbers that the formula of a metric does not allow."""
    metric = spec.measure
    if not metric.formula:
        return
    for found, (least, most) in _outside(summaries, spec, metric.limits):
        raise CoordinateError(
            f"metric={metric.name!r} compares numbers from {least:g} to {most:g}. "
            f"Column {found.name!r} has {found.counted} outside this range: for example "
            f"{found.example}. Drop such rows, or use another metric, such as "
            "'manhattan'."
        )


FEW = 0.01
"""If at most this share of values is not allowed, the columns are not swapped."""


def _check_limits(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    metric = spec.measure
    limits = metric.columns, metric.limits
    for found, wanted, (lowest, highest) in _outside(summaries, spec, *limits):
        name = found.name
        text = (
            f"Column {name!r} has {found.counted} outside the range of a "
            f"{wanted} in degrees, {lowest:g} to {highest:g}: for example "
            f"{found.example}."
        )
        drop = (
            f"Drop such rows first: df = df[df[{name!r}].between({lowest:g}, "
            f"{highest:g})]. dropna=True does not help: it leaves out only missing "
            f"values. To treat them as missing: df[{name!r}] = df[{name!r}].where("
            f"df[{name!r}].between({lowest:g}, {highest:g})), then dropna=True."
        )
        swapped = (
            f"Use metric={spec.metric.name!r} with {' and '.join(metric.columns)}, in "
            "this order, in degrees. The columns may be swapped, or their values "
            "may have another unit, such as meters."
        )
        mark = 91 if wanted == metric.columns[0] else 181
        marks = f"{mark} often stands for 'not available', as in AIS."
        if found.markers == found.number:
            raise CoordinateError(f"{text} {marks} {drop}")
        if found.markers > 1:
            raise CoordinateError(f"{text} {swapped} But {marks} {drop}")
        if found.number <= FEW * sum(one.source_rows for one in summaries):
            raise CoordinateError(f"{text} {drop}")
        raise CoordinateError(f"{text} {swapped}")
