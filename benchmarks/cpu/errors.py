"""``python -m benchmarks cpu.errors``: wrong pairs and wrong neighbors of peers on CPUs.

Points are uniform in a square of 1,000 by 1,000, at the origin ("plain") or at 500,000
and 5,400,000, as coordinates of maps in meters are ("map"). Coordinates are stored in
float32 or float64, and each tool gets the same array. Distances of the stored numbers
in float64 decide: a pair is "missed" or "false", and a row of the nearest neighbors
is wrong if the distances of its neighbors are not the smallest.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401 (registers the accessor)
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write

ROWS, QUICK = 50_000, 2_000
EPS, K = 2.0, 10
PLACES = {"plain": (0.0, 0.0), "map": (500_000.0, 5_400_000.0)}

Join = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def points(place: str, dtype: str, rows: int) -> np.ndarray:
    """Draw points (rows, 2) of a place, stored in this dtype."""
    x = np.random.default_rng(0).uniform(0, 1000, (rows, 2)) + PLACES[place]
    return np.ascontiguousarray(x.astype(dtype))


def flat(found: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of pairs in lists of neighbors, one for each row."""
    sizes = [len(one) for one in found]
    return np.repeat(np.arange(len(found)), sizes), np.concatenate(found)


def ours(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of this package."""
    found = pd.DataFrame(x, columns=["x", "y"]).simjoin.self_join(EPS)
    return found["left"].to_numpy(), found["right"].to_numpy()


def scipy(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of SciPy's tree, which computes in float64."""
    from scipy.spatial import cKDTree

    found = cKDTree(x).query_pairs(EPS, output_type="ndarray")
    return found[:, 0], found[:, 1]


def sklearn(algorithm: str) -> Join:
    """Return scikit-learn's search by a tree or by brute force."""
    from sklearn.neighbors import NearestNeighbors

    def join(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        searcher = NearestNeighbors(algorithm=algorithm).fit(x)
        return flat(searcher.radius_neighbors(x, EPS, return_distance=False))

    return join


def faiss(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of faiss, which has float32 alone; rows are moved to their mean."""
    import faiss as peer

    z = np.ascontiguousarray(x - x.mean(axis=0, dtype=np.float64), dtype=np.float32)
    index = peer.IndexFlatL2(z.shape[1])
    index.add(z)
    limits, _, found = index.range_search(z, EPS * EPS)
    return np.repeat(np.arange(len(z)), np.diff(limits.astype(np.int64))), found


JOINS: dict[str, Callable[[], Join]] = {
    "dask_simjoin": lambda: ours,
    "scipy": lambda: scipy,
    "scikit-learn, kd_tree": lambda: sklearn("kd_tree"),
    "scikit-learn, brute": lambda: sklearn("brute"),
    "faiss-cpu": lambda: faiss,
}


def keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return a sorted number for each pair, once, without rows beside themselves."""
    low, high = np.minimum(left, right), np.maximum(left, right)
    return np.unique((low.astype(np.int64) << 32 | high)[low < high])


def truth(x: np.ndarray) -> np.ndarray:
    """Return the pairs by distances in float64 of all near candidates."""
    from scipy.spatial import cKDTree

    near = cKDTree(x.astype(np.float64)).query_pairs(1.1 * EPS, output_type="ndarray")
    steps = x[near[:, 0]].astype(np.float64) - x[near[:, 1]].astype(np.float64)
    near = near[(steps**2).sum(axis=1) <= EPS * EPS]
    return keys(near[:, 0], near[:, 1])


def wrong_neighbors(x: np.ndarray) -> int:
    """Count the rows whose neighbors by pykdtree are not the nearest."""
    from pykdtree.kdtree import KDTree
    from scipy.spatial import cKDTree

    exact = x.astype(np.float64)
    found = KDTree(x).query(x, k=K + 1)[1].astype(np.int64)
    best = cKDTree(exact).query(exact, K + 1)[1]

    def distances(places: np.ndarray) -> np.ndarray:
        return np.sort(((exact[places] - exact[:, None]) ** 2).sum(axis=2), axis=1)

    return int((distances(found) != distances(best)).any(axis=1).sum())


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.errors", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows")
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    where, rows = environment([], VERSION), []
    for name in ("scipy", "scikit-learn", "faiss-cpu", "pykdtree"):
        where["versions"][name] = importlib.metadata.version(name)
    for place in PLACES:
        for dtype in ("float64", "float32"):
            x = points(place, dtype, QUICK if options.quick else ROWS)
            exact = truth(x)
            tools: dict[str, Any] = {}
            for name, make in JOINS.items():
                found = keys(*make()(x))
                tools[name] = {
                    "false": len(np.setdiff1d(found, exact, assume_unique=True)),
                    "missed": len(np.setdiff1d(exact, found, assume_unique=True)),
                }
            tools["pykdtree"] = {"rows wrong": wrong_neighbors(x)}
            one = {"place": place, "dtype": dtype, "rows": len(x), "eps": EPS, "k": K}
            rows.append(one | {"pairs": len(exact), "tools": tools})
            print(rows[-1], file=sys.stderr, flush=True)
    write({"environment": where, "rows": rows}, options.output)


if __name__ == "__main__":
    main()
