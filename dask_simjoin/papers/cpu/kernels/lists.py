"""Kernels of nested loops, k-means windows and lists in Z-order, all in float64."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.nearest_scan import take_in, worse
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.norms import Array

ACROSS, ROTATION, TRIANGLE = range(3)
"""Kind of a job: two ranges of rows, or one range with itself by one of the two schedules."""

ROOM = 3
"""Entry of `state` with the needed capacity."""


@device_function
def partners(size: int, block: int, unit: int) -> int:
    """Return the number of blocks that block `unit` is compared with in a rotation, including itself.

    A block is compared with the blocks less than halfway ahead of it. If the number of blocks is even, two
    blocks exactly halfway apart are compared by the first of them.
    """
    number = -(-size // block)
    half = number // 2
    return half + 1 if number % 2 or unit < half else half


def scratch(dims: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scratch arrays of `join`: a transposed block of rows, and their totals."""
    return np.empty((dims, block)), np.empty(block)


@kernel
def join(jobs: Array, q_y: Array, q_places: Array, q_names: Array, d_y: Array, d_names: Array,
         block: int, threshold: float, norm: Kind, is_self_join: bool, left: Array, right: Array, cap: int,
         counting: bool, q_counts: Array, d_counts: Array, state: Array, staged: Array,
         totals: Array) -> int:  # fmt: skip
    """Write pairs of names to `left` and `right`, or count pairs per position; return the pairs written.

    `jobs` (m, 5): range of rows in `q_y`, range of rows in `d_y`, and the kind of the job. ROTATION and
    TRIANGLE need the same range twice. `q_places`: positions of the rows of `q_y`, within `d_y` if
    `is_self_join`.  `staged` and `totals`: see `scratch`.

    The kernel stops before a row that might exceed `cap`. Then `state` has the job, the pair of blocks, the
    row, and the needed capacity (0: complete). The rows of a block are transposed, so that a vector
    instruction compares several of them. Each total is summed in the order of the columns.
    """
    dims = q_y.shape[1]
    n = 0
    for job in range(state[0], len(jobs)):
        q_first, q_stop, d_first, d_stop, kind = jobs[job]
        rows = block if kind != TRIANGLE else 1
        for a in range(-(-(q_stop - q_first) // rows)):
            begin = q_first + a * rows
            end = min(begin + rows, q_stop)
            number = -(-(d_stop - d_first) // block)
            first = d_first
            if kind == ROTATION:
                number = partners(q_stop - q_first, block, a)
            elif kind == TRIANGLE:
                first = begin + 1
                number = -(-(d_stop - first) // block)
            for step in range(number):
                unit = a * (-(-(d_stop - d_first) // block) + 1) + step
                if unit < state[1]:
                    continue
                at = first + step * block
                if kind == ROTATION:
                    at = d_first + (a + step) % (-(-(d_stop - d_first) // block)) * block
                width = min(block, d_stop - at)
                for j in range(width):
                    for k in range(dims):
                        staged[k, j] = d_y[at + j, k]
                for p in range(max(begin, state[2]), end):
                    if not counting and n + width > cap:
                        state[0], state[1], state[2], state[ROOM] = job, unit, p, width
                        return n
                    totals[:] = 0.0
                    for k in range(dims):
                        x = q_y[p, k]
                        for j in range(width):
                            totals[j] = add_term(totals[j], x - staged[k, j], norm)
                    own = q_places[p]
                    # a block is compared with itself in the first step
                    first_lane = p - at + 1 if kind == ROTATION and step == 0 else 0
                    for j in range(first_lane, width):
                        if totals[j] > threshold:
                            continue
                        other = at + j
                        if counting:
                            q_counts[other if is_self_join and other < own else own] += 1
                            d_counts[own if is_self_join and other < own else other] += 1
                        else:
                            one, two = q_names[own], d_names[other]
                            if is_self_join and two < one:
                                one, two = two, one
                            left[n], right[n] = one, two
                            n += 1
                state[2] = 0
        state[1] = 0
    state[ROOM] = 0
    return n


@device_function
def total_to(row: Array, center: Array, before: float, scale: float, norm: Kind) -> float:
    """Return the total between a row and a center, in the units of windows."""
    total = 0.0
    for k in range(row.size):
        total = add_term(total, (row[k] * before - center[k] * before) * scale, norm)
    return total


@kernel
def nearest(x: Array, centers: Array, before: float, scale: float, norm: Kind, labels: Array,
            totals: Array) -> None:  # fmt: skip
    """Fill in the nearest center of each row (the first of equally near centers), and the total to it."""
    for p in range(len(x)):
        label, min_total = 0, np.inf
        for c in range(len(centers)):
            total = total_to(x[p], centers[c], before, scale, norm)
            if total < min_total:
                label, min_total = c, total
        labels[p], totals[p] = label, min_total


@kernel
def near(y: Array, totals: Array, starts: Array, centers: Array, j: int, last: int, before: float,
         scale: float, gap: float, slack: float, tiny: float, root: float, norm: Kind,
         out: Array) -> int:  # fmt: skip
    """Fill `out` with rows within a window of the border of cluster j; return their number.

    Only clusters before `last`, except j, are searched. `y` is sorted by cluster, with boundaries `starts`.
    `totals`: totals between rows and their own centers. `gap`: width of the window. `root`: exponent that
    converts totals to distances, or 0 for squares. NaN counts as within the window.
    """
    n = 0
    for i in range(last):
        if i == j or starts[i] == starts[i + 1]:
            continue
        apart = np.sqrt(total_to(centers[i], centers[j], before, scale, norm)) * (1.0 + slack) + tiny
        for p in range(starts[i], starts[i + 1]):
            other, own = total_to(y[p], centers[j], before, scale, norm), totals[p]
            if root == 0.0:
                limit = 2.0 * gap * apart + 3.0 * slack * (other + own) + 4.0 * slack * gap * gap + tiny
            else:
                other, own = other**root, own**root
                limit = 2.0 * gap + 3.0 * slack * (other + own) + 4.0 * slack * gap + tiny
            if not other - own > limit:
                out[n] = p
                n += 1
    return n


CANDIDATES, COMPARISONS, PAIRS = range(3)
"""Counters: rows in intervals, compared rows, pairs."""

SUM_STEP = 8
"""Terms to sum before the sum is compared with the threshold."""


@kernel
def make_keys(x: Array, columns: Array, low: Array, extent: float, scale: float, shift: float, bits: int,
              corner: float, out: Array, cells: Array) -> None:  # fmt: skip
    """Fill `out` (n, words), uint64, with the keys of points, or of corners of their boxes.

    `corner`: 0 for the points; positive or negative for the upper or lower corners at that distance. `cells`:
    scratch with one entry per column.
    """
    k = columns.size
    limit = 2.0**bits - 1.0
    half = 2.0 ** (bits - 1)
    one = np.uint64(1)
    for i in range(len(x)):
        for j in range(k):
            value = x[i, columns[j]] + corner
            cell = ((value * scale - low[j]) / extent + shift) * half
            cells[j] = np.int64(min(max(cell, 0.0), limit))
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
    """Return whether a key is less than another."""
    for w in range(one.size):
        if one[w] != other[w]:
            return one[w] < other[w]
    return False


@kernel
def bounds(keys: Array, low: Array, high: Array, starts: Array, stops: Array) -> None:
    """Fill in the range of ascending keys from `low` to `high` of each query."""
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
    """Keep the shorter interval of each query: of this list, or of the best list so far."""
    for i in range(starts.size):
        if best_list[i] < 0 or stops[i] - starts[i] < best_stop[i] - best_start[i]:
            best_start[i], best_stop[i], best_list[i] = starts[i], stops[i], number


@kernel
def walk(queries: Array, starts: Array, stops: Array, listed: Array, later: bool, q_y: Array, q_names: Array,
         d_y: Array, d_names: Array, in_order: bool, threshold: float, norm: Kind, is_self_join: bool,
         left: Array, right: Array, cap: int, counting: bool, q_counts: Array, d_counts: Array, state: Array,
         counters: Array) -> int:  # fmt: skip
    """Write pairs of names to `left` and `right`, or count pairs per position; return the pairs written.

    `queries`: positions of the queries. `listed`: positions of the rows of a list, which each query compares
    from `starts` to `stops`. `later`: compare only the rows after the query's own. `in_order`: whether `d_y`
    is in the order of the list. The kernel stops when `cap` pairs are written. Then `state` has the query,
    its place, and 1 (0: complete).

    Terms are not negative and rounding is monotone, so a partial sum beyond the threshold decides like the
    full sum.
    """
    dims = q_y.shape[1]
    n = 0
    for s in range(state[0], queries.size):
        p = np.int64(queries[s])
        for j in range(max(starts[p], state[1]), stops[p]):
            other = np.int64(listed[j])
            counters[CANDIDATES] += 1
            if later and other <= p:
                continue
            counters[COMPARISONS] += 1
            row = j if in_order else other
            total, k = 0.0, 0
            while k < dims:
                for m in range(k, min(k + SUM_STEP, dims)):
                    total = add_term(total, q_y[p, m] - d_y[row, m], norm)
                k += SUM_STEP
                if total > threshold:
                    break
            if total > threshold:
                continue
            if counting:
                q_counts[other if is_self_join and other < p else p] += 1
                d_counts[p if is_self_join and other < p else other] += 1
            elif n == cap:
                counters[CANDIDATES] -= 1
                counters[COMPARISONS] -= 1
                state[0], state[1], state[2] = s, j, 1
                return n
            else:
                one, two = q_names[p], d_names[other]
                if is_self_join and two < one:
                    one, two = two, one
                left[n], right[n] = one, two
                n += 1
            counters[PAIRS] += 1
        state[1] = 0
    state[2] = 0
    return n


@kernel
def look(queries: Array, firsts: Array, lasts: Array, listed: Array, q_y: Array, q_names: Array, rows: Array,
         d_y: Array, d_names: Array, is_self_join: bool, bound: float, norm: Kind, best_d2: Array,
         best_name: Array, new_d2: Array, new_name: Array) -> int:  # fmt: skip
    """Improve the neighbors of queries by the rows `firsts` to `lasts` of a list; return the rows compared.

    `queries`: positions of the queries. `listed`: positions of the list's rows. `rows`: row of each query in
    the arrays of neighbors. `new_d2`, `new_name` (1,): scratch. Known neighbors are skipped, because a row is
    in several lists.

    Terms are not negative and rounding is monotone, so a partial sum beyond the worst neighbor decides like
    the full sum.
    """
    dims, k, looked = q_y.shape[1], best_d2.shape[1], 0
    for s in range(queries.size):
        p = np.int64(queries[s])
        row, name = np.int64(rows[p]), q_names[p]
        for j in range(firsts[p], lasts[p]):
            place = np.int64(listed[j])
            other = d_names[place]
            if is_self_join and other == name:
                continue
            looked += 1
            limit = min(bound, best_d2[row, k - 1])
            total, m = 0.0, 0
            while m < dims:
                for c in range(m, min(m + SUM_STEP, dims)):
                    total = add_term(total, q_y[p, c] - d_y[place, c], norm)
                m += SUM_STEP
                if total > limit:
                    break
            if total > limit or not worse(best_d2[row, k - 1], best_name[row, k - 1], total, other):
                continue
            known = False
            for n in range(k):
                if best_name[row, n] == other:
                    known = True
                    break
            if not known:
                new_d2[0], new_name[0] = total, other
                take_in(best_d2, best_name, row, new_d2, new_name, 1)
    return looked
