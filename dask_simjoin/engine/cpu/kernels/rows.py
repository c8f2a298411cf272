"""Entries of sparse matrices, row by row: put into their rows, moved with them, sorted within them."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.types import Array

GAPS = np.array([1750, 701, 301, 132, 57, 23, 10, 4, 1])
"""Of Shell's sort (Ciura 2001, "Best increments for the average case of Shellsort"); above, each 2.25 times
the one below."""


@kernel
def put(rows: Array, columns: Array, values: Array, at: Array, out: Array, out_values: Array) -> None:
    """Put entries into their rows; `at` (n,): where each row's next entry goes."""
    for n in range(rows.size):
        to = at[rows[n]]
        at[rows[n]] = to + 1
        out[to], out_values[to] = columns[n], values[n]


@kernel
def move(starts: Array, columns: Array, values: Array, at: Array, out: Array, out_values: Array) -> None:
    """Put whole rows behind what those rows have; `starts` (n + 1,): where each row's entries are."""
    for i in range(at.size):
        to = at[i]
        for e in range(starts[i], starts[i + 1]):
            out[to], out_values[to] = columns[e], values[e]
            to += 1
        at[i] = to


@device_function
def _insert(columns: Array, values: Array, first: int, stop: int, gap: int) -> None:
    """Sort what lies `gap` apart, by value and then by column."""
    for n in range(first + gap, stop):
        value, column = values[n], columns[n]
        at = n
        while at >= first + gap:
            before = values[at - gap]
            if before < value or (before == value and columns[at - gap] <= column):
                break
            values[at], columns[at] = before, columns[at - gap]
            at -= gap
        values[at], columns[at] = value, column


@kernel
def sort(starts: Array, columns: Array, values: Array) -> None:
    """Sort the entries of each row by value and then by column, in place."""
    for i in range(starts.size - 1):
        first, stop = starts[i], starts[i + 1]
        if stop - first <= 12:
            _insert(columns, values, first, stop, 1)
            continue
        gap = np.int64(GAPS[0])
        while np.int64(2.25 * gap) < stop - first:
            gap = np.int64(2.25 * gap)
        while gap > GAPS[0]:
            _insert(columns, values, first, stop, gap)
            gap = np.int64(gap / 2.25)
        for gap in GAPS:
            if gap < stop - first:
                _insert(columns, values, first, stop, gap)
