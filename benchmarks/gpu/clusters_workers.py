"""Clusterings on a cluster of GPUs, in a process of its own, one worker a GPU.

``python -m benchmarks gpu.clusters_workers CASES`` is what `benchmarks.gpu.clusters`
starts: JSON of files of points, and of how they are clustered.  Each GPU holds some
partitions of the points before the clock starts, and its share of the labels when it
stops.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import cudf
import cupy
import dask.dataframe as dd
import numpy as np
from dask_cuda import LocalCUDACluster
from distributed import Client, wait
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.statistics import enable_statistics, pop_statistics, push_statistics

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.cluster_points import POINTS, told
from benchmarks.harness.gpu_memory import Sampled
from benchmarks.harness.lazy import progress


def part(number: int, file: str, parts: int) -> cudf.DataFrame:
    """Return one partition of the points in a file (`numpy.save`, (n, 2))."""
    points = np.load(file, mmap_mode="r")
    start, stop = (len(points) * k // parts for k in (number, number + 1))
    some = cupy.asarray(np.ascontiguousarray(points[start:stop].T))
    return cudf.DataFrame({"x": some[0], "y": some[1]})


def count_bytes() -> str:
    """Let RMM count the worker's allocations from now on; return its GPU's bus id."""
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    enable_statistics()
    return cupy.cuda.Device().pci_bus_id


def count_anew() -> int:
    """Return the bytes that this worker holds, and restart its peak."""
    return int(push_statistics().current_bytes)


def counted() -> int:
    """Return the most bytes since `count_anew`, above those before it."""
    return int(pop_statistics().peak_bytes)


@contextlib.contextmanager
def running(workers: int, protocol: str) -> Iterator[tuple[Client, list[str]]]:
    """Yield a client of a cluster of GPUs that count bytes, and their bus ids."""
    cluster = LocalCUDACluster(
        n_workers=workers, protocol=protocol, rmm_pool_size=0.5, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        yield client, sorted(client.run(count_bytes).values())


def measure(client: Client, buses: list[str], case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds of a first run and of some more, peaks of memory, and a summary of
    the labels.

    Parameters
    ----------
    case : dict
        points (name), file, parts, repeat, and the options partitioning and blocksize.
    """
    points = POINTS[case["points"]]
    rows = len(np.load(case["file"], mmap_mode="r"))
    eps, options = (
        points.eps(rows),
        {name: case[name] for name in ("partitioning", "blocksize")},
    )
    numbers = range(case["parts"])
    source = dd.from_map(
        part, numbers, file=case["file"], parts=case["parts"], meta=_no_points()
    ).persist()
    wait(source)
    found: dict[str, Any] = {"rows": rows, "gpus": len(buses), **options}
    seconds: list[float] = []
    for run in range(case["repeat"] + 1):
        found["data_bytes"] = list(client.run(count_anew).values())
        with Sampled(buses) as sampled:
            began = time.perf_counter()
            labels = source.simjoin.dbscan(eps, points.min_samples, **options)
            kept = labels.persist()
            wait(kept)
            seconds.append(time.perf_counter() - began)
        peaks = list(client.run(counted).values())
        if run == 0:
            plan = labels.expr.plan
            found |= {
                "plan": repr(plan),
                "chunks": len(plan.chunks),
                "block_pairs": len(plan.work),
            }
            computed = kept.compute()
            found |= told(computed.to_numpy())
            found["first"] = seconds.pop()
        # only of the last run; the driver sees the whole pool and all memory outside it
        found["peak_rmm"] = peaks
        found["driver"] = sampled.found
        del labels, kept
        # a slightly different distance, so that nothing is reused
        eps = float(np.nextafter(eps, 0))
    return found | {
        "median": statistics.median(seconds or [found["first"]]),
        "seconds": seconds,
    }


def _no_points() -> cudf.DataFrame:
    none = cupy.zeros(0, cupy.float32)
    return cudf.DataFrame({"x": none, "y": none})


def main() -> None:
    """Measure all cases, cluster by cluster, and print them as JSON."""
    cases = json.loads(sys.argv[1])
    found: list[dict[str, Any]] = []
    for workers in sorted({case["workers"] for case in cases}):
        own = [case for case in cases if case["workers"] == workers]
        try:
            with running(workers, own[0]["protocol"]) as (client, buses):
                for case in own:
                    found.append(case | _attempt(client, buses, case))
                    progress(f"{workers} GPUs, {found[-1]}")
        except (
            Exception
        ) as error:  # an error when a cluster stops must not lose the other results
            done = [case["name"] for case in found]
            failed = {"failed": f"{type(error).__name__}: {error}"[:500]}
            found += [case | failed for case in own if case["name"] not in done]
    print(json.dumps(found))


def _attempt(client: Client, buses: list[str], case: dict[str, Any]) -> dict[str, Any]:
    try:
        return measure(client, buses, case)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:500]}


if __name__ == "__main__":
    main()
