"""``python -m benchmarks cpu.plan_intervals``: how often a plan's interval holds the
true number of pairs.

Each setting is drawn at random: the kind of data, dimensions, rows, distance, metric,
groups, one table or two, and their partitions.  Plans that counted the pairs are summed
apart, and must be exact.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.judged import judged
from benchmarks.harness.lazy import known, progress, quiet, save, table
from benchmarks.harness.points import PLACES, SEED

Random = np.random.Generator

DIMS = 1, 2, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64
"""Dimensions to draw from; two dimensions are the most common case."""

ROWS = 2_000, 300_000
"""Range of the number of rows."""

MAX_WORK = 3e11
"""Largest number of compared coordinates in more than 6 dimensions, where an index
excludes few pairs.
"""

NEIGHBORS = 1e-3, 200.0
"""Range of the number of neighbors per row."""

MAX_PAIRS = 5e7
"""Largest expected number of pairs."""

PARTITIONS = 1, 4, 16, 64

METRICS = "euclidean", "euclidean", "manhattan", "chebyshev"

FEW = 3_000
"""Rows whose distances determine `eps`."""


def uniform(random: Random, n: int, dims: int) -> np.ndarray:
    """Draw points of the unit cube."""
    return random.random((n, dims))


def clusters(random: Random, n: int, dims: int) -> np.ndarray:
    """Return Gaussian clusters of unequal sizes and widths."""
    number = int(random.integers(2, 200))
    size = random.pareto(1.0, number) + 0.01
    width = 10 ** random.uniform(-3, -0.5, number)
    label = random.choice(number, n, p=size / size.sum())
    return (
        random.random((number, dims))[label]
        + random.normal(size=(n, dims)) * width[label, None]
    )


def duplicates(random: Random, n: int, dims: int) -> np.ndarray:
    """Return points, some of them repeated often."""
    number = max(10, int(n * random.uniform(0.2, 0.9)))
    places = random.random((number, dims))
    return places[(number * random.random(n) ** random.uniform(1.5, 5)).astype(int)]


def skew(random: Random, n: int, dims: int) -> np.ndarray:
    """Return points whose density has a heavy tail."""
    return random.lognormal(0.0, random.uniform(0.5, 2.5), (n, dims))


def core(random: Random, n: int, dims: int) -> np.ndarray:
    """Return uniform points, with a small dense spot."""
    x = random.random((n, dims))
    some = max(20, int(n * 10 ** random.uniform(-3, -1)))
    x[:some] = 0.5 + x[:some] * 10 ** random.uniform(-3, -1)
    return x


def line(random: Random, n: int, dims: int) -> np.ndarray:
    """Return points near a line, as in correlated columns."""
    return (
        random.random((n, 1)) * random.normal(size=dims)
        + random.normal(size=(n, dims)) * 0.01
    )


KINDS: dict[str, Callable[[Random, int, int], np.ndarray]] = {
    "uniform": uniform,
    "clusters": clusters,
    "duplicates": duplicates,
    "skew": skew,
    "core": core,
    "line": line,
}


def between(random: Random, limits: tuple[float, float]) -> float:
    """Draw a number whose logarithm is uniform."""
    return float(np.exp(random.uniform(*np.log(limits))))


def distance(random: Random, x: np.ndarray, metric: str, rows: int) -> float:
    """Choose a distance from distances between a few points; `rows`: of the table."""
    some = x[random.choice(len(x), min(len(x), FEW), replace=False)]
    name = {"manhattan": "cityblock", "haversine": "euclidean"}.get(metric, metric)
    apart = np.sort(pdist(some, name))
    neighbors = min(between(random, NEIGHBORS), 2 * MAX_PAIRS / rows)
    at = neighbors / rows * len(apart)
    if at >= 1:
        return float(apart[int(min(at, len(apart) - 1))])
    # fewer pairs than a sample has: assume a uniform density
    return float(apart[0] * at ** (1 / x.shape[1]))


def points(random: Random, name: str, real: dict[str, np.ndarray]) -> np.ndarray:
    """Draw points of a kind of data."""
    rows = between(random, ROWS)
    if name == "places":
        every = real[name]
        return every[
            random.choice(len(every), int(min(rows, len(every))), replace=False)
        ]
    dims = int(random.choice(DIMS))
    if dims > 6:
        rows = min(rows, (2 * MAX_WORK / dims) ** 0.5)
    if name != "embeddings":
        return KINDS[name](random, int(rows), dims)
    every = real[name][:, random.choice(real[name].shape[1], dims, replace=False)]
    return every[random.choice(len(every), int(min(rows, len(every))), replace=False)]


def setting(number: int, seed: int, real: dict[str, np.ndarray]) -> dict[str, Any]:
    """Plan a random join, and count its pairs."""
    random = np.random.default_rng((SEED, seed, number))
    names = [*KINDS, *real]
    name = names[number % len(names)]
    x = points(random, name, real)
    metric = "haversine" if name == "places" else str(random.choice(METRICS))
    two, grouped = bool(random.random() < 0.35), bool(random.random() < 0.2)
    partitions, ordered = int(random.choice(PARTITIONS)), bool(random.random() < 0.3)
    eps = distance(random, x, metric, len(x))
    if metric == "haversine":
        eps *= 111_000.0  # from degrees to meters
    frame = pd.DataFrame(
        x, columns=["latitude", "longitude"] if name == "places" else None
    )
    frame.columns = frame.columns.map(str)
    options: dict[str, Any] = {"metric": metric, "on": list(frame.columns)}
    if grouped:
        groups = int(random.integers(2, 50))
        frame["group"] = (groups * random.random(len(frame)) ** 2).astype(int)
        options["by"] = "group"
    if ordered:
        frame = frame.sort_values(frame.columns[0], ignore_index=True)
    else:
        frame = frame.sample(frac=1, random_state=random).reset_index(drop=True)
    frames = [frame]
    if two:
        cut = int(len(frame) * random.uniform(0.1, 0.9))
        right = random.random(len(frame)) * len(frame) < cut
        frames = [
            frame[~right].reset_index(drop=True),
            frame[right].reset_index(drop=True),
        ]
    laid = [
        dd.from_pandas(one, npartitions=partitions, sort=False)
        if partitions > 1
        else one
        for one in frames
    ]
    began = time.perf_counter()
    plan = laid[0].simjoin.plan(eps, **options, **({"other": laid[1]} if two else {}))
    seconds = time.perf_counter() - began
    true = int(frame.simjoin.count_pairs(eps, **options))
    if two:  # pairs across both tables are those that neither has alone
        true -= sum(int(one.simjoin.count_pairs(eps, **options)) for one in frames)
    return {
        "number": number,
        "name": name,
        "rows": len(frame),
        "dims": x.shape[1],
        "metric": metric,
        "eps": eps,
        "two": two,
        "by": grouped,
        "partitions": partitions,
        "ordered": ordered,
        "counted": getattr(plan, "counted", False),
        "seconds": seconds,
    } | judged(plan.plan.result.estimate, true)


def summed(runs: list[dict[str, Any]]) -> list[list[Any]]:
    """Return for each group of settings how many there are, how many intervals held,
    and their widths.
    """
    groups: dict[str, list[dict[str, Any]]] = {"counted": [], "estimated": []}
    for run in runs:
        if run["counted"]:
            groups["counted"].append(run)
            continue
        names = [run["name"], "two tables" if run["two"] else "self-joins"]
        names += ["sorted" if run["ordered"] else "shuffled"]
        names += ["up to 3 dims" if run["dims"] <= 3 else "4 dims or more"]
        names += ["by="] if run["by"] else []
        for name in ("estimated", *names):
            groups.setdefault(name, []).append(run)
    lines = []
    for name, some in groups.items():
        if not some:
            continue
        held = sum(run["holds"] for run in some)
        above = sum(not run["holds"] and run["true"] > run["high"] for run in some)
        seen = [run for run in some if run["low"] > 0]
        width = (
            float(np.median([run["high"] / run["low"] for run in seen]))
            if seen
            else None
        )
        lines.append(
            [
                name,
                len(some),
                held,
                100 * held / len(some),
                above,
                len(some) - len(seen),
                width,
            ]
        )
    return lines


HEAD = ["settings", "number", "held", "%", "too low", "low end 0", "median high / low"]


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.plan_intervals", description=__doc__
    )
    parser.add_argument(
        "--settings", type=int, default=400, help="number of settings (default 400)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--places",
        type=Path,
        default=PLACES,
        help="parquet file with latitude and longitude (default: the example's)",
    )
    parser.add_argument(
        "--embeddings",
        type=Path,
        help="parquet file with a column 'embedding' of lists",
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    options = parser.parse_args()
    columns = ["latitude", "longitude"]
    real = {
        "places": pd.read_parquet(options.places, columns=columns).to_numpy(dtype=float)
    }
    if options.embeddings is not None:
        lists = pd.read_parquet(options.embeddings, columns=["embedding"])["embedding"]
        real["embeddings"] = np.stack(lists.to_list()).astype(float)
    where = known()
    runs: list[dict[str, Any]] = []
    with dask.config.set(scheduler="threads", num_workers=2):
        for number in range(options.settings):
            runs.append(setting(number, options.seed, real))
            if number % 50 == 49:
                progress(f"{number + 1} settings")
    lines = summed(runs)
    print(table(HEAD, lines))
    save(
        "plan-intervals",
        where,
        options,
        {
            "summary": [dict(zip(HEAD, line, strict=True)) for line in lines],
            "runs": runs,
        },
        options.output,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
