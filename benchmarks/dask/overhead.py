"""``python -m benchmarks dask.overhead``: what Dask adds to the time of the engine.

The first part joins many small chunks, so that each task has little to do.  It reports
worker time for each block pair, less the engine's time on the same blocks in one
process.  The second part is a join with the default plan, as users would run it.  It
reports the share of workers' time that tasks run, by task.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import dask
import pyarrow.parquet as pq
from dask.diagnostics import Profiler
from dask.utils import key_split
from distributed import Client, get_task_stream

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.lazy import (
    CORES,
    eps_for,
    fresh,
    known,
    progress,
    quiet,
    rows_of,
    running,
    save,
    scratch,
    table,
    write_uniform,
)
from dask_simjoin.tasks.chunks import gather_chunk, read_points
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.pairs import join_block

ROW_BYTES = 24
COLUMNS = ["left", "right"]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.overhead", description=__doc__
    )
    parser.add_argument(
        "--chunks", type=int, nargs="*", default=[20, 40, 80, 120], help="small chunks"
    )
    parser.add_argument(
        "--chunk-rows", type=int, default=2000, help="of a small chunk (default 2,000)"
    )
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="of the real join; 0: none"
    )
    parser.add_argument("--partitions", type=int, default=40, help="of the real join")
    parser.add_argument("--neighbors", type=float, default=6, help="of a row")
    parser.add_argument(
        "--on",
        nargs="*",
        default=["threads-1", "threads-2", "cluster-1", "cluster-2"],
        help="schedulers: threads-N or cluster-N, N processes",
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def scheduler(name: str) -> Any:
    """Return the context of a scheduler such as "cluster-2", and its number of threads."""
    kind, _, number = name.partition("-")
    if kind not in ("threads", "cluster") or not number.isdecimal():
        raise SystemExit(
            f"{name!r} is no scheduler; use such as threads-2 or cluster-2."
        )
    threads = int(number)
    return running(threads if kind == "cluster" else 0, threads=threads), threads


def traced(client: Client | None, pairs: Any, fused: bool) -> dict[str, Any]:
    """Compute planned pairs: wall seconds, pairs, and seconds of tasks by what they do.

    `fused`: counting a partition is part of the task that makes it; Dask does so in
    optimize(), but not in compute() alone.  "first" is when the first task began: all
    before is the graph's making.
    """
    wanted = rows_of(pairs)
    tasks: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    moved: dict[str, float] = defaultdict(float)
    first = None
    with Profiler() if client is None else get_task_stream(client) as trace:
        since, began = time.time(), time.perf_counter()
        count = int((wanted.optimize() if fused else wanted).compute())
        wall = time.perf_counter() - began
    if client is None:
        for task in trace.results:
            _add(tasks, task.key, task.end_time - task.start_time)
    else:
        for task in trace.data:
            for part in task["startstops"]:
                seconds = part["stop"] - part["start"]
                if part["action"] == "compute":
                    _add(tasks, task["key"], seconds)
                else:
                    moved[part["action"]] += seconds
        first = (
            min(part["start"] for task in trace.data for part in task["startstops"])
            - since
        )
    return {
        "wall": wall,
        "pairs": count,
        "first": first,
        "moved": dict(moved),
        "tasks": {name: {"number": n, "seconds": s} for name, (n, s) in tasks.items()},
    }


def _add(tasks: dict[str, list[float]], key: Any, seconds: float) -> None:
    one = tasks[key_split(key)]
    one[0] += 1
    one[1] += seconds


def engine_alone(files: list[Path], pairs: Any) -> dict[str, Any]:
    """Join the same chunks and blocks in this process, one after the other, without
    Dask.
    """
    plan, spec = pairs.expr.plan, pairs.expr.operand("spec")
    assert plan.counted.in_frame_order
    frames = [pq.read_table(file, columns=spec.columns).to_pandas() for file in files]
    began = time.perf_counter()
    parts = [
        read_points(f, known, spec)
        for f, known in zip(frames, enumerate(plan.tables.sources[0]), strict=True)
    ]
    chunks = [
        gather_chunk(
            plan.layout,
            [(start, stop) for _, start, stop in chunk],
            *(parts[n] for n, _, _ in chunk),
        )
        for chunk in plan.chunks.pieces
    ]
    indexed = time.perf_counter()
    found = 0
    for i, j in plan.work.blocks.tolist():
        found += len(
            join_block(
                BlockPair(chunks[i], chunks[j], i == j, spec, plan.layout), COLUMNS
            )
        )
    return {
        "indexing": indexed - began,
        "joining": time.perf_counter() - indexed,
        "pairs": found,
    }


def idle(number: int, blocks: list[list[int]], threads: int) -> float:
    """Run tasks of the same graph that do nothing; return milliseconds of worker time
    for each block pair.
    """
    chunks = [dask.delayed(int)(n) for n in range(number)]
    joined = dask.delayed(len)(
        [dask.delayed(max)(chunks[i], chunks[j]) for i, j in blocks]
    )
    began = time.perf_counter()
    joined.compute()
    return (time.perf_counter() - began) * threads / len(blocks) * 1e3


def small_chunks(
    data: Path, number: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Join many chunks of few rows with all schedulers: each block pair's cost beyond
    the engine.
    """
    rows = number * options.chunk_rows
    # a partition has about ten chunks, so that reading is a small part of the time
    parts = max(1, number // 10)
    folder = data / f"small-{number}"
    write_uniform(folder, rows, parts, 12345)
    files = sorted(folder.glob("*.parquet"))
    eps = eps_for(rows, options.neighbors)
    how = {
        "on": ["x", "y"],
        "id": "id",
        "partitioning": "entity",
        "blocksize": options.chunk_rows * ROW_BYTES,
    }
    found = []
    for name in options.on:
        context, threads = scheduler(name)
        with context as client:
            runs = []
            for _ in range(options.repeat + 1):
                pairs = fresh(folder).simjoin.self_join(eps, **how)
                began = time.perf_counter()
                pairs.npartitions  # noqa: B018  (plans)
                planning = time.perf_counter() - began
                alone = engine_alone(files, pairs)
                runs.append(
                    traced(client, pairs, fused=True)
                    | {"planning": planning, "alone": alone}
                )
                if runs[-1]["pairs"] != alone["pairs"]:
                    raise AssertionError(
                        f"{runs[-1]['pairs']} pairs, {alone['pairs']} without Dask"
                    )
            plan = pairs.expr.plan
            nothing = [
                idle(len(plan.chunks), plan.work.blocks.tolist(), threads)
                for _ in range(options.repeat)
            ]
            found.append(
                _overhead(name, threads, runs[1:], len(plan.chunks), len(plan.work))
            )
            found[-1]["idle_ms"] = statistics.median(nothing)
        one = found[-1]
        progress(
            f"{one['chunks']} chunks, {name}: {one['beyond_ms']:.2f} ms more for each "
            "block pair"
        )
    return found


def _overhead(
    name: str, threads: int, runs: list[dict[str, Any]], chunks: int, blocks: int
) -> dict[str, Any]:
    """Return medians.  The first run is left out because it only warms up."""
    wall = statistics.median(run["wall"] for run in runs)
    alone = statistics.median(
        run["alone"]["indexing"] + run["alone"]["joining"] for run in runs
    )
    inside = statistics.median(
        sum(t["seconds"] for t in run["tasks"].values()) for run in runs
    )
    firsts = [run["first"] for run in runs if run["first"] is not None]
    return {
        "scheduler": name,
        "threads": threads,
        "chunks": chunks,
        "block_pairs": blocks,
        "wall": wall,
        "engine": alone,
        "in_tasks": inside,
        "first": statistics.median(firsts) if firsts else None,
        "planning": statistics.median(run["planning"] for run in runs),
        "moved": statistics.median(sum(run["moved"].values()) for run in runs),
        "number_of_tasks": sum(task["number"] for task in runs[-1]["tasks"].values()),
        "pairs": runs[-1]["pairs"],
        # all workers' time counts, whether a worker was busy or waited for the
        # scheduler
        "beyond_ms": (wall * threads - alone) / blocks * 1e3,
        "wall_ms": wall / blocks * 1e3,
        "runs": runs,
    }


def real_join(data: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Join with the default plan and all schedulers; report the share of workers' time
    that tasks run.
    """
    folder = data / "real"
    write_uniform(folder, options.rows, options.partitions, 54321)
    eps = eps_for(options.rows, options.neighbors)
    found = []
    for name in options.on:
        context, threads = scheduler(name)
        with context as client:
            runs = []
            for _ in range(options.repeat):
                pairs = fresh(folder).simjoin.self_join(eps, on=["x", "y"], id="id")
                began = time.perf_counter()
                pairs.npartitions  # noqa: B018  (plans)
                planning = time.perf_counter() - began
                runs.append(traced(client, pairs, fused=False) | {"planning": planning})
            plan = pairs.expr.plan
        run = sorted(runs, key=lambda run: run["wall"])[len(runs) // 2]
        inside = sum(task["seconds"] for task in run["tasks"].values())
        found.append(
            {
                "scheduler": name,
                "threads": threads,
                "plan": repr(plan),
                "block_pairs": len(plan.work),
                "share_in_tasks": inside / (run["wall"] * threads),
                "in_tasks": inside,
                "number_of_tasks": sum(
                    task["number"] for task in run["tasks"].values()
                ),
                "all_walls": [run["wall"] for run in runs],
            }
            | run
        )
        progress(
            f"{name}: {run['wall']:.2f} s, {found[-1]['share_in_tasks']:.0%} in tasks, "
            f"{plan!r}"
        )
    return found


def _print(small: list[dict[str, Any]], real: list[dict[str, Any]]) -> None:
    if small:
        print(
            "Small chunks: seconds; milliseconds for each block pair: of wall time, of "
            "worker time beyond the"
        )
        print(
            "engine's, and of worker time for a graph of the same shape whose tasks do "
            "nothing"
        )
        keys = [
            "scheduler",
            "chunks",
            "block_pairs",
            "planning",
            "first",
            "wall",
            "engine",
            "in_tasks",
        ]
        keys += ["moved", "number_of_tasks", "wall_ms", "beyond_ms", "idle_ms"]
        print(table(keys, [[one[key] for key in keys] for one in small]))
        lines = _slopes(small)
        if lines:
            print(
                "\nWorker time beyond the engine's between the fewest and the most "
                "chunks, which leaves out"
            )
            print("what a join costs once: milliseconds for each block pair")
            print(table(["scheduler", "ms"], lines))
    for one in real:
        print(
            f"\n{one['scheduler']}: {one['plan']}; {one['pairs']:,} pairs, "
            f"{one['number_of_tasks']:,} tasks"
        )
        print(
            f"planning {one['planning']:.2f} s, then {one['wall']:.2f} s, of which "
            "tasks took "
            f"{one['share_in_tasks']:.1%} of {one['threads']} threads' time"
            + (
                f"; the first began after {one['first']:.2f} s"
                if one["first"] is not None
                else ""
            )
        )
        total = one["wall"] * one["threads"]
        lines = [
            [k, v["number"], v["seconds"], f"{v['seconds'] / total:.1%}"]
            for k, v in one["tasks"].items()
        ]
        lines += [
            [f"({kind})", None, s, f"{s / total:.1%}"]
            for kind, s in one["moved"].items()
        ]
        lines.sort(key=lambda line: -line[2])
        print(table(["tasks", "number", "seconds", "share"], lines))


def _slopes(small: list[dict[str, Any]]) -> list[list[Any]]:
    lines = []
    for name in dict.fromkeys(one["scheduler"] for one in small):
        some = sorted(
            (s for s in small if s["scheduler"] == name),
            key=lambda one: one["block_pairs"],
        )
        a, b = some[0], some[-1]
        if a is not b:
            more = (b["wall"] - a["wall"]) * b["threads"] - (b["engine"] - a["engine"])
            lines.append([name, more / (b["block_pairs"] - a["block_pairs"]) * 1e3])
    return lines


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    for name in options.on:
        scheduler(name)  # refuses an unknown name before anything is measured
    where = known()
    small: list[dict[str, Any]] = []
    real: list[dict[str, Any]] = []
    with scratch(options.folder) as folder:
        for number in options.chunks:
            small += small_chunks(folder, number, options)
        if options.rows:
            real = real_join(folder, options)
    _print(small, real)
    save(
        "overhead",
        where,
        options,
        {"cores": CORES, "small": small, "real": real},
        options.output,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
