"""Find candidate pairs by an index of prefixes on a GPU. Or find them on the CPU, in
chunks.

The CPU as filter follows Bellas and Gounaris. A separate thread on the host fills a
chunk while the GPU verifies the previous one. The calling thread copies chunks to the
GPU, and reads back the matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_simjoin.engine.gpu.load import THREADS
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.cpu.candidates import (
    FOUND,
    LISTED,
    PROBE,
    WRITTEN,
    build,
    fill,
    pair_members,
)
from dask_simjoin.sets.gpu.launches import (
    Flat,
    Operands,
    SetOperand,
    batches,
    blocks,
    over,
)
from dask_simjoin.sets.gpu.verify import Bits, GroupedSets


class Prefixes(NamedTuple):
    """For each set, the length of its prefix. Left sets are the probes, and right sets
    are in the index.

    If there are groups, only the first set of a group has a prefix. The others have
    length 0.
    """

    left: Array
    right: Array
    """(n,), int32."""
    left_members: Array = None
    right_members: Array = None
    """(n,), int32: for the first set of each group, the size of the group; 0 for other
    sets. None: there are no groups.
    """


def prefixes(join: Operands, *, groups: bool) -> Prefixes:
    """Choose the lengths of prefixes such that the prefixes of any two matching sets
    share a token.

    In a self-join, a probe is compared only with sets of at least its size, so it needs
    a shorter prefix than an indexed set. But groups must be the same for probes and in
    the index. So with groups, both prefixes of a set have the same length.
    """
    rule, one = join.rule, join.left.distinct.tolist()
    shorter = join.is_self_join and not groups
    looked_up = _lengths(
        join.left, [rule.need(a, a) if shorter else rule.smallest(a) for a in one]
    )
    indexed = looked_up
    if shorter or not join.is_self_join:
        indexed = _lengths(
            join.right, [rule.smallest(b) for b in join.right.distinct.tolist()]
        )
    if not groups:
        return Prefixes(looked_up, indexed)
    left, left_members = _grouped(join.left, looked_up)
    right, right_members = (
        (left, left_members) if join.is_self_join else _grouped(join.right, indexed)
    )
    return Prefixes(left, right, left_members, right_members)


def _lengths(side: SetOperand, needs: list[int]) -> Array:
    """Return the length of each set's prefix (n,). `needs`: for each distinct size, the
    smallest overlap of a match.
    """
    lengths = (
        side.distinct - np.minimum(np.array(needs, np.int64), side.distinct + 1) + 1
    )
    return side.spread(np.clip(lengths, 0, side.distinct))


def _grouped(side: SetOperand, lengths: Array) -> tuple[Array, Array]:
    """Return the lengths of prefixes, and the sizes of groups. Only the first set of a
    group has a length, the others have 0.

    A group consists of adjacent sets with equal sizes and equal prefixes.
    """
    first = cupy.empty(len(side), cupy.bool_)
    over(
        len(side),
        "groups",
        "find_firsts",
        (*side.arguments, lengths, np.int64(len(side)), first),
    )
    places = cupy.flatnonzero(first)
    members = cupy.zeros(len(side), cupy.int32)
    members[places] = cupy.diff(
        cupy.concatenate([places, cupy.full(1, len(side), places.dtype)])
    )
    return lengths * first, members


def groups_with_themselves(join: Operands, lengths: Prefixes) -> Array:
    """In a self-join, pair each group of two or more sets with itself (groups, 2). In
    other joins, return no pairs.
    """
    if not join.is_self_join:
        return cupy.empty((0, 2), cupy.int32)
    several = cupy.flatnonzero((lengths.left_members > 1) & (lengths.left > 0)).astype(
        cupy.int32
    )
    return cupy.ascontiguousarray(cupy.stack([several, several], axis=1))


def expanded(
    join: Operands, lengths: Prefixes, pairs: Array, bits: Bits, capacity: int
) -> Iterator[Flat]:
    """For each pair of groups, yield the pairs of their members."""
    groups = len(pairs)
    members, work = cupy.empty(groups, cupy.int64), cupy.zeros(groups + 1, cupy.int64)
    arguments = (
        pairs,
        np.int64(groups),
        lengths.left_members,
        lengths.right_members,
        members,
    )
    over(groups, "groups", "count_members", arguments, WORDS=0)
    cupy.cumsum(members, out=work[1:])

    def find(first: int, number: int, out: Array, counter: Array) -> None:
        arguments = (
            *join.sides,
            pairs,
            work,
            np.int64(groups),
            lengths.right_members,
            np.int64(first),
            np.int64(number),
            np.int32(join.is_self_join),
            bits.left,
            bits.right,
            out,
            np.uint64(len(out)),
            counter,
        )
        over(number, "groups", "expand", arguments, WORDS=bits.words, **join.constants)

    return batches(find, int(work[-1]), 0, min(2**26, 4 * capacity), capacity)


EACH_THREAD = 8
"""A thread of a GPU handles this many common tokens."""


@dataclass(frozen=True)
class Entries:
    """The entries of a block: one for each token in the prefix of a set."""

    # (entries,), uint64: the token in the upper 32 bits, the set in the lower 32
    keys: Array
    places: Array  # (entries,), int32: position of the token in its set

    @classmethod
    def of(cls, side: SetOperand, lengths: Array) -> Entries:
        """List an entry for each of the first `lengths` (n,) tokens of each set."""
        starts = cupy.zeros(len(side) + 1, cupy.int64)
        cupy.cumsum(lengths.astype(cupy.int64), out=starts[1:])
        entries = int(starts[-1])
        keys, places = cupy.empty(entries, cupy.uint64), cupy.empty(entries, cupy.int32)
        arguments = (
            *side.arguments,
            starts,
            np.int64(len(side)),
            np.int64(entries),
            keys,
            places,
        )
        over(entries, "index", "list_entries", arguments, **ANY)
        return cls(keys, places)

    def sorted(self) -> Entries:
        """Sort the entries by token, and entries with the same token by set."""
        order = cupy.argsort(self.keys)
        return Entries(self.keys[order], self.places[order])


ANY = {"WORDS": 0, "POSITIONAL": 0, "EACH_THREAD": EACH_THREAD}
"""Values of compile-time constants, for kernels that do not use them but are in the
same file.
"""


@dataclass(frozen=True)
class CommonTokens:
    """All triples of a left set, a right set, and a token that is in the prefixes of
    both.
    """

    probes: Entries
    index: Entries
    """Entries for the left sets, and sorted entries for the right sets."""
    first: Array
    """(probes,), int64: for each probe token, the first entry of `index` with this
    token and an admissible size.
    """
    # (probes + 1,), int64: number of common tokens before each probe token, and the
    # total
    work: Array
    number: int  # total number of common tokens

    @classmethod
    def of(cls, join: Operands, lengths: Prefixes) -> CommonTokens:
        """Look up each token in the prefixes of left sets in an index of right sets."""
        probes = Entries.of(join.left, lengths.left)
        index = Entries.of(join.right, lengths.right).sorted()
        number = len(probes.keys)
        first, block_pairs = (
            cupy.empty(number, cupy.int64),
            cupy.empty(number, cupy.int64),
        )
        arguments = (
            probes.keys,
            np.int64(number),
            index.keys,
            np.int64(len(index.keys)),
            join.low,
            join.high,
            first,
            block_pairs,
        )
        over(number, "index", "look_up", arguments, **ANY)
        work = cupy.zeros(number + 1, cupy.int64)
        cupy.cumsum(block_pairs, out=work[1:])
        return cls(probes, index, first, work, int(work[-1]))


def candidates(
    join: Operands,
    met: CommonTokens,
    bits: Bits,
    capacity: int,
    start: int,
    *,
    positional: bool,
) -> Iterator[Flat]:
    """Find candidate pairs among the common tokens, beginning with common token number
    `start`.
    """
    constants = (
        join.constants | ANY | {"WORDS": bits.words, "POSITIONAL": int(positional)}
    )

    def find(first: int, number: int, out: Array, counter: Array) -> None:
        arguments = (
            *join.sides,
            met.probes.keys,
            met.probes.places,
            met.first,
            met.work,
            np.int64(len(met.first)),
            met.index.keys,
            met.index.places,
            np.int64(first),
            np.int64(number),
            bits.left,
            bits.right,
            out,
            np.uint64(len(out)),
            counter,
        )
        blocks(
            -(-number // (THREADS * EACH_THREAD)),
            THREADS,
            "index",
            "meet",
            arguments,
            **constants,
        )

    return batches(find, met.number, start, min(2**26, 4 * capacity), capacity)


class Buffer:
    """Pinned host memory for probes and candidates. A GPU copies from such memory at
    full speed.
    """

    def __init__(self, probes: int, candidates: int) -> None:
        self.probes = _pinned(probes, np.int32)
        self.starts = _pinned(probes + 1, np.int64)
        self.candidates = _pinned(candidates, np.int32)
        self._copied = cupy.cuda.get_current_stream().record()

    def on_gpu(self, probes: int) -> GroupedSets:
        """Start to copy the first `probes` probes and their candidates to the GPU. The
        copy may be complete only after `wait`.
        """
        columns, number = [], int(self.starts[probes])
        for some in (
            self.probes[:probes],
            self.starts[: probes + 1],
            self.candidates[:number],
        ):
            column = cupy.empty(len(some), some.dtype)
            column.set(some)
            columns.append(column)
        self._copied = cupy.cuda.get_current_stream().record()
        return GroupedSets(columns[0], columns[1], columns[2], turned=False)

    def wait(self) -> None:
        """Wait until the copy is complete. Before that, the memory must not be
        overwritten or freed.
        """
        self._copied.synchronize()


class GpuSetMatches(NamedTuple):
    """Matching pairs (n, 2), int32, and the overlap of each (n,), int32. Both are in
    host memory.
    """

    pairs: Array
    overlaps: Array
    compared: int
    """How many pairs were compared to find these matches."""


class Filled(NamedTuple):
    """A chunk of candidates in host memory."""

    buffer: Buffer
    probes: int  # number of probes in the chunk
    last: bool
    following: int | None
    """The first probe after the chunk; None: there is none, or the chunk ends within a
    probe's candidates.
    """
    # matches of other members of groups, if the CPU compares members
    matches: GpuSetMatches | None


class GpuSetChunk(NamedTuple):
    """A chunk of candidates in GPU memory."""

    found: GroupedSets
    ends: bool  # whether all candidates of the last probe are in it
    next: int | None
    matches: GpuSetMatches | None


class HostFilter:
    """Finds the candidates of one probe after the other, by an index on the CPU.

    `start`: the first probe. `positional`: whether to reject pairs by the positions of
    common tokens. `members`: whether to also compare the other members of candidate
    groups.
    """

    def __init__(
        self,
        join: Operands,
        lengths: Prefixes,
        start: int,
        *,
        positional: bool,
        members: bool = False,
    ) -> None:
        q, d = (
            {key: side.block[key].get() for key in ("offsets", "tokens")}
            for side in (join.left, join.right)
        )
        prefix, indexed = lengths.left.get(), lengths.right.get()
        entries = int(indexed.sum(dtype=np.int64))
        universe = max(join.left.block["universe"], join.right.block["universe"])
        lists = np.zeros((universe + 1, 2), np.int64)
        index = lists, np.empty(entries, np.int32), np.empty(entries, np.int32)
        build((d["offsets"], d["tokens"], indexed), index)
        n, sizes = (
            len(join.right),
            (int(join.left.distinct[-1]), int(join.right.distinct[-1])),
        )
        scratch = (
            np.zeros(sizes[1] + 1, np.int64),
            np.zeros(n, np.int32),
            np.empty(n, np.int32),
        )
        self._state = np.array([start - 1, 0, 0, 0], np.int64)
        self._probes, limits = len(join.left), tuple(join.rule.limits(*sizes))
        self._paired: tuple[Any, ...] | None = None
        if members:
            both = lengths.left_members.get(), lengths.right_members.get()
            self._paired = (
                (q["offsets"], q["tokens"]),
                (d["offsets"], d["tokens"]),
                both,
                limits,
                join.is_self_join,
            )
        self._given: tuple[Any, ...] = (
            (q["offsets"], q["tokens"], prefix),
            d["offsets"],
            (join.low.get(), join.high.get()),
            index,
            limits,
            positional,
            scratch,
            self._state,
        )

    @property
    def listed(self) -> int:
        """How many index entries have been read so far."""
        return int(self._state[LISTED])

    def fill(self, buffer: Buffer) -> Filled:
        probes = fill(*self._given, buffer.probes, buffer.starts, buffer.candidates)
        state = self._state
        last = state[PROBE] == self._probes
        following = int(state[PROBE]) if state[WRITTEN] == 0 < state[FOUND] else None
        matches = None
        if self._paired:
            matches = self.match_members(
                buffer.probes[:probes], buffer.starts, buffer.candidates
            )
        return Filled(buffer, probes, bool(last), following, matches)

    def match_members(
        self, probes: Array, starts: Array, candidates: Array
    ) -> GpuSetMatches:
        """Find the matches between members of candidate groups. The pair of their first
        members is left to the GPU.
        """
        assert self._paired
        capacity = 4096
        while True:
            out = np.empty((capacity, 2), np.int32), np.empty(capacity, np.int32)
            number, compared = pair_members(
                *self._paired, (probes, starts, candidates), out
            )
            if number <= capacity:
                return GpuSetMatches(out[0][:number], out[1][:number], compared)
            capacity = number


def chunks(filters: HostFilter, probes: int, capacity: int) -> Iterator[GpuSetChunk]:
    """Yield chunks of up to `capacity` candidates on the GPU. Meanwhile the CPU fills
    the next chunk.
    """
    # while the GPU reads one buffer, the CPU fills the other
    buffers = [Buffer(min(probes, capacity), capacity) for _ in range(2)]
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="simjoin-filter") as pool:
            coming, turn = pool.submit(filters.fill, buffers[0]), 0
            while True:
                filled = coming.result()
                turn = (turn + 1) % 2
                if not filled.last:
                    buffers[turn].wait()
                    coming = pool.submit(filters.fill, buffers[turn])
                ends = filled.last or filled.following is not None
                yield GpuSetChunk(
                    filled.buffer.on_gpu(filled.probes),
                    ends,
                    filled.following,
                    filled.matches,
                )
                if filled.last:
                    return
    finally:
        for buffer in buffers:
            buffer.wait()


def _pinned(number: int, dtype: type[np.generic]) -> Array:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(
        cupy.cuda.alloc_pinned_memory(max(1, number * size)), dtype, number
    )
