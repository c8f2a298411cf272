"""Table 5.2 of the k-means thesis: nested loops on one CPU core, on all cores, and on a
GPU.

CPU-NLJ compares each row with all rows after it, and writes each pair once.
OMP-CPU-NLJ does the same in one thread per core.  The thesis uses OpenMP, and this
module uses Python threads, which run compiled code in parallel.  Sums are float32, and
decide only that a pair is too far apart.  The other totals are computed again in
float64, as the package does, so the pairs are exactly those of the package.

Seconds of CPUs are wall-clock time, from columns in memory to pairs in memory.  Threads
write to arrays of their own, whose sizes come from a count before the timed runs.
Seconds of the GPU are those of the steps that `profile` times.  Unlike in the thesis,
they do not include copies to and from the GPU.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numba
import numpy as np

from benchmarks.harness.repeats import repeated, summary, timed
from benchmarks.papers import lists
from benchmarks.papers.lists_rows import Run, points
from dask_simjoin.engine.process import together
from dask_simjoin.methods import NestedLoop
from dask_simjoin.metrics import make_metric

PAPER, FIGURE, DATA, DIMS, EPS = "kmeans", "T5.2", "clusters", 8, 0.5

CPU, OMP, NLJ, INLJ = "CPU-NLJ", "OMP-CPU-NLJ", "GPU-NLJ", "GPU-INLJ"

PUBLISHED = {
    100_000: {OMP: 2.10, NLJ: 6.15, INLJ: 10.24},
    200_000: {OMP: 1.95, NLJ: 8.00, INLJ: 11.96},
    300_000: {OMP: 1.99, NLJ: 8.50, INLJ: 13.14},
    400_000: {OMP: 1.96, NLJ: 8.74, INLJ: 13.65},
    500_000: {OMP: 1.60, NLJ: 8.90, INLJ: 13.87},
}
"""Rows of the thesis -> speedups over CPU-NLJ."""

GPU = {
    NLJ: NestedLoop(schedule="triangle", block=32),
    INLJ: NestedLoop(schedule="rotation", block=32),
}

LARGEST = 200_000
"""Most rows for one core: its time is quadratic."""

BLOCK = 512
"""Rows that are compared with one row at a time, so that their totals stay in the
cache.
"""

GROUP = 32
"""Rows that are compared with a block before the next block is read."""


# must be given, since Numba uses the caller's otherwise
@numba.njit(nogil=True, fastmath=False)
def within(columns: Any, i: int, j: int, threshold: float) -> bool:
    """Return whether two rows are a pair: differences and sums are float64, in the
    order of the columns.
    """
    total = 0.0
    for k in range(len(columns)):
        t = np.float64(columns[k, i]) - np.float64(columns[k, j])
        total += t * t
    return total <= threshold


@numba.njit(nogil=True, fastmath={"contract"})
def join(
    columns: Any,
    thread: int,
    threads: int,
    most: Any,
    threshold: float,
    left: Any,
    right: Any,
) -> int:
    """Write the pairs of each `threads`-th group of rows with later rows, and return
    how many there are.

    Pairs for which there is no space are counted, but not written.  Rows with a float32
    total above `most` are too far apart.  These totals may use fused multiply-add, but
    those of `within` may not.
    """
    n = columns.shape[1]
    totals, found = np.empty(BLOCK, np.float32), 0
    for group in range(thread * GROUP, n, threads * GROUP):
        for begin in range(group, n, BLOCK):
            end = min(begin + BLOCK, n)
            for i in range(group, min(group + GROUP, n)):
                start = max(begin, i + 1)
                size = max(end - start, 0)
                totals[:size] = 0
                # LLVM does not vectorize iteration over arrays
                for k in range(len(columns)):
                    own, others = columns[k, i], columns[k, start:end]
                    for j in range(size):
                        t = others[j] - own
                        totals[j] += t * t
                near = False
                for j in range(size):
                    # without a branch: one instruction for several rows
                    near = near | (totals[j] <= most)
                if not near:
                    continue
                for j in range(size):
                    if totals[j] <= most and within(columns, i, start + j, threshold):
                        if found < left.size:
                            left[found], right[found] = i, start + j
                        found += 1
    return found


def self_join(
    columns: np.ndarray, eps: float, sizes: Sequence[int]
) -> list[tuple[int, Any, Any]]:
    """Join float32 columns (d, n) in one thread for each size.

    Return for each thread how many pairs there are, and the rows of up to `size` of
    them.
    """
    threshold, dims = float(make_metric("euclidean").threshold(eps)), len(columns)
    # three roundings for each term, d for each sum; squares may underflow
    bound = threshold * (1 + (2 * dims + 4) * 2.0**-24) + dims * 2.0**-148
    with np.errstate(over="ignore"):
        most = np.nextafter(np.float32(bound), np.float32(np.inf))

    def work(thread: int) -> tuple[int, Any, Any]:
        left, right = np.empty((2, sizes[thread]), np.int32)
        found = join(columns, thread, len(sizes), most, threshold, left, right)
        return found, left[:found], right[:found]

    return together([functools.partial(work, thread) for thread in range(len(sizes))])


def result(
    rows: int, published: dict[str, float], backend: str, repeat: int
) -> dict[str, Any]:
    """Time every way to join this number of rows. Raise an error if a number of pairs
    is wrong.
    """
    threads = len(os.sched_getaffinity(0))
    columns = np.ascontiguousarray(points(DATA, rows, DIMS, EPS).T)
    frame = lists.frame_of(DATA, rows, DIMS, 0.0, backend, 0)
    pairs = int(frame.simjoin.count_pairs(EPS))
    counts = [number for number, *_ in self_join(columns, EPS, [0] * threads)]
    found, runs = {OMP: sum(counts)}, {}
    for way, sizes, fits in (
        (CPU, [sum(counts)], rows <= LARGEST),
        (OMP, counts, threads > 1),
    ):
        if fits:
            work = functools.partial(self_join, columns, EPS, sizes)
            runs[way] = repeated(
                functools.partial(timed, work, time.perf_counter), repeat, lists.LONG
            )
    for way, method in GPU.items() if backend == "gpu" else ():
        found[way] = int(frame.simjoin.profile(EPS, method=method).numbers["pairs"])
        run = Run(PAPER, FIGURE, DATA, rows, DIMS, EPS, way, method)
        runs[way] = lists.seconds_of(run, method, backend, repeat)
    if wrong := {way: number for way, number in found.items() if number != pairs}:
        raise AssertionError(
            f"{rows} rows: {wrong} pairs, and the package's own engine {pairs}"
        )
    seconds = {way: summary(some) for way, some in runs.items()}
    first = seconds[CPU]["seconds"] if CPU in seconds else 0.0
    return {
        "paper": PAPER,
        "figure": FIGURE,
        "data": DATA,
        "rows": rows,
        "dims": DIMS,
        "eps": EPS,
        "pairs": pairs,
        "threads": threads,
        "seconds": seconds,
        "published": published,
        "ratios": {
            way: round(first / one["seconds"], 3) for way, one in seconds.items()
        }
        if first
        else {},
    }


def results(backend: str, quick: bool, repeat: int) -> Iterator[dict[str, Any]]:
    """Yield a result for each number of rows of the thesis; without a GPU for a tenth
    of them.
    """
    for rows, published in [*PUBLISHED.items()][: 1 if quick else None]:
        number = lists.QUICK if quick else rows if backend == "gpu" else rows // 10
        yield result(number, published, backend, 1 if quick else repeat)


def line(row: dict[str, Any]) -> str:
    """Format a row for people."""
    words = [
        f"{FIGURE} {row['data']} {row['rows']:,} rows, eps {row['eps']:g}: "
        f"{row['pairs']:,} pairs"
    ]
    for way, one in row["seconds"].items():
        ratio = f", {row['ratios'][way]:.4g}x" if way in row["ratios"] else ""
        published = (
            f" (published {row['published'][way]:.4g}x)"
            if way in row["published"]
            else ""
        )
        threads = f" on {row['threads']} threads" if way == OMP else ""
        words.append(f"{way}{threads} {one['seconds']:.4g} s{ratio}{published}")
    return "; ".join(words)
