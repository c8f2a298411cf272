"""Tables of what Dask adds, on threads, processes and GPUs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.tables.cells import rows, seconds, times

Found = dict[str, Any]
Rows = list[list[str]]


def road(run: Found) -> Rows:
    """Tabulate a plain frame on one core, threads and processes: medians, and the
    spread of runs.
    """
    measured = [row | {"runs": row["all"]} for row in run["rows"]]
    return _by_way(measured, "relative core time, {way}", lambda row: row["cores"])


def threads(run: Found) -> Rows:
    """Tabulate one thread and two threads of Dask."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in run["rows"]:
        middle = statistics.median(row["all"])
        found.setdefault((row["data"], row["job"]), {})[row["on"]] = middle
    table = [["rows and columns, job", "one thread, s", "two threads, s", "ratio"]]
    for (data, job), each in found.items():
        one, two = each["threads-1"], each["threads-2"]
        cells = [seconds(one), seconds(two), f"{two / one:.2f}"]
        table.append([f"{data.replace('x', ' x ')}, `{job}`", *cells])
    return table


def files(*runs: Found) -> Rows:
    """Tabulate joins from files to files: pandas on one core, compared with threads and
    processes.
    """
    return _by_way(
        [row for run in runs for row in run["rows"]], "{way} / {first}", lambda row: 1
    )


def places_to_run(*runs: Found) -> Rows:
    """Tabulate medians of `self_join` and `dbscan` by pandas, threads and processes.

    If several runs have the same rows and verb, the last one is shown.
    """
    head = ["pandas, one core, s", "Dask, two threads, s", "two processes, s"]
    table = [["rows and columns", "coordinates", "verb", *head]]
    found: dict[tuple[str, str], dict[str, Found]] = {}
    for run in runs:
        for row in run["rows"]:
            way = row["on"].replace("plain frame", "pandas")
            found.setdefault((row["data"], row["job"]), {})[way] = row
    for (data, job), each in found.items():
        if job in ("self_join", "dbscan"):
            some = [each[way] for way in ("pandas", "threads-2", "cluster-2")]
            size = f"{some[0]['rows'] * some[0]['dims'] * 8 / 1e6:,.0f} MB"
            cells = [
                seconds(statistics.median(row.get("runs") or row["all"]))
                for row in some
            ]
            table.append([data.replace("x", " x "), size, f"`{job}`", *cells])
    return table


def _by_way(
    measured: list[Found], heading: str, factor: Callable[[Found], float]
) -> Rows:
    """Tabulate the seconds of each way, and their ratio to the first way, multiplied by
    a factor.
    """
    first, *others = ways = list(dict.fromkeys(row["on"] for row in measured))
    headings = [heading.format(way=way, first=first) for way in others]
    table = [["rows and columns, job", *(f"{way}, s" for way in ways), *headings]]
    found: dict[tuple[str, str], dict[str, Found]] = {}
    for row in measured:
        found.setdefault((row["data"], row["job"]), {})[row["on"]] = row
    for (data, job), each in found.items():
        middle = {way: statistics.median(each[way]["runs"]) for way in ways}
        cells = [_with_range(middle[way], each[way]["runs"]) for way in ways]
        ratios = [
            f"{factor(each[way]) * middle[way] / middle[first]:.2f}" for way in others
        ]
        table.append([f"{data.replace('x', ' x ')}, `{job}`", *cells, *ratios])
    return table


def _with_range(middle: float, runs: list[float]) -> str:
    return seconds(middle) + (f" ({_range(runs)})" if len(runs) > 1 else "")


def _range(runs: list[float]) -> str:
    return f"{seconds(min(runs))} to {seconds(max(runs))}"


def small(run: Found) -> Rows:
    """Tabulate medians for few rows: a plain frame, and Dask's extra time by number of
    partitions.
    """
    parts = sorted({row["partitions"] for row in run["results"]})
    names = [f"{number} partition{'s' * (number > 1)}" for number in parts]
    table = [
        [
            "rows and columns, job",
            "plain frame, ms",
            *(f"lazy, {name}, ms" for name in names),
            *(f"beyond, {name}, ms" for name in names),
        ]
    ]
    found: dict[tuple[int, int, str], dict[int, Found]] = {}
    for row in run["results"]:
        found.setdefault((row["rows"], row["dims"], row["job"]), {})[
            row["partitions"]
        ] = row
    for (number, dims, job), each in found.items():
        is_job = job != "dask"
        some = [each[number] for number in parts]
        plain = statistics.median(took for row in some for took in row["runs"]["plain"])
        text = f"`{job}`" if is_job else "Dask alone"
        table.append(
            [
                f"{number:,} x {dims}, {text}",
                _milliseconds([plain]) if is_job else "",
                *(_milliseconds(row["runs"]["lazy"]) for row in some),
                *(f"{row['beyond_ms']:.1f}" if is_job else "" for row in some),
            ]
        )
    return table


def _milliseconds(runs: list[float]) -> str:
    """Format the median of some runs, with the least and the most of several."""
    middle, *ends = (
        f"{1e3 * some:.1f}" for some in (statistics.median(runs), min(runs), max(runs))
    )
    return middle if len(runs) == 1 else f"{middle} ({ends[0]} to {ends[1]})"


def hdbscan_workers(*runs: Found) -> Rows:
    """Tabulate HDBSCAN by threads and processes: medians; of older files ("best") the
    least of some runs.
    """
    table = [
        [
            "points",
            "plain frame, s",
            "one thread, s",
            "two threads, s",
            "ratio, threads",
            "one process, s",
            "two processes, s",
            "ratio, processes",
        ]
    ]
    for run in runs:
        for row in run["results"]:
            middle = min if "best" in row else statistics.median
            took = {way: middle(some) for way, some in row["seconds"].items()}
            cells = [seconds(took["plain"])]
            for way in ("threads", "cluster"):
                one, two = took[f"{way}-1"], took[f"{way}-2"]
                cells += [seconds(one), seconds(two), times(one / two)]
            table.append([f"{rows(row['rows'])} x {row['dims']}", *cells])
    return table


TABLES = {
    "road": road,
    "road-threads": threads,
    "files": files,
    "places-to-run": places_to_run,
    "small": small,
    "hdbscan-workers": hdbscan_workers,
}
