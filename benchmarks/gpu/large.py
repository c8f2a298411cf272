"""``python -m benchmarks gpu.large``: a billion rows on one GPU, and billions of pairs on
all GPUs, through Dask.

Points lie on the GPUs before the clock starts.  It stops when the result is there.
"clusters" counts pairs of uniform points in two float32 columns, and clusters them;
"peak" is the memory of the worker's arrays.  "pairs" joins the points of
examples/local_cuda_cluster.py with all partitionings.
"""

from __future__ import annotations

import argparse
import json
import math
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudf
import cupy
import dask
import dask.dataframe as dd
import numpy as np
import rmm
from dask_cuda import LocalCUDACluster
from distributed import Client, wait

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.gpu.road import tasks, use_pool
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.timeline import timeline

EXAMPLE = Path(__file__).parents[2] / "examples" / "local_cuda_cluster.py"
PARTS = 40
"""Number of partitions."""

SIDE = 31_623.0
"""Side of the square that has a billion points, one per unit of area."""


def part(number: int, rows: int, side: float) -> cudf.DataFrame:
    """Make one partition of uniform points."""
    random = cupy.random.default_rng(number)
    columns = {name: random.random(rows, dtype=cupy.float32) * side for name in "xy"}
    return cudf.DataFrame(columns)


def begin() -> None:
    """Record the peak memory of this worker from now on."""
    rmm.statistics.enable_statistics()
    rmm.statistics.push_statistics()


def end() -> int:
    """Return the peak since `begin`, in bytes."""
    return int(rmm.statistics.pop_statistics().peak_bytes)


def clusters(rows: int, repeat: int) -> dict[str, Any]:
    """Count the pairs of points on one GPU, and cluster the points."""
    found: dict[str, Any] = {}
    side = SIDE * math.sqrt(rows / 1e9)
    with (
        LocalCUDACluster(
            n_workers=1, rmm_pool_size=0.9, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(use_pool)
        told = {"rows": rows // PARTS, "side": side}
        meta = part(0, 2, side).iloc[:0]
        frame = dd.from_map(part, range(PARTS), **told, meta=meta).persist()
        wait(frame)

        def count(eps: float) -> int:
            return int(frame.simjoin.count_pairs(eps).compute())

        def label(eps: float) -> int:
            labels = frame.simjoin.dbscan(eps, 5).persist()
            wait(labels)
            return int(labels.max().compute())

        verbs: dict[str, tuple[Callable[[float], int], float]] = {
            "count": (count, 1.0),
            "dbscan": (label, 1.2),
        }
        for n in range(repeat):
            for name, (run, eps) in verbs.items():
                client.run(begin)
                began = time.perf_counter()
                number = run(eps * (1 + 1e-9 * n))
                found[name + " again" * n] = {
                    "seconds": time.perf_counter() - began,
                    "found": number,
                    "peak": client.run(end),
                }
                print(name, found[name + " again" * n], flush=True)
    return found


def pairs(rows: int, repeat: int, protocol: str) -> dict[str, Any]:
    """Join the points of the example on all GPUs, and keep the pairs there."""
    points = runpy.run_path(str(EXAMPLE))["points"]
    eps = (2 * 5.0 / rows * 3 / (4 * math.pi)) ** (1 / 3)
    found: dict[str, Any] = {}
    with (
        dask.config.set({"distributed.scheduler.bandwidth": "50 GB"}),
        LocalCUDACluster(
            protocol=protocol, rmm_pool_size=0.8, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(use_pool)
        client.get_task_stream(count=1)
        meta = points(0, 2).iloc[:0]
        frame = dd.from_map(points, range(PARTS), rows=rows // PARTS, meta=meta)
        frame = frame.persist()
        wait(frame)
        for kind in ("spatial", "auto"):
            for n in range(repeat):
                began = time.time()
                how: dict[str, Any] = {"on": ["x", "y", "z"], "id": "id"}
                lazy = frame.simjoin.self_join(
                    eps * (1 + 1e-9 * n), partitioning=kind, **how
                )
                plan, planned = lazy.expr.plan, time.time() - began
                result = lazy.persist()
                wait(result)
                ended = time.time()
                stream = client.get_task_stream(start=began)
                found[f"{protocol} {kind} {n}"] = tasks(stream) | {
                    "planned": round(planned, 3),
                    "wall": round(ended - began, 3),
                    "expected": plan.expected,
                    "plan": repr(plan),
                    "pairs": len(result),
                    "parts": result.npartitions,
                    "timeline": timeline(stream, began, ended),
                }
                print(kind, np.round(ended - began, 3), len(result), flush=True)
                del result, lazy
    return found


def main(given: list[str]) -> int:
    """Run the benchmark, and write its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.large", description=__doc__
    )
    parser.add_argument("job", choices=["clusters", "pairs"])
    parser.add_argument("--rows", type=int, help="default: 1e9 and 2e8")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--protocol", default="ucx")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(given)
    if options.job == "clusters":
        rows = options.rows or 1_000_000_000
        found = clusters(rows, options.repeat)
    else:
        rows = options.rows or 200_000_000
        found = pairs(rows, options.repeat, options.protocol)
    report = {"environment": environment(), "rows": rows, "results": found}
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
