"""Random nearest-neighbor joins with ties, plain and lazy, against brute force.

``python -m tests.checks.neighbor_cases --cases 2000 --seed 0`` compares `knn_join` with
its definition for all values of `how`, and with `min_distance`, `max_distance`, `by`,
`within`, `different` and `mutual`. ``--start 500`` begins at another case, and ``--case 17`` runs a single
one. Each case has rows at equal distances of a row.
"""

from __future__ import annotations

import argparse
import collections
import math
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import dask
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (registers the accessor)
from tests.support.exact import distance_of, is_distance, threshold, totals
from tests.support.frames import split
from tests.support.metrics import ENGINE, make_rows
from tests.support.points import without_overflow

RANGES = [(None, 0), (-1, 1), (0, None), (-2, -1), (1, 1)]
"""Of the times of a row's neighbors, relative to its own."""

METRICS = [("euclidean", 2), *ENGINE, ("minkowski", 4), ("minkowski", math.inf)]
HOW = ("inner", "left", "leftanti")
COLUMNS = ["left", "right", "rank"]

Case = collections.Counter[str]
"""What a case covers, to be counted."""


def tied_rows(
    metric: str, rows: int, dims: int, rng: np.random.Generator
) -> np.ndarray:
    """Return rows (rows, dims) of a metric, with many equal ones."""
    x = without_overflow(make_rows(metric, max(1, 2 * rows // 3), dims, rng), 3)
    return x[rng.integers(0, len(x), rows)]


def a_distance(
    rng: np.random.Generator, total: np.ndarray, metric: str, p: float
) -> float:
    """Return a distance that occurs, or a float64 number next to it."""
    found = total[np.isfinite(total)]
    far = distance_of(metric, p, float(rng.choice(found))) if len(found) else 1.0
    far = min(far, 1e100)
    return max(
        0.0,
        float(
            rng.choice(
                [far, far, math.nextafter(far, 0), math.nextafter(far, math.inf)]
            )
        ),
    )


def has_ties(total: np.ndarray) -> bool:
    """Return whether a row has two other rows at equal distances."""
    return any(len(np.unique(row)) < len(row) for row in total)


def by_definition(
    total: np.ndarray, allowed: np.ndarray, k: int
) -> list[tuple[int, int, int]]:
    """Return (left, right, rank) of the k nearest allowed rows; the first row wins
    ties.
    """
    found = []
    for i in range(len(total)):
        order = sorted(
            np.flatnonzero(allowed[i]).tolist(), key=lambda j: (total[i, j], j)
        )
        found += [(i, j, rank + 1) for rank, j in enumerate(order[:k])]
    return found


def frames_of(
    x: np.ndarray,
    group: np.ndarray,
    time: np.ndarray,
    first: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return a table with labels in no order."""
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])])
    return frame.assign(g=group, t=time).set_index(rng.permutation(len(x)) + first)


def partitions(frame: pd.DataFrame, number: int, rng: np.random.Generator) -> Any:
    """Return the table as a Dask DataFrame with partitions of any sizes, also empty
    ones.
    """
    return split(frame, rng.integers(0, len(frame) + 1, number - 1).tolist())


def run_case(rng: np.random.Generator) -> Case:
    """Compare one random join with its definition; return what it covers."""
    metric, p = METRICS[rng.integers(len(METRICS))]
    dims, k = int(rng.integers(1, 10)), int(rng.choice([1, 2, 3, 7, 60]))
    two, how = bool(rng.integers(2)), HOW[rng.integers(3)]
    total = np.zeros((0, 0))
    while not has_ties(total):
        x = tied_rows(metric, int(rng.integers(3, 60)), dims, rng)
        cut = int(rng.integers(1, len(x))) if two else len(x)
        y = x[cut:] if two else x
        total = totals(x[:cut], y, metric, p)
    group, time = rng.integers(0, 3, len(x)), rng.integers(0, 6, len(x))
    left = frames_of(x[:cut], group[:cut], time[:cut], 0, rng)
    right = frames_of(x[cut:], group[cut:], time[cut:], 1000, rng) if two else None
    allowed = np.ones(total.shape, bool) if two else ~np.eye(len(x), dtype=bool)
    options: dict[str, Any] = {
        "on": left.columns[:-2].tolist(),
        "metric": metric,
        "p": p,
        "how": how,
    }
    bounds = sorted(a_distance(rng, total, metric, p) for _ in range(2))
    use = rng.integers(0, 2, 2).tolist()
    if use[0]:
        options["min_distance"] = bounds[0]
        # the largest total of a smaller distance
        nearer = threshold(metric, p, math.nextafter(bounds[0], 0.0))
        allowed &= total > (nearer if bounds[0] else -1.0)
    if use[1]:
        options["max_distance"] = bounds[1]
        allowed &= total <= threshold(metric, p, bounds[1])
        if rng.random() < 0.2 and bounds[1] < 1e100:
            options["by"] = "g"
            allowed &= group[:cut, None] == (group[cut:] if two else group)
    if rng.random() < 0.3:
        below, above = RANGES[rng.integers(len(RANGES))]
        options["within"] = {"t": (below, above)}
        later = time[cut:] if two else time
        apart = later - time[:cut, None]  # of the neighbor and the row itself
        allowed &= (apart >= (-math.inf if below is None else below)) & (
            apart <= (math.inf if above is None else above)
        )
    if "by" not in options and rng.random() < 0.2:
        options["different"] = "g"
        allowed &= group[:cut, None] != (group[cut:] if two else group)
    directed = "within" in options and options["within"]["t"] != (-1, 1)
    if how == "inner" and rng.random() < 0.2 and not directed:
        options["mutual"] = True
    pairs = by_definition(total, allowed, k)
    if "mutual" in options:
        back = {(i, j) for j, i, _ in by_definition(total.T, allowed.T, k)}
        pairs = [pair for pair in pairs if pair[:2] in back]
    number = int(rng.integers(1, 6))
    lazy = [
        None if one is None else partitions(one, number, rng) for one in (left, right)
    ]
    chunks = {"partitioning": str(rng.choice(["auto", "entity", "spatial"]))}
    chunks["blocksize"] = rng.choice([None, 12 * (8 * x.shape[1] + 80 + 32 * k)])
    results = [
        left.simjoin.knn_join(right, k, **options),
        lazy[0].simjoin.knn_join(lazy[1], k, **options, **chunks).compute(),
    ]
    data = left if right is None else right
    for found in results:
        _compare(found, pairs, left, data, how)
        if how != "leftanti":
            _compare_distances(found, pairs, left, total, metric, p)
    name = f"metric={metric}" + (f", p={p}" if metric == "minkowski" else "")
    covered = collections.Counter([f"how={how}", name, f"partitions={number}"])
    covered += collections.Counter(
        one
        for one in (
            "min_distance",
            "max_distance",
            "by",
            "within",
            "different",
            "mutual",
        )
        if one in options
    )
    covered["pairs"] = len(pairs)
    return covered


def _compare(
    found: pd.DataFrame,
    pairs: list[tuple[int, int, int]],
    left: pd.DataFrame,
    right: pd.DataFrame,
    how: str,
) -> None:
    """Compare a result with the pairs of the definition."""
    alone = sorted(set(range(len(left))) - {i for i, _, _ in pairs})
    if how == "leftanti":
        pd.testing.assert_frame_equal(found, left.iloc[alone])
        return
    names, others = left.index.tolist(), right.index.tolist()
    want = [(names[i], others[j], rank) for i, j, rank in pairs]
    if how == "left":
        want += [(names[i], None, None) for i in alone]
        assert found["distance"].isna().sum() == len(alone)
    rows = zip(*(found[name].tolist() for name in COLUMNS), strict=True)
    got = [tuple(None if pd.isna(value) else value for value in row) for row in rows]
    place = {name: n for n, name in enumerate(names)}
    assert sorted(got, key=lambda row: (place[row[0]], row[2] or 0)) == sorted(
        want, key=lambda row: (place[row[0]], row[2] or 0)
    )


def _compare_distances(
    found: pd.DataFrame,
    pairs: list[tuple[int, int, int]],
    left: pd.DataFrame,
    total: np.ndarray,
    metric: str,
    p: float,
) -> None:
    """Check that the distance of each pair is the smallest one that finds it."""
    place = {name: i for i, name in enumerate(left.index.tolist())}
    totals_of = {(i, rank): total[i, j] for i, j, rank in pairs}
    some = found.dropna(subset="distance")
    for name, rank, away in zip(
        some["left"], some["rank"], some["distance"], strict=True
    ):
        own = float(totals_of[place[name], rank])
        assert is_distance(metric, p, own, away), (name, rank, away)


def run_all(about: str | None, run: Callable[[np.random.Generator], Case]) -> int:
    """Run the cases that the command line names; print counts, and return 1 if one is
    wrong.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--case", type=int)
    wanted = parser.parse_args()
    first = wanted.start
    cases = range(first, first + wanted.cases) if wanted.case is None else [wanted.case]
    covered: Case = collections.Counter()
    wrong, start = 0, time.perf_counter()
    for case in cases:
        try:
            with dask.config.set(scheduler="sync"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                covered += run(np.random.default_rng([wanted.seed, case]))
        except Exception:
            wrong += 1
            print(
                f"--- WRONG: --seed {wanted.seed} --case "
                f"{case}\n{traceback.format_exc()}",
                flush=True,
            )
    for what, number in sorted(covered.items()):
        print(f"{number:9,d} {what}")
    print(
        f"{len(cases):,} cases of seed {wanted.seed} from {first}, {wrong} wrong, "
        f"{time.perf_counter() - start:.0f} s"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(run_all(__doc__, run_case))
