"""``python -m benchmarks dask.coverage``: how often a plan's 95 % interval holds the
true number of pairs.

There are some 250 layouts: data sets and distances, with rows in a random order or
sorted, in few partitions or many.  Rows are joined with themselves or with a smaller
table.  Each join is planned in this process, and the pairs are counted.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.judged import judged
from benchmarks.harness.lazy import known, progress, quiet, save, table
from benchmarks.harness.points import PLACES, ROWS, SEED
from dask_simjoin.planning.outputs import COUNTS
from dask_simjoin.planning.partition import RIGHT, summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest

PARTITIONS = 1, 5, 40, 400


@dataclass(frozen=True)
class Kind:
    """A kind of data; `make` gives points (n, d) from a generator and n."""

    name: str
    make: Callable[[np.random.Generator, int], np.ndarray]
    n: int
    distances: tuple[float, ...]
    metric: str = "euclidean"


@dataclass(frozen=True)
class Layout:
    """The order and number of partitions of a data set."""

    partitions: int
    ordered: bool
    two: bool


def _generated(name: str) -> Callable[[np.random.Generator, int], np.ndarray]:
    row = ROWS[name]
    return lambda random, n: row.make(random, n, row.dims)


def _core(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw points with one of 500 in a small spot, which gives nearly all of the pairs."""
    points = random.uniform(0, 100, (n, 2))
    points[: n // 500] = 50 + points[: n // 500] / 1000
    return points


def _repeated(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw places: some are listed once, and some a hundred times or more."""
    places = random.uniform(0, 100, (n // 2, 2))
    return places[(n // 2 * random.random(n) ** 4).astype(int)]


def kinds(places: np.ndarray | None) -> list[Kind]:
    """Return all data sets; real places only if their file is there."""
    found = [
        Kind("unif2d", _generated("unif2d"), 200_000, (0.03, 0.2, 1.0)),
        Kind("unif6d", _generated("unif6d"), 50_000, (10.0, 16.0)),
        Kind("expo2d", _generated("expo2d"), 100_000, (0.0001, 0.0007)),
        Kind("expo16d", _generated("expo16d"), 20_000, (0.045, 0.06)),
        Kind("clus8d", _generated("clus8d"), 50_000, (0.4, 0.6)),
        Kind("core", _core, 100_000, (0.02, 0.3)),
        Kind("repeated", _repeated, 100_000, (0.0, 0.05)),
    ]
    if places is not None:
        found.append(
            Kind(
                "places",
                lambda _, n: places[:n],
                len(places),
                (500.0, 5e3, 2e4),
                "haversine",
            )
        )
    return found


def layouts() -> Iterator[Layout]:
    """Return all layouts."""
    for partitions, ordered, two in itertools.product(
        PARTITIONS, (False, True), (False, True)
    ):
        yield Layout(partitions, ordered, two)


def ways(kind: Kind, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a plan's estimate and the true number, for every distance and layout."""
    random = np.random.default_rng((SEED, seed))
    points = kind.make(random, kind.n)
    other = points[random.choice(len(points), len(points) // 4, replace=False)]
    if kind.metric == "euclidean":
        other = other + random.normal(size=other.shape) * kind.distances[0]
    else:
        other = np.clip(
            other + random.normal(size=other.shape) / 200, [-90, -180], [90, 180]
        )
    for eps in kind.distances:
        frames = [_frame(kind, some) for some in (points, other)]
        options = {"metric": kind.metric}
        true = (
            int(frames[0].simjoin.count_pairs(eps, **options)),
            int(frames[0].simjoin.join(frames[1], eps, **options).shape[0]),
        )
        for layout in layouts():
            sides = [_laid(frame, layout, random) for frame in frames]
            began = time.perf_counter()
            estimate = _planned(sides, eps, kind.metric, layout)
            if estimate.sampled >= kind.n:
                continue  # all rows are the sample, so the estimate is the true number
            yield {
                "name": kind.name,
                "eps": eps,
                "seed": seed,
                "rows": kind.n,
                "partitions": layout.partitions,
                "ordered": layout.ordered,
                "two": layout.two,
                "seconds": time.perf_counter() - began,
            } | judged(estimate, true[layout.two])


def _frame(kind: Kind, points: np.ndarray) -> pd.DataFrame:
    names = ["latitude", "longitude"] if kind.metric == "haversine" else None
    return pd.DataFrame(points, columns=names).rename(columns="{}".format)


def _laid(
    frame: pd.DataFrame, layout: Layout, random: np.random.Generator
) -> list[pd.DataFrame]:
    if layout.ordered:
        frame = frame.sort_values(frame.columns[0], ignore_index=True)
    else:
        frame = frame.iloc[random.permutation(len(frame))].reset_index(drop=True)
    cuts = np.linspace(0, len(frame), layout.partitions + 1).astype(int)
    return [frame.iloc[a:b] for a, b in itertools.pairwise(cuts)]


def _planned(
    sides: list[list[pd.DataFrame]], eps: float, metric: str, layout: Layout
) -> Any:
    """Return the estimate of a plan of these partitions."""
    spec: Any
    left, right = (side[0].iloc[:0] for side in sides)
    options = {"metric": metric, "on": list(left.columns)}
    if not layout.two:
        spec = SelfJoinRequest(eps=eps, **options).spec(left)
        parts = [
            summarise(part, k, spec, False, layout.partitions)
            for k, part in enumerate(sides[0])
        ]
        return make_plan(join_statistics([parts], spec), COUNTS).result.estimate
    spec = JoinRequest(other=right, eps=eps, **options).spec(left, right)
    parts, others = (
        [
            summarise(part, first + k, own, False, layout.partitions)
            for k, part in enumerate(side)
        ]
        for first, own, side in zip((0, RIGHT), (spec, spec.other), sides, strict=True)
    )
    return make_plan(join_statistics([parts, others], spec), COUNTS).result.estimate


def summed(runs: list[dict[str, Any]]) -> list[list[Any]]:
    """Return for each group of layouts their number, how often the interval held, and
    its width.
    """
    groups = {"all": runs}
    for run in runs:
        names = [run["name"], "two tables" if run["two"] else "self-joins"]
        names += [
            "sorted" if run["ordered"] else "shuffled",
            f"{run['partitions']} partitions",
        ]
        for name in names:
            groups.setdefault(name, []).append(run)
    lines = []
    for name, some in groups.items():
        held = sum(run["holds"] for run in some)
        above = sum(run["true"] > run["high"] + 1 for run in some)
        wide = [run["high"] / max(run["low"], 1.0) for run in some]
        off = [abs(run["factor"] - 1) for run in some if run["factor"] is not None]
        lines.append(
            [
                name,
                len(some),
                held,
                100 * held / len(some),
                above,
                float(np.median(wide)),
                float(np.median(off)),
                max(off),
            ]
        )
    return lines


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.coverage", description=__doc__
    )
    parser.add_argument("--sets", nargs="*", help="names of data sets (default: all)")
    parser.add_argument(
        "--places",
        type=Path,
        default=PLACES,
        help="parquet file with latitude and longitude (default: the example's)",
    )
    parser.add_argument(
        "--seeds", type=int, default=1, help="how often each is drawn (default 1)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the numbers of points"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    options = parser.parse_args()
    places = None
    if options.places.exists():
        columns = ["latitude", "longitude"]
        places = pd.read_parquet(options.places, columns=columns).to_numpy(dtype=float)
    where = known()
    runs: list[dict[str, Any]] = []
    for kind in kinds(places):
        if options.sets is not None and kind.name not in options.sets:
            continue
        kind = Kind(
            kind.name,
            kind.make,
            max(1000, int(kind.n * options.scale)),
            kind.distances,
            kind.metric,
        )
        for seed in range(options.seeds):
            runs += ways(kind, seed)
        own = [run["holds"] for run in runs if run["name"] == kind.name]
        progress(f"{kind.name}: {sum(own)} of {len(own)}")
    head = [
        "layouts",
        "number",
        "held",
        "%",
        "too low",
        "high / low",
        "median error",
        "largest error",
    ]
    lines = summed(runs)
    print(table(head, lines))
    save(
        "coverage",
        where,
        options,
        {
            "summary": [dict(zip(head, line, strict=True)) for line in lines],
            "runs": runs,
        },
        options.output,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
