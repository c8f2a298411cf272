"""``python -m benchmarks cpu.verifying``: what verifying the checksums of an index on
disk costs.

Three ways of reading the same index take turns.  "verified" is the normal way.
"unverified" reads the same bytes in the same way, but computes no checksum of rows or
pairs.  "plain" reads files by Arrow alone, like files without checksums.  Calls are all
pairs, found and stored, and updates by rows that lie together or are scattered, with
their pairs.  Each update takes a new copy of the index, of hard links, so that ends of
files are read anew.

One core and one thread are used, and all runs are kept: CPU seconds with the kernel's
("cpu") and without ("user"), and seconds.  Free memory goes back to the system before
each run.  Otherwise the number of page faults would differ between runs by more than
verifying costs.  Files are in the page cache.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.harness.repeats import rounded, summaries
from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    # set before the imports below, because libraries count cores and read the
    # environment when imported
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

import dask_simjoin
from benchmarks.cpu.growing import PART_ROWS, TOGETHER
from benchmarks.harness.growing import copied, eps_for, rows, size_of
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from dask_simjoin.engine.base import host_kernels

DIMS = 2

CLOCKS = ("cpu", "user")

MODES = ("verified", "unverified", "plain")

OFF = MODES[1:]
"""Ways that verified reading is compared with."""


def _whole(*run: int) -> bool:
    return True


def _without(path: Path) -> bool:
    return False


@contextlib.contextmanager
def reading(mode: str) -> Iterator[None]:
    """Read files in one of the ways."""
    with contextlib.ExitStack() as stack:
        if mode == "unverified":
            stack.enter_context(
                mock.patch.object(host_kernels("reductions"), "are_intact", _whole)
            )
        if mode == "plain":
            stack.enter_context(
                mock.patch("dask_simjoin.disk_index.files.is_checked", _without)
            )
        yield


def user_seconds() -> float:
    """Return the CPU seconds of this process, without the kernel's."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def timed(work: Callable[[], int]) -> tuple[dict[str, float], int]:
    """Return CPU seconds with and without the kernel's, seconds of one run, and its
    result.
    """
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    user, cpu, wall = user_seconds(), time.process_time(), time.perf_counter()
    found = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"cpu": cpu, "user": user_seconds() - user, "wall": wall}, found


def share(on: float, off: float) -> float:
    """Return an increase in percent."""
    return round(100.0 * (on / off - 1.0), 2)


def compared(runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Summarize runs, and compare their medians, the least of them, and runs that
    followed each other.
    """
    found: dict[str, Any] = {}
    for mode, own in runs.items():
        found[mode] = summaries(own)
        for edge, name in ((min, "least"), (max, "most")):
            found[mode][name] = {
                clock: rounded(edge(run[clock] for run in own)) for clock in CLOCKS
            }
    for mode in OFF:
        found[f"over_{mode}_percent"] = over = {}
        for clock in CLOCKS:
            on, off = ([run[clock] for run in runs[one]] for one in ("verified", mode))
            each = [share(*one) for one in zip(on, off, strict=True)]
            low, middle, high = statistics.quantiles(each, n=4)
            over[clock] = {
                "medians": share(statistics.median(on), statistics.median(off)),
                "least": share(min(on), min(off)),
                "each": {
                    "low": round(low, 2),
                    "median": round(middle, 2),
                    "high": round(high, 2),
                },
            }
    return found


class Bench:
    """Indexes of the same rows, without and with stored pairs."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder, self.random = (
            options,
            folder,
            np.random.default_rng(12345),
        )
        self.eps = eps_for(options.rows, DIMS, options.neighbors)
        self.rows = rows(self.random, options.rows, 0, DIMS)
        self.paths = {name: folder / name for name in ("found", "stored")}
        lazy = dd.from_pandas(
            self.rows, npartitions=max(1, options.rows // PART_ROWS), sort=False
        )
        for name, path in self.paths.items():
            lazy.simjoin.index(
                self.eps, path, on=["x0", "x1"], id="key", store_pairs=name == "stored"
            )
        self.copies = 0

    def pairs(self, name: str) -> tuple[dict[str, float], int]:
        """Time all pairs of an index."""
        index = dask_simjoin.open_index(self.paths[name])
        took, found = timed(lambda: len(index.pairs().compute()))
        return took, found

    def update(self, new: pd.DataFrame) -> tuple[dict[str, float], tuple[int, ...]]:
        """Time an update of a copy of the index, with its new pairs."""
        self.copies += 1
        index = dask_simjoin.open_index(
            copied(self.paths["found"], self.folder / f"copy{self.copies}")
        )
        work: list[Any] = []

        def run() -> int:
            changes = index.update(new)
            work.append(changes.work.numbers)
            return len(changes.added.compute())

        took, added = timed(run)
        shutil.rmtree(index.path)
        return took, (
            added,
            work[0]["row_groups_read"],
            work[0]["row_groups"],
            work[0]["bytes_read"],
        )

    def measured(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Return the measurements of each call in each way."""
        number = max(1, self.options.rows // 1000)
        local, scattered = (
            rows(self.random, number, self.options.rows, DIMS, part)
            for part in (1 / TOGETHER, 1.0)
        )
        names = "added", "row_groups_read", "row_groups", "bytes_read"
        calls: dict[str, Callable[[], Any]] = {
            "pairs": lambda: self.pairs("found"),
            "stored_pairs": lambda: self.pairs("stored"),
            "local_update": lambda: self.update(local),
            "scattered_update": lambda: self.update(scattered),
        }
        for name, call in calls.items():
            runs: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
            seen = set()
            # the first call compiles and loads, so it is not timed
            for n in range(-1, self.options.repeat):
                for mode in (*MODES[n % 3 :], *MODES[: n % 3]):
                    with reading(mode):
                        took, found = call()
                    seen.add(found)
                    if n >= 0:
                        runs[mode].append(took)
            if len(seen) > 1:
                raise AssertionError(f"{name} found {seen}")
            what = (
                {"pairs": found}
                if "pairs" in name
                else dict(zip(names, found, strict=True))
            )
            what |= {"rows": number} if "update" in name else {}
            yield name, what | compared(runs)


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.verifying", description=__doc__
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=10_000_000,
        help="rows of the index (default 10 million)",
    )
    parser.add_argument(
        "--neighbors", type=float, default=6.0, help="pairs that a row is in, about"
    )
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument(
        "--folder", type=Path, help="where files are written (default: a temporary one)"
    )
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    options = parser.parse_args()
    began, folder = time.perf_counter(), Path(tempfile.mkdtemp(dir=options.folder))
    report: dict[str, Any] = {
        "environment": environment([], VERSION),
        "unit": "CPU seconds and seconds",
        "threads": 1,
        "rows": options.rows,
        "dims": DIMS,
        "neighbors": options.neighbors,
        "repeat": options.repeat,
        "calls": {},
    }
    try:
        with dask.config.set({"dataframe.convert-string": False, "scheduler": "sync"}):
            bench = Bench(options, folder)
            report["bytes"] = {
                name: size_of(path) for name, path in bench.paths.items()
            }
            print(
                f"built after {time.perf_counter() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            for name, found in bench.measured():
                report["calls"][name] = found
                told = {
                    mode: [found[mode][clock] for clock in CLOCKS] for mode in MODES
                }
                over = {mode: found[f"over_{mode}_percent"] for mode in OFF}
                print(name, told, over, file=sys.stderr, flush=True)
                write(report, options.output)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
