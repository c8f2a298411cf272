"""How long the prefixes are that are looked up, and which sets stand for groups of one prefix."""

from __future__ import annotations

from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu.launch import over
from dask_simjoin.sets.algorithms.gpu.operands import Operands, Side


class Prefixes(NamedTuple):
    """How many tokens of each set are looked up, or are in the index: none of sets that others stand for.

    Attributes
    ----------
    left, right : array (n,), int32
    left_members, right_members : array (n,), int32, or None
        How many sets each stands for, from itself on; None: each for itself.
    """

    left: Array
    right: Array
    left_members: Array = None
    right_members: Array = None


def prefixes(join: Operands, *, groups: bool) -> Prefixes:
    """Choose lengths: sets that match have a token in common in prefixes so long.

    Of one side a set meets larger ones, so what it looks up need only be as long as one of its own size asks;
    members of a group have both prefixes in common, so there both are as long.
    """
    rule, one = join.rule, join.left.distinct.tolist()
    shorter = join.same and not groups
    looked_up = _lengths(join.left, [rule.need(a, a) if shorter else rule.smallest(a) for a in one])
    indexed = looked_up
    if shorter or not join.same:
        indexed = _lengths(join.right, [rule.smallest(b) for b in join.right.distinct.tolist()])
    if not groups:
        return Prefixes(looked_up, indexed)
    left, left_members = _grouped(join.left, looked_up)
    right, right_members = (left, left_members) if join.same else _grouped(join.right, indexed)
    return Prefixes(left, right, left_members, right_members)


def _lengths(side: Side, needs: list[int]) -> Array:
    """Return lengths of prefixes (n,), of what sets of each size need."""
    lengths = side.distinct - np.minimum(np.array(needs, np.int64), side.distinct + 1) + 1
    return side.spread(np.clip(lengths, 0, side.distinct))


def _grouped(side: Side, lengths: Array) -> tuple[Array, Array]:
    """Leave a prefix to the first of the sets that have one size and one prefix, which follow each other."""
    first = cupy.empty(len(side), cupy.bool_)
    over(len(side), "groups", "find_firsts", (*side.arguments, lengths, np.int64(len(side)), first))
    places = cupy.flatnonzero(first)
    members = cupy.zeros(len(side), cupy.int32)
    members[places] = cupy.diff(cupy.concatenate([places, cupy.full(1, len(side), places.dtype)]))
    return lengths * first, members
