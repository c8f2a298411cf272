"""``python -m benchmarks dask.hdbscan_workers``: HDBSCAN of rows in memory by several
threads and processes.

Points are drawn as in ``cpu.hdbscan``.  Each repetition runs all schedulers in turn,
plans included, and medians are reported.  All must give the same labels.  More tables
show the tasks of a cluster's fastest run, and for how long each number of tasks ran at
a time.  The number 0 is time outside of tasks.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, wait

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.cpu.hdbscan_worker import MIN_CLUSTER_SIZE, MIN_SAMPLES, SMALL, points
from benchmarks.dask.overhead import scheduler
from benchmarks.harness.lazy import known, progress, quiet, save, table
from benchmarks.harness.timeline import timeline

ON = "plain", "cluster-1", "cluster-2", "threads-1", "threads-2"

PARTS = 4
"""Partitions of the points."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.hdbscan_workers", description=__doc__
    )
    parser.add_argument(
        "--points",
        nargs="+",
        type=_shape,
        metavar="ROWSxDIMS",
        help="such as 50000x64",
        default=[(200_000, 5), (200_000, 16), (100_000, 64), (3_000_000, 2)],
    )
    parser.add_argument(
        "--on",
        nargs="+",
        default=ON,
        help="plain (one pandas frame), threads-N or cluster-N, N processes",
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--partitioning", default="auto")
    parser.add_argument("--blocksize")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def _shape(given: str) -> tuple[int, int]:
    rows, _, dims = given.partition("x")
    return int(rows.replace("_", "")), int(dims)


def digest(labels: pd.Series) -> str:
    """Return a digest of labels in the order of their rows."""
    return hashlib.sha256(
        np.ascontiguousarray(labels.sort_index(), np.int64).data
    ).hexdigest()[:16]


def run(name: str, frame: pd.DataFrame, options: argparse.Namespace) -> dict[str, Any]:
    """Cluster once, after a clustering of few rows that loads all that is needed."""
    asked = {
        "min_samples": MIN_SAMPLES,
        "partitioning": options.partitioning,
        "blocksize": options.blocksize,
    }
    if name == "plain":
        frame.iloc[:SMALL].simjoin.hdbscan(MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES)
        began = time.perf_counter()
        labels = frame.simjoin.hdbscan(MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES)[
            "label"
        ]
        return {"seconds": time.perf_counter() - began, "digest": digest(labels)}
    with scheduler(name)[0] as client:
        small, rows = (held(some, client) for some in (frame.iloc[:SMALL], frame))
        small.simjoin.hdbscan(MIN_CLUSTER_SIZE, **asked).compute()
        if client is not None:
            # the first call makes the scheduler record tasks from now on
            client.get_task_stream(count=1)
        begun, began = time.time(), time.perf_counter()
        lazy = rows.simjoin.hdbscan(MIN_CLUSTER_SIZE, **asked)
        plan = lazy.expr.plan
        planned = time.perf_counter() - began
        kept = held(lazy, client)
        found = {
            "seconds": time.perf_counter() - began,
            "planning": planned,
            "chunks": len(plan.chunks),
        }
        ended = time.time()
        found["digest"] = digest(kept["label"].compute())
        if client is not None:
            found |= timeline(
                client.get_task_stream(start=begun, stop=ended), begun, ended
            )
    return found


def held(frame: Any, client: Client | None) -> dd.DataFrame:
    """Return a frame that is computed, and stays where it is."""
    lazy = (
        dd.from_pandas(frame, npartitions=PARTS)
        if isinstance(frame, pd.DataFrame)
        else frame
    )
    kept = lazy.persist()
    if client is not None:
        wait(kept)
    return kept


def main() -> int:
    """Run the benchmark; return 1 if labels differ."""
    quiet()
    options, where = arguments(), known()
    results: list[dict[str, Any]] = []
    lines, same = [], True
    for rows, dims in options.points:
        frame = pd.DataFrame(points(rows, dims), columns=[f"x{k}" for k in range(dims)])
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.on}
        for _ in range(options.repeat):
            for name, each in runs.items():
                each.append(run(name, frame, options))
                progress(f"{rows:,} x {dims}, {name}: {each[-1]['seconds']:.2f} s")
        middle = {
            name: sorted(each, key=lambda one: one["seconds"])[len(each) // 2]
            for name, each in runs.items()
        }
        same &= len({one["digest"] for each in runs.values() for one in each}) == 1
        seconds = {
            name: [one["seconds"] for one in each] for name, each in runs.items()
        }
        results.append(
            {"rows": rows, "dims": dims, "middle": middle, "seconds": seconds}
        )
        lines.append(
            [f"{rows:,} x {dims}", *(one["seconds"] for one in middle.values())]
        )
    print(table(["points", *options.on], lines))
    for one in results:
        for name, found in one["middle"].items():
            if "tasks" in found:
                print(
                    f"\n{one['rows']:,} x {one['dims']}, {name}: planned in "
                    f"{found['planning']:.3f} s, "
                    f"seconds by tasks at a time {found['at_a_time']}"
                )
                head = ["tasks", "number", "computing s", "else s", "first", "last"]
                print(
                    table(
                        head,
                        [
                            [task, int(told[0]), *told[1:]]
                            for task, told in found["tasks"].items()
                        ],
                    )
                )
    save(
        "hdbscan-workers",
        where,
        options,
        {"results": results, "same_labels": same},
        options.output,
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
