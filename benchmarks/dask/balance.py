"""``python -m benchmarks dask.balance``: how evenly the work of a join is cut.

A job is planned for a number of threads, and its tasks run one after the other in one
thread.  So other work of the machine does not change their CPU seconds.  The report has
for each step the number of pieces, and a histogram of their seconds, with bars of a
tenth of the longest.  It also has the longest piece by the mean one, and the threads'
time by the least possible time.  The threads' time assumes that the first idle thread
takes the next piece.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
from dask.callbacks import Callback
from dask.utils import key_split

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.dask.road import DATA, JOBS
from benchmarks.harness.lazy import known, progress, quiet, save, table

WORK = ("block", "pairs", "within", "across", "border", "search", "chunk", "index")
"""Parts of the names of steps whose tasks are cut, or indexed in parallel."""

BARS = " ▁▂▃▄▅▆▇█"

BINS = 10

LEAST = 0.01
"""A step with fewer seconds is ignored, as its cuts do not matter."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.balance", description=__doc__
    )
    parser.add_argument(
        "--data", nargs="*", default=["1Mx2", "200kx16", "48kx384"], choices=list(DATA)
    )
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 8, 32])
    parser.add_argument("--partitioning", default="auto")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


class Seconds(Callback):  # type: ignore[misc]
    """Record the CPU seconds of tasks that run one after the other."""

    def __init__(self) -> None:
        self.steps: dict[str, list[float]] = defaultdict(list)
        self._began = 0.0
        super().__init__()

    def _pretask(self, key: Any, dsk: Any, state: Any) -> None:
        self._began = time.process_time()

    def _posttask(
        self, key: Any, result: Any, dsk: Any, state: Any, worker: Any
    ) -> None:
        self.steps[key_split(key)].append(time.process_time() - self._began)


def makespan(seconds: list[float], threads: int) -> float:
    """Return the seconds until all tasks end; each is begun by the first idle thread."""
    free = [0.0] * threads
    for one in seconds:
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def bars(seconds: list[float]) -> str:
    """Format a histogram in one line."""
    counts = np.histogram(seconds, BINS, (0.0, max(seconds)))[0]
    return "".join(
        BARS[int(np.ceil(n / counts.max() * (len(BARS) - 1)))] for n in counts
    )


def measured(name: str, job: str, threads: int, partitioning: str) -> dict[str, Any]:
    """Run one job, planned for a number of threads."""
    data = DATA[name]
    frame = dd.from_pandas(data.frame(0), npartitions=data.partitions)
    verb = frame.simjoin
    how = {"partitioning": partitioning}
    with dask.config.set(scheduler="sync", num_workers=threads):
        if job == "knn_join":
            lazy = verb.knn_join(k=5, **how)
        elif job == "dbscan":
            lazy = verb.dbscan(data.eps, min_samples=5, **how)
        else:
            lazy = getattr(verb, job)(data.eps, **how)
        plan = lazy.expr.plan
        with Seconds() as took:
            (lazy if job == "count_pairs" else lazy.map_partitions(len)).compute()
    steps = []
    for step, seconds in took.steps.items():
        if sum(seconds) < LEAST or not any(part in step for part in WORK):
            continue
        whole = max(sum(seconds) / threads, 1e-9)
        steps.append(
            {
                "step": step,
                "pieces": len(seconds),
                "seconds": sum(seconds),
                "histogram": bars(seconds),
                "longest_by_mean": max(seconds) * len(seconds) / sum(seconds),
                "makespan_by_least": makespan(seconds, threads) / whole,
                "all": seconds,
            }
        )
    return {
        "data": name,
        "job": job,
        "threads": threads,
        "plan": repr(plan),
        "steps": steps,
        "expected": plan.expected,
    }


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    where = known()
    found = []
    for name in options.data:
        for job in options.jobs:
            for threads in options.threads:
                found.append(measured(name, job, threads, options.partitioning))
                progress(f"{name} {job} for {threads} threads: {found[-1]['plan']}")
    keys = [
        "step",
        "pieces",
        "seconds",
        "longest_by_mean",
        "makespan_by_least",
        "histogram",
    ]
    lines = [
        [f"{one['data']} {one['job']}", one["threads"], *(step[key] for key in keys)]
        for one in found
        for step in one["steps"]
    ]
    print(table(["job", "threads", *keys], lines))
    save("balance", where, options, {"found": found}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
