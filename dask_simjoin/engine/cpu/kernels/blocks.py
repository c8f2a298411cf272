"""Nested loops over blocks of rows, float64 throughout: see `dask_simjoin.engine.nested`."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array

ACROSS, ROTATION, TRIANGLE = range(3)
"""What a job is: rows of one range with all of another; or of one range with itself, by either schedule."""

ROOM = 3
"""Where `state` holds how much room is needed."""


@device_function
def partners(size: int, block: int, unit: int) -> int:
    """Return how many blocks a block of a range meets in a rotation, itself included.

    Two blocks meet in the one from which the other is less than half the way round; of an even number, those
    that are just half the way apart meet in the first of the two.
    """
    number = -(-size // block)
    half = number // 2
    return half + 1 if number % 2 or unit < half else half


def scratch(dims: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrays that `join` works with: a block of rows, side by side, and their totals."""
    return np.empty((dims, block)), np.empty(block)


@kernel
def join(jobs: Array, q_y: Array, q_places: Array, q_names: Array, d_y: Array, d_names: Array,
         block: int, threshold: float, norm: Kind, same: bool, left: Array, right: Array, cap: int,
         counting: bool, q_counts: Array, d_counts: Array, state: Array, staged: Array,
         totals: Array) -> int:  # fmt: skip
    """Write pairs of names to `left` and `right`, or count the pairs of places; the number of pairs written.

    `jobs` (m, 5): the first of some rows of `q_y` and the one behind the last, the same of `d_y`, and what to
    do with them; ROTATION and TRIANGLE: the same range twice.  `q_places`: of the rows of `q_y`, among those
    of `d_y` if `same`.  Stops where a row might not fit into `cap`, leaving in `state` the job, the unit, the
    row, and how much room that needs (0: it is complete).  `staged`, `totals`: see `scratch`.

    What a row is compared with is put side by side, a column after the other, so that as many as a vector
    holds are compared at once; each total is summed in the order of the columns.
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
                    # a block with itself: each two of its rows meet in the first
                    least = p - at + 1 if kind == ROTATION and step == 0 else 0
                    for j in range(least, width):
                        if totals[j] > threshold:
                            continue
                        other = at + j
                        if counting:
                            q_counts[other if same and other < own else own] += 1
                            d_counts[own if same and other < own else other] += 1
                        else:
                            one, two = q_names[own], d_names[other]
                            if same and two < one:
                                one, two = two, one
                            left[n], right[n] = one, two
                            n += 1
                state[2] = 0
        state[1] = 0
    state[ROOM] = 0
    return n
