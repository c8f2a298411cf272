"""``python -m benchmarks gpu.embeddings``: exact near-duplicates of embeddings in
Parquet files, on one GPU.

Rows are float32 lists in files of 250,000 rows.  Half of the rows have random
directions, and half belong to clusters of 20 rows.  In each file some rows are copies,
with noise, of rows of the next file.  The accessor of a Dask DataFrame joins them by
cosine distance.  Times include reading, planning and all pairs on the GPU.

The check takes some rows, computes all of their distances in float64 by matrix
products, and compares their pairs with the join's.  With ``--library pandas`` the same
program runs without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster, wait

import dask_simjoin
from benchmarks.harness.timeline import timeline

FILE_ROWS = 250_000
CLUSTER = 20
"""Rows of a cluster."""
COPIED = 200
"""One row in this many is a copy of a row of the next file."""
WRITERS = 4
VERBS = ("self_join", "near_duplicated")
UNDECIDED = 1e-9
"""Matrix products do not decide pairs whose distance differs from eps by less."""


def arrays(library: str) -> Any:
    """Return CuPy or NumPy."""
    if library == "cudf":
        import cupy

        return cupy
    return np


def normal(xp: Any, seed: tuple[int, ...], rows: int, dims: int) -> Any:
    """Return normally distributed float32 numbers (rows, dims)."""
    return xp.random.default_rng(seed).standard_normal((rows, dims), xp.float32)


def rows_of(xp: Any, number: int, files: int, rows: int, dims: int) -> Any:
    """Return the rows of a file, float32 (rows, dims)."""
    copied = rows // COPIED
    rng = xp.random.default_rng((3, number))
    x = xp.empty((rows, dims), xp.float32)
    x[:copied] = normal(xp, (1, number), copied, dims)
    noise = xp.sqrt(2 * rng.random((copied, 1), xp.float32) * np.float32(0.15))
    x[copied : 2 * copied] = normal(xp, (1, (number + 1) % files), copied, dims)
    x[copied : 2 * copied] += noise * rng.standard_normal((copied, dims), xp.float32)
    half = rows // 2
    x[2 * copied : half] = rng.standard_normal((half - 2 * copied, dims), xp.float32)
    # row `half + c` of each group of files belongs to cluster c of the group
    group = number // CLUSTER
    centres = normal(xp, (2, group), rows - half, dims)
    width = 0.05 + 0.45 * xp.random.default_rng((4, group)).random(
        (rows - half, 1), xp.float32
    )
    x[half:] = centres + width * rng.standard_normal((rows - half, dims), xp.float32)
    return x


def divided(rows: int) -> tuple[int, int]:
    """Return the number of files, and the rows of each."""
    files = max(1, rows // FILE_ROWS)
    return files, rows // files


def write(
    folder: Path,
    rows: int,
    dims: int,
    library: str,
    make: Callable[[Any, int, int, int, int], Any] = rows_of,
) -> int:
    """Write the files, and return their bytes. `make`: see `rows_of`."""
    xp, (files, each) = arrays(library), divided(rows)

    def one(number: int) -> int:
        x = make(xp, number, files, each, dims)
        flat = (x if xp is np else x.get()).ravel()
        starts = pa.array(np.arange(each + 1, dtype=np.int32) * dims)
        vectors = pa.ListArray.from_arrays(starts, pa.array(flat))
        table = pa.table(
            {"row": np.arange(number * each, (number + 1) * each), "vector": vectors}
        )
        path = folder / f"{number:04d}.parquet"
        pq.write_table(
            table,
            path,
            compression="none",
            use_dictionary=False,
            row_group_size=each // 4,
        )
        return path.stat().st_size

    with ThreadPoolExecutor(WRITERS) as pool:
        total = sum(pool.map(one, range(files)))
    if xp is not np:
        xp.get_default_memory_pool().free_all_blocks()
    return total


def unit(xp: Any, x: np.ndarray) -> Any:
    """Return unit vectors in float64."""
    y = xp.asarray(x, xp.float64)
    return y / xp.sqrt((y * y).sum(axis=1, keepdims=True))


def pairs_near(near: Any, some: np.ndarray, first: int) -> set[tuple[int, int]]:
    """Return pairs of row numbers from the places of near rows in a matrix.

    `some`: numbers of the rows of the matrix. `first`: number of its first column.
    """
    ends = [
        (int(some[i]), first + j)
        for i, j in zip(*(places.tolist() for places in near), strict=True)
    ]
    return {(min(pair), max(pair)) for pair in ends if pair[0] != pair[1]}


def pairs_by_products(
    rows: int, some: np.ndarray, eps: float, dims: int, library: str
) -> tuple[set[tuple[int, int]], int]:
    """Return the pairs of some rows, by matrix products in float64, and how many are
    undecided.
    """
    xp, (files, each) = arrays(library), divided(rows)
    queries = [
        unit(xp, rows_of(xp, number, files, each, dims))[
            some[some // each == number] % each
        ]
        for number in np.unique(some // each).tolist()
    ]
    q = xp.concatenate(queries)
    found: set[tuple[int, int]] = set()
    undecided = 0
    for number in range(files):
        distance = 1 - q @ unit(xp, rows_of(xp, number, files, each, dims)).T
        undecided += int((abs(distance - eps) < UNDECIDED).sum())
        found |= pairs_near(xp.nonzero(distance <= eps), some, number * each)
    return found, undecided


@contextlib.contextmanager
def peak_memory(
    client: Client, told: dict[str, Any], name: str, library: str
) -> Iterator[None]:
    """Store the peak of the GPU's memory in GB under a name; without a GPU, do nothing."""
    if library != "cudf":
        yield
        return
    from benchmarks.gpu.clusters_workers import count_anew, count_bytes, counted

    client.run(count_bytes)
    before = sum(client.run(count_anew).values())
    yield
    told[name] = round((before + sum(client.run(counted).values())) / 1e9, 2)


@contextlib.contextmanager
def cluster_of(library: str, limit: float) -> Iterator[Client]:
    """Start a cluster of one GPU, or of two processes."""
    if library != "cudf":
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0"
            ) as own,
            Client(own) as c,
        ):
            yield c
        return
    from dask_cuda import LocalCUDACluster

    from benchmarks.gpu.road import use_pool

    settings = {
        "rmm_pool_size": 0.6,
        "rmm_maximum_pool_size": 0.93,
        "device_memory_limit": limit,
    }
    with (
        LocalCUDACluster(n_workers=1, dashboard_address=":0", **settings) as own,
        Client(own) as client,
    ):
        client.run(use_pool)
        yield client


def opened(folder: Path, library: str) -> Any:
    """Return the files as a Dask DataFrame with one partition for each file."""
    if library == "cudf":
        dask.config.set({"dataframe.backend": "cudf"})
    return dd.read_parquet(folder, **({"blocksize": None} if library == "cudf" else {}))


def joined(
    client: Client, frame: Any, some: np.ndarray, options: argparse.Namespace
) -> dict[str, Any]:
    """Join the rows of the files; return measurements, and the pairs of some rows as
    "pairs of some".
    """
    start = time.perf_counter()
    lazy = frame.simjoin.self_join(options.eps, on="vector", metric="cosine", id="row")
    told: dict[str, Any] = {
        "partitions of pairs": lazy.npartitions,
        "planned": time.perf_counter() - start,
    }
    print(f"planned in {told['planned']:.2f} s", file=sys.stderr, flush=True)
    client.get_task_stream(count=1)
    began = time.time()
    with peak_memory(client, told, "GPU memory of self_join, GB", options.library):
        pairs = lazy.persist()
        wait(pairs)
    told["self_join"] = time.perf_counter() - start
    stream = client.get_task_stream(start=began)
    told["timeline"] = timeline(stream, began, time.time())
    told["pairs"] = len(pairs)
    print(dask_simjoin.report(lazy), file=sys.stderr, flush=True)
    mine = pairs[
        pairs.left.isin(some.tolist()) | pairs.right.isin(some.tolist())
    ].compute()
    mine = mine.to_pandas() if options.library == "cudf" else mine
    found = {
        (min(a, b), max(a, b))
        for a, b in mine[["left", "right"]].itertuples(index=False)
    }
    return told | {"pairs of some": found}


def marked(client: Client, frame: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Mark near-duplicates; return the seconds, the number of marked rows, and all
    marks as "marks".
    """
    client.get_task_stream(count=1)
    told: dict[str, Any] = {}
    with peak_memory(
        client, told, "GPU memory of near_duplicated, GB", options.library
    ):
        start, began = time.perf_counter(), time.time()
        lazy = frame.simjoin.near_duplicated(
            options.eps, on="vector", metric="cosine"
        ).persist()
        wait(lazy)
        told["near_duplicated"] = time.perf_counter() - start
    told["timeline of near_duplicated"] = timeline(
        client.get_task_stream(start=began), began, time.time()
    )
    found = lazy.compute()
    marks = (found.to_pandas() if options.library == "cudf" else found).to_numpy()
    return told | {"marked rows": int(marks.sum()), "marks": marks}


def checked(
    told: dict[str, Any], some: np.ndarray, options: argparse.Namespace
) -> dict[str, Any]:
    """Replace pairs and marks of some rows by how many of them are wrong.  The cluster
    must have ended.
    """
    pairs, marks = told.pop("pairs of some", None), told.pop("marks", None)
    if not len(some):
        return told
    start = time.perf_counter()
    truth, undecided = pairs_by_products(
        told["rows"], some, options.eps, options.dims, options.library
    )
    told |= {
        "checked rows": len(some),
        "pairs of checked rows": len(truth),
        "undecided": undecided,
    }
    if pairs is not None:
        told |= {"missed": len(truth - pairs), "wrong": len(pairs - truth)}
    if marks is not None:  # a row is marked if a row before it is near and not marked
        near = {later for earlier, later in truth if not marks[earlier]}
        told["wrong marks"] = sum(
            bool(marks[row]) != (row in near) for row in some.tolist()
        )
    return told | {"checking": time.perf_counter() - start}


def main(given: list[str]) -> int:
    """Run the benchmark, and write its results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.embeddings", description=__doc__
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000]
    )
    parser.add_argument("--dims", type=int, default=768)
    parser.add_argument("--eps", type=float, default=0.05)
    parser.add_argument(
        "--checked", type=int, default=100, help="rows that are compared with all rows"
    )
    parser.add_argument(
        "--verbs",
        nargs="+",
        choices=VERBS,
        default=list(VERBS[:1]),
        metavar="VERB",
        help=f"of {', '.join(VERBS)}",
    )
    parser.add_argument("--library", choices=("cudf", "pandas"), default="cudf")
    parser.add_argument(
        "--limit",
        type=float,
        default=0.8,
        help="share of GPU memory before chunks spill",
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where the files are written"
    )
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(given)
    results = []
    for rows in options.rows:
        folder = options.folder / str(rows)
        folder.mkdir(parents=True)
        start = time.perf_counter()
        size = write(folder, rows, options.dims, options.library)
        print(
            f"{rows} rows: {size / 1e9:.1f} GB in {time.perf_counter() - start:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        some = np.sort(
            np.random.default_rng(7).choice(rows, options.checked, replace=False)
        )
        told = {
            "rows": rows,
            "dims": options.dims,
            "eps": options.eps,
            "bytes of files": size,
        }
        with cluster_of(options.library, options.limit) as client:
            frame = opened(folder, options.library)
            if "self_join" in options.verbs:
                told |= joined(client, frame, some, options)
                print(
                    {name: told[name] for name in ("self_join", "pairs")},
                    file=sys.stderr,
                    flush=True,
                )
            if "near_duplicated" in options.verbs:
                told |= marked(client, frame, options)
        results.append(checked(told, some, options))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
        for path in folder.glob("*.parquet"):
            path.unlink()
        if options.output:
            report: dict[str, Any] = {"unit": "seconds", "results": results}
            if options.library == "cudf":
                from benchmarks.harness.gpu_report import environment

                report["environment"] = environment()
            options.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
