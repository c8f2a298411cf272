"""What each method does on a GPU: candidates are found part by part, and verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu import bitmaps, chunks, groups, index
from dask_simjoin.sets.algorithms.gpu.batches import room_for
from dask_simjoin.sets.algorithms.gpu.bitmaps import Bits
from dask_simjoin.sets.algorithms.gpu.chunks import HostFilter, Matches
from dask_simjoin.sets.algorithms.gpu.operands import Operands
from dask_simjoin.sets.algorithms.gpu.prefixes import Prefixes, prefixes
from dask_simjoin.sets.algorithms.gpu.sinks import NOWHERE, Sink
from dask_simjoin.sets.algorithms.gpu.verify import Grouped, accept, flat, verify_flat, verify_grouped
from dask_simjoin.sets.methods import AllPairs, Bitmap, GroupJoin, SetMethod
from dask_simjoin.sets.verification import Filtered

NO_BITS = Bits(0, NOWHERE, NOWHERE)

OWN = 1
"""The part of a search by groups that pairs each group's members with each other comes before all others."""


class Done(NamedTuple):
    """A part of a search.

    Attributes
    ----------
    listed : int
        Entries of the index, or pairs of sets of admissible sizes, that were looked at so far.
    candidates : int
        That were verified so far.
    next : int or None
        Where to go on; None: this is all.
    """

    listed: int
    candidates: int
    next: int | None


class Search:
    """A search by one method.

    Parameters
    ----------
    join : Operands
    method : SetMethod
    sink : Sink
        What takes the pairs that match.
    room : int or None
        Candidates of a part at most; None: as the method says.
    """

    def __init__(self, join: Operands, method: SetMethod, sink: Sink, room: int | None = None) -> None:
        self._join, self._method, self._sink, self._verified = join, method, sink, 0
        self._room = room_for(method.chunk_bytes) if room is None else room

    def parts(self, start: int = 0) -> Iterator[Done]:
        """Go on from where a part ended, or begin."""
        if isinstance(self._method, Bitmap):
            return self._by_bitmaps(self._method, start)
        assert isinstance(self._method, Filtered)
        lengths = prefixes(self._join, groups=isinstance(self._method, GroupJoin))
        by = self._by_index if self._method.filter == "gpu" else self._by_chunks
        return by(self._method, lengths, start)

    def _by_bitmaps(self, method: Bitmap, start: int) -> Iterator[Done]:
        listed, bits = bitmaps.listed(self._join), Bits.of(self._join, method.words)
        for part in bitmaps.candidates(self._join, bits, method.block, self._room, start):
            self._verify(part.pairs)
            yield Done(listed, self._verified, part.next)

    def _by_index(self, method: Filtered, lengths: Prefixes, start: int) -> Iterator[Done]:
        join, grouped = self._join, isinstance(method, GroupJoin)
        met, bits = index.Meetings.of(join, lengths), Bits.of(join, method.words)
        if grouped and start == 0:
            self._pair_members(lengths, groups.own_pairs(join, lengths), bits)
            yield Done(0, self._verified, OWN if met.number else None)
        first = max(start - OWN, 0) if grouped else start
        given = join, met, NO_BITS if grouped else bits, self._room, first
        for part in index.candidates(*given, positional=not isinstance(method, AllPairs)):
            if grouped:
                self._pair_members(lengths, part.pairs, bits)
            else:
                self._verify(part.pairs)
            yield Done(met.number, self._verified, _moved(part.next, grouped))

    def _by_chunks(self, method: Filtered, lengths: Prefixes, start: int) -> Iterator[Done]:
        join, grouped = self._join, isinstance(method, GroupJoin)
        split = isinstance(method, GroupJoin) and method.members == "cpu"
        bits = Bits.of(join, method.words) if grouped and not split else NO_BITS
        first = max(start - OWN, 0) if grouped else start
        positional = not isinstance(method, AllPairs)
        filters = HostFilter(join, lengths, first, positional=positional, members=split)
        if grouped and start == 0:
            own = groups.own_pairs(join, lengths)
            if split:
                self._accept(filters.match_members(own[:, 0].get(), np.arange(len(own) + 1), own[:, 1].get()))
            else:
                self._pair_members(lengths, own, bits)
            yield Done(0, self._verified, OWN)
        room = min(self._room, (method.chunk_bytes or chunks.CHUNK_BYTES) // chunks.CANDIDATE_BYTES)
        for chunk in chunks.chunks(filters, len(join.left), max(1, room)):
            if grouped and not split:
                self._pair_members(lengths, flat(chunk.found), bits)
            else:
                self._verify_grouped(chunk.found)
            if chunk.matches:
                self._accept(chunk.matches)
            if chunk.ends:
                yield Done(filters.listed, self._verified, _moved(chunk.next, grouped))

    def _pair_members(self, lengths: Prefixes, pairs: Array, bits: Bits) -> None:
        for part in groups.expanded(self._join, lengths, pairs, bits, self._room):
            self._verify(part.pairs)

    def _verify(self, pairs: Array) -> None:
        verify_flat(self._join, pairs, self._method.verify, self._method.block, self._sink)
        self._verified += len(pairs)

    def _verify_grouped(self, some: Grouped) -> None:
        verify_grouped(self._join, some, self._method.verify, self._method.block, self._sink)
        self._verified += len(some.candidates)

    def _accept(self, matches: Matches) -> None:
        accept(cupy.asarray(matches.pairs), cupy.asarray(matches.overlaps), self._sink)
        self._verified += matches.compared


def _moved(following: int | None, grouped: bool) -> int | None:
    return following + OWN if grouped and following is not None else following
