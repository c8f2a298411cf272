"""The peers: each a way to find all pairs within a distance, used as well as we know
how.

Peers keep what they return: nothing is converted while the clock runs, pairs are
counted later. Options and the rows that are left out are from measurements of the
versions in `results/`.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness.points import ROWS, Row
from benchmarks.harness.timing import Join, Tool

_ONLY_2D = {
    name: "a grid in 2 dimensions only" for name, row in ROWS.items() if row.dims > 2
}
_BRUTE_FORCE = "compares all points with all: minutes (estimated)"


def _scipy(row: Row) -> dict[str, Join]:
    from scipy.spatial import cKDTree

    def join(leafsize: int, balanced: bool) -> Join:
        how = {
            "leafsize": leafsize,
            "balanced_tree": balanced,
            "compact_nodes": balanced,
        }
        return lambda x, eps: cKDTree(x, **how).query_pairs(eps, output_type="ndarray")

    # midpoint splits win in 2 dimensions and on clusters, medians on uniform data
    tried = {2: ((8, False), (16, False), (32, False), (16, True)), 6: ((16, True),)}
    options = tried.get(row.dims, ((32, False), (64, False), (128, False)))
    return {
        f"leafsize {n}, {'median' if b else 'midpoint'} splits": join(n, b)
        for n, b in options
    }


def _sklearn(row: Row) -> dict[str, Join]:
    from sklearn.neighbors import BallTree, NearestNeighbors

    def ball(x: np.ndarray, eps: float) -> Any:
        return BallTree(x, leaf_size=100 if row.dims == 8 else 40).query_radius(x, eps)

    def brute(x: np.ndarray, eps: float) -> Any:
        searcher = NearestNeighbors(algorithm="brute").fit(x)
        return searcher.radius_neighbors(x, eps, return_distance=False)

    return {"BallTree": ball} if row.dims <= 8 else {"brute force": brute}


def _count_sklearn(found: np.ndarray) -> int:
    """Count each pair once.  Each row found itself, and each pair was found from both
    sides.
    """
    return (sum(map(len, found)) - len(found)) // 2


def _faiss(row: Row) -> dict[str, Join]:
    import faiss

    faiss.omp_set_num_threads(1)

    def search(
        rows: int, x: np.ndarray, eps: float
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        z = np.ascontiguousarray(x - x.mean(axis=0), dtype=np.float32)
        index = faiss.IndexFlatL2(z.shape[1])
        found = []
        # blocks search earlier blocks only, which is half of the work
        for start in range(0, len(z), rows):
            block = z[start : start + rows]
            index.add(block)
            limits, _, places = index.range_search(block, eps * eps)
            found.append((limits, places))
        return found

    # blocks of 4,096 are up to 4 times as slow in 16 dimensions, and the best in more
    sizes = (8192, 16384) if row.dims <= 16 else (4096, 8192)
    return {
        f"IndexFlatL2, blocks of {rows}": functools.partial(search, rows)
        for rows in sizes
    }


def _count_faiss(found: list[tuple[np.ndarray, np.ndarray]]) -> int:
    pairs = start = 0
    for limits, places in found:
        rows = len(limits) - 1
        hits = (limits[1:] - limits[:-1]).astype(np.int64)
        own = np.repeat(np.arange(start, start + rows), hits)
        pairs += int((places < own).sum())
        start += rows
    return pairs


def _vesin(row: Row) -> dict[str, Join]:
    from vesin import NeighborList

    def join(x: np.ndarray, eps: float) -> Any:
        points = np.zeros((len(x), 3))
        # doubling is exact; with 0.4 for 0.2 it is a third faster, and with 0.8 it
        # crashes
        np.multiply(x, 2.0, out=points[:, : x.shape[1]])
        search = NeighborList(
            cutoff=2 * eps, full_list=False, algorithm="cell_list", n_threads=1
        )
        return search.compute(points, np.zeros((3, 3)), False, "P")[0]

    return {"cell list": join}


_SQL = """
SELECT a.i AS "left", b.i AS "right"
FROM (
    SELECT i, x, y, cx + dx AS cx, cy + dy AS cy, dx = 0 AND dy = 0 AS own
    FROM cells, (VALUES (0, 0), (0, 1), (1, -1), (1, 0), (1, 1)) AS steps(dx, dy)
) AS a
JOIN cells AS b ON a.cx = b.cx AND a.cy = b.cy
WHERE (a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) <= ?::DOUBLE AND (NOT a.own OR a.i < b.i)
"""


def _duckdb(row: Row) -> dict[str, Join]:
    import duckdb

    def join(x: np.ndarray, eps: float) -> dict[str, np.ndarray]:
        with duckdb.connect() as base:
            base.execute("SET threads = 1")
            columns = {
                "i": np.arange(len(x), dtype=np.int32),
                "x": x[:, 0].copy(),
                "y": x[:, 1].copy(),
            }
            base.register("points", columns)
            # neighbors are at most in the next cell
            wide = repr(float(eps * (1 + 1e-9)))
            base.execute(
                "CREATE TEMP TABLE cells AS SELECT i, x, y, "
                f"floor(x / {wide})::INT AS cx, floor(y / {wide})::INT AS cy FROM "
                "points"
            )
            return base.execute(_SQL, [float(eps * eps)]).fetchnumpy()

    return {"grid of eps-wide cells": join}


PEERS = {
    "scipy": Tool(
        "scipy",
        _scipy,
        len,
        "scipy",
        "scipy",
        skip={"expo16d": "84 s", "expo32d": "about 55 s", "expo64d": "about 100 s"},
    ),
    "sklearn": Tool(
        "sklearn",
        _sklearn,
        _count_sklearn,
        "sklearn",
        "scikit-learn",
        inexact=frozenset(("expo16d", "expo32d", "expo64d")),
        skip={"expo16d": "74 s"},
    ),
    "faiss": Tool(
        "faiss",
        _faiss,
        _count_faiss,
        "faiss",
        "faiss-cpu",
        tune_on=2,
        inexact=frozenset(ROWS),
        skip=dict.fromkeys(("unif2d", "expo2d", "unif6d"), _BRUTE_FORCE),
    ),
    "vesin": Tool(
        "vesin",
        _vesin,
        len,
        "vesin",
        "vesin",
        skip=dict.fromkeys(_ONLY_2D, "3 dimensions at most")
        | {
            "expo2d": "minutes; 10 s with coordinates times 2**9, and it crashes with 2**10"
        },
    ),
    "duckdb": Tool(
        "duckdb",
        _duckdb,
        lambda found: len(found["left"]),
        "duckdb",
        "duckdb",
        skip=_ONLY_2D,
    ),
}


def installed(names: list[str]) -> Iterator[Tool]:
    """Return the named peers that can be imported."""
    return (
        PEERS[name]
        for name in names
        if importlib.util.find_spec(PEERS[name].module) is not None
    )
