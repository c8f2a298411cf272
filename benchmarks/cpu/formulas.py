"""``python -m benchmarks cpu.formulas``: self-joins by Hamming, Canberra and Bray-Curtis
distances, beside the ball tree of scikit-learn and SciPy's `cdist`.

All run on one core, and in turn. Times are CPU seconds of whole calls, the least of
several: the machine may do other work. We and SciPy find the same number of pairs. The
ball tree relies on the triangle inequality, which Bray-Curtis does not have: it may lose
pairs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.neighbors import BallTree

import dask_simjoin
from benchmarks.harness.ours import VERSION
from benchmarks.harness.points import SEED
from benchmarks.harness.report import environment, write
from benchmarks.harness.timing import least_in_turns, show_least

ROWS = 20_000

AT_ONCE = 1000
"""SciPy compares this many rows with all rows at a time."""


def answers(rows: int) -> np.ndarray:
    """Draw 40 answers, yes or no, of groups of about ten people who agree in most."""
    random = np.random.default_rng(SEED)
    groups = random.integers(0, 2, (max(1, rows // 10), 40))
    found = groups[random.integers(0, len(groups), rows)]
    return np.where(random.random(found.shape) < 0.05, 1 - found, found) * 1.0


def amounts(rows: int) -> np.ndarray:
    """Draw six amounts of very different sizes, some of them 0."""
    random = np.random.default_rng(SEED)
    found: np.ndarray = random.lognormal(2, 2, (rows, 6))
    found[random.random(found.shape) < 0.1] = 0.0
    return found


def species(rows: int) -> np.ndarray:
    """Draw counts of 12 species at places of 200 kinds."""
    random = np.random.default_rng(SEED)
    usual = random.lognormal(2, 1.5, (200, 12))
    found: np.ndarray = random.poisson(usual[random.integers(0, 200, rows)])
    return found * 1.0


JOBS: dict[str, tuple[Callable[[int], np.ndarray], float]] = {
    "hamming": (answers, 0.1),
    "canberra": (amounts, 0.7),
    "braycurtis": (species, 0.0501),
}
"""Metric -> the rows, and the largest distance of a pair."""


def ways_of(metric: str, x: np.ndarray, eps: float) -> dict[str, Callable[[], int]]:
    """Return the ways to find all pairs; each returns their number."""

    def ours() -> int:
        return len(dask_simjoin.self_join(x, eps, metric=metric))

    def tree() -> int:
        found = BallTree(x, metric=metric).query_radius(x, eps)
        return (sum(map(len, found)) - len(x)) // 2

    def scipy() -> int:
        found = 0
        for start in range(0, len(x), AT_ONCE):
            away = cdist(x[start : start + AT_ONCE], x, metric)
            found += len(np.nonzero(away <= eps)[0])
        return (found - len(x)) // 2

    return {"dask_simjoin": ours, "BallTree": tree, "cdist": scipy}


def peers() -> dict[str, str]:
    """Return the versions of the other libraries."""
    return {name: version(name) for name in ("scikit-learn", "scipy")}


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.formulas", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path, help="JSON file")
    options = parser.parse_args()
    every: dict[str, Any] = {}
    for metric, (draw, eps) in JOBS.items():
        for way in ways_of(metric, draw(300), eps).values():  # compiles kernels
            way()
        ways = ways_of(metric, draw(options.rows), eps)
        found = least_in_turns(ways, options.repeat, "pairs")
        numbers = [found[name]["pairs"] for name in ("dask_simjoin", "cdist")]
        assert numbers[0] == numbers[1], f"{metric}: {numbers}"
        show_least(metric, found)
        every[metric] = {"eps": eps, "ways": found}
    report = {
        "environment": environment([], VERSION) | {"peers": peers()},
        "unit": "CPU seconds of a whole call on one core, the least of several",
        "rows": options.rows,
        "jobs": every,
    }
    write(report, options.output)


if __name__ == "__main__":
    main()
