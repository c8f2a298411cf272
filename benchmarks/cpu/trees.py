"""``python -m benchmarks cpu.trees``: spanning trees of pandas DataFrames against the
package quitefastmst, and OPTICS against scikit-learn and other verbs for clusters.

All tools run in this process, on one core, in turn: what disturbs one run disturbs all
tools alike. Variants of a peer are tried on a tenth of the rows, and the fastest one is
measured. Weights of the trees, or reachabilities of OPTICS, are sorted and compared.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    # set before the imports below, because libraries count cores and read the
    # environment when imported
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.cpu import hdbscan_worker
from benchmarks.harness.ours import VERSION
from benchmarks.harness.repeats import summary, timed
from benchmarks.harness.report import environment, write
from dask_simjoin.cluster import cluster_optics_dbscan

Call = Callable[[np.ndarray, int], np.ndarray]
"""Points (n, d) and `min_samples` -> sorted weights, or sorted reachabilities."""

PART = 10
"""Tries divide the number of rows by this."""

SMALL = 0.1
"""A tool runs again until all its runs together took this many seconds."""

PEERS = "quitefastmst", "scikit-learn"


def points(kind: str, n: int, dims: int) -> np.ndarray:
    """Return uniform points (n, dims), or blobs of different scales with noise."""
    if kind == "blobs":
        x: np.ndarray = hdbscan_worker.points(n, dims)
        return x
    return np.random.default_rng((dims, 2)).random((n, dims))


def _tree(x: np.ndarray, samples: int) -> np.ndarray:
    frame = pd.DataFrame(x, copy=False)
    return frame.simjoin.spanning_tree(min_samples=samples)["distance"].to_numpy()


def _quitefastmst(algorithm: str, leaf: int) -> Call:
    def tree(x: np.ndarray, samples: int) -> np.ndarray:
        import quitefastmst

        quitefastmst.omp_set_num_threads(1)
        # its M counts other rows only
        how = {"algorithm": algorithm, "max_leaf_size": leaf}
        weights: np.ndarray = quitefastmst.mst_euclid(x, samples - 1, **how)[0]
        return weights

    return tree


def _max_distance(x: np.ndarray, samples: int) -> float:
    """Return twice the median core distance."""
    frame = pd.DataFrame(x, copy=False)
    return 2 * float(frame.simjoin.k_distances(k=samples - 1).median())


def _optics(x: np.ndarray, samples: int) -> np.ndarray:
    frame = pd.DataFrame(x, copy=False)
    found = frame.simjoin.optics(_max_distance(x, samples), samples)
    return np.sort(found["reachability"].to_numpy())


def _sklearn(x: np.ndarray, samples: int) -> np.ndarray:
    from sklearn.cluster import OPTICS

    how = {"max_eps": _max_distance(x, samples), "algorithm": "kd_tree", "n_jobs": 1}
    return np.sort(OPTICS(min_samples=samples, **how).fit(x).reachability_)


JOBS: dict[str, tuple[Call, str, dict[str, Call]]] = {
    "tree": (
        _tree,
        "quitefastmst",
        {
            f"{algorithm}, leaves {leaf}": _quitefastmst(algorithm, leaf)
            for algorithm in ("single_kd_tree", "sesqui_kd_tree", "dual_kd_tree")
            for leaf in (8, 16, 32)
        },
    ),
    "optics": (_optics, "sklearn", {"kd_tree": _sklearn}),
}
"""Job -> ours, the peer's module, and the peer's variants."""


VERBS = "verbs"
"""The job that compares OPTICS with other verbs for clusters."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.trees", description=__doc__
    )
    parser.add_argument("--job", choices=[*JOBS, VERBS], default="tree")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 3, 5, 8])
    parser.add_argument("--kinds", nargs="+", default=["uniform", "blobs"])
    parser.add_argument("--min-samples", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--output", type=Path, help="JSON file (standard output)")
    return parser.parse_args()


def seconds_of(call: Call, x: np.ndarray, samples: int) -> tuple[float, np.ndarray]:
    """Return the CPU seconds of a run, and its result."""
    gc.collect()
    runs, began = 0, time.process_time()
    while runs == 0 or time.process_time() - began < SMALL:
        found = call(x, samples)
        runs += 1
    return (time.process_time() - began) / runs, found


def measure(
    job: str, kind: str, n: int, dims: int, samples: int, repeat: int
) -> dict[str, Any]:
    """Return the runs of all tools, and how much their results differ."""
    ours, module, variants = JOBS[job]
    x = points(kind, n, dims)
    ours(x[:2000], samples)  # the first call compiles and loads
    tools: dict[str, dict[str, Any]] = {"ours": {}}
    calls = {"ours": ours}
    if importlib.util.find_spec(module):
        some = np.ascontiguousarray(x[::PART])
        tries = {
            name: seconds_of(call, some, samples)[0] for name, call in variants.items()
        }
        variant = min(tries, key=lambda name: tries[name])
        tools[module] = {"variant": variant, "tries": tries}
        calls[module] = variants[variant]
    found = {}
    for _ in range(repeat):
        for name, call in calls.items():
            took, found[name] = seconds_of(call, x, samples)
            tools[name].setdefault("seconds", []).append(round(took, 5))
    for tool in tools.values():
        tool["median"] = statistics.median(tool["seconds"])
    apart = 0.0
    for name in calls:
        same = np.isinf(found[name]) & np.isinf(found["ours"])
        with np.errstate(invalid="ignore"):
            gap = np.abs(found[name] - found["ours"])
        gap = np.where(same, 0, gap) / np.maximum(found["ours"], 1e-300)
        apart = max(apart, float(np.max(gap, initial=0.0, where=~same)))
    about = {"job": job, "data": kind, "n": n, "dims": dims, "min_samples": samples}
    told = {name: tool["median"] for name, tool in tools.items()}
    print(about, told, file=sys.stderr, flush=True)
    return about | {"largest_relative_difference": apart, "tools": tools}


def compare_verbs(
    kind: str, n: int, dims: int, samples: int, repeat: int
) -> dict[str, Any]:
    """Return the seconds of OPTICS, of the labels for one distance from its order, and
    of other verbs for clusters.
    """
    frame = pd.DataFrame(points(kind, n, dims), copy=False)
    max_eps = _max_distance(frame.to_numpy(), samples)
    order = frame.simjoin.optics(max_eps, samples)
    calls: dict[str, Callable[[], Any]] = {
        "optics": lambda: frame.simjoin.optics(max_eps, samples),
        "optics, forest": lambda: frame.simjoin.optics(max_eps, samples, mode="forest"),
        "cluster_optics_dbscan": lambda: cluster_optics_dbscan(order, max_eps / 2),
        "dbscan": lambda: frame.simjoin.dbscan(max_eps / 2, samples),
        "hdbscan": lambda: frame.simjoin.hdbscan(50, min_samples=samples),
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    for run in range(repeat + 1):
        for name, call in calls.items():
            took = timed(call)
            if run:  # the first call compiles and loads
                found[name].append(took)
    about = {"job": VERBS, "data": kind, "n": n, "dims": dims, "min_samples": samples}
    print(about, found, file=sys.stderr, flush=True)
    return about | {"verbs": {name: summary(runs) for name, runs in found.items()}}


def main() -> None:
    """Run the benchmark and write its results as JSON."""
    options = arguments()
    every = options.rows, options.dims, options.kinds, options.min_samples
    tools = [SimpleNamespace(distribution=name) for name in PEERS]
    report: dict[str, Any] = {
        "environment": environment(tools, VERSION),
        "unit": "CPU seconds of one core",
        "rows": [],
    }
    for n, dims, kind, samples in itertools.product(*every):
        how = kind, n, dims, samples, options.repeat
        one = (
            compare_verbs(*how) if options.job == VERBS else measure(options.job, *how)
        )
        report["rows"].append(one)
        if options.output:
            write(report, options.output)
    write(report, options.output)


if __name__ == "__main__":
    main()
