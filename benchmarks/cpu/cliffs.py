"""``python -m benchmarks cpu.cliffs``: how cost grows with equal rows, dense rows, and
a few large radii.

Each case runs a whole verb on plain frames on one core: least CPU seconds of some runs
after a first one.  A value far above its neighbors in a column shows a cliff.  SciPy is
measured in the same run, if it has such a search.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.repeats import summary
from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

import dask_simjoin  # noqa: F401
from benchmarks.harness.ours import VERSION
from benchmarks.harness.points import SEED
from benchmarks.harness.report import environment, write

Case = tuple[dict[str, Any], Callable[[], Any], Callable[[], Any] | None]
"""The name of a case, our call, and SciPy's call or None."""

COUNTING = ("count_pairs", "neighbor_counts", "dbscan")


def frame(x: np.ndarray) -> pd.DataFrame:
    """Return points as a frame with columns c0, c1, ..."""
    return pd.DataFrame(x, columns=[f"c{k}" for k in range(x.shape[1])])


def equal(sizes: list[int]) -> Iterator[Case]:
    """Yield cases with many equal rows: half of the rows are equal and the others are
    far apart.
    """
    random = np.random.default_rng(SEED)
    for dims in (2, 8):
        for n in sizes:
            x = random.uniform(0, 1000, (n, dims))
            x[: n // 2] = 500.0
            table = frame(x)
            for verb in COUNTING:
                what = {"cliff": "half equal", "dims": dims, "rows": n, "verb": verb}
                peer = (
                    (lambda x=x: cKDTree(x).count_neighbors(cKDTree(x), 1.0))
                    if verb == COUNTING[0]
                    else None
                )
                yield (
                    what,
                    (lambda table=table, verb=verb: getattr(table.simjoin, verb)(1.0)),
                    peer,
                )


def dense(sizes: list[int]) -> Iterator[Case]:
    """Yield cases of ten dense clusters, whose rows are mostly near each other."""
    random = np.random.default_rng(SEED)
    for dims, eps in ((2, 0.1), (8, 0.3)):
        centres = random.uniform(0, 10, (10, dims))
        for n in sizes:
            x = centres[random.integers(0, 10, n)] + random.normal(0, 0.05, (n, dims))
            table = frame(x)
            for verb in COUNTING:
                what = {
                    "cliff": "dense clusters",
                    "dims": dims,
                    "rows": n,
                    "verb": verb,
                }
                yield (
                    what,
                    (lambda t=table, verb=verb, eps=eps: getattr(t.simjoin, verb)(eps)),
                    None,
                )


def radii(sizes: list[int]) -> Iterator[Case]:
    """Yield cases of uniform rows, a few with a radius many times as large."""
    random = np.random.default_rng(SEED)
    for dims, small, large in ((2, 0.3, 20.0), (6, 13.0, 60.0)):
        for n in sizes:
            x = random.uniform(0, 100, (n, dims))
            for few in (0, 1, 10, 100):
                table = frame(x).assign(radius=small)
                table.loc[: few - 1, "radius"] = large if few else small
                what = {"cliff": "large radii", "dims": dims, "rows": n, "large": few}
                on, r = [f"c{k}" for k in range(dims)], table["radius"].to_numpy()
                peer = (
                    (
                        lambda x=x, r=r: cKDTree(x).query_ball_point(
                            x, r, return_length=True
                        )
                    )
                    if few
                    else None
                )
                yield (
                    what,
                    (lambda t=table, on=on: t.simjoin.neighbor_counts("radius", on=on)),
                    peer,
                )


def measured(run: Callable[[], Any], repeat: int) -> dict[str, Any]:
    """Return the CPU seconds of some runs."""
    found = []
    for _ in range(repeat):
        gc.collect()
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return summary(found)


def main() -> None:
    """Run the benchmark and print its results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.cliffs", description=__doc__
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[10_000, 20_000, 40_000, 80_000]
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    # most rows are near each other on purpose, which would be warned about
    warnings.simplefilter("ignore")
    for cliff in (equal, dense, radii):
        for _, ours, _ in cliff([3000]):
            ours()  # the first call compiles, which must not be timed
    rows = []
    for cliff in (equal, dense, radii):
        for what, ours, peer in cliff(options.rows):
            found = what | measured(ours, options.repeat)
            if peer is not None and not options.no_peer:
                found["scipy"] = measured(peer, 1)["seconds"]
                found["ratio"] = round(found["scipy"] / found["seconds"], 2)
            rows.append(found)
            print(
                *(f"{key}={value}" for key, value in found.items()),
                file=sys.stderr,
                flush=True,
            )
    report = {
        "environment": environment([], VERSION),
        "unit": "CPU seconds of a plain frame's verb, one core, medians",
        "rows": rows,
    }
    write(report, options.output)


if __name__ == "__main__":
    main()
