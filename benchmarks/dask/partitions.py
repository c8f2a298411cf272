"""``python -m benchmarks dask.partitions``: how planning grows with the number of
partitions.

Results are seconds of one core for planning, and for the graphs of the join and of the
frame.  For comparison, Dask builds and runs as many tasks that only count their rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.lazy import known, progress, quiet, save, table
from benchmarks.harness.points import SEED

ROWS = 400
"""Rows of a partition, and of a chunk where each partition is one chunk."""

CHUNK = ROWS * 24
WAYS: dict[str, tuple[bool, dict[str, Any]]] = {
    "chunks of many partitions": (False, {}),
    "sorted, a chunk of each": (True, {"partitioning": "entity", "blocksize": CHUNK}),
    "sorted, auto": (True, {"blocksize": CHUNK}),
    "spatial chunks as small": (False, {"partitioning": "spatial", "blocksize": CHUNK}),
}
"""Whether rows are sorted by their first coordinate, and the options of the join."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.partitions", description=__doc__
    )
    parser.add_argument(
        "--partitions", type=int, nargs="*", default=[1000, 2000, 5000, 10_000]
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of an action on one core, and its result."""
    began = time.process_time()
    found = action()
    return time.process_time() - began, found


def once(
    partitions: int, ordered: bool, options: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Plan one join of the given number of partitions, and make its graph."""
    random = np.random.default_rng((SEED, seed, partitions))
    frame = pd.DataFrame(
        random.uniform(0, 100, (ROWS * partitions, 2)), columns=["x", "y"]
    )
    if ordered:
        frame = frame.sort_values("x", ignore_index=True)
    lazy = dd.from_pandas(frame, npartitions=partitions)
    dask_own, graph = seconds(lambda: lazy.optimize().__dask_graph__())
    counting, rows = seconds(lambda: int(lazy.map_partitions(len).sum().compute()))
    assert rows == len(frame), (rows, len(frame))
    pairs = lazy.simjoin.self_join(0.05, **options)
    planning, plan = seconds(lambda: pairs.expr.plan)
    making, joined = seconds(lambda: pairs.optimize().__dask_graph__())
    return {
        "partitions": partitions,
        "planning": planning,
        "counting": counting,
        "graph": making,
        "frame_graph": dask_own,
        "chunks": len(plan.chunks),
        "block_pairs": len(plan.work),
        "keys": len(joined),
        "frame_keys": len(graph),
    }


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    where = known()
    found = []
    with dask.config.set(scheduler="sync"):
        for name, (ordered, how) in WAYS.items():
            # the first join compiles, which must not be timed
            once(20, ordered, how, 1000)
            for partitions in options.partitions:
                runs = [
                    once(partitions, ordered, how, seed)
                    for seed in range(options.repeat)
                ]
                medians = {
                    key: statistics.median(run[key] for run in runs) for key in runs[0]
                }
                found.append({"way": name} | medians | {"runs": runs})
                progress(
                    f"{name}, {partitions:,}: planned in {medians['planning']:.2f} s"
                )
    keys = [
        "way",
        "partitions",
        "planning",
        "counting",
        "graph",
        "frame_graph",
        "chunks",
        "block_pairs",
        "keys",
    ]
    print(table(keys, [[one[key] for key in keys] for one in found]))
    save("partitions", where, options, {"ways": found}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
