"""``python -m benchmarks cpu.closest_pairs``: the n closest pairs of a table, here and
by SciPy's tree.

SciPy has no such search, so it is given two ways. "nearest" takes a bound from the
nearest neighbor of each row, and then all pairs within it. "known eps" is given the
n-th distance, which users do not know. Results are CPU seconds of one core, and the
most memory beyond the rows.  Each run has a process of its own.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
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
import scipy
from scipy.spatial import cKDTree

import dask_simjoin  # noqa: F401
from benchmarks.harness.forked import run_forked
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write

QUICK = 3000

CASES = (
    ("uniform", 1_000_000, 2),
    ("uniform", 300_000, 3),
    ("clusters", 100_000, 8),
    ("duplicates", 100_000, 2),
)
"""Kind of data, rows and dimensions of each case."""

MOST_PAIRS = 200_000_000
"""A case is not run with SciPy if SciPy would find more pairs than this."""

SLACK = 1 + 1e-9
"""SciPy may round distances differently, so its bound is raised by this factor."""


def points(kind: str, rows: int, dims: int) -> np.ndarray:
    """Return uniform rows, rows of ten clusters, or rows with about ten copies of each."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(rows, dims))
    if kind == "clusters":
        centres = rng.uniform(0, 10, (10, dims))
        return centres[rng.integers(10, size=rows)] + rng.normal(0, 0.3, (rows, dims))
    return x[rng.integers(rows // 10, size=rows)] if kind == "duplicates" else x


def ours(x: np.ndarray, n: int, eps: float) -> np.ndarray:
    """Return the distances of the closest pairs."""
    return pd.DataFrame(x).simjoin.closest_pairs(n)["distance"].to_numpy()


def nearest(x: np.ndarray, n: int, eps: float) -> np.ndarray | None:
    """Bound the n-th distance by distances of nearest neighbors; None: the bound has
    too many pairs.
    """
    tree = cKDTree(x)
    away = tree.query(x, 2)[0][:, 1]
    if 2 * n > len(away):
        return None
    return _within(tree, x, n, float(np.partition(away, 2 * n - 1)[2 * n - 1]))


def known_eps(x: np.ndarray, n: int, eps: float) -> np.ndarray | None:
    """Take the pairs within the n-th distance."""
    return _within(cKDTree(x), x, n, eps)


def _within(tree: cKDTree, x: np.ndarray, n: int, eps: float) -> np.ndarray | None:
    if tree.count_neighbors(tree, eps * SLACK) > 2 * MOST_PAIRS:
        return None
    pairs = tree.query_pairs(eps * SLACK, output_type="ndarray")
    away = np.sqrt(((x[pairs[:, 0]] - x[pairs[:, 1]]) ** 2).sum(axis=1))
    found: np.ndarray = np.sort(away)[:n]
    return found


WAYS: dict[str, Callable[[np.ndarray, int, float], np.ndarray | None]] = {
    "ours": ours,
    "SciPy, nearest": nearest,
    "SciPy, known eps": known_eps,
}


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.closest_pairs", description=__doc__
    )
    parser.add_argument("-n", nargs="+", type=int, default=[10, 10_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows, once")
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    rows = []
    for kind, number, dims in CASES:
        x = points(kind, QUICK if options.quick else number, dims)
        # compile and load before processes are forked, as each of them would do it
        # again
        ours(x[:QUICK], QUICK, 0.0)
        for n in options.n:
            tools: dict[str, dict[str, Any]] = {}
            reference = run_forked(functools.partial(ours, x, n, 0.0)).found
            for _ in range(1 if options.quick else options.repeat):
                for way, function in WAYS.items():
                    one = run_forked(
                        functools.partial(function, x, n, float(reference[-1]))
                    )
                    if one.found is None:
                        tools[way] = {
                            "skipped": "too many pairs, or fewer nearest neighbors than pairs"
                        }
                        continue
                    np.testing.assert_allclose(one.found, reference, rtol=1e-9)
                    own = tools.setdefault(way, {"runs": [], "bytes": []})
                    own["runs"].append(rounded(one.cpu))
                    own["bytes"].append(one.memory)
            for own in tools.values():
                if "runs" in own:
                    own["median"] = statistics.median(own["runs"])
            rows.append(
                {"data": kind, "rows": len(x), "dims": dims, "n": n, "tools": tools}
            )
            print(kind, dims, n, tools, file=sys.stderr, flush=True)
    where = environment([], VERSION)
    where["versions"]["scipy"] = scipy.__version__
    report = {
        "environment": where,
        "unit": "CPU seconds of one core, and bytes beside the rows",
        "rows": rows,
    }
    write(report, options.output)


if __name__ == "__main__":
    main()
