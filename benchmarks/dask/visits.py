"""``python -m benchmarks dask.visits``: what an out-of-core join reads again, before
and after.

Uniform points of the unit square lie in parquet files, one for each chunk.  Workers
count the pairs, and spill chunks beyond a share of them: by default a quarter fits in
all workers together.  Before, Dask orders the block pairs; after, the order of the
plan.  Both are compared with the least possible reads.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import dask
from dask.utils import format_bytes, parse_bytes
from distributed import Client, LocalCluster

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
from dask_simjoin.graph import lazy_join
from dask_simjoin.planning.visits import min_reads

ROW_BYTES, CHUNK_BYTES = 24, 33.1
"""Bytes of a row of the table, and of a row of a chunk with its index but without its
id.
"""

WAYS = ("before", "after")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.visits", description=__doc__
    )
    parser.add_argument("--chunks", type=int, default=48)
    parser.add_argument("--rows", type=int, default=100_000, help="of a chunk")
    parser.add_argument(
        "--times",
        type=float,
        default=4.0,
        help="how many times the memory all chunks are",
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of a worker")
    parser.add_argument(
        "--limit",
        default="600 MB",
        help="of a worker: more than its share of chunks, and too little to keep rows",
    )
    parser.add_argument(
        "--partitioning", default="entity", choices=("entity", "spatial")
    )
    parser.add_argument("--pairs-per-row", type=float, default=0.01)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument(
        "--folder", type=Path, help="for temporary files: on a disk, not in memory"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def read_by(client: Client) -> dict[str, float]:
    """Return the bytes that workers have read and written on the disk, and seconds of
    their processes.
    """

    def of(dask_worker: Any) -> tuple[float, float, float]:
        metrics = dask_worker.data.cumulative_metrics
        return (
            metrics["disk-read", "bytes"],
            metrics["disk-write", "bytes"],
            time.process_time(),
        )

    read, written, cpu = map(sum, zip(*client.run(of).values(), strict=True))
    return {"read": read, "written": written, "cpu": cpu}


def run_once(
    data: Path, eps: float, way: str, fit: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Count the pairs on fresh workers; `fit`: number of chunks that fit in the memory
    of a worker.
    """
    limit, real = parse_bytes(options.limit), lazy_join.send_placement
    config = {
        f"distributed.worker.memory.{name}": False
        for name in ("spill", "pause", "terminate")
    }
    target = fit * CHUNK_BYTES * options.rows / limit
    if way == "before":
        lazy_join.send_placement = lambda order: None
    try:
        with (
            dask.config.set(config | {"distributed.worker.memory.target": target}),
            LocalCluster(
                n_workers=options.workers,
                threads_per_worker=options.threads,
                memory_limit=limit,
                dashboard_address=":0",
            ) as cluster,
            Client(cluster) as client,
        ):
            how = {
                "on": ["x", "y"],
                "partitioning": options.partitioning,
                "blocksize": round(1.02 * ROW_BYTES * options.rows),
            }
            points = fresh(data)
            plan = points.simjoin.count_pairs(eps, **how).expr.plan
            rows = plan.rows
            before, began = read_by(client), time.perf_counter()
            pairs = points.simjoin.count_pairs(eps, **how).compute()
            seconds = time.perf_counter() - began
            found = {
                name: value - before[name] for name, value in read_by(client).items()
            }
    finally:
        lazy_join.send_placement = real
    least = min_reads(plan.work.blocks, max(int(fit), 2)) / len(plan.chunks) - 1
    return {
        "way": way,
        "pairs": int(pairs),
        "seconds": seconds,
        "chunks": len(plan.chunks),
        "block_pairs": len(plan.work),
        "expected": 1 + plan.memory.disk.spilled / (rows * ROW_BYTES),
        **found,
        "table_reads": 1 + found["read"] / (rows * ROW_BYTES),
        "least": 1 + least * CHUNK_BYTES / ROW_BYTES,
    }


def main() -> int:
    """Run the benchmark; return 1 if the ways find different numbers of pairs."""
    quiet()
    options = arguments()
    where, rows = known(), options.chunks * options.rows
    eps = eps_for(rows, 2 * options.pairs_per_row)
    fit = options.chunks / options.times / options.workers
    runs: list[dict[str, Any]] = []
    with scratch(options.folder) as folder:
        write_uniform(folder / "data", rows, options.chunks, options.seed)
        for _ in range(options.repeat):
            for way in WAYS:
                runs.append(run_once(folder / "data", eps, way, fit, options))
                progress(f"{way}: {runs[-1]}")
    names = [
        "bytes read / bytes of the table",
        "expected",
        "least possible",
        "read again",
        "CPU s",
        "s",
    ]
    lines = []
    for way in WAYS:
        own = [run for run in runs if run["way"] == way]
        middle = {
            name: statistics.median(run[name] for run in own)
            for name in own[0]
            if name != "way"
        }
        lines.append(
            [
                way,
                middle["table_reads"],
                middle["expected"] if way == "after" else None,
                middle["least"],
                format_bytes(round(middle["read"])),
                middle["cpu"],
                middle["seconds"],
            ]
        )
    print(table(["order", *names], lines))
    save(
        "out-of-core",
        where,
        options,
        {"rows": rows, "eps": eps, "fit": fit, "runs": runs},
        options.output,
    )
    return int(len({run["pairs"] for run in runs}) > 1)


if __name__ == "__main__":
    sys.exit(main())
