"""``python -m benchmarks cpu.peak``: the most memory that joins of plain frames take,
with their results.

Each join runs in a process of its own, after a small join of the same kind has loaded
all kernels.  The result is the process's highest memory, less its memory with only the
rows there (Linux reports both).
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.lazy import known, progress, quiet, save, table

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")

PAIRS = 36_000_000
"""Number of result rows with two ids, of 16 bytes, that take 0.6 GiB."""

Call = Callable[[pd.DataFrame, pd.DataFrame, float], Any]


@dataclass(frozen=True)
class Case:
    """A join with its number of rows, columns and pairs, each pair counted once."""

    text: str
    call: Call
    rows: int = 200_000
    dims: int = 2
    pairs: int = PAIRS
    tables: int = 1


def _on(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith("x")]


def _self(**options: Any) -> Call:
    return lambda frame, _, eps: frame.simjoin.self_join(eps, on=_on(frame), **options)


def _join(**options: Any) -> Call:
    return lambda frame, other, eps: frame.simjoin.join(
        other, eps, on=_on(frame), **options
    )


def _knn(k: int, **options: Any) -> Call:
    return lambda frame, _, eps: frame.simjoin.knn_join(k=k, on=_on(frame), **options)


def _radius(frame: pd.DataFrame, _: pd.DataFrame, eps: float) -> Any:
    radii = np.linspace(0.9 * eps, eps, len(frame))
    return frame.assign(radius=radii).simjoin.self_join(
        "radius", on=_on(frame), pairs="both"
    )


def _graph(frame: pd.DataFrame, _: pd.DataFrame, eps: float) -> Any:
    return frame.simjoin.neighbor_graph(eps, on=_on(frame))


def _sets(**options: Any) -> Call:
    return lambda frame, _, eps: frame.simjoin.set_self_join("tags", 0.5, **options)


def _set_join(frame: pd.DataFrame, other: pd.DataFrame, eps: float) -> Any:
    return frame.simjoin.set_join(other, "tags", 0.5, id="number")


DISTANCE = {"return_distance": True}
NUMBER = {"keep": "number"}
HALF = PAIRS // 2

CASES = {
    "self-2d": Case("`self_join`, 2-D", _self()),
    "self-6d": Case("`self_join`, 6-D", _self(), dims=6),
    "self-16d": Case("`self_join`, 16-D", _self(), 100_000, 16),
    "self-64d": Case("`self_join`, 64-D", _self(), 100_000, 64),
    "distance-2d": Case("`self_join`, 2-D, distances", _self(**DISTANCE)),
    "distance-16d": Case(
        "`self_join`, 16-D, distances", _self(**DISTANCE), 100_000, 16
    ),
    "distance-64d": Case(
        "`self_join`, 64-D, distances", _self(**DISTANCE), 100_000, 64
    ),
    "large": Case("`self_join`, 2-D, larger", _self(), pairs=135_000_000),
    "both": Case(
        '`self_join`, distances, `pairs="both"`',
        _self(pairs="both", **DISTANCE),
        pairs=HALF,
    ),
    "itself": Case("`self_join`, `include_self`", _self(include_self=True)),
    "keep": Case("`self_join`, `keep=` numbers", _self(**NUMBER), pairs=HALF),
    "keep-text": Case("`self_join`, `keep=` texts", _self(keep="name"), pairs=HALF),
    "int32": Case("`self_join`, ids of int32", _self(id="small"), pairs=2 * PAIRS),
    "dates": Case("`self_join`, ids of dates", _self(id="date")),
    "texts": Case("`self_join`, ids of texts", _self(id="name"), pairs=HALF),
    "objects": Case("`self_join`, ids of Python objects", _self(id="object")),
    "radius": Case("`self_join`, `eps=` a column", _radius, pairs=HALF),
    "join": Case("`join`, 6-D", _join(), dims=6, tables=2),
    "left": Case(
        '`join`, `how="left"`, distances', _join(how="left", **DISTANCE), tables=2
    ),
    "left-keep": Case(
        '`join`, `how="left"`, `keep=` numbers',
        _join(how="left", **NUMBER),
        200_000,
        2,
        HALF,
        2,
    ),
    "knn": Case("`knn_join`, 2-D, 20 nearest", _knn(20), 1_000_000),
    "knn-keep": Case(
        "`knn_join`, 16-D, 100 nearest, `keep=` numbers",
        _knn(100, **NUMBER),
        100_000,
        16,
    ),
    "knn-texts": Case(
        "`knn_join`, 2-D, 20 nearest, ids of texts", _knn(20, id="name"), 500_000
    ),
    "mutual": Case(
        "`knn_join`, 2-D, 20 nearest, `mutual`", _knn(20, mutual=True), 300_000
    ),
    "graph": Case("`neighbor_graph`, 2-D", _graph, pairs=HALF),
    "sets": Case("`set_self_join`", _sets(id="number"), 250_000),
    "sets-score": Case(
        "`set_self_join`, similarities",
        _sets(id="number", return_similarity=True),
        250_000,
    ),
    "sets-join": Case("`set_join`", _set_join, 150_000, tables=2),
}
"""Joins that are measured."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cpu.peak", description=__doc__
    )
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--one", action="store_true", help="the first case, in this process"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def held(name: str) -> int:
    """Return the bytes of this process that the system reports."""
    line = next(
        line for line in STATUS.read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) * 1024


def size_of(found: Any) -> int:
    """Return the bytes of a result.  Python objects are shared between frames, so only
    pointers count.
    """
    if not isinstance(found, pd.DataFrame):
        return int(found.data.nbytes + found.indices.nbytes + found.indptr.nbytes)
    return int(found.memory_usage(index=False).sum())


def frame_of(case: Case, rows: int, seed: int) -> pd.DataFrame:
    """Draw rows for a case: points, ids of several dtypes, and tags."""
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        f"x{k}": random.uniform(size=rows) for k in range(case.dims)
    }
    number = random.permutation(rows)
    columns |= {"number": number, "small": number.astype(np.int32)}
    columns["date"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(number, unit="s")
    names = [f"row {n:08d}" for n in number.tolist()]
    columns |= {"name": pd.array(names, "str"), "object": np.array(names, object)}
    if "set" in case.text:
        groups = random.integers(0, max(1, rows // 280), rows)
        columns["tags"] = [
            [*range(10 * g, 10 * g + 9), -n - 1] for n, g in enumerate(groups.tolist())
        ]
    return pd.DataFrame(columns)


def distance_for(
    frame: pd.DataFrame, other: pd.DataFrame, pairs: float, ordered: bool
) -> float:
    """Return a distance that about this many pairs are within."""
    x, y = (some[_on(some)].to_numpy()[:2000] for some in (frame, other))
    squares = (x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T
    every = squares[~np.eye(len(x), dtype=bool)] if not ordered else squares.ravel()
    share = pairs / (len(frame) * len(other) * (1.0 if ordered else 0.5))
    return float(np.sqrt(max(np.quantile(every, min(share, 1.0)), 0.0)))


def one(case: Case) -> tuple[int, int, int, float]:
    """Return the peak bytes of a join, the bytes and rows of its result, and CPU
    seconds.
    """

    def run(rows: int, pairs: float) -> tuple[int, int, int, float]:
        frame = frame_of(case, rows, 0)
        other = frame_of(case, rows, 1) if case.tables > 1 else frame
        eps = distance_for(frame, other, pairs, case.tables > 1)
        gc.collect()
        RESET.write_text("5")
        before, began = held("VmRSS"), time.process_time()
        found = case.call(frame, other, eps)
        took = time.process_time() - began
        return held("VmHWM") - before, size_of(found), found.shape[0], took

    run(2000, 4000.0)
    return run(case.rows, case.pairs)


def main() -> int:
    """Run the benchmark with the options of the command line."""
    quiet()
    options = arguments()
    if options.one:
        print(*one(CASES[options.cases[0]]))
        return 0
    where, results = known(), []
    for name in options.cases:
        command = [
            sys.executable,
            "-m",
            "benchmarks.cpu.peak",
            "--one",
            "--cases",
            name,
        ]
        runs = []
        for _ in range(options.repeat):
            told = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.split()
            runs.append([int(told[-4]), int(told[-3]), int(told[-2]), float(told[-1])])
        peaks, (size, rows) = [run[0] for run in runs], runs[0][1:3]
        factor, cpu = max(peaks) / size, [run[3] for run in runs]
        results.append(
            {
                "case": name,
                "text": CASES[name].text,
                "rows": CASES[name].rows,
                "found": rows,
                "bytes": size,
                "peaks": peaks,
                "factor": round(factor, 3),
                "cpu_seconds": cpu,
            }
        )
        progress(f"{name}: {factor:.2f} times {size / 2**30:.2f} GiB, {min(cpu):.2f} s")
    print(
        table(
            ["join", "GiB", "peak over result"],
            [[r["text"], r["bytes"] / 2**30, r["factor"]] for r in results],
        )
    )
    save("memory", where, options, {"cases": results}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
