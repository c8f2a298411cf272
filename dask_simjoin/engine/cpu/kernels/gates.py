"""Decide candidates by gates and by their totals: see `dask_simjoin.metrics.gates`."""

from __future__ import annotations

import math
from typing import NamedTuple

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source, kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.formulas import (
    BRAY_CURTIS,
    CANBERRA,
    DIFFERENCES,
    HAMMING,
)
from dask_simjoin.metrics.gates import NUMBERS, OPEN, TIMES, UNLIKE
from dask_simjoin.metrics.norms import Array


class Rules(NamedTuple):
    """The gates: kinds (gates,), and bounds as integers and as floats, each (gates,)."""

    kind: Array
    low: Array
    high: Array
    low_number: Array
    high_number: Array


class Values(NamedTuple):
    """The rows of an index: coordinates (n, d), and the values of gates (n, gates), as
    int64 and as float64.
    """

    y: Array
    bits: Array
    numbers: Array


class Terms(NamedTuple):
    """How the coordinates of two rows make a total: see `Compared`. `box` (d,): length
    of each column if it is periodic, else 0.
    """

    formula: int
    numbers: int
    box: Array


@inline_source
def saturated(a: int, b: int) -> int:
    """Return ``b - a``, but at most `OPEN` and at least ``-OPEN``."""
    apart = b - a
    # the difference overflows if it has the wrong sign
    if (b < a) != (apart < 0):
        return -OPEN if b < a else OPEN
    return max(apart, -OPEN)


@inline_source
def _allows(rules: Rules, g: int, q: Values, i: int, d: Values, j: int) -> bool:
    kind = rules.kind[g]
    if kind == UNLIKE:
        return q.bits[i, g] != d.bits[j, g]
    if kind == TIMES:
        apart = saturated(q.bits[i, g], d.bits[j, g])
        return rules.low[g] <= apart and apart <= rules.high[g]
    x, y = q.numbers[i, g], d.numbers[j, g]
    if kind == NUMBERS:
        return rules.low_number[g] <= y - x and y - x <= rules.high_number[g]
    return abs(y - x) <= rules.high_number[g] * max(abs(x), abs(y))


@inline_source
def allows_pair(rules: Rules, q: Values, i: int, d: Values, j: int) -> bool:
    """Return whether all gates allow a pair of rows."""
    g = 0
    while g < rules.kind.size and _allows(rules, g, q, i, d, j):
        g += 1
    return g == rules.kind.size


@device_function
def _total(q: Values, i: int, d: Values, j: int, terms: Terms) -> float:
    """Return the total of two rows by a formula; infinity if they are of different
    groups.
    """
    for k in range(terms.numbers, q.y.shape[1]):
        if q.y[i, k] != d.y[j, k]:
            return math.inf
    total, whole = 0.0, 0.0
    for k in range(terms.numbers):
        a, b = q.y[i, k], d.y[j, k]
        if terms.formula == HAMMING:
            total += a != b
        elif terms.formula == CANBERRA:
            size = abs(a) + abs(b)
            total += abs(a - b) / size if size > 0.0 else 0.0
        else:
            total += abs(a - b)
            whole += a + b
    if terms.formula == CANBERRA:
        return total
    whole = whole if terms.formula == BRAY_CURTIS else float(terms.numbers)
    return total / whole if whole > 0.0 else 0.0


@device_function
def total_of(q: Values, i: int, d: Values, j: int, terms: Terms, norm: Kind) -> float:
    """Return the total of two rows."""
    if terms.formula != DIFFERENCES:
        return _total(q, i, d, j, terms)
    total = 0.0
    for k in range(q.y.shape[1]):
        t = q.y[i, k] - d.y[j, k]
        if terms.box[k] > 0.0:
            t = min(abs(t), terms.box[k] - abs(t))
        total = add_term(total, t, norm)
    return total


@kernel
def decide(
    q: Values,
    d: Values,
    rules: Rules,
    terms: Terms,
    threshold: float,
    norm: Kind,
    q_places: Array,
    d_places: Array,
    near: Array,
    totals: Array,
) -> int:
    """Decide candidates. Write the indexes of those that are pairs to `near`, and their
    totals to `totals`. Return the number of pairs.
    """
    found = 0
    for n in range(q_places.size):
        i, j = q_places[n], d_places[n]
        if not allows_pair(rules, q, i, d, j):
            continue
        total = total_of(q, i, d, j, terms, norm)
        if total <= threshold:
            near[found], totals[found] = n, total
            found += 1
    return found


@kernel
def count(
    left: Array, right: Array, both: bool, q_counts: Array, d_counts: Array
) -> None:
    """Count each pair for both of its rows. `both`: count it in `q_counts` at the
    earlier of its places, and in `d_counts` at the later.
    """
    for n in range(left.size):
        i, j = left[n], right[n]
        if both and j < i:
            i, j = j, i
        q_counts[i] += 1
        d_counts[j] += 1
