"""Finds candidates by an index of the sets' prefixes, which is built and looked up on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cupy
import numpy as np

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu.batches import Flat, batches
from dask_simjoin.sets.algorithms.gpu.bitmaps import Bits
from dask_simjoin.sets.algorithms.gpu.launch import THREADS, blocks, over
from dask_simjoin.sets.algorithms.gpu.operands import Operands, Side
from dask_simjoin.sets.algorithms.gpu.prefixes import Prefixes

EACH_THREAD = 8
"""Meetings that a thread looks at."""

MEETINGS = 1 << 26
"""Of which the first batch consists."""


@dataclass(frozen=True)
class Entries:
    """The tokens of the prefixes of a side.

    Attributes
    ----------
    keys : array (entries,), uint64
        Token, and set.
    places : array (entries,), int32
        Of the tokens in their sets.
    """

    keys: Array
    places: Array

    @classmethod
    def of(cls, side: Side, lengths: Array) -> Entries:
        """List the first tokens of sets: so many as `lengths` (n,) has."""
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
"""Constants of kernels to which they do not matter."""


@dataclass(frozen=True)
class Meetings:
    """Where the prefixes of two sides have tokens in common.

    Attributes
    ----------
    probes, index : Entries
        Of the left side, and of the right one, sorted.
    first : array (probes,), int64
        Where in the index each entry's meetings begin.
    work : array (probes + 1,), int64
        Meetings before each of them, and all.
    number : int
        Of them all.
    """

    probes: Entries
    index: Entries
    first: Array
    work: Array
    number: int

    @classmethod
    def of(cls, join: Operands, lengths: Prefixes) -> Meetings:
        """Look up the left sets' prefixes in an index of the right sets'."""
        probes = Entries.of(join.left, lengths.left)
        index = Entries.of(join.right, lengths.right).sorted()
        number = len(probes.keys)
        first, meetings = cupy.empty(number, cupy.int64), cupy.empty(number, cupy.int64)
        arguments = (
            probes.keys, np.int64(number), index.keys, np.int64(len(index.keys)), join.low, join.high, first,
            meetings,
        )  # fmt: skip
        over(number, "index", "look_up", arguments, **ANY)
        work = cupy.zeros(number + 1, cupy.int64)
        cupy.cumsum(meetings, out=work[1:])
        return cls(probes, index, first, work, int(work[-1]))


def candidates(join: Operands, met: Meetings, bits: Bits, room: int, start: int, *,
               positional: bool) -> Iterator[Flat]:  # fmt: skip
    """Find candidates from a meeting on."""
    constants = join.constants | ANY | {"WORDS": bits.words, "POSITIONAL": int(positional)}

    def find(first: int, number: int, out: Array, told: Array) -> None:
        arguments = (
            *join.sides, met.probes.keys, met.probes.places, met.first, met.work, np.int64(len(met.first)),
            met.index.keys, met.index.places, np.int64(first), np.int64(number), bits.left, bits.right, out,
            np.uint64(len(out)), told,
        )  # fmt: skip
        blocks(-(-number // (THREADS * EACH_THREAD)), THREADS, "index", "meet", arguments, **constants)

    return batches(find, met.number, start, min(MEETINGS, 4 * room), room)
