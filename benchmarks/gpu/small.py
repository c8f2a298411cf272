"""``python -m benchmarks gpu.small``: calls on plain cuDF frames of few rows, and the
reading of wide frames.

Points lie on the GPU before the clock starts.  It stops when the result is there.
"kernels" are the seconds to build the index and to write all pairs, without the frame.
Rows of wide frames are read as one array; some columns have missing values, or other
dtypes.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import itertools
import json
import pstats
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cudf
import cupy
import numpy as np
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import timed
from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.planning.sample import moments

JOBS: dict[str, tuple[str, int, int, float]] = {
    "100k x 2": ("uniform", 100_000, 2, 0.003),
    "2M x 2": ("uniform", 2_000_000, 2, 0.0007),
    "2M x 6": ("uniform", 2_000_000, 6, 0.08),
    "500k x 16": ("exponential", 500_000, 16, 0.05),
    "100k x 256": ("clusters", 100_000, 256, 4.3),
}
"""Name -> kind of points, rows, columns, and distance."""

VERBS: dict[str, Callable[[Any, float], Any]] = {
    "count_pairs": lambda f, eps: f.simjoin.count_pairs(eps),
    "self_join": lambda f, eps: f.simjoin.self_join(eps),
    "dbscan": lambda f, eps: f.simjoin.dbscan(eps, 5),
    "knn_join": lambda f, eps: f.simjoin.knn_join(k=5, max_distance=1e6 * eps),
}

WIDE = 100_000, 256
"""Rows and columns of wide frames."""


def points(kind: str, rows: int, dims: int) -> Any:
    """Make points (rows, dims), float32, on the GPU."""
    random = cupy.random.RandomState(1)
    if kind == "uniform":
        return random.random_sample((rows, dims), dtype=cupy.float32)
    if kind == "exponential":
        return random.exponential(1 / 40, (rows, dims)).astype(cupy.float32)
    centers = random.standard_normal((1_000, dims))
    x = centers[random.randint(0, 1_000, rows)]
    return (x + 0.2 * random.standard_normal((rows, dims))).astype(cupy.float32)


def frame_of(x: Any) -> Any:
    """Return points as a cuDF frame, each column in memory of its own."""
    return cudf.DataFrame({f"x{k}": x[:, k].copy() for k in range(x.shape[1])})


def kernels(x: Any, eps: float, repeat: int) -> dict[str, Any]:
    """Return the seconds to index the points and to write all pairs."""
    x = x.astype(cupy.float64, order="F")
    found = moments(x)
    layout = JOINER.layout(
        "auto", found.lower, found.upper, found.mean, found.variance, eps * eps
    )

    def run() -> int:
        index = JOINER.build(x, layout)
        return len(JOINER.pairs(index, index, layout, is_self_join=True).left)

    return timed(run, repeat, int)


def called(verb: str, frame: Any, eps: float, numbers: Iterator[int]) -> int:
    """Call a verb with a slightly different distance each time, so that nothing is
    reused. Return the number of results.
    """
    found = VERBS[verb](frame, eps * (1 + 1e-9 * next(numbers)))
    return int(found) if verb == "count_pairs" else len(found)


def profiled(run: Callable[[], Any]) -> str:
    """Return where the time of five runs goes, by function."""
    profile, text = cProfile.Profile(), io.StringIO()
    profile.enable()
    for _ in range(5):
        run()
    cupy.cuda.Device().synchronize()
    profile.disable()
    stats = pstats.Stats(profile, stream=text)
    stats.sort_stats("tottime").print_stats(40)
    stats.sort_stats("cumtime").print_stats(70)
    stats.print_callers("get|synchronize|memcpy|asnumpy")
    return text.getvalue()


def calls(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the verbs on all frames."""
    results: dict[str, Any] = {}
    for name in options.jobs:
        kind, rows, dims, eps = JOBS[name]
        x = points(kind, rows, dims)
        frame = frame_of(x)
        told: dict[str, Any] = {"kernels": kernels(x, eps, options.repeat)}
        told["expected"] = frame.simjoin.plan(eps).seconds
        for verb in options.verbs:
            run = partial(called, verb, frame, eps, itertools.count())
            told[verb] = timed(run, options.repeat, int)
            if options.profile:
                text = profiled(run)
                file = f"{name}-{verb}.txt".replace(" ", "")
                (options.profile / file).write_text(text)
        results[name] = told
        print(name, json.dumps(told), flush=True)
    return results


def reading(repeat: int) -> dict[str, Any]:
    """Measure how long it takes to read wide frames as one array."""
    rows, dims = WIDE
    x = points("uniform", rows, dims)
    plain = frame_of(x)
    missing, mixed = plain.copy(), plain.copy()
    for k in range(0, dims, 4):
        missing[f"x{k}"] = missing[f"x{k}"].where(missing[f"x{k}"] > 0.01, None)
        mixed[f"x{k}"] = (mixed[f"x{k}"] * 1e6).astype(np.int32)
    frames = frames_of_library("cudf")
    results = {}
    for name, frame in {"float32": plain, "nulls": missing, "mixed": mixed}.items():
        columns = tuple(frame.columns)
        found = timed(lambda f=frame, c=columns: frames.coordinates(f, c), repeat)
        results[name] = found
        print("read", name, json.dumps(found), flush=True)
    return results


def main(given: list[str]) -> int:
    """Run the benchmark, and write its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.small", description=__doc__
    )
    parser.add_argument("--jobs", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument(
        "--profile", type=Path, help="folder for profiles of each call, as text"
    )
    parser.add_argument(
        "--no-pool", action="store_true", help="allocate without a pool of RMM"
    )
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(given)
    if not options.no_pool:
        rmm.mr.set_current_device_resource(
            rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 2**35)
        )
        cupy.cuda.set_allocator(rmm_cupy_allocator)
    report = {"environment": environment()}
    report |= {"calls": calls(options), "reading": reading(options.repeat)}
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
