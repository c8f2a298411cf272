"""``python -m benchmarks cpu.nearest``: the k nearest other rows of each row, index and
search.

All tools run in this process, on one core, in turn: what disturbs one run disturbs all
tools alike. Variants of a peer are tried on a tenth of the points, and the fastest one
is measured.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    # set before the imports below, because libraries count cores and read the
    # environment when imported
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np

from benchmarks.harness.ours import VERSION
from benchmarks.harness.points import SEED, Maker, _clusters, _exponential, _uniform
from benchmarks.harness.report import environment, write
from dask_simjoin.engine.cpu.nearest import build, fresh, nearest
from dask_simjoin.engine.index.cpu_tiles import SAMPLE, make_nearest_layout

Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""Points (n, d) and k -> squared distances, and positions, (n, k) each, or (n, k + 1)
with the row itself.
"""

PART = 10
"""Tries divide the number of points by this."""

PATIENCE = 25.0
"""If the try of a peer predicts more seconds than this, the peer is not run, or only
once.
"""


@dataclass(frozen=True)
class NearestRow:
    """One data set and k."""

    make: Maker
    n: int
    dims: int
    single: bool = False

    def points(self) -> np.ndarray:
        """Return the points (n, dims), float64; the points of `single` are float32
        numbers.
        """
        x = self.make(np.random.default_rng(SEED), self.n, self.dims)
        return x.astype(np.float32).astype(np.float64) if self.single else x


ROWS = {
    "unif2d": NearestRow(_uniform, 1_000_000, 2),
    "unif3d": NearestRow(_uniform, 500_000, 3),
    "unif6d": NearestRow(_uniform, 200_000, 6),
    "clus8d": NearestRow(_clusters, 100_000, 8),
    "expo16d": NearestRow(_exponential, 100_000, 16, single=True),
    "expo64d": NearestRow(_exponential, 20_000, 64, single=True),
}


@dataclass(frozen=True)
class Peer:
    """A peer: its variants, the module with its version, and the rows where it is not
    run.
    """

    module: str
    distribution: str
    variants: dict[str, Search]
    skip: Mapping[str, str] = field(default_factory=dict)


def _ours(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    sample = x[:: max(1, len(x) // SAMPLE)]
    layout = make_nearest_layout(
        x.min(axis=0), x.max(axis=0), x.mean(axis=0), x.var(axis=0), sample
    )
    index = build(x, np.arange(len(x)), layout)
    state = fresh(len(x), k)
    nearest(index, index, layout, *state, is_self_join=True)
    return state


def _scipy(leafsize: int, balanced: bool) -> Search:
    def search(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        from scipy.spatial import cKDTree

        tree = cKDTree(
            x, leafsize=leafsize, balanced_tree=balanced, compact_nodes=balanced
        )
        distance, places = tree.query(x, k + 1, workers=1)
        return distance * distance, places

    return search


def _sklearn(leaf_size: int) -> Search:
    def search(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.neighbors import KDTree

        distance, places = KDTree(x, leaf_size=leaf_size).query(x, k + 1)
        return distance * distance, places

    return search


def _faiss(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    import faiss

    faiss.omp_set_num_threads(1)
    z = np.ascontiguousarray(x - x.mean(axis=0), dtype=np.float32)
    index = faiss.IndexFlatL2(z.shape[1])
    index.add(z)
    found: tuple[np.ndarray, np.ndarray] = index.search(z, k + 1)
    return found


def _quitefastmst(leaf_size: int) -> Search:
    def search(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        import quitefastmst

        quitefastmst.omp_set_num_threads(1)
        found: tuple[np.ndarray, np.ndarray] = quitefastmst.knn_euclid(
            x, k, max_leaf_size=leaf_size, squared=True
        )
        return found

    return search


def _pykdtree(leafsize: int) -> Search:
    def search(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        from pykdtree.kdtree import KDTree

        found: tuple[np.ndarray, np.ndarray] = KDTree(x, leafsize).query(
            x, k + 1, sqr_dists=True
        )
        return found

    return search


PEERS = {
    "scipy": Peer(
        "scipy",
        "scipy",
        {
            f"cKDTree, leafsize {n}, {'median' if b else 'midpoint'} splits": _scipy(
                n, b
            )
            for n in (8, 16, 32)
            for b in (True, False)
        },
        skip={"expo16d": "159 s"},
    ),
    "sklearn": Peer(
        "sklearn",
        "scikit-learn",
        {f"KDTree, leaf_size {n}": _sklearn(n) for n in (20, 40)},
        skip={"expo16d": "minutes (estimated)"},
    ),
    "quitefastmst": Peer(
        "quitefastmst",
        "quitefastmst",
        {f"knn_euclid, max_leaf_size {n}": _quitefastmst(n) for n in (16, 32, 64)},
    ),
    "pykdtree": Peer(
        "pykdtree",
        "pykdtree",
        {f"KDTree, leafsize {n}": _pykdtree(n) for n in (8, 16, 32)},
        skip={"expo16d": "minutes (estimated)"},
    ),
    "faiss": Peer(
        "faiss",
        "faiss-cpu",
        {"IndexFlatL2": _faiss},
        skip=dict.fromkeys(
            ("unif2d", "unif3d"), "compares all points with all: minutes (estimated)"
        ),
    ),
}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.nearest", description=__doc__
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        choices=ROWS,
        default=["unif2d", "clus8d", "expo16d", "expo64d"],
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of each tool (default 3)"
    )
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    return parser.parse_args()


def seconds_of(search: Search, x: np.ndarray, k: int) -> tuple[float, np.ndarray]:
    """Return the CPU seconds of one run, and its squared distances."""
    gc.collect()
    began = time.process_time()
    d2, _ = search(x, k)
    took = time.process_time() - began
    return took, d2[:, -k:]


def chosen(peer: Peer, x: np.ndarray, k: int) -> tuple[str, dict[str, float], float]:
    """Return the fastest variant, the seconds of all tries, and at least how many
    seconds it takes for all points.
    """
    some = np.ascontiguousarray(x[::PART])
    tries = {
        label: seconds_of(search, some, k)[0] for label, search in peer.variants.items()
    }
    best = min(tries, key=lambda label: tries[label])
    return best, tries, tries[best] * PART


def measure(
    name_of_row: str, peers: dict[str, Peer], k: int, repeat: int
) -> dict[str, Any]:
    """Return medians, ratios and the tried settings of one data set."""
    row = ROWS[name_of_row]
    x = row.points()
    searches: dict[str, Search] = {"ours": _ours}
    tools: dict[str, dict[str, Any]] = {"ours": {}}
    _ours(x[:2000], k)  # the first call compiles and loads, which must not be timed
    for name, peer in peers.items():
        if name_of_row in peer.skip:
            tools[name] = {"skipped": peer.skip[name_of_row]}
            continue
        best, tries, least = chosen(peer, x, k)
        tools[name] = {"variant": best, "tries": tries}
        if least > PATIENCE:
            tools[name]["skipped"] = f"more than {least:.0f} s"
        else:
            searches[name] = peer.variants[best]
    found: dict[str, np.ndarray] = {}
    for _ in range(repeat):
        for name, search in searches.items():
            if max(tools[name].get("seconds", [0])) > PATIENCE:
                continue
            took, found[name] = seconds_of(search, x, k)
            tools[name].setdefault("seconds", []).append(round(took, 3))
            print(f"{name:8}{took:9.3f} s", file=sys.stderr, flush=True)
    for name in searches:
        tools[name]["median"] = statistics.median(tools[name]["seconds"])
        apart = np.abs(found[name] - found["ours"]) > 1e-12 * found["ours"]
        tools[name]["distances_apart"] = int(apart.sum())
    rivals = {
        name: one["median"]
        for name, one in tools.items()
        if name != "ours" and "median" in one
    }
    best_peer = min(rivals, key=lambda name: rivals[name], default=None)
    ratio = round(rivals[best_peer] / tools["ours"]["median"], 2) if best_peer else None
    return {
        "n": row.n,
        "dims": row.dims,
        "best_peer": best_peer,
        "ratio": ratio,
        "tools": tools,
    }


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    options = arguments()
    peers = {
        name: PEERS[name]
        for name in options.peers
        if importlib.util.find_spec(PEERS[name].module)
    }
    report: dict[str, Any] = {
        "environment": environment(peers.values(), VERSION),
        "unit": "CPU seconds of one core, index and search",
        "k": options.k,
        "rows": {},
    }
    for name in options.rows:
        print(name, file=sys.stderr, flush=True)
        report["rows"][name] = measure(name, peers, options.k, options.repeat)
    write(report, options.output)


if __name__ == "__main__":
    main()
