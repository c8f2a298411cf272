"""``python -m benchmarks papers.lists``: figures of LSS and of the k-means thesis, by counts and by seconds.

Each run beside the package's own engine ("auto"), whose pairs must be as many. EGO, GESS and the thesis's
code are not built here. On a CPU, seconds are CPU time of `count_pairs` on one core, the least of some runs
after a first one, and rows are a tenth of the papers'; on a GPU those of the steps that `profile` times.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.harness.ours import VERSION, source_digest
from benchmarks.harness.report import environment, write
from dask_simjoin.methods import KMeans, NestedLoop, ZOrder

QUICK = 2000
"""Rows of `--quick`."""

PLANTED = 0.01
"""Rows that have a copy at a distance of up to twice eps: the papers' uniform rows have next to no pairs."""


@dataclass(frozen=True)
class Run:
    """One run; `published`: times as fast as the figure's first run of the same rows and eps."""

    paper: str
    figure: str
    data: str
    rows: int
    dims: int
    eps: float
    setting: str
    method: Any
    published: float | None = None


def points(data: str, rows: int, dims: int, eps: float) -> np.ndarray:
    """Return uniform rows, some with a near copy, or ten clusters."""
    rng = np.random.default_rng(0)
    if data == "clusters":
        centres = rng.uniform(0, 10, (10, dims))
        return (centres[rng.integers(10, size=rows)] + rng.normal(0, 0.3, (rows, dims))).astype(np.float32)
    x = rng.uniform(size=(rows, dims)) * (10.0 if data == "uniform10" else 1.0)
    if data == "planted":
        few = int(rows * PLANTED)
        step = rng.normal(size=(few, dims))
        step *= (rng.uniform(0, 2 * eps, few) / np.linalg.norm(step, axis=1))[:, None]
        x[-few:] = x[:few] + step
    return x.astype(np.float32)


def lss() -> Iterator[Run]:
    """Figures 3, 7 and 8 of LSS, on uniform rows in 16 dimensions with planted pairs."""
    for rows in (4096, 16_384, 65_536):
        yield Run("lss", "3a", "planted", rows, 16, 0.1, "rotation", NestedLoop())
        yield Run("lss", "3a", "planted", rows, 16, 0.1, "lists=auto", ZOrder())
    for eps, published in ((0.01, 3.0), (0.05, None), (0.1, None), (0.2, None), (0.4, 0.5)):
        yield Run("lss", "7b", "planted", 25_600, 16, eps, "lists=d+1", ZOrder(lists="d+1"))
        yield Run("lss", "7b", "planted", 25_600, 16, eps, "lists=log", ZOrder(lists="log"), published)
        yield Run("lss", "7b", "planted", 25_600, 16, eps, "random", ZOrder(lists="d+1", shifts="random"))
    for eps in (0.01, 0.05, 0.1, 0.2):
        for number in (1, 2, 3, 5, 9, 17, 33, "auto"):
            method = ZOrder(lists=number)
            yield Run("lss", "8c", "planted", 25_600, 16, eps, f"lists={number}", method)
    for dims in (16, 64, 256):
        for number in (3, 5, 6, 9, 17, "auto"):
            yield Run("lss", "8d", "planted", 12_800, dims, 0.1, f"lists={number}", ZOrder(lists=number))


def kmeans() -> Iterator[Run]:
    """Table 5.1 and figures 5.8, 5.9, 5.13 and 5.15 of the thesis."""
    faster = {10_000: (3.02 / 1.82, 3.02), 30_000: (4.96 / 3.22, 4.96), 50_000: (7.37 / 4.69, 7.37)}
    loop = NestedLoop(schedule="triangle", block=32)
    thesis = KMeans(clusters=20, windows="thesis", inner="nested_loop")
    for rows, (rotation, clusters) in faster.items():
        of = "kmeans", "T5.1", "clusters", rows, 8, 0.5
        yield Run(*of, "NLJ", loop)
        yield Run(*of, "INLJ", replace(loop, schedule="rotation"), rotation)
        yield Run(*of, "thesis windows", thesis, clusters)
        yield Run(*of, "one-sided windows", replace(thesis, windows="one-sided"))
        yield Run(*of, "one-sided, tiles", replace(thesis, windows="one-sided", inner="tiles"))
    for data, figure in (("clusters", "5.8"), ("uniform10", "5.13")):
        for eps in (0.2, 0.6, 1.0):
            for windows in ("thesis", "two-sided", "one-sided"):
                yield Run("kmeans", figure, data, 10_000, 8, eps, windows, replace(thesis, windows=windows))
    for k in (5, 10, 20, 40, 64, 256, 1024):
        for windows in ("thesis", "one-sided"):
            if k <= 64 or windows == "one-sided":
                method = replace(thesis, clusters=k, windows=windows)
                yield Run("kmeans", "5.9", "clusters", 10_000, 8, 0.5, f"k={k}, {windows}", method)


RUNS = {"lss": lss, "kmeans": kmeans}


def seconds_of(frame: Any, run: Run, method: Any, repeat: int) -> float:
    """Measure a run as the first lines say."""
    if not isinstance(frame, pd.DataFrame):
        return min(sum(frame.simjoin.profile(run.eps, method=method).seconds.values()) for _ in range(repeat))
    found = math.inf
    for _ in range(repeat):
        began = time.process_time()
        frame.simjoin.count_pairs(run.eps, method=method)
        found = min(found, time.process_time() - began)
    return found


def result(run: Run, repeat: int, backend: str) -> dict[str, Any]:
    """Count and time a run."""
    frame: Any = pd.DataFrame(points(run.data, run.rows, run.dims, run.eps))
    frame.columns = [f"c{k}" for k in range(run.dims)]
    if backend == "gpu":
        import cudf  # only where there is one

        frame = cudf.DataFrame(frame)
    told = frame.simjoin.profile(run.eps, method=run.method)
    pairs = frame.simjoin.count_pairs(run.eps)
    if told.numbers["pairs"] != pairs:
        raise AssertionError(f"{run}: {told.numbers['pairs']} pairs, and the package's own engine {pairs}")
    own = seconds_of(frame, run, "auto", repeat)
    found = seconds_of(frame, run, run.method, repeat)
    row = {name: value for name, value in vars(run).items() if name != "method"}
    return row | {
        "seconds": round(found, 5), "auto": round(own, 5), "numbers": told.numbers, "engine": told.engine,
    }  # fmt: skip


def main() -> None:
    """Run what the command line asks for and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks papers.lists", description=__doc__)
    parser.add_argument("--paper", choices=RUNS, nargs="+", default=list(RUNS))
    parser.add_argument("--figure", nargs="+", help="such as 7b or T5.1; all by default")
    parser.add_argument("--backend", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--times", type=int, default=1, help="as many times the rows of each run")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows, once")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--output", type=Path, help="JSON file (default: standard output)")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    first: dict[Any, float] = {}
    for run in (run for paper in asked.paper for run in RUNS[paper]()):
        served = asked.backend == "cpu" or "cudf" in run.method.modules
        if not served or (asked.figure and run.figure not in asked.figure):
            continue
        number = QUICK if asked.quick else run.rows * asked.times
        row = result(replace(run, rows=number), 1 if asked.quick else asked.repeat, asked.backend)
        base = first.setdefault((run.figure, run.data, run.rows, run.dims, run.eps), row["seconds"])
        rows.append(row | {"ratio": round(base / max(row["seconds"], 1e-9), 3)})
        shown = ("figure", "data", "rows", "dims", "eps", "setting", "seconds", "ratio", "published", "auto")
        numbers = {k: round(v, 6) for k, v in row["numbers"].items() if k in ("pairs", "compared_ratio")}
        print(*(f"{k}={v}" for k, v in {**{k: rows[-1][k] for k in shown}, **numbers}.items()),
              file=sys.stderr, flush=True)  # fmt: skip
    report = {
        "environment": environment([], VERSION) | {"source": source_digest()},
        "unit": "CPU seconds of count_pairs, one core" if asked.backend == "cpu" else "seconds of profile",
        "rows": rows,
    }
    write(report, asked.output)


if __name__ == "__main__":
    main()
