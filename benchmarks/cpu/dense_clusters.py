"""``python -m benchmarks cpu.dense_clusters``: DBSCAN of a pandas DataFrame against
peers, dense and sparse.

All tools run in one process and take turns.  This package runs with two threads, with
one, and without cells (`method=`).  The package `dbscan` (Wang, Gu & Shun 2020) uses
all cores, and scikit-learn two threads. Seconds of all repeats are kept.  CPU seconds
are the sum of all threads, so they depend less on other work of the machine.  Rows
whose labels differ from ours are counted by kind.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.cluster_points import differences
from benchmarks.harness.lazy import known, progress, save
from dask_simjoin.cluster import DBSCAN

PEERS = ["dbscan", "scikit-learn"]

KINDS = ("uniform", "blobs")
CENTERS = 50
NOISE = 0.05
PROBES, SAMPLE = 100, 200_000
"""Numbers of rows: queries whose neighbors choose the distance, and rows that are
searched.
"""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.dense_clusters", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 3, 5, 7])
    parser.add_argument(
        "--neighbors",
        type=int,
        nargs="+",
        default=[10, 100, 1000],
        help="mean number of neighbors of a row",
    )
    parser.add_argument("--min-samples", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--peer-seconds",
        type=float,
        default=20,
        help="a peer that took longer is not run again",
    )
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument(
        "--sklearn-neighbors",
        type=int,
        default=10,
        help="most neighbors that scikit-learn runs with: it keeps all",
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def points(kind: str, dims: int, n: int) -> np.ndarray:
    """Make points (n, dims) by column."""
    random = np.random.default_rng((12345, dims))
    x = random.random((n, dims))
    if kind == "blobs":
        centers = random.uniform(0.1, 0.9, (CENTERS, dims))
        scales = np.exp(random.uniform(np.log(0.01), np.log(0.04), CENTERS))
        which, noise = random.integers(0, CENTERS, n), random.random(n) < NOISE
        blobs = centers[which] + scales[which, None] * random.standard_normal((n, dims))
        x = np.where(noise[:, None], x, blobs)
    return np.asfortranarray(x)


def distance(x: np.ndarray, neighbors: int) -> float:
    """Estimate the distance that gives rows this many neighbors on average."""
    random = np.random.default_rng(0)
    some = x[random.choice(len(x), min(len(x), SAMPLE), replace=False)]
    frame = pd.DataFrame(some[:PROBES]), pd.DataFrame(some)
    squared = np.stack(
        [((frame[1].to_numpy() - row) ** 2).sum(axis=1) for row in frame[0].to_numpy()]
    )
    place = max(1, round(neighbors * len(some) / len(x) * PROBES)) + PROBES
    return float(np.sqrt(np.partition(squared.ravel(), place)[place]))


def cpu_seconds() -> float:
    """Return the CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(call: Callable[[], Any], so_far: dict[str, list[float]]) -> Any:
    """Call a tool, and keep its seconds."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    result = call()
    for name, value in (
        ("seconds", time.perf_counter() - wall),
        ("cpu_seconds", cpu_seconds() - cpu),
    ):
        so_far.setdefault(name, []).append(round(value, 4))
    return result


def with_threads(number: int, call: Callable[[], np.ndarray]) -> np.ndarray:
    """Call with a number of threads for plain frames."""
    with dask.config.set(num_workers=number):
        return call()


def summary(so_far: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return the least and the largest of each measure."""
    return {name: [min(values), max(values)] for name, values in so_far.items()}


def measure(
    kind: str, dims: int, neighbors: int, min_samples: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Time all tools on one set of points."""
    x = points(kind, dims, options.rows)
    eps, rows = distance(x, neighbors), np.ascontiguousarray(x)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(dims)], copy=False)
    old = "tiles" if dims > 3 or neighbors > 128 else "sweep"

    def ours() -> np.ndarray:
        found: np.ndarray = frame.simjoin.dbscan(eps, min_samples).to_numpy()
        return found

    calls: dict[str, Callable[[], np.ndarray]] = {
        "ours": lambda: with_threads(2, ours),
        "ours, 1 thread": lambda: with_threads(1, ours),
        "without cells": lambda: frame.simjoin.dbscan(
            eps, min_samples, method=old
        ).to_numpy(),
    }
    if "dbscan" in options.peers:
        from dbscan import DBSCAN as wang

        calls["dbscan"] = lambda: wang(rows, eps=eps, min_samples=min_samples)[0]
    if "scikit-learn" in options.peers and neighbors <= options.sklearn_neighbors:
        from sklearn.cluster import DBSCAN as peer

        calls["scikit-learn"] = lambda: (
            peer(eps=eps, min_samples=min_samples, n_jobs=2).fit(rows).labels_
        )
    for tool in ("ours", "without cells"):
        calls[tool]()  # the first call compiles, which must not be timed
    seconds: dict[str, dict[str, list[float]]] = {tool: {} for tool in calls}
    labels: dict[str, np.ndarray] = {}
    for _ in range(options.repeat):
        for tool, call in calls.items():
            if max(seconds[tool].get("seconds", [0.0])) < options.peer_seconds:
                labels[tool] = timed(call, seconds[tool])
    core = np.zeros(len(x), bool)
    core[DBSCAN(eps=eps, min_samples=min_samples).fit(frame).core_sample_indices_] = (
        True
    )
    found: dict[str, Any] = {
        "kind": kind,
        "dims": dims,
        "rows": options.rows,
        "neighbors": neighbors,
        "eps": eps,
        "min_samples": min_samples,
        "core_share": float(core.mean()),
        "method_without_cells": old,
        "clusters": int(labels["ours"].max(initial=-1)) + 1,
        "seconds": seconds,
        "summary": {tool: summary(some) for tool, some in seconds.items()},
        "rows_that_differ": {
            tool: differences(labels["ours"], some, core)
            for tool, some in labels.items()
            if tool != "ours"
        },
    }
    progress(str(found))
    return found


def main() -> int:
    """Run all, and save them after each run, as peers may take long."""
    options, where = arguments(), known()
    where["versions"] |= {
        name: importlib.metadata.version(name) for name in options.peers
    }
    runs: list[dict[str, Any]] = []
    every = itertools.product(
        options.dims, KINDS, options.neighbors, options.min_samples
    )
    for dims, kind, neighbors, min_samples in every:
        if min_samples <= neighbors:
            runs.append(measure(kind, dims, neighbors, min_samples, options))
            told = {"runs": runs, "loadavg": os.getloadavg()}
            save("cpu.dense_clusters", where, options, told, options.output)
    own = "ours, 1 thread", "without cells"
    same = all(
        not sum(run["rows_that_differ"][tool].values()) for run in runs for tool in own
    )
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
