"""``python -m benchmarks cpu.sphere places.parquet``: places within a distance along
the sphere, on one core.

The file has columns latitude and longitude, in degrees. Tools run in this process in
turn: what disturbs one run disturbs all alike. Each goes from degrees to all pairs.
Variants of a peer are tried on a quarter of the places, and the fastest one is
measured. Pairs that only some tools find must be at the distance itself, except for
rounding.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
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
from scipy.spatial import cKDTree
from sklearn.neighbors import BallTree

from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from dask_simjoin.metrics.sphere import RADIUS

ON = ["latitude", "longitude"]

PART = 4
"""Tries divide the number of places by this."""

ROUNDING = 1e-6
"""Tools may decide pairs differently within this many meters of the distance."""

Join = Callable[[pd.DataFrame, float], Any]


class Peer:
    """A peer whose version is reported."""

    def __init__(
        self,
        distribution: str,
        variants: dict[str, Join],
        keys: Callable[[Any, int], Any],
    ) -> None:
        self.distribution, self.variants, self.keys = distribution, variants, keys


def _ours(places: pd.DataFrame, metres: float) -> pd.DataFrame:
    return places.simjoin.self_join(metres, on=ON, metric="haversine")


def _our_keys(pairs: pd.DataFrame, n: int) -> np.ndarray:
    return np.sort(pairs["left"].to_numpy() * n + pairs["right"].to_numpy())


def _ball(leaf_size: int) -> Join:
    def join(places: pd.DataFrame, metres: float) -> Any:
        radians = np.radians(places.to_numpy())
        return BallTree(radians, leaf_size=leaf_size, metric="haversine").query_radius(
            radians, metres / RADIUS
        )

    return join


def _list_keys(lists: Any, n: int) -> np.ndarray:
    left = np.repeat(np.arange(n), [len(some) for some in lists])
    right = np.concatenate(lists)
    once = left < right
    return np.sort(left[once] * n + right[once])


def _unit(leafsize: int, balanced: bool) -> Join:
    """Search unit vectors by NumPy's sines in SciPy's tree, as careful users would."""

    def join(places: pd.DataFrame, metres: float) -> Any:
        lat, lon = np.radians(places.to_numpy()).T
        unit = np.stack(
            [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1
        )
        tree = cKDTree(
            unit, leafsize=leafsize, balanced_tree=balanced, compact_nodes=balanced
        )
        return tree.query_pairs(
            2 * np.sin(metres / (2 * RADIUS)), output_type="ndarray"
        )

    return join


def _pair_keys(pairs: np.ndarray, n: int) -> np.ndarray:
    return np.sort(pairs[:, 0] * n + pairs[:, 1])


PEERS = {
    "sklearn": Peer(
        "scikit-learn",
        {f"BallTree, leaf_size {n}": _ball(n) for n in (5, 10, 20, 40)},
        _list_keys,
    ),
    "scipy": Peer(
        "scipy",
        {
            f"cKDTree, leafsize {n}, {'median' if b else 'midpoint'} splits": _unit(
                n, b
            )
            for n in (8, 16, 32)
            for b in (True, False)
        },
        _pair_keys,
    ),
}


def seconds_of(join: Join, places: pd.DataFrame, metres: float) -> tuple[float, Any]:
    """Return the CPU seconds of one run, and its result."""
    gc.collect()
    began = time.process_time()
    found = join(places, metres)
    return time.process_time() - began, found


def distances(places: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return meters between pairs of places, by the haversine formula."""
    (lat, lon), (to_lat, to_lon) = (
        np.radians(places[k]).T for k in (keys // len(places), keys % len(places))
    )
    h = (
        np.sin((lat - to_lat) / 2) ** 2
        + np.cos(lat) * np.cos(to_lat) * np.sin((lon - to_lon) / 2) ** 2
    )
    return 2 * RADIUS * np.arcsin(np.sqrt(h))


def measure(places: pd.DataFrame, metres: float, repeat: int) -> dict[str, Any]:
    """Return medians, ratios and the tried settings of one distance."""
    n, x = len(places), places.to_numpy()
    some = places[::PART].reset_index(drop=True)
    _ours(some, metres)  # the first call compiles and loads, which must not be timed
    joins, keys = {"ours": _ours}, {"ours": _our_keys}
    tools: dict[str, dict[str, Any]] = {"ours": {}}
    for name, peer in PEERS.items():
        tries = {
            label: seconds_of(join, some, metres)[0]
            for label, join in peer.variants.items()
        }
        best = min(tries, key=lambda label, tries=tries: tries[label])  # type: ignore[misc]
        tools[name] = {
            "variant": best,
            "tries": {label: round(took, 3) for label, took in tries.items()},
        }
        joins[name], keys[name] = peer.variants[best], peer.keys
    found: dict[str, np.ndarray] = {}
    for _ in range(repeat):
        for name, join in joins.items():
            took, result = seconds_of(join, places, metres)
            found[name] = keys[name](result, n)
            del result
            tools[name].setdefault("seconds", []).append(round(took, 3))
            print(
                f"{metres:8.0f} m  {name:8}{took:9.3f} s", file=sys.stderr, flush=True
            )
    for name, tool in tools.items():
        apart = np.setxor1d(found["ours"], found[name], assume_unique=True)
        off = np.abs(distances(x, apart) - metres).max(initial=0.0)
        assert off < ROUNDING, f"{name} differs in pairs {off} m from the distance"
        tool |= {
            "median": statistics.median(tool["seconds"]),
            "pairs": len(found[name]),
            "told_otherwise": len(apart),
        }
    ratios = {
        name: round(tool["median"] / tools["ours"]["median"], 2)
        for name, tool in tools.items()
    }
    return {"metres": metres, "ratios": ratios, "tools": tools}


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.sphere", description=__doc__
    )
    parser.add_argument("places", type=Path, help="parquet file of places")
    parser.add_argument("--metres", nargs="+", type=float, default=[1e3, 1e4])
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of each tool (default 3)"
    )
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    places = pd.read_parquet(options.places, columns=ON)[ON]
    report: dict[str, Any] = {
        "environment": environment(PEERS.values(), VERSION),
        "unit": "CPU seconds of one core, from degrees to all pairs",
        "places": len(places),
        "rows": [measure(places, metres, options.repeat) for metres in options.metres],
    }
    write(report, options.output)


if __name__ == "__main__":
    main()
