"""``python -m benchmarks cpu.several``: numbers within ten distances at a time, against
one after the other.

Results are CPU seconds of one core for the whole verb on a pandas DataFrame, the least
of some runs.  SciPy's tree counts with `count_neighbors` within the same distances.
The ways take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.repeats import rounded
from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

import dask_simjoin  # noqa: F401
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from dask_simjoin.errors import UnitsWarning

DISTANCES, QUICK = 10, 1500

CASES = (
    ("uniform", 200_000, 2, 0.003),
    ("uniform", 30_000, 2, 0.1),
    ("uniform", 100_000, 3, 0.05),
    ("uniform", 20_000, 4, 0.5),
    ("clusters", 50_000, 8, 0.5),
    ("clusters", 20_000, 8, 1.0),
    ("clusters", 30_000, 16, 0.8),
    ("clusters", 10_000, 16, 20.0),
    ("clusters", 20_000, 64, 2.4),
)
"""Kind of data, rows, dimensions and largest distance of each case."""

TREE_DIMS = 8
"""SciPy's tree prunes up to this many dimensions."""


def points(kind: str, rows: int, dims: int) -> np.ndarray:
    """Draw uniform rows, or ten clusters."""
    rng = np.random.default_rng(0)
    if kind == "uniform":
        return rng.uniform(size=(rows, dims))
    centres = rng.uniform(0, 10, (10, dims))
    return centres[rng.integers(10, size=rows)] + rng.normal(0, 0.3, (rows, dims))


def ways(x: np.ndarray, eps: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return the measured calls: each gives the numbers of pairs, or of neighbors,
    within the distances.
    """
    frame = pd.DataFrame(x, columns=[f"c{k}" for k in range(x.shape[1])])

    def tree() -> list[int]:
        made = cKDTree(x)
        found: list[int] = ((made.count_neighbors(made, eps) - len(x)) // 2).tolist()
        return found

    found: dict[str, Callable[[], Any]] = {
        "largest": lambda: [frame.simjoin.count_pairs(eps[-1])],
        "each": lambda: [frame.simjoin.count_pairs(one) for one in eps],
        "together": lambda: frame.simjoin.count_pairs(eps).tolist(),
        "counts, each": lambda: [
            int(frame.simjoin.neighbor_counts(one).sum()) // 2 for one in eps
        ],
        "counts, together": lambda: (
            frame.simjoin.neighbor_counts(eps).sum() // 2
        ).tolist(),
    }
    return found | ({"SciPy": tree} if x.shape[1] <= TREE_DIMS else {})


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.several", description=__doc__
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows, once")
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    asked = parser.parse_args()
    # distances are as large as rows are apart, which would be warned about
    warnings.simplefilter("ignore", UnitsWarning)
    rows = []
    for kind, number, dims, far in CASES:
        x = points(kind, QUICK if asked.quick else number, dims)
        eps = np.linspace(0, far, DISTANCES + 1)[1:]
        seconds: dict[str, list[float]] = {}
        for _ in range(1 if asked.quick else asked.repeat + 1):
            numbers = {}
            for name, run in ways(x, eps).items():
                began = time.process_time()
                numbers[name] = run()
                seconds.setdefault(name, []).append(time.process_time() - began)
            if any(
                found not in (numbers["each"], numbers["each"][-1:])
                for found in numbers.values()
            ):
                raise AssertionError(f"numbers differ: {numbers}")
        row = {
            "data": kind,
            "rows": len(x),
            "dims": dims,
            "eps": far,
            "pairs": numbers["each"][-1],
        }
        # the first run may compile
        runs = {
            name: [rounded(one) for one in some[1:] or some]
            for name, some in seconds.items()
        }
        medians = {name: statistics.median(some) for name, some in runs.items()}
        rows.append(row | {"seconds": medians, "runs": runs})
        print(row, medians, file=sys.stderr, flush=True)
    report = {
        "environment": environment([], VERSION),
        "unit": f"CPU seconds of one core, {DISTANCES} distances up to eps",
        "rows": rows,
    }
    write(report, asked.output)


if __name__ == "__main__":
    main()
