"""``python -m benchmarks cpu.gates``: joins with `within`, `different` and `box`, beside
filters of pandas after a join, `merge_asof` and SciPy.

All run on one core, and in turn. Times are CPU seconds of whole calls, the least of
several: the machine may do other work. Both ways return the same pairs, or the same
number of neighbors.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

import dask_simjoin
from benchmarks.harness.ours import VERSION
from benchmarks.harness.points import SEED
from benchmarks.harness.report import environment, write
from benchmarks.harness.timing import least_in_turns, show_least

ROWS = 200_000

Ways = dict[str, Callable[[], Any]]
"""Name of a way -> a function that returns its result."""


def ships(rows: int) -> pd.DataFrame:
    """Draw positions of ships: each reports every three minutes for a day. Most lie at
    anchor, within 20 km.
    """
    random = np.random.default_rng(SEED)
    each = 480
    number = max(1, rows // each)
    start = random.uniform([53.9, 7.8], [54.1, 8.1], (number, 2))
    moving = random.uniform(size=number) < 0.2
    step = random.normal(0, 1e-3, (number, 2)) * moving[:, None]
    minutes = np.arange(each)
    place = start[:, None] + step[:, None] * minutes[None, :, None]
    place += random.normal(0, 2e-4, place.shape)
    seconds = minutes * 180 + random.integers(0, 180, (number, each))
    return pd.DataFrame(
        {
            "lat": place[..., 0].ravel(),
            "lon": place[..., 1].ravel(),
            "time": pd.Timestamp("2024-05-01")
            + pd.to_timedelta(seconds.ravel(), unit="s"),
            "ship": np.repeat(np.arange(number), each),
        }
    )


def shops(rows: int) -> pd.DataFrame:
    """Draw places with prices."""
    random = np.random.default_rng(SEED)
    places = pd.DataFrame(random.uniform(0, 100, (rows, 2)), columns=["x", "y"])
    return places.assign(price=random.lognormal(3, 1, rows))


def readings(rows: int) -> pd.DataFrame:
    """Draw seconds of readings, sorted, about two a second."""
    random = np.random.default_rng(SEED)
    return pd.DataFrame({"second": np.sort(random.uniform(0, rows / 2, rows))})


def jobs(rows: int) -> dict[str, Ways]:
    """Return the jobs, each with its ways."""
    fleet, places = ships(rows), shops(rows)
    left, right = readings(rows), readings(rows).sample(frac=0.5, random_state=SEED)
    right = right.sort_values("second", ignore_index=True)
    sphere = {"on": ["lat", "lon"], "metric": "haversine"}

    def times_after() -> pd.DataFrame:
        pairs = fleet.simjoin.self_join("200 m", keep="time", **sphere)
        apart = (pairs["time_left"] - pairs["time_right"]).abs()
        return pairs[apart <= pd.Timedelta("10 min")]

    def ships_after() -> pd.DataFrame:
        pairs = fleet.simjoin.self_join("200 m", keep=["time", "ship"], **sphere)
        apart = (pairs["time_left"] - pairs["time_right"]).abs()
        same = pairs["ship_left"] == pairs["ship_right"]
        return pairs[(apart <= pd.Timedelta("10 min")) & ~same]

    def prices_after() -> pd.DataFrame:
        pairs = places.simjoin.self_join(1.0, on=["x", "y"], keep="price")
        a, b = pairs["price_left"], pairs["price_right"]
        return pairs[(a - b).abs() <= 0.05 * np.maximum(a, b)]

    def earlier() -> pd.DataFrame:
        return left.simjoin.knn_join(
            right,
            1,
            on="second",
            max_distance=10.0,
            within={"second": (-10.0, 0.0)},
        )

    def merged() -> pd.DataFrame:
        other = right.assign(right=right.index)
        found = pd.merge_asof(left, other, on="second", tolerance=10.0)
        return found.dropna()

    x = np.random.default_rng(SEED).random((rows, 3))
    # about ten neighbors for each particle
    eps = (10 / rows / 4.19) ** (1 / 3)

    def in_tree() -> np.ndarray:
        tree = cKDTree(x, boxsize=1.0)
        found: np.ndarray = tree.query_pairs(eps, output_type="ndarray")
        return found

    at_times = {"within": {"time": "10 min"}}
    return {
        "200 m and 10 min": {
            "within": lambda: fleet.simjoin.self_join("200 m", **at_times, **sphere),
            "pandas": times_after,
        },
        "200 m, 10 min, other ships": {
            "within": lambda: fleet.simjoin.self_join(
                "200 m", different="ship", **at_times, **sphere
            ),
            "pandas": ships_after,
        },
        "distance 1 and 5 % of the price": {
            "within": lambda: places.simjoin.self_join(
                1.0, on=["x", "y"], within={"price": "5 %"}
            ),
            "pandas": prices_after,
        },
        "nearest earlier of 10 s": {"within": earlier, "merge_asof": merged},
        "periodic box": {
            "box": lambda: dask_simjoin.self_join(x, eps, box=1.0),
            "cKDTree": in_tree,
        },
    }


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.gates", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--output", type=Path, help="JSON file")
    options = parser.parse_args()
    for ways in jobs(2000).values():  # the first call compiles and loads kernels
        for way in ways.values():
            way()
    every: dict[str, Any] = {}
    for job, ways in jobs(options.rows).items():
        found = least_in_turns(ways, options.repeat, "rows")
        numbers = {one["rows"] for one in found.values()}
        assert len(numbers) == 1, f"{job}: {numbers}"
        show_least(job, found)
        every[job] = found
    fleet, places = ships(options.rows), shops(options.rows)
    report = {
        "environment": environment([], VERSION),
        "unit": "CPU seconds of a whole call on one core, the least of several",
        "rows": options.rows,
        "pairs_without_conditions": {
            "200 m": int(
                fleet.simjoin.count_pairs(
                    "200 m", on=["lat", "lon"], metric="haversine"
                )
            ),
            "distance 1": int(places.simjoin.count_pairs(1.0, on=["x", "y"])),
        },
        "jobs": every,
    }
    write(report, options.output)


if __name__ == "__main__":
    main()
