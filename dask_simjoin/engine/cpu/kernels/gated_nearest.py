"""Nearest rows among those that gates allow: see `dask_simjoin.metrics.gates`.

Each query visits the boxes of a tree, nearest first, from a heap. It skips boxes
without a value that a gate allows. It stops if a lower bound of totals exceeds the
total of the worst neighbor. Bounds are computed like the totals, and rounding is
monotone, so no neighbor is lost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dask_simjoin.engine.cpu.kernels.gates import (
    Rules,
    Terms,
    Values,
    allows_pair,
    saturated,
    total_of,
)
from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source, kernel
from dask_simjoin.engine.cpu.kernels.nearest import LEVEL, Best, Heap, pop, push
from dask_simjoin.engine.cpu.kernels.nearest_scan import Range
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.formulas import CANBERRA, DIFFERENCES, HAMMING
from dask_simjoin.metrics.gates import NUMBERS, SMALLEST, TIMES, UNLIKE
from dask_simjoin.metrics.norms import Array

FAN_OUT = 16
"""Rows of a leaf of the tree, and children of each other node."""

LAST = 2**63 - 1
"""Larger than every row id."""

ROUNDED = 2.0**-30
"""Bounds of quotients are smaller by this share, because their rounding is not
monotone.
"""


class Boxes(NamedTuple):
    """The nodes of a tree, level by level: their smallest and largest values, and their
    smallest row ids. `levels`: the first node of each level, and the number of nodes.
    """

    low: Values
    high: Values
    least: Array
    levels: Array


class Searched(NamedTuple):
    """The rows that are searched: their values, row ids and boxes."""

    rows: Values
    names: Array
    boxes: Boxes


class Asking(NamedTuple):
    """The rows that search: their values, their rows in the result, and their row ids.
    `other_rows`: whether rows of equal ids are different rows.
    """

    rows: Values
    places: Array
    names: Array
    other_rows: bool


@inline_source
def _may_allow(rules: Rules, g: int, q: Values, i: int, boxes: Boxes, b: int) -> bool:
    """Return whether a gate may allow query `i` and some row of box `b`."""
    kind, low, high = rules.kind[g], boxes.low, boxes.high
    if kind == UNLIKE:
        first = low.bits[b, g]
        return first != high.bits[b, g] or first != q.bits[i, g]
    if kind == TIMES:
        a = q.bits[i, g]
        return (
            saturated(a, high.bits[b, g]) >= rules.low[g]
            and saturated(a, low.bits[b, g]) <= rules.high[g]
        )
    x, first, last = q.numbers[i, g], low.numbers[b, g], high.numbers[b, g]
    if kind == NUMBERS:
        return last - x >= rules.low_number[g] and first - x <= rules.high_number[g]
    near = min(max(x, first), last)
    most = rules.high_number[g] * max(abs(x), abs(near)) + SMALLEST
    return abs(near - x) * (1.0 - ROUNDED) <= most


@device_function
def _least_by_formula(q: Values, i: int, boxes: Boxes, b: int, terms: Terms) -> float:
    """Return a lower bound of the totals of query `i` and the rows of box `b`."""
    low, high = boxes.low.y, boxes.high.y
    for k in range(terms.numbers, q.y.shape[1]):
        if q.y[i, k] < low[b, k] or q.y[i, k] > high[b, k]:
            return math.inf
    total, whole = 0.0, 0.0
    for k in range(terms.numbers):
        a = q.y[i, k]
        near = min(max(a, low[b, k]), high[b, k])
        if terms.formula == HAMMING:
            total += near != a
        elif terms.formula == CANBERRA:
            size = abs(a) + abs(near)
            total += abs(a - near) / size if size > 0.0 else 0.0
        else:
            total += abs(a - near)
            whole += a + high[b, k]
    if terms.formula == HAMMING:
        return total / float(terms.numbers)
    if terms.formula != CANBERRA:
        total = total / whole if whole > 0.0 else 0.0
    return total * (1.0 - ROUNDED)


@device_function
def _least_total(
    q: Values, i: int, boxes: Boxes, b: int, terms: Terms, norm: Kind
) -> float:
    """Return a lower bound of the totals of query `i` and the rows of box `b`."""
    if terms.formula != DIFFERENCES:
        return _least_by_formula(q, i, boxes, b, terms)
    total = 0.0
    for k in range(q.y.shape[1]):
        a, low, high = q.y[i, k], boxes.low.y[b, k], boxes.high.y[b, k]
        t = max(low - a, a - high, 0.0)
        if terms.box[k] > 0.0:
            t = min(t, max(terms.box[k] - max(a - low, high - a), 0.0))
        total = add_term(total, t, norm)
    return total


@device_function
def _insert(best: Best, row: int, total: float, name: int) -> None:
    """Insert a pair in the nearest neighbors of a row, if it is near enough: see
    `Searcher.nearest`.
    """
    totals, names = best
    k = totals.shape[1]
    at = k
    while at > 0 and (
        names[row, at - 1] < 0
        or total < totals[row, at - 1]
        or (total == totals[row, at - 1] and name < names[row, at - 1])
    ):
        at -= 1
    for m in range(k - 1, at, -1):
        totals[row, m], names[row, m] = totals[row, m - 1], names[row, m - 1]
    if at < k:
        totals[row, at], names[row, at] = total, name


@kernel
def search(
    q: Asking,
    d: Searched,
    rules: Rules,
    terms: Terms,
    limits: Range,
    norm: Kind,
    best: Best,
    heap: Heap,
) -> None:
    """Update the neighbors of the queries in `best` with the rows of `d`: see
    `Searcher.nearest`.
    """
    keys, ties, nodes = heap
    boxes, k, gates = d.boxes, best.d2.shape[1], rules.kind.size
    levels, mask = boxes.levels, (1 << LEVEL) - 1
    top = levels.size - 2
    for i in range(q.names.size):
        row, own = q.places[i], -1 if q.other_rows else q.names[i]
        keys[0], ties[0], nodes[0], size = 0.0, 0, top << LEVEL, 1
        while size > 0:
            worst, last = best.d2[row, k - 1], best.names[row, k - 1]
            if last < 0 or worst > limits.most:
                worst, last = limits.most, LAST
            # of boxes at the distance of the worst neighbor, only those with a smaller
            # row id can have a neighbor
            if keys[0] > worst or (keys[0] == worst and ties[0] > last):
                break
            level, number = nodes[0] >> LEVEL, nodes[0] & mask
            pop(keys, ties, nodes, size)
            size -= 1
            first = number * FAN_OUT
            if level == 0:
                for j in range(first, min(first + FAN_OUT, d.names.size)):
                    if d.names[j] == own:
                        continue
                    if not allows_pair(rules, q.rows, i, d.rows, j):
                        continue
                    total = total_of(q.rows, i, d.rows, j, terms, norm)
                    if limits.least <= total <= limits.most:
                        _insert(best, row, total, d.names[j])
                continue
            below = levels[level - 1]
            for b in range(below + first, min(below + first + FAN_OUT, levels[level])):
                g = 0
                while g < gates and _may_allow(rules, g, q.rows, i, boxes, b):
                    g += 1
                if g < gates:
                    continue
                key, tie = (
                    _least_total(q.rows, i, boxes, b, terms, norm),
                    boxes.least[b],
                )
                if key < worst or (key == worst and tie < last):
                    child = ((level - 1) << LEVEL) | (b - below)
                    push(keys, ties, nodes, size, key, tie, child)
                    size += 1


@kernel
def insert_pairs(
    left: Array,
    right: Array,
    totals: Array,
    limits: Range,
    rows: Array,
    names: Array,
    other_rows: bool,
    d_names: Array,
    best: Best,
) -> None:
    """Insert pairs in the nearest neighbors of their left rows.

    `rows`, `names`, `other_rows`: as in `Asking`, for the left rows.
    """
    for n in range(left.size):
        i, name = left[n], d_names[right[n]]
        if limits.least <= totals[n] <= limits.most and (
            other_rows or name != names[i]
        ):
            _insert(best, rows[i], totals[n], name)
