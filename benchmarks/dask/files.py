"""``python -m benchmarks dask.files``: joins from Parquet files to Parquet files, by
pandas and by Dask.

pandas reads all files, joins and writes on one core.  Dask does the same on threads or
worker processes; each run reads, plans, joins and writes anew.  All must find the same
number of pairs or clusters.  No index is written: pandas leaves out a range of numbers,
but Dask would write it as a column.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.dask.overhead import scheduler
from benchmarks.dask.road import DATA, JOBS, Data
from benchmarks.harness.lazy import known, progress, quiet, save, scratch, table
from benchmarks.harness.repeats import rounded

FILES = 16
"""Files of a table."""

CALLS = JOBS | {
    "hdbscan": lambda frame, data, more: frame.simjoin.hdbscan(min_cluster_size=20)
}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.files", description=__doc__
    )
    usual = [name for name in DATA if name not in ("1Mx2", "64Mx2")]
    parser.add_argument("--data", nargs="*", default=usual, choices=list(DATA))
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(CALLS))
    parser.add_argument(
        "--on",
        nargs="*",
        default=["threads-1", "threads-2", "cluster-2"],
        help="schedulers: threads-N or cluster-N (N processes)",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor of the numbers of rows"
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=3,
        help="runs after a warm-up; 0: the first run counts (for long runs)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="for the files (default: the system's temporary folder)",
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def write_files(data: Data, folder: Path) -> None:
    """Write the rows to files; labels count rows."""
    folder.mkdir()
    frame = data.frame(0)
    cuts = [len(frame) * k // FILES for k in range(FILES + 1)]
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        frame.iloc[start:stop].to_parquet(
            folder / f"{number:03}.parquet", compression=None
        )


def through_pandas(
    files: Path, written: Path, job: str, data: Data, more: float
) -> int | None:
    """Read, join and write with pandas; return a count, or None if a file was written."""
    found = CALLS[job](pd.read_parquet(files), data, more)
    if isinstance(found, (int, np.integer)):
        return int(found)
    written.mkdir()
    frame = found.to_frame("label") if isinstance(found, pd.Series) else found
    frame.to_parquet(written / "all.parquet", compression=None)
    return None


def through_dask(
    files: Path, written: Path, job: str, data: Data, more: float
) -> int | None:
    """Read, join and write with Dask; return a count, or None if files were written."""
    found = CALLS[job](dd.read_parquet(files), data, more)
    if job == "count_pairs":
        return int(found.compute())
    frame = found.to_frame("label") if isinstance(found, dd.Series) else found
    frame.to_parquet(written, compression=None, write_index=False)
    return None


def amount(written: Path, job: str) -> int:
    """Return the number of pairs, or of clusters, in written files."""
    if job in ("dbscan", "hdbscan"):
        return int(pd.read_parquet(written, columns=["label"])["label"].max()) + 1
    return len(pd.read_parquet(written, columns=["left"]))


def timed(
    way: Callable[..., int | None], written: Path, job: str, more: float
) -> tuple[float, int]:
    """Return the seconds of a run and its result."""
    shutil.rmtree(written, ignore_errors=True)
    gc.collect()
    began = time.perf_counter()
    found = way(written=written, job=job, more=more)
    seconds = time.perf_counter() - began
    return seconds, amount(written, job) if found is None else found


def measured(
    name: str, data: Data, folder: Path, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Measure all jobs of one table in all ways."""
    files, written = folder / name, folder / "written"
    write_files(data, files)
    # another distance is another join for Dask, which would reuse the plan; it finds as
    # much
    shift = (1 + n * 2.0**-50 for n in itertools.count(1))
    alone: dict[str, tuple[float, int]] = {}
    for on in ["pandas", *options.on]:
        context, cores = scheduler("threads-1" if on == "pandas" else on)
        call = functools.partial(
            through_pandas if on == "pandas" else through_dask, files=files, data=data
        )
        with context:
            for job in options.jobs:
                # the first call compiles, and fills the cache of files
                first = timed(call, written, job, next(shift))
                runs = [
                    timed(call, written, job, next(shift))
                    for _ in range(options.repeat)
                ] or [first]
                seconds = statistics.median(run[0] for run in runs)
                if on == "pandas":
                    alone[job] = seconds, runs[0][1]
                assert {run[1] for run in runs} == {alone[job][1]}, (name, job, on)
                one = {
                    "data": name,
                    "job": job,
                    "rows": data.rows,
                    "dims": data.dims,
                    "on": on,
                    "cores": cores,
                    "found": runs[0][1],
                    "runs": [rounded(run[0]) for run in runs],
                    "median": rounded(seconds),
                    "share": rounded(seconds / alone[job][0]),
                }
                progress(
                    f"{name} {job} {on}: {seconds:.3f} s, {one['share']:.2f} of pandas"
                )
                yield one
    shutil.rmtree(written, ignore_errors=True)
    shutil.rmtree(files)


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    where = known()
    rows: list[dict[str, Any]] = []
    with scratch(options.folder) as folder:
        for name in options.data:
            for row in measured(
                name, DATA[name].scaled(options.scale), folder, options
            ):
                rows.append(row)
                if options.output:  # a run that is stopped loses only one row
                    save("files", where, options, {"rows": rows}, options.output)
    keys = ["data", "job", "on", "median", "share", "found"]
    print(table(keys, [[one[key] for key in keys] for one in rows]))
    save("files", where, options, {"rows": rows}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
