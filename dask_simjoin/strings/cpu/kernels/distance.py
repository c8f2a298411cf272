"""Edit distance of two strings of codes, as far as a limit.

Ukkonen (1985) and Landau and Vishkin (1989): for e = 0, 1, ... edits, find how far each diagonal of the table
of prefixes is reached.  A cell is reached by a substitution, an insertion or a
deletion from e - 1 edits, then by equal codes.  Only diagonals that may still reach the end are visited.  So
the work is about limit**2 plus the number of equal codes, for strings of any length and any alphabet.

A transposition of adjacent codes starts where its diagonal was reached with e - 1 edits: an earlier start
gets no farther than a substitution does.
"""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import device_function
from dask_simjoin.metrics.norms import Array

NOWHERE = -(1 << 40)
"""A diagonal that is not reached."""


@device_function
def distance_within(
    one: Array, a: int, n: int, other: Array, b: int, m: int, limit: int, swaps: bool, reached: Array
) -> int:
    """Return the distance of `one[a : a + n]` and `other[b : b + m]`, or limit + 1 if it is larger.

    `swaps`: a transposition of adjacent codes is one edit.  `reached`: scratch (2 * limit + 5,) or longer.
    """
    end, middle = m - n, limit + 2
    if abs(end) > limit:
        return limit + 1
    reached[middle] = -1
    reached[middle - 1] = reached[middle + 1] = NOWHERE
    for e in range(limit + 1):
        if e:
            reached[middle - e] = reached[middle + e] = NOWHERE
            reached[middle - e - 1] = reached[middle + e + 1] = NOWHERE
        low, high = max(-e, end - (limit - e)), min(e, end + (limit - e))
        before = reached[middle + low - 1]
        for d in range(low, high + 1):
            own = reached[middle + d]
            far = max(own + 1, before, reached[middle + d + 1] + 1)
            if (
                swaps and e and own >= 0 and own + 1 < n and own + d + 1 < m and own + d >= 0
                and one[a + own] == other[b + own + d + 1] and one[a + own + 1] == other[b + own + d]
            ):  # fmt: skip
                far = max(far, own + 2)
            far = min(far, n, m - d)
            while far < n and far + d < m and one[a + far] == other[b + far + d]:
                far += 1
            if d == end and far == n:
                return e
            before = own
            reached[middle + d] = far
    return limit + 1
