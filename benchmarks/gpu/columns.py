"""``python -m benchmarks gpu.columns``: columns of unlike scales and subspaces, on one
GPU, against cuML.

Data are from ``cpu.columns``, with `--times` as many points in as much more space.
Points lie on the GPU, and results stay there.  A run builds the index, and writes every
unordered pair once, or every row's neighbors.  cuML's radius graph and its distances of
all pairs are float32, as are the points.  Its counts may differ where distances are
near eps.  Our results are checked on some rows against the definition.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
from pathlib import Path
from typing import Any

with contextlib.suppress(ImportError):
    import cuml  # noqa: F401  (before CuPy, which loads an older nvJitLink than cuML was linked to)
import cupy
import numpy as np
import rmm

from benchmarks.gpu.joins import Row, cuml_brute, cuml_rbc
from benchmarks.gpu.nearest import cuml_search, wrong_rows
from benchmarks.gpu.nearest import ours as searched
from benchmarks.harness.columns import ROWS, Columns, tables
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import timed
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.planning.sample import moments

CHECKED = 200
"""Number of rows whose neighbors are counted by the definition."""

ALL_WITH_ALL = 300_000
"""cuML compares all rows with all up to this many rows."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.columns", description=__doc__
    )
    parser.add_argument(
        "--rows", nargs="+", metavar="ROW", help=f"of {', '.join(ROWS)} and real tables"
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder of places.parquet and package_embeddings.parquet",
    )
    parser.add_argument(
        "--times",
        nargs="+",
        type=int,
        default=[4, 16],
        help="times as many rows as on CPUs",
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def join(x: Any, eps: float, repeat: int) -> tuple[dict[str, Any], Any]:
    """Measure our own count: return seconds, and the numbers of neighbors (n,)."""
    found, points = moments(x), cupy.asnumpy(x[:: max(1, len(x) // 4096)])
    moment = found.lower, found.upper, found.mean, found.variance
    layout = JOINER.layout(
        "auto", *moment, eps * eps, 2, JoinSample(points, points, len(x))
    )
    index = timed(
        lambda: JOINER.build(x, layout), repeat, lambda built: len(built["order"])
    )

    def both() -> Any:
        built = JOINER.build(x, layout)
        return JOINER.pairs(built, built, layout, is_self_join=True).left

    built = JOINER.build(x, layout)
    one = {"engine": layout.engine, "index": index, "both": timed(both, repeat)}
    return one, JOINER.counts(built, built, layout, is_self_join=True)[0]


def wrong_counts(x: np.ndarray, eps: float, counts: Any) -> int:
    """Count the sampled rows whose number of neighbors differs from the definition."""
    wrong = 0
    for row in np.random.default_rng(0).integers(0, len(x), CHECKED).tolist():
        total = np.zeros(len(x))
        for k in range(x.shape[1]):
            t = x[row, k] - x[:, k]
            total += t * t
        wrong += int((total <= eps * eps).sum()) - 1 != int(counts[row])
    return wrong


def measure(name: str, row: Columns, times: int, repeat: int) -> dict[str, Any]:
    """Measure everything on one data set."""
    single = np.ascontiguousarray(row.points(times).astype(np.float32))
    points, eps, k = single.astype(np.float64), row.distance(times), row.k
    n, dims = points.shape
    result: dict[str, Any] = {"n": n, "dims": dims, "eps": eps, "k": k}
    x = cupy.asfortranarray(cupy.asarray(points))
    theirs = cupy.asarray(single)
    peers: dict[str, Any] = {}
    if k is not None:
        result["ours"], found = searched(x, k, repeat)
        result["wrong"] = wrong_rows(single, k, found)
        peers = {
            "brute": (cuml_search("brute", theirs, k), lambda found: len(found[0]))
        }
    else:
        result["ours"], counts = join(x, eps, repeat)
        result["wrong"] = wrong_counts(points, eps, counts)
        told = Row(name, "columns", n, dims, eps, 0, None, ())
        peers["rbc"] = cuml_rbc(told, theirs), lambda graph: (graph.nnz - n) // 2
        if n <= ALL_WITH_ALL:
            peers["brute"] = cuml_brute(told, theirs), int
    del x
    for peer, (function, count) in peers.items():
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        try:
            one = timed(function, repeat, count)
            one["ratio"] = round(one["median"] / result["ours"]["both"]["median"], 2)
        except Exception as error:
            one = {"failed": f"{type(error).__name__}: {error}"[:300]}
        result[f"cuml {peer}"] = one
    return result


def main() -> int:
    """Run the benchmark; return 1 if our result is wrong on some row."""
    options = arguments()
    known = ROWS | tables(options.data)
    rmm.mr.set_current_device_resource(
        rmm.mr.PoolMemoryResource(
            rmm.mr.CudaMemoryResource(), initial_pool_size=16 * 2**30
        )
    )
    report: dict[str, Any] = {
        "environment": environment(),
        "unit": "seconds, medians",
        "rows": {},
    }
    print(
        f"{'row':22} {'n':>9} {'d':>3} {'found':>11} {'engine':>8} {'index':>8} "
        f"{'both':>8}  peers"
    )
    for name in options.rows or known:
        for times in options.times if not known[name].file else [1]:
            label = name if times == 1 else f"{name} x{times}"
            one = report["rows"][label] = measure(
                name, known[name], times, options.repeat
            )
            own = one["ours"]
            peers = [
                f"{peer} {t['median']:.4f} ({t['ratio']}x)"
                if "median" in t
                else f"{peer} failed"
                for peer, t in one.items()
                if peer.startswith("cuml")
            ]
            print(
                f"{label:22} {one['n']:9} {one['dims']:3} {own['both']['found']:11} "
                f"{own['engine']:>8} "
                f"{own['index']['median']:8.4f} {own['both']['median']:8.4f}  "
                f"{', '.join(peers)}"
                f"{'  WRONG' if one['wrong'] else ''}",
                flush=True,
            )
            # written after each row, because a later row may take too long
            if options.output is not None:
                options.output.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(one["wrong"] for one in report["rows"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
