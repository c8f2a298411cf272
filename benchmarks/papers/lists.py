"""Runs of figures of LSS and of the k-means thesis, each compared with the package's
own engine ("auto").

Its pairs must be as many. EGO, GESS and the thesis's code are not built here. On a CPU,
seconds are CPU time of `count_pairs` (of two tables `join`) on one core, its planning
included, and rows are a tenth of the papers'; on a GPU those of the steps that
`profile` times, of which "layout" makes clusters and chooses the number of lists.
Seconds are medians; "runs" has each run.
"""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.harness.repeats import repeated, rounded, summary, timed
from benchmarks.papers import files
from benchmarks.papers.lists_rows import MILLION, RUNS, Run, points
from dask_simjoin.errors import ApproximateWarning
from dask_simjoin.methods import NestedLoop

QUICK = 2000
"""Rows of `--quick`."""

LONG = 1.5
"""If a run takes this many seconds, it is not repeated."""

SLOW, LOOPED = 110_000, 700_000
"""Rows of runs on a CPU, and of nested loops rows times columns, that are left out
beyond that.
"""

TOLD = ("copies", "interval_mean", "compared_ratio", "recall", "lists", "clusters")
"""Numbers of a row that are printed."""

HIDDEN = ("numbers", "paper", "runs", "auto runs", "profile")
"""Fields of a row that are not printed."""


@functools.lru_cache(maxsize=2)
def frame_of(
    data: str, rows: int, dims: int, planted: float, backend: str, seed: int
) -> Any:
    """Return points as a frame of the backend's library."""
    x = points(data, rows, dims, planted, seed)
    frame = pd.DataFrame(x, columns=[f"c{k}" for k in range(dims)])
    if backend == "cpu":
        return frame
    import cudf  # imported late, because it is installed only where there is a GPU

    return cudf.DataFrame(frame)


def frames(run: Run, backend: str) -> tuple[Any, Any]:
    """Return the frame of a run, and the one that it is joined with, or None."""
    planted = run.eps if run.data == "planted" else 0.0
    frame = frame_of(run.data, run.rows, run.dims, planted, backend, 0)
    return frame, frame_of(
        run.data, run.other, run.dims, planted, backend, 1
    ) if run.other else None


def seconds_of(run: Run, method: Any, backend: str, repeat: int) -> list[float]:
    """Measure a run as the first lines say; kernels are compiled."""
    frame, other = frames(run, backend)
    clock = time.process_time if backend == "cpu" else time.perf_counter
    if other is not None:
        return repeated(
            lambda: timed(
                lambda: len(frame.simjoin.join(other, run.eps, method=method)), clock
            ),
            repeat,
            LONG,
        )
    how: dict[str, Any] = {"method": method} | (
        {"approximate": True} if run.approximate else {}
    )
    if backend == "cpu":
        return repeated(
            lambda: timed(lambda: frame.simjoin.count_pairs(run.eps, **how), clock),
            repeat,
            LONG,
        )
    return repeated(
        lambda: sum(frame.simjoin.profile(run.eps, **how).seconds.values()),
        repeat,
        LONG,
    )


@functools.lru_cache(maxsize=2)
def own_engine(bare: Run, backend: str, repeat: int) -> tuple[int, list[float]]:
    """Count and time the package's own engine on the points of a run; `bare`: the run
    without its setting.
    """
    frame, other = frames(bare, backend)
    pairs = (
        frame.simjoin.count_pairs(bare.eps)
        if other is None
        else len(frame.simjoin.join(other, bare.eps))
    )
    return int(pairs), seconds_of(bare, "auto", backend, repeat)


def result(run: Run, repeat: int, backend: str) -> dict[str, Any]:
    """Count and time a run."""
    frame, other = frames(run, backend)
    bare = Run(
        "", "", run.data, run.rows, run.dims, run.eps, "", "auto", other=run.other
    )
    pairs, own = own_engine(bare, backend, repeat)
    numbers, steps = dict[str, float](), dict[str, float]()
    if other is None:
        told = frame.simjoin.profile(
            run.eps, method=run.method, approximate=run.approximate
        )
        numbers, found, steps = told.numbers, told.numbers["pairs"], told.seconds
    else:
        found = len(frame.simjoin.join(other, run.eps, method=run.method))
    if found > pairs or (found < pairs and not run.approximate):
        raise AssertionError(
            f"{run}: {found} pairs, and the package's own engine {pairs}"
        )
    names = (
        "paper",
        "figure",
        "data",
        "rows",
        "other",
        "dims",
        "eps",
        "setting",
        "published",
    )
    return {name: getattr(run, name) for name in names} | {
        "pairs": pairs,
        "found": found,
        "auto": summary(own)["seconds"],
        "auto runs": summary(own)["runs"],
        **summary(seconds_of(run, run.method, backend, repeat)),
        "profile": {step: rounded(one) for step, one in steps.items()},
        "numbers": numbers,
    }


def rate(backend: str, rows: int, repeat: int) -> dict[str, Any]:
    """Return how many pairs a second nested loops and tiles test, for rows on a sphere.

    Tiles on GPUs do not count the tested pairs, so all pairs are assumed.  The ratio is
    then a lower bound.
    """
    run = Run("kmeans", "rate", "sphere", rows, 8, 0.45, "", NestedLoop(block=256))
    frame, _ = frames(run, backend)
    found: dict[str, Any] = {
        "paper": "kmeans",
        "figure": "rate",
        "data": run.data,
        "rows": rows,
        "eps": run.eps,
    }
    for name, method in (("nested loops", run.method), ("tiles", "tiles")):
        told = frame.simjoin.profile(run.eps, method=method)
        tested = told.numbers.get("candidates", rows * (rows - 1) / 2)
        seconds = statistics.median(seconds_of(run, method, backend, repeat))
        found |= {
            f"{name}, seconds": seconds,
            f"{name}, pairs a second": tested / seconds,
        }
    found["ratio"] = (
        found["nested loops, pairs a second"] / found["tiles, pairs a second"]
    )
    return found


def sized(run: Run, backend: str, quick: bool) -> Run | None:
    """Return a run with the rows that it has here, or None where it is left out."""
    if files.is_file(run.data):
        run = replace(run, rows=len(files.points_of_file(run.data)))
    if run.rows > run.largest or (
        backend == "gpu" and "cudf" not in run.method.modules
    ):
        return None
    if quick:
        return replace(run, rows=QUICK, other=QUICK if run.other else 0)
    if backend == "gpu":
        return run
    run = run if run.same else replace(run, rows=run.rows // 10, other=run.other // 10)
    slow = isinstance(run.method, NestedLoop) and run.rows * run.dims > LOOPED
    return None if slow or run.rows > SLOW else run


def results(
    papers: Sequence[str],
    figures: Sequence[str] | None,
    data: Sequence[str] | None,
    backend: str,
    quick: bool,
    repeat: int,
    minutes: float,
) -> Iterator[dict[str, Any]]:
    """Run the rows of papers; ratios are to the first of a figure, its points and eps."""
    # the benchmark leaves out pairs on purpose, which would be warned about
    warnings.simplefilter("ignore", ApproximateWarning)
    began, first = time.monotonic(), dict[Any, float]()
    for given in (run for paper in papers for run in RUNS[paper]()):
        run = sized(given, backend, quick)
        if (
            run is None
            or (figures and run.figure not in figures)
            or (data and files.name_of(run.data) not in data)
        ):
            continue
        if time.monotonic() - began > 60 * minutes:
            yield {
                "paper": run.paper,
                "figure": run.figure,
                "not run": f"{minutes:g} minutes were over",
            }
            return
        row = result(run, 1 if quick else repeat, backend)
        base = first.setdefault(
            (run.figure, run.data, run.rows, run.dims, run.eps), row["seconds"]
        )
        yield row | {"ratio": round(base / max(row["seconds"], 1e-9), 3)}
    if "kmeans" in papers and (not figures or "rate" in figures):
        yield rate(
            backend,
            QUICK if quick else 30_000 if backend == "cpu" else MILLION // 10,
            repeat,
        )


def told(row: dict[str, Any]) -> str:
    """Format a row for people."""
    numbers = {
        name: row["numbers"][name] for name in TOLD if name in row.get("numbers", {})
    }
    words = {name: value for name, value in row.items() if name not in HIDDEN} | numbers
    if "data" in words:
        words["data"] = files.named(words["data"])
    return " ".join(
        f"{name}={f'{value:.4g}' if isinstance(value, float) else value}"
        for name, value in words.items()
    )
