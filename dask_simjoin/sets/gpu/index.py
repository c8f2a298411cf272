"""Find candidates with an index of prefixes built on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.gpu.launches import THREADS, Flat, Operands, SetOperand, batches, blocks, over
from dask_simjoin.sets.gpu.verify import Bits


class Prefixes(NamedTuple):
    """Lengths of the left sets' prefixes, which are looked up, and of the right sets' prefixes, in the index.

    All sets of a group have length 0, except the first set.
    """

    left: Array
    right: Array
    """(n,), int32."""
    left_members: Array = None
    right_members: Array = None
    """(n,), int32: for the first set of a group, the number of its sets, else 0; None: there are no
    groups."""


def prefixes(join: Operands, *, groups: bool) -> Prefixes:
    """Choose the lengths of prefixes, so that the prefixes of matching sets have a common token.

    In a self-join a set looks up sets that are at least as large, so a shorter prefix is enough.  With groups
    both prefixes of a set have the same length, since members of a group must share both.
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


def _lengths(side: SetOperand, needs: list[int]) -> Array:
    """Return the lengths of prefixes (n,), from the overlap that each size needs."""
    lengths = side.distinct - np.minimum(np.array(needs, np.int64), side.distinct + 1) + 1
    return side.spread(np.clip(lengths, 0, side.distinct))


def _grouped(side: SetOperand, lengths: Array) -> tuple[Array, Array]:
    """Return the prefix lengths, 0 for all but the first set of each group, and the sizes of groups.

    A group is adjacent sets with equal sizes and prefixes.
    """
    first = cupy.empty(len(side), cupy.bool_)
    over(len(side), "groups", "find_firsts", (*side.arguments, lengths, np.int64(len(side)), first))
    places = cupy.flatnonzero(first)
    members = cupy.zeros(len(side), cupy.int32)
    members[places] = cupy.diff(cupy.concatenate([places, cupy.full(1, len(side), places.dtype)]))
    return lengths * first, members


PAIRS = 1 << 26
"""Largest number of pairs of members in the first batch."""


def own_pairs(join: Operands, lengths: Prefixes) -> Array:
    """Return each group of several members, paired with itself (groups, 2); no pair for two sides."""
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

    def find(first: int, number: int, out: Array, counter: Array) -> None:
        arguments = (
            *join.sides, pairs, work, np.int64(groups), lengths.right_members, np.int64(first),
            np.int64(number), np.int32(join.same), bits.left, bits.right, out, np.uint64(len(out)), counter,
        )  # fmt: skip
        over(number, "groups", "expand", arguments, WORDS=bits.words, **join.constants)

    return batches(find, int(work[-1]), 0, min(PAIRS, 4 * room), room)


EACH_THREAD = 8
"""Common tokens per thread."""

MEETINGS = 1 << 26
"""Largest number of common tokens in the first batch."""


@dataclass(frozen=True)
class Entries:
    """The tokens of the prefixes of a side."""

    keys: Array
    """(entries,), uint64: the token in the upper 32 bits, and the set in the lower ones."""
    places: Array
    """(entries,), int32: positions of the tokens in their sets."""

    @classmethod
    def of(cls, side: SetOperand, lengths: Array) -> Entries:
        """List the first `lengths` (n,) tokens of sets."""
        starts = cupy.zeros(len(side) + 1, cupy.int64)
        cupy.cumsum(lengths.astype(cupy.int64), out=starts[1:])
        entries = int(starts[-1])
        keys, places = cupy.empty(entries, cupy.uint64), cupy.empty(entries, cupy.int32)
        arguments = (*side.arguments, starts, np.int64(len(side)), np.int64(entries), keys, places)
        over(entries, "index", "list_entries", arguments, **ANY)
        return cls(keys, places)

    def sorted(self) -> Entries:
        """Sort them by token, and then by set."""
        order = cupy.argsort(self.keys)
        return Entries(self.keys[order], self.places[order])


ANY = {"WORDS": 0, "POSITIONAL": 0, "EACH_THREAD": EACH_THREAD}
"""Constants of the program, for kernels that do not use them."""


@dataclass(frozen=True)
class Meetings:
    """Common tokens of the prefixes of two sides."""

    probes: Entries
    index: Entries
    """Entries of the left side, and of the right side, sorted."""
    first: Array
    """(probes,), int64: for each probe, its first entry of the index with the same token and an admissible
    size."""
    work: Array
    """(probes + 1,), int64: common tokens before each entry, and the total."""
    number: int
    """Total number of common tokens."""

    @classmethod
    def of(cls, join: Operands, lengths: Prefixes) -> Meetings:
        """Look up the prefixes of left sets in an index of the prefixes of right sets."""
        probes = Entries.of(join.left, lengths.left)
        index = Entries.of(join.right, lengths.right).sorted()
        number = len(probes.keys)
        first, block_pairs = cupy.empty(number, cupy.int64), cupy.empty(number, cupy.int64)
        arguments = (
            probes.keys, np.int64(number), index.keys, np.int64(len(index.keys)), join.low, join.high, first,
            block_pairs,
        )  # fmt: skip
        over(number, "index", "look_up", arguments, **ANY)
        work = cupy.zeros(number + 1, cupy.int64)
        cupy.cumsum(block_pairs, out=work[1:])
        return cls(probes, index, first, work, int(work[-1]))


def candidates(join: Operands, met: Meetings, bits: Bits, room: int, start: int, *,
               positional: bool) -> Iterator[Flat]:  # fmt: skip
    """Find candidates, starting at a common token."""
    constants = join.constants | ANY | {"WORDS": bits.words, "POSITIONAL": int(positional)}

    def find(first: int, number: int, out: Array, counter: Array) -> None:
        arguments = (
            *join.sides, met.probes.keys, met.probes.places, met.first, met.work, np.int64(len(met.first)),
            met.index.keys, met.index.places, np.int64(first), np.int64(number), bits.left, bits.right, out,
            np.uint64(len(out)), counter,
        )  # fmt: skip
        blocks(-(-number // (THREADS * EACH_THREAD)), THREADS, "index", "meet", arguments, **constants)

    return batches(find, met.number, start, min(MEETINGS, 4 * room), room)
