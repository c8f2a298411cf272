"""Compare our seconds with those of all other tools of the same row, for the overviews
and charts.

The best peer is always computed: `Comparison` holds every tool that a file has.  What
kind of result a file holds is seen from its contents, so that a page only names files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.tables.cells import PEERS, count, points, rows, seconds, times

Found = dict[str, Any]

CUML = {"cuml rbc": "cuML, radius graph", "cuml brute": "cuML, brute force"}

FRAME, DASK, ENGINE = "frame", "Dask", "engine"
"""Our clocks: a verb of a pandas or cuDF frame, of a Dask frame, and the engine or the
kernels without frames.
"""


@dataclass(frozen=True)
class Comparison:
    """One measurement: the data, the computation, and seconds of all tools.

    `own`: clock -> seconds; `peers`: tool -> seconds.
    """

    data: str
    what: str
    own: dict[str, float]
    peers: dict[str, float]
    place: str = "one core"
    always: bool = False
    """Whether the overview shows it in any case."""

    @property
    def peer(self) -> str:
        """Return the fastest other tool."""
        return min(self.peers, key=self.peers.__getitem__)

    @property
    def theirs(self) -> float:
        """Return its seconds."""
        return self.peers[self.peer]

    @property
    def shown(self) -> float:
        """Return our seconds as users have them: of a frame, else of a Dask frame, else
        of the engine.
        """
        return next(self.own[way] for way in (FRAME, DASK, ENGINE) if way in self.own)

    def ratio(self, way: str | None = None) -> float | None:
        """Return the ratio of the best peer's seconds to ours, by one of our clocks."""
        own = self.own.get(way) if way else self.shown
        return None if own is None else self.theirs / own


def medians(tools: Found, names: dict[str, str]) -> dict[str, float]:
    """Return the medians of the tools that ran, by other names."""
    return {
        names.get(tool, tool): one["median"]
        for tool, one in tools.items()
        if isinstance(one, dict) and "median" in one
    }


def split(
    tools: Found, own: dict[str, str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return our medians by clock, and those of all other tools by their names in
    tables.
    """
    found = medians(tools, PEERS)
    return (
        {way: found[tool] for tool, way in own.items() if tool in found},
        {tool: took for tool, took in found.items() if tool not in own},
    )


def joins(run: Found) -> list[Comparison]:
    """List self-joins on one core."""
    own = {"pandas": FRAME, "dask": DASK, "engine": ENGINE}
    return [
        Comparison(
            f"{points(name, found['dims'])}, {rows(found['n'])} rows",
            "self-join",
            *split(found["tools"], own),
        )
        for name, found in run["rows"].items()
    ]


def two_tables(run: Found) -> list[Comparison]:
    """List joins of two tables on one core."""
    return [
        Comparison(
            f"{points(name, found['dims'])}, {rows(found['left'])} and "
            f"{rows(found['right'])} rows",
            "join",
            *split(found["tools"], {"ours-verb": FRAME, "ours": ENGINE}),
        )
        for name, found in run["rows"].items()
    ]


PLACES = {"sklearn": "BallTree", "scipy": "SciPy, unit vectors"}
"""What the tools of `cpu.sphere` do."""


def places(run: Found) -> list[Comparison]:
    """List joins of places on the sphere."""
    chosen = []
    for found in run["rows"]:
        took = medians(found["tools"], PLACES)
        own = {FRAME: took.pop("ours")}
        data = f"{count(run['places'])} places, within {found['metres'] / 1000:g} km"
        chosen.append(Comparison(data, "self-join, haversine", own, took))
    return chosen


def nearest(run: Found) -> list[Comparison]:
    """List nearest neighbors on one core."""
    return [
        Comparison(
            f"{points(name, found['dims'])}, {rows(found['n'])} rows",
            f"{run['k']} nearest neighbors",
            *split(found["tools"], {"ours": ENGINE}),
        )
        for name, found in run["rows"].items()
    ]


def clusters(run: Found) -> list[Comparison]:
    """List DBSCAN or HDBSCAN on one core, where peers ran."""
    texts = {"uniform": "uniform", "blobs": "blobs and noise"}
    chosen = []
    for found in run["results"]:
        took = {
            PEERS.get(tool, tool): one["cpu_seconds"]
            for tool, one in found.items()
            if isinstance(one, dict) and "cpu_seconds" in one
        }
        own = {FRAME: took.pop("ours")}
        what = "DBSCAN" if "points" in found else "HDBSCAN"
        text = f"{texts[found.get('points', 'blobs')]} {found.get('dims', 2)}-D"
        data = f"{text}, {rows(found['rows'])} rows"
        if took:
            chosen.append(Comparison(data, what, own, took))
    return chosen


def dense_clusters(run: Found) -> list[Comparison]:
    """List DBSCAN on two threads, where all peers ran."""
    chosen = []
    for found in run["runs"]:
        took = {
            tool: min(one["seconds"])
            for tool, one in found["seconds"].items()
            if not tool.startswith(("ours,", "without"))
        }
        own = {FRAME: took.pop("ours")}
        texts = {"uniform": "uniform", "blobs": "blobs and noise"}
        data = (
            f"{texts[found['kind']]} {found['dims']}-D, {rows(found['rows'])} rows, "
            f"{count(found['neighbors'])} neighbors"
        )
        if len(took) == len(run["options"]["peers"]):
            chosen.append(Comparison(data, "DBSCAN", own, took, "two threads"))
    return chosen


SETS = {
    "kosarak36k": "click streams",
    "retail": "baskets",
    "places": "place names",
    "texts": "texts",
}


def sets(run: Found, threshold: str = "0.5") -> list[Comparison]:
    """List joins of sets, counted, on one core, from token numbers on both sides."""
    chosen = []
    for name, found in run["sets"].items():
        took = found["thresholds"][threshold]["seconds"]
        peers = {
            tool.replace("reference", "C++ by Mann et al.,"): one
            for tool, one in took.items()
            if tool not in ("auto", "ppjoin", "encode")
        }
        what = f"set join, Jaccard {threshold}, counted"
        data = f"{count(found['rows'])} {SETS[name]}"
        chosen.append(Comparison(data, what, {ENGINE: took["auto"]}, peers))
    return chosen


def growing(run: Found) -> list[Comparison]:
    """List updates of an index on disk, compared with joining all rows through Dask."""
    return [
        Comparison(
            f"{rows(run['rows'])} rows 2-D, {100 * row['share']:g} % "
            f"{'new' if row['change'] == 'insert' else 'deleted'}, {row['where']}",
            "index update",
            {DASK: row["update"]["cpu"]},
            {"full join": row["anew"]["dask"]["cpu"]},
        )
        for row in run["batches"]
    ]


def gpu_joins(run: Found) -> list[Comparison]:
    """List self-joins on a GPU, compared with each of cuML's ways that ran."""
    chosen = []
    for name, found in run["rows"].items():
        peers = medians(found["peers"], CUML)
        own = {
            DASK: found["accessor"]["median"],
            ENGINE: found["kernels"]["both"]["median"],
        }
        data = f"{points(name, found['dims'])}, {rows(found['n'])} rows"
        chosen.append(Comparison(data, "self-join", own, peers, "H200"))
    return chosen


def front(run: Found) -> list[Comparison]:
    """List the rows of `cpu.front` or `gpu.front`."""
    place = "one core"
    if "gpu" in run["environment"]:
        place = run["environment"]["gpu"].removeprefix("NVIDIA ").split()[0]
    own = {
        "pandas": FRAME,
        "cuDF": FRAME,
        "Dask": DASK,
        "engine": ENGINE,
        "kernels": ENGINE,
    }
    return [
        Comparison(
            found["data"], found["what"], *split(found["tools"], own), place, True
        )
        for found in run["rows"].values()
        if "failed" not in found
    ]


def comparisons(run: Found) -> list[Comparison]:
    """List the rows of a result of any of these programs."""
    kinds: dict[str, Callable[[Found], list[Comparison]]] = {
        "sets": sets,
        "batches": growing,
        "places": places,
        "k": nearest,
        "results": clusters,
        "runs": dense_clusters,
    }
    for key, kind in kinds.items():
        if key in run:
            return kind(run)
    every = run["rows"]
    one = next(iter(every.values()))
    if "what" in one or "failed" in one:
        return front(run)
    if "kernels" in one:
        return gpu_joins(run)
    return two_tables(run) if "left" in one else joins(run)


def merged(runs: Iterable[Found]) -> list[Comparison]:
    """List the rows of several results.  Where two have the same data and computation
    at the same place, ours is of the first, and peers are of both.
    """
    found: dict[tuple[str, str, str], Comparison] = {}
    for one in (one for run in runs for one in comparisons(run)):
        key = (one.data, one.what, one.place)
        if key in found:
            peers = one.peers | found[key].peers
            found[key] = replace(found[key], peers=peers)
        else:
            found[key] = one
    return [one for one in found.values() if one.peers]


OVERVIEW = {
    ("uniform 2-D, 1M rows", "self-join"),
    ("uniform 6-D, 500k rows", "self-join"),
    ("exponential 16-D, 200k rows", "self-join"),
    ("exponential 64-D, 100k rows", "self-join"),
    ("uniform 2-D, 1M and 1M rows", "join"),
    ("234,908 places, within 1 km", "self-join, haversine"),
    ("uniform 2-D, 1M rows", "10 nearest neighbors"),
    ("uniform 2-D, 1M rows, 10 neighbors", "DBSCAN"),
    ("blobs and noise 8-D, 100k rows", "HDBSCAN"),
    ("88,162 baskets", "set join, Jaccard 0.5, counted"),
    ("exponential 2-D, 2M rows", "self-join"),
    ("exponential 16-D, 500k rows", "self-join"),
}
"""Rows of the overview, of results that have many.  All rows of `cpu.front` and
`gpu.front` are shown.
"""


def overview(*runs: Found) -> list[list[str]]:
    """List rows of all kinds of work: verbs first, then the engine."""
    table = [
        [
            "data",
            "what",
            "where",
            "pandas or cuDF, s",
            "Dask, s",
            "engine, s",
            "fastest other tool, s",
            "ratio, pandas or cuDF",
            "ratio, Dask",
            "ratio, engine",
        ]
    ]
    for one in merged(runs):
        if (one.data, one.what) not in OVERVIEW and not one.always:
            continue
        table.append(
            [
                one.data,
                one.what,
                one.place,
                *(seconds(one.own.get(way)) for way in (FRAME, DASK, ENGINE)),
                f"{one.peer} {seconds(one.theirs)}",
                *(times(one.ratio(way)) for way in (FRAME, DASK, ENGINE)),
            ]
        )
    return table


HEADLINES = (
    ("uniform 2-D, 1M rows", "self-join"),
    ("uniform 6-D, 500k rows", "self-join"),
    ("exponential 16-D, 200k rows", "self-join"),
    ("exponential 64-D, 100k rows", "self-join"),
    ("uniform 2-D, 1M and 1M rows", "join"),
    ("uniform 2-D, 1M rows, 10 neighbors", "DBSCAN"),
    ("uniform 2-D, 1M rows", "DBSCAN"),
    ("blobs and noise 8-D, 100k rows", "HDBSCAN"),
    ("exponential 2-D, 2M rows", "self-join"),
    ("exponential 16-D, 500k rows", "self-join"),
)
"""Rows of the start page, if a named result has them."""


def headlines(*runs: Found) -> list[list[str]]:
    """List rows of the overview by the time of verbs alone."""
    table = [
        [
            "data",
            "pandas or cuDF, s",
            "Dask, s",
            "fastest other tool, s",
            "ratio, pandas or cuDF",
            "ratio, Dask",
        ]
    ]
    found = {(one.data, one.what): one for one in merged(runs)}
    for key in HEADLINES:
        one = found.get(key)
        if one is None or (one.what == "HDBSCAN" and "fast_hdbscan" not in one.peers):
            # old results of HDBSCAN lack a peer that is faster than the others
            continue
        table.append(
            [
                f"{one.what}, {one.data}, {one.place}",
                *(seconds(one.own.get(way)) for way in (FRAME, DASK)),
                f"{one.peer} {seconds(one.theirs)}",
                *(times(one.ratio(way)) for way in (FRAME, DASK)),
            ]
        )
    return table


TABLES = {"overview": overview, "headlines": headlines}
