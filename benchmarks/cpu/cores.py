"""``python -m benchmarks cpu.cores``: verbs on 1 and on many cores, and peers on all.

Each job runs on a pandas frame with `threads=`, and on a Dask DataFrame of 64
partitions with Dask's threads; its result stays in memory. "clusters" are worker
processes that hold the rows and the result. "files" reads Parquet and writes Parquet;
"copied files" are as many files that Dask alone reads and writes.
"parts" runs the verb on independent parts of the rows, one per thread, all at the same
time: the same engine without sharing. Peers use all cores, each in a process of its
own. With several numbers of threads, the fastest on an eighth of the rows is used. All
run in turn. For each job, the seconds that its plan expects are also written.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import gc
import importlib.util
import itertools
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait

import dask_simjoin  # noqa: F401
from benchmarks.harness.lazy import scratch
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write

PARTITIONS = 64
SEED = 12
WARM_UP = 8
"""The first call of a peer, which may compile and is not timed, has this part of the
rows.
"""


PEER_THREADS = "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "PARLAY_NUM_THREADS"
"""Variables that set the number of threads of peers."""

CLUSTER = 6_666
"""Rows of a cluster."""


def uniform(rng: np.random.Generator, rows: int, dims: int, width: float) -> np.ndarray:
    """Return uniform points; `width`: length of the box's sides."""
    return rng.random((rows, dims)) * width


def exponential(
    rng: np.random.Generator, rows: int, dims: int, mean: float
) -> np.ndarray:
    """Return exponential coordinates; `mean`: their mean."""
    return rng.exponential(mean, (rows, dims))


def clusters(
    rng: np.random.Generator, rows: int, dims: int, width: float
) -> np.ndarray:
    """Return Gaussian clusters; `width`: length of the sides of the centers' box."""
    number = rows // CLUSTER
    centers = rng.uniform(0, width, (number, dims))
    return centers[rng.integers(0, number, rows)] + 0.02 * rng.normal(size=(rows, dims))


@dataclass(frozen=True)
class Points:
    """Rows to join."""

    make: Callable[..., np.ndarray]
    rows: int
    dims: int
    scale: float  # the last argument of `make`

    def frame(self, part: int = 0, parts: int = 1) -> pd.DataFrame:
        """Return the points, or as many of them as one of `parts` parts has, equally
        dense.
        """
        scale = self.scale / parts ** (1 / self.dims)
        rng = np.random.default_rng([SEED, part] if parts > 1 else SEED)
        points = self.make(rng, self.rows // parts, self.dims, scale)
        return pd.DataFrame(points, columns=[f"x{k}" for k in range(self.dims)])


POINTS = {
    "8M x 2": Points(uniform, 8_000_000, 2, 2828.0),
    "2M x 6": Points(uniform, 2_000_000, 6, 100.0),
    "400k x 16": Points(exponential, 400_000, 16, 1 / 40),
    "2M x 3": Points(clusters, 2_000_000, 3, 1.0),
    "64M x 2": Points(uniform, 64_000_000, 2, 8000.0),
    "8M x 6": Points(uniform, 8_000_000, 6, 126.0),
}
for millions, dims in itertools.product((1, 4), (2, 3, 5, 7, 8)):
    shape = millions * 1_000_000, dims, 1.0
    POINTS[f"{millions}M x {dims}"] = Points(uniform, *shape)
    POINTS[f"{millions}M x {dims}, clusters"] = Points(clusters, *shape)

Call = Callable[..., Any]


@dataclass(frozen=True)
class Job:
    """A verb, the rows, and peers that do the same work."""

    points: str
    verb: Call
    peers: dict[str, Call] = field(default_factory=dict)
    # whether parts of the rows are as much work: not in many columns, where most of the
    # work is at the border of the points
    divisible: bool = True
    # arguments of `plan`, for verbs that it plans
    planned: dict[str, Any] | None = None
    # result -> the number that must be the same for peers
    number: Callable[[Any], float] | None = None


def _counts(x: np.ndarray, eps: float) -> int:
    from scipy.spatial import cKDTree

    tree = cKDTree(x, leafsize=32)
    near = tree.query_ball_point(x, eps, return_length=True, workers=-1)
    return (int(near.sum()) - len(x)) // 2


def _nearest(x: np.ndarray, k: int) -> int:
    from scipy.spatial import cKDTree

    return int(cKDTree(x).query(x, k + 1, workers=-1)[1][:, 1:].size)


def _pykdtree(x: np.ndarray, k: int) -> int:
    from pykdtree.kdtree import KDTree

    return int(KDTree(x).query(x, k=k + 1)[1][:, 1:].size)


def _dbscan(x: np.ndarray, eps: float, min_samples: int) -> int:
    import dbscan

    return len(dbscan.DBSCAN(x, eps=eps, min_samples=min_samples)[0])


def _fast_hdbscan(x: np.ndarray, min_cluster_size: int) -> int:
    import fast_hdbscan

    model = fast_hdbscan.HDBSCAN(
        min_cluster_size=min_cluster_size, min_samples=min_cluster_size
    )
    return len(model.fit(x).labels_)


def _noise(labels: Any) -> int:
    return int((labels < 0).sum())


def _noise_of_dbscan(x: np.ndarray, eps: float, min_samples: int) -> int:
    import dbscan

    return _noise(dbscan.DBSCAN(x, eps=eps, min_samples=min_samples)[0])


def _length(found: Any) -> float:
    """Return the sum of the distances in a result."""
    return float(found["distance"].sum())


def _quitefastmst(x: np.ndarray) -> float:
    import quitefastmst

    quitefastmst.omp_set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return float(quitefastmst.mst_euclid(x, 0, algorithm="single_kd_tree")[0].sum())


def _length_of_pykdtree(x: np.ndarray, k: int) -> float:
    from pykdtree.kdtree import KDTree

    return float(KDTree(x).query(x, k=k + 1)[0].sum())


MODULES = {
    "quitefastmst": "quitefastmst",
    "scipy": "scipy",
    "pykdtree": "pykdtree",
    "dbscan": "dbscan",
    "fast_hdbscan": "fast-hdbscan",
}

JOBS = {
    "8M x 2 self_join": Job(
        "8M x 2", lambda f, **t: f.simjoin.self_join(1.0, **t), planned={"eps": 1.0}
    ),
    "8M x 2 count_pairs": Job(
        "8M x 2",
        lambda f, **t: f.simjoin.count_pairs(1.0, **t),
        {"scipy": lambda x: _counts(x, 1.0)},
    ),
    "8M x 2 dbscan": Job(
        "8M x 2",
        lambda f, **t: f.simjoin.dbscan(1.5, 5, **t),
        {"dbscan": lambda x: _dbscan(x, 1.5, 5)},
    ),
    "8M x 2 knn_join": Job(
        "8M x 2",
        lambda f, **t: f.simjoin.knn_join(k=10, **t),
        {"scipy": lambda x: _nearest(x, 10), "pykdtree": lambda x: _pykdtree(x, 10)},
        planned={"k": 10},
    ),
    "2M x 6 self_join": Job(
        "2M x 6", lambda f, **t: f.simjoin.self_join(9.0, **t), planned={"eps": 9.0}
    ),
    "2M x 6 count_pairs": Job(
        "2M x 6",
        lambda f, **t: f.simjoin.count_pairs(9.0, **t),
        {"scipy": lambda x: _counts(x, 9.0)},
    ),
    "2M x 6 knn_join": Job(
        "2M x 6",
        lambda f, **t: f.simjoin.knn_join(k=10, **t),
        {"pykdtree": lambda x: _pykdtree(x, 10)},
        planned={"k": 10},
    ),
    "400k x 16 count_pairs": Job(
        "400k x 16",
        lambda f, **t: f.simjoin.count_pairs(0.04, **t),
        divisible=False,
    ),
    "2M x 3 hdbscan": Job(
        "2M x 3",
        lambda f, **t: f.simjoin.hdbscan(20, **t),
        {"fast_hdbscan": lambda x: _fast_hdbscan(x, 20)},
    ),
    "2M x 3 dbscan": Job(
        "2M x 3",
        lambda f, **t: f.simjoin.dbscan(0.01, 10, **t),
        {"dbscan": lambda x: _dbscan(x, 0.01, 10)},
    ),
    "64M x 2 self_join": Job(
        "64M x 2",
        lambda f, **t: f.simjoin.self_join(1.0, **t),
        planned={"eps": 1.0},
    ),
    "64M x 2 count_pairs": Job(
        "64M x 2", lambda f, **t: f.simjoin.count_pairs(1.0, **t)
    ),
    "64M x 2 dbscan": Job("64M x 2", lambda f, **t: f.simjoin.dbscan(1.5, 5, **t)),
    "8M x 6 self_join": Job(
        "8M x 6",
        lambda f, **t: f.simjoin.self_join(9.0, **t),
        planned={"eps": 9.0},
    ),
}

FIRST = list(JOBS)
"""The jobs that run without `--jobs`."""

DENSE = {
    2: {10: 0.00128, 100: 0.00382, 1000: 0.012},
    3: {10: 0.00475, 100: 0.0105, 1000: 0.0237},
    5: {10: 0.0138, 100: 0.0228, 1000: 0.0397},
    7: {10: 0.0229, 100: 0.0334, 1000: 0.0511},
}
"""Columns -> mean number of neighbors of a million rows in clusters -> the distance."""

DENSE_SHAPES = [f"1M x {dims}, clusters" for dims in DENSE]

for shape, points in POINTS.items():
    if points.scale != 1.0 or shape == "2M x 3":
        continue
    if points.make is uniform:
        JOBS[f"{shape} spanning_tree"] = Job(
            shape,
            lambda f, **t: f.simjoin.spanning_tree(**t),
            {"quitefastmst": _quitefastmst},
            number=_length,
        )
        JOBS[f"{shape} knn_join"] = Job(
            shape,
            lambda f, **t: f.simjoin.knn_join(k=10, **t),
            {"pykdtree": lambda x: _length_of_pykdtree(x, 10)},
            planned={"k": 10},
            number=_length,
        )
        continue
    JOBS[f"{shape} hdbscan"] = Job(
        shape,
        lambda f, **t: f.simjoin.hdbscan(20, **t),
        {"fast_hdbscan": lambda x: _fast_hdbscan(x, 20)},
    )
    for near, eps in DENSE[points.dims].items() if shape in DENSE_SHAPES else ():
        JOBS[f"{shape} dbscan, {near}"] = Job(
            shape,
            lambda f, e=eps, **t: f.simjoin.dbscan(e, 10, **t),
            {"dbscan": lambda x, e=eps: _noise_of_dbscan(x, e, 10)},
            number=_noise,
        )

KINDS = ("pandas", "dask", "clusters", "files", "parts", "peers")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.cores", description=__doc__
    )
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=FIRST)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 8, 16, 32])
    parser.add_argument(
        "--lazy-threads", nargs="+", type=int, help="for Dask (default: --threads)"
    )
    parser.add_argument(
        "--part-threads", nargs="+", type=int, help="for parts (default: --threads)"
    )
    parser.add_argument(
        "--clusters",
        nargs="*",
        default=["8x4", "32x1"],
        help="worker processes x threads (default: %(default)s)",
    )
    parser.add_argument(
        "--file-threads", nargs="+", type=int, help="for files (default: --threads)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="for files (default: the system's temporary folder)",
    )
    parser.add_argument("--peers", nargs="*", default=list(MODULES))
    parser.add_argument(
        "--peer-threads",
        nargs="+",
        type=int,
        default=[os.cpu_count() or 1],
        help="numbers of threads that peers try (default: all cores)",
    )
    parser.add_argument(
        "--longest",
        type=float,
        default=1e9,
        help="no run on fewer threads if more seconds are expected",
    )
    parser.add_argument(
        "--peer-limit", type=float, default=600.0, help="seconds until a peer is ended"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs (default 3)")
    parser.add_argument(
        "--patience", type=float, default=5.0, help="no repetition of longer runs"
    )
    parser.add_argument(
        "--limit", type=float, default=1e9, help="begin no job after so many seconds"
    )
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: standard output)"
    )
    return parser.parse_args()


def size(result: Any) -> int:
    """Return the number of rows of a result, or the number that it is."""
    if hasattr(result, "compute") and not isinstance(result, (dd.DataFrame, dd.Series)):
        result = result.compute()
    return len(result) if hasattr(result, "__len__") else int(result)


def timed(
    call: Call, repeat: int, patience: float, number: Callable[[Any], float] = size
) -> dict[str, Any]:
    """Return the seconds and the CPU seconds of some runs, and the size of the result."""
    seconds, cpu, found = [], [], 0.0
    while len(seconds) < repeat and not (seconds and seconds[-1] > patience):
        gc.collect()
        before, began = os.times(), time.perf_counter()
        result = call()
        seconds.append(round(time.perf_counter() - began, 4))
        after = os.times()
        cpu.append(round(after.user - before.user + after.system - before.system, 3))
        found = number(result)
        del result
    median = statistics.median(seconds)
    return {"seconds": seconds, "cpu": cpu, "median": median, "found": found}


def on_threads(job: Job, frame: dd.DataFrame, threads: int) -> Any:
    """Run a job with Dask's threads; keep the result in memory."""
    with dask.config.set(scheduler="threads", num_workers=threads):
        found = job.verb(frame)
        return found.persist() if hasattr(found, "persist") else found.compute()


@contextlib.contextmanager
def workers(name: str) -> Iterator[Client]:
    """Start worker processes on this machine. `name`: processes x threads, as "8x4"."""
    processes, threads = map(int, name.split("x"))
    with (
        LocalCluster(
            n_workers=processes, threads_per_worker=threads, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def on_workers(job: Job, frame: dd.DataFrame) -> Any:
    """Run a job on the workers that hold the frame; keep the result there."""
    found = job.verb(frame)
    if not hasattr(found, "persist"):
        return found.compute()
    found = found.persist()
    wait(found)
    return found


def write_files(frame: pd.DataFrame, folder: Path) -> None:
    """Write the rows of a job to one file per partition; labels count rows."""
    folder.mkdir()
    for n, rows in enumerate(np.array_split(np.arange(len(frame)), PARTITIONS)):
        part = frame.iloc[rows[0] : rows[-1] + 1]
        part.to_parquet(folder / f"{n:03}.parquet", compression=None)


def _write(frame: dd.DataFrame, folder: Path) -> dd.DataFrame:
    frame.to_parquet(folder, compression=None, write_index=False, overwrite=True)
    return dd.read_parquet(folder)


def from_files(job: Job, files: Path, written: Path, threads: int) -> Any:
    """Run a job from files to files, with Dask's threads."""
    with dask.config.set(scheduler="threads", num_workers=threads):
        found = job.verb(dd.read_parquet(files))
        if not isinstance(found, (dd.DataFrame, dd.Series)):
            return found.compute()
        found = found.to_frame("label") if isinstance(found, dd.Series) else found
        return _write(found, written)


def copy_files(files: Path, written: Path, target: Path, threads: int) -> Any:
    """Read the rows, then read a result from files and write it, with Dask alone."""
    with dask.config.set(scheduler="threads", num_workers=threads):
        rows = dd.read_parquet(files).persist()
        return _write(dd.read_parquet(written), target) if written.exists() else rows


def in_parts(job: Job, frames: list[pd.DataFrame]) -> list[Any]:
    """Run a job on independent parts at the same time, each on one thread."""
    with ThreadPoolExecutor(len(frames)) as pool:
        return list(pool.map(lambda frame: job.verb(frame, threads=1), frames))


def _say(name: str, kind: str, one: dict[str, Any]) -> None:
    what = one.get("failed")
    if what is None:
        what = f"{one['median']:.2f} s, CPU {one['cpu'][-1]:.1f} s, {one['found']:,}"
    print(f"{name}, {kind}: {what}", file=sys.stderr, flush=True)


def peer_alone(
    name: str, peer: str, part: int, repeat: int, patience: float
) -> dict[str, Any]:
    """Measure a peer on every `part`-th row of a job."""
    job = JOBS[name]
    x = POINTS[job.points].frame().to_numpy(dtype=float)
    rows = np.ascontiguousarray(x[::part])
    job.peers[peer](np.ascontiguousarray(x[: len(x) // WARM_UP]))
    number = size if job.number is None else float
    return timed(lambda: job.peers[peer](rows), repeat, patience, number)


def in_process(
    name: str, peer: str, threads: int, limit: float, *how: Any
) -> dict[str, Any]:
    """Measure a peer in a process of its own: threads of some peers go on working after
    a call. Most peers read their number of threads from the environment.
    """
    environment = dict.fromkeys(PEER_THREADS, str(threads))
    os.environ.update(environment)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            future = pool.submit(peer_alone, name, peer, *how)
            if not concurrent.futures.wait([future], timeout=limit).done:
                for process in multiprocessing.active_children():
                    process.kill()
                return {"failed": f"ended after {limit} s"}
            return future.result()
    finally:
        for variable in environment:
            del os.environ[variable]


def peer_at_best(name: str, peer: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a peer with the fastest of some numbers of threads."""
    tries = {}
    for threads in options.peer_threads if len(options.peer_threads) > 1 else ():
        one = in_process(name, peer, threads, options.peer_limit, WARM_UP, 1, 0.0)
        tries[threads] = one.get("median", math.inf)
    threads = min(tries, key=tries.__getitem__, default=options.peer_threads[0])
    how = options.repeat, options.patience
    found = in_process(name, peer, threads, options.peer_limit, 1, *how)
    return found | {"threads": threads} | ({"tries": tries} if tries else {})


def measure(name: str, frame: pd.DataFrame, options: argparse.Namespace) -> Any:
    """Return the measurements of one job."""
    job, found = JOBS[name], {}
    how = options.repeat, options.patience
    most = max(options.threads)
    job.verb(frame, threads=most)  # compiles kernels
    if job.planned is not None:
        for threads in options.threads:
            plan = frame.simjoin.plan(**job.planned, threads=threads)
            found[f"plan, {threads}"] = {"seconds": plan.seconds}

    def keep(kind: str, call: Call) -> None:
        found[kind] = timed(call, *how, job.number or size)
        _say(name, kind, found[kind])

    expected = 0.0
    for threads in sorted(options.threads, reverse=True):
        if "pandas" in options.kinds and expected * most / threads < options.longest:
            kind = f"pandas, {threads}"
            keep(kind, lambda n=threads: job.verb(frame, threads=n))
            expected = expected or found[kind]["median"]
    if "dask" in options.kinds:
        lazy = dd.from_pandas(frame, npartitions=PARTITIONS, sort=False)
        on_threads(job, lazy, most)
        for threads in options.lazy_threads or options.threads:
            keep(f"dask, {threads}", lambda n=threads: on_threads(job, lazy, n))
        del lazy
    if "files" in options.kinds:
        with scratch(options.folder) as folder:
            files, written = folder / "rows", folder / "result"
            write_files(frame, files)
            for n in options.file_threads or options.threads:
                own, copied = (
                    (job, files, written, n),
                    (files, written, folder / "copy", n),
                )
                keep(f"files, {n}", functools.partial(from_files, *own))
                keep(f"copied files, {n}", functools.partial(copy_files, *copied))
    if "parts" in options.kinds and job.divisible:
        for threads in options.part_threads or options.threads:
            if threads > 1:
                points = POINTS[job.points]
                parts = [points.frame(part, threads) for part in range(threads)]
                keep(
                    f"parts, {threads}",
                    lambda p=parts: sum(map(size, in_parts(job, p))),
                )
    if "peers" in options.kinds:
        for peer in job.peers:
            if peer in options.peers and importlib.util.find_spec(peer):
                found[peer] = peer_at_best(name, peer, options)
                _say(name, peer, found[peer])
    return found


def measure_clusters(
    jobs: dict[str, Any], frame: pd.DataFrame, options: argparse.Namespace
) -> Iterator[None]:
    """Measure jobs with the same rows on clusters, and add the results to each job.
    Yield after each measurement.
    """
    for cluster in options.clusters:
        with workers(cluster):
            lazy = dd.from_pandas(frame, npartitions=PARTITIONS, sort=False).persist()
            wait(lazy)
            for name, found in jobs.items():
                call = functools.partial(on_workers, JOBS[name], lazy)
                call()
                kind = f"cluster, {cluster}"
                found[kind] = timed(call, options.repeat, options.patience)
                _say(name, kind, found[kind])
                yield
            del lazy, call


@dataclass(frozen=True)
class Distribution:
    """A package whose version is reported."""

    distribution: str


def main() -> None:
    """Run the benchmark and print its results as JSON."""
    options, began = arguments(), time.monotonic()
    peers = [Distribution(name) for name in MODULES.values()]
    report: dict[str, Any] = {
        "environment": environment(peers, VERSION),
        "unit": "seconds, from the call to the result in memory",
        "threads": options.threads,
        "jobs": {},
    }

    def is_late() -> bool:
        return time.monotonic() - began > options.limit

    def keep() -> None:
        if options.output is not None:
            write(report, options.output)

    by_points = itertools.groupby(options.jobs, lambda name: JOBS[name].points)
    for points, names in by_points:
        if is_late():
            break
        frame, same = POINTS[points].frame(), {}
        for name in itertools.takewhile(lambda _: not is_late(), names):
            same[name] = report["jobs"][name] = measure(name, frame, options)
            keep()
        if "clusters" in options.kinds:
            for _ in measure_clusters(same, frame, options):
                keep()
        del frame
    write(report, options.output)


if __name__ == "__main__":
    main()
