"""``python -m benchmarks dask.clusters_out_of_core``: clusters of more data than
memory, checked.

Points of the unit square lie in Parquet files.  Each file covers all of space, so that
only a shuffle brings neighbors together.  Two workers cluster them and write the rows
with their labels to Parquet.  The data are larger than both workers' memory limits
together, unless --rows says otherwise.  Afterwards SciPy clusters the points
independently, strip by strip, in as much memory as there is.  All labels must be equal,
and each row must be there once.  The report also has the number of core rows, which
labels do not show.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from dask.utils import format_bytes, parse_bytes

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.dask.out_of_core import PART_ROWS, ROW_BYTES, describe
from benchmarks.harness.cluster_points import POINTS, Points
from benchmarks.harness.lazy import (
    fresh,
    known,
    progress,
    quiet,
    save,
    scratch,
    table,
    write_part,
)
from benchmarks.harness.watch import KINDS, watched
from benchmarks.oracles.strips_clusters import compare, independent_labels


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.clusters_out_of_core", description=__doc__
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="processes of one thread (default 2)"
    )
    parser.add_argument(
        "--limit", default="700 MB", help="memory of each (default 700 MB)"
    )
    parser.add_argument(
        "--rows", type=int, default=62_500_000, help="default: 62,500,000, 1.5 GB"
    )
    parser.add_argument("--points", choices=POINTS, default="uniform")
    parser.add_argument(
        "--partitions", type=int, help=f"default: of about {PART_ROWS:,} rows"
    )
    parser.add_argument(
        "--partitioning", default="auto", choices=("auto", "entity", "spatial")
    )
    parser.add_argument(
        "--blocksize", help="bytes of a chunk (default: from the workers' memory)"
    )
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument(
        "--patience", type=float, default=3600, help="seconds until a run is given up"
    )
    parser.add_argument(
        "--folder", type=Path, help="for temporary files: on a disk, not in memory"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="leave out the independent clustering"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def write_rows(folder: Path, points: Points, rows: int, parts: int) -> None:
    """Write points (id, x, y), partition by partition.  Ids are row numbers."""
    cuts = [rows * k // parts for k in range(parts + 1)]
    for k, (start, stop) in enumerate(itertools.pairwise(cuts)):
        x, y = points.points(stop - start, k).T
        write_part(
            pd.DataFrame({"id": np.arange(start, stop), "x": x, "y": y}), folder, k
        )


def cluster_once(
    data: Path, points: Points, options: argparse.Namespace, out: Path, temporary: Path
) -> dict[str, Any]:
    """Cluster on a fresh cluster of workers, and watch it; "failed" is the error that
    was raised.
    """

    def work(found: dict[str, Any]) -> None:
        frame = fresh(data)
        labels = frame.simjoin.dbscan(
            points.eps(options.rows),
            points.min_samples,
            on=["x", "y"],
            partitioning=options.partitioning,
            blocksize=options.blocksize,
        )
        began = time.perf_counter()
        found.update(describe(labels.expr.plan))
        found["planning"] = time.perf_counter() - began
        progress(f"planned in {found['planning']:.1f} s: {found['plan']}")
        began = time.perf_counter()
        frame.assign(label=labels).to_parquet(out, write_index=False)
        found["clustering"] = time.perf_counter() - began

    limit = parse_bytes(options.limit)
    return watched(
        work, options.workers, limit, options.patience, temporary, logging.WARNING
    )


def _check(run: dict[str, Any], out: Path, expected: np.ndarray | None) -> None:
    if "failed" in run or expected is None:
        return
    run["result"] = compare(sorted(out.glob("*.parquet")), expected)
    run["exact"] = not any(
        run["result"][name] for name in ("differ", "missing", "again")
    )


def _print(runs: list[dict[str, Any]], options: argparse.Namespace) -> None:
    names = [
        "planning s",
        "clustering s",
        "clusters",
        "noise",
        "exact",
        "workers' peak RSS",
        "spilled",
        "paused",
        *(f"files: {kind}" for kind in KINDS),
        "restarts",
    ]
    lines, limit = [], parse_bytes(options.limit) / 1e6
    for k, run in enumerate(runs):
        peaks = " ".join(f"{peak / 1e6:.0f}" for peak in run["peak_rss"])
        result = run.get("result", {})
        lines.append(
            [
                f"{k + 1}",
                run.get("planning"),
                run.get("clustering"),
                result.get("clusters"),
                result.get("noise"),
                run.get("exact"),
                f"{peaks} of {limit:.0f} MB",
                format_bytes(run["spilled_peak"]),
                f"{run['paused_share']:.0%}",
                *(format_bytes(run["files_peak"][kind]) for kind in KINDS),
                run["restarts"],
            ]
        )
    print(table(["run", *names], lines))
    for k, run in enumerate(runs):
        print(f"{k + 1}: {run.get('failed', 'done')}; {run.get('plan', 'not planned')}")
        for message, times in run["messages"].items():
            print(f"   {times} times: {message}")


def main() -> int:
    """Run the benchmark; return 1 if a run failed or its labels are wrong."""
    quiet()
    options = arguments()
    points, rows = POINTS[options.points], options.rows
    memory = options.workers * parse_bytes(options.limit)
    parts = options.partitions or max(2, round(rows / PART_ROWS))
    where, before = known(), [round(load, 2) for load in os.getloadavg()]
    runs: list[dict[str, Any]] = []
    expected: dict[str, Any] | None = None
    with scratch(options.folder) as folder:
        data = folder / "data"
        progress(f"{rows:,} rows in {parts} files, eps = {points.eps(rows)!r}")
        write_rows(data, points, rows, parts)
        files = sorted(data.glob("*.parquet"))
        for k in range(options.repeat):
            run = cluster_once(
                data, points, options, folder / f"labels-{k}", folder / "dask"
            )
            run["loadavg"] = [round(load, 2) for load in os.getloadavg()]
            progress(f"run {k + 1}: {run.get('failed') or run['clustering']}")
            runs.append(run)
        if not options.no_check and any("failed" not in run for run in runs):
            began = time.perf_counter()
            found = independent_labels(
                files, points.eps(rows), points.min_samples, rows, folder / "strips"
            )
            labels = found.labels
            expected = {
                "clusters": int(labels.max()) + 1,
                "noise": int((labels < 0).sum()),
                "core": found.cores,
            }
            progress(f"independently: {expected}, {time.perf_counter() - began:.0f} s")
            for k, run in enumerate(runs):
                _check(run, folder / f"labels-{k}", labels)
                progress(f"run {k + 1}: {run.get('result')}")
    share = rows * ROW_BYTES / memory
    print(
        f"{rows:,} rows of {ROW_BYTES} B: {share:.2f} times the memory of "
        f"{options.workers} workers of "
        f"{options.limit}"
    )
    _print(runs, options)
    report = {
        "loadavg_before": before,
        "rows": rows,
        "partitions": parts,
        "eps": points.eps(rows),
        "min_samples": points.min_samples,
        "times_memory": share,
        "expected": expected,
        "runs": runs,
    }
    save("clusters-out-of-core", where, options, report, options.output)
    return (
        0
        if all("failed" not in run and run.get("exact") is not False for run in runs)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
