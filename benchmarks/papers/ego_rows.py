"""Super-EGO and this package on CPUs: the baseline of the papers on grids and on lists
in Z-order.

The published times of Super-EGO are from 16 cores.  Here it runs on one thread and on
two, at a size that a CPU joins in seconds.  The same points are joined by "auto", by
the first paper's join on a CPU (`Grid.gpu_join`), and in a few dimensions by SciPy's
tree.  All write pairs.  All include their index and the planning.  The ways alternate.
"auto" on two threads joins a Dask DataFrame of two partitions: a pandas DataFrame takes
one thread.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from benchmarks.harness.repeats import summaries
from benchmarks.papers import data as points_of
from benchmarks.papers import ego, files, lists_rows
from benchmarks.papers.rows import FIG5, FIG8, SKIES
from dask_simjoin.methods import Grid

PAPER = "ego"

TREE_DIMS = 6
"""SciPy's tree compares nearly all pairs in more dimensions."""

LONG = 20.0
"""If a run takes more CPU seconds, it is not repeated."""

EGO, AUTO, GRID, TREE = "Super-EGO", '"auto"', "Grid.gpu_join(6)", "SciPy's cKDTree"

Pairs = tuple[np.ndarray, np.ndarray]


class Case(NamedTuple):
    """Points and a distance.

    Attributes
    ----------
    figure : str
        The figure or table that compares with EGO or Super-EGO.
    data : str
    rows : int
        Fewer than the paper has.
    eps : float
        The distance in the paper.
    """

    figure: str
    data: str
    rows: int
    eps: float


CASES = (
    Case("tab3", "Syn16D", 50_000, 0.03),
    Case("tab3", "Syn16D", 50_000, 0.05),
    Case("tab3", "Syn32D", 20_000, 0.08),
    Case("tab3", "Syn32D", 20_000, 0.1),
    Case("tab3", "Syn64D", 10_000, 0.16),
    Case("tab3", "Syn64D", 10_000, 0.18),
    Case("fig13", "Expo2D", 100_000, 0.04),
    Case("fig13", "Expo2D", 100_000, 0.2),
    Case("fig13", "Expo6D", 50_000, 1.2),
    Case("fig13", "Unif2D", 100_000, 1.0),
    Case("fig13", "Unif6D", 100_000, 8.0),
    Case("3a", "planted", 4096, 0.1),
    Case("3a", "planted", 65_536, 0.1),
    Case("3b", "planted", 26_214, 0.01),
    Case("3b", "planted", 26_214, 0.35),
)
"""Table 3 of GPU-Join, figure 13 on load imbalance, figures 3a and 3b of LSS (16
dimensions).
"""

REAL = (
    *(
        (name, "tab3", eps)
        for name, some in FIG5.items()
        for eps in (some[0], some[-1])
    ),
    *(
        (name, "tab3", eps)
        for name, some in FIG8.values()
        for eps in (some[0], some[-1])
    ),
    *((name, "fig13", some[0]) for name, some in SKIES.items()),
)
"""Real data, with figure and distance, which are cases only if their files are given.
"""

FEWER = 50_000
"""How many points of a file are joined, unless the command line has another number."""

FIGURES = tuple(dict.fromkeys(case.figure for case in CASES))


def cases() -> Iterator[Case]:
    """Yield the cases; the columns of the first paper's real data are scaled."""
    yield from CASES
    for name, figure, eps in REAL:
        if files.is_file(name):
            yield Case(figure, name + files.SCALED * (figure == "tab3"), FEWER, eps)


def points(case: Case) -> np.ndarray:
    """Return the points of a case, float64."""
    if case.data == "planted":
        return lists_rows.points("planted", case.rows, 16, case.eps).astype(np.float64)
    return points_of.points(case.data, case.rows)


def ways(x: np.ndarray, eps: float) -> dict[str, Callable[[], Pairs]]:
    """Return the ways to join, by name and threads; each returns pairs of rows."""
    frame = pd.DataFrame(x, columns=[f"c{k}" for k in range(x.shape[1])])

    def own(threads: int, method: Any) -> Pairs:
        with dask.config.set(num_workers=threads, scheduler="threads"):
            if threads == 1:
                pairs = frame.simjoin.self_join(eps, method=method)
            else:
                parts = dd.from_pandas(frame, npartitions=threads)
                pairs = parts.simjoin.self_join(eps, method=method).compute()
        return pairs["left"].to_numpy(), pairs["right"].to_numpy()

    def tree() -> Pairs:
        left, right = cKDTree(x).query_pairs(eps, output_type="ndarray").T
        return left, right

    found: dict[str, Callable[[], Pairs]] = {
        f"{EGO}, 1": lambda: ego.self_join(x, eps, 1)[:2],
        f"{AUTO}, 1": lambda: own(1, "auto"),
        f"{GRID}, 1": lambda: own(1, Grid.gpu_join(6)),
    }
    if x.shape[1] <= TREE_DIMS:
        found[f"{TREE}, 1"] = tree
    if len(os.sched_getaffinity(0)) > 1:
        found[f"{EGO}, 2"] = lambda: ego.self_join(x, eps, 2)[:2]
        found[f"{AUTO}, 2"] = lambda: own(2, "auto")
    return found


def keys(pairs: Pairs, rows: int) -> np.ndarray:
    """Return pairs as sorted numbers."""
    left, right = (np.asarray(side, np.int64) for side in pairs)
    return np.sort(np.minimum(left, right) * rows + np.maximum(left, right))


def measured(case: Case, repeat: int) -> dict[str, Any]:
    """Time all ways on a case; the pairs of all must be the same."""
    x, eps = points(case), case.eps
    load = os.getloadavg()[0]
    runs: dict[str, list[dict[str, float]]] = {}
    expected = None
    for _ in range(repeat):
        for name, way in ways(x, eps).items():
            if name in runs and runs[name][0]["cpu"] > LONG:
                continue
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            pairs = way()
            took = {
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - wall,
            }
            runs.setdefault(name, []).append(took)
            if len(runs[name]) == 1:
                found = keys(pairs, len(x))
                expected = found if expected is None else expected
                if not np.array_equal(found, expected):
                    raise AssertionError(
                        f"{case}: {name} finds {len(found)} pairs, {EGO} "
                        f"{len(expected)}"
                    )
            del pairs
    assert expected is not None
    compared = ego.self_join(x, eps)[2]
    return {
        "rows": len(x),
        "dims": x.shape[1],
        "eps": eps,
        "pairs": len(expected),
        "compared": compared,
        "compared_ratio": compared / (len(x) * (len(x) - 1) / 2),
        "load": round(load, 2),
        "seconds": {name: summaries(some) for name, some in runs.items()},
    }


def results(
    figures: Sequence[str] | None,
    data: Sequence[str] | None,
    rows: int | None,
    repeat: int,
) -> Iterator[dict[str, Any]]:
    """Run the cases, after all kernels are compiled."""
    for dims in (2, 16):
        x = np.random.default_rng(0).uniform(size=(500, dims))
        for way in ways(x, 0.1).values():
            way()
    for case in cases():
        if (not figures or case.figure in figures) and (
            not data or files.name_of(case.data) in data
        ):
            given = case if rows is None else case._replace(rows=rows)
            yield {
                "paper": PAPER,
                "figure": case.figure,
                "data": case.data,
                **measured(given, repeat),
            }


def line(row: dict[str, Any]) -> str:
    """Format a row for people."""
    data = files.named(row["data"])
    words = [
        f"{row['figure']:6} {data:9} {row['rows']:>7,} of {row['dims']}-D, eps "
        f"{row['eps']:g}"
    ]
    words.append(
        f"{row['pairs']:,} pairs, EGO compares {100 * row['compared_ratio']:.1f} % of "
        "all"
    )
    for name, took in row["seconds"].items():
        words.append(f"{name}: {took['cpu']:.4g} CPU s, {took['wall']:.4g} s")
    return "; ".join(words)
