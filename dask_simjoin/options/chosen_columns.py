"""Tell which columns can be meant where `on` names none."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from dask_simjoin.errors import ColumnError
from dask_simjoin.options.messages import listed

NAMED_SO = re.compile(
    r"(^|[^a-z])(id|ids|uid|pid|uuid|guid|key|pk|fk|index|idx|level_\d+|unnamed: \d+)$|^id([^a-z]|$)"
)
"""Names of identifiers, in lower case; among them those that pandas gives an index that becomes a column."""

ENDS_SO = re.compile(r"[a-z]{2,}id$")
NO_ID = re.compile(r"(grid|oid|mid|bid|acid|lid|quid|fluid|paid|raid|said|laid|rapid|covid|brid)$")
"""Endings of words that only end like "geonameid"."""

CAMEL = re.compile(r"[a-z](Id|ID|Key)$")

INTEGERS = ("i", "u")


def is_identifier(name: Hashable, kind: str) -> bool:
    """Whether a column's name says that its integers name something."""
    if not isinstance(name, str) or kind not in INTEGERS:
        return False
    low = name.strip().lower()
    ends = ENDS_SO.search(low) is not None and NO_ID.search(low) is None
    return NAMED_SO.search(low) is not None or CAMEL.search(name) is not None or ends


def check_chosen(kinds: dict[Hashable, str]) -> None:
    """Refuse columns (each with its kind of number) among which some cannot be coordinates."""
    found = [name for name, kind in kinds.items() if is_identifier(name, kind)]
    if not found:
        return
    rest = suggested(kinds)
    how = "are identifiers by their names" if len(found) > 1 else "is an identifier by its name"
    such = f", such as on=[{listed(rest)}]" if rest else ""
    raise ColumnError(
        f"Without on= the coordinates are all numeric columns, {listed(kinds)}, of which {listed(found)} "
        f"{how}. Name the coordinates with on=[...]{such}; what names rows is left out by "
        f"id={found[0]!r}."
    )


OF_SPHERES = (("lat", "lon"), ("lat", "lng"), ("dec", "ra"))
"""What names of latitudes and longitudes begin with, and those of declinations and right ascensions."""


def latitude_and_longitude(names: Sequence[Hashable]) -> tuple[int, int] | None:
    """Which of two columns is latitude or declination by their names, and which longitude; or None."""
    starts = [str(name).lower()[:3] for name in names]
    places = [(starts.index(lat), starts.index(lon)) for lat, lon in OF_SPHERES if {lat, lon} <= {*starts}]
    return places[0] if places else None


def suggested(kinds: dict[Hashable, str]) -> list[Hashable]:
    """The columns that are likely to be meant."""
    rest = {name: kind for name, kind in kinds.items() if not is_identifier(name, kind)}
    for starts in (("lat", "lon"), ("lat", "lng")):
        places = [[n for n in rest if str(n).lower().startswith(start)] for start in starts]
        if all(len(some) == 1 for some in places):
            return [some[0] for some in places]
    floats = [name for name, kind in rest.items() if kind == "f"]
    return floats or list(rest)


def integers_among(kinds: dict[Hashable, str]) -> tuple[Hashable, ...]:
    """The integer columns, if there are others as well: those may be no coordinates."""
    found = tuple(name for name, kind in kinds.items() if kind in INTEGERS)
    return found if len(found) < len(kinds) else ()
