"""``python -m benchmarks cpu.two_tables``: all pairs of two tables within a distance,
index and join.

All tools run in this process, on one core, in turn: what disturbs one run disturbs all
tools alike. Variants of a peer are tried on a tenth of the points, and the fastest one
is measured.

With `--best`, the most similar name of each misspelled name is found by `edit_join` with
`best=True`, and by `process.extractOne` of RapidFuzz with `score_cutoff`, which compares
it with all names. Both return the first one of equally similar names.

With `--matching`, rows of both tables are matched one to one, by `matching="greedy"`
and by what users do without it: SciPy finds all pairs, NumPy sorts them, and a loop takes
each pair whose rows are free.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
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
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.cpu.strings import PLACES, names, with_errors
from benchmarks.harness.ours import VERSION
from benchmarks.harness.points import SEED, Maker, _clusters, _exponential, _uniform
from benchmarks.harness.report import environment, write
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.planning.sample import merge_moments, moments

Join = Callable[[np.ndarray, np.ndarray, float], int]
"""Two sets of points and a distance -> how many pairs were found and kept."""

PART = 10
"""Tries divide the number of points by this."""

PATIENCE = 100.0
"""If the try of a peer predicts more seconds than this, the peer is not run."""


@dataclass(frozen=True)
class TwoRow:
    """Two data sets of the same kind, and a distance."""

    make: Maker
    left: int
    right: int
    dims: int
    eps: float

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both sets of points, float64."""
        every = self.make(
            np.random.default_rng(SEED), self.left + self.right, self.dims
        )
        return every[: self.left], every[self.left :]


ROWS = {
    "unif2d": TwoRow(_uniform, 1_000_000, 1_000_000, 2, 0.2),
    "unif2d-small": TwoRow(_uniform, 1_000_000, 50_000, 2, 0.5),
    "expo2d": TwoRow(_exponential, 500_000, 500_000, 2, 0.0002),
    "unif6d": TwoRow(_uniform, 200_000, 200_000, 6, 13.0),
    "expo16d": TwoRow(_exponential, 100_000, 100_000, 16, 0.045),
    "expo32d": TwoRow(_exponential, 50_000, 50_000, 32, 0.1),
    "expo64d": TwoRow(_exponential, 50_000, 50_000, 64, 0.17),
    "clus8d": TwoRow(_clusters, 100_000, 100_000, 8, 0.4),
}


def _ours(x: np.ndarray, y: np.ndarray, eps: float) -> int:
    every = merge_moments([moments(x), moments(y)])
    layout = JOINER.layout(
        "auto", every.lower, every.upper, every.mean, every.variance, eps * eps
    )
    found = JOINER.pairs(
        JOINER.build(x, layout), JOINER.build(y, layout), layout, is_self_join=False
    )
    return len(found.left)


def _verb(x: np.ndarray, y: np.ndarray, eps: float) -> int:
    left, right = (pd.DataFrame(points, copy=False) for points in (x, y))
    return len(left.simjoin.join(right, eps))


def _matrix(leafsize: int, balanced: bool) -> Join:
    def join(x: np.ndarray, y: np.ndarray, eps: float) -> int:
        from scipy.spatial import cKDTree

        trees = (
            cKDTree(z, leafsize, balanced_tree=balanced, compact_nodes=balanced)
            for z in (x, y)
        )
        return len(
            next(trees).sparse_distance_matrix(next(trees), eps, output_type="ndarray")
        )

    return join


def _ball_point(x: np.ndarray, y: np.ndarray, eps: float) -> int:
    from scipy.spatial import cKDTree

    return sum(map(len, cKDTree(y, balanced_tree=False).query_ball_point(x, eps)))


def _ball_tree(x: np.ndarray, y: np.ndarray, eps: float) -> int:
    from sklearn.neighbors import BallTree

    return sum(map(len, BallTree(y, leaf_size=40).query_radius(x, eps)))


def _kd_tree(x: np.ndarray, y: np.ndarray, eps: float) -> int:
    from sklearn.neighbors import KDTree

    return sum(map(len, KDTree(y, leaf_size=40).query_radius(x, eps)))


def _sklearn_brute(x: np.ndarray, y: np.ndarray, eps: float) -> int:
    from sklearn.neighbors import NearestNeighbors

    searcher = NearestNeighbors(algorithm="brute").fit(y)
    return sum(map(len, searcher.radius_neighbors(x, eps, return_distance=False)))


def _faiss(rows: int) -> Join:
    def join(x: np.ndarray, y: np.ndarray, eps: float) -> int:
        import faiss

        faiss.omp_set_num_threads(1)
        centre = y.mean(axis=0)
        data, queries = (
            np.ascontiguousarray(z - centre, dtype=np.float32) for z in (y, x)
        )
        index = faiss.IndexFlatL2(data.shape[1])
        index.add(data)
        found = [
            index.range_search(queries[k : k + rows], eps * eps)
            for k in range(0, len(x), rows)
        ]
        return sum(len(places) for _, _, places in found)

    return join


def _matched(x: np.ndarray, y: np.ndarray, eps: float) -> list[tuple[int, int]]:
    left, right = (pd.DataFrame(points, copy=False) for points in (x, y))
    found = left.simjoin.join(right, eps, matching="greedy")
    return list(zip(found["left"].tolist(), found["right"].tolist(), strict=True))


def _matched_by_loop(x: np.ndarray, y: np.ndarray, eps: float) -> list[tuple[int, int]]:
    from scipy.spatial import cKDTree

    trees = (cKDTree(z, balanced_tree=False, compact_nodes=False) for z in (x, y))
    every = next(trees).sparse_distance_matrix(next(trees), eps, output_type="ndarray")
    every = every[np.lexsort((every["j"], every["i"], every["v"]))]
    free = [True] * len(x), [True] * len(y)
    found = []
    for i, j in zip(every["i"].tolist(), every["j"].tolist(), strict=True):
        if free[0][i] and free[1][j]:
            free[0][i] = free[1][j] = False
            found.append((i, j))
    return found


MATCHING = {"greedy": _matched, "SciPy, sort, loop": _matched_by_loop}


def measure_matching(name_of_row: str, repeat: int) -> dict[str, Any]:
    """Return medians of one-to-one matching, whose pairs must be equal."""
    row = ROWS[name_of_row]
    sides = row.points()
    matches, tools = measured(MATCHING, (*sides, row.eps), repeat)
    sizes = {"left": row.left, "right": row.right, "dims": row.dims, "eps": row.eps}
    found = {"matches": matches, "pairs": _verb(*sides, row.eps)}
    return sizes | found | {"tools": tools}


BEST = ((1_000, 20_000, 2), (1_000, 20_000, 5), (1_000, 199_116, 2))
"""Misspelled names, names, and distances."""


def _best(queries: list[str], texts: list[str], k: int) -> list[tuple[int, int]]:
    left, right = (pd.DataFrame({"text": side}) for side in (queries, texts))
    found = left.simjoin.edit_join(right, "text", k, best=True)
    return list(zip(found["left"].tolist(), found["right"].tolist(), strict=True))


def _best_by_rapidfuzz(queries: list[str], texts: list[str], k: int) -> Any:
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    how = {"scorer": Levenshtein.distance, "score_cutoff": k}
    best = (process.extractOne(query, texts, **how) for query in queries)
    return [(row, found[2]) for row, found in enumerate(best) if found is not None]


def measure_best(few: int, many: int, k: int, repeat: int) -> dict[str, Any]:
    """Return medians of searches for the most similar text, whose pairs must be equal."""
    texts = names(PLACES)[:many]
    sides = with_errors(texts, few, 2), texts
    calls = {"ours": _best, "RapidFuzz": _best_by_rapidfuzz}
    matches, tools = measured(calls, (*sides, k), repeat)
    sizes = {"left": few, "right": len(texts), "k": k, "matches": matches}
    return sizes | {"tools": tools}


def measured(
    calls: dict[str, Callable[..., Any]], arguments: tuple[Any, ...], repeat: int
) -> tuple[int, dict[str, Any]]:
    """Return the number of pairs, and the CPU seconds of each tool. All tools must find
    the same pairs.
    """
    first, *others = [call(*arguments) for call in calls.values()]
    assert all(other == first for other in others), arguments[-1]
    tools: dict[str, Any] = {name: {"seconds": []} for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            gc.collect()
            began = time.process_time()
            call(*arguments)
            tools[name]["seconds"].append(round(time.process_time() - began, 4))
    for tool in tools.values():
        tool["median"] = statistics.median(tool["seconds"])
        tool["least"] = min(tool["seconds"])
    return len(first), tools


@dataclass(frozen=True)
class Peer:
    """A peer: its module with the reported version, its variants, and the rows where it
    is not run.
    """

    module: str
    distribution: str
    variants: dict[str, Join]
    skip: dict[str, str] = field(default_factory=dict)


_MANY_DIMS = ("expo16d", "expo32d", "expo64d")
_TREES = dict.fromkeys(
    _MANY_DIMS, "trees compare nearly all points with all: minutes (estimated)"
)
_FEW_DIMS = ("unif2d", "unif2d-small", "expo2d", "unif6d")
_BRUTE = dict.fromkeys(_FEW_DIMS, "compares all points with all: minutes (estimated)")
PEERS = {
    "scipy": Peer(
        "scipy",
        "scipy",
        {
            f"cKDTree.sparse_distance_matrix, leafsize {n}, {splits} splits": _matrix(
                n, splits == "median"
            )
            for n in (8, 16, 32)
            for splits in ("median", "midpoint")
        }
        | {"cKDTree.query_ball_point": _ball_point},
        _TREES,
    ),
    "sklearn": Peer(
        "sklearn", "scikit-learn", {"BallTree": _ball_tree, "KDTree": _kd_tree}, _TREES
    ),
    "sklearn-brute": Peer(
        "sklearn", "scikit-learn", {"brute force": _sklearn_brute}, _BRUTE
    ),
    "faiss": Peer(
        "faiss",
        "faiss-cpu",
        {f"IndexFlatL2, blocks of {n}": _faiss(n) for n in (4096, 16384)},
        _BRUTE,
    ),
}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.two_tables", description=__doc__
    )
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--matching", nargs="+", choices=ROWS, default=[])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of each tool (default 3)"
    )
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    return parser.parse_args()


def seconds_of(
    join: Join, sides: tuple[np.ndarray, np.ndarray], eps: float
) -> tuple[float, int]:
    """Return the CPU seconds of one run, and the number of pairs."""
    gc.collect()
    began = time.process_time()
    pairs = join(*sides, eps)
    return time.process_time() - began, pairs


def measure(name_of_row: str, peers: dict[str, Peer], repeat: int) -> dict[str, Any]:
    """Return medians, ratios and the tried settings of one data set."""
    row = ROWS[name_of_row]
    sides = row.points()
    some = (
        np.ascontiguousarray(sides[0][::PART]),
        np.ascontiguousarray(sides[1][::PART]),
    )
    joins: dict[str, Join] = {"ours": _ours, "ours-verb": _verb}
    tools: dict[str, dict[str, Any]] = {name: {} for name in joins}
    for join in joins.values():
        # the first call compiles and loads, which must not be timed
        join(*some, row.eps)
    # a larger distance gives as many neighbors as all points have
    larger = row.eps * PART ** (1 / row.dims)
    for name, peer in peers.items():
        if name_of_row in peer.skip:
            tools[name] = {"skipped": peer.skip[name_of_row]}
            continue
        tries = {
            label: round(seconds_of(join, some, larger)[0], 3)
            for label, join in peer.variants.items()
        }
        best = min(tries, key=lambda label: tries[label])
        tools[name] = {"variant": best, "tries": tries}
        if tries[best] * PART > PATIENCE:
            tools[name]["skipped"] = f"more than {tries[best] * PART:.0f} s"
        else:
            joins[name] = peer.variants[best]
    for _ in range(repeat):
        for name, join in joins.items():
            took, pairs = seconds_of(join, sides, row.eps)
            tools[name].setdefault("seconds", []).append(round(took, 3))
            tools[name]["pairs"] = pairs
            print(f"{name:14}{took:9.3f} s {pairs:12,}", file=sys.stderr, flush=True)
    for name in joins:
        tools[name]["median"] = statistics.median(tools[name]["seconds"])
    rivals = {
        name: tools[name]["median"] for name in joins if not name.startswith("ours")
    }
    best_peer = min(rivals, key=lambda name: rivals[name], default=None)
    ratios = {
        f"ratio_{name}": round(rivals[best_peer] / tools[name]["median"], 2)
        if best_peer
        else None
        for name in ("ours", "ours-verb")
    }
    sizes = {"left": row.left, "right": row.right, "dims": row.dims, "eps": row.eps}
    return sizes | {"best_peer": best_peer} | ratios | {"tools": tools}


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
        "unit": "CPU seconds of one core, index and join",
        "rows": {},
    }
    for name in options.rows:
        print(name, file=sys.stderr, flush=True)
        report["rows"][name] = measure(name, peers, options.repeat)
    if options.best:
        import rapidfuzz

        report["environment"]["versions"]["rapidfuzz"] = rapidfuzz.__version__
        report["best"] = [measure_best(*case, options.repeat) for case in BEST]
    if options.matching:
        report["matching"] = {
            name: measure_matching(name, options.repeat) for name in options.matching
        }
    write(report, options.output)


if __name__ == "__main__":
    main()
