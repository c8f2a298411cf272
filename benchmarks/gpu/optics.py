"""``python -m benchmarks gpu.optics``: OPTICS of cuDF DataFrames on one GPU.

Points are blobs of different scales with noise, in two columns.  `max_eps` is twice the
median core distance.  A GPU finds the edges or the forest, and one core of the host
visits the rows.  We know no other OPTICS for GPUs, so ours on the host is the only
comparison, for the smaller sizes.

Results of fewer rows are compared with the CPU's.  These are the orders, the estimator
`OPTICS` in a periodic box, and the counters of a profile of sets.  The exit status is 1
if one differs.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudf
import cupy
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.cpu import hdbscan_worker
from benchmarks.harness.gpu_pool import counted_pool
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import timed
from benchmarks.harness.report import write
from dask_simjoin.cluster import OPTICS

MIN_SAMPLES = 10
CHECKED = 20_000
"""Number of rows whose results are compared with the CPU's."""

BOX = 10.0
"""Side of the periodic box: all centers of blobs are in it."""

SAME = "tokens", "distinct_tokens", "values", "distinct_pairs", "pairs"
"""Counters of a profile of sets that do not depend on the engine."""

ON_HOST = 1_000_000
"""Most rows that one core of the host orders, too."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.optics", description=__doc__
    )
    rows = [100_000, 1_000_000, 10_000_000]
    parser.add_argument("--rows", nargs="+", type=int, default=rows)
    parser.add_argument("--modes", nargs="+", default=["edges", "forest"])
    parser.add_argument("--repeat", type=int, default=2, help="runs after a first one")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def frame_of(n: int) -> pd.DataFrame:
    """Return blobs in two columns."""
    return pd.DataFrame(hdbscan_worker.points(n, 2), columns=["x", "y"])


def max_distance(frame: Any) -> float:
    """Return twice the median core distance of rows."""
    return 2 * float(frame.simjoin.k_distances(k=MIN_SAMPLES - 1).median())


def measure(
    frame: Any, max_eps: float, mode: str, repeat: int, memory: Any
) -> dict[str, Any]:
    """Measure one mode on a cuDF frame. `memory`: RMM's resource, which counts
    allocations.
    """

    def order() -> Any:
        return frame.simjoin.optics(max_eps, MIN_SAMPLES, mode=mode)

    memory.push_counters()
    clock = timed(order, repeat)
    peak = memory.pop_counters().peak_bytes
    return {"clock": clock, "peak bytes per row": round(peak / len(frame), 1)}


def on_host(frame: pd.DataFrame, max_eps: float, mode: str) -> float:
    """Return the seconds of one thread of the host."""
    how = {"mode": mode, "threads": 1}
    frame[:2000].simjoin.optics(max_eps, MIN_SAMPLES, **how)  # compiles
    began = time.perf_counter()
    frame.simjoin.optics(max_eps, MIN_SAMPLES, **how)
    return time.perf_counter() - began


def apart(found: Any, want: Any) -> int:
    """Count the values of two arrays that differ."""
    found, want = np.asarray(found), np.asarray(want)
    return int((found != want).sum()) if found.shape == want.shape else -1


def orders_apart(mode: str) -> int:
    """Count the values of an order that differ from the CPU's."""
    frame = frame_of(CHECKED)
    max_eps = max_distance(frame)
    call: Callable[[Any], Any] = lambda f: f.simjoin.optics(  # noqa: E731
        max_eps, MIN_SAMPLES, mode=mode
    )
    found = call(cudf.from_pandas(frame)).to_pandas()
    return apart(found.to_numpy(), call(frame).to_numpy())


def boxed_apart() -> int:
    """Count the attributes' values of `OPTICS` in a periodic box that differ from the
    CPU's.
    """
    frame = frame_of(CHECKED) % BOX
    how = {"min_samples": MIN_SAMPLES, "box": {"x": BOX, "y": BOX}}
    model = OPTICS(max_distance(frame), cluster_method="dbscan", **how)
    names = "labels_", "reachability_", "core_distances_", "predecessor_", "ordering_"
    fitted = []
    for one in (frame, cudf.from_pandas(frame)):
        model.fit(one)
        values = [getattr(model, name) for name in names]
        fitted.append([x.to_numpy() if hasattr(x, "to_numpy") else x for x in values])
    return sum(itertools.starmap(apart, zip(*fitted, strict=True)))


def profiles_apart() -> dict[str, list[float]]:
    """Return the counters of a profile of sets that differ (GPU, CPU). Only counters
    of rows and pairs must be the same, because the engines work differently.
    """
    random = np.random.default_rng(3)
    sets = [random.choice(300, random.integers(2, 12)).tolist() for _ in range(CHECKED)]
    frame = pd.DataFrame({"sets": [sorted(set(one)) for one in sets]})
    how = {"on": "sets", "threshold": 0.6}
    want = frame.simjoin.profile(**how).numbers
    found = cudf.from_pandas(frame).simjoin.profile(**how).numbers
    return {
        name: [found[name], want[name]] for name in SAME if found[name] != want[name]
    }


def main() -> int:
    """Run the benchmark; return 1 if a result differs."""
    options = arguments()
    memory = counted_pool(40 * 2**30)
    checked: dict[str, Any] = {"rows": CHECKED}
    rows: dict[str, Any] = {}
    report = {"environment": environment(), "unit": "seconds"}
    report |= {"values that differ from the CPU's": checked, "rows": rows}

    def keep(name: str, one: Any, where: dict[str, Any]) -> None:
        where[name] = one
        print(name, one, file=sys.stderr, flush=True)
        if options.output is not None:
            write(report, options.output)

    for mode in options.modes:
        keep(f"optics, {mode}", orders_apart(mode), checked)
    keep("OPTICS in a box", boxed_apart(), checked)
    keep("counters of a profile of sets", profiles_apart(), checked)
    for n in options.rows:
        host = frame_of(n)
        frame = cudf.from_pandas(host)
        max_eps = max_distance(frame)
        for mode in options.modes:
            one = measure(frame, max_eps, mode, options.repeat, memory)
            if n <= ON_HOST:
                one["host, one thread"] = on_host(host, max_eps, mode)
            one |= {"max_eps": max_eps, "min_samples": MIN_SAMPLES}
            keep(f"{n}, {mode}", one, rows)
        del frame, host
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
    if options.output is None:
        write(report, None)
    return 1 if any(one for name, one in checked.items() if name != "rows") else 0


if __name__ == "__main__":
    sys.exit(main())
