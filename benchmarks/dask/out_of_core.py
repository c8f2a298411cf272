"""``python -m benchmarks dask.out_of_core``: a join of more data than the workers'
memory, checked.

Uniform points of the unit square lie in Parquet files, and each file covers all of
space.  Two workers join them and write the pairs to Parquet.  Data and result are each
at least twice as large as both workers' memory limits together, unless --rows says
otherwise.  Afterwards SciPy joins independently, strip by strip, and number and
checksum of the pairs are compared.

``--verb count_pairs`` only counts the pairs.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from dask.utils import format_bytes, parse_bytes
from distributed import default_client

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.lazy import (
    eps_for,
    fresh,
    known,
    progress,
    quiet,
    save,
    scratch,
    table,
    write_uniform,
)
from benchmarks.harness.watch import KINDS, watched
from benchmarks.oracles.strips import (
    digest_of_files,
    independent_digest,
)

ROW_BYTES, PAIR_BYTES = 24, 16
"""Bytes of a row (an id and two coordinates) and of a pair (two ids)."""

WORKERS = 2
TIMES = 2
"""Data and result are each this many times as large as the workers' memory."""

PART_ROWS = 500_000


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.out_of_core", description=__doc__
    )
    parser.add_argument(
        "--limit", default="700 MB", help="memory of each of the two workers"
    )
    parser.add_argument(
        "--rows", type=int, help="default: twice the workers' memory, 24 B a row"
    )
    parser.add_argument(
        "--pairs-per-row", type=float, help="default: twice the memory, 16 B a pair"
    )
    parser.add_argument(
        "--partitions", type=int, help=f"default: of about {PART_ROWS:,} rows"
    )
    parser.add_argument(
        "--ids",
        choices=("rows", "scattered"),
        default="rows",
        help="row numbers, or numbers from everywhere (a longer check)",
    )
    parser.add_argument(
        "--narrow",
        type=int,
        default=0,
        help="more columns, of width eps/2; --pairs-per-row: without them",
    )
    parser.add_argument(
        "--partitioning", default="auto", choices=("auto", "entity", "spatial")
    )
    parser.add_argument(
        "--verb", default="self_join", choices=("self_join", "count_pairs")
    )
    parser.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument(
        "--patience", type=float, default=3600, help="seconds until a run is given up"
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


def join_once(
    data: Path,
    eps: float,
    limit: int,
    options: argparse.Namespace,
    out: Path,
    temporary: Path,
) -> dict[str, Any]:
    """Join on a fresh cluster, and watch it; "failed" is the error that was raised."""

    def work(found: dict[str, Any]) -> None:
        frame, on = fresh(data), ["x", "y", *_narrow(options)]
        how = {"on": on, "partitioning": options.partitioning}
        began, before = time.perf_counter(), _traffic()
        result: Any
        if options.verb == "self_join":
            result = frame.simjoin.self_join(eps, id="id", **how)
            found["outputs"] = result.npartitions
        else:
            result = frame.simjoin.count_pairs(eps, **how)
        found.update(describe(result.expr.plan))
        found["planning"] = time.perf_counter() - began
        progress(f"planned in {found['planning']:.1f} s: {found['plan']}")
        began = time.perf_counter()
        if options.verb == "count_pairs":
            found["pairs"] = int(result.compute())
        else:
            result.to_parquet(out)
        found["joining"] = time.perf_counter() - began
        read, written = (int(b - a) for a, b in zip(before, _traffic(), strict=True))
        found |= {"read_bytes": read, "written_bytes": written}

    return watched(work, options.workers, limit, options.patience, temporary)


def _traffic() -> tuple[int, int]:
    """Return the bytes that all workers have read and written, in files and in
    messages.
    """

    def own() -> tuple[int, int]:
        counters = psutil.Process().io_counters()
        return counters.read_chars, counters.write_chars

    each = default_client().run(own).values()
    return sum(read for read, _ in each), sum(written for _, written in each)


def result_of(run: dict[str, Any], verb: str, files: list[Path]) -> dict[str, Any]:
    """Return what is compared with an independent result."""
    if verb == "count_pairs":
        return {"pairs": run["pairs"]}
    return dataclasses.asdict(digest_of_files(files))


def independent(
    data: list[Path], eps: float, rows: int, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the expected result."""
    found = independent_digest(data, eps, rows, folder, _narrow(options))
    if options.verb == "count_pairs":
        return {"pairs": found.pairs}
    return dataclasses.asdict(found)


def _narrow(options: argparse.Namespace) -> list[str]:
    """Return the names of the narrow columns."""
    return [f"n{k}" for k in range(options.narrow)]


def describe(plan: Any) -> dict[str, Any]:
    """Return the properties of a plan for JSON."""
    return {
        "plan": repr(plan),
        "partitioning": plan.partitioning,
        "chunks": len(plan.chunks),
        "block_pairs": len(plan.work),
        "budget": {"chunk": plan.limits.chunk, "output": plan.limits.output},
        "estimated": plan.result.estimate.total,
    }


def _check(runs: list[dict[str, Any]], expected: dict[str, Any] | None) -> bool:
    for run in runs:
        if "failed" not in run:
            run["exact"] = None if expected is None else run["digest"] == expected
    return all("failed" not in run and run["exact"] is not False for run in runs)


def _print(runs: list[dict[str, Any]], limit: int) -> None:
    names = [
        "planning s",
        "joining s",
        "pairs",
        "exact",
        "workers' peak RSS",
        "spilled",
        "paused",
    ]
    names += [*(f"files: {kind}" for kind in KINDS), "restarts"]
    lines = []
    for k, run in enumerate(runs):
        peaks = " ".join(f"{peak / 1e6:.0f}" for peak in run["peak_rss"])
        lines.append(
            [
                f"{k + 1}",
                run.get("planning"),
                run.get("joining"),
                run.get("digest", {}).get("pairs"),
                run.get("exact"),
                f"{peaks} of {limit / 1e6:.0f} MB",
                format_bytes(run["spilled_peak"]),
                f"{run['paused_share']:.0%}",
                *(format_bytes(run["files_peak"][kind]) for kind in KINDS),
                run["restarts"],
            ]
        )
    print(table(["run", *names], lines))
    for k, run in enumerate(runs):
        print(f"{k + 1}: {run.get('failed', 'done')}; {run.get('plan', 'not planned')}")
    whole = [run["planning"] + run["joining"] for run in runs if "joining" in run]
    if whole:
        print(f"Planning and joining: {statistics.median(whole):.1f} s (median)")


def main() -> int:
    """Run the benchmark; return 1 if a run failed or its pairs are wrong."""
    quiet()
    options = arguments()
    limit = parse_bytes(options.limit)
    memory = options.workers * limit
    row_bytes = ROW_BYTES + 8 * options.narrow
    rows = options.rows or math.ceil(TIMES * memory / row_bytes)
    # a little more, since points near the square's border have fewer neighbors
    wanted = options.pairs_per_row or 1.02 * TIMES * memory / PAIR_BYTES / rows
    eps = eps_for(rows, 2 * wanted)
    parts = options.partitions or max(
        2, round(rows * row_bytes / ROW_BYTES / PART_ROWS)
    )
    where = known()
    runs: list[dict[str, Any]] = []
    expected = None
    with scratch(options.folder) as folder:
        data = folder / "data"
        progress(
            f"{rows:,} rows in {parts} files, eps = {eps!r}, about "
            f"{wanted * rows:,.0f} pairs"
        )
        write_uniform(
            data,
            rows,
            parts,
            options.seed,
            options.ids == "scattered",
            options.narrow,
            eps / 2,
            dtype=options.dtype,
        )
        for k in range(options.repeat):
            out = folder / f"pairs-{k}"
            run = join_once(data, eps, limit, options, out, folder / "dask")
            if "failed" not in run:
                run["result_file_bytes"] = sum(
                    f.stat().st_size for f in out.glob("*.parquet")
                )
                run["digest"] = result_of(
                    run, options.verb, sorted(out.glob("*.parquet"))
                )
            shutil.rmtree(out, ignore_errors=True)
            progress(f"run {k + 1}: {run.get('failed') or run['digest']}")
            runs.append(run)
        if not options.no_check and any("digest" in run for run in runs):
            began = time.perf_counter()
            files = sorted(data.glob("*.parquet"))
            expected = independent(files, eps, rows, folder / "strips", options)
            progress(f"independently: {expected}, {time.perf_counter() - began:.0f} s")
    good = _check(runs, expected)
    share = {
        "data": rows * row_bytes / memory,
        "result": float(rows)
        if options.verb == "dbscan"
        else (expected or {}).get("pairs", wanted * rows),
    }
    share["result"] *= PAIR_BYTES / memory
    print(
        f"{rows:,} rows of {row_bytes} B: {share['data']:.2f} times the memory of "
        f"{options.workers} workers of "
        f"{format_bytes(limit)}; the result of {PAIR_BYTES} B a pair: "
        f"{share['result']:.2f} times"
    )
    _print(runs, limit)
    report = {
        "rows": rows,
        "partitions": parts,
        "eps": eps,
        "limit": limit,
        "times_memory": share,
        "expected": expected,
        "runs": runs,
    }
    save("out-of-core", where, options, report, options.output)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
