"""``python -m benchmarks dask.estimates``: how good a plan's estimate is, and what
planning takes.

Each data set lies in parquet files of a temporary folder, one for each of 8 partitions.
A plan is timed alone, then the join of the planned pairs; its estimate is compared with
the true number. Some data sets are drawn again with other seeds, to see how often the
95 % interval holds the truth.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.judged import judged
from benchmarks.harness.lazy import (
    CORES,
    fresh,
    known,
    progress,
    quiet,
    rows_of,
    running,
    save,
    scratch,
    table,
    write_points,
)
from benchmarks.harness.points import PLACES, ROWS, SEED


@dataclass(frozen=True)
class Points:
    """A data set and a distance; `make` gives points (n, d) from a generator and n."""

    name: str
    make: Callable[[np.random.Generator, int], np.ndarray]
    n: int
    eps: float
    dims: int = 2

    def smaller(self, scale: float) -> Points:
        """Return fewer points, and a larger distance where it can follow their number."""
        fewer = max(1000, int(self.n * scale))
        eps = self.eps * (self.n / fewer) ** (1 / self.dims) if self.dims else self.eps
        return Points(self.name, self.make, fewer, eps, self.dims)


def _like(name: str, n: int | None = None) -> Points:
    """Return a row of the other benchmarks, at its density for any number of points."""
    row = ROWS[name]
    whole = Points(
        name,
        lambda random, rows: row.make(random, rows, row.dims),
        row.n,
        row.eps,
        row.dims,
    )
    return whole if n is None else whole.smaller(n / row.n)


def _uniform3(random: np.random.Generator, n: int) -> np.ndarray:
    return random.uniform(0, 100, (n, 3))


def _sorted(random: np.random.Generator, n: int) -> np.ndarray:
    """Sort by the first coordinate, so that partitions are strips."""
    points = random.uniform(0, 100, (n, 2))
    return points[np.argsort(points[:, 0])]


def _lattice(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw whole numbers: about 15 points are equal, and many distances equal the
    threshold.
    """
    return random.integers(0, math.isqrt(n // 15), (n, 2)).astype(float)


def _skewed(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw half of the points everywhere, and half of them in a cell of a 2,500th of
    the area.
    """
    points = random.uniform(0, 100, (n, 2))
    dense = random.random(n) < 0.5
    points[dense] = 70 + points[dense] / 50
    return points


def _neighbors(n: float, wanted: float, dims: int) -> float:
    """Return the distance within which `n` uniform points in a cube of side 100 have
    `wanted` neighbors.
    """
    unit = {2: math.pi, 3: 4 / 3 * math.pi}[dims]
    return float(100 * (wanted / (n * unit)) ** (1 / dims))


def data_sets(places: np.ndarray | None) -> list[Points]:
    """Return all data sets; real places only if their file is there."""
    found = [
        _like("unif2d"),
        Points("unif3d", _uniform3, 1_000_000, _neighbors(1e6, 6, 3), 3),
        _like("unif6d"),
        _like("expo2d"),
        _like("expo16d", 100_000),
        _like("clus8d"),
        Points("lattice", _lattice, 500_000, 1.0, 0),  # grows with n as it is
        Points("skewed", _skewed, 400_000, _neighbors(2e5, 0.2, 2)),
        Points("sorted2d", _sorted, 1_000_000, _neighbors(1e6, 12.5, 2)),
    ]
    if places is not None:
        some = [(f"places {eps}", eps) for eps in (0.005, 0.05, 0.2)]
        found += [
            Points(name, lambda _, n: places[:n], len(places), eps)
            for name, eps in some
        ]
    return found


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.estimates", description=__doc__
    )
    parser.add_argument("--sets", nargs="*", help="names of data sets (default: all)")
    parser.add_argument(
        "--places",
        type=Path,
        default=PLACES,
        help="parquet file with latitude and longitude (default: the example's)",
    )
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the numbers of points"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--coverage",
        nargs="*",
        default=["unif2d", "expo2d", "clus8d"],
        help="sets that are drawn with other seeds, too",
    )
    parser.add_argument("--seeds", type=int, default=20, help="how many (default 20)")
    parser.add_argument(
        "--workers",
        type=int,
        default=0,
        help="processes of a LocalCluster; 0: threads of this one (default)",
    )
    parser.add_argument(
        "--threads", type=int, default=CORES, help=f"if there are no workers ({CORES})"
    )
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def measure(one: Points, folder: Path, partitions: int, repeat: int) -> dict[str, Any]:
    """Return medians of planning and of joining, and the estimate with the true number."""
    points = one.make(np.random.default_rng(SEED), one.n)
    data = folder / one.name.replace(" ", "-")
    write_points(data, points, partitions)
    on = [f"x{k}" for k in range(points.shape[1])]
    # compiles or loads here, so that the first run does not
    pd.DataFrame(points[:2000], columns=on).simjoin.self_join(one.eps)
    true = int(fresh(data).simjoin.count_pairs(one.eps, on=on).compute())
    planning, joining = [], []
    for _ in range(repeat):
        pairs = fresh(data).simjoin.self_join(one.eps, on=on, id="id")
        began = time.perf_counter()
        outputs = pairs.npartitions
        planned = time.perf_counter()
        joined = int(rows_of(pairs).compute())
        joining.append(time.perf_counter() - planned)
        planning.append(planned - began)
        plan = pairs.expr.plan
        if joined != true:
            raise AssertionError(
                f"{one.name}: joined {joined:,} pairs, counted {true:,}"
            )
    return {
        "name": one.name,
        "rows": len(points),
        "dims": points.shape[1],
        "eps": one.eps,
        "planning": statistics.median(planning),
        "joining": statistics.median(joining),
        "runs": {"planning": planning, "joining": joining},
        "plan": repr(plan),
        "outputs": outputs,
    } | judged(plan.result.estimate, true)


def cover(one: Points, partitions: int, seeds: int) -> dict[str, Any]:
    """Count how often the interval holds the true number of pairs, for points of other
    seeds.
    """
    runs = []
    for seed in range(seeds):
        frame = pd.DataFrame(
            one.make(np.random.default_rng((SEED, seed)), one.n)
        ).rename(columns="x{}".format)
        true = int(frame.simjoin.count_pairs(one.eps))
        pairs = dd.from_pandas(frame, npartitions=partitions).simjoin.self_join(one.eps)
        runs.append(judged(pairs.expr.plan.result.estimate, true))
    factors = [run["factor"] for run in runs]
    return {
        "name": one.name,
        "seeds": seeds,
        "held": sum(run["holds"] for run in runs),
        "factors": [min(factors), statistics.median(factors), max(factors)],
        "deviation": statistics.pstdev(factors),
        # of an interval that was neither too wide nor too narrow: 1.96 standard
        # deviations
        "half_width": statistics.median(
            (run["high"] - run["low"]) / 2 / run["true"] for run in runs
        ),
        "runs": runs,
    }


def _print(found: list[dict[str, Any]], covered: list[dict[str, Any]]) -> None:
    head = [
        "data",
        "rows",
        "dims",
        "true pairs",
        "estimate",
        "factor",
        "low",
        "high",
        "holds",
        "sampled",
    ]
    head += ["planning s", "joining s", "ratio", "plan"]
    lines = []
    for one in found:
        cells = [one[k] for k in ("name", "rows", "dims", "true")] + [
            round(one["estimate"]),
            one["factor"],
        ]
        cells += [round(one["low"]), round(one["high"]), one["holds"], one["sampled"]]
        cells += [one["planning"], one["joining"], one["planning"] / one["joining"]]
        lines.append([*cells, one["plan"].split(", ", 1)[1].rstrip(">")])
    if lines:
        print(table(head, lines))
    if covered:
        print(
            "\nOther seeds: how often the interval held the truth; estimates by the "
            "truth"
        )
        head = [
            "data",
            "seeds",
            "held",
            "least",
            "median",
            "most",
            "deviation",
            "half width",
        ]
        print(
            table(
                head,
                [
                    [
                        one["name"],
                        one["seeds"],
                        one["held"],
                        *one["factors"],
                        one["deviation"],
                        one["half_width"],
                    ]
                    for one in covered
                ],
            )
        )


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    places = None
    if options.places.exists():
        columns = ["latitude", "longitude"]
        places = pd.read_parquet(options.places, columns=columns).to_numpy(dtype=float)
    sets = {one.name: one for one in data_sets(places)}
    if options.scale != 1:
        sets = {name: one.smaller(options.scale) for name, one in sets.items()}
    chosen = list(sets) if options.sets is None else options.sets
    unknown = sorted({*chosen, *options.coverage} - set(sets))
    if unknown:
        print(f"No such data sets: {unknown}; there are {list(sets)}.", file=sys.stderr)
        return 2
    where = known()
    found, covered = [], []
    with (
        scratch(options.folder) as folder,
        running(options.workers, threads=options.threads),
    ):
        for name in chosen:
            found.append(
                measure(sets[name], folder, options.partitions, options.repeat)
            )
            progress(f"{name}: {found[-1]['factor']:.3f}, {found[-1]['plan']}")
        for name in options.coverage:
            covered.append(cover(sets[name], options.partitions, options.seeds))
            progress(f"{name}: {covered[-1]['held']} of {options.seeds}")
    _print(found, covered)
    save(
        "estimates",
        where,
        options,
        {"sets": found, "coverage": covered},
        options.output,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
