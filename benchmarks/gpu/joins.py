"""``python -m benchmarks gpu.joins``: the kernels, the accessor on a cluster of one
GPU, and cuML.

All runs are on one GPU.  Kernel times start with points on the GPU, and include
building the index and writing every unordered pair once.  cuML's radius graph lists
each pair twice and each point itself.  Its brute force computes distances block by
block, and keeps the small ones.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

with contextlib.suppress(ImportError):
    import cuml  # noqa: F401  (before CuPy, which loads an older nvJitLink than cuML was linked to)
import cudf
import cupy
import dask_cudf
import numpy as np
import rmm
from dask_cuda import LocalCUDACluster
from distributed import Client, wait

from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import timed
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.planning.sample import moments


@dataclass(frozen=True)
class Row:
    """One data set and one distance."""

    name: str
    kind: str
    n: int
    dims: int
    eps: float
    pairs: int
    goal: float | None
    peers: tuple[str, ...]

    def points(self) -> np.ndarray:
        """Return the points (n, dims), float32."""
        if self.kind == "uniform":
            return (np.random.default_rng(1).random((self.n, self.dims)) * 100).astype(
                np.float32
            )
        scale = 2.5 if self.dims == 2 else 1 / 40
        return (
            np.random.default_rng(0)
            .exponential(scale, (self.n, self.dims))
            .astype(np.float32)
        )


BOTH = ("cuml rbc", "cuml brute")
_ALL = (
    Row("expo2d", "exponential", 2_000_000, 2, 0.05, 618_096_324, 0.014, BOTH),
    Row("unif2d", "uniform", 20_000_000, 2, 0.1, 627_805_286, 0.08, ("cuml rbc",)),
    Row("unif3d", "uniform", 5_000_000, 3, 1.0, 51_766_056, 0.02, ("cuml rbc",)),
    Row("unif6d", "uniform", 2_000_000, 6, 8.0, 2_348_059, 0.04, BOTH),
    Row("syn16d-500k", "exponential", 500_000, 16, 0.05, 77_066_762, 0.025, BOTH),
    Row("syn16d-thin", "exponential", 2_000_000, 16, 0.03, 3_597_104, None, ()),
    Row("syn16d", "exponential", 2_000_000, 16, 0.05, 1_227_853_926, 0.25, ()),
    Row(
        "syn32d",
        "exponential",
        500_000,
        32,
        0.08,
        1_915_449,
        0.035,
        ("cuml brute",),
    ),
    Row(
        "syn64d",
        "exponential",
        500_000,
        64,
        0.16,
        8_522_887,
        0.06,
        ("cuml brute",),
    ),
)
ROWS = {row.name: row for row in _ALL}


def arguments(given: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.joins", description=__doc__
    )
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW"
    )
    parser.add_argument(
        "--peers", nargs="*", choices=BOTH, default=list(BOTH), metavar="PEER"
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--output", type=Path)
    return parser.parse_args(given)


def kernels(row: Row, x: Any, repeat: int) -> dict[str, Any]:
    """Index and join the points, device to device."""
    found = moments(x)
    layout = JOINER.layout(
        "auto", found.lower, found.upper, found.mean, found.variance, row.eps**2
    )
    index = timed(
        lambda: JOINER.build(x, layout), repeat, lambda built: len(built["order"])
    )
    built = JOINER.build(x, layout)
    told: list[Any] = []

    def join() -> Any:
        pairs = JOINER.pairs(built, built, layout, is_self_join=True)
        told[:] = [pairs.decided, pairs.refused]
        return pairs.left

    join_ = timed(join, repeat)
    both = timed(
        lambda: (lambda i: JOINER.pairs(i, i, layout, is_self_join=True).left)(
            JOINER.build(x, layout)
        ),
        repeat,
    )
    # counts all pairs of points, two operations a dimension, as if the index skipped
    # none
    rate = row.n**2 / 2 * 2 * row.dims / join_["median"] / 1e12
    return {
        "engine": layout.engine,
        "index": index,
        "join": join_,
        "both": both,
        "pairs": join_["found"],
        "decided in float64": told[0],
        "refused": told[1],
        "tflops, all candidates": round(rate, 1),
    }


def cuml_rbc(row: Row, x: Any) -> Callable[[], Any]:
    """Measure cuML's radius graph, in float32."""
    from cuml.neighbors import NearestNeighbors

    def graph() -> Any:
        index = NearestNeighbors(algorithm="rbc", metric="euclidean").fit(x)
        return index.radius_neighbors_graph(x, radius=row.eps)

    return graph


def cuml_brute(row: Row, x: Any) -> Callable[[], Any]:
    """Measure cuML's distances from blocks of points to the block and all later points,
    in float32.
    """
    from cuml.metrics import pairwise_distances

    block = max(64, (1 << 30) // len(x))

    def search() -> Any:
        found = 0
        for start in range(0, len(x), block):
            away = pairwise_distances(
                x[start : start + block], x[start:], metric="sqeuclidean"
            )
            left, right = cupy.nonzero(away <= np.float32(row.eps**2))
            later = right > left
            found += len(left[later]) + 0 * len(right[later])
        return found

    return search


def peers(row: Row, x: Any, names: list[str], repeat: int) -> dict[str, Any]:
    """Return cuML's seconds and pairs; a failure is a result too."""
    result: dict[str, Any] = {}
    x = cupy.ascontiguousarray(x.astype(cupy.float32))
    for name in names:
        if name not in row.peers:
            result[name] = {"skipped": "takes minutes on this row"}
            continue
        try:
            if name == "cuml rbc":
                one = timed(
                    cuml_rbc(row, x), repeat, lambda graph: (graph.nnz - row.n) // 2
                )
            else:
                one = timed(cuml_brute(row, x), 1, int)
        except Exception as error:
            one = {"failed": f"{type(error).__name__}: {error}"[:200]}
        result[name] = one
        print(f"  {name}: {one}", file=sys.stderr, flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
    return result


def accessor(row: Row, points: np.ndarray, repeat: int) -> dict[str, Any]:
    """Measure the accessor on the current client's cluster: planning and joining; pairs
    stay on the GPU.
    """
    frame = cudf.DataFrame(
        {f"x{k}": cudf.Series(points[:, k]) for k in range(row.dims)}
    )
    ddf = dask_cudf.from_cudf(frame, npartitions=8).persist()
    del frame
    wait(ddf)
    eps = row.eps
    seconds, planning, rows = [], [], 0
    for run in range(repeat + 1):
        began = time.perf_counter()
        pairs = ddf.simjoin.self_join(eps, id=None)
        partitions = pairs.npartitions
        planned = time.perf_counter()
        kept = pairs.persist()
        wait(kept)
        if run:
            seconds.append(time.perf_counter() - began)
            planning.append(planned - began)
        rows = len(kept) if run == 0 else rows
        del pairs, kept
        # a slightly different distance, so that nothing is reused
        eps = float(np.nextafter(eps, 0))
    return {
        "median": statistics.median(seconds),
        "seconds": seconds,
        "planning": statistics.median(planning),
        "pairs": rows,
        "partitions": partitions,
    }


def main(given: list[str]) -> int:
    """Run the benchmark; return 1 if a number of pairs is not the known one."""
    options = arguments(given)
    results: dict[str, Any] = {}
    for name in options.rows:
        row = ROWS[name]
        points = row.points()
        pool = rmm.mr.PoolMemoryResource(
            rmm.mr.CudaMemoryResource(), initial_pool_size=16 * 2**30
        )
        rmm.mr.set_current_device_resource(pool)
        x = cupy.asfortranarray(cupy.asarray(points).astype(cupy.float64))
        one = {"kernels": kernels(row, x, options.repeat)}
        print(name, one, file=sys.stderr, flush=True)
        one["peers"] = peers(row, x, options.peers, options.repeat)
        del x
        gc.collect()
        rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
        del pool
        results[name] = one
    with (
        LocalCUDACluster(
            n_workers=1, rmm_pool_size="64 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        for name in options.rows:
            results[name]["accessor"] = accessor(
                ROWS[name], ROWS[name].points(), options.repeat
            )
            print(name, results[name]["accessor"], file=sys.stderr, flush=True)
    report = {"environment": environment(), "unit": "seconds, medians", "rows": {}}
    wrong: list[str] = []
    for name, one in results.items():
        row = ROWS[name]
        report["rows"][name] = {
            "n": row.n,
            "dims": row.dims,
            "eps": row.eps,
            "goal": row.goal,
            **one,
        }
        counts = one["kernels"]["pairs"], one["accessor"]["pairs"]
        wrong += [
            f"{name}: {found} pairs, expected {row.pairs}"
            for found in counts
            if found != row.pairs
        ]
    print(table(results))
    path = (
        options.output
        or Path(__file__).parents[1]
        / "results"
        / "gpu-joins"
        / f"{datetime.datetime.now():%Y-%m-%d-%H%M}.json"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


def table(results: dict[str, Any]) -> str:
    """Format a row for people."""
    lines = [
        f"{'row':12} {'engine':8} {'index':>8} {'join':>8} {'both':>8} {'accessor':>8}"
        f" {'best peer':>13} {'s':>8} {'x':>6}"
    ]
    for name, one in results.items():
        ours = one["kernels"]
        times = {peer: t["median"] for peer, t in one["peers"].items() if "median" in t}
        best = min(times, key=times.__getitem__, default="-")
        took, both = times.get(best, 0.0), ours["both"]["median"]
        index, join = ours["index"]["median"], ours["join"]["median"]
        lines.append(
            f"{name:12} {ours['engine']:8} {index:8.4f} {join:8.4f} {both:8.4f} "
            f"{one['accessor']['median']:8.3f} {best:>13} {took:8.3f} "
            f"{took / both:6.1f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
