"""``python -m benchmarks dask.growing_out_of_core``: an index larger than the workers'
memory, which grows.

Uniform points of the unit square lie in Parquet files, and each file covers all of
space.  Two workers write them as an index, and then add one batch after the other,
scattered over all of space.  The pairs of each batch go to Parquet.  The rows take
about both workers' memory limits together, unless --rows says otherwise. Afterwards
SciPy joins independently, strip by strip.  Number and checksum of the pairs of each
update, and of all pairs in the end, are compared with it.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import psutil
from dask.utils import format_bytes, parse_bytes
from distributed import default_client

from benchmarks.dask.out_of_core import PART_ROWS, ROW_BYTES, WORKERS
from benchmarks.harness.growing import size_of
from benchmarks.harness.lazy import (
    eps_for,
    known,
    progress,
    quiet,
    save,
    scratch,
    table,
    write_uniform,
)
from benchmarks.harness.watch import KINDS, watched
from benchmarks.oracles.strips import Digest, digest_of_files
from benchmarks.oracles.strips_growing import NEVER, Grown, independent_changes


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.growing_out_of_core", description=__doc__
    )
    parser.add_argument(
        "--limit", default="700 MB", help="memory of each of the two workers"
    )
    parser.add_argument(
        "--rows", type=int, default=60_000_000, help="of the first load"
    )
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument(
        "--share",
        type=float,
        default=0.01,
        help="of the first rows, how many a batch has",
    )
    parser.add_argument(
        "--deleted",
        type=float,
        default=0.0,
        help="of the first rows, how many each batch deletes, from everywhere",
    )
    parser.add_argument(
        "--pairs-per-row", type=float, default=1.0, help="of the first rows, about"
    )
    parser.add_argument(
        "--recluster", default="auto", choices=("auto", "always", "never")
    )
    parser.add_argument(
        "--store-pairs", action="store_true", help="write pairs with the index"
    )
    parser.add_argument(
        "--part-rows", type=int, default=PART_ROWS, help="rows of a file, at most"
    )
    parser.add_argument(
        "--patience", type=float, default=3600, help="seconds until the run is given up"
    )
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument(
        "--folder", type=Path, help="for temporary files: on a disk, not in memory"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="leave out the independent join"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


class Growth:
    """Files with the rows of a first load and of batches.

    Attributes
    ----------
    first : array (batches + 1,), int64
        The number of the first row of each, which is its id; 0 of the first load.
    gone : array (rows,), int16
        The batch with which each row is deleted, or `NEVER`.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        rows, batches = options.rows, options.batches
        size = max(1, round(rows * options.share))
        self.first = np.concatenate([[0], rows + size * np.arange(batches)])
        self.rows = rows + size * batches
        self.eps = eps_for(rows, 2 * options.pairs_per_row)
        self.gone = np.full(self.rows, NEVER, np.int16)
        random = np.random.default_rng((options.seed, batches))
        each = round(rows * options.deleted)
        for number in range(1, batches + 1):
            # those that are drawn once more, or for the second time, are a few less
            drawn = random.integers(0, rows, each)
            self.gone[drawn[self.gone[drawn] == NEVER]] = number
        ends = [*self.first[1:].tolist(), self.rows]
        for number, (start, stop) in enumerate(
            zip(self.first.tolist(), ends, strict=True)
        ):
            parts = max(1, -(-(stop - start) // options.part_rows))
            write_uniform(
                self.part(number),
                stop - start,
                parts,
                options.seed + number,
                first=start,
            )

    def part(self, number: int) -> Path:
        """Return the folder of a batch's files; 0 is the first load."""
        return self.folder / f"{number:04}"

    @property
    def files(self) -> list[Path]:
        """Return all files, in the order of their rows."""
        return sorted(self.folder.glob("*/*.parquet"))


def grow(growth: Growth, out: Path, found: dict[str, Any]) -> None:
    """Make the index, and add the batches."""
    options = growth.options
    seen: set[int] = set()
    _memory(seen)
    rows, seconds = dd.read_parquet(growth.part(0)), _clock()
    index = rows.simjoin.index(
        growth.eps,
        out / "index",
        on=["x", "y"],
        id="id",
        recluster=options.recluster,
        store_pairs=options.store_pairs,
    )
    found["first_load"] = {
        "seconds": seconds(),
        "bytes": size_of(index.path),
    } | _memory(seen)
    progress(f"first load: {found['first_load']}")
    found["updates"] = []
    for number in range(1, options.batches + 1):
        gone = np.flatnonzero(growth.gone == number)
        new, seconds = dd.read_parquet(growth.part(number)), _clock()
        changes = index.update(
            new, delete=gone if len(gone) else None, batch=f"{number}"
        )
        told: dict[str, Any] = {"commit": seconds()}
        for name in ("added", "removed") if len(gone) else ("added",):
            getattr(changes, name).to_parquet(out / name)
            told[f"{name}_seconds"] = seconds()
            told[name] = dataclasses.asdict(_digest_and_remove(out / name))
            seconds()
        told |= {
            "written": changes.report.bytes_written,
            "upkeep": changes.upkeep.numbers,
        } | {
            name: changes.work.numbers[name]
            for name in ("row_groups_read", "row_groups", "bytes_read")
        }
        found["updates"].append(told | _memory(seen))
        progress(f"batch {number}: {found['updates'][-1]}")
    seconds = _clock()
    index.pairs().to_parquet(out / "pairs")
    found["pairs_seconds"], found["pairs_memory"] = seconds(), _memory(seen)
    found["pairs"] = dataclasses.asdict(_digest_and_remove(out / "pairs"))
    found["bytes"], found["quality"] = size_of(index.path), index.quality().numbers
    progress(f"all pairs: {found['pairs']}, {found['pairs_seconds']:.1f} s")


def _clock() -> Callable[[], float]:
    """Return a function that returns the seconds since its last call, or since it was
    made.
    """
    asked = [time.perf_counter()]

    def seconds() -> float:
        asked.append(time.perf_counter())
        return round(asked[-1] - asked[-2], 3)

    return seconds


def _memory(seen: set[int]) -> dict[str, Any]:
    """Return each worker's resident bytes, now and at most since the last call, and how
    many restarted.

    `seen`: the workers' processes, which it adds to.
    """
    found = list(default_client().run(_look).values())
    begun = sum(pid not in seen for pid, *_ in found) if seen else 0
    seen.update(pid for pid, *_ in found)
    return {
        "rss": [now for _, now, _ in found],
        "peak": [peak for *_, peak in found],
        "restarts": begun,
    }


def _look() -> tuple[int, int, int]:
    """Return the process, its resident bytes, and the most since the last call, which
    resets the kernel's peak.
    """
    now = psutil.Process().memory_info().rss
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = max(
        int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")
    )
    Path("/proc/self/clear_refs").write_text("5")
    return os.getpid(), now, max(now, peak)


def _digest_and_remove(folder: Path) -> Digest:
    found = digest_of_files(sorted(folder.glob("*.parquet")))
    shutil.rmtree(folder)
    return found


def agrees(run: dict[str, Any], expected: Grown) -> bool:
    """Return whether the pairs of each update, and all in the end, equal the
    independent join's.
    """
    changes = [("added", expected.added), ("removed", expected.removed)]
    own = [
        run_of.get(name, dataclasses.asdict(Digest()))
        == dataclasses.asdict(digests[number])
        for number, run_of in enumerate(run["updates"], 1)
        for name, digests in changes
    ]
    return all(own) and run["pairs"] == dataclasses.asdict(expected.last)


def _print(run: dict[str, Any], limit: int) -> None:
    lines = []
    for number, one in enumerate(run.get("updates", ()), 1):
        sizes = one["bytes_read"], one["written"], one["upkeep"]["bytes_written"]
        lines.append(
            [
                f"{number}",
                one["commit"],
                one["added_seconds"],
                one["added"]["pairs"],
                one.get("removed_seconds"),
                one.get("removed", {}).get("pairs"),
                f"{one['row_groups_read']:,} of {one['row_groups']:,}",
                *map(format_bytes, sizes),
            ]
        )
    names = [
        "commit s",
        "added s",
        "pairs",
        "removed s",
        "pairs",
        "row groups read",
        "read",
        "written",
    ]
    print(table(["batch", *names, "in order"], lines))
    if "first_load" in run:
        print(
            f"First load: {run['first_load']['seconds']:.1f} s; "
            f"{_told(run['first_load'])}"
        )
    if lines:
        whole = [
            sum(v for k, v in one.items() if k.endswith("_seconds")) + one["commit"]
            for one in run["updates"]
        ]
        print(
            f"An update with its pairs: {statistics.median(whole):.1f} s (median), at "
            f"most {max(whole):.1f} s"
            f"; {_told(*run['updates'])}"
        )
    if "pairs" in run:
        print(
            f"All pairs in the end: {run['pairs']['pairs']:,} in "
            f"{run['pairs_seconds']:.1f} s; "
            f"{_told(run['pairs_memory'])}"
        )
    peaks = " ".join(map(_mb, run["peak_rss"]))
    files = ", ".join(
        f"{kind} {format_bytes(run['files_peak'][kind])}" for kind in KINDS
    )
    print(
        f"{run.get('failed', 'done')}; workers' peak RSS {peaks} of {limit / 1e6:.0f} "
        "MB, "
        f"client {run['client_peak_rss'] / 1e6:.0f} MB, restarts {run['restarts']}, "
        f"paused {run['paused_share']:.0%}, files: {files}"
    )


def _told(*phases: dict[str, Any]) -> str:
    """Summarize the workers' resident memory in some phases."""
    after = [" ".join(map(_mb, one["rss"])) for one in phases]
    idle = " to ".join(dict.fromkeys([after[0], after[-1]]))
    peak, begun = (
        max(max(one["peak"]) for one in phases),
        sum(one["restarts"] for one in phases),
    )
    return f"workers' peak RSS {_mb(peak)}, afterwards {idle} MB, restarts {begun}"


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f}"


def main() -> int:
    """Run the benchmark; return 1 if it failed, a worker was restarted or pairs are
    wrong.
    """
    quiet()
    options = arguments()
    limit = parse_bytes(options.limit)
    where = known()
    expected = None
    with scratch(options.folder) as folder:
        growth = Growth(options, folder / "data")
        times = options.rows * ROW_BYTES / (WORKERS * limit)
        progress(
            f"{options.rows:,} rows, {times:.2f} times the memory of {WORKERS} workers "
            "of "
            f"{format_bytes(limit)}, and {options.batches} batches; eps = "
            f"{growth.eps!r}"
        )
        out = folder / "out"
        run = watched(
            lambda found: grow(growth, out, found),
            WORKERS,
            limit,
            options.patience,
            folder / "dask",
        )
        progress(run.get("failed", "done"))
        shutil.rmtree(out, ignore_errors=True)
        if not options.no_check and "pairs" in run:
            began = time.perf_counter()
            expected = independent_changes(
                growth.files, growth.eps, growth.first, growth.gone, folder / "strips"
            )
            run["exact"] = agrees(run, expected)
            progress(
                f"independently: {expected.last}, {time.perf_counter() - began:.0f} s"
            )
    _print(run, limit)
    print(f"Pairs as independently found: {run.get('exact', 'not checked')}")
    report = {
        "rows": options.rows,
        "batch_rows": math.ceil((growth.rows - options.rows) / max(1, options.batches)),
        "eps": growth.eps,
        "limit": limit,
        "times_memory": times,
        "run": run,
        "expected": None if expected is None else dataclasses.asdict(expected),
    }
    save("growing-out-of-core", where, options, report, options.output)
    return (
        0
        if "failed" not in run and not run["restarts"] and run.get("exact", True)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
