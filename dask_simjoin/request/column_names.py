"""The meaning of column names: ids, latitudes, longitudes, and misspelled columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Sequence

from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.messages import (
    did_you_mean,
    listed,
    shown,
)

ID_NAMES = re.compile(
    r"(^|[^a-z])(id|ids|uid|pid|uuid|guid|key|pk|fk|index|idx|level_\d+|unnamed: \d+)$|^id([^a-z]|$)"
)
"""Pattern for lower-case names of identifiers, and for names that pandas gives to a
former index.
"""


ENDS_IN_ID = re.compile(r"[a-z]{2,}id$")


NO_ID = re.compile(
    r"(grid|oid|mid|bid|acid|lid|quid|fluid|paid|raid|said|laid|rapid|covid|brid)$"
)
"""Pattern for words such as "grid", which end in "id" but are not identifiers.

It does not match identifiers such as "geonameid".
"""


CAMEL = re.compile(r"[a-z](Id|ID|Key)$")


INTEGERS = ("i", "u")


def is_identifier(name: Hashable, kind: str) -> bool:
    """Return whether the name of an integer column suggests an identifier."""
    if not isinstance(name, str) or kind not in INTEGERS:
        return False
    low = name.strip().lower()
    ends = ENDS_IN_ID.search(low) is not None and NO_ID.search(low) is None
    return ID_NAMES.search(low) is not None or CAMEL.search(name) is not None or ends


def check_chosen(kinds: dict[Hashable, str]) -> None:
    """Raise an error if default coordinates include identifiers. `kinds`: column ->
    kind of number.
    """
    found = [name for name, kind in kinds.items() if is_identifier(name, kind)]
    if not found:
        return
    how = "look like identifiers" if len(found) > 1 else "looks like an identifier"
    raise ColumnError(
        f"Without on= the coordinates are all numeric columns, {listed(kinds)}. But "
        f"{listed(found)} "
        f"{how}. Name the coordinates with on=[...]{suggested(kinds)}. If "
        f"each row has its own {found[0]!r}, also use id={found[0]!r}."
    )


LATITUDE = re.compile(r"lat(s|i|it|itud|itudes|itudine)?|.*latitude")


LONGITUDE = re.compile(r"(lon|long|lng)s?|longi(t|tud|tudes|tudine)?|.*longitude")


DECLINATION = re.compile(r"(de|dec|decl|declination)[jb]?")


ASCENSION = re.compile(r"ra[jb]?|(right)?ascension")


ON_SPHERES = ((LATITUDE, LONGITUDE), (DECLINATION, ASCENSION))
"""Patterns of two coordinates on a sphere: latitude and longitude, or declination and
right ascension. Each matches a part of a name.
"""


PART = re.compile(r"[^\W\d_]+")


HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""Patterns for the parts of a name: letters without other characters between them, and
words in camel case.
"""


ANGLE_UNIT = re.compile(r"(?<=..)(deg|degs|degree|degrees|dd|rad)$")
"""Pattern for a unit at the end of a part, as in "latdeg"."""


NO_PLACE = {
    *("acc", "accel", "acceleration", "speed", "vel", "velocity", "force", "jerk"),
    *("err", "error", "std", "stderr", "sd", "sigma", "rms", "rmse", "mad", "bias"),
    *("pm", "pmra", "pmdec", "dist", "distance", "count", "offset"),
}
"""Other parts that say that a column holds no place, but for example its error."""


STEM = re.compile(r"(.*[^\W\d_])(lat|lon|lng|long)", re.IGNORECASE)
"""Pattern for names such as "intptlat", if another name has the same stem."""


def _parts(name: Hashable) -> set[str]:
    """Return the words in the name of a column, in lower case and without units.

    Examples
    --------
    >>> sorted(_parts("pickup_longitude")), sorted(_parts("decimalLatitude"))
    (['longitude', 'pickup'], ['decimal', 'decimallatitude', 'latitude'])
    """
    words = PART.findall(str(name))
    humps = [hump for word in words for hump in HUMP.findall(word)]
    return {ANGLE_UNIT.sub("", word.lower()) for word in (*words, *humps)}


def latitude_and_longitude(names: Sequence[Hashable]) -> tuple[int, int] | None:
    """Find latitude and longitude, or declination and right ascension, in a list of
    names. Return their positions, or None if they are not found.

    Examples
    --------
    >>> latitude_and_longitude(["start_lng", "start_lat"])
    (1, 0)
    >>> latitude_and_longitude(["latency", "longest"])
    """
    for first, second in _on_spheres(names):
        if first and second:
            return first[0], second[0]
    return None


def are_points(names: Sequence[Hashable]) -> bool:
    """Return whether coordinates are the columns that were added for the points of a
    GeoDataFrame.

    Examples
    --------
    >>> are_points(["geometry.y", "geometry.x"]), are_points(["x", "y"])
    (True, False)
    """
    found = [str(name) for name in names]
    stem = found[0][:-2] if found else ""
    return sorted(found) == [f"{stem}.x", f"{stem}.y"]


def _on_spheres(names: Sequence[Hashable]) -> list[tuple[list[int], list[int]]]:
    """For each entry of `ON_SPHERES`, return the positions of the names of its first
    coordinate, and of its second.
    """
    parts = [_parts(name) for name in names]
    found = [
        [
            {n for n, words in enumerate(parts) if any(map(one.fullmatch, words))}
            for one in pair
        ]
        for pair in ON_SPHERES
    ]
    ends = {
        n: end for n, name in enumerate(names) if (end := STEM.fullmatch(str(name)))
    }
    stems = [
        {end[1] for end in ends.values() if (end[2].lower() == "lat") is is_lat}
        for is_lat in (True, False)
    ]
    both = stems[0] & stems[1]
    for n, end in ends.items():
        if end[1] in both:
            found[0][end[2].lower() != "lat"].add(n)
    others = {n for n, words in enumerate(parts) if words & NO_PLACE}
    return [
        (sorted(first - second - others), sorted(second - first - others))
        for first, second in found
    ]


def suggested(kinds: dict[Hashable, str]) -> str:
    """Return a suggestion of coordinates in messages: ", such as on=[...]", with a hint
    to columns that are doubtful or left out. Identifiers are left out silently.
    """
    rest = {name: kind for name, kind in kinds.items() if not is_identifier(name, kind)}
    names = list(rest)
    first, second = _on_spheres(names)[0]
    if len(first) == len(second) == 1:
        chosen = [names[first[0]], names[second[0]]]
        others = [name for name in names if name not in chosen]
        does = "does not look like a coordinate"
        if len(others) > 1:
            does = "do not look like coordinates"
        without = f" ({listed(others)} {does})" if others else ""
        return f", such as on=[{listed(chosen)}]{without}"
    integers = [name for name, kind in rest.items() if kind in INTEGERS]
    if len(integers) > 1:
        doubt = f" ({listed(integers)} hold integers: leave out those that are codes)"
    elif integers:
        doubt = f" ({integers[0]!r} holds integers: leave it out if they are codes)"
    else:
        doubt = ""
    return f", such as on=[{listed(names, 100)}]{doubt}" if names else ""


def integers_among(kinds: dict[Hashable, str]) -> tuple[Hashable, ...]:
    """Return the integer columns if there are also float columns.

    They may not be coordinates, so a warning names them.
    """
    found = tuple(name for name, kind in kinds.items() if kind in INTEGERS)
    return found if len(found) < len(kinds) else ()


def absent(option: str, name: Hashable, tables: Sequence[Frame]) -> ColumnError:
    """Return the error for the name of a column that none of the tables has."""
    columns = [column for table in tables for column in table.columns]
    # compare only texts with names, because comparing objects such as pandas.NA raises
    # an error
    plain = isinstance(name, str)
    if plain and any(name in table.index.names for table in tables):
        meant = (
            ", but the name of the index; use frame.reset_index() to make it a column"
        )
    elif option == "keep" and (name is True or (plain and name in ("all", "*"))):
        every = (
            "df.columns"
            if len(tables) == 1
            else "left.columns.union(right.columns, sort=False)"
        )
        meant = f"; all are kept by keep=list({every})"
    else:
        meant = meant_columns(name, columns)
    return ColumnError(
        f"{option}= names {shown(name)}, which is not a column{meant}; the columns are "
        f"{' and '.join(listed(table.columns) for table in tables)}."
    )


def meant_columns(name: object, columns: Collection[object]) -> str:
    """Return a hint with the columns that a user may have meant: " (did you mean
    ...?)", or "".

    It suggests the columns of a text such as "x, y", columns that a merge has renamed,
    or columns with similar names.
    """
    if not isinstance(name, str):
        return ""
    known = [column for column in columns if isinstance(column, str)]
    numbered = [
        column
        for column in columns
        if not isinstance(column, str) and str(column) == name
    ]
    if numbered:
        return f" (did you mean {numbered[0]!r}, without quotes?)"
    parts = [
        part.strip("'\"[]()") for part in re.split(r"[,;\s]+", name.strip()) if part
    ]
    if len(parts) > 1 and all(part in known for part in parts):
        return f" (did you mean [{listed(parts)}]?)"
    renamed = (
        [column for column in known if column.startswith((f"{name}_", f"{name}."))]
        if name
        else []
    )
    if renamed:
        return f" (did you mean {' or '.join(map(repr, renamed[:2]))}?)"
    same = [column for column in known if column.lower() == name.lower()]
    return f" (did you mean {same[0]!r}?)" if same else did_you_mean(name, known, 0.5)
