"""``python -m benchmarks gpu.trees``: spanning trees, HDBSCAN, DBSCAN and nearest rows of
points in three dimensions, in a cuDF DataFrame on one GPU.

Sizes and jobs are those that ArborX and jz-tree publish for an A100.  The file has
their seconds as "published".  They are for points of a cosmological simulation, which
are not public.  Uniform points and Levy flights stand in for them.  Ours are seconds of
the verb's call, from a frame on the GPU to a result there.

With `--programs`, both also run on the same points: see `tree_peers`.  They compare in
float32.

The trees of some of the rows are compared with the CPU's.  The file is written after
each row; the exit status is 1 if a tree differs.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudf
import cupy
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.gpu.tree_peers import measured, peers_of
from benchmarks.harness.gpu_pool import counted_pool
from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import timed
from benchmarks.harness.report import write

DIMS = 3
COSMOS, MANY = 36_902_000, 10_000_000
"""Numbers of points: of the published simulation, and of jz-tree's neighbors."""

WALKS = 2_000
"""Number of Levy flights."""

CHECKED = 300_000
"""Number of rows whose trees are compared with the CPU's."""

PUBLISHED = {
    "spanning_tree": {"tool": "ArborX", "gpu": "A100", "rows": COSMOS, "below": 0.5},
    "dbscan": {"tool": "ArborX", "gpu": "A100", "rows": COSMOS, "seconds": 0.15},
    "knn_join": {"tool": "jz-tree", "gpu": "A100", "rows": MANY, "seconds": 0.117},
}


def uniform(n: int) -> Any:
    """Return uniform points (n, 3)."""
    return cupy.random.default_rng(5).random((n, DIMS))


def levy(n: int) -> Any:
    """Return points of Levy flights (n, 3): dense paths with few long jumps."""
    random = cupy.random.default_rng(1)
    each = -(-n // WALKS)
    length = random.random((WALKS, each, 1)) ** (-1 / 1.3) * 1e-5
    step = random.standard_normal((WALKS, each, DIMS))
    step *= cupy.minimum(length, 0.05) / cupy.linalg.norm(step, axis=2, keepdims=True)
    begin = random.random((WALKS, 1, DIMS))
    return ((begin + cupy.cumsum(step, axis=1)) % 1.0).reshape(-1, DIMS)[:n]


POINTS = {"uniform": uniform, "levy": levy}

Verb = Callable[[Any], Any]


def linking_length(n: int) -> float:
    """Return the distance of simulations: .168 of the mean distance of neighbors."""
    return 0.168 * n ** (-1 / DIMS)


def verbs(n: int) -> dict[str, Verb]:
    """Return the jobs on `n` points by name."""
    if n < COSMOS:
        return {
            "spanning_tree": lambda frame: frame.simjoin.spanning_tree(),
            "hdbscan": lambda frame: frame.simjoin.hdbscan(20),
            "knn_join": lambda frame: frame.simjoin.knn_join(k=30),
        }
    eps = linking_length(n)
    return {
        "spanning_tree": lambda frame: frame.simjoin.spanning_tree(),
        "spanning_tree, min_samples 5": lambda frame: frame.simjoin.spanning_tree(
            min_samples=5
        ),
        "dbscan": lambda frame: frame.simjoin.dbscan(eps, 2),
    }


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.trees", description=__doc__
    )
    parser.add_argument("--points", nargs="+", choices=POINTS, default=list(POINTS))
    parser.add_argument("--rows", nargs="+", type=int, default=[COSMOS, MANY])
    parser.add_argument("--repeat", type=int, default=3, help="runs after a first one")
    parser.add_argument(
        "--programs", type=Path, help="folder of ArborX's program; runs jz-tree, too"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def frame_of(x: Any) -> cudf.DataFrame:
    """Return points as a frame with float32 columns."""
    narrow = cupy.asfortranarray(x.astype(cupy.float32))
    return cudf.DataFrame({f"x{k}": narrow[:, k] for k in range(DIMS)})


def edges_apart(frame: cudf.DataFrame) -> int:
    """Count the edges of a tree that differ from the CPU's."""
    found = frame.simjoin.spanning_tree(min_samples=5).to_pandas()
    want = pd.DataFrame(frame.to_pandas()).simjoin.spanning_tree(min_samples=5)
    return int((found.to_numpy() != want.to_numpy()).any(axis=1).sum())


def measure(
    frame: cudf.DataFrame, name: str, verb: Verb, repeat: int, memory: Any
) -> dict[str, Any]:
    """Measure one job. `memory`: RMM's resource, which counts allocations."""
    memory.push_counters()
    verb(frame)
    found: dict[str, Any] = {
        "peak bytes per row": round(memory.pop_counters().peak_bytes / len(frame), 1),
        "clock": timed(lambda: verb(frame), repeat),
    }
    if name not in ("dbscan", "hdbscan"):
        found["weight"] = float(verb(frame)["distance"].sum())
    elif name == "dbscan":
        found["clusters"] = int(verb(frame).max()) + 1
    if (theirs := PUBLISHED.get(name)) is not None and theirs["rows"] == len(frame):
        found["published"] = theirs
    return found


def beside(
    frame: cudf.DataFrame, name: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Time the other programs on the same points."""
    points = frame.to_numpy()
    cupy.get_default_memory_pool().free_all_blocks()
    return {
        peer.name: measured(peer, points, options.programs, options.repeat)
        for peer in peers_of(name, linking_length(len(frame)))
    }


def main() -> int:
    """Run the benchmark; return 1 if a tree is wrong."""
    options = arguments()
    memory = counted_pool(60 * 2**30)
    rows: dict[str, Any] = {}
    checked: dict[str, Any] = {"rows": CHECKED}
    report = {"environment": environment(), "unit": "seconds"}
    report |= {"edges that differ from the CPU's": checked, "rows": rows}
    for kind in options.points:
        checked[kind] = edges_apart(frame_of(POINTS[kind](CHECKED)))
        for n in options.rows:
            frame = frame_of(POINTS[kind](n))
            for name, verb in verbs(n).items():
                one = measure(frame, name, verb, options.repeat, memory)
                if options.programs is not None:
                    one["peers"] = beside(frame, name, options)
                rows[f"{kind}, {n}, {name}"] = one
                print(kind, n, name, one, file=sys.stderr, flush=True)
                if options.output is not None:
                    write(report, options.output)
            del frame
            gc.collect()
            cupy.get_default_memory_pool().free_all_blocks()
    if options.output is None:
        write(report, None)
    return 1 if any(checked[kind] for kind in options.points) else 0


if __name__ == "__main__":
    sys.exit(main())
