"""``python -m benchmarks dask.growth``: how time grows with the data, at constant
density.

(a) Dask: 10, 20, 40 and 80 partitions, which all cover all of space.  Joins are planned
and computed, and their pairs are counted.  (b) pandas: one chunk of more and more rows.
Uniform points of the unit square; the distance shrinks so that a row keeps its number
of neighbors.  CPU seconds include those of the system, mostly to provide memory; user
seconds do not.
"""

from __future__ import annotations

import argparse
import gc
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.lazy import (
    CORES,
    eps_for,
    fresh,
    known,
    progress,
    quiet,
    ratios,
    rows_of,
    running,
    save,
    scratch,
    table,
    write_uniform,
)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.growth", description=__doc__
    )
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 20, 40, 80])
    parser.add_argument(
        "--rows", type=int, default=250_000, help="of a partition (default 250,000)"
    )
    parser.add_argument(
        "--chunk-rows",
        type=int,
        nargs="*",
        help="of (b) (default 0.25M, 0.5M ... 4M)",
        default=[250_000 * 2**k for k in range(5)],
    )
    parser.add_argument(
        "--neighbors", type=float, default=6, help="of a row (default 6)"
    )
    parser.add_argument(
        "--eps", type=float, help="instead: the distance for the fewest partitions"
    )
    parser.add_argument(
        "--partitioning", default="auto", choices=("auto", "entity", "spatial")
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=0,
        help="processes of a LocalCluster; 0: threads of this one (default)",
    )
    parser.add_argument(
        "--threads", type=int, default=CORES, help=f"if there are no workers ({CORES})"
    )
    parser.add_argument("--limit", default="auto", help="memory of a worker")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its living children."""
    used = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        used += times.user + times.system
    return used


def by_partitions(
    data: Path, options: argparse.Namespace, neighbors: float
) -> list[dict[str, Any]]:
    """Measure (a): one entry for each number of partitions."""
    found = []
    for parts in options.partitions:
        rows = parts * options.rows
        eps = eps_for(rows, neighbors)
        runs = [
            dask_once(data, parts, eps, options.partitioning)
            for _ in range(options.repeat)
        ]
        one = {"partitions": parts, "rows": rows, "eps": eps} | _medians(runs)
        progress(f"{parts} partitions: {one['total']:.2f} s, {one['plan']}")
        found.append(one)
    return found


def dask_once(data: Path, parts: int, eps: float, partitioning: str) -> dict[str, Any]:
    """Plan and join the first partitions, with Dask's current settings."""
    pairs = fresh(data, parts).simjoin.self_join(
        eps, on=["x", "y"], id="id", partitioning=partitioning
    )
    used, began = cpu_seconds(), time.perf_counter()
    outputs = pairs.npartitions
    planned = time.perf_counter()
    count = int(rows_of(pairs).compute())
    ended = time.perf_counter()
    plan = pairs.expr.plan
    return {
        "planning": planned - began,
        "joining": ended - planned,
        "total": ended - began,
        "cpu": cpu_seconds() - used,
        "pairs": count,
        "outputs": outputs,
        "chunks": len(plan.chunks),
        "block_pairs": len(plan.work),
        "plan": repr(plan),
    }


def by_rows(options: argparse.Namespace, neighbors: float) -> list[dict[str, Any]]:
    """Measure (b): one entry for each size of a pandas DataFrame."""
    found = []
    for rows in options.chunk_rows:
        x, y = np.random.default_rng(rows).random((2, rows))
        frame = pd.DataFrame({"x": x, "y": y})
        eps = eps_for(rows, neighbors)
        runs = [
            _timed(lambda: frame.simjoin.self_join(eps))  # noqa: B023
            for _ in range(options.repeat)
        ]
        found.append({"rows": rows, "eps": eps} | _medians(runs))
        progress(f"{rows:,} rows at once: {found[-1]['total']:.3f} s")
    return found


def _timed(join: Callable[[], pd.DataFrame]) -> dict[str, Any]:
    gc.collect()
    used, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    pairs = join()
    took, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    user, system = now.ru_utime - used.ru_utime, now.ru_stime - used.ru_stime
    return {"total": took, "cpu": user + system, "user": user, "pairs": len(pairs)}


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians of times, and all else from the last run."""
    times = {"planning", "joining", "total", "cpu", "user"} & set(runs[0])
    return (
        runs[-1]
        | {name: statistics.median(run[name] for run in runs) for name in times}
        | {"runs": runs}
    )


def _print(lazy: list[dict[str, Any]], eager: list[dict[str, Any]]) -> None:
    for title, found, more in (
        ("(a) Dask", lazy, ("planning", "chunks", "block_pairs", "outputs")),
        ("(b) pandas, one chunk", eager, ("user",)),
    ):
        if not found:
            continue
        first = "partitions" if "partitions" in found[0] else "rows"
        names = [*(["rows"] if first != "rows" else []), "pairs", *more, "total", "cpu"]
        grown = {
            name: ratios([one[name] for one in found]) for name in ("total", "cpu")
        }
        lines = []
        for k, one in enumerate(found):
            per = one["total"] / one["rows"] * 1e9
            lines.append(
                [
                    one[first],
                    *(one[name] for name in names),
                    grown["total"][k],
                    grown["cpu"][k],
                    per,
                ]
            )
        print(
            f"\n{title}; wall and CPU seconds, by how much they grew, wall time of a "
            "row"
        )
        print(table([first, *names, "x total", "x cpu", "ns/row"], lines))
    for one in lazy:
        print(f"{one['partitions']}: {one['plan']}")


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    neighbors = options.neighbors
    if options.eps is not None:
        neighbors = math.pi * options.eps**2 * options.rows * min(options.partitions)
    where = known()
    lazy: list[dict[str, Any]] = []
    if options.partitions:
        most = max(options.partitions)
        with scratch(options.folder) as folder:
            data = folder / "data"
            write_uniform(data, most * options.rows, most, 12345)
            with running(options.workers, options.limit, options.threads):
                # the first join of a process also compiles or loads, so it is not timed
                dask_once(
                    data, 2, eps_for(2 * options.rows, neighbors), options.partitioning
                )
                lazy = by_partitions(data, options, neighbors)
    pd.DataFrame({"x": np.arange(100.0), "y": 0.0}).simjoin.self_join(1.0)
    eager = by_rows(options, neighbors)
    _print(lazy, eager)
    save(
        "growth",
        where,
        options,
        {"neighbors": neighbors, "dask": lazy, "pandas": eager},
        options.output,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
