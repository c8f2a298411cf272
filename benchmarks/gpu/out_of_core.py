"""``python -m benchmarks gpu.out_of_core``: join embeddings in Parquet files, on a
worker whose memory is several times smaller.

Rows are unit vectors of float32 in clusters, and columns have falling variances, as in
Deep1B.  One worker with one GPU joins them by Euclidean distance, and writes the pairs
to Parquet.  `--device` and `--host` limit the memory for chunks: Dask-CUDA moves chunks
to host memory, and then to files.  With `--ordered 1`, the plan orders comparisons for
the chunks that fit.  Otherwise Dask orders them.

"least" is the smallest number of chunks that any order has to load, if `--fits` chunks
are in GPU memory.  The check takes some rows, computes all of their distances in
float64 by matrix products, and compares their pairs with the join's.  With ``--library
pandas`` the same program runs without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dask.utils import parse_bytes
from distributed import Client, LocalCluster

from benchmarks.gpu.embeddings import (
    arrays,
    divided,
    normal,
    opened,
    pairs_near,
    write,
)
from benchmarks.harness.timeline import timeline
from dask_simjoin.planning import visits

CENTERS = 20_000
WIDTH = 0.35
"""Standard deviation within clusters, where that between them is 1."""

UNDECIDED = 1e-9
"""Matrix products do not decide pairs whose squared distance differs from eps squared
by less.
"""


def rows_of(xp: Any, number: int, files: int, rows: int, dims: int) -> Any:
    """Return the rows of a file, float32 (rows, dims)."""
    rng = xp.random.default_rng((3, number))
    which = rng.integers(0, CENTERS, rows)
    x = normal(xp, (2, 0), CENTERS, dims)[which]
    x += np.float32(WIDTH) * rng.standard_normal((rows, dims), xp.float32)
    x *= xp.arange(1, dims + 1, dtype=xp.float32) ** np.float32(-0.5)
    return x / xp.sqrt((x * x).sum(axis=1, keepdims=True))


def pairs_by_products(
    rows: int, some: np.ndarray, eps: float, dims: int, library: str
) -> tuple[set[tuple[int, int]], int]:
    """Return the pairs of some rows, and how many are undecided."""
    xp, (files, each) = arrays(library), divided(rows)

    def file(number: int) -> Any:
        return rows_of(xp, number, files, each, dims).astype(xp.float64)

    q = xp.concatenate(
        [
            file(number)[some[some // each == number] % each]
            for number in np.unique(some // each).tolist()
        ]
    )
    found: set[tuple[int, int]] = set()
    undecided = 0
    for number in range(files):
        x = file(number)
        square = (q * q).sum(axis=1)[:, None] + (x * x).sum(axis=1) - 2 * (q @ x.T)
        undecided += int((abs(square - eps * eps) < UNDECIDED).sum())
        found |= pairs_near(xp.nonzero(square <= eps * eps), some, number * each)
    return found, undecided


@contextlib.contextmanager
def worker(library: str, device: int, host: int, pool: int) -> Iterator[Client]:
    """Start one worker with so much memory for chunks, and a pool of GPU memory."""
    config = {
        f"distributed.worker.memory.{name}": False
        for name in ("target", "spill", "pause", "terminate")
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(config))
        if library == "cudf":
            from dask_cuda import LocalCUDACluster

            from benchmarks.gpu.road import use_pool

            cluster = LocalCUDACluster(
                n_workers=1,
                device_memory_limit=device,
                memory_limit=host or None,
                rmm_pool_size=pool,
                rmm_maximum_pool_size=pool,
                dashboard_address=":0",
            )
        else:
            cluster = LocalCluster(
                n_workers=1, threads_per_worker=1, dashboard_address=":0"
            )
        client = stack.enter_context(Client(stack.enter_context(cluster)))
        if library == "cudf":
            client.run(use_pool)
            client.run(count_moves)
        yield client


def count_moves(dask_worker: Any) -> None:
    """Count the bytes and seconds of all chunks that Dask-CUDA moves from now on."""
    from distributed.sizeof import safe_sizeof

    moves: dict[str, list[float]] = {}

    def counted(name: str, move: Callable[[Any], Any], given: bool) -> Any:
        total = moves.setdefault(name, [0, 0, 0.0])

        def work(one: Any) -> Any:
            began = time.perf_counter()
            found = move(one)
            measured = one if given else found
            parts = measured if isinstance(measured, list) else [measured]
            total[0] += 1
            total[1] += sum(getattr(p, "nbytes", 0) or safe_sizeof(p) for p in parts)
            total[2] += time.perf_counter() - began
            return found

        return work

    data = dask_worker.data
    levels = [("device", data.device_buffer.slow)]
    if data.disk is not None:
        levels.append(("disk", data.host_buffer.slow))
    for name, level in levels:
        level.dump = counted(f"{name}, out", level.dump, False)
        level.load = counted(f"{name}, in", level.load, True)
    dask_worker.simjoin_moves = moves


def moved(dask_worker: Any) -> dict[str, Any]:
    """Return number, bytes and seconds of moves, by their name."""
    return {
        name: dict(zip(("chunks", "bytes", "seconds"), one, strict=True))
        for name, one in dask_worker.simjoin_moves.items()
    }


def joined(
    client: Client, folder: Path, out: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Join the rows of the files, and write the pairs."""
    began = time.time()
    lazy = opened(folder, options.library).simjoin.self_join(
        options.eps,
        on="vector",
        id="row",
        partitioning="entity",
        blocksize=options.blocksize,
    )
    plan, planned = lazy.expr.plan, time.time()
    size = float(np.mean(plan.chunks.rows)) * 4 * options.dims
    told: dict[str, Any] = {
        "planned": planned - began,
        "chunks": len(plan.chunks),
        "comparisons": len(plan.work),
        "coordinates of a chunk, bytes": size,
        "expected": plan.expected,
        "fit": plan.work.visits and plan.work.visits.capacity,
        "least": visits.min_reads(plan.work.blocks, max(options.fits, 2)),
    }
    print(told, file=sys.stderr, flush=True)
    client.get_task_stream(count=1)
    lazy.to_parquet(out, write_index=False)
    ended = time.time()
    stream = client.get_task_stream(start=planned)
    told |= {"joined": ended - planned, "timeline": timeline(stream, planned, ended)}
    if options.library == "cudf":
        told["moves"] = next(iter(client.run(moved).values()))
    return told


def checked(out: Path, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Compare the pairs of some rows with matrix products."""
    some = np.sort(
        np.random.default_rng(7).choice(rows, options.checked, replace=False)
    )
    found: set[tuple[int, int]] = set()
    pairs = 0
    for path in sorted(out.glob("*.parquet")):
        table = pq.read_table(path, columns=["left", "right"])
        pairs += len(table)
        sides = [pc.is_in(table[n], value_set=_set(some)) for n in ("left", "right")]
        mine = table.filter(pc.or_(*sides))
        found |= set(
            zip(*(mine[n].to_pylist() for n in ("left", "right")), strict=True)
        )
    truth, undecided = pairs_by_products(
        rows, some, options.eps, options.dims, options.library
    )
    return {
        "pairs": pairs,
        "checked rows": len(some),
        "pairs of checked rows": len(truth),
        "missed": len(truth - found),
        "wrong": len(found - truth),
        "undecided": undecided,
    }


def _set(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(rows)


def main(given: list[str]) -> int:
    """Write the files, join them once for each limit of the host, and write JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.out_of_core", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--dims", type=int, default=96)
    parser.add_argument("--eps", type=float, default=0.255)
    parser.add_argument(
        "--checked", type=int, default=100, help="rows that are compared with all rows"
    )
    parser.add_argument("--blocksize", default="590 MB")
    parser.add_argument("--pool", default="8 GB", help="all GPU memory of the worker")
    parser.add_argument("--device", default="1.9 GB", help="chunks in GPU memory")
    parser.add_argument(
        "--host", nargs="+", default=["0"], help="chunks in host memory; 0: no limit"
    )
    parser.add_argument("--fits", type=int, default=4, help="chunks in GPU memory")
    parser.add_argument(
        "--ordered",
        nargs="+",
        type=int,
        default=[1],
        help="for each run: whether the plan orders comparisons",
    )
    parser.add_argument("--library", choices=("cudf", "pandas"), default="cudf")
    parser.add_argument(
        "--folder", type=Path, required=True, help="where the files are written"
    )
    parser.add_argument(
        "--seconds", type=float, default=280.0, help="start no run later"
    )
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(given)
    start = time.monotonic()
    data = options.folder / "rows"
    data.mkdir(parents=True)
    size = write(data, options.rows, options.dims, options.library, rows_of)
    writing = time.monotonic() - start
    print(f"{size / 1e9:.2f} GB in {writing:.1f} s", file=sys.stderr, flush=True)
    report: dict[str, Any] = {
        "unit": "seconds",
        "options": {
            name: str(value)
            for name, value in vars(options).items()
            if name not in ("folder", "output")
        },
        "bytes of files": size,
        "writing": writing,
        "runs": [],
    }
    if options.library == "cudf":
        from benchmarks.harness.gpu_report import environment

        report["environment"] = environment()
    planned = visits.chunks_in_memory
    for number, (host, ordered) in enumerate(
        zip(options.host, options.ordered, strict=True)
    ):
        if time.monotonic() - start > options.seconds:
            print("no time was left", file=sys.stderr)
            break
        out = options.folder / f"pairs-{number}"
        visits.chunks_in_memory = planned if ordered else (lambda *args: None)
        told: dict[str, Any] = {"host": host, "ordered": bool(ordered)}
        try:
            with worker(
                options.library,
                parse_bytes(options.device),
                parse_bytes(host),
                parse_bytes(options.pool),
            ) as client:
                told |= joined(client, data, out, options)
            told |= checked(out, options.rows, options)
        except Exception as error:  # a failure is a result of the measurement
            told["failed"] = f"{type(error).__name__}: {error}"[:500]
        report["runs"].append(told)
        print(json.dumps(told), file=sys.stderr, flush=True)
        if options.output:
            options.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
