"""The k best neighbours met so far: a sorted list for small k, a heap for large k.

Neighbours are ordered by (d2, name).  A free place is (inf, -1), and it comes last: names are compared
as unsigned numbers, of which -1 is the largest.  So a neighbour at d2 = inf takes a free place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

SORTED = 32
"""Up to here neighbours are kept sorted, with the worst one last; beyond, in a heap, the worst one first."""


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def worst_place(k: int) -> int:
    """Where the worst of `k` neighbours is kept."""
    return k - 1 if k <= SORTED else 0


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _worse(d2: float, name: int, other_d2: float, other: int) -> bool:
    """Whether (d2, name) comes after the other."""
    return bool(d2 > other_d2 or (d2 == other_d2 and np.uint64(name) > np.uint64(other)))


@njit(nogil=True, cache=True, error_model="numpy")
def _sift(near: Any, names: Any, size: int, d2: float, name: int, at: int) -> None:
    """Put a neighbour into a heap of `size` whose place `at` is free, at that place or below it."""
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _worse(near[child + 1], names[child + 1], near[child], names[child]):
            child += 1
        if not _worse(near[child], names[child], d2, name):
            break
        near[at], names[at] = near[child], names[child]
        at = child
    near[at], names[at] = d2, name


@njit(nogil=True, cache=True, error_model="numpy")
def offer(near: Any, names: Any, d2: float, name: int) -> bool:
    """Take a neighbour in place of the worst one if it is better; whether it was."""
    k = near.size
    place = worst_place(k)
    if not _worse(near[place], names[place], d2, name):
        return False
    if k > SORTED:
        _sift(near, names, k, d2, name, 0)
        return True
    at = k - 1
    while at > 0 and _worse(near[at - 1], names[at - 1], d2, name):
        near[at], names[at] = near[at - 1], names[at - 1]
        at -= 1
    near[at], names[at] = d2, name
    return True


@njit(nogil=True, cache=True, error_model="numpy")
def take(row_d2: Any, row_names: Any, near: Any, names: Any) -> None:
    """Copy a sorted row to where neighbours are kept."""
    k = near.size
    for at in range(k):
        # from the worst to the best is a heap
        place = at if k <= SORTED else k - 1 - at
        near[place], names[place] = row_d2[at], row_names[at]


@njit(nogil=True, cache=True, error_model="numpy")
def give(near: Any, names: Any, row_d2: Any, row_names: Any) -> None:
    """Copy what is kept to a row, sorted; what was kept is lost."""
    k = near.size
    if k <= SORTED:
        row_d2[:] = near
        row_names[:] = names
        return
    for size in range(k - 1, -1, -1):
        row_d2[size], row_names[size] = near[0], names[0]
        _sift(near, names, size, near[size], names[size], 0)
