"""``python -m benchmarks dask.hdbscan_out_of_core``: HDBSCAN of more data than memory,
checked.

Points lie in Parquet files in the order of the first column, like times, or with
--no-ordered so that each file covers all of space.  They are blobs of different scales
with noise in some wide columns, and there are many narrow columns too.  Two workers
find the clusters and write them to Parquet.  Coordinates and ids are twice as large as
both workers' memory limits together, unless --rows says otherwise.  Only the tree, of
64 bytes a row, must fit in one worker, so rows are wide.  Seconds are also reported by
the names of tasks. Afterwards this process clusters the same rows as one frame, in as
much memory as there is.  Labels, probabilities and outlier scores of all rows are
compared.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from dask.utils import format_bytes, parse_bytes

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.cpu.hdbscan_worker import MIN_CLUSTER_SIZE, MIN_SAMPLES, points
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

TIMES = 2
"""The data are this many times as large as the workers' memory."""

PART_BYTES = 16_000_000
"""Approximate bytes of a file's rows."""

NARROW = 1e-3
"""Standard deviation of the narrow columns; blobs have one of 0.1 to 1 in a box of 10.
"""

LONGEST = 12
"""Names of tasks whose seconds are printed, at most."""

TOLD = ["label", "probability", "outlier_score"]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.hdbscan_out_of_core", description=__doc__
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="processes of one thread (default 2)"
    )
    parser.add_argument(
        "--limit", default="600 MB", help="memory of each (default 600 MB)"
    )
    parser.add_argument("--dims", type=int, default=256, help="columns (default 256)")
    parser.add_argument(
        "--wide", type=int, default=1, help="wide ones of them (default 1)"
    )
    parser.add_argument(
        "--ordered",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="rows are in the order of the first column (default)",
    )
    parser.add_argument("--rows", type=int, help="default: twice the workers' memory")
    parser.add_argument(
        "--partitioning", default="entity", choices=("auto", "entity", "spatial")
    )
    parser.add_argument(
        "--blocksize", help="bytes of a chunk (default: from the workers' memory)"
    )
    parser.add_argument(
        "--patience", type=float, default=3600, help="seconds until a run is given up"
    )
    parser.add_argument(
        "--folder", type=Path, help="for temporary files: on a disk, not in memory"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="leave out the clustering in memory"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def write_rows(
    folder: Path, rows: int, dims: int, wide: int, parts: int, ordered: bool
) -> None:
    """Write rows (id, c0, c1, ...), partition by partition.  Ids are row numbers."""
    random = np.random.default_rng((dims, wide))
    x = points(rows, wide, random)
    if ordered:
        x = x[np.argsort(x[:, 0])]
    cuts = [rows * k // parts for k in range(parts + 1)]
    for k, (start, stop) in enumerate(itertools.pairwise(cuts)):
        narrow = NARROW * random.standard_normal((stop - start, dims - wide))
        frame = pd.DataFrame(
            np.concatenate([x[start:stop], narrow], axis=1), columns=columns(dims)
        )
        frame.insert(0, "id", np.arange(start, stop))
        write_part(frame, folder, k)


def columns(dims: int) -> list[str]:
    """Return the names of the coordinates."""
    return [f"c{k}" for k in range(dims)]


def cluster_lazily(
    data: Path, options: argparse.Namespace, out: Path, temporary: Path
) -> dict[str, Any]:
    """Cluster on a fresh cluster of workers, and watch it; "failed" is the error that
    was raised.
    """

    def work(found: dict[str, Any]) -> None:
        frame = fresh(data)
        told = frame.simjoin.hdbscan(
            MIN_CLUSTER_SIZE,
            min_samples=MIN_SAMPLES,
            on=columns(options.dims),
            partitioning=options.partitioning,
            blocksize=options.blocksize,
        )
        began = time.perf_counter()
        plan = told.expr.plan
        found["planning"] = time.perf_counter() - began
        found |= {
            "plan": repr(plan),
            "chunks": len(plan.chunks),
            "joined": len(plan.work.joined),
        }
        progress(
            f"planned in {found['planning']:.1f} s: {found['plan']}, "
            f"{found['joined']:,} pairs of trees"
        )
        began = time.perf_counter()
        frame[["id"]].assign(**{name: told[name] for name in TOLD}).to_parquet(
            out, write_index=False
        )
        found["clustering"] = time.perf_counter() - began

    limit = parse_bytes(options.limit)
    return watched(
        work, options.workers, limit, options.patience, temporary, logging.WARNING
    )


def compare(files: list[Path], out: list[Path], dims: int) -> dict[str, Any]:
    """Cluster all rows as one frame, and count the rows whose results differ."""
    told = pd.concat(
        [pd.read_parquet(file) for file in out], ignore_index=True
    ).sort_values("id")
    rows = pd.concat(
        [pd.read_parquet(file, columns=columns(dims)) for file in files],
        ignore_index=True,
    )
    began = time.perf_counter()
    want = rows.simjoin.hdbscan(MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES)
    found: dict[str, Any] = {"seconds_in_memory": time.perf_counter() - began}
    found |= {
        "clusters": int(want["label"].max()) + 1,
        "noise": int((want["label"] < 0).sum()),
    }
    if told["id"].tolist() != list(range(len(rows))):
        return found | {"exact": False}
    differ = {
        name: int((told[name].to_numpy() != want[name].to_numpy()).sum())
        for name in TOLD
    }
    return found | {"differ": differ, "exact": not any(differ.values())}


def spent(tasks: dict[str, dict[str, float]]) -> list[list[Any]]:
    """Return lines of a table: how many tasks of a name ran, and their seconds, the
    longest first.
    """
    kinds = ("compute",), ("transfer", "deserialize"), ("disk-read", "disk-write")
    lines = [
        [
            name,
            int(told["number"]),
            *(sum(told.get(one, 0.0) for one in kind) for kind in kinds),
        ]
        for name, told in tasks.items()
    ]
    return sorted(lines, key=lambda line: -sum(line[2:]))[:LONGEST]


def main() -> int:
    """Run the benchmark; return 1 if it failed or a result is wrong."""
    quiet()
    options = arguments()
    memory, row_bytes = (
        options.workers * parse_bytes(options.limit),
        8 * (options.dims + 1),
    )
    rows = options.rows or math.ceil(TIMES * memory / row_bytes)
    parts = max(2, round(rows * row_bytes / PART_BYTES))
    where, before = known(), [round(load, 2) for load in os.getloadavg()]
    with scratch(options.folder) as folder:
        data, out = folder / "data", folder / "told"
        progress(f"{rows:,} rows in {parts} files")
        write_rows(data, rows, options.dims, options.wide, parts, options.ordered)
        run = cluster_lazily(data, options, out, folder / "dask")
        run["loadavg"] = [round(load, 2) for load in os.getloadavg()]
        progress(f"done: {run.get('failed') or run['clustering']}")
        if "failed" not in run and not options.no_check:
            files = (sorted(some.glob("*.parquet")) for some in (data, out))
            run["result"] = compare(*files, options.dims)
    share = rows * row_bytes / memory
    print(
        f"{rows:,} rows of {row_bytes} B: {share:.2f} times the memory of "
        f"{options.workers} workers of "
        f"{options.limit}"
    )
    peaks = " ".join(f"{peak / 1e6:.0f}" for peak in run["peak_rss"])
    files_peak = [format_bytes(run["files_peak"][kind]) for kind in KINDS]
    line = [
        run.get("planning"),
        run.get("clustering"),
        run.get("result", {}).get("clusters"),
        run.get("result", {}).get("exact"),
        f"{peaks} of {parse_bytes(options.limit) / 1e6:.0f} MB",
        format_bytes(run["spilled_peak"]),
        f"{run['paused_share']:.0%}",
        *files_peak,
        run["restarts"],
    ]
    head = [
        "planning s",
        "clustering s",
        "clusters",
        "exact",
        "workers' peak RSS",
        "spilled",
        "paused",
        *(f"files: {kind}" for kind in KINDS),
        "restarts",
    ]
    print(table(head, [line]))
    print(
        table(
            ["tasks", "number", "computing s", "moving s", "disk s"],
            spent(run["tasks"]),
        )
    )
    print(
        f"{run.get('failed', 'done')}; {run.get('plan', 'not planned')}; "
        f"{run.get('result')}"
    )
    for message, times in run["messages"].items():
        print(f"   {times} times: {message}")
    report = {
        "loadavg_before": before,
        "rows": rows,
        "partitions": parts,
        "times_memory": share,
        "runs": [run],
    }
    save("hdbscan-out-of-core", where, options, report, options.output)
    return (
        0
        if "failed" not in run and run.get("result", {}).get("exact") is not False
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
