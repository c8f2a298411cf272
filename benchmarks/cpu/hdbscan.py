"""``python -m benchmarks cpu.hdbscan``: HDBSCAN on one core, against the packages
hdbscan and fast_hdbscan, and scikit-learn.

Points are blobs of different scales with noise, of 2, 8 and 32 dimensions.  Every run
has a process of its own, and tools take turns.  The package hdbscan must compute the
exact tree, as the others do; fast_hdbscan in float32.  Peaks of memory are
net: less the peak of a process that imports, compiles and draws points, but clusters
nothing.  Labels of peers depend on the order of rows where edges tie.  So differences
from our labels are reported with a peer's differences from itself in another order of
rows.  A run that exceeds the patience is reported as such.
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

from benchmarks.cpu.hdbscan_worker import (
    MIN_CLUSTER_SIZE,
    MIN_SAMPLES,
    TOOLS,
    cluster_apart,
    clustering,
    points,
)
from benchmarks.harness.cluster_points import apart
from benchmarks.harness.lazy import known, progress, quiet, save, scratch, table

DISTRIBUTIONS = {"sklearn": "scikit-learn", "fast_hdbscan": "fast-hdbscan"}
"""Names of distributions that differ from the tool's."""


def installed(tools: tuple[str, ...]) -> list[str]:
    """Return our tool, which is the first, and the peers that can be imported."""
    return [tools[0], *(peer for peer in tools[1:] if importlib.util.find_spec(peer))]


FASTER = {2: 5.0, 8: 3.0, 32: 3.0}
"""Goals: either peer's time should be this many times ours, by dimensions."""

LESS = 10.0
"""Goal: scikit-learn's memory should be this many times ours."""

MEASURED = ("seconds", "cpu_seconds", "peak_rss")

ONCE = 20.0
"""A tool that takes this many seconds runs once."""

TWICE = 5000
"""Rows that a peer clusters twice, the second time in another order."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.hdbscan", description=__doc__
    )
    parser.add_argument("--dims", type=int, nargs="+", default=list(FASTER))
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=installed(TOOLS))
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of tools that are quick (3)"
    )
    parser.add_argument(
        "--patience", type=float, default=900, help="seconds until a run is given up"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def measure(
    dims: int, rows: int, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure all tools on some points: return medians, runs, ratios, and how labels
    differ.
    """
    found: dict[str, Any] = {"rows": rows, "dims": dims}
    runs: dict[str, list[dict[str, Any]]] = {tool: [] for tool in options.tools}
    for k in range(options.repeat):
        for tool in options.tools:
            told = runs[tool]
            if told and ("failed" in told[0] or told[0]["cpu_seconds"] > ONCE):
                continue
            told.append(
                cluster_apart(
                    tool, dims, rows, folder / f"{tool}.npy", options.patience
                )
            )
            progress(f"{dims}-D {rows:,}, {tool}, run {k + 1}: {told[-1]}")
    for tool, told in runs.items():
        failed = [one["failed"] for one in told if "failed" in one]
        if failed:
            found[tool] = {"failed": failed[0]}
            continue
        empty = cluster_apart(tool, dims, rows, None, options.patience)
        found[tool] = {
            name: statistics.median(one[name] for one in told) for name in MEASURED
        }
        found[tool] |= {
            name: told[0][name] for name in ("clusters", "noise") if name in told[0]
        }
        found[tool] |= {"runs": told, "loads": empty}
        found[tool]["peak_rss_net"] = found[tool]["peak_rss"] - empty["peak_rss"]
    ours = found["ours"]
    for tool in options.tools[1:]:
        if "failed" not in found[tool] and "failed" not in ours:
            peer = found[tool]
            peer["times_faster"] = peer["cpu_seconds"] / ours["cpu_seconds"]
            peer["times_less_memory"] = peer["peak_rss_net"] / ours["peak_rss_net"]
            peer["rows_differ"] = apart(
                *(np.load(folder / f"{one}.npy") for one in ("ours", tool))
            )
    return found


def disagreement(tool: str, dims: int) -> dict[str, Any]:
    """Count the rows where a tool's result changes with the order of rows."""
    x = points(TWICE, dims)
    order = np.random.default_rng(0).permutation(TWICE)
    cluster = clustering(tool)
    back = np.empty(TWICE, np.int64)
    back[order] = cluster(x[order])
    return {
        "tool": tool,
        "dims": dims,
        "rows": TWICE,
        "rows_differ": apart(cluster(x), back),
    }


def main() -> int:
    """Run the benchmark; return 1 if one of our own runs failed."""
    quiet()
    options = arguments()
    where = known()
    where["versions"] |= {
        name: importlib.metadata.version(name)
        for name in (DISTRIBUTIONS.get(tool, tool) for tool in options.tools[1:])
    }
    before = [round(load, 2) for load in os.getloadavg()]
    results = []
    for rows in options.rows:
        for dims in options.dims:
            with scratch(None) as folder:
                results.append(measure(dims, rows, options, folder))
    twice = [
        disagreement(tool, dims) for dims in options.dims for tool in options.tools
    ]
    head = [
        "dims",
        "rows",
        "tool",
        "CPU s",
        "times faster",
        "MB above the points",
        "times less",
        "clusters",
        "noise",
        "rows differ",
    ]
    lines = []
    for one in results:
        for tool in options.tools:
            told = one[tool]
            net = told["peak_rss_net"] / 1e6 if "peak_rss_net" in told else None
            names = ("clusters", "noise", "rows_differ")
            lines.append(
                [
                    one["dims"],
                    one["rows"],
                    tool,
                    told.get("cpu_seconds", told.get("failed")),
                    told.get("times_faster"),
                    net,
                    told.get("times_less_memory"),
                    *map(told.get, names),
                ]
            )
    print(
        f"One core, medians; min_cluster_size={MIN_CLUSTER_SIZE}, "
        f"min_samples={MIN_SAMPLES}:"
    )
    print(table(head, lines))
    print(
        f"Rows of {TWICE:,} that a tool labels otherwise when they come in another "
        "order:"
    )
    print(
        table(
            ["dims", "tool", "rows"],
            [[one["dims"], one["tool"], one["rows_differ"]] for one in twice],
        )
    )
    goals = {"times_faster": FASTER, "times_less_memory_than_sklearn": LESS}
    report = {
        "loadavg_before": before,
        "goals": goals,
        "results": results,
        "twice": twice,
    }
    save("hdbscan", where, options, report, options.output)
    return 0 if all("failed" not in one["ours"] for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
