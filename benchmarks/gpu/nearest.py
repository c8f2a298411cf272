"""``python -m benchmarks gpu.nearest``: the k nearest neighbors of each row among the
others, against cuML.

All runs are on one GPU, from points there as CuPy arrays to distances and names that
stay there.  Results are median seconds of some runs after a first one.  Ours are for
index and search ("both"), and also with the moments for the layout ("all").  cuML gets
the same numbers as float32, and one neighbor more, since it finds each row itself.
Rows where its float32 distances give other neighbors are counted.

The exit status is 1 if ours differs, on some rows, from the definition.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

with contextlib.suppress(ImportError):
    import cuml  # noqa: F401  (before CuPy, which loads an older nvJitLink than cuML was linked to)
import cupy
import numpy as np
import rmm

from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import timed
from benchmarks.harness.points import SEED, Maker, _exponential, _uniform
from dask_simjoin.engine.gpu.nearest import SEARCHER, build
from dask_simjoin.planning.sample import moments

Found = tuple[Any, Any]
"""Distances, and rows, (n, k) or (n, k + 1) each."""

SAMPLED = 100
"""The layout is made from a sample of one row in this many."""

CHECKED = 20
"""Number of rows whose neighbors are compared with the definition."""


@dataclass(frozen=True)
class Row:
    """One data set and k."""

    make: Maker
    n: int
    dims: int
    peers: tuple[str, ...] = ("brute",)

    def points(self) -> np.ndarray:
        """Return the points (n, dims), float32."""
        return self.make(np.random.default_rng(SEED), self.n, self.dims).astype(
            np.float32
        )


ROWS = {
    "unif2d": Row(_uniform, 1_000_000, 2, ("brute", "rbc")),
    "unif2d-100k": Row(_uniform, 100_000, 2),
    "unif3d": Row(_uniform, 500_000, 3, ("brute", "rbc")),
    "expo16d": Row(_exponential, 100_000, 16),
    "expo16d-1m": Row(_exponential, 1_000_000, 16),
    "expo64d": Row(_exponential, 100_000, 64),
}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.nearest", description=__doc__
    )
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW"
    )
    parser.add_argument(
        "-k",
        type=int,
        nargs="+",
        default=[10],
        help="how cost grows: 10 20 50 100 200 500",
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="runs after a first one (default 5)"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def ours(x: Any, k: int, repeat: int) -> tuple[dict[str, Any], Found]:
    """Index and search the points `x` (n, d), float64, device to device."""

    def layout() -> Any:
        found = moments(x)
        return SEARCHER.layout(
            found.lower, found.upper, found.mean, found.variance, x[::SAMPLED].get()
        )

    def index(layout: Any) -> Any:
        return SEARCHER.renamed(build(x, layout), 0)

    def search(index: Any, layout: Any) -> Found:
        state = SEARCHER.fresh(len(x), k)
        SEARCHER.nearest(index, index, layout, *state, is_self_join=True)
        return cupy.sqrt(state[0]), state[1]

    plan = layout()
    built = index(plan)
    result = {
        "engine": plan.engine,
        "index": timed(lambda: index(plan), repeat, lambda i: len(i["order"])),
        "search": timed(
            lambda: search(built, plan), repeat, lambda found: len(found[0])
        ),
        "both": timed(
            lambda: search(index(plan), plan), repeat, lambda found: len(found[0])
        ),
        "all": timed(
            lambda: (lambda p: search(index(p), p))(layout()),
            repeat,
            lambda found: len(found[0]),
        ),
    }
    return result, search(built, plan)


def wrong_rows(points: np.ndarray, k: int, found: Found) -> int:
    """Count the sampled rows whose neighbors differ from the definition's, ordered by
    (d2, row).
    """
    n, wrong = len(points), 0
    for row in np.random.default_rng(0).integers(0, n, CHECKED).tolist():
        d2 = np.zeros(n)
        for c in range(points.shape[1]):
            t = points[row, c].astype(np.float64) - points[:, c].astype(np.float64)
            d2 += t * t
        d2[row] = np.inf
        near = np.flatnonzero(d2 <= np.partition(d2, k)[k])
        near = near[np.lexsort((near, d2[near]))][:k]
        same = (found[1][row].get() == near).all() and (
            found[0][row].get() == np.sqrt(d2[near])
        ).all()
        wrong += not same
    return wrong


def cuml_search(algorithm: str, x: Any, k: int) -> Callable[[], Found]:
    """Measure cuML, with one neighbor more."""
    from cuml.neighbors import NearestNeighbors

    def search() -> Found:
        index = NearestNeighbors(
            n_neighbors=k + 1, algorithm=algorithm, output_type="cupy"
        ).fit(x)
        return index.kneighbors(x)

    return search


def differences(found: Found, theirs: Found) -> dict[str, Any]:
    """Count the rows where cuML has other neighbors, and measure its errors of
    distances.
    """
    n, k = found[1].shape
    rows = cupy.arange(n)[:, None]
    names = cupy.asarray(theirs[1]).astype(cupy.int64)
    itself = names == rows
    # without the row itself, in their order; where that is not among them without the
    # last one
    order = cupy.argsort(itself, axis=1, kind="stable")[:, :k]
    others, far = (
        cupy.take_along_axis(names, order, 1),
        cupy.take_along_axis(cupy.asarray(theirs[0]), order, 1),
    )
    apart = cupy.sort(others, axis=1) != cupy.sort(found[1], axis=1)
    off = cupy.abs(far - found[0]) / cupy.maximum(found[0], 1e-300)
    return {
        "rows with other neighbours": int(apart.any(axis=1).sum()),
        "rows in another order": int((others != found[1]).any(axis=1).sum()),
        "rows without themselves": n - int(itself.any(axis=1).sum()),
        "largest relative error of a distance": float(off.max()),
    }


def measure(row: Row, k: int, repeat: int) -> dict[str, Any]:
    """Measure everything on one data set."""
    points = row.points()
    single = cupy.ascontiguousarray(cupy.asarray(points))
    x = cupy.asfortranarray(single.astype(cupy.float64))
    one, found = ours(x, k, repeat)
    result: dict[str, Any] = {
        "n": row.n,
        "dims": row.dims,
        "ours": one,
        "wrong": wrong_rows(points, k, found),
    }
    print(f"  ours {one}", file=sys.stderr, flush=True)
    del x
    for name in row.peers:
        try:
            search = cuml_search(name, single, k)
            peer = timed(search, repeat, lambda theirs: len(theirs[0]))
            peer |= differences(found, search())
            peer["ratio"] = round(peer["median"] / one["both"]["median"], 2)
            peer["ratio of all"] = round(peer["median"] / one["all"]["median"], 2)
        except Exception as error:
            peer = {"failed": f"{type(error).__name__}: {error}"[:300]}
        result[f"cuml {name}"] = peer
        print(f"  cuml {name} {peer}", file=sys.stderr, flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
        gc.collect()
    return result


def table(results: dict[str, Any]) -> str:
    """Format a row for people, in milliseconds."""
    lines = [
        f"{'row':16}{'engine':>9}{'index':>9}{'search':>9}{'both':>9}{'all':>9}   peers"
    ]
    for name, one in results.items():
        times = [
            f"{one['ours'][part]['median'] * 1e3:9.2f}"
            for part in ("index", "search", "both", "all")
        ]
        peers = [
            f"{peer} {t['median'] * 1e3:.1f} ({t['ratio']}x)"
            if "median" in t
            else f"{peer} failed"
            for peer, t in one.items()
            if peer.startswith("cuml")
        ]
        lines.append(
            f"{name:16}{one['ours']['engine']:>9}{''.join(times)}   {', '.join(peers)}"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark; return 1 if our result is wrong."""
    options = arguments()
    pool = rmm.mr.PoolMemoryResource(
        rmm.mr.CudaMemoryResource(), initial_pool_size=16 * 2**30
    )
    rmm.mr.set_current_device_resource(pool)
    results = {}
    for name, k in itertools.product(options.rows, options.k):
        called = name if len(options.k) == 1 else f"{name}-k{k}"
        print(called, file=sys.stderr, flush=True)
        results[called] = {"k": k} | measure(ROWS[name], k, options.repeat)
    report = {
        "environment": environment()
        | {"loadavg": [round(load, 2) for load in os.getloadavg()]},
        "unit": "seconds, medians; device to device",
        "rows": results,
    }
    print(table(results))
    when = report["environment"]["date"][:16].replace("T", "-").replace(":", "")
    path = (
        options.output
        or Path(__file__).parents[1] / "results" / "gpu-nearest" / f"{when}.json"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(one["wrong"] for one in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
