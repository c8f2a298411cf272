"""``python -m benchmarks cpu.keep [--backend cudf]``: what attaching columns of both
rows to many pairs costs.

Frames are plain, so that nothing but the verb runs.  Each way runs in turn.  The first
round touches memory for the first time, so it is reported separately.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__" and "cudf" not in sys.argv:
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.harness.ours import VERSION
from benchmarks.harness.points import SEED
from benchmarks.harness.report import environment, write

ROWS = 1_000_000
WAYS = {
    "none": None,
    "3 numeric": ["price", "count", "weight"],
    "3 with text": ["name", "count", "weight"],
}


def frame() -> pd.DataFrame:
    """Draw points in the plane, with attributes."""
    random = np.random.default_rng(SEED)
    places = pd.DataFrame(random.uniform(0, 100, (ROWS, 2)), columns=["x", "y"])
    places["price"] = random.uniform(size=ROWS)
    places["count"] = random.integers(0, 1000, ROWS)
    places["weight"] = random.uniform(size=ROWS).astype(np.float32)
    places["name"] = [f"place {k % 5000}" for k in range(ROWS)]
    return places


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.keep", description=__doc__
    )
    parser.add_argument("--backend", choices=("pandas", "cudf"), default="pandas")
    parser.add_argument(
        "--eps", type=float, default=0.8, help="of points in 100 x 100; 0.8: 100M pairs"
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    places: Any = frame()
    wait = None
    if options.backend == "cudf":
        import cudf
        import cupy

        places = cudf.from_pandas(places)
        wait = cupy.cuda.Device().synchronize
    found: dict[str, Any] = {name: {"seconds": []} for name in WAYS}
    for keep in WAYS.values():
        # the first call compiles and loads, which must not be timed
        places.head(2000).simjoin.self_join(options.eps, on=["x", "y"], keep=keep)
    for _ in range(options.repeat + 1):
        for name, keep in WAYS.items():
            gc.collect()
            began = time.perf_counter()
            pairs = places.simjoin.self_join(options.eps, on=["x", "y"], keep=keep)
            if wait is not None:
                wait()
            found[name]["seconds"].append(round(time.perf_counter() - began, 4))
            found[name]["pairs"] = len(pairs)
            del pairs
            print(name, found[name]["seconds"][-1], file=sys.stderr, flush=True)
    for name in WAYS:
        found[name]["median"] = statistics.median(found[name]["seconds"][1:])
        found[name]["ratio"] = round(found[name]["median"] / found["none"]["median"], 2)
    report = {
        "environment": environment([], VERSION),
        "backend": options.backend,
        "unit": "seconds of a plain frame's self_join, the first of each left out of the median",
        "ways": found,
    }
    write(report, options.output)


if __name__ == "__main__":
    main()
