"""HDBSCAN on a cluster of GPUs, in a process of its own, one worker a GPU.

``python -m benchmarks.gpu.hdbscan_workers WORKERS CASE`` is what
`benchmarks.gpu.hdbscan` starts. Each GPU holds some partitions of the points before the
clock starts, and its share of the labels when it stops.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from typing import Any

import cudf
import cupy
import dask
import dask.dataframe as dd
import numpy as np
from dask_cuda import LocalCUDACluster
from distributed import Client, wait

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.cpu.hdbscan_worker import MIN_CLUSTER_SIZE, MIN_SAMPLES
from benchmarks.gpu.road import use_pool
from benchmarks.harness.timeline import timeline

PARTS = 4
"""Partitions of the points that each GPU holds."""

BANDWIDTH = "50 GB"
"""Bandwidth between GPUs that the scheduler assumes (Dask's default: 100 MB)."""


def part(number: int, file: str, parts: int, rows: int | None = None) -> cudf.DataFrame:
    """Return one partition of the first points in a file (`numpy.save`, (n, d))."""
    points = np.load(file, mmap_mode="r")[:rows]
    start, stop = (len(points) * k // parts for k in (number, number + 1))
    some = cupy.asarray(np.ascontiguousarray(points[start:stop].T))
    return cudf.DataFrame(
        {f"x{k}": some[k] for k in range(len(some))}, index=cudf.RangeIndex(start, stop)
    )


def points_of(file: str, parts: int, rows: int | None = None) -> Any:
    """Return the points as a frame on the GPUs."""
    meta = part(0, file, parts, 1).iloc[:0]
    frame = dd.from_map(
        part, range(parts), file=file, parts=parts, rows=rows, meta=meta
    ).persist()
    wait(frame)
    return frame


def measure(client: Client, case: dict[str, Any], workers: int) -> dict[str, Any]:
    """Return the seconds of a first run and of some more, and a summary of the labels."""
    how = {"partitioning": case["partitioning"], "blocksize": case["blocksize"]}
    small = points_of(case["file"], PARTS * workers, case["small"])
    wait(
        small.simjoin.hdbscan(
            MIN_CLUSTER_SIZE, min_samples=MIN_SAMPLES, **how
        ).persist()
    )
    source = points_of(case["file"], PARTS * workers)
    seconds: list[float] = []
    found: dict[str, Any] = {}
    # the first call makes the scheduler record tasks from now on
    client.get_task_stream(count=1)
    for run in range(case["repeat"] + 1):
        begun, began = time.time(), time.perf_counter()
        # a slightly different distance each time, so that nothing is reused
        lazy = source.simjoin.hdbscan(
            MIN_CLUSTER_SIZE + run, min_samples=MIN_SAMPLES, **how
        )
        plan = lazy.expr.plan
        planned = time.perf_counter() - began
        kept = lazy.persist()
        persisted = time.perf_counter() - began
        wait(kept)
        seconds.append(round(time.perf_counter() - began, 4))
        ended = time.time()
        steps = {"planned": round(planned, 4), "persisted": round(persisted, 4)}
        found.setdefault("runs", []).append(
            steps
            | timeline(client.get_task_stream(start=begun, stop=ended), begun, ended)
        )
        if run == 0:
            labels = kept["label"].compute().sort_index().to_numpy()
            found |= {
                "clusters": int(labels.max(initial=-1)) + 1,
                "noise": int((labels < 0).sum()),
            }
            found["digest"] = digest(labels)
            found |= {"chunks": len(plan.chunks), "joined": len(plan.work.joined)}
        del lazy, kept
    return found | {"seconds": seconds, "median": statistics.median(seconds[1:])}


def digest(labels: np.ndarray) -> str:
    """Return a digest of labels in the order of their rows."""
    return hashlib.sha256(np.ascontiguousarray(labels, np.int64).data).hexdigest()[:16]


def main() -> None:
    """Measure one case on several GPUs, and print it as JSON."""
    workers, case = int(sys.argv[1]), json.loads(sys.argv[2])
    settings = {
        "n_workers": workers,
        "protocol": case["protocol"],
        "rmm_pool_size": 0.6,
    }
    with (
        dask.config.set({"distributed.scheduler.bandwidth": BANDWIDTH}),
        LocalCUDACluster(**settings, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.run(use_pool)
        found = measure(client, case, workers)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
