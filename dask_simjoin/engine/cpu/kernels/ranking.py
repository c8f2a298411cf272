"""The k best neighbours met so far, as a sorted row that takes in the new ones of a tile at a time.

Neighbours are ordered by (d2, name).  A free place is (inf, -1), and it comes last: names are compared
as unsigned numbers, of which -1 is the largest.  So a neighbour at d2 = inf takes a free place.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source
from dask_simjoin.metrics.types import Array


@inline_source
def worse(d2: float, name: int, other_d2: float, other: int) -> bool:
    """Whether (d2, name) comes after the other."""
    return bool(d2 > other_d2 or (d2 == other_d2 and np.uint64(name) > np.uint64(other)))


@device_function
def take_in(best_d2: Array, best_name: Array, row: int, new_d2: Array, new_name: Array, m: int) -> None:
    """Replace the worst neighbours of a row by the `m` new ones, as far as these are better.

    The new ones come in any order and are sorted in place.  One pass from the back moves what has to
    move: for few new ones that is insertion, for many it is merging.
    """
    k = best_d2.shape[1]
    for n in range(1, m):
        d2, name = new_d2[n], new_name[n]
        at = n
        while at > 0 and worse(new_d2[at - 1], new_name[at - 1], d2, name):
            new_d2[at], new_name[at] = new_d2[at - 1], new_name[at - 1]
            at -= 1
        new_d2[at], new_name[at] = d2, name
    old, new = k - 1, m - 1
    for _ in range(m):  # of k + m neighbours the m worst are dropped
        if old < 0 or (
            new >= 0 and worse(new_d2[new], new_name[new], best_d2[row, old], best_name[row, old])
        ):
            new -= 1
        else:
            old -= 1
    at = k - 1
    while new >= 0:
        if old >= 0 and worse(best_d2[row, old], best_name[row, old], new_d2[new], new_name[new]):
            best_d2[row, at], best_name[row, at] = best_d2[row, old], best_name[row, old]
            old -= 1
        else:
            best_d2[row, at], best_name[row, at] = new_d2[new], new_name[new]
            new -= 1
        at -= 1
