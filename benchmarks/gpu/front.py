"""``python -m benchmarks gpu.front``: the rows of the front pages on one GPU: verbs of
cuDF and Dask frames, the kernels, and cuML.

Points and results stay on the GPU.  All tools of a row take turns in one process; Dask
frames follow on a cluster of the same GPU, in another process.  cuML computes in
float32, and each of its algorithms that can do the work is run.  The file is written
after each row, so that a run that is cut keeps what it measured.

``--library pandas`` runs the verbs alone, on the CPU, to try the program.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.cpu import hdbscan_worker
from benchmarks.harness import front
from benchmarks.harness.cluster_points import POINTS
from benchmarks.harness.front import PART, Call, Row
from benchmarks.harness.report import write

POOL = "60 GiB"
"""GPU memory of the worker of Dask frames."""

PLAIN_POOL = 60 * 2**30
"""First bytes of the pool of all others."""

LIMIT = 300.0
"""Seconds until one of the two processes is given up."""

K = 10
"""Number of nearest neighbors."""

BRUTE, GRAPH = "cuML, brute force", "cuML, radius graph"


class Library:
    """Where frames are: cuDF on the GPU, or pandas on the CPU."""

    def __init__(self, name: str, dask: bool) -> None:
        self.gpu, self.dask = name == "cudf", dask
        self.peers = self.gpu and not dask and bool(importlib.util.find_spec("cuml"))
        self.verb = {True: "cuDF", False: "pandas"}[self.gpu] if not dask else "Dask"

    def frame(self, x: np.ndarray, run: int) -> Any:
        """Return points as a frame; labels begin at `run`, so that no plan is reused."""
        columns = {f"x{k}": np.ascontiguousarray(x[:, k]) for k in range(x.shape[1])}
        if not self.gpu:
            table: Any = pd.DataFrame(columns, index=pd.RangeIndex(run, run + len(x)))
        else:
            import cudf

            table = cudf.DataFrame(columns)
            table.index = cudf.RangeIndex(run, run + len(x))
        if not self.dask:
            return table
        from distributed import wait

        if self.gpu:
            from dask_cudf import from_cudf as split
        else:
            from dask.dataframe import from_pandas as split
        lazy = split(table, npartitions=8).persist()
        wait(lazy)
        return lazy

    def points(self, x: np.ndarray) -> tuple[Any, Any]:
        """Return points of the GPU for the kernels (float64, by column), and for cuML
        (float32, by row).
        """
        import cupy

        single = cupy.ascontiguousarray(cupy.asarray(x))
        return cupy.asfortranarray(single.astype(cupy.float64)), single

    def clock(self) -> float:
        """Return seconds; work on the GPU is done then."""
        if self.gpu and not self.dask:
            import cupy

            cupy.cuda.Device().synchronize()
        return time.perf_counter()

    def call(
        self, x: np.ndarray, verb: Callable[[Any], Any], count: Callable[[Any], int]
    ) -> dict[str, Call]:
        """Return a verb of this library's frames."""

        def lazy(table: Any) -> Any:
            from distributed import wait

            found = verb(table)
            found = found.persist() if hasattr(found, "persist") else found.compute()
            wait(found)
            return found

        run = lazy if self.dask else verb
        return {self.verb: Call("verb", {"": run}, count, lambda k: self.frame(x, k))}


Calls = Callable[[int], dict[str, Call]]


def _draw(kind: str, n: int, dims: int) -> np.ndarray:
    random = np.random.default_rng(0 if kind == "exponential" else 1)
    if kind == "uniform":
        return (random.random((n, dims)) * 100).astype(np.float32)
    scale = 2.5 if dims == 2 else 1 / 40
    return random.exponential(scale, (n, dims)).astype(np.float32)


def self_join(
    lib: Library, kind: str, n: int, dims: int, eps: float, cuml: tuple[str, ...]
) -> Row:
    """Return a self-join of the rows of `gpu.joins`."""

    def calls(part: int) -> dict[str, Call]:
        within = eps * part ** (1 / dims)
        x = _draw(kind, n // part, dims)
        found = lib.call(x, lambda table: table.simjoin.self_join(within), len)
        if not lib.gpu or lib.dask:
            return found
        wide, single = lib.points(x)
        found["kernels"] = Call(
            "engine", {"": lambda run: _pairs(wide, within)}, lambda left: len(left)
        )
        if lib.peers and GRAPH in cuml:
            found[GRAPH] = Call(
                "peer",
                {"": lambda run: _graph(single, within)},
                lambda graph: (graph.nnz - len(single)) // 2,
                exact=False,
            )
        if lib.peers and BRUTE in cuml:
            found[BRUTE] = Call(
                "peer",
                {"": lambda run: _brute(single, within)},
                int,
                exact=False,
                grows=PART**2,
            )
        return found

    skipped = (
        {}
        if lib.dask or not lib.peers
        else {name: "minutes" for name in (GRAPH, BRUTE) if name not in cuml}
    )
    data = f"{kind} {dims}-D, {_rows(n)} rows"
    return Row("self-join", data, calls, skipped, f"eps {eps:g}")


def _pairs(x: Any, eps: float) -> Any:
    from dask_simjoin.engine.gpu.joiner import JOINER
    from dask_simjoin.planning.sample import moments

    found = moments(x)
    layout = JOINER.layout(
        "auto", found.lower, found.upper, found.mean, found.variance, eps * eps
    )
    index = JOINER.build(x, layout)
    return JOINER.pairs(index, index, layout, is_self_join=True).left


def _graph(x: Any, eps: float) -> Any:
    from cuml.neighbors import NearestNeighbors

    index = NearestNeighbors(algorithm="rbc", metric="euclidean").fit(x)
    return index.radius_neighbors_graph(x, radius=eps)


def _brute(x: Any, eps: float) -> int:
    import cupy
    from cuml.metrics import pairwise_distances

    found, block = 0, max(64, (1 << 30) // len(x))
    for start in range(0, len(x), block):
        away = pairwise_distances(
            x[start : start + block], x[start:], metric="sqeuclidean"
        )
        left, right = cupy.nonzero(away <= np.float32(eps**2))
        found += int((right > left).sum())
    return found


def neighbors(lib: Library, kind: str, n: int, dims: int, cuml: tuple[str, ...]) -> Row:
    """Return a search for nearest neighbors."""

    def calls(part: int) -> dict[str, Call]:
        x = _draw(kind, n // part, dims)
        found = lib.call(x, lambda table: table.simjoin.knn_join(k=K), len)
        if not lib.gpu or lib.dask:
            return found
        wide, single = lib.points(x)
        found["kernels"] = Call(
            "engine", {"": lambda run: _nearest(wide)}, lambda state: state.size
        )
        for algorithm in cuml if lib.peers else ():
            found[f"cuML, {algorithm}"] = Call(
                "peer",
                {"": functools.partial(_kneighbors, algorithm, single)},
                lambda found: found[0].shape[0] * K,
                grows=PART**2 if algorithm == "brute" else PART,
            )
        return found

    return Row(f"{K} nearest neighbors", f"{kind} {dims}-D, {_rows(n)} rows", calls)


def _nearest(x: Any) -> Any:
    from dask_simjoin.engine.gpu.nearest import SEARCHER, build
    from dask_simjoin.planning.sample import moments

    found = moments(x)
    layout = SEARCHER.layout(
        found.lower, found.upper, found.mean, found.variance, x[::100].get()
    )
    index = SEARCHER.renamed(build(x, layout), 0)
    state = SEARCHER.fresh(len(x), K)
    SEARCHER.nearest(index, index, layout, *state, is_self_join=True)
    return state[1]


def _kneighbors(algorithm: str, x: Any, run: int) -> Any:
    from cuml.neighbors import NearestNeighbors

    # one more, because it also finds the row itself
    index = NearestNeighbors(
        n_neighbors=K + 1, algorithm=algorithm, output_type="cupy"
    ).fit(x)
    return index.kneighbors(x)


def _clusters(labels: Any) -> int:
    if labels.ndim == 2:
        labels = labels["label"]
    found = labels.max()
    return int(found.compute() if hasattr(found, "compute") else found) + 1


def dbscan(lib: Library, kind: str, n: int) -> Row:
    """Return DBSCAN of the points of `cpu.clusters`."""
    points = POINTS[kind]

    def calls(part: int) -> dict[str, Call]:
        rows = n // part
        x = points.points(rows).astype(np.float32)
        eps, least = points.eps(rows), points.min_samples
        found = lib.call(x, lambda table: table.simjoin.dbscan(eps, least), _clusters)
        if lib.peers:
            _, single = lib.points(x)
            found["cuML, rbc"] = Call(
                "peer",
                {"": lambda run: _cuml_dbscan(single, eps, least)},
                _clusters,
                exact=False,
                grows=PART**2,
            )
        return found

    text = {"uniform": "uniform", "blobs": "blobs and noise"}[kind]
    # 200 times as slow as rbc on the first of these rows
    skipped = {"cuML, brute force": "12.6 s for 1M rows"} if lib.peers else {}
    return Row("DBSCAN", f"{text} 2-D, {_rows(n)} rows", calls, skipped)


def _cuml_dbscan(x: Any, eps: float, least: int) -> Any:
    from cuml.cluster import DBSCAN

    model = DBSCAN(
        eps=eps,
        min_samples=least,
        algorithm="rbc",
        calc_core_sample_indices=False,
        output_type="cupy",
    )
    # with int32, its default, rbc refuses a million rows
    return model.fit(x, out_dtype="int64").labels_


def hdbscan(lib: Library, n: int, dims: int) -> Row:
    """Return HDBSCAN of the points of `cpu.hdbscan`."""
    size, least = hdbscan_worker.MIN_CLUSTER_SIZE, hdbscan_worker.MIN_SAMPLES

    def calls(part: int) -> dict[str, Call]:
        x = hdbscan_worker.points(n // part, dims).astype(np.float32)

        def verb(table: Any) -> Any:
            return table.simjoin.hdbscan(size, min_samples=least)

        found = lib.call(x, verb, _clusters)
        if lib.peers:
            _, single = lib.points(x)
            found["cuML"] = Call(
                "peer",
                {"": lambda run: _cuml_hdbscan(single, size, least)},
                _clusters,
                exact=False,
            )
        return found

    return Row("HDBSCAN", f"blobs and noise {dims}-D, {_rows(n)} rows", calls)


def _cuml_hdbscan(x: Any, size: int, least: int) -> Any:
    from cuml.cluster import HDBSCAN

    # its min_samples counts other rows only
    model = HDBSCAN(min_cluster_size=size, min_samples=least - 1, output_type="cupy")
    return model.fit(x).labels_


def _rows(n: int) -> str:
    return f"{n // 1_000_000}M" if n % 1_000_000 == 0 else f"{n // 1000}k"


BOTH = (GRAPH, BRUTE)

FRONT: dict[str, Callable[[Library], Row]] = {
    "self-join 2-D": lambda lib: self_join(
        lib, "exponential", 2_000_000, 2, 0.05, (GRAPH,)
    ),
    "self-join 2-D 20M": lambda lib: self_join(
        lib, "uniform", 20_000_000, 2, 0.1, (GRAPH,)
    ),
    "self-join 3-D": lambda lib: self_join(lib, "uniform", 5_000_000, 3, 1.0, (GRAPH,)),
    "self-join 6-D": lambda lib: self_join(lib, "uniform", 2_000_000, 6, 8.0, (GRAPH,)),
    "self-join 16-D": lambda lib: self_join(
        lib, "exponential", 500_000, 16, 0.05, BOTH
    ),
    "self-join 32-D": lambda lib: self_join(
        lib, "exponential", 500_000, 32, 0.08, (BRUTE,)
    ),
    "self-join 64-D": lambda lib: self_join(
        lib, "exponential", 500_000, 64, 0.16, (BRUTE,)
    ),
    "nearest 2-D": lambda lib: neighbors(lib, "uniform", 1_000_000, 2, ("rbc",)),
    "nearest 3-D": lambda lib: neighbors(lib, "uniform", 500_000, 3, ("rbc", "brute")),
    "nearest 16-D": lambda lib: neighbors(lib, "exponential", 100_000, 16, ("brute",)),
    "dbscan uniform": lambda lib: dbscan(lib, "uniform", 1_000_000),
    "dbscan blobs": lambda lib: dbscan(lib, "blobs", 1_000_000),
    "dbscan 10M": lambda lib: dbscan(lib, "uniform", 10_000_000),
    "hdbscan 2-D": lambda lib: hdbscan(lib, 1_000_000, 2),
    "hdbscan 64-D": lambda lib: hdbscan(lib, 1_000_000, 64),
}
"""Rows that are measured, in this order."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.front", description=__doc__
    )
    parser.add_argument("--rows", nargs="+", choices=FRONT, default=list(FRONT))
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (5)")
    parser.add_argument(
        "--seconds", type=float, default=420, help="most seconds of all (420)"
    )
    parser.add_argument("--no-dask", action="store_true", help="plain frames only")
    parser.add_argument(
        "--library", choices=("cudf", "pandas"), default="cudf", help="of the frames"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a fiftieth of the rows, to try it"
    )
    parser.add_argument("--output", type=Path, help="JSON file (standard output)")
    parser.add_argument("--one", choices=("plain", "dask"), help=argparse.SUPPRESS)
    return parser.parse_args()


def run_rows(lib: Library, options: argparse.Namespace) -> None:
    """Measure all rows with one library, and write the file after each."""
    rows: dict[str, Any] = {}
    for name in options.rows:
        _tell(f"{lib.verb}: {name}")
        try:
            rows[name] = front.measure(
                FRONT[name](lib),
                options.repeat,
                50 if options.quick else 1,
                lib.clock,
                _tell,
            )
        except Exception as error:  # the other rows may still run
            rows[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            _tell(rows[name]["failed"])
        options.output.write_text(json.dumps(rows))
        if lib.gpu:
            import cupy

            cupy.get_default_memory_pool().free_all_blocks()


def one(options: argparse.Namespace) -> None:
    """Run one of the two processes."""
    lib = Library(options.library, options.one == "dask")
    if lib.peers:
        # before CuPy, which loads an older nvJitLink than cuML was linked to
        import cuml  # noqa: F401
    with contextlib.ExitStack() as stack:
        if not lib.dask and lib.gpu:
            import cupy
            import rmm
            from rmm.allocators.cupy import rmm_cupy_allocator

            pool = rmm.mr.PoolMemoryResource(
                rmm.mr.CudaMemoryResource(), initial_pool_size=PLAIN_POOL
            )
            rmm.mr.set_current_device_resource(pool)
            cupy.cuda.set_allocator(rmm_cupy_allocator)
        elif lib.dask:
            from distributed import Client, LocalCluster

            if lib.gpu:
                from dask_cuda import LocalCUDACluster

                how = {"n_workers": 1, "rmm_pool_size": POOL}
                cluster = LocalCUDACluster(dashboard_address=":0", **how)
            else:
                cluster = LocalCluster(
                    n_workers=1, threads_per_worker=1, dashboard_address=":0"
                )
            stack.enter_context(cluster)
            stack.enter_context(Client(cluster))
        run_rows(lib, options)


def main() -> int:
    """Run the benchmark; return 1 if numbers disagree or one of our calls failed."""
    options = arguments()
    if options.one:
        one(options)
        return 0
    began = time.monotonic()
    if options.library == "cudf":
        from benchmarks.harness.gpu_report import environment

        known = environment()
    else:
        from benchmarks.harness import ours, report

        known = report.environment((), ours.VERSION)
    found: dict[str, Any] = {
        "environment": known,
        "unit": "seconds; points and results on the GPU",
        "quick": options.quick,
        "rows": {},
        "wrong": [],
    }
    for kind in ("plain",) if options.no_dask else ("plain", "dask"):
        left = options.seconds - (time.monotonic() - began)
        for name, row in _apart(kind, options, min(left, LIMIT)).items():
            if "failed" in row:
                found["wrong"].append(f"{name}, {kind}: {row['failed']}")
            elif name in found["rows"]:
                found["rows"][name]["tools"] |= row["tools"]
            else:
                found["rows"][name] = row
        write(found, options.output)
    for name, row in found["rows"].items():
        found["wrong"] += front.wrong(name, row)
    found["seconds"] = round(time.monotonic() - began, 1)
    write(found, options.output)
    for line in found["wrong"]:
        _tell(f"WRONG: {line}")
    return 1 if found["wrong"] else 0


def _apart(kind: str, options: argparse.Namespace, limit: float) -> dict[str, Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks", "gpu.front", "--one", kind]
        command += ["--library", options.library, "--repeat", str(options.repeat)]
        command += ["--rows", *options.rows, "--output", str(path)]
        command += ["--quick"] if options.quick else []
        try:
            code = subprocess.run(command, timeout=limit, check=False).returncode
            failed = f"exit status {code}" if code else ""
        except subprocess.TimeoutExpired:
            failed = f"given up after {limit:.0f} s"
        rows: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if failed:
        missing = [name for name in options.rows if name not in rows]
        rows |= {name: {"failed": failed} for name in missing}
    return rows


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
