"""``python -m benchmarks dask.road``: what the way through Dask costs, against one
plain frame.

Each job runs on a plain frame on one core, and through Dask on threads and processes,
plans included.  Rows lie in memory, and a repeated job is planned anew.  All ways must
find the same number.  The first table has seconds, and the ratio to the plain frame.
The second has the time of each kind of task, in nanoseconds a row.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.diagnostics import Profiler
from dask.utils import key_split
from distributed import Client, get_task_stream

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.dask.overhead import scheduler
from benchmarks.harness.lazy import known, progress, quiet, save, table
from benchmarks.harness.points import SEED
from dask_simjoin.graph.planner import STATISTICS

CORES_SHARE = 1.25
"""T cores may take at most this times the T-th part of one core's time."""


@dataclass(frozen=True)
class Data:
    """Points, and the distance within which rows have some neighbors."""

    rows: int
    dims: int
    eps: float
    partitions: int
    make: Callable[[np.random.Generator, int, int], np.ndarray]

    def frame(self, seed: int) -> pd.DataFrame:
        """Return the points as a frame."""
        x = self.make(np.random.default_rng((SEED, seed)), self.rows, self.dims)
        return pd.DataFrame({f"x{k}": x[:, k] for k in range(self.dims)})

    def scaled(self, scale: float) -> Data:
        """Scale the number of points; they have as many neighbors, in partitions of the
        same size.
        """
        if scale == 1:
            return self
        eps, parts = (
            self.eps / scale ** (1 / self.dims),
            max(2, int(self.partitions * scale)),
        )
        return replace(self, rows=int(self.rows * scale), eps=eps, partitions=parts)


def _uniform(random: np.random.Generator, n: int, dims: int) -> np.ndarray:
    return random.uniform(0, 100, (n, dims))


def _exponential(random: np.random.Generator, n: int, dims: int) -> np.ndarray:
    return random.exponential(1 / 40, (n, dims))


def _embeddings(random: np.random.Generator, n: int, dims: int) -> np.ndarray:
    """Draw directions around a thousand centers."""
    centres = random.normal(size=(1000, dims))
    x = centres[random.integers(0, 1000, n)] + random.normal(size=(n, dims)) * 0.3
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x


DATA = {
    "1Mx2": Data(1_000_000, 2, 0.1, 40, _uniform),
    "8Mx2": Data(8_000_000, 2, 0.0354, 320, _uniform),
    "64Mx2": Data(64_000_000, 2, 0.0125, 2560, _uniform),
    "2Mx6": Data(2_000_000, 6, 9.0, 80, _uniform),
    "200kx16": Data(200_000, 16, 0.045, 16, _exponential),
    "48kx384": Data(48_000, 384, 0.5, 16, _embeddings),
}
"""64 million rows need some 16 GB of memory, so they run only on request."""

K = 5

JOBS: dict[str, Callable[[Any, Data, float], Any]] = {
    "self_join": lambda frame, data, more: frame.simjoin.self_join(data.eps * more),
    "count_pairs": lambda frame, data, more: frame.simjoin.count_pairs(data.eps * more),
    "dbscan": lambda frame, data, more: frame.simjoin.dbscan(
        data.eps * more, min_samples=5
    ),
    "knn_join": lambda frame, data, more: frame.simjoin.knn_join(
        k=K, max_distance=1e9 * more
    ),
}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.road", description=__doc__
    )
    usual = [name for name in DATA if name != "64Mx2"]
    parser.add_argument("--data", nargs="*", default=usual, choices=list(DATA))
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS))
    parser.add_argument(
        "--on",
        nargs="*",
        default=["threads-1", "threads-2", "cluster-2"],
        help="schedulers: threads-N or cluster-N, N processes",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the numbers of rows"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--fresh", action="store_true", help="summarise the rows anew for each job"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def found_in(result: Any) -> int:
    """Return a number that two ways must share: rows of a result, clusters, or the
    result itself.
    """
    if isinstance(result, (int, np.integer)):
        return int(result)
    return int(result.max()) + 1 if result.ndim == 1 else len(result)


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of an action, and its result."""
    gc.collect()
    began = time.perf_counter()
    found = action()
    return time.perf_counter() - began, found


def lazily(
    frame: dd.DataFrame, data: Data, job: str, client: Client | None, more: float
) -> dict[str, Any]:
    """Plan and compute a job; return its seconds, the number of results, and its tasks.

    Pairs are computed and counted partition by partition, so they stay where they are.
    """
    tasks: dict[str, list[float]] = {}

    def compute() -> tuple[float, int]:
        began = time.perf_counter()
        lazy = JOBS[job](frame, data, more)
        lazy.expr.plan  # noqa: B018  (plans)
        planned = time.perf_counter() - began
        if job == "count_pairs":
            return planned, int(lazy.compute())
        if job == "dbscan":
            return planned, int(lazy.max().compute()) + 1
        return planned, int(lazy.map_partitions(len).sum().compute())

    with Profiler() if client is None else get_task_stream(client) as trace:
        wall, (planning, found) = timed(compute)
    if client is None:
        spans = [(task.key, task.end_time - task.start_time) for task in trace.results]
    else:
        spans = [
            (
                task["key"] if part["action"] == "compute" else part["action"],
                part["stop"] - part["start"],
            )
            for task in trace.data
            for part in task["startstops"]
        ]
    for key, seconds in spans:
        one = tasks.setdefault(key_split(key), [0, 0.0])
        one[0] += 1
        one[1] += seconds
    return {
        "wall": wall,
        "planning": planning,
        "found": found,
        "tasks": {name: {"number": n, "seconds": s} for name, (n, s) in tasks.items()},
    }


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run with the median time, with the times of all."""
    ordered = sorted(runs, key=lambda run: run["wall"])
    return ordered[len(runs) // 2] | {"all": [run["wall"] for run in runs]}


def measured(
    name: str, data: Data, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run all jobs of one data set in all ways."""
    plain = data.frame(0)
    results: list[dict[str, Any]] = []
    # another distance is another join for Dask, which would reuse the plan; it finds as
    # much
    shift = (1 + n * 2.0**-50 for n in itertools.count(1))
    for job in options.jobs:
        # compile and load now, so that it is part of no time
        JOBS[job](plain.iloc[:20_000], data, 1.0)
        runs = [
            timed(lambda job=job: JOBS[job](plain, data, 1.0))
            for _ in range(options.repeat)
        ]
        results.append(
            {
                "data": name,
                "job": job,
                "rows": data.rows,
                "dims": data.dims,
                "on": "plain frame",
                "cores": 1,
                "wall": statistics.median(run[0] for run in runs),
                "all": [run[0] for run in runs],
                "found": found_in(runs[0][1]),
                "tasks": {},
            }
        )
        del runs
        progress(
            f"{name} {job}: {results[-1]['wall']:.2f} s plain, {results[-1]['found']:,}"
        )
    alone = {one["job"]: one for one in results}
    for way in options.on:
        context, cores = scheduler(way)
        with context as client:
            frame = dd.from_pandas(plain, npartitions=data.partitions).persist()
            frame.map_partitions(len).compute()
            for job in options.jobs:
                lazily(frame, data, job, client, next(shift))
                runs = []
                for _ in range(options.repeat):
                    if options.fresh:
                        STATISTICS.clear()
                    runs.append(lazily(frame, data, job, client, next(shift)))
                one = {
                    "data": name,
                    "job": job,
                    "rows": data.rows,
                    "dims": data.dims,
                    "on": way,
                    "cores": cores,
                } | middle(runs)
                if one["found"] != alone[job]["found"]:
                    raise AssertionError(
                        f"{way}, {job}: {one['found']}, plain {alone[job]['found']}"
                    )
                one["of_plain"] = one["wall"] * cores / alone[job]["wall"]
                results.append(one)
                progress(
                    f"{name} {job} {way}: {one['wall']:.2f} s, {one['of_plain']:.2f} "
                    "of its share"
                )
            del frame
    return results


def _print(results: list[dict[str, Any]]) -> None:
    print(
        f"Seconds; times cores, by the plain frame's: at most {CORES_SHARE} is wanted, "
        "1.2 of one thread"
    )
    keys = ["data", "job", "on", "wall", "of_plain", "planning", "found"]
    print(table(keys, [[one.get(key) for key in keys] for one in results]))
    for one in results:
        lines = [
            [
                name,
                task["number"],
                task["seconds"],
                task["seconds"] / one["rows"] * 1e9,
                task["seconds"] / one["rows"] / one["dims"] * 1e9,
            ]
            for name, task in sorted(
                one["tasks"].items(), key=lambda item: -item[1]["seconds"]
            )
            if task["seconds"] > 0.01 * one["wall"]
        ]
        if lines:
            print(f"\n{one['data']} {one['job']}, {one['on']}: {one['wall']:.2f} s")
            print(
                table(["tasks", "number", "seconds", "ns a row", "and column"], lines)
            )


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    for name in options.on:
        scheduler(name)  # refuses an unknown name before anything is measured
    where = known()
    results: list[dict[str, Any]] = []
    for name in options.data:
        results += measured(name, DATA[name].scaled(options.scale), options)
    _print(results)
    save("road", where, options, {"rows": results}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
