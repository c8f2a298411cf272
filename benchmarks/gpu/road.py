"""``python -m benchmarks gpu.road``: what Dask adds on GPUs: six jobs on a plain frame,
one GPU and several.

Points lie on the GPUs before the clock starts.  It stops when the result is there: a
number, or labels or pairs left on the GPUs.  With `--scale` jobs have as many times
more rows on the clusters of several GPUs; the seconds of tasks are those that workers
report.  A task "alone" ran while no other worker had any.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cudf
import cupy
import dask
import dask.dataframe as dd
import numpy as np
import rmm
from dask.utils import key_split
from dask_cuda import LocalCUDACluster
from distributed import Client, wait
from rmm.allocators.cupy import rmm_cupy_allocator

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.timeline import timeline

PARTS = 8
"""Partitions of the points for each GPU."""

UCX = {"UCXPY_PROGRESS_MODE": "thread", "UCXPY_ENABLE_PYTHON_FUTURE": "1"}
"""Environment variables of all processes, as the guide of GPUs recommends. Imports read
them.
"""


@dataclass(frozen=True)
class Job:
    """A verb on generated points; `eps` is for `rows` of them, and follows their
    number.
    """

    kind: str
    rows: int
    dims: int
    eps: float
    run: Callable[[Any, float], Any]

    def eps_of(self, rows: int) -> float:
        """Return the distance that keeps the number of neighbors of a row."""
        return self.eps * (self.rows / rows) ** (1 / self.dims)


JOBS = {
    "count 16-D": Job(
        "exponential", 6_000_000, 16, 0.04, lambda f, eps: f.simjoin.count_pairs(eps)
    ),
    "count 2-D": Job(
        "uniform", 100_000_000, 2, 0.0001, lambda f, eps: f.simjoin.count_pairs(eps)
    ),
    "dbscan 2-D": Job(
        "uniform", 100_000_000, 2, 0.0001, lambda f, eps: f.simjoin.dbscan(eps, 5)
    ),
    "count 256-D": Job(
        "clusters", 750_000, 256, 4.3, lambda f, eps: f.simjoin.count_pairs(eps)
    ),
    "pairs 256-D": Job(
        "clusters", 750_000, 256, 4.3, lambda f, eps: f.simjoin.self_join(eps, id=None)
    ),
    "pairs 2-D": Job(
        "uniform",
        2_000_000,
        2,
        0.0007,
        lambda f, eps: f.simjoin.self_join(eps, id=None),
    ),
    "pairs 3-D": Job(
        "uniform",
        10_000_000,
        3,
        0.005,
        lambda f, eps: f.simjoin.self_join(eps, id=None),
    ),
    "pairs 16-D": Job(
        "exponential",
        2_000_000,
        16,
        0.05,
        lambda f, eps: f.simjoin.self_join(eps, id=None),
    ),
    # the distance is no limit; it only makes runs different
    "nearest 16-D": Job(
        "exponential",
        2_000_000,
        16,
        1e6,
        lambda f, eps: f.simjoin.knn_join(k=5, max_distance=eps),
    ),
    "nearest 2-D": Job(
        "uniform",
        20_000_000,
        2,
        1e6,
        lambda f, eps: f.simjoin.knn_join(k=5, max_distance=eps),
    ),
}


def part(number: int, rows: int, parts: int, dims: int, kind: str) -> cudf.DataFrame:
    """Make one partition of points, float32, on the GPU."""
    start, stop = (rows * k // parts for k in (number, number + 1))
    random = cupy.random.RandomState(number)
    shape = (dims, stop - start)
    if kind == "clusters":
        centers = cupy.random.RandomState(1000).standard_normal((dims, 20_000))
        points = centers[:, random.randint(0, 20_000, stop - start)]
        points = (points + 0.2 * random.standard_normal(shape)).astype(cupy.float32)
    elif kind == "exponential":
        points = random.exponential(1 / 40, shape).astype(cupy.float32)
    else:
        points = random.random_sample(shape, dtype=cupy.float32)
    labels = cudf.RangeIndex(start, stop)
    return cudf.DataFrame({f"x{k}": points[k] for k in range(dims)}, index=labels)


def use_pool() -> None:
    """Let CuPy take memory from the worker's pool."""
    cupy.cuda.set_allocator(rmm_cupy_allocator)


def held(result: Any) -> Any:
    """Wait for a result: a number, or frames that stay on the GPUs."""
    if getattr(result, "ndim", None) == 0 and hasattr(result, "compute"):
        return int(result.compute())
    if hasattr(result, "persist"):
        result = result.persist()
        wait(result)
        return result
    cupy.cuda.Device().synchronize()
    return result


def repeated(job: Job, frame: Any, rows: int, repeat: int) -> dict[str, Any]:
    """Return the seconds of a first run and of some more."""
    eps, seconds, found = job.eps_of(rows), [], None
    for _ in range(repeat + 1):
        began = time.perf_counter()
        result = held(job.run(frame, eps))
        seconds.append(round(time.perf_counter() - began, 4))
        found = len(result) if hasattr(result, "__len__") else int(result)
        del result  # frees the memory of the result for the next run
        # a slightly different distance, so that nothing is reused
        eps = float(np.nextafter(eps, 0))
    return {
        "rows": rows,
        "found": found,
        "first": seconds[0],
        "median": statistics.median(seconds[1:]),
        "seconds": seconds[1:],
    }


def noted(client: Client, lazy: Any) -> dict[str, Any]:
    """Compute a result, and record the seconds of the plan and of the workers' tasks."""
    began, start = time.time(), time.perf_counter()
    plan = getattr(getattr(lazy, "expr", None), "plan", None)
    planned = time.perf_counter() - start
    held(lazy)
    ended = time.time()
    stream = client.get_task_stream(start=began)
    found = tasks(stream) | {
        "planned": round(planned, 3),
        "expected": None if plan is None else plan.expected,
        "plan": repr(plan),
        "wall": round(ended - began, 3),
    }
    return found | {"timeline": timeline(stream, began, ended)}


def tasks(stream: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the workers' reports on tasks: seconds by kind, and how long each GPU
    worked alone.
    """
    kinds: collections.Counter[str] = collections.Counter()
    numbers: collections.Counter[str] = collections.Counter()
    spans: list[tuple[float, float, str, str]] = []
    for one in stream:
        kind = key_split(one["key"])
        for span in one["startstops"]:
            name = (
                kind if span["action"] == "compute" else f"{span['action']} for {kind}"
            )
            kinds[name] += span["stop"] - span["start"]
            numbers[name] += 1
            spans.append((span["start"], span["stop"], str(one["worker"]), name))
    return {
        "seconds": {
            name: [round(s, 3), numbers[name]] for name, s in kinds.most_common(25)
        },
        "alone": {name: round(s, 3) for name, s in alone(spans).most_common(8)},
    }


def alone(spans: list[tuple[float, float, str, str]]) -> collections.Counter[str]:
    """Return the seconds when only one worker had tasks, by the task."""
    edges = sorted(
        [(a, 1, w, name) for a, _, w, name in spans]
        + [(b, -1, w, name) for _, b, w, name in spans]
    )
    busy: collections.Counter[tuple[str, str]] = collections.Counter()
    found: collections.Counter[str] = collections.Counter()
    last = edges[0][0] if edges else 0.0
    for moment, step, worker, name in edges:
        working = [key for key, number in busy.items() if number > 0]
        if len({key[0] for key in working}) == 1:
            found[working[0][1]] += moment - last
        busy[worker, name] += step
        last = moment
    return found


def on_clusters(
    jobs: list[str], gpus: int, options: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the jobs on a cluster of several GPUs."""
    scale = options.scale if gpus > 1 or options.same else 1
    settings = {
        "n_workers": gpus,
        "protocol": options.protocol,
        "rmm_pool_size": 0.8,
        "dashboard_address": ":0",
    }
    bandwidth = {"distributed.scheduler.bandwidth": options.bandwidth}
    with (
        dask.config.set(bandwidth),
        LocalCUDACluster(**settings) as cluster,
        Client(cluster) as client,
    ):
        client.run(use_pool)
        for name in jobs:
            job = JOBS[name]
            rows = job.rows // options.divide * scale
            told = {
                "rows": rows,
                "parts": PARTS * gpus,
                "dims": job.dims,
                "kind": job.kind,
            }
            frame = dd.from_map(part, range(PARTS * gpus), **told).persist()
            wait(frame)
            found = repeated(job, frame, rows, options.repeat)
            # the first call makes the scheduler record tasks from now on
            client.get_task_stream(count=1)
            found["tasks"] = noted(
                client, job.run(frame, float(np.nextafter(job.eps_of(rows), 1)))
            )
            yield name, found
            del frame


def on_one(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run the job on a plain frame of this process's GPU."""
    job = JOBS[name]
    rows = job.rows // options.divide
    frame = cudf.concat(
        [part(k, rows, PARTS, job.dims, job.kind) for k in range(PARTS)],
        ignore_index=True,
    )
    return repeated(job, frame, rows, options.repeat)


def main(given: list[str]) -> int:
    """Run the benchmark, and write its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.road", description=__doc__
    )
    parser.add_argument(
        "--jobs", nargs="+", choices=JOBS, default=list(JOBS), metavar="JOB"
    )
    parser.add_argument(
        "--gpus",
        nargs="+",
        type=int,
        default=[1, 2],
        help="0: a plain frame, in a process of its own: its memory stays taken",
    )
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument(
        "--same", action="store_true", help="as many rows on one GPU, too"
    )
    parser.add_argument(
        "--divide", type=int, default=1, help="by this the numbers of rows"
    )
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--protocol", default="ucx")
    parser.add_argument(
        "--bandwidth",
        default="50 GB",
        help="between GPUs, as the scheduler takes it to be (Dask's: 100 MB)",
    )
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(given)
    if options.protocol == "ucx" and not UCX.items() <= os.environ.items():
        parser.error(
            "set the variables "
            + " ".join(f"{name}={value}" for name, value in UCX.items())
        )
    results: dict[str, Any] = {name: {} for name in options.jobs}
    for gpus in options.gpus:
        if gpus == 0:
            rmm.mr.set_current_device_resource(
                rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 2**34)
            )
            use_pool()
            found: Any = ((name, on_one(name, options)) for name in options.jobs)
        else:
            found = on_clusters(options.jobs, gpus, options)
        for name, one in found:
            results[name][str(gpus)] = one
            print(gpus, "GPUs,", name, json.dumps(one), flush=True)
    if options.output:
        report = {
            "environment": environment()
            | {name: os.environ.get(name, "") for name in UCX},
            "jobs": results,
        }
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
