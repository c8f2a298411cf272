"""``python -m benchmarks dask.choices``: what "auto" chooses, and what other choices
take.

Each join runs with each partitioning in turn, for rows in memory in different orders.
Results are medians of seconds, with plans and new summaries of rows.  The regret of
"auto" is how much longer it took than the best.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.dask.overhead import scheduler
from benchmarks.dask.road import DATA, Data
from benchmarks.harness.lazy import known, progress, quiet, save, table
from dask_simjoin.graph.planner import STATISTICS

JOBS: dict[str, Callable[..., Any]] = {
    "count_pairs": lambda frame, eps, way: frame.simjoin.count_pairs(
        eps, partitioning=way
    ),
    "self_join": lambda frame, eps, way: frame.simjoin.self_join(eps, partitioning=way),
    "neighbor_counts": lambda frame, eps, way: frame.simjoin.neighbor_counts(
        eps, partitioning=way
    ),
}

WAYS = ("auto", "entity", "spatial", "replicated")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.choices", description=__doc__
    )
    usual = [name for name in DATA if name != "64Mx2"]
    parser.add_argument("--data", nargs="*", default=usual, choices=list(DATA))
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS))
    parser.add_argument(
        "--orders",
        nargs="*",
        default=["shuffled", "sorted"],
        choices=["shuffled", "sorted"],
    )
    parser.add_argument(
        "--on",
        nargs="*",
        default=["threads-2", "cluster-2"],
        help="schedulers: threads-N or cluster-N, N processes",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the numbers of rows"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def total_of(lazy: Any, job: str) -> int:
    """Compute a join, and return its number of pairs, or the sum of all rows' numbers
    of neighbors.
    """
    if job == "self_join":
        lazy = lazy.map_partitions(len).sum()
    return int((lazy.sum() if job == "neighbor_counts" else lazy).compute())


def measured(
    name: str, data: Data, order: str, on: str, job: str, repeat: int
) -> dict[str, Any]:
    """Measure all ways of one join of one data set."""
    plain = data.frame(0)
    if order == "sorted":
        plain = plain.iloc[
            np.argsort(plain["x0"].to_numpy(), kind="stable")
        ].reset_index(drop=True)
    context, _ = scheduler(on)
    runs: dict[str, list[float]] = {way: [] for way in WAYS}
    plans, pairs = {}, set()
    with context:
        frame = dd.from_pandas(plain, npartitions=data.partitions).persist()
        for n in range(repeat + 1):
            # in turns, because a run is faster after a similar one, whose memory it can
            # use
            for way in WAYS[n % len(WAYS) :] + WAYS[: n % len(WAYS)]:
                STATISTICS.clear()
                # each distance is slightly different, so that Dask reuses no earlier
                # plan
                eps = data.eps * (1 + 3e-16 * (n * len(WAYS) + WAYS.index(way)))
                began = time.perf_counter()
                lazy = JOBS[job](frame, eps, way)
                pairs.add(total_of(lazy, job))
                if n:  # the first call compiles and loads, so it is not timed
                    runs[way].append(time.perf_counter() - began)
                plans[way] = lazy.expr.plan
    if len(pairs) > 1:
        raise AssertionError(f"{name}: {sorted(pairs)} pairs")
    seconds = {way: statistics.median(some) for way, some in runs.items()}
    best = min(seconds[way] for way in WAYS[1:])
    return {
        "data": name,
        "order": order,
        "on": on,
        "job": job,
        "pairs": pairs.pop(),
        "seconds": seconds,
        "all": runs,
        "chosen": f"{plans['auto'].partitioning}, {len(plans['auto'].chunks)} chunks",
        "expected": plans["auto"].expected,
        "regret": seconds["auto"] / min(best, seconds["auto"]) - 1,
    }


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    where = known()
    found: list[dict[str, Any]] = []
    settings = itertools.product(options.data, options.orders, options.on, options.jobs)
    for name, order, on, job in settings:
        found.append(
            measured(
                name, DATA[name].scaled(options.scale), order, on, job, options.repeat
            )
        )
        progress(
            f"{name} {order} {on} {job}: {found[-1]['chosen']}, regret "
            f"{found[-1]['regret']:.0%}"
        )
        if options.output:  # a run that is stopped loses only one setting
            save("choices", where, options, {"found": found}, options.output)
    keys = ["order", "on", "job", "chosen"]
    lines = [
        [
            one["data"],
            *(one[k] for k in keys),
            *(one["seconds"][w] for w in WAYS),
            one["expected"],
            f"{one['regret']:.0%}",
        ]
        for one in found
    ]
    print(table(["data", *keys, *WAYS, "expected", "regret"], lines))
    save("choices", where, options, {"found": found}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
