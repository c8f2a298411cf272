"""Helpers of the programs that measure lazy joins: data on disk, schedulers, tables,
reports.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import itertools
import json
import logging
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment
from benchmarks.harness.source import source_digest

RESULTS = Path(__file__).parents[1] / "results"

CORES = (
    len(os.sched_getaffinity(0))
    if hasattr(os, "sched_getaffinity")
    else os.cpu_count() or 1
)

_OF_DASK = "The inplace keyword in DataFrame"
"""How a warning of Dask's parquet functions with pandas 3.1 begins; it does not concern
joins.
"""

_copies = itertools.count()


def quiet() -> None:
    """Silence warnings that do not concern a measurement, here and in workers that
    start later.
    """
    warnings.filterwarnings("ignore", message=_OF_DASK)
    os.environ.setdefault("PYTHONWARNINGS", f"ignore:{_OF_DASK}")


@contextlib.contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    """Make a temporary folder (in `folder`, if given) for data and for Dask's own
    files.
    """
    with tempfile.TemporaryDirectory(prefix="simjoin-", dir=folder) as name:
        path = Path(name)
        with dask.config.set({"temporary-directory": str(path / "dask")}):
            yield path


def write_part(frame: pd.DataFrame, folder: Path, number: int) -> None:
    """Write one partition under a name that sorts like its number."""
    folder.mkdir(parents=True, exist_ok=True)
    # compressing random digits would only cost time
    frame.to_parquet(folder / f"{number:06}.parquet", index=False, compression=None)


def write_uniform(
    folder: Path,
    rows: int,
    parts: int,
    seed: int,
    scattered: bool = False,
    narrow: int = 0,
    width: float = 0.0,
    first: int = 0,
    dtype: str = "float64",
) -> None:
    """Write points of the unit square (id, x, y), partition by partition, so that each
    covers all of space.

    Ids are row numbers, from `first` on.

    `scattered`: ids are numbers from the whole range of int64, so that the ranges of
    partitions overlap. `narrow`: number of further columns n0, n1, ..., uniform in [0,
    width].
    """

    def write(k: int) -> None:
        start, stop = rows * k // parts, rows * (k + 1) // parts
        random = np.random.default_rng((seed, k))
        x, y = random.random((2, stop - start)).astype(dtype, copy=False)
        id = np.arange(first + start, first + stop, dtype=np.int64)
        if scattered:  # multiply by an odd number, which maps int64 onto itself
            id *= np.int64(-7046029254386353131)
        more = {f"n{c}": random.random(stop - start) * width for c in range(narrow)}
        write_part(pd.DataFrame({"id": id, "x": x, "y": y} | more), folder, k)

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(write, range(parts)))


def write_points(folder: Path, points: np.ndarray, parts: int) -> None:
    """Write points (n, d) as columns x0, x1, ... with their row numbers as ids."""
    for k, some in enumerate(np.array_split(np.arange(len(points)), parts)):
        columns = {f"x{c}": points[some, c] for c in range(points.shape[1])}
        write_part(pd.DataFrame({"id": some} | columns), folder, k)


def fresh(folder: Path, parts: int | None = None) -> dd.DataFrame:
    """Read a folder's first partitions under names that Dask has not seen.

    Dask shares equal expressions while one is alive, with their plan.  So joins of the
    same files under the same names would be planned only once.
    """
    copy = folder.with_name(f"{folder.name}-{next(_copies)}")
    copy.mkdir()
    for file in sorted(folder.glob("*.parquet"))[:parts]:
        (copy / file.name).hardlink_to(file)
    return dd.read_parquet(copy)


def eps_for(rows: int, neighbors: float) -> float:
    """Return the distance within which a point of the unit square has this many others."""
    return math.sqrt(neighbors / (math.pi * rows))


def rows_of(pairs: dd.DataFrame) -> Any:
    """Return the number of rows, lazily; each partition is made whole, and dropped once
    counted.
    """
    return pairs.map_partitions(len).sum()


@contextlib.contextmanager
def running(
    workers: int,
    limit: str | int = "auto",
    threads: int = CORES,
    logs: int = logging.ERROR,
) -> Iterator[Client | None]:
    """Compute on a LocalCluster of one-thread processes; with `workers` 0 in threads of
    this process.

    `logs` is the level of Dask's messages that are not silenced.
    """
    if not workers:
        with dask.config.set(scheduler="threads", num_workers=threads):
            yield None
        return
    cluster = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        memory_limit=limit,
        dashboard_address=":0",
        silence_logs=logs,
    )
    with cluster, Client(cluster) as client:
        # otherwise the first task would import and load, and later ones would not
        client.run(_warm_up)
        yield client


def _warm_up() -> None:
    import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)

    quiet()
    frame = pd.DataFrame({"x": np.arange(1000.0), "y": np.zeros(1000)})
    frame.simjoin.self_join(1.5)


def known() -> dict[str, Any]:
    """Return hardware, versions, and the state of the source."""
    found = environment([], VERSION)
    for name in ("distributed", "scipy"):
        found["versions"][name] = importlib.metadata.version(name)
    return found


def save(
    name: str,
    where: dict[str, Any],
    options: Any,
    report: dict[str, Any],
    output: Path | None,
) -> None:
    """Write a report; `where` is the result of `known` before the run."""
    changed = source_digest() != where["source"]
    if changed:
        print(
            "The source of dask_simjoin changed during this run: repeat it.",
            file=sys.stderr,
        )
    path = output or RESULTS / name / f"{datetime.datetime.now():%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    asked = {k: v for k, v in vars(options).items() if not isinstance(v, Path)}
    whole = {"environment": where, "options": asked, "source_changed": changed} | report
    path.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"\nWritten: {path}")


def table(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """Format columns of equal width, the first one flush left."""
    cells = [list(head), *([text(value) for value in line] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)),
            ]
        )
        for line in cells
    )


def text(value: Any) -> str:
    """Format a number for people."""
    if value is None:
        return "-"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return str(value)


def ratios(values: Sequence[float]) -> list[float | None]:
    """Divide each value by the one before it."""
    return [None, *(b / a if a else None for a, b in itertools.pairwise(values))]


def progress(line: str) -> None:
    """Write a line to standard error at once."""
    print(line, file=sys.stderr, flush=True)
