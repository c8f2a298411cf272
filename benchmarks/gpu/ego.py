"""``python -m benchmarks gpu.ego``: Super-EGO with all cores of the host beside the
papers' methods and "auto" on its GPU, with the same rows.

These are the comparisons of the papers: table 3 of GPU-Join, figure 13 on load
imbalance, and figures 3a and 3b of LSS.  Rows are fewer where one run would take
minutes.  Super-EGO is our own (benchmarks/papers/ego.py).  Its seconds include
"order", which one thread takes to sort the rows.  Seconds of methods on the
GPU include their layout and index.  All write every pair to a buffer, and drop it.  Numbers
of pairs must be equal.

`published`: how many times as fast as Super-EGO or EGO the paper's own method is.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import cudf
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.repeats import repeated, rounded, summary, timed
from benchmarks.papers import ego, ego_rows
from dask_simjoin.methods import Grid, KMeans, ZOrder
from dask_simjoin.metrics import make_metric

LONG = 2.0
"""A run that takes more seconds is not repeated."""

LONGEST, PART = 6.0, 8
"""A method that would take more seconds, by a run of a part of the rows, is left out."""

METHODS = {
    "Grid.gpu_join()": Grid.gpu_join(),
    "Grid.balanced()": Grid.balanced(),
    "ZOrder()": ZOrder(),
    "KMeans()": KMeans(),
    '"auto"': "auto",
}


class Case(NamedTuple):
    """Rows, a distance, and what the paper reports.

    Attributes
    ----------
    figure, data : str
        See `benchmarks.papers.ego_rows.Case`.
    rows, of : int
        Rows here, and in the paper.
    eps : float
    published : float or None
    """

    figure: str
    data: str
    rows: int
    of: int
    eps: float
    published: float | None


MILLIONS = 2_000_000
CASES = (
    Case("tab3", "Syn16D", 150_000, MILLIONS, 0.05, 5.46),
    Case("fig13", "Expo2D", MILLIONS, MILLIONS, 0.04, None),
    Case("tab3", "Syn32D", 80_000, MILLIONS, 0.08, 8.25),
    Case("fig13", "Unif2D", MILLIONS, MILLIONS, 1.0, None),
    Case("tab3", "Syn64D", 60_000, MILLIONS, 0.16, 7.86),
    Case("fig13", "Unif6D", MILLIONS, MILLIONS, 5.0, None),
    Case("tab3", "Syn16D", 200_000, MILLIONS, 0.03, 1.84),
    Case("fig13", "Expo6D", MILLIONS, MILLIONS, 0.3, None),
    Case("3a", "planted", 65_536, 65_536, 0.1, None),
    Case("3a", "planted", 1_000_000, 1_000_000, 0.1, 6.8),
    Case("3b", "planted", 262_144, 262_144, 0.01, None),
    Case("3b", "planted", 262_144, 262_144, 0.35, None),
    Case("tab3", "Syn32D", 80_000, MILLIONS, 0.1, 7.5),
    Case("tab3", "Syn64D", 60_000, MILLIONS, 0.18, 5.63),
    Case("fig13", "Expo2D", MILLIONS, MILLIONS, 0.12, None),
    Case("fig13", "Unif6D", MILLIONS, MILLIONS, 8.0, None),
    Case("fig13", "Expo6D", MILLIONS, MILLIONS, 0.525, None),
)

FEW = 6
"""Maximum number of dimensions for the methods of the paper on load imbalance."""

WARM, AT_ONCE = 2048, 8
"""Rows that every method joins before it is timed, so that its kernels are compiled,
and how many methods compile at a time.
"""


def methods_for(dims: int) -> dict[str, Any]:
    """Return the methods that can join rows of `dims` columns, by name."""
    left_out = {"Grid.balanced()"} if dims > FEW else set()
    return {name: one for name, one in METHODS.items() if name not in left_out}


def profiled(x: np.ndarray, eps: float, method: Any) -> tuple[int, dict[str, float]]:
    """Join rows on the GPU; number of pairs, and seconds of each step."""
    frame = cudf.DataFrame(
        pd.DataFrame(x, columns=[f"c{k}" for k in range(x.shape[1])])
    )
    found = frame.simjoin.profile(eps, method=method)
    return int(found.numbers["pairs"]), dict(found.seconds)


def compiled(cases: list[Case]) -> None:
    """Compile the kernels of all cases: several methods join a few rows at a time."""
    rows = {case.data: points(case, WARM) for case in cases}
    works = {
        (case.data, name): (rows[case.data], case.eps, method)
        for case in cases
        for name, method in methods_for(rows[case.data].shape[1]).items()
    }
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for begun in [pool.submit(profiled, *work) for work in works.values()]:
            begun.exception()  # it is raised again when the method is timed


def points(case: Case, rows: int) -> np.ndarray:
    """Return the first points of a case."""
    return ego_rows.points(ego_rows.Case(case.figure, case.data, rows, case.eps))


def on_host(x: np.ndarray, eps: float, repeat: int, threads: int) -> dict[str, Any]:
    """Time Super-EGO."""
    pairs: list[int] = []

    def work() -> None:
        pairs[:] = [ego.count(x, eps, threads)]

    runs = repeated(lambda: timed(work, time.perf_counter), repeat, LONG)
    threshold = float(make_metric("euclidean").threshold(eps))
    order = timed(lambda: ego.ordered(x, eps, threshold), time.perf_counter)
    return {
        "threads": threads,
        "pairs": pairs[0],
        "order": rounded(order),
        **summary(runs),
    }


def on_device(x: np.ndarray, eps: float, method: Any, repeat: int) -> dict[str, Any]:
    """Time a method on the GPU, or say why it is left out."""
    profiled(x[:WARM], eps, method)
    seconds = profiled(x[:: max(1, min(PART, len(x) // 1000))], eps, method)[1]
    few = sum(took for step, took in seconds.items() if step != "layout")
    if PART**2 * few > LONGEST:
        return {"absent": f"a run of 1 / {PART} of the rows takes {few:.2g} s"}
    last: list[Any] = []

    def work() -> float:
        last[:] = profiled(x, eps, method)
        return sum(last[1].values())

    runs = repeated(work, repeat, LONG)
    return {"pairs": last[0], "steps": last[1], **summary(runs)}


def measured(case: Case, repeat: int, scale: float, threads: int) -> dict[str, Any]:
    """Run a case: all methods on the GPU, then Super-EGO."""
    rows = int(case.rows * scale)
    x = points(case, rows)
    told: dict[str, Any] = {}
    for name, method in methods_for(x.shape[1]).items():
        gc.collect()
        try:
            told[name] = on_device(x, case.eps, method, repeat)
        except (MemoryError, RuntimeError) as error:  # of the GPU
            told[name] = {"absent": f"{type(error).__name__}: {error}"[:400]}
    own = on_host(x, case.eps, repeat, threads)
    for name, one in told.items():
        if one.get("pairs", own["pairs"]) != own["pairs"]:
            raise AssertionError(
                f"{case}: {name} finds {one['pairs']} pairs, Super-EGO {own['pairs']}"
            )
    return {
        **case._asdict(),
        "rows": rows,
        "dims": x.shape[1],
        "pairs": own["pairs"],
        "Super-EGO": own,
        "methods": told,
    }


def line(row: dict[str, Any]) -> str:
    """Format a row for people."""
    own = row["Super-EGO"]["seconds"]
    words = [
        f"{row['figure']:6} {row['rows']:>9,} of {row['data']}, eps {row['eps']:g}",
        f"{row['pairs']:,} pairs",
        f"Super-EGO {own:.3g} s",
    ]
    for name, one in row["methods"].items():
        words.append(
            f"{name} {own / one['seconds']:.3g}x" if "seconds" in one else f"{name} -"
        )
    return "; ".join([*words, f"published {row['published'] or '-'}"])


def main(given: list[str]) -> None:
    """Run all cases, print a line for each, and write JSON after each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.ego", description=__doc__
    )
    figures = list(dict.fromkeys(case.figure for case in CASES))
    parser.add_argument("--figures", nargs="+", choices=figures, default=figures)
    parser.add_argument("--data", nargs="+", help="data of the cases that run")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=110.0, help="start none later")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(given)
    end = time.monotonic() + args.seconds
    threads = len(os.sched_getaffinity(0))
    report: dict[str, Any] = {
        "environment": environment() | {"cores": threads, "load": os.getloadavg()[0]},
        "unit": "seconds, medians of the runs",
        "rows": [],
    }
    cases = [
        case
        for case in CASES
        if case.figure in args.figures and case.data in (args.data or [case.data])
    ]
    compiled(cases)
    for dims in (2, 16):
        ego.count(np.random.default_rng(0).uniform(size=(500, dims)), 0.1, threads)
    for case in cases:
        if time.monotonic() > end:
            print(f"{case}: no time was left", file=sys.stderr)
            continue
        row = measured(case, args.repeat, args.scale, threads)
        print(line(row), file=sys.stderr, flush=True)
        report["rows"].append(row)
        if args.output:
            args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
