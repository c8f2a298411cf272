"""Edit distance of two strings of codes, as far as a limit.

Ukkonen (1985) and Landau and Vishkin (1989): for e = 0, 1, ... edits, find how far each diagonal of the table
of prefixes is reached.  A cell is reached by a substitution, an insertion or a
deletion from e - 1 edits, then by equal codes.  Only diagonals that may still reach the end are visited.  So
the work is about limit**2, and the codes that are equal, for strings of any length and any alphabet.

A transposition of adjacent codes starts where its diagonal was reached with e - 1 edits: an earlier start
gets no farther than a substitution does.
"""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.norms import Array

WORD = 64
"""Codes of the longest string whose cells fit the bits of a word."""

NOWHERE = -(1 << 40)
"""A diagonal that is not reached."""


@device_function
def distance_within(
    one: Array, a: int, n: int, other: Array, b: int, m: int, limit: int, swaps: bool, reached: Array
) -> int:
    """Return the distance of n codes from `a` and m codes from `b`, or limit + 1 if it is larger.

    `swaps`: a transposition of adjacent codes is one edit.  `reached`: at least 2 * limit + 5 numbers.
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


@device_function
def set_matches(tokens: Array, start: int, length: int, matches: Array) -> None:
    """Set bit p of a code's matches if it is code p of a string of at most `WORD` codes."""
    for p in range(length):
        matches[tokens[start + p]] |= 1 << p


@device_function
def clear_matches(tokens: Array, start: int, length: int, matches: Array) -> None:
    """Undo `set_matches`."""
    for p in range(length):
        matches[tokens[start + p]] = 0


@device_function
def distance_by_bits(matches: Array, n: int, other: Array, b: int, m: int, limit: int) -> int:
    """Return the distance of n codes (see `set_matches`) and m codes from `b`, or limit + 1 if it is larger.

    Bits are the differences of adjacent cells of a column of the table of prefixes: Myers (1999), in the form
    of Hyyro (2003), section 3.  Each code of the other string takes one step.
    """
    if n == 0:
        return min(m, limit + 1)
    up, down, last, found = -1, 0, 1 << (n - 1), n
    for p in range(m):
        same = matches[other[b + p]]
        across = (((same & up) + up) ^ up) | same
        more, less = down | ~(across | up), up & across
        if more & last:
            found += 1
        elif less & last:
            found -= 1
        if found - (m - 1 - p) > limit:
            return limit + 1
        before = same | down
        more = (more << 1) | 1
        up = (less << 1) | ~(before | more)
        down = more & before
    return found


@kernel
def distances(one: Array, one_ends: Array, other: Array, other_ends: Array, limits: Array, swaps: bool,
              reached: Array, matches: Array, out: Array) -> None:  # fmt: skip
    """Write the distance of each pair of strings, or its limit + 1 if it is larger.

    `matches`: zeros for each code, to find distances by bits; or empty.
    """
    for k in range(len(out)):
        a, b = one_ends[k], other_ends[k]
        n, m = one_ends[k + 1] - a, other_ends[k + 1] - b
        if len(matches):
            set_matches(one, a, n, matches)
            out[k] = distance_by_bits(matches, n, other, b, m, limits[k])
            clear_matches(one, a, n, matches)
        else:
            out[k] = distance_within(one, a, n, other, b, m, limits[k], swaps, reached)
