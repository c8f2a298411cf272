"""Compare our seconds with the best peer's, for the first table of the benchmarks and
for charts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.tables.cells import PEERS, count, median, points, rows, seconds, times

Found = dict[str, Any]

CUML = {"cuml rbc": "cuML, radius graph", "cuml brute": "cuML, brute force"}


@dataclass(frozen=True)
class Comparison:
    """One measurement: the data, the computation, and seconds of both tools."""

    data: str
    what: str
    own: float
    peer: str
    theirs: float

    @property
    def ratio(self) -> float:
        """Return the ratio of the peer's seconds to ours."""
        return self.theirs / self.own


def joins(run: Found) -> list[Comparison]:
    """List self-joins on one core."""
    return [
        Comparison(
            f"{points(name, found['dims'])}, {rows(found['n'])} rows",
            "self-join",
            median(found["tools"], "engine"),
            PEERS[found["best_peer"]],
            median(found["tools"], found["best_peer"]),
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
            median(found["tools"], "ours"),
            PEERS[found["best_peer"]],
            median(found["tools"], found["best_peer"]),
        )
        for name, found in run["rows"].items()
    ]


def places(run: Found) -> list[Comparison]:
    """List joins of places on the sphere."""
    return [
        Comparison(
            f"{count(run['places'])} places, within {found['metres'] / 1000:g} km",
            "self-join, haversine",
            median(found["tools"], "ours"),
            "BallTree",
            median(found["tools"], "sklearn"),
        )
        for found in run["rows"]
    ]


def nearest(run: Found) -> list[Comparison]:
    """List nearest neighbors on one core."""
    return [
        Comparison(
            f"{points(name, found['dims'])}, {rows(found['n'])} rows",
            f"{run['k']} nearest neighbors",
            median(found["tools"], "ours"),
            PEERS[found["best_peer"]],
            median(found["tools"], found["best_peer"]),
        )
        for name, found in run["rows"].items()
    ]


def dbscan(run: Found) -> list[Comparison]:
    """List DBSCAN on one core, where scikit-learn ran."""
    texts = {"uniform": "uniform", "blobs": "blobs and noise"}
    return [
        Comparison(
            f"{texts[found['points']]} 2-D, {rows(found['rows'])} rows",
            "DBSCAN",
            found["ours"]["cpu_seconds"],
            "scikit-learn",
            found["sklearn"]["cpu_seconds"],
        )
        for found in run["results"]
        if "sklearn" in found
    ]


def hdbscan(run: Found) -> list[Comparison]:
    """List HDBSCAN on one core, here and by the package hdbscan, where both ran."""
    return [
        Comparison(
            f"blobs and noise {found['dims']}-D, {rows(found['rows'])} rows",
            "HDBSCAN",
            found["ours"]["cpu_seconds"],
            "hdbscan",
            found["hdbscan"]["cpu_seconds"],
        )
        for found in run["results"]
        if "hdbscan" in found
    ]


def sets(run: Found, threshold: str = "0.5") -> list[Comparison]:
    """List joins of sets, counted, on one core."""
    texts = {
        "kosarak36k": "click streams",
        "retail": "baskets",
        "places": "place names",
        "texts": "texts",
    }
    chosen = []
    for name, found in run["sets"].items():
        took = found["thresholds"][threshold]["seconds"]
        best = min(took for tool, took in took.items() if tool.startswith("reference "))
        what = f"set join, Jaccard {threshold}"
        chosen.append(
            Comparison(
                f"{count(found['rows'])} {texts[name]}",
                what,
                took["auto"],
                "C++ by Mann et al.",
                best,
            )
        )
    return chosen


def growing(run: Found) -> list[Comparison]:
    """List updates of an index on disk, compared with joining all rows through Dask."""
    return [
        Comparison(
            f"{rows(run['rows'])} rows 2-D, {100 * row['share']:g} % "
            f"{'new' if row['change'] == 'insert' else 'deleted'}, {row['where']}",
            "index update",
            row["update"]["cpu"],
            "full join",
            row["anew"]["dask"]["cpu"],
        )
        for row in run["batches"]
    ]


def gpu_joins(run: Found) -> list[Comparison]:
    """List self-joins on a GPU, compared with the faster of cuML's two ways."""
    chosen = []
    for name, found in run["rows"].items():
        peers = {
            peer: one["median"]
            for peer, one in found["peers"].items()
            if "median" in one
        }
        if not peers:
            continue
        best = min(peers, key=peers.__getitem__)
        data = f"{points(name, found['dims'])}, {rows(found['n'])} rows, H200"
        own = found["kernels"]["both"]["median"]
        chosen.append(Comparison(data, "self-join", own, CUML[best], peers[best]))
    return chosen


def overview(*runs: Found) -> list[list[str]]:
    """List ten rows of all kinds of work, with named columns."""
    kinds: list[tuple[Callable[[Found], list[Comparison]], list[int]]] = [
        (joins, [0, 2, 6]),
        (two_tables, [0]),
        (places, [0]),
        (nearest, [0]),
        (dbscan, [0]),
        (hdbscan, [1]),
        (sets, [1]),
        (gpu_joins, [0]),
    ]
    table = [["data", "what", "dask-simjoin", "best peer", "ratio"]]
    for (kind, chosen), run in zip(kinds, runs, strict=True):
        found = kind(run)
        for one in (found[row] for row in chosen):
            peer = f"{seconds(one.theirs)} s ({one.peer})"
            table.append(
                [one.data, one.what, f"{seconds(one.own)} s", peer, times(one.ratio)]
            )
    return table


TABLES = {"overview": overview}
