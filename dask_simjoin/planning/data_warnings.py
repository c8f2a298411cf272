"""Warnings if the data suggest mistaken options, such as units or columns."""

from __future__ import annotations

import contextlib
import math
import numbers
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dask_simjoin.catalog import LOSSY_NEAREST, name_of
from dask_simjoin.errors import (
    ApproximateWarning,
    BudgetError,
    ColumnsWarning,
    Remedy,
    SimJoinWarning,
    UnitsWarning,
    line_of_user,
)
from dask_simjoin.metrics.distances import Canberra, Cosine, Hamming, Haversine
from dask_simjoin.metrics.norms import Frame, add
from dask_simjoin.metrics.sphere import RADIUS
from dask_simjoin.planning.budget import (
    Cause,
    enough_result,
)
from dask_simjoin.planning.estimate import Estimate
from dask_simjoin.planning.kilometers import far_from_eps, small_eps
from dask_simjoin.planning.table import TableSummary
from dask_simjoin.request.column_names import (
    are_points,
    is_identifier,
    latitude_and_longitude,
)
from dask_simjoin.request.messages import BITS, about_many, counted, listed, size_text
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import PROBED

MIN_ROWS = 500
"""Tables with fewer rows give no warnings, because all rows of a small table may be
near each other.
"""

LARGE = 0.5
"""A result with at least this fraction of all possible pairs is probably a mistake."""

SIMILAR = 0.1
"""Replaces `LARGE` if `eps` looks like a similarity, because a distance was probably
not meant.
"""

WIDE = 100
"""A column is probably not a coordinate if its spread exceeds the spread of every other
column times this.
"""

MANY = 20
"""A table of fewer columns is hardly transposed, even if it has fewer rows."""

DEAR = 2 << 30
"""A result of at least this many bytes is refused if it has at least `LARGE` of all
possible pairs.
"""

SILENCE = (
    "To silence this warning: warnings.simplefilter('ignore', "
    "dask_simjoin.errors.UnitsWarning)."
)
"""End of warnings that nothing else ends but other data."""

CHECK_UNIT = "Check that eps and the coordinates have the same unit"
"""Advice of warnings about many pairs. Errors join it with their own advice."""

SMALLER = ", or use a smaller eps"
"""End of warnings about many pairs. Errors about them name more remedies instead."""


class Mistake(NamedTuple):
    """A likely mistake in units, which may explain a large result."""

    text: str  # sentences for errors about the result
    # a further sentence without its period, to join with "or use a smaller eps"
    advice: str = ""


class DataWarning(NamedTuple):
    """A warning.

    `if_none`: it applies only if the join finds no pair. `remedy`: the advice of the
    warning. `mistake`: the mistake that it is about, if this may explain a large result.
    """

    warning: SimJoinWarning
    if_none: bool = False
    remedy: Remedy | None = None
    mistake: Mistake | None = None


def raise_warnings(data_warnings: Iterable[DataWarning], found: int | None = 0) -> None:
    """Issue warnings that name the user's line of code. `found`: number of pairs; None:
    not known yet.
    """
    for data_warning in data_warnings:
        if not data_warning.if_none or found == 0:
            warnings.warn(data_warning.warning, stacklevel=line_of_user())


def is_most(share: float, size: float) -> bool:
    """Return whether `check_share` refuses a share of all pairs that takes `size` bytes."""
    return share >= LARGE and size >= DEAR


def check_share(
    data_warnings: Iterable[DataWarning],
    share: float,
    rows: float,
    row_bytes: float,
    spec: JoinSpec,
    cause: Cause,
) -> None:
    """Refuse a large result that has most of the possible pairs, unless a limit of
    results is configured.

    `share`: number of the result's pairs, divided by the number of all possible pairs.
    `rows`: lower bound of the number of the result's rows.
    """
    size = rows * row_bytes
    if not is_most(share, size) or spec.settings.result is not None:
        return
    causes = _causes(data_warnings)
    message = (
        f"{cause.option} gives an estimated {about_many(rows)} pairs or more "
        f"({size_text(size)}, {share:.0%} of all pairs). A result with {LARGE:.0%} of "
        f"all pairs or more is refused from {size_text(DEAR)} on, because eps is "
        f"probably wrong. {cause.fewer_pairs} If "
        "you want all of these pairs, allow this size first: "
        f"dask.config.set({enough_result(size)})."
    )
    raise BudgetError(
        _explained(causes, message),
        remedies=[
            *filter(None, causes.values()),
            Remedy(config=enough_result(size)),
            *cause.counting,
        ],
    )


def _explained(mistakes: Iterable[Mistake], message: str) -> str:
    """Put mistakes before the message of an error. Their advice becomes part of the
    advice to use a smaller eps.
    """
    sentences, use = [], "Use a smaller eps"
    for mistake in mistakes:
        sentences.append(mistake.text)
        if mistake.advice and use in message:
            message = message.replace(use, f"{mistake.advice}{SMALLER}", 1)
        elif mistake.advice:
            sentences.append(f"{mistake.advice}.")
    return " ".join([*sentences, message])


@contextlib.contextmanager
def naming_causes(find: Callable[[], Iterable[DataWarning]]) -> Iterator[None]:
    """Put likely mistakes in units before the text of a `BudgetError`; `find` returns
    all warnings.
    """
    try:
        yield
    except BudgetError as error:
        (text,) = error.args
        new = {
            mistake: remedy
            for mistake, remedy in _causes(find()).items()
            if mistake.text not in text
        }
        error.args = (_explained(new, text),)
        error.remedies = (*filter(None, new.values()), *error.remedies)
        raise


def _causes(data_warnings: Iterable[DataWarning]) -> dict[Mistake, Remedy | None]:
    """Return the mistakes that may explain a large result, each with its remedy."""
    return {
        one.mistake: one.remedy
        for one in data_warnings
        if one.mistake is not None and not one.if_none
    }


def raise_if_none(
    data_warnings: Iterable[DataWarning],
    found: Any,
    copies: Callable[[], int] = lambda: 0,
) -> None:
    """Issue the warnings that apply if no pair was found. Pairs that `copies` counts
    are ignored.

    `found`: number of pairs, or a function that returns it.
    """
    some = [data_warning for data_warning in data_warnings if data_warning.if_none]
    if some:
        found = found() if callable(found) else found
        raise_warnings(some, max(0, int(found) - copies()) if found else 0)


def warnings_of_data(*sides: TableSummary) -> tuple[DataWarning, ...]:
    """Return the warnings that follow from the points of each table."""
    each = (_approximate, _radians, _degrees, _swapped, _bits, _columns, _left_out)
    found = [
        data_warning for side in sides for check in each for data_warning in check(side)
    ]
    found += _transposed(sides)
    # a dict removes duplicates, because both tables may give the same warning
    return tuple(
        {str(data_warning.warning): data_warning for data_warning in found}.values()
    )


def warnings_of_index(side: TableSummary) -> tuple[DataWarning, ...]:
    """Return the warnings about an index, whose rows are joined later."""
    small = "" if side.every.rows < MIN_ROWS else small_eps(side.spec, [side])
    return (*warnings_of_data(side), *([_units(small)] if small else []))


def _transposed(sides: Sequence[TableSummary]) -> list[DataWarning]:
    """Warn if all tables have more coordinates than rows, and `on` was not given.

    A single wide table of two is normal, such as a few queries.
    """
    spec = sides[0].spec
    columns = len(spec.named)
    rows = [side.every.rows for side in sides]
    if (
        spec.defaults is None
        or columns < MANY
        or not all(1 < n < columns for n in rows)
    ):
        return []
    has = (
        f"The table has {_rows(rows[0])}"
        if len(rows) == 1
        else f"The tables have {rows[0]:,} and {_rows(rows[1])}"
    )
    return [
        DataWarning(
            ColumnsWarning(
                f"{has}, but {columns:,} numeric columns, which are all coordinates. "
                "Each row is one point. If each column is one, transpose first: x.T "
                "instead of x. To end this warning, name the coordinates with on=[...]."
            )
        )
    ]


def _rows(number: float) -> str:
    return counted(int(number), "row")


def _approximate(side: TableSummary) -> list[DataWarning]:
    if not side.spec.search.approximate:
        return []
    if name_of(side.spec.search.method) in LOSSY_NEAREST:
        return [
            DataWarning(
                ApproximateWarning(
                    "approximate=True returns near rows, and may miss nearer ones. "
                    "Call profile(k=...) with the same "
                    "options to measure how many of the nearest rows it finds; "
                    "approximate=False finds all of them."
                )
            )
        ]
    text = (
        "approximate=True leaves out pairs of rows in different clusters. Call "
        "profile() with the same "
        "options to measure the share of pairs that is found; plan() estimates it. Use "
        "approximate=False "
        "to find all."
    )
    return [DataWarning(ApproximateWarning(text))]


def _radians(side: TableSummary) -> list[DataWarning]:
    every, spec = side.every, side.spec
    if spec.metric.name != Haversine.name or every.rows < MIN_ROWS:
        return []
    # radians that are read as degrees are small, so all points are near the x axis of
    # the sphere
    lat, lon = math.radians(math.pi / 2), math.radians(math.pi)
    low, high = every.lower, every.upper
    near = (
        max(-low[1], high[1]) <= math.sin(lon)
        and max(-low[2], high[2]) <= math.sin(lat)
        and low[0] > 0
    )
    if not near:
        return []
    columns = f"frame[[{listed(spec.on[:2])}]]"
    convert = "" if are_points(spec.named) else f": {columns} *= 180 / numpy.pi"
    return [
        _units(
            f"All {every.rows:,} values of {spec.on[0]!r} are between -pi/2 and pi/2, and "
            f"all of {spec.on[1]!r} between -pi and pi, as angles in radians are. But "
            f"metric={spec.metric.name!r} takes degrees. If the values are radians, "
            f"convert them{convert}.",
            silence=True,
        )
    ]


def _degrees(side: TableSummary) -> list[DataWarning]:
    """Warn if the columns' names and values suggest latitude and longitude, but the
    metric is for a plane.
    """
    every, spec = side.every, side.spec
    points = are_points(spec.named)
    places = (
        (1, 0)
        if points
        else latitude_and_longitude(spec.named)
        if len(spec.named) == 2
        else None
    )
    # for OPTICS there is no metric that takes degrees, so no warning can recommend it
    if (
        places is None
        or spec.measure.embeds
        or spec.limit.option == "max_eps"
        or every.rows < MIN_ROWS
    ):
        return []
    reach = np.maximum(np.abs(every.lower), np.abs(every.upper))
    lat, lon = places
    if reach[lat] > 90 or reach[lon] > 360 or every.lower[lon] < -180:
        return []
    if points:
        if reach[[lat, lon]].max() <= 1:  # more likely points of the unit square
            return []
        return [
            _units(
                "The points of the GeoDataFrame look like degrees, but "
                f"metric={spec.metric.name!r} compares them on "
                "a plane. If they are longitudes and latitudes, use "
                "frame.set_crs(4326) first: eps is then in "
                "meters."
            )
        ]
    named = listed([spec.on[lat], spec.on[lon]])
    in_order: dict[str, Any] = (
        {} if (lat, lon) == (0, 1) else {"on": [spec.on[lat], spec.on[lon]]}
    )
    text = (
        f"{named} look like degrees, but metric={spec.metric.name!r} compares them on a "
        f"plane{_in_meters(spec, named)}"
    )
    remedy = Remedy({"metric": Haversine.name, **in_order})
    return [_units(text, silence=True)._replace(remedy=remedy)]


def _in_meters(spec: JoinSpec, named: str) -> str:
    """Return advice to measure distances on the sphere, with the largest distance in
    meters, unless it is too large for degrees.
    """
    name, eps = spec.limit.option, spec.eps
    use = f"metric={Haversine.name!r}, on=[{named}]"
    if (
        spec.metric.name == "sqeuclidean"
        or spec.radius is not None
        or spec.several
        or not 0 < eps <= MANY_DEGREES
        or name == "max_distance"  # if it was not given, eps is a guess
    ):
        end = "" if name == "max_distance" else f" and {name}= in meters"
        return f", with distances in degrees. For meters, use {use}{end}."
    meters = math.radians(eps) * RADIUS
    size = f"{meters:.3g} m" if meters < 1000 else f"{meters / 1000:.3g} km"
    return (
        f", so {name}={eps:g} means {eps:g} degrees, about {size} of latitude. For "
        f"distances on the sphere, use {use}, {name}={size!r}."
    )


MANY_DEGREES = 10
"""A larger distance is hardly meant in degrees."""


def _swapped(side: TableSummary) -> list[DataWarning]:
    """Warn if x comes before y: on maps x is the longitude, but the latitude must come
    first.
    """
    spec = side.spec
    if spec.metric.name != Haversine.name or side.every.rows < MIN_ROWS:
        return []
    first, second = spec.on[:2]
    if (str(first).lower(), str(second).lower()) != ("x", "y"):
        return []
    return [
        _units(
            f"metric={spec.metric.name!r} takes latitude first, but {first!r} is first in "
            "on=, and usually names the "
            f"longitude. If it does, use on=[{listed([second, first])}].",
            silence=True,
        )
    ]


def _bits(side: TableSummary) -> list[DataWarning]:
    """Warn if Hamming distances of a single column may be meant for its bits."""
    spec = side.spec
    single = len(spec.named) == 1 and not spec.of_lists
    if side.every.rows < MIN_ROWS or spec.metric.name != Hamming.name:
        return []
    if not single or not 0 < spec.eps < 1:
        return []
    return [
        DataWarning(
            ColumnsWarning(
                f"With the single column {spec.named[0]!r}, only equal rows are within "
                f"eps={spec.eps:g}. {BITS.format(name=spec.named[0])}. For equal rows, "
                "use eps=0; then there is no warning."
            )
        )
    ]


def _columns(side: TableSummary) -> list[DataWarning]:
    """Warn about integer columns that are probably not coordinates, if `on` was not
    given.
    """
    every, spec, points = side.every, side.spec, side.points
    integers = () if spec.defaults is None else spec.defaults.integers
    if not integers or spec.measure.embeds or every.rows < PROBED:
        return []
    spread = np.sqrt(every.variance)
    others = max(
        float(s)
        for s, name in zip(spread, spec.named, strict=False)
        if name not in integers
    )
    data_warnings = []
    for name in integers:
        k = spec.on.index(name)
        steps = np.diff(points.x[:, k])
        if len(steps) >= PROBED and bool((steps > 0).all()):
            what = "counts the rows"
        elif spread[k] > WIDE * others > 0:
            what = f"has {spread[k] / others:,.0f} times the spread of the widest other column"
        else:
            continue
        data_warnings.append(
            DataWarning(
                ColumnsWarning(
                    "Without on= the coordinates are all numeric columns, "
                    f"{listed(spec.named)}. {name!r} "
                    f"holds integers and {what}. Name the coordinates with on=[...]; "
                    "then there is no warning."
                )
            )
        )
    return data_warnings


def warnings_of_left_out(frame: Frame, spec: JoinSpec) -> tuple[DataWarning, ...]:
    """Warn about object columns with numbers, such as Decimal, which are left out if
    `on` was not given.
    """
    if spec.defaults is None or not isinstance(frame, pd.DataFrame):
        return ()
    used = {*spec.on, spec.id, *spec.conditions, *spec.keep}
    others = [
        name
        for name in frame.columns
        if name not in used and not is_identifier(name, "i")
    ]
    found = {
        name: _a_number(frame[name]) for name in others if frame[name].dtype == object
    }
    # do not warn about integers: the column may be the id, which this result does not
    # need
    if spec.id_dtype is None:
        found = {name: kind for name, kind in found.items() if kind != "int"}
    return tuple(
        _left_out_warning(spec, name, f"object, holds numbers ({kind}),")
        for name, kind in found.items()
        if kind
    )


def _left_out(side: TableSummary) -> list[DataWarning]:
    """Warn about numeric columns that float64 would round, such as decimals, which are
    left out if `on` was not given.
    """
    spec = side.spec
    left_out = () if spec.defaults is None else spec.defaults.left_out
    return [
        _left_out_warning(spec, name, dtype)
        for name, dtype in left_out
        if name not in spec.keep
    ]


def _left_out_warning(spec: JoinSpec, name: Hashable, dtype: str) -> DataWarning:
    convert = f"with df.astype({{{name!r}: 'float64'}})"
    if dtype.startswith("complex"):
        convert = f"to its real and imaginary parts, such as numpy.real(df[{name!r}])"
    return DataWarning(
        ColumnsWarning(
            "Without on= the coordinates are all numeric columns, "
            f"{listed(spec.named)}. {name!r} is of dtype {dtype} and is left out. To use "
            f"it, convert it {convert}; to end this warning, use on=[...]."
        )
    )


def _a_number(column: pd.Series) -> str:
    """Return the type name of an object column's first value if the value is a number,
    else "".
    """
    some = column[:MIN_ROWS].dropna()
    value = some.iloc[0] if len(some) else None
    plain = isinstance(value, numbers.Number) and not isinstance(
        value, (bool, np.bool_)
    )
    return type(value).__name__ if plain else ""


def warnings_of_eps(
    spec: JoinSpec,
    found: Estimate,
    candidates: float,
    sides: tuple[TableSummary, TableSummary],
    copies_count: bool = False,
) -> tuple[DataWarning, ...]:
    """Return the warnings about `eps` that the sample suggests.

    `candidates`: number of possible pairs.  `copies_count`: whether the verb looks for
    copies.
    """
    if (
        spec.limit.option != "eps"
        or min(side.every.rows for side in sides) < MIN_ROWS
        or not candidates
    ):
        return ()
    # with several distances, it is not a mistake if the largest one includes all pairs
    large = () if spec.several else _large(spec, found.total_low / candidates, sides)
    left, right = (side.points for side in sides)
    far = far_from_eps(spec, found, left, right, copies_count)
    small = "" if copies_count else small_eps(spec, sides)
    data_warnings = list(large)
    if far:
        data_warnings.append(_units(far)._replace(if_none=not small))
    elif small and not large:
        data_warnings.append(_units(small))
    return tuple(data_warnings)


def _large(
    spec: JoinSpec, share: float, sides: tuple[TableSummary, TableSummary]
) -> list[DataWarning]:
    eps = f"eps={spec.radius if spec.radius is not None else spec.eps!r}"
    if (
        spec.metric.name == Cosine.name
        and spec.radius is None
        and 0.5 <= spec.eps <= 1
        and share >= SIMILAR
    ):
        return [
            _units(
                "metric='cosine' is a distance, one minus the cosine, and at least "
                f"{share:.0%} of all pairs of "
                f"rows are within {eps}. If you mean a similarity of at least "
                f"{spec.eps:g}, use "
                f"eps={1 - spec.eps:.6g}.",
                silence=True,
            )
        ]
    if share < LARGE:
        return []
    text = f"At least {share:.0%} of all pairs of rows are within {eps}"
    if spec.metric.name == Haversine.name:
        text += ", which is in meters"
    elif not spec.measure.embeds and not spec.coordinates.added:
        lower = np.minimum(*(side.every.lower for side in sides))
        upper = np.maximum(*(side.every.upper for side in sides))
        if not (upper > lower).any():
            return []  # all rows are equal, so the unit does not matter
        length = _total(spec, lower, upper)
        if math.isfinite(length):
            text += f": the largest distance of two rows is at most {length:.4g}"
        if degrees := _perhaps_degrees(spec, lower, upper, length):
            return [_smaller(f"{text}. {degrees}")]
    if spec.measure.formula:
        most = "the number of columns" if spec.metric.name == Canberra.name else "1"
        advice = (
            f"Distances of metric={spec.metric.name!r} are at most {most}: check eps"
        )
        return [_smaller(f"{text}.", advice)]
    return [_smaller(f"{text}.", CHECK_UNIT)]


def _perhaps_degrees(
    spec: JoinSpec, lower: np.ndarray, upper: np.ndarray, length: float
) -> str:
    """Return advice if the coordinates may be degrees, and `eps` meters; else "".

    `length`: the largest possible distance of two rows. On a plane, a larger eps
    makes every two rows a pair.
    """
    if len(spec.on) != 2 or spec.radius is not None or not spec.eps > length:
        return ""
    reach = np.maximum(np.abs(lower), np.abs(upper))
    if reach.max() > 360 or reach.min() > 90 or reach.max() <= 1:
        return ""
    first, second = spec.on
    x_first = str(first).lower() == "x" and str(second).lower() == "y"
    on = [second, first] if x_first or reach[0] > 90 else [first, second]
    metric = Haversine.name
    return (
        f"If {first!r} and {second!r} are degrees and eps is in meters, use "
        f"on=[{listed(on)}] (latitude, then longitude) and metric={metric!r}. Otherwise "
        f"check that eps is in the unit of {first!r} and {second!r}"
    )


def _total(spec: JoinSpec, lower: np.ndarray, upper: np.ndarray) -> float:
    """Return the distance between the corners `lower` and `upper` of a box."""
    total = np.zeros(1)
    with np.errstate(over="ignore"):
        for k in range(len(lower)):
            total = add(total, np.abs(upper[k : k + 1] - lower[k : k + 1]), spec.norm)
        return float(spec.measure.distance(total, np)[0])


def _units(text: str, silence: bool = False) -> DataWarning:
    """Return a warning about a mistake. `silence`: whether to say how to silence it."""
    end = f" {SILENCE}" if silence else ""
    return DataWarning(UnitsWarning(f"{text}{end}"), mistake=Mistake(text))


def _smaller(text: str, advice: str = "") -> DataWarning:
    """Return a warning about a mistake that a smaller eps mends, too. Either the text or
    the advice lacks its period.
    """
    warned = f"{text} {advice}" if advice else text
    mistake = Mistake(text if advice else f"{text}.", advice)
    return DataWarning(UnitsWarning(f"{warned}{SMALLER}."), mistake=mistake)
