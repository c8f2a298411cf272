"""Super-EGO on CPUs (Kalashnikov 2013), the baseline of three of the papers, written
from their words.

1. The dimensions are reordered by a sample of pairs: first the ones whose cells
  separate the most pairs.
2. Points are sorted by their cells in a grid of side `eps`, lexicographically (epsilon
  grid order).
3. Two ranges of that order are joined recursively.  The cells of their first and last
  points give bounds in
   the dimensions up to the first one where a range has several cells.  If these are
   more than one cell apart, there are no pairs.  Otherwise the ranges are halved, until
   both are short (`SHORT`).
4. Two short ranges are compared point by point (SimpleJoin).  A sum ends when it
  exceeds the threshold.  It
   starts at the dimension where step 3 stopped, and ends with the dimensions that
   rarely separate points.

Threads take pairs of ranges from a queue.  Differences from the publication: sums are
float64 instead of float32, and each pair of a self-join is found once.  A total near
the threshold is summed again in the order of the columns, so the package finds exactly
the same pairs.
"""

from __future__ import annotations

import functools
import hashlib
import queue
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.process import together
from dask_simjoin.metrics import make_metric
from dask_simjoin.metrics.norms import reach

SHORT = 16
"""Ranges with fewer points are compared point by point."""

SAMPLE = 2000
"""The number of sampled pairs of points that order the dimensions."""

JOBS = 32
"""Least number of pairs of ranges per thread, unless the ranges become short."""

BUFFER = 1 << 18
"""A thread takes another buffer after this many pairs; must be more than `SHORT`
squared.
"""

MAX_CELL = 2.0**30
"""Largest number of a cell: larger ones would be rounded by more than `SLACK` allows
for.
"""

SLACK = 2.0**-18
"""Cells are wider by this share, so that rounding puts no pair two cells apart."""

GROUPED = 8
"""From this number of dimensions on, they are added in groups of four.

In 16 dimensions this takes 0.8 times as long, in two dimensions longer.  Numbers of
float32 take as long as those of float64.
"""

DEPTH = 1024
"""Places of a stack: at most four for each time that ranges of 2**31 points are halved,
twice.
"""

PAIRS, TOP, TESTED = range(3)
"""Entries of `state`: pairs in the buffer, pairs of ranges on the stack, compared pairs
of points.
"""


compiled = functools.partial(
    kernel, variant=hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
)
"""The decorator of kernels. The cache notices changes of the package's files only, so
the variant is a digest of this file."""


class Ordered(NamedTuple):
    """Points in epsilon grid order.

    Attributes
    ----------
    y : array (n, d), float64
        Their coordinates, with the dimensions reordered.
    cells : array (n, d), int32
    rows : array (n,), int32
        Numbers of the points as they were given.
    columns : array (d,), int64
        Position of each given column in `y`.
    last : int
        The dimensions of `y` from here on rarely separate points.
    """

    y: np.ndarray
    cells: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    last: int


def dimension_order(
    x: np.ndarray, cells: np.ndarray, eps: float
) -> tuple[np.ndarray, int]:
    """Order the dimensions by the share of sampled pairs that are more than one cell
    apart, then by distance.

    Also return the number of dimensions before those at the end with mean distances
    below eps / 2.
    """
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, len(x), (2, SAMPLE))
    fails = (np.abs(cells[a] - cells[b]) > 1).mean(axis=0)
    distance = np.abs(x[a] - x[b]).mean(axis=0)
    order = np.lexsort((-distance, -fails))
    far = np.flatnonzero(distance[order] >= eps / 2)
    return order, int(far[-1]) + 1 if len(far) else 0


def grid_order(cells: np.ndarray) -> np.ndarray:
    """Return the positions of points by their cells, lexicographically: several columns
    share a word.
    """
    words, bits = [np.zeros(len(cells), np.int64)], 0
    for column in cells.T:
        width = int(column.max()).bit_length()
        if bits + width > 63:
            words.append(np.zeros(len(cells), np.int64))
            bits = 0
        words[-1] = words[-1] << width | column
        bits += width
    return np.lexsort(words[::-1])


def ordered(x: np.ndarray, eps: float, threshold: float) -> Ordered:
    """Sort points (n, d)."""
    low = x.min(axis=0)
    side = np.maximum(
        reach(2, threshold) * (1 + SLACK), (x.max(axis=0) - low) / MAX_CELL
    )
    cells = ((x - low) / side).astype(np.int32)
    order, last = dimension_order(x, cells, eps)
    cells = cells[:, order]
    rows = grid_order(cells)
    y = np.ascontiguousarray(x[rows][:, order])
    return Ordered(
        y,
        np.ascontiguousarray(cells[rows]),
        rows.astype(np.int32),
        np.argsort(order),
        last,
    )


@compiled
def push_halves(stack: Any, top: int, cells: Any, short: int) -> int:
    """Replace the two ranges on top of a stack by pairs of their halves, or by none.

    Return the new height.  It is the same only if both ranges are short.  Then the last
    number on the stack is the first dimension where one of them has several cells.
    """
    a, a_end, b, b_end, first = stack[top - 1]
    dims = cells.shape[1]
    while first < dims:
        if (
            cells[a, first] > cells[b_end - 1, first] + 1
            or cells[b, first] > cells[a_end - 1, first] + 1
        ):
            return top - 1
        if (
            cells[a, first] < cells[a_end - 1, first]
            or cells[b, first] < cells[b_end - 1, first]
        ):
            break
        first += 1
    stack[top - 1, 4] = first
    a_short, b_short = a_end - a < short, b_end - b < short
    if a_short and b_short:
        return top
    a_cut = a_end if a_short else (a + a_end) // 2
    b_cut = b_end if b_short else (b + b_end) // 2
    top -= 1
    for q, q_end in ((a, a_cut), (a_cut, a_end)):
        for d, d_end in ((b, b_cut), (b_cut, b_end)):
            # if both are the same range, its second half meets the first one only once
            if q < q_end and d < d_end and not (a == b and q > d):
                stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = (
                    q,
                    q_end,
                    d,
                    d_end,
                )
                stack[top, 4] = first
                top += 1
    return top


@compiled
def add_terms(
    y: Any, i: int, j: int, begin: int, end: int, total: float, most: float
) -> float:
    """Add the squares of some dimensions to a total, until it is more than `most`."""
    for k in range(begin, end):
        t = y[i, k] - y[j, k]
        total += t * t
        if total > most:
            break
    return total


@compiled
def add_groups(
    y: Any, i: int, j: int, begin: int, end: int, total: float, most: float
) -> float:
    """Do the same in groups of four dimensions, which the processor adds together."""
    k = begin
    while k + 4 <= end:
        a, b = y[i, k] - y[j, k], y[i, k + 1] - y[j, k + 1]
        c, d = y[i, k + 2] - y[j, k + 2], y[i, k + 3] - y[j, k + 3]
        total += (a * a + b * b) + (c * c + d * d)
        if total > most:
            return total
        k += 4
    return add_terms(y, i, j, k, end, total, most)


@compiled
def add_some(
    y: Any, i: int, j: int, begin: int, end: int, total: float, most: float
) -> float:
    """Add the squares of some dimensions in the faster of these two ways."""
    if end - begin >= GROUPED:
        return add_groups(y, i, j, begin, end, total, most)
    return add_terms(y, i, j, begin, end, total, most)


@compiled
def in_order(y: Any, i: int, j: int, columns: Any) -> float:
    """Sum the squares in the order of the given columns: this total decides."""
    total = 0.0
    for c in columns:
        t = y[i, c] - y[j, c]
        total += t * t
    return total


@compiled
def join(
    stack: Any,
    state: Any,
    y: Any,
    cells: Any,
    rows: Any,
    columns: Any,
    last: int,
    short: int,
    threshold: float,
    left: Any,
    right: Any,
) -> bool:
    """Join the pairs of ranges on a stack; return whether all are done, or the buffer
    of pairs is full.

    The order of d terms changes a total by a share of less than (2 d + 2) 2**-53, or by
    d 2**-1074 if squares underflow.  So only totals that are so near to the threshold
    are summed again.
    """
    dims = y.shape[1]
    share, least = (2 * dims + 4) * 2.0**-53, dims * 2.0**-1073
    most, sure = threshold * (1 + share) + least, threshold * (1 - share) - least
    n, top, tested = 0, state[TOP], state[TESTED]
    while top > 0:
        height = push_halves(stack, top, cells, short)
        if height != top:
            top = height
            continue
        if n + short * short > left.size:
            break
        a, a_end, b, b_end, first = stack[top - 1]
        top -= 1
        if first >= last:
            first = 0
        for i in range(a, a_end):
            begin = i + 1 if a == b else b
            tested += b_end - begin
            row = rows[i]
            for j in range(begin, b_end):
                total = add_some(y, i, j, first, last, 0.0, most)
                if total <= most and first > 0:
                    total = add_some(y, i, j, 0, first, total, most)
                if total <= most and last < dims:
                    total = add_some(y, i, j, last, dims, total, most)
                if total > most:
                    continue
                if total > sure and in_order(y, i, j, columns) > threshold:
                    continue
                left[n], right[n] = min(row, rows[j]), max(row, rows[j])
                n += 1
    state[PAIRS], state[TOP], state[TESTED] = n, top, tested
    return top == 0


def _jobs(points: Ordered, number: int) -> list[np.ndarray]:
    """Halve ranges until there are `number` pairs of ranges."""
    waiting = deque([np.array([0, len(points.y), 0, len(points.y), 0])])
    short, stack = [], np.empty((4, 5), np.int64)
    while waiting and len(waiting) + len(short) < number:
        stack[0] = job = waiting.popleft()
        height = push_halves(stack, 1, points.cells, SHORT)
        if height == 1:
            short.append(job)
        else:
            waiting.extend(stack[:height].copy())
    return [*short, *waiting]


def self_join(
    x: np.ndarray, eps: float, threads: int = 1
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the pairs of rows of x (n, d) within eps, smaller numbers left, and how
    many were compared.
    """
    if len(x) < 2:
        return np.empty(0, np.int32), np.empty(0, np.int32), 0
    parts = _joined(x, eps, threads, keep=True)
    pairs = [part for found, _, _ in parts for part in found]
    left, right = np.concatenate(pairs, axis=1)
    return left, right, sum(tested for _, _, tested in parts)


def count(x: np.ndarray, eps: float, threads: int = 1) -> int:
    """Write all pairs to buffers, drop them, and return their number."""
    return sum(number for _, number, _ in _joined(x, eps, threads, keep=False))


def _joined(
    x: np.ndarray, eps: float, threads: int, *, keep: bool
) -> list[tuple[list[np.ndarray], int, int]]:
    """Return for each thread its pairs, if they are kept, how many it found, and how
    many it compared.
    """
    x = np.ascontiguousarray(x, np.float64)
    threshold = float(make_metric("euclidean").threshold(eps))
    points = ordered(x, eps, threshold)
    waiting: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
    for job in _jobs(points, JOBS * threads if threads > 1 else 1):
        waiting.put(job)

    def work() -> tuple[list[np.ndarray], int, int]:
        stack, state = np.empty((DEPTH, 5), np.int64), np.zeros(3, np.int64)
        found, number, columns = [], 0, np.empty((2, BUFFER), np.int32)
        while True:
            try:
                stack[0] = waiting.get_nowait()
            except queue.Empty:
                return found, number, int(state[TESTED])
            state[TOP], done = 1, False
            while not done:
                done = join(stack, state, *points, SHORT, threshold, *columns)
                number += int(state[PAIRS])
                if not keep:
                    continue
                found.append(columns[:, : state[PAIRS]])
                if 2 * state[PAIRS] > BUFFER:
                    columns = np.empty_like(columns)
                else:
                    found[-1] = found[-1].copy()

    return together([work] * threads)
