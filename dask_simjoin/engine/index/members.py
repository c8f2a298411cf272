"""Lists of rows, one behind the other in an array, cut into parts of so many: for NumPy and CuPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.metrics.types import Array, ArrayModule

SIDE = 64
"""Rows of a part: what a block of threads takes at a time."""


class Parts(NamedTuple):
    """Parts of lists, each of rows of one list.

    Attributes
    ----------
    begins, ends : array (parts,), int32
        Where each is in the array of all lists.
    lists : array (parts,), int32
        The list that it is of.
    first : array (lists + 1,), int32
        The first part of each list, and the number of all.
    """

    begins: Array
    ends: Array
    lists: Array
    first: Array


def cut(starts: Array, side: int = SIDE, xp: ArrayModule = np) -> Parts:
    """Cut lists, which begin and end at `starts` (lists + 1, int64), into parts of `side` rows at most."""
    first = xp.zeros(len(starts), xp.int64)
    first[1:] = xp.cumsum(-(-(starts[1:] - starts[:-1]) // side))
    parts = xp.arange(int(first[-1]), dtype=xp.int64)
    lists = xp.searchsorted(first, parts, side="right") - 1
    begins = starts[lists] + (parts - first[lists]) * side
    ends = xp.minimum(begins + side, starts[lists + 1])
    return Parts(*(some.astype(xp.int32) for some in (begins, ends, lists, first)))
