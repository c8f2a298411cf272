"""Put entries of sparse matrices into their rows, move them with those, sort them within those.

Each is done by the host's kernels, or, where arrays lie on a GPU, by arrays as a whole.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import module_of, put_entries
from dask_simjoin.metrics.types import Array

SORTED = 1 << 24
"""Entries that are sorted at a time where no kernel sorts them row by row."""


def put(rows: Array, columns: Array, values: Array, at: Array, out: Array, out_values: Array) -> None:
    """Put entries into their rows; `at` (n,): where each row's next entry goes."""
    if module_of(at) is np:
        host_kernels("rows").put(rows, columns, values, at, out, out_values)
    elif len(rows):  # in whichever order: rows are sorted once they are whole
        put_entries(rows, columns, values, at, out, out_values)


def move(counts: Array, columns: Array, values: Array, at: Array, out: Array, out_values: Array) -> None:
    """Put whole rows, of so many entries each, behind what those rows have."""
    starts = starts_of(counts)
    if module_of(at) is np:
        host_kernels("rows").move(starts, columns, values, at, out, out_values)
    else:
        move_together(starts, columns, values, at, out, out_values)


def move_together(
    starts: Array, columns: Array, values: Array, at: Array, out: Array, out_values: Array
) -> None:
    """Put whole rows behind what those rows have, by arrays as a whole."""
    xp = module_of(at)
    for first in range(0, len(columns), SORTED):
        some = slice(first, min(first + SORTED, len(columns)))
        entry = xp.arange(some.start, some.stop)
        row = xp.searchsorted(starts, entry, side="right") - 1
        place = at[row] + entry - starts[row]
        out[place], out_values[place] = columns[some], values[some]
    at += starts[1:] - starts[:-1]


def sort_rows(starts: Array, columns: Array, values: Array) -> None:
    """Sort the entries of each row by value and then by column, in place."""
    if module_of(starts) is np:
        host_kernels("rows").sort(starts, columns, values)
    else:
        sort_together(starts, columns, values)


def sort_together(starts: Array, columns: Array, values: Array) -> None:
    """Sort the entries of each row by value and then by column, in place, by arrays as a whole."""
    xp = module_of(starts)
    row, rows, entries = 0, len(starts) - 1, len(columns)
    while row < rows:
        # as many rows as make a slice, and one at least
        first = int(starts[row])
        stop = rows
        if entries - first > SORTED:
            stop = int(xp.searchsorted(starts, xp.asarray([first + SORTED]), side="right")[0]) - 1
            stop = max(stop, row + 1)
        some = slice(first, int(starts[stop]))
        if some.stop > first:
            own = xp.searchsorted(starts[row : stop + 1], xp.arange(first, some.stop), side="right")
            # columns are below 2**53, so float64 holds them
            keys = xp.stack([columns[some].astype(np.float64), values[some], own.astype(np.float64)])
            order = xp.lexsort(keys)
            columns[some], values[some] = columns[some][order], values[some][order]
        row = stop


def starts_of(counts: Array) -> Array:
    """Find where rows of so many entries begin, and the last one ends (n + 1,)."""
    xp = module_of(counts)
    starts = xp.zeros(len(counts) + 1, np.int64)
    starts[1:] = xp.cumsum(counts, dtype=np.int64)
    return starts


def narrow(counts: Array) -> Array:
    """Store counts in the smallest type that holds them: there are some for each row and block pair."""
    return counts.astype(np.min_scalar_type(int(counts.max()) if len(counts) else 0))
