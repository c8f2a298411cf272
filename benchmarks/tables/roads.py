"""Tables of what Dask adds, on threads, processes and GPUs."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.tables.cells import rows, seconds, times

Found = dict[str, Any]
Rows = list[list[str]]

GPU_JOBS = {
    "count 16-D": "`count_pairs`, exponential 16-D", "count 2-D": "`count_pairs`, uniform 2-D",
    "dbscan 2-D": "`dbscan`, uniform 2-D", "pairs 16-D": "`self_join`, exponential 16-D",
}  # fmt: skip


def road(run: Found) -> Rows:
    """Tabulate a plain frame on one core, threads and processes: medians, and the spread of runs."""
    ways = list(dict.fromkeys(row["on"] for row in run["rows"]))
    table = [
        [
            "rows and columns, job",
            *(f"{way}, s" for way in ways),
            *(f"relative core time, {way}" for way in ways[1:]),
        ]
    ]
    found: dict[tuple[str, str], dict[str, Found]] = {}
    for row in run["rows"]:
        found.setdefault((row["data"], row["job"]), {})[row["on"]] = row
    for (data, job), each in found.items():
        middle = {way: statistics.median(each[way]["all"]) for way in ways}
        plain = middle[ways[0]]
        cells = [f"{seconds(middle[way])} ({_range(each[way]['all'])})" for way in ways]
        shares = [f"{each[way]['cores'] * middle[way] / plain:.2f}" for way in ways[1:]]
        table.append([f"{data.replace('x', ' x ')}, `{job}`", *cells, *shares])
    return table


def files(*runs: Found) -> Rows:
    """Tabulate joins from files to files: pandas on one core, compared with threads and processes."""
    rows = [row for run in runs for row in run["rows"]]
    ways = list(dict.fromkeys(row["on"] for row in rows))
    table = [
        [
            "rows and columns, job",
            *(f"{way}, s" for way in ways),
            *(f"{way} / {ways[0]}" for way in ways[1:]),
        ]
    ]
    found: dict[tuple[str, str], dict[str, Found]] = {}
    for row in rows:
        found.setdefault((row["data"], row["job"]), {})[row["on"]] = row
    for (data, job), each in found.items():
        cells = [
            seconds(each[way]["median"])
            + (f" ({_range(each[way]['runs'])})" if len(each[way]["runs"]) > 1 else "")
            for way in ways
        ]
        shares = [f"{each[way]['median'] / each[ways[0]]['median']:.2f}" for way in ways[1:]]
        table.append([f"{data.replace('x', ' x ')}, `{job}`", *cells, *shares])
    return table


def _range(runs: list[float]) -> str:
    return f"{seconds(min(runs))} to {seconds(max(runs))}"


def small(run: Found) -> Rows:
    """Tabulate medians for few rows: a plain frame, and Dask's extra time by number of partitions."""
    parts = sorted({row["partitions"] for row in run["results"]})
    names = [f"{number} partition{'s' * (number > 1)}" for number in parts]
    table = [
        ["rows and columns, job", "plain frame, ms", *(f"lazy, {name}, ms" for name in names),
         *(f"beyond, {name}, ms" for name in names)]
    ]  # fmt: skip
    found: dict[tuple[int, int, str], dict[int, Found]] = {}
    for row in run["results"]:
        found.setdefault((row["rows"], row["dims"], row["job"]), {})[row["partitions"]] = row
    for (number, dims, job), each in found.items():
        is_job = job != "dask"
        some = [each[number] for number in parts]
        plain = statistics.median(took for row in some for took in row["runs"]["plain"])
        text = f"`{job}`" if is_job else "Dask alone"
        table.append(
            [f"{number:,} x {dims}, {text}", _milliseconds([plain]) if is_job else "",
             *(_milliseconds(row["runs"]["lazy"]) for row in some),
             *(f"{row['beyond_ms']:.1f}" if is_job else "" for row in some)]
        )  # fmt: skip
    return table


def _milliseconds(runs: list[float]) -> str:
    """Format the median of some runs, with the least and the most of several."""
    middle, *ends = (f"{1e3 * some:.1f}" for some in (statistics.median(runs), min(runs), max(runs)))
    return middle if len(runs) == 1 else f"{middle} ({ends[0]} to {ends[1]})"


def gpu_road(run: Found) -> Rows:
    """Tabulate a plain frame on a GPU, compared with a cluster of one and of two GPUs."""
    table = [
        ["job", "rows", "plain frame, s", "cluster of one GPU, s", "twice the rows, one GPU, s",
         "two GPUs, s", "ratio, two GPUs", "repeated, s", "ratio, repeated"]
    ]  # fmt: skip
    for name, text in GPU_JOBS.items():
        job = run["jobs"][name]
        one = job["twice the rows, one GPU"]["median"]
        two = [job[f"twice the rows, two GPUs{more}"]["median"] for more in ("", ", once more")]
        cells = [cell for took in two for cell in (seconds(took), f"{one / took:.2f}x")]
        table.append([
            text, rows(job["plain frame"]["rows"]), seconds(job["plain frame"]["median"]),
            seconds(job["one GPU"]["median"]), seconds(one), *cells,
        ])  # fmt: skip
    return table


def hdbscan_workers(*runs: Found) -> Rows:
    """Tabulate HDBSCAN by threads and processes: medians; of older files ("best") the least of some runs."""
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
    "road": road, "files": files, "small": small, "gpu-road": gpu_road, "hdbscan-workers": hdbscan_workers,
}  # fmt: skip
