"""``python -m benchmarks dask.small``: what a lazy join of few rows costs beyond the
join of a plain frame.

Each run joins a new frame, so that no statistics are kept.  Runs of the plain frame and
of the lazy join alternate, and must find the same number of rows.  The time of a lazy
join includes `dd.from_pandas` and `compute`.  The job "dask" is Dask's own time for
such a frame: `from_pandas`, and a task for each partition that counts its rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.dask.overhead import scheduler
from benchmarks.dask.road import found_in, timed
from benchmarks.harness.lazy import known, progress, quiet, save, table
from benchmarks.harness.points import SEED
from benchmarks.harness.repeats import rounded

ALONE = "dask"
"""A job of Dask alone, which joins nothing."""

SAMPLES, K = 5, 3
"""Rows that make a row of a cluster a core, and neighbors of a row."""

JOBS: dict[str, Callable[[Any, float], Any]] = {
    "self_join": lambda frame, eps: frame.simjoin.self_join(eps),
    "count_pairs": lambda frame, eps: frame.simjoin.count_pairs(eps),
    "knn_join": lambda frame, eps: frame.simjoin.knn_join(k=K),
    "dbscan": lambda frame, eps: frame.simjoin.dbscan(eps, min_samples=SAMPLES),
}

DEFAULT_ROWS, DEFAULT_PARTITIONS, DEFAULT_DIMS = (
    (1_000, 10_000, 50_000, 100_000),
    (1, 4, 16),
    (2, 6),
)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.small", description=__doc__
    )
    parser.add_argument("--rows", type=int, nargs="*", default=DEFAULT_ROWS)
    parser.add_argument("--partitions", type=int, nargs="*", default=DEFAULT_PARTITIONS)
    parser.add_argument(
        "--dims", type=int, nargs="*", default=DEFAULT_DIMS, help="numbers of columns"
    )
    parser.add_argument(
        "--jobs", nargs="*", default=[*JOBS, ALONE], choices=[*JOBS, ALONE]
    )
    parser.add_argument(
        "--on",
        default="threads-2",
        help="scheduler: threads-N or cluster-N, N processes",
    )
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def frames(rows: int, dims: int, number: int) -> list[pd.DataFrame]:
    """Make frames whose rows have about the same distances, but other coordinates."""
    x = np.random.default_rng((SEED, rows, dims)).random((rows, dims))
    return [
        pd.DataFrame(x + n * 2.0**-20, columns=[f"x{k}" for k in range(dims)])
        for n in range(number)
    ]


def eps_of(rows: int, dims: int) -> float:
    """Return a distance within which rows of the unit cube have few others."""
    return (3 / rows) ** (1 / dims) / 2


def lazily(frame: pd.DataFrame, partitions: int, job: str, eps: float) -> Any:
    """Run a job through Dask, from the frame to the whole result."""
    lazy = dd.from_pandas(frame, npartitions=partitions)
    if job == ALONE:
        return int(lazy.map_partitions(len).compute().sum())
    return JOBS[job](lazy, eps).compute()


def measured(
    rows: int, dims: int, partitions: int, job: str, repeat: int
) -> dict[str, Any]:
    """Return the seconds of all runs of one job, lazily and for the plain frame; the
    first run warms up.
    """
    eps, runs = eps_of(rows, dims), {"plain": list[float](), "lazy": list[float]()}
    found: set[tuple[int, int]] = set()
    for n, frame in enumerate(frames(rows, dims, repeat + 1)):
        first, plain = timed(
            lambda frame=frame: rows if job == ALONE else JOBS[job](frame, eps)
        )
        second, lazy = timed(lambda frame=frame: lazily(frame, partitions, job, eps))
        found.add((found_in(plain), found_in(lazy)))
        if n:
            runs["plain"].append(rounded(first))
            runs["lazy"].append(rounded(second))
    for one in found:
        if len(set(one)) > 1:
            raise AssertionError(
                f"{job}, {rows} x {dims}, {partitions} partitions: {one}"
            )
    middle = {way: statistics.median(some) for way, some in runs.items()}
    beyond = (middle["lazy"] - middle["plain"]) * 1e3
    return {
        "rows": rows,
        "dims": dims,
        "partitions": partitions,
        "job": job,
        "eps": eps,
        "found": next(iter(found))[0],
        "beyond_ms": rounded(beyond),
        **middle,
        "runs": runs,
    }


def _print(results: list[dict[str, Any]]) -> None:
    print(
        "Milliseconds (medians): a plain frame, the same through Dask, and how much "
        "more that is"
    )
    lines = [
        [
            f"{one['rows']:,} x {one['dims']}",
            one["job"],
            one["partitions"],
            *(f"{1e3 * one[way]:.1f}" for way in ("plain", "lazy")),
            f"{one['beyond_ms']:.1f}",
        ]
        for one in results
    ]
    print(
        table(["rows x columns", "job", "partitions", "plain", "lazy", "beyond"], lines)
    )


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    context, _ = scheduler(options.on)
    where = known()
    results: list[dict[str, Any]] = []
    with context:
        for dims in options.dims:
            for rows in options.rows:
                for job in options.jobs:
                    for partitions in options.partitions:
                        results.append(
                            measured(rows, dims, partitions, job, options.repeat)
                        )
                        one = results[-1]
                        progress(
                            f"{rows:,} x {dims} {job}, {partitions}: "
                            f"+{one['beyond_ms']:.1f} ms"
                        )
    _print(results)
    save("small", where, options, {"results": results}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
