"""``python -m benchmarks dask.memory``: the most memory that a join takes beyond its
rows.

Each job runs on threads, without a cluster, in a process of its own.  The result is the
process's highest memory while the rows are there, less its memory at first (Linux
reports both).  Chunks are as large as memory allows, up to 1 GiB: 44 million rows of
two numbers.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.lazy import known, progress, quiet, save, table

JOBS = ("count_pairs", "self_join", "dbscan")

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.memory", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=JOBS)
    parser.add_argument(
        "--one",
        action="store_true",
        help="the first job, in this process: prints its bytes",
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def held(name: str) -> int:
    """Return bytes of this process, as the system reports them under a name."""
    line = next(
        line for line in STATUS.read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) * 1024


def run(frame: dd.DataFrame, job: str, eps: float) -> int:
    """Run a job and return how much it found."""
    if job == "count_pairs":
        return int(frame.simjoin.count_pairs(eps).compute())
    if job == "dbscan":
        return int(frame.simjoin.dbscan(eps, 5).max().compute()) + 1
    return int(frame.simjoin.self_join(eps).map_partitions(len).sum().compute())


def one(job: str, rows: int, threads: int) -> tuple[int, int]:
    """Return the bytes beyond the rows', and how much was found."""
    random = np.random.default_rng(0)
    with dask.config.set(scheduler="threads", num_workers=threads):
        few = pd.DataFrame(random.uniform(size=(5000, 2)), columns=["x", "y"])
        # compiled kernels take memory too, which must not be counted
        run(dd.from_pandas(few, npartitions=4), job, 0.01)
        plain = pd.DataFrame({name: random.uniform(size=rows) for name in "xy"})
        frame = dd.from_pandas(plain, npartitions=max(8, rows // 200_000)).persist()
        gc.collect()
        RESET.write_text("5")
        before = held("VmRSS")
        found = run(frame, job, (0.5 / rows) ** 0.5)
        return held("VmHWM") - before, found


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    if options.one:
        print(*one(options.jobs[0], options.rows, options.threads))
        return 0
    where, results = known(), []
    for job in options.jobs:
        again = [
            "--one",
            "--jobs",
            job,
            "--rows",
            str(options.rows),
            "--threads",
            str(options.threads),
        ]
        command = [sys.executable, "-m", "benchmarks", "dask.memory", *again]
        told = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
        size, found = int(told[-2]), int(told[-1])
        results.append(
            {
                "job": job,
                "rows": options.rows,
                "bytes": size,
                "row": size / options.rows,
                "found": found,
            }
        )
        progress(f"{job}: {size / options.rows:.0f} bytes a row")
    print(
        table(
            ["job", "rows", "GiB", "bytes a row"],
            [[r["job"], r["rows"], r["bytes"] / 2**30, r["row"]] for r in results],
        )
    )
    save("memory", where, options, {"jobs": results}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
