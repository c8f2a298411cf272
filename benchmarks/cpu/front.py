"""``python -m benchmarks cpu.front``: the rows of the front pages on one core: verbs of
pandas and Dask frames, the engine, and every peer.

Each row has a process of its own on one core, where all tools take turns.  Before,
all rows run at once on few points, which compiles and loads kernels and peers.  The
file is written after each row, so that a run that is cut keeps what it measured.  With
``--together`` all rows run at the same time, each on another core: they share caches
and memory, as do the tools of one row.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.cpu import hdbscan_worker, nearest, sphere, two_tables
from benchmarks.harness import front, ours
from benchmarks.harness.cluster_points import POINTS
from benchmarks.harness.front import Call, Row
from benchmarks.harness.points import PLACES, ROWS, SEED
from benchmarks.harness.report import environment, write
from benchmarks.harness.worker import THREADS, pin
from benchmarks.peers import joins
from benchmarks.tables.comparisons import PLACES as PLACES_TOOLS

LIMIT = 240.0
"""Seconds until a row is given up."""

NAMES = {
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "sklearn-brute": "scikit-learn, brute force",
    "vesin": "vesin",
    "duckdb": "DuckDB",
}
"""Modules -> how pages call the tools; others are called like their modules."""

DISTRIBUTIONS = (
    "scipy",
    "scikit-learn",
    "faiss-cpu",
    "vesin",
    "duckdb",
    "quitefastmst",
    "pykdtree",
    "dbscan",
    "hdbscan",
    "fast-hdbscan",
)

PLACES_ON_SPHERE = 1_000_000


def frame(x: np.ndarray, run: int) -> pd.DataFrame:
    """Return points as a frame; labels begin at `run`, so that no plan is reused."""
    columns = {f"x{k}": x[:, k].copy() for k in range(x.shape[1])}
    return pd.DataFrame(columns, index=pd.RangeIndex(run, run + len(x)))


def verbs(
    x: np.ndarray,
    verb: Callable[[Any], Any],
    count: Callable[[Any], int] = len,
    make: Callable[[np.ndarray, int], pd.DataFrame] = frame,
) -> dict[str, Call]:
    """Return a verb of a pandas DataFrame, and of a Dask DataFrame of one partition,
    which is made and planned while the clock runs.
    """

    def lazy(given: pd.DataFrame) -> Any:
        table = dd.from_pandas(given, npartitions=1)
        return verb(table).compute(scheduler="sync")

    how: dict[str, Any] = {"count": count, "prepare": lambda run: make(x, run)}
    return {
        "pandas": Call("verb", {"": verb}, **how),
        "Dask": Call("verb", {"": lazy}, **how),
    }


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def self_join(name: str, skip: dict[str, str] | None = None) -> Row:
    """Return a self-join of the rows of `cpu.joins`."""
    full = ROWS[name]

    def calls(part: int) -> dict[str, Call]:
        n, eps = full.n // part, full.eps * part ** (1 / full.dims)
        x = full.make(np.random.default_rng(SEED), n, full.dims)
        found = verbs(x, lambda table: table.simjoin.self_join(eps))
        found["engine"] = Call(
            "engine", {"": lambda run: ours.engine(x, eps)}, lambda pairs: len(pairs[0])
        )
        for tool in joins.installed(list(joins.PEERS)):
            if name not in tool.skip:
                variants = {
                    label: functools.partial(_joined, join, x, eps)
                    for label, join in tool.variants(full).items()
                }
                found[NAMES.get(tool.name, tool.name)] = Call(
                    "peer",
                    variants,
                    tool.count,
                    exact=name not in tool.inexact,
                    grows=front.PART**2 if tool.name == "faiss" else front.PART,
                )
        return found

    skipped = {
        NAMES.get(tool, tool): peer.skip[name]
        for tool, peer in joins.PEERS.items()
        if name in peer.skip
    }
    what = {"unif": "uniform", "expo": "exponential"}[name[:4]]
    return Row(
        "self-join",
        f"{what} {full.dims}-D, {_rows(full.n)} rows",
        calls,
        skipped | (skip or {}),
        f"eps {full.eps:g}",
    )


def _joined(join: Any, x: np.ndarray, eps: float, run: int) -> Any:
    return join(x, eps)


def join() -> Row:
    """Return a join of two tables."""
    full = two_tables.ROWS["unif2d"]

    def calls(part: int) -> dict[str, Call]:
        eps = full.eps * part ** (1 / full.dims)
        some = two_tables.TwoRow(
            full.make, full.left // part, full.right // part, full.dims, eps
        )
        x, y = some.points()

        def lazy(tables: tuple[pd.DataFrame, pd.DataFrame]) -> Any:
            left, right = (dd.from_pandas(one, npartitions=1) for one in tables)
            return left.simjoin.join(right, eps).compute(scheduler="sync")

        def both(run: int) -> Any:
            return frame(x, run), frame(y, run)

        found = {
            "pandas": Call(
                "verb", {"": lambda t: t[0].simjoin.join(t[1], eps)}, prepare=both
            ),
            "Dask": Call("verb", {"": lazy}, prepare=both),
            "engine": Call(
                "engine", {"": lambda run: two_tables._ours(x, y, eps)}, int
            ),
        }
        for name, peer in two_tables.PEERS.items():
            if _installed(peer.module) and "unif2d" not in peer.skip:
                found[NAMES.get(name, name)] = Call(
                    "peer",
                    {
                        label: functools.partial(_two, one, x, y, eps)
                        for label, one in peer.variants.items()
                    },
                    int,
                )
        return found

    settings = f"eps {full.eps:g}"
    return Row("join", "uniform 2-D, 1M and 1M rows", calls, settings=settings)


def _two(join: Any, x: np.ndarray, y: np.ndarray, eps: float, run: int) -> int:
    found: int = join(x, y, eps)
    return found


def places(meters: float, towns: bool) -> Row:
    """Return a self-join of towns, or of random places, along the sphere."""

    def calls(part: int) -> dict[str, Call]:
        if towns:
            table = pd.read_parquet(PLACES, columns=sphere.ON)[sphere.ON]
            table = table.astype(float).iloc[::part].reset_index(drop=True)
        else:
            random = np.random.default_rng(SEED)
            n = PLACES_ON_SPHERE // part
            z, angle = random.uniform(-1, 1, n), random.uniform(-180, 180, n)
            table = pd.DataFrame(
                dict(zip(sphere.ON, (np.degrees(np.arcsin(z)), angle), strict=True))
            )
        within = meters * part**0.5

        def make(x: np.ndarray, run: int) -> pd.DataFrame:
            return table.set_axis(pd.RangeIndex(run, run + len(table)))

        def verb(table: Any) -> Any:
            return table.simjoin.self_join(within, on=sphere.ON, metric="haversine")

        found = verbs(np.empty((0, 2)), verb, len, make)
        for name, peer in sphere.PEERS.items():
            found[PLACES_TOOLS[name]] = Call(
                "peer",
                {
                    label: functools.partial(_near, one, table, within)
                    for label, one in peer.variants.items()
                },
                lambda pairs, peer=peer: len(peer.keys(pairs, len(table))),
            )
        return found

    data = f"{45_476:,} towns" if towns else f"{_rows(PLACES_ON_SPHERE)} random places"
    return Row("self-join, haversine", f"{data}, within {meters / 1000:g} km", calls)


def _near(join: Any, table: pd.DataFrame, meters: float, run: int) -> Any:
    return join(table, meters)


def neighbors(name: str, k: int = 10) -> Row:
    """Return a search for nearest neighbors, of the rows of `cpu.nearest`."""
    full = nearest.ROWS[name]

    def calls(part: int) -> dict[str, Call]:
        some = nearest.NearestRow(full.make, full.n // part, full.dims, full.single)
        x = some.points()
        found = verbs(x, lambda table: table.simjoin.knn_join(k=k))
        found["engine"] = Call(
            "engine",
            {"": lambda run: nearest._ours(x, k)},
            lambda state: state[0].size,
        )
        for tool, peer in nearest.PEERS.items():
            if _installed(peer.module) and name not in peer.skip:
                found[NAMES.get(tool, tool)] = Call(
                    "peer",
                    {
                        label: functools.partial(_searched, search, x, k)
                        for label, search in peer.variants.items()
                    },
                    lambda state: state[0][:, -k:].size,
                    grows=front.PART ** (2 if full.dims > 8 else 1),
                )
        return found

    what = {"unif": "uniform", "expo": "exponential"}[name[:4]]
    skipped = {
        NAMES.get(tool, tool): peer.skip[name]
        for tool, peer in nearest.PEERS.items()
        if name in peer.skip
    }
    data = f"{what} {full.dims}-D, {_rows(full.n)} rows"
    return Row(f"{k} nearest neighbors", data, calls, skipped)


def _searched(search: Any, x: np.ndarray, k: int, run: int) -> Any:
    return search(x, k)


def dbscan(kind: str, n: int = 1_000_000) -> Row:
    """Return DBSCAN of the points of `cpu.clusters`."""
    points = POINTS[kind]

    def calls(part: int) -> dict[str, Call]:
        rows = n // part
        x, eps, least = points.points(rows), points.eps(rows), points.min_samples

        def count(labels: Any) -> int:
            return int(np.asarray(labels).max(initial=-1)) + 1

        found = verbs(x, lambda table: table.simjoin.dbscan(eps, least), count)
        if _installed("sklearn"):
            from sklearn.cluster import DBSCAN

            how = {"min_samples": least, "algorithm": "kd_tree", "n_jobs": 1}
            found["scikit-learn"] = Call(
                "peer",
                {"kd_tree": lambda run: DBSCAN(eps=eps, **how).fit(x).labels_},
                count,
            )
        if _installed("dbscan"):
            import dbscan as package

            # border rows may be labeled otherwise
            found["dbscan"] = Call(
                "peer",
                {"": lambda run: package.DBSCAN(x, eps, least)[0]},
                count,
                exact=False,
            )
        return found

    text = {"uniform": "uniform", "blobs": "blobs and noise"}[kind]
    return Row("DBSCAN", f"{text} 2-D, {_rows(n)} rows", calls)


def hdbscan(dims: int, n: int = 100_000) -> Row:
    """Return HDBSCAN of the points of `cpu.hdbscan`."""

    def calls(part: int) -> dict[str, Call]:
        x = hdbscan_worker.points(n // part, dims)
        size, least = hdbscan_worker.MIN_CLUSTER_SIZE, hdbscan_worker.MIN_SAMPLES

        def count(found: Any) -> int:
            labels = found["label"] if isinstance(found, pd.DataFrame) else found
            return int(np.asarray(labels).max(initial=-1)) + 1

        def verb(table: Any) -> Any:
            return table.simjoin.hdbscan(size, min_samples=least)

        found = verbs(x, verb, count)
        for tool in ("hdbscan", "fast_hdbscan"):
            if _installed(tool):
                cluster = hdbscan_worker.clustering(tool)
                # ties are broken otherwise, so that a cluster may be more or less
                found[tool] = Call(
                    "peer",
                    {"": functools.partial(_clustered, cluster, x)},
                    count,
                    exact=False,
                )
        return found

    data = f"blobs and noise {dims}-D, {_rows(n)} rows"
    return Row("HDBSCAN", data, calls, {"scikit-learn": "33 to 48 s"})


def _clustered(cluster: Any, x: np.ndarray, run: int) -> Any:
    return cluster(x)


def tree(dims: int, n: int = 100_000) -> Row:
    """Return the spanning tree of HDBSCAN alone."""

    def calls(part: int) -> dict[str, Call]:
        x = hdbscan_worker.points(n // part, dims)
        least = hdbscan_worker.MIN_SAMPLES
        found = verbs(x, lambda table: table.simjoin.spanning_tree(min_samples=least))
        if _installed("quitefastmst"):
            import quitefastmst

            # its M counts other rows only
            found["quitefastmst"] = Call(
                "peer",
                {
                    f"{algorithm}, leaves {leaf}": functools.partial(
                        _spanned, quitefastmst.mst_euclid, x, least - 1, algorithm, leaf
                    )
                    for algorithm in ("single_kd_tree", "sesqui_kd_tree")
                    for leaf in (0, 16)
                },
                lambda found: len(found[0]),
            )
        return found

    data = f"blobs and noise {dims}-D, {_rows(n)} rows"
    return Row("spanning tree of HDBSCAN", data, calls)


def _spanned(
    span: Any, x: np.ndarray, least: int, algorithm: str, leaf: int, run: int
) -> Any:
    return span(x, least, algorithm=algorithm, max_leaf_size=leaf)


def _rows(n: int) -> str:
    return f"{n // 1_000_000}M" if n % 1_000_000 == 0 else f"{n // 1000}k"


FRONT = {
    "self-join 2-D": self_join("unif2d", {"scikit-learn": "4.0 s"}),
    "self-join 6-D": self_join("unif6d", {"scikit-learn": "27 s"}),
    "self-join 16-D": self_join("expo16d"),
    "self-join 64-D": self_join("expo64d", {"scikit-learn": "31 to 35 s"}),
    "join 2-D": join(),
    "towns": places(10_000, towns=True),
    "random places": places(10_000, towns=False),
    "nearest 2-D": neighbors("unif2d"),
    "nearest 16-D": neighbors("expo16d"),
    "dbscan uniform": dbscan("uniform"),
    "dbscan blobs": dbscan("blobs"),
    "hdbscan 2-D": hdbscan(2),
    "hdbscan 8-D": hdbscan(8),
    "tree 2-D": tree(2),
    "tree 8-D": tree(8),
}
"""Rows that are measured, in this order.  Tools that are known to be several times
slower than others of their row are left out.
"""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.front", description=__doc__
    )
    parser.add_argument("--rows", nargs="+", choices=FRONT, default=list(FRONT))
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (5)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=530,
        help="no row begins after so many seconds (530)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a fiftieth of the rows, to try it"
    )
    parser.add_argument(
        "--together", action="store_true", help="all rows at once, a core for each"
    )
    parser.add_argument("--output", type=Path, help="JSON file (standard output)")
    parser.add_argument("--one", choices=FRONT, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def apart(
    name: str, part: int, repeat: int, limit: float, core: int = 0
) -> dict[str, Any]:
    """Measure a row in a process of its own. `core`: see `pin`."""
    command = [sys.executable, "-m", "benchmarks", "cpu.front", "--one", name]
    command += ["--core", str(core)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "row.json"
        command += ["--part", str(part), "--repeat", str(repeat), "--output", str(path)]
        try:
            done = subprocess.run(
                command,
                env=os.environ | dict.fromkeys(THREADS, "1"),
                timeout=limit,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if part > 1 else None,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"given up after {limit:.0f} s"}
        if not path.exists():
            last = (done.stderr or "").strip().splitlines()[-1:]
            return {"failed": f"exit status {done.returncode}: {' '.join(last)}"}
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def main() -> int:
    """Run the benchmark; return 1 if numbers disagree or one of our calls failed."""
    options = arguments()
    if options.one:
        pin(options.core)
        found = front.measure(
            FRONT[options.one], options.repeat, options.part, told=_tell
        )
        options.output.write_text(json.dumps(found))
        return 0
    began = time.monotonic()
    part = 50 if options.quick else 1
    tools = [SimpleNamespace(distribution=name) for name in DISTRIBUTIONS]
    report: dict[str, Any] = {
        "environment": environment(tools, ours.VERSION),
        "unit": "CPU seconds of one core",
        "quick": options.quick,
        "together": options.together,
        "rows": {},
        "wrong": [],
    }
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        # one on a core; what fails here fails again below, where it is told
        list(
            pool.map(
                lambda name: apart(name, 100, 1, LIMIT),
                () if options.quick else options.rows,
            )
        )
    report["compiling"] = round(time.monotonic() - began, 1)
    if options.together and cores < len(options.rows):
        _tell(f"{len(options.rows)} rows need as many cores; there are {cores}")
        return 2
    pool = concurrent.futures.ThreadPoolExecutor(len(options.rows))
    started = {
        name: pool.submit(apart, name, part, options.repeat, LIMIT, core)
        for core, name in enumerate(options.rows if options.together else ())
    }
    for name in options.rows:
        passed = time.monotonic() - began
        _tell(f"{passed:6.1f} s: {name}")
        if passed > options.seconds and not started:
            report["wrong"].append(f"{name}: no time was left")
            continue
        found = (
            started[name].result()
            if started
            else apart(name, part, options.repeat, LIMIT)
        )
        report["rows"][name] = found
        report["wrong"] += (
            [f"{name}: {found['failed']}"]
            if "failed" in found
            else front.wrong(name, found)
        )
        if options.output:
            write(report, options.output)
    report["seconds"] = round(time.monotonic() - began, 1)
    write(report, options.output)
    for line in report["wrong"]:
        _tell(f"WRONG: {line}")
    return 1 if report["wrong"] else 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
