"""``python -m benchmarks dask.sets_cores``: what Dask adds to a join of sets, and what
a second core saves.

Pairs of sets are counted in a plain frame on one core, and in partitions of the same
rows, with planning. First the tasks run one after the other in one thread, so that
other work of the machine does not change their CPU seconds.  The report has their sum
by the plain frame's seconds, and the critical path.  It also has the time that two
threads would take, if the first idle thread takes the next task whose inputs are there.
Then the join runs by the clock, with one thread and with two in turn, which needs a
quiet machine.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.callbacks import Callback
from dask.utils import key_split

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.cpu.sets import texts
from benchmarks.dask.sets_out_of_core import random_sets
from benchmarks.harness.lazy import known, progress, quiet, save, table

LISTS = pd.ArrowDtype(pa.list_(pa.int64()))


def _random(rows: int, sizes: tuple[int, int]) -> pd.Series:
    ends, tokens = random_sets(0, rows, sizes)
    return pd.Series(
        pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(tokens)),
        dtype=LISTS,
    )


WORDS = {"tokenizer": "whitespace"}
GRAMS = {"tokenizer": ("qgrams", 2)}

DATA: dict[str, tuple[Callable[[], pd.Series], dict[str, Any]]] = {
    "texts as 2-grams, 0.5": (texts, {"threshold": 0.5} | GRAMS),
    "texts as words, 0.5": (texts, {"threshold": 0.5} | WORDS),
    "200,000 sets of 10 to 100, 0.5": (
        lambda: _random(200_000, (10, 100)),
        {"threshold": 0.5},
    ),
    "400,000 sets of 12, 0.8": (lambda: _random(400_000, (12, 12)), {"threshold": 0.8}),
}
"""Columns, and the options of their joins.  Texts are 20,000 pieces of Python's own
library.
"""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.sets_cores", description=__doc__
    )
    parser.add_argument(
        "--data",
        type=int,
        nargs="*",
        default=list(range(len(DATA))),
        help="which, from 0",
    )
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


class Tasks(Callback):  # type: ignore[misc]
    """Record the CPU seconds of tasks that run one after the other, and their
    dependencies.
    """

    def __init__(self) -> None:
        self.phases: list[dict[Any, float]] = []
        self.needs: dict[Any, frozenset[Any]] = {}
        self._began = 0.0
        super().__init__()

    @property
    def seconds(self) -> dict[Any, float]:
        """Return the seconds of all tasks."""
        return {key: seconds for phase in self.phases for key, seconds in phase.items()}

    def _start(self, dsk: Any) -> None:
        self.phases.append({})
        self.needs |= {key: frozenset(task.dependencies) for key, task in dsk.items()}

    def _pretask(self, key: Any, dsk: Any, state: Any) -> None:
        self._began = time.process_time()

    def _posttask(
        self, key: Any, result: Any, dsk: Any, state: Any, worker: Any
    ) -> None:
        self.phases[-1][key] = time.process_time() - self._began

    def makespan(self, threads: int) -> float:
        """Return the seconds until all tasks end: first planning, then the join, each
        task after its dependencies.
        """
        total = 0.0
        for phase in self.phases:
            free, ends = [0.0] * threads, dict[Any, float]()
            for key, seconds in phase.items():
                ready = max(
                    (ends.get(one, 0.0) for one in self.needs.get(key, ())), default=0.0
                )
                ends[key] = max(heapq.heappop(free), ready) + seconds
                heapq.heappush(free, ends[key])
            total += max(free)
        return total


def lazy(column: pd.Series, partitions: int) -> Any:
    """Return the column in partitions, as a frame that Dask has not seen."""
    # without a new column, Dask would plan the same rows only once
    return dd.from_pandas(
        pd.DataFrame({"sets": column, "new": time.time()}), npartitions=partitions
    )


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one column."""
    make, how = DATA[name]
    column = make().reset_index(drop=True)
    frame, how = pd.DataFrame({"sets": column}), {"on": "sets"} | how
    found: dict[str, Any] = {"data": name, "rows": len(frame)}

    def median(action: Callable[[], Any], clock: Callable[[], float]) -> float:
        seconds = []
        for _ in range(options.repeat):
            gc.collect()
            began = clock()
            pairs = action()
            seconds.append(clock() - began)
            assert found.setdefault("pairs", pairs) == pairs
        found.setdefault("runs", []).append(seconds)
        return statistics.median(seconds)

    # the first call compiles, which must not be timed
    frame.simjoin.count_set_pairs(**how)
    found["plain"] = median(
        lambda: frame.simjoin.count_set_pairs(**how), time.process_time
    )
    runs = []
    with dask.config.set(scheduler="sync", num_workers=2):
        for _ in range(options.repeat + 1):
            joined = lazy(column, options.partitions).simjoin.count_set_pairs(**how)
            with Tasks() as tasks:
                began = time.process_time()
                assert joined.compute() == found["pairs"]
                whole = time.process_time() - began
            runs.append((whole, tasks))
    # the tasks of the median run are reported
    whole, tasks = sorted(runs[1:], key=lambda run: run[0])[options.repeat // 2]
    found["partitioned_runs"] = [run[0] for run in runs[1:]]
    one = sum(tasks.seconds.values())
    steps: dict[str, list[float]] = defaultdict(list)
    for key, seconds in tasks.seconds.items():
        steps[key_split(key)].append(seconds)
    found |= {
        "partitioned": whole,
        "by_plain": whole / found["plain"],
        "in_tasks": one,
        "critical_path": tasks.makespan(len(tasks.seconds)),
        "two_threads": tasks.makespan(2),
        # only tasks run on two threads; one thread does everything between them
        "expected": whole / (whole - one + tasks.makespan(2)),
        "steps": {
            step: [len(each), sum(each), max(each)] for step, each in steps.items()
        },
    }
    clocks: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.repeat):
        for threads in clocks:
            joined = lazy(column, options.partitions).simjoin.count_set_pairs(**how)
            with dask.config.set(scheduler="threads", num_workers=threads):
                began = time.perf_counter()
                assert joined.compute() == found["pairs"]
                clocks[threads].append(time.perf_counter() - began)
    clock = {threads: statistics.median(some) for threads, some in clocks.items()}
    found |= {"clock": clock, "clock_runs": clocks, "by_clock": clock[1] / clock[2]}
    return found


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    where = known()
    found = []
    for number in options.data:
        found.append(measured(list(DATA)[number], options))
        progress(f"{found[-1]}")
    keys = [
        "data",
        "pairs",
        "plain",
        "partitioned",
        "by_plain",
        "critical_path",
        "expected",
        "by_clock",
    ]
    print(table(keys, [[one[key] for key in keys] for one in found]))
    save("sets-cores", where, options, {"found": found}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
