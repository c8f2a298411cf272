"""``python -m benchmarks cpu.columns``: columns of unlike scales, subspaces and real
tables, on one core.

Each run is a whole verb on a pandas DataFrame: `count_pairs`, `self_join`, `knn_join`.
Peers get an array and build their index anew.  All tools run in this process, in turn:
what disturbs one run disturbs all alike. Variants of a peer are tried once, and the
fastest one is measured.

``--data FOLDER``: where places.parquet and package_embeddings.parquet are, for rows of
real tables.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__":
    # set before the imports below, because libraries count cores and read the
    # environment when imported
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

import dask_simjoin  # noqa: F401  (verbs of frames)
from benchmarks.harness.columns import ROWS, Columns, tables
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from benchmarks.peers.joins import PEERS

Run = Callable[[], Any]
"""Runs a tool once and returns how many results it found."""

ALL_WITH_ALL = 20_000
"""A peer that compares all rows with all is run on at most this many rows."""

SLOW = 3.0
"""If the first try of a peer takes more seconds, it is the only run."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.columns", description=__doc__
    )
    parser.add_argument(
        "--rows", nargs="+", metavar="ROW", help=f"of {', '.join(ROWS)} and real tables"
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder of places.parquet and package_embeddings.parquet",
    )
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def ours(row: Columns, x: np.ndarray) -> dict[str, Run]:
    """Return the calls of our own verbs on a row."""
    # the index is new each time: otherwise an earlier plan of the frame would be reused
    frame = pd.DataFrame({f"x{k}": x[:, k].copy() for k in range(x.shape[1])})
    on, eps, k = list(frame.columns), row.distance(), row.k
    if k is not None:
        return {"knn_join": lambda: len(frame.simjoin.knn_join(k=k, on=on))}
    return {
        "count_pairs": lambda: int(frame.simjoin.count_pairs(eps, on=on)),
        "self_join": lambda: len(frame.simjoin.self_join(eps, on=on)),
    }


def peers(row: Columns, x: np.ndarray) -> dict[str, dict[str, Run]]:
    """Return the peers and their variants."""
    eps, k = row.distance(), row.k

    def tree(leafsize: int, balanced: bool) -> Any:
        return cKDTree(
            x, leafsize=leafsize, balanced_tree=balanced, compact_nodes=balanced
        )

    def pairs(how: tuple[int, bool]) -> Run:
        return lambda: len(tree(*how).query_pairs(eps, output_type="ndarray"))

    def counts(how: tuple[int, bool]) -> Run:
        def run() -> int:
            own = tree(*how)
            return int(own.count_neighbors(own, eps) - len(x)) // 2

        return run

    def nearest(how: tuple[int, bool]) -> Run:
        return lambda: tree(*how).query(x, k + 1, workers=1)[1][:, 1:].size  # type: ignore[operator]

    def faiss() -> int:
        import faiss

        faiss.omp_set_num_threads(1)
        z = np.ascontiguousarray(x - x.mean(axis=0), dtype=np.float32)
        index, found = faiss.IndexFlatL2(z.shape[1]), 0
        for start in range(0, len(z), 8192):
            block = z[start : start + 8192]
            index.add(block)
            limits, _, places = index.range_search(block, eps * eps)
            own = np.repeat(
                np.arange(start, start + len(block)), np.diff(limits.astype(np.int64))
            )
            found += int((places < own).sum())
        return found

    trees = {
        f"leafsize {n}, {'median' if b else 'midpoint'} splits": (n, b)
        for n, b in ((16, True), (16, False), (32, False))
    }
    if k is not None:
        return {"scipy query": {name: nearest(how) for name, how in trees.items()}}
    found = {
        "scipy query_pairs": {name: pairs(how) for name, how in trees.items()},
        "scipy count_neighbors": {"leafsize 16, median splits": counts((16, True))},
    }
    if x.shape[1] >= 32 and len(x) <= ALL_WITH_ALL and find_spec("faiss") is not None:
        found["faiss"] = {"IndexFlatL2, blocks of 8192": faiss}
    return found


def once(run: Run) -> tuple[float, int]:
    """Return the CPU seconds of a run, and how much it found."""
    gc.collect()
    began = time.process_time()
    found = run()
    return time.process_time() - began, int(found)


def measure(row: Columns, repeat: int) -> dict[str, Any]:
    """Measure our verbs and all peers, in turn."""
    x = row.points()
    part = Columns(lambda *_: x[: len(x) // 10], row.eps, k=row.k)
    for run in ours(part, part.points()).values():
        once(run)  # compiles or loads kernels, which must not be timed
    tools: dict[str, Run] = ours(row, x)
    results: dict[str, Any] = {name: {"seconds": [], "found": []} for name in tools}
    for name, variants in peers(row, x).items():
        tries = {variant: once(run) for variant, run in variants.items()}
        best = min(tries, key=lambda variant: tries[variant][0])
        seconds, found = tries[best]
        results[name] = {
            "variant": best,
            "tries": {v: t for v, (t, _) in tries.items()},
        }
        results[name] |= {
            "seconds": [seconds] if seconds > SLOW else [],
            "found": [found],
        }
        if seconds <= SLOW:
            tools[name] = variants[best]
    for _ in range(repeat):
        for name, run in tools.items():
            seconds, found = once(run)
            results[name]["seconds"].append(seconds)
            results[name]["found"].append(found)
    for one in results.values():
        one["median"] = statistics.median(one["seconds"])
        one["found"] = sorted(set(one["found"]))
    own = next(iter(ours(row, x[:1])))
    theirs = {
        name: one["median"]
        for name, one in results.items()
        if name.startswith(("scipy", "faiss"))
    }
    best = min(theirs, key=lambda name: theirs[name])
    scipy = next(name for name in theirs if name.startswith("scipy"))
    return {
        "n": len(x),
        "dims": x.shape[1],
        "eps": row.distance(),
        "k": row.k,
        "tools": results,
        "best_peer": best,
        "of_best": round(theirs[best] / results[own]["median"], 2),
        "of_scipy": round(theirs[scipy] / results[own]["median"], 2),
    }


def main() -> int:
    """Run the benchmark; return 1 if exact tools disagree."""
    options = arguments()
    known = ROWS | tables(options.data)
    chosen = options.rows or list(known)
    report: dict[str, Any] = {
        "environment": environment([PEERS["scipy"], PEERS["faiss"]], VERSION),
        "unit": "CPU seconds of one core, medians; peers build their index anew",
        "rows": {},
    }
    wrong = []
    print(
        f"{'row':15} {'n':>8} {'d':>3} {'found':>10}  {'ours s':>8} {'scipy s':>8} "
        f"{'x':>6}  best peer"
    )
    for name in chosen:
        one = measure(known[name], options.repeat)
        report["rows"][name] = one
        own, scipy = (
            next(t for n, t in one["tools"].items() if n.startswith(start))
            for start in (("count", "knn"), "scipy")
        )
        print(
            f"{name:15} {one['n']:8} {one['dims']:3} {own['found'][0]:10}  "
            f"{own['median']:8.4f} "
            f"{scipy['median']:8.4f} {one['of_scipy']:6.2f}  {one['best_peer']} "
            f"{one['of_best']:.2f}",
            flush=True,
        )
        exact = {
            found
            for tool, t in one["tools"].items()
            if tool != "faiss"
            for found in t["found"]
        }
        if len(exact) > 1:
            wrong.append(f"{name}: {sorted(exact)}")
        if options.output is not None:
            write(report, options.output)
    if options.output is None:
        write(report, None)
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
