"""``python -m benchmarks dask.sets_out_of_core``: a join of more sets than the workers'
memory, checked.

Sets of random tokens lie in Parquet files.  Some sets of each file are copies from
another file with one token more, so the pairs are known.  Two workers find them; with
``--kill`` one of them is killed in the middle.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.utils import format_bytes, parse_bytes
from distributed import get_client

from benchmarks.harness.lazy import fresh, known, progress, quiet, save, scratch, table
from benchmarks.harness.watch import watched

WORKERS = 2
TIMES = 2
"""The tokens of all rows are this many times as large as the workers' memory."""

TOKEN_BYTES = 8
"""Bytes of a token in the files."""

UNIVERSE = 500_000
COPIED = 100
"""One row in this many is a copy of another with one more token."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.sets_out_of_core", description=__doc__
    )
    parser.add_argument(
        "--limit", default="600 MB", help="memory of each of the two workers"
    )
    parser.add_argument(
        "--rows",
        type=int,
        help="default: so many that their tokens are twice the memory",
    )
    parser.add_argument("--part-rows", type=int, default=50_000, help="rows of a file")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs=2,
        default=[10, 100],
        metavar=("LEAST", "LARGEST"),
        help="of sets; 12 12: all alike, so that every block meets every other",
    )
    parser.add_argument("--threshold", type=float, default=0.8)
    parser.add_argument(
        "--kill", type=float, help="seconds after which a worker is killed"
    )
    parser.add_argument(
        "--patience", type=float, default=3600, help="seconds until a run is given up"
    )
    parser.add_argument(
        "--folder", type=Path, help="for temporary files: on a disk, not in memory"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def random_sets(
    part: int, rows: int, sizes: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Make the sets of a file before some become copies: where each ends (rows + 1,),
    and tokens, some often.

    `sizes`: the least and the largest; logarithms of sizes are spread evenly between
    them.
    """
    random = np.random.default_rng(part)
    least, largest = sizes
    each = np.rint(least * (largest / least) ** random.random(rows)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(each)])
    return ends, (random.random(int(ends[-1])) ** 3 * UNIVERSE).astype(np.int64)


def mean_size(sizes: tuple[int, int]) -> float:
    """Return the mean size of such sets."""
    least, largest = sizes
    return least if least == largest else (largest - least) / math.log(largest / least)


def write_file(
    folder: Path, part: int, parts: int, rows: int, sizes: tuple[int, int]
) -> tuple[int, int]:
    """Write a file; return how many copies and tokens it has."""
    copies = rows // COPIED
    ends, tokens = random_sets(part, rows, sizes)
    # copies are rows of the next file, after its own copies, with a token that no other
    # row has
    other, theirs = random_sets((part + 1) % parts, rows, sizes)
    other = other[copies : 2 * copies + 1]
    more = UNIVERSE + part * copies + np.arange(copies)
    copied = np.insert(theirs[other[0] : other[-1]], other[1:] - other[0], more)
    whole = np.concatenate([copied, tokens[ends[copies] :]])
    widths = np.concatenate([np.diff(other) + 1, np.diff(ends)[copies:]])
    offsets = np.concatenate([[0], np.cumsum(widths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(whole))
    ids = pa.array(np.arange(part * rows, (part + 1) * rows))
    pq.write_table(pa.table({"id": ids, "sets": lists}), folder / f"{part:05}.parquet")
    return copies, len(whole)


def check(pairs: pd.DataFrame, parts: int, rows: int) -> bool:
    """Return whether the pairs are exactly the copies and their originals."""
    copies = rows // COPIED
    one = (np.arange(parts)[:, None] * rows + np.arange(copies)).ravel()
    other = (
        ((np.arange(parts) + 1) % parts)[:, None] * rows + copies + np.arange(copies)
    ).ravel()
    want = np.stack([np.minimum(one, other), np.maximum(one, other)], axis=1)
    found = pairs[["left", "right"]].to_numpy()
    return len(found) == len(want) and bool(
        (np.unique(found, axis=0) == np.unique(want, axis=0)).all()
    )


def set_pairs(frame: Any, options: argparse.Namespace) -> Any:
    """Return the lazy pairs."""
    return frame.simjoin.set_self_join("sets", options.threshold, id="id")


def join_once(
    data: Path,
    options: argparse.Namespace,
    limit: int,
    shape: tuple[int, int],
    temporary: Path,
    join: Callable[[Any, argparse.Namespace], Any] = set_pairs,
) -> dict[str, Any]:
    """Join on a fresh cluster, and watch it; "failed" is the error that was raised."""

    def work(found: dict[str, Any]) -> None:
        began = time.perf_counter()
        pairs = join(fresh(data), options)
        found["outputs"] = pairs.npartitions
        found["planning"] = time.perf_counter() - began
        found["plan"] = repr(pairs.expr.plan)
        progress(f"planned in {found['planning']:.1f} s: {found['plan']}")
        if options.kill is not None:
            pids = list(get_client().run(os.getpid).values())
            threading.Timer(options.kill, os.kill, (pids[0], signal.SIGKILL)).start()
        began = time.perf_counter()
        made = pairs.compute()
        found["joining"] = time.perf_counter() - began
        # only of workers that are alive
        found["cpu"] = sum(get_client().run(time.process_time).values())
        found["pairs"], found["exact"] = len(made), check(made, *shape)

    return watched(work, WORKERS, limit, options.patience, temporary)


def summarize(
    title: str, limit: int, options: argparse.Namespace, run: dict[str, Any]
) -> None:
    """Print a run."""
    killed = "" if options.kill is None else "; one was killed"
    print(f"{title} of {WORKERS} workers of {format_bytes(limit)}{killed}")
    names = [
        "planning s",
        "joining s",
        "CPU s",
        "pairs",
        "exact",
        "peak memory",
        "spilled",
        "restarts",
    ]
    found = [run.get(name) for name in ("planning", "joining", "cpu", "pairs", "exact")]
    peak = format_bytes(max(run["peak_rss"]))
    print(
        table(
            names, [[*found, peak, format_bytes(run["spilled_peak"]), run["restarts"]]]
        )
    )
    print(run.get("failed", "done"), run.get("plan", "not planned"), sep="; ")


def main() -> int:
    """Run the benchmark; return 1 if it failed or its pairs are wrong."""
    quiet()
    options = arguments()
    limit = parse_bytes(options.limit)
    memory = WORKERS * limit
    sizes = options.sizes[0], options.sizes[1]
    rows = options.rows or math.ceil(TIMES * memory / (mean_size(sizes) * TOKEN_BYTES))
    parts = max(2, round(rows / options.part_rows))
    each = math.ceil(rows / parts)
    where = known()
    with scratch(options.folder) as folder:
        data = folder / "data"
        data.mkdir()
        made = [write_file(data, part, parts, each, sizes) for part in range(parts)]
        copies, tokens = (sum(some) for some in zip(*made, strict=True))
        progress(
            f"{parts * each:,} rows of {tokens:,} tokens in {parts} files, {copies:,} "
            "pairs"
        )
        run = join_once(data, options, limit, (parts, each), folder / "dask")
    share = tokens * TOKEN_BYTES / memory
    title = f"{parts * each:,} sets of {tokens:,} tokens: {share:.2f} times the memory"
    summarize(title, limit, options, run)
    save(
        "sets-out-of-core",
        where,
        options,
        {"times_memory": share, "rows": parts * each, "tokens": tokens, "run": run},
        options.output,
    )
    return 0 if "failed" not in run and run["exact"] else 1


if __name__ == "__main__":
    sys.exit(main())
