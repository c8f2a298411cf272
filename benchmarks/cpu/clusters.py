"""``python -m benchmarks cpu.clusters``: DBSCAN of a pandas DataFrame on one core,
against scikit-learn and the package dbscan.

Points have 2 dimensions: uniform ones with ten neighbors each, and blobs of different
scales with noise. Every run has a process of its own, and tools take turns.  A peak of
memory is reported raw and net.  The net peak is less the peak of a process that
imports, compiles and loads the same, but clusters nothing.  Labels of all runs must be
equal in every row, else the exit status is 1.  Only for the package dbscan, which
labels some border rows otherwise, rows that differ are counted.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.clusters_worker import TOOLS, cluster_apart, save
from benchmarks.harness.cluster_points import POINTS, Points, apart
from benchmarks.harness.lazy import known, progress, quiet, scratch, table
from benchmarks.harness.lazy import save as save_report

FASTER, LESS = 3.0, 3.0
"""Goals: scikit-learn's time and memory should be at least these multiples of ours."""

MOST_MEMORY = {10_000_000: 8e9}
"""Goals: most bytes of a process, by the number of rows that it clusters."""

DISTRIBUTIONS = {"sklearn": "scikit-learn"}
"""Names of distributions that differ from the tool's."""

MEASURED = ("seconds", "cpu_seconds", "peak_rss")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.clusters", description=__doc__
    )
    parser.add_argument(
        "--points",
        nargs="+",
        choices=POINTS,
        default=list(POINTS),
        metavar="POINTS",
        help=f"of {', '.join(POINTS)}",
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=TOOLS[1:],
        default=[peer for peer in TOOLS[1:] if importlib.util.find_spec(peer)],
        help="of the installed ones (all)",
    )
    parser.add_argument(
        "--peer-rows",
        type=int,
        default=1_000_000,
        help="peers run on so many rows at most (default 1,000,000)",
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of each, one after the other (3)"
    )
    parser.add_argument(
        "--patience", type=float, default=900, help="seconds until a run is given up"
    )
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def measure(
    points: Points, n: int, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure all tools on `n` points: return medians, runs, ratios, and whether labels
    agree.
    """
    tools = (TOOLS[0], *(options.peers if n <= options.peer_rows else ()))
    files = save(points.points(n), folder)
    empty = {
        tool: cluster_apart(tool, points.name, files[tool], None, options.patience)
        for tool in tools
    }
    runs: dict[str, list[dict[str, Any]]] = {tool: [] for tool in tools}
    for k in range(options.repeat):
        for tool in tools:
            labels = folder / f"{tool}-labels.npy"
            one = cluster_apart(
                tool, points.name, files[tool], labels, options.patience
            )
            runs[tool].append(one)
            progress(f"{points.name} {n:,}, {tool}, run {k + 1}: {one}")
    found: dict[str, Any] = {
        "rows": n,
        "eps": points.eps(n),
        "min_samples": points.min_samples,
        **{tool: _summary(runs[tool], empty[tool]) for tool in tools},
    }
    same = [tool for tool in tools if tool != "dbscan"]
    digests = {one["digest"] for tool in same for one in runs[tool] if "digest" in one}
    found["labels_equal"] = len(digests) == 1
    for tool in tools[1:]:
        if all("digest" in runs[one][-1] for one in (tools[0], tool)):
            ours, peer = (
                np.load(folder / f"{one}-labels.npy") for one in (tools[0], tool)
            )
            found[tool]["rows_differ"] = apart(ours, peer)
    return found | _ratios(found)


def _summary(runs: list[dict[str, Any]], empty: dict[str, Any]) -> dict[str, Any]:
    """Return medians of the runs that ended.  `empty` is the run that clustered
    nothing.
    """
    failed = [one["failed"] for one in (*runs, empty) if "failed" in one]
    if failed:
        return {"failed": failed[0], "runs": runs, "loads": empty}
    medians = {name: statistics.median(one[name] for one in runs) for name in MEASURED}
    told = {name: runs[0][name] for name in ("clusters", "noise", "digest")}
    net = medians["peak_rss"] - empty["peak_rss"]
    return {**medians, "peak_rss_net": net, **told, "runs": runs, "loads": empty}


def _ratios(found: dict[str, Any]) -> dict[str, Any]:
    """Return scikit-learn's time and memory by ours, and the goals that are met,
    without failed runs.
    """
    ours, peer = found["ours"], found.get("sklearn", {"failed": "not run"})
    goals: dict[str, bool] = {}
    ratios: dict[str, Any] = {"goals_met": goals}
    most = MOST_MEMORY.get(found["rows"])
    if "failed" not in ours and most:
        goals[f"peak within {most / 1e9:g} GB"] = ours["peak_rss"] <= most
    if "failed" not in ours and "failed" not in peer:
        ratios["times_faster"] = peer["cpu_seconds"] / ours["cpu_seconds"]
        ratios["times_faster_by_the_clock"] = peer["seconds"] / ours["seconds"]
        ratios["times_less_memory"] = peer["peak_rss_net"] / ours["peak_rss_net"]
        ratios["times_less_memory_raw"] = peer["peak_rss"] / ours["peak_rss"]
        goals[f"{FASTER:g} times faster"] = ratios["times_faster"] >= FASTER
        goals[f"{LESS:g} times less memory"] = ratios["times_less_memory"] >= LESS
    return ratios


def _print(results: list[dict[str, Any]]) -> None:
    head = [
        "points",
        "rows",
        "clusters",
        "noise",
        "CPU s",
        "sklearn",
        "times faster",
        "MB above the points",
        "sklearn",
        "times less",
        "peak MB",
        "sklearn",
        "labels equal",
    ]
    lines = []
    for found in results:
        ours, peer = found["ours"], found.get("sklearn", {})
        times = [one.get("cpu_seconds") for one in (ours, peer)]
        net, raw = (
            [one[name] / 1e6 if name in one else None for one in (ours, peer)]
            for name in ("peak_rss_net", "peak_rss")
        )
        lines.append(
            [
                found["points"],
                found["rows"],
                ours.get("clusters"),
                ours.get("noise"),
                *times,
                found.get("times_faster"),
                *net,
                found.get("times_less_memory"),
                *raw,
                found["labels_equal"] if "sklearn" in found else "not compared",
            ]
        )
    print("One core, medians; what failed is empty:")
    print(table(head, lines))
    for found in results:
        for goal, met in found["goals_met"].items():
            print(
                f"{found['points']} {found['rows']:,}: {goal}: "
                f"{'met' if met else 'NOT MET'}"
            )
        for tool in TOOLS:
            if "failed" in found.get(tool, {}):
                print(
                    f"{found['points']} {found['rows']:,}: {tool} failed: "
                    f"{found[tool]['failed']}"
                )


def main() -> int:
    """Run the benchmark; return 1 if labels differ or one of our own runs failed."""
    quiet()
    options = arguments()
    where = known()
    where["versions"] |= {
        name: importlib.metadata.version(name)
        for name in (DISTRIBUTIONS.get(peer, peer) for peer in options.peers)
    }
    before = [round(load, 2) for load in os.getloadavg()]
    results = []
    with scratch(options.folder) as folder:
        # compile in a process that is not measured: one that compiles keeps memory that
        # others do not need
        for tool, file in save(POINTS[options.points[0]].points(1000), folder).items():
            cluster_apart(tool, options.points[0], file, None, options.patience)
    for n in options.rows:
        for name in options.points:
            with scratch(options.folder) as folder:
                results.append(
                    {"points": name} | measure(POINTS[name], n, options, folder)
                )
    _print(results)
    goals = {
        "times_faster": FASTER,
        "times_less_memory": LESS,
        "most_memory": MOST_MEMORY,
    }
    report = {"loadavg_before": before, "goals": goals, "results": results}
    save_report("clusters", where, options, report, options.output)
    good = all(
        "failed" not in found["ours"] and found["labels_equal"] for found in results
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
