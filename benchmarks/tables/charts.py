"""Charts of the documentation, drawn as SVG from what benchmarks wrote to
benchmarks/results.

In a page ``<!-- chart: NAME FILE ... -->`` stands before a picture of
docs/images/benchmarks, with the files that the chart is made of.  ``python -m
benchmarks.tables`` draws it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.tables import comparisons, cores
from benchmarks.tables.cells import seconds, times
from benchmarks.tables.comparisons import Comparison

Found = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "benchmarks"

MARKED = re.compile(r"^<!-- chart: (\S+) ([^>]*) -->\n!\[", re.MULTILINE)

WIDTH, MARGIN, ROW, TOP, BOTTOM = 460, 14, 40, 34, 24
"""Sizes in pixels; a chart is as narrow as the screen of a phone."""

OWN, PEER, INK, LINE = "#0b7261", "#c2571a", "#333333", "#bbbbbb"


def rows(*runs: Found) -> list[Comparison]:
    """List the rows of some results."""
    return comparisons.merged(runs)


def labeled(one: Comparison) -> Comparison:
    """Return a row whose data name the computation, if it is no self-join, in the width
    of a chart.
    """
    data = one.data.replace(" and noise", "")
    what = one.what.removeprefix("self-join").removeprefix(", haversine")
    what = what.replace("spanning tree of HDBSCAN", "spanning tree")
    peers = {
        name.removesuffix(", unit vectors"): took for name, took in one.peers.items()
    }
    return replace(one, data=f"{what}, {data}" if what else data, peers=peers)


def of(*kinds: str) -> Callable[..., list[Comparison]]:
    """Return a function that lists the rows of some computations, on CPUs."""

    def chosen(*runs: Found) -> list[Comparison]:
        return [
            labeled(one) if len(kinds) > 1 else one
            for one in comparisons.merged(runs)
            if one.what in kinds and one.place in ("one core", "two threads")
        ]

    return chosen


def on_gpus(*runs: Found) -> list[Comparison]:
    """List the rows of some results that have peers, with one name for each."""
    found = comparisons.merged(runs)
    several = len({one.what for one in found}) > 1
    return [labeled(one) if several else one for one in found]


CHARTS: dict[str, Callable[..., list[Comparison]]] = {
    "joins": of("self-join", "join", "self-join, haversine"),
    "nearest": of("10 nearest neighbors"),
    "clusters": of("DBSCAN", "HDBSCAN", "spanning tree of HDBSCAN"),
    "sets": rows,
    "growing": rows,
    "cores": cores.compared,
    "gpus": on_gpus,
}
"""Name -> measurements, from the contents of the files that a page names."""


def drawn(found: list[Comparison]) -> str:
    """Draw a row for each measurement: two points on a logarithmic axis of seconds, and
    their ratio.
    """
    values = [value for one in found for value in (one.shown, one.theirs)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    height = TOP + ROW * len(found) + BOTTOM

    def across(value: float) -> float:
        return round(
            MARGIN + (WIDTH - 2 * MARGIN) * (math.log10(value) - low) / (high - low), 1
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for power in range(low, high + 1):
        x = across(10.0**power)
        anchor = "start" if power == low else "end" if power == high else "middle"
        parts.append(
            f'<path d="M{x} {TOP - 6}V{height - BOTTOM}" stroke="{LINE}" stroke-width="0.5"/>'
        )
        label = f"{10.0**power:g} s"
        parts.append(
            f'<text x="{x}" y="{height - 8}" text-anchor="{anchor}">{label}</text>'
        )
    for number, one in enumerate(found):
        parts += _row(one, TOP + ROW * number, across)
    return "\n".join([*parts, "</svg>\n"])


def _legend() -> Iterator[str]:
    yield f'<circle cx="{MARGIN + 5}" cy="14" r="5" fill="{OWN}"/>'
    yield f'<text x="{MARGIN + 15}" y="18">dask-simjoin</text>'
    yield f'<circle cx="{MARGIN + 125}" cy="14" r="4" fill="white" stroke="{PEER}" stroke-width="2"/>'
    yield f'<text x="{MARGIN + 135}" y="18">best peer</text>'


def _row(
    one: Comparison, top: float, across: Callable[[float], float]
) -> Iterator[str]:
    label = f"{one.data}: {seconds(one.shown)} s, {one.peer} {seconds(one.theirs)} s"
    own, theirs, y = across(one.shown), across(one.theirs), top + 26
    yield f'<text x="{MARGIN}" y="{top + 12}" font-size="11">{escape(label)}</text>'
    right = WIDTH - MARGIN
    ratio = times(one.ratio())
    yield f'<text x="{right}" y="{top + 12}" text-anchor="end" font-weight="bold">{ratio}</text>'
    yield f'<path d="M{own} {y}H{theirs}" stroke="{LINE}" stroke-width="3"/>'
    yield f'<circle cx="{own}" cy="{y}" r="5" fill="{OWN}"/>'
    yield f'<circle cx="{theirs}" cy="{y}" r="4" fill="white" stroke="{PEER}" stroke-width="2"/>'


def charts(text: str, read: Callable[[str], Any]) -> dict[Path, str]:
    """Return the charts that a page shows: path -> SVG."""
    return {
        FOLDER / f"{name}.svg": drawn(CHARTS[name](*map(read, files.split())))
        for name, files in MARKED.findall(text)
    }
