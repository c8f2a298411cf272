"""Join blocks of sets on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.engine.compat import tally
from dask_simjoin.engine.gpu.load import NOWHERE
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.gpu import verify
from dask_simjoin.sets.gpu.candidates import (
    CommonTokens,
    Entries,
    GpuSetMatches,
    HostFilter,
    Prefixes,
    candidates,
    chunks,
    expanded,
    groups_with_themselves,
    prefixes,
)
from dask_simjoin.sets.gpu.launches import (
    Operands,
    SetCountSink,
    SetPairCollector,
    SetPairCounter,
    SetPairSink,
    batch_capacity,
)
from dask_simjoin.sets.gpu.verify import (
    Bits,
    GroupedSets,
    accept,
    admissible_pairs,
    flat,
    verify_flat,
    verify_grouped,
)
from dask_simjoin.sets.methods import (
    AUTO,
    METHODS,
    AllPairs,
    Bitmap,
    Filtered,
    GroupJoin,
    SetMethod,
)
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.token_ids import SetBlock, SetCounters, SetPairs
from dask_simjoin.sizes import ENTRY_BYTES, SPARE_BYTES

PAIR_SECONDS, TOKEN_SECONDS = 4e-12, 34e-12
"""Measured seconds on an H100: to compare two bitmaps, and to handle a common token of
prefixes.

Every method takes 2.5 ms in addition (benchmarks/results/gpu-sets).
"""


def options_for(join: Operands, method: str | SetMethod) -> SetMethod:
    """Return the options of a method. "auto" chooses bitmaps or an index, whichever is
    estimated to be faster.
    """
    if not isinstance(method, str):
        return method
    if method != AUTO:
        return METHODS[method]
    pairs = admissible_pairs(join)
    # choosing takes about a millisecond
    dense = (
        pairs * PAIR_SECONDS < 0.001
        or pairs * PAIR_SECONDS < _common_tokens(join, pairs) * TOKEN_SECONDS
    )
    return METHODS["bitmap" if dense else "ppjoin"]


def _common_tokens(join: Operands, pairs: int) -> float:
    """Estimate how many common tokens prefixes have, as if the frequencies of tokens
    did not depend on set sizes.
    """
    lengths = prefixes(join, groups=False)
    left, right = (
        _frequencies(Entries.of(side, each))
        for side, each in ((join.left, lengths.left), (join.right, lengths.right))
    )
    return float((left * right).sum()) * pairs / (len(join.left) * len(join.right))


def _frequencies(entries: Entries) -> Array:
    # if there are more tokens, several of them share a counter
    counters = 2**22
    tokens = (entries.keys >> 32).astype(cupy.int64) & (counters - 1)
    return tally(tokens, counters).astype(cupy.float64)


NO_BITS = Bits(0, NOWHERE, NOWHERE)

GROUP_PARTS = 1
"""With groups, this many parts precede all others. This one part pairs the members of
each group.
"""


class SearchProgress(NamedTuple):
    """How far a search has come after one of its parts."""

    # index entries read so far; or without an index, pairs of admissible sizes compared
    # so far
    listed: int
    candidates: int  # candidates compared so far
    next: int | None  # the next part; None: the search is complete


class GpuSetSearch:
    """A search by one method. It passes matching pairs to a sink.

    `capacity`: maximum number of candidates in a part; None: as the options of the
    method say.
    """

    def __init__(
        self,
        join: Operands,
        method: SetMethod,
        sink: SetPairSink,
        capacity: int | None = None,
    ) -> None:
        self._join, self._method, self._sink, self._compared = join, method, sink, 0
        self._capacity = (
            batch_capacity(method.chunk_bytes) if capacity is None else capacity
        )

    def parts(self, start: int = 0) -> Iterator[SearchProgress]:
        """Run the parts of the search from part `start` on. Yield the progress after
        each part.
        """
        if isinstance(self._method, Bitmap):
            return self._by_bitmaps(self._method, start)
        assert isinstance(self._method, Filtered)
        lengths = prefixes(self._join, groups=isinstance(self._method, GroupJoin))
        by = self._by_index if self._method.filter == "gpu" else self._by_chunks
        return by(self._method, lengths, start)

    def _by_bitmaps(self, method: Bitmap, start: int) -> Iterator[SearchProgress]:
        listed, bits = (
            verify.admissible_pairs(self._join),
            Bits.of(self._join, method.words),
        )
        for part in verify.candidates(
            self._join, bits, method.block, self._capacity, start
        ):
            self._verify(part.pairs)
            yield SearchProgress(listed, self._compared, part.next)

    def _by_index(
        self, method: Filtered, lengths: Prefixes, start: int
    ) -> Iterator[SearchProgress]:
        join, grouped = self._join, isinstance(method, GroupJoin)
        met, bits = CommonTokens.of(join, lengths), self._bits()
        if grouped and start == 0:
            self._pair_members(lengths, groups_with_themselves(join, lengths), bits)
            yield SearchProgress(0, self._compared, GROUP_PARTS if met.number else None)
        first = max(start - GROUP_PARTS, 0) if grouped else start
        given = join, met, NO_BITS if grouped else bits, self._capacity, first
        for part in candidates(*given, positional=not isinstance(method, AllPairs)):
            if grouped:
                self._pair_members(lengths, part.pairs, bits)
            else:
                self._verify(part.pairs)
            yield SearchProgress(
                met.number, self._compared, _after_groups(part.next, grouped)
            )

    def _by_chunks(
        self, method: Filtered, lengths: Prefixes, start: int
    ) -> Iterator[SearchProgress]:
        join, grouped = self._join, isinstance(method, GroupJoin)
        split = isinstance(method, GroupJoin) and method.members == "cpu"
        bits = self._bits() if grouped and not split else NO_BITS
        first = max(start - GROUP_PARTS, 0) if grouped else start
        positional = not isinstance(method, AllPairs)
        filters = HostFilter(join, lengths, first, positional=positional, members=split)
        if grouped and start == 0:
            own = groups_with_themselves(join, lengths)
            if split:
                self._accept(
                    filters.match_members(
                        own[:, 0].get(), np.arange(len(own) + 1), own[:, 1].get()
                    )
                )
            else:
                self._pair_members(lengths, own, bits)
            yield SearchProgress(0, self._compared, GROUP_PARTS)
        capacity = min(
            self._capacity, (method.chunk_bytes or SPARE_BYTES) // ENTRY_BYTES
        )
        for chunk in chunks(filters, len(join.left), max(1, capacity)):
            if grouped and not split:
                self._pair_members(lengths, flat(chunk.found), bits)
            else:
                self._verify_grouped(chunk.found)
            if chunk.matches:
                self._accept(chunk.matches)
            if chunk.ends:
                yield SearchProgress(
                    filters.listed, self._compared, _after_groups(chunk.next, grouped)
                )

    def _bits(self) -> Bits:
        return (
            NO_BITS
            if self._method.words == 0
            else Bits.of(self._join, self._method.words)
        )

    def _pair_members(self, lengths: Prefixes, pairs: Array, bits: Bits) -> None:
        for part in expanded(self._join, lengths, pairs, bits, self._capacity):
            self._verify(part.pairs)

    def _verify(self, pairs: Array) -> None:
        verify_flat(
            self._join, pairs, self._method.verify, self._method.block, self._sink
        )
        self._compared += len(pairs)

    def _verify_grouped(self, some: GroupedSets) -> None:
        verify_grouped(
            self._join, some, self._method.verify, self._method.block, self._sink
        )
        self._compared += len(some.candidates)

    def _accept(self, matches: GpuSetMatches) -> None:
        accept(cupy.asarray(matches.pairs), cupy.asarray(matches.overlaps), self._sink)
        self._compared += matches.compared


def _after_groups(following: int | None, grouped: bool) -> int | None:
    return following + GROUP_PARTS if grouped and following is not None else following


class GpuSetJoiner:
    """Joins sets on a GPU: see `SetJoiner`. A search consists of parts, such as batches
    of candidates.
    """

    def pairs(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
        *,
        limit: int | None = None,
        start: int = 0,
    ) -> SetPairs:
        """Return the pairs of sets that the parts from `start` on find.

        `limit`: stop after the part that reaches this many pairs. To continue, pass
        `SetPairs.next` as `start`. None: no limit.
        """
        sink, following = SetPairCollector(), None
        if _has_sets(left, right):
            join = Operands.of(left, right, rule)
            for done in GpuSetSearch(
                join, options_for(join, method), sink, limit
            ).parts(start):
                following = done.next
                if limit is not None and sink.pairs >= limit:
                    break
        return SetPairs(*sink.columns(), following)

    def batches(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
    ) -> Iterator[SetPairs]:
        at: int | None = 0
        while at is not None:
            some = self.pairs(left, right, rule, method, limit=2**22, start=at)
            at = some.next
            yield some

    def count(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
        threads: int = 1,
    ) -> int:
        return self._counted(left, right, rule, method)[1]

    def counts(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
        threads: int = 1,
    ) -> tuple[Array, Array]:
        if not _has_sets(left, right):
            found = cupy.zeros(len(left["weights"]), cupy.int64)
            return found, found if right is None else cupy.zeros(
                len(right["weights"]), cupy.int64
            )
        join = Operands.of(left, right, rule)
        sink = SetCountSink(join)
        for _ in GpuSetSearch(join, options_for(join, method), sink).parts():
            pass
        return sink.counts

    def counters(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
    ) -> SetCounters:
        done, _, pairs = self._counted(left, right, rule, method)
        return SetCounters(done.listed, done.candidates, done.candidates, pairs)

    def _counted(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
    ) -> tuple[SearchProgress, int, int]:
        """Return the progress at the end, the number of matching pairs of rows, and the
        number of matching pairs of sets.
        """
        done = SearchProgress(0, 0, None)
        if not _has_sets(left, right):
            return done, 0, 0
        join = Operands.of(left, right, rule)
        sink = SetPairCounter(join)
        for part in GpuSetSearch(join, options_for(join, method), sink).parts():
            done = part
        pairs, rows = sink.totals()
        return done, rows, pairs


JOINER = GpuSetJoiner()


def _has_sets(left: SetBlock, right: SetBlock | None) -> bool:
    return len(left["weights"]) > 0 and (right is None or len(right["weights"]) > 0)
