"""Joins of difficult random rows on a GPU against brute force: `python -m
tests.checks.gpu_cases`.

``--cases 5000 --seed 0`` runs many, and ``--seed 0 --case 17`` runs one. Each case
joins one chunk with itself, or two chunks with themselves and with each other. It
compares pairs, distances and counts with the definition. `eps` is the distance of two
rows, or differs from it by one unit in the last place. The kernels of each number of
columns take seconds to compile. To share the work, give several processes different
``--dims``.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import time
import traceback
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.index.gpu import ENGINES
from tests.support.gpu_kernels import layout_for
from tests.support.oracle import squared_distances
from tests.support.points import KINDS, a_distance, make_points

DIMS = (
    1,
    2,
    3,
    5,
    8,
    9,
    12,
    16,
    17,
    24,
    31,
    32,
    48,
    64,
    100,
    128,
    200,
    250,
    251,
    384,
    768,
    1024,
    1536,
    2048,
)
"""Numbers of columns around which other kernels, or other parts of them, are used."""


def rows_of(rng: np.random.Generator, dims: int) -> tuple[str, np.ndarray]:
    """Draw rows (n, dims) and the name of their kind; rows that overflow are drawn
    anew.
    """
    n = int(rng.choice([2, 60, 129, 300] if dims > 250 else [2, 60, 129, 300, 700]))
    kind, dtype = str(rng.choice(KINDS)), rng.choice(["f8", "f8", "f4"])
    with np.errstate(over="ignore", under="ignore"):
        x = make_points(kind, n, dims, rng).astype(dtype)
    if not np.isfinite(x).all():
        return "uniform", make_points("uniform", n, dims, rng)
    return kind, x.astype(np.float64)


def joined(
    parts: list[Any], starts: list[int], layout: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join all chunks with themselves and each other; return pairs (m, 2), distances,
    and counts of rows.
    """
    pairs, distances = [np.empty((0, 2), np.int64)], [np.empty(0)]
    counts = np.zeros(starts[-1], np.int64)
    for i, one in enumerate(parts):
        for j, other in enumerate(parts[i:], i):
            found = JOINER.pairs(
                one, other, layout, is_self_join=i == j, distance=cupy.sqrt
            )
            places = (
                cupy.stack([found.left, found.right], axis=1).astype(cupy.int64).get()
            )
            pairs.append(places + np.array([starts[i], starts[j]]))
            distances.append(found.distance.get())
            sides = JOINER.counts(one, other, layout, is_self_join=i == j)
            for side, count in zip((i, j), sides, strict=False):
                counts[starts[side] : starts[side + 1]] += count.get()
    return np.concatenate(pairs), np.concatenate(distances), counts


def run_case(rng: np.random.Generator, dims: int) -> collections.Counter[str]:
    """Compare one random join with the definition; return what it covers."""
    kind, x = rows_of(rng, dims)
    n, engine = len(x), str(rng.choice(["auto", *ENGINES]))
    total = squared_distances(x, x)
    ulps = int(rng.integers(-1, 2))
    eps = a_distance(
        x, rng, float(rng.choice([0.0, 0.001, 0.01, 0.1, 0.5, 1.0])), ulps, total
    )
    layout = layout_for(x, eps, engine)
    cut = int(rng.integers(1, n)) if rng.integers(2) else n
    starts = [0, cut] if cut == n else [0, cut, n]
    columns = cupy.asfortranarray(cupy.asarray(x))
    parts = [
        JOINER.build(cupy.asfortranarray(columns[a:b]), layout)
        for a, b in itertools.pairwise(starts)
    ]
    pairs, distances, counts = joined(parts, starts, layout)
    near = np.triu(total <= eps * eps, 1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    assert np.array_equal(pairs[order], np.argwhere(near)), "pairs"
    assert np.array_equal(distances[order], np.sqrt(total[near])), "distances"
    assert np.array_equal(counts, near.sum(0) + near.sum(1)), "counts"
    return collections.Counter(
        {
            f"columns={dims:4d}": 1,
            f"rows={kind}": 1,
            f"engine={layout.engine}": 1,
            f"ulps={ulps}": 1,
            f"chunks={len(parts)}": 1,
            "pairs": len(pairs),
        }
    )


def main() -> int:
    """Run the cases that the command line names; print counts, and return 1 if one is
    wrong.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument(
        "--dims",
        type=int,
        nargs="+",
        default=DIMS,
        help="numbers of columns, taken in turn",
    )
    wanted = parser.parse_args()
    covered: collections.Counter[str] = collections.Counter()
    cases = range(wanted.cases) if wanted.case is None else [wanted.case]
    wrong, start = 0, time.perf_counter()
    for case in cases:
        dims = wanted.dims[case % len(wanted.dims)]
        try:
            covered += run_case(np.random.default_rng([wanted.seed, dims, case]), dims)
        except Exception:
            wrong += 1
            print(
                f"--- WRONG: --seed {wanted.seed} --dims {dims} --case "
                f"{case}\n{traceback.format_exc()}",
                flush=True,
            )
    for what, number in sorted(covered.items()):
        print(f"{number:9,d} {what}")
    print(
        f"{len(cases):,} cases of seed {wanted.seed}, {wrong} wrong, "
        f"{time.perf_counter() - start:.0f} s"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
