"""Pairs the members of groups: candidates of the sets that stand for them become candidates of all."""

from __future__ import annotations

from collections.abc import Iterator

import cupy
import numpy as np

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu.batches import Flat, batches
from dask_simjoin.sets.algorithms.gpu.bitmaps import Bits
from dask_simjoin.sets.algorithms.gpu.launch import over
from dask_simjoin.sets.algorithms.gpu.operands import Operands
from dask_simjoin.sets.algorithms.gpu.prefixes import Prefixes

PAIRS = 1 << 26
"""Pairs of members of which the first batch consists."""


def own_pairs(join: Operands, lengths: Prefixes) -> Array:
    """Return each group with itself (groups, 2), where it has several members; of two sides none."""
    if not join.same:
        return cupy.empty((0, 2), cupy.int32)
    several = cupy.flatnonzero((lengths.left_members > 1) & (lengths.left > 0)).astype(cupy.int32)
    return cupy.ascontiguousarray(cupy.stack([several, several], axis=1))


def expanded(join: Operands, lengths: Prefixes, pairs: Array, bits: Bits, room: int) -> Iterator[Flat]:
    """Pair the members of pairs of groups."""
    groups = len(pairs)
    members, work = cupy.empty(groups, cupy.int64), cupy.zeros(groups + 1, cupy.int64)
    arguments = (pairs, np.int64(groups), lengths.left_members, lengths.right_members, members)
    over(groups, "groups", "count_members", arguments, WORDS=0)
    cupy.cumsum(members, out=work[1:])

    def find(first: int, number: int, out: Array, told: Array) -> None:
        arguments = (
            *join.sides, pairs, work, np.int64(groups), lengths.right_members, np.int64(first),
            np.int64(number), np.int32(join.same), bits.left, bits.right, out, np.uint64(len(out)), told,
        )  # fmt: skip
        over(number, "groups", "expand", arguments, WORDS=bits.words, **join.constants)

    return batches(find, int(work[-1]), 0, min(PAIRS, 4 * room), room)
