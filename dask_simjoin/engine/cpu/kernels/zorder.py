"""Keys in Z-order, and walks through intervals of rows: see `dask_simjoin.engine.index.zorder`."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array

CANDIDATES, COMPARISONS, PAIRS = range(3)
"""What is counted: rows in intervals, those of them that were compared, pairs."""

AT_ONCE = 8
"""Terms that are summed before a sum is looked at."""


@kernel
def make_keys(x: Array, columns: Array, low: Array, extent: float, scale: float, shift: float, bits: int,
              corner: float, out: Array, cells: Array) -> None:  # fmt: skip
    """Fill `out` (n, words), uint64, with the keys of points, or of corners of the boxes around them.

    `corner`: 0, or how far the upper corner is, or the lower one, if it is negative;
    `cells`: scratch for a number of each column.
    """
    k = columns.size
    most = 2.0**bits - 1.0
    half = 2.0 ** (bits - 1)
    one = np.uint64(1)
    for i in range(len(x)):
        for j in range(k):
            value = x[i, columns[j]] + corner
            cell = ((value * scale - low[j]) / extent + shift) * half
            cells[j] = np.int64(min(max(cell, 0.0), most))
        word, filled = 0, 0
        key = np.uint64(0)
        for bit in range(bits - 1, -1, -1):
            for j in range(k):
                key = (key << one) | np.uint64((cells[j] >> bit) & 1)
                filled += 1
                if filled == 64:
                    out[i, word] = key
                    word, filled, key = word + 1, 0, np.uint64(0)
        if word < out.shape[1]:
            out[i, word] = key
            for rest in range(word + 1, out.shape[1]):
                out[i, rest] = 0


@device_function
def before(one: Array, other: Array) -> bool:
    """Tell whether a key is less than another."""
    for w in range(one.size):
        if one[w] != other[w]:
            return one[w] < other[w]
    return False


@kernel
def bounds(keys: Array, low: Array, high: Array, starts: Array, stops: Array) -> None:
    """Fill in where, among ascending keys, those from `low` to `high` of each query begin and end."""
    for i in range(len(low)):
        begin, end = 0, len(keys)
        while begin < end:
            middle = (begin + end) // 2
            if before(keys[middle], low[i]):
                begin = middle + 1
            else:
                end = middle
        starts[i] = begin
        end = len(keys)
        while begin < end:
            middle = (begin + end) // 2
            if before(high[i], keys[middle]):
                end = middle
            else:
                begin = middle + 1
        stops[i] = begin


@kernel
def shortest(starts: Array, stops: Array, number: int, best_start: Array, best_stop: Array,
             best_list: Array) -> None:  # fmt: skip
    """Keep the shorter one of each query's interval in a list of this number and its best one so far."""
    for i in range(starts.size):
        if best_list[i] < 0 or stops[i] - starts[i] < best_stop[i] - best_start[i]:
            best_start[i], best_stop[i], best_list[i] = starts[i], stops[i], number


@kernel
def walk(queries: Array, starts: Array, stops: Array, listed: Array, later: bool, q_y: Array, q_names: Array,
         d_y: Array, d_names: Array, lying: bool, threshold: float, norm: Kind, same: bool, left: Array,
         right: Array, cap: int, counting: bool, q_counts: Array, d_counts: Array, state: Array,
         told: Array) -> int:  # fmt: skip
    """Write pairs of names to `left` and `right`, or count the pairs of places; the number of pairs written.

    `queries`: places of those that walk, from `starts` to `stops` (by place) through the rows of a list, of
    which `listed` has the places; `later`: only those after the query's own are compared.  `lying`: whether
    `d_y` has the rows in the order of the list, not by place.  Stops where `cap` pairs are written, leaving
    in `state` the query, where it is, and 1 (0: it is complete).

    Terms are not negative and rounding is monotone, so a sum that ends once it is beyond the threshold
    decides as all of it would.
    """
    dims = q_y.shape[1]
    n = 0
    for s in range(state[0], queries.size):
        p = np.int64(queries[s])
        for j in range(max(starts[p], state[1]), stops[p]):
            other = np.int64(listed[j])
            told[CANDIDATES] += 1
            if later and other <= p:
                continue
            told[COMPARISONS] += 1
            row = j if lying else other
            total, k = 0.0, 0
            while k < dims:
                for m in range(k, min(k + AT_ONCE, dims)):
                    total = add_term(total, q_y[p, m] - d_y[row, m], norm)
                k += AT_ONCE
                if total > threshold:
                    break
            if total > threshold:
                continue
            if counting:
                q_counts[other if same and other < p else p] += 1
                d_counts[p if same and other < p else other] += 1
            elif n == cap:
                told[CANDIDATES] -= 1
                told[COMPARISONS] -= 1
                state[0], state[1], state[2] = s, j, 1
                return n
            else:
                one, two = q_names[p], d_names[other]
                if same and two < one:
                    one, two = two, one
                left[n], right[n] = one, two
                n += 1
            told[PAIRS] += 1
        state[1] = 0
    state[2] = 0
    return n
