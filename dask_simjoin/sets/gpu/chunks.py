"""Candidates that the CPU's filters leave, chunk by chunk: it fills one while the GPU verifies another.

So do Bellas and Gounaris, whose threads of the host are here one that filters, and the one that asks for
chunks: it hands them to the GPU, and takes what matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.cpu.kernels.candidates import FOUND, HANDED, LISTED, PROBE, build, fill, pair_members
from dask_simjoin.sets.gpu.index import Prefixes
from dask_simjoin.sets.gpu.operands import Operands
from dask_simjoin.sets.gpu.verify import GroupedSets

CHUNK_BYTES = 64 << 20
"""Of the candidates of a chunk, where nothing else is asked for."""

CANDIDATE_BYTES = 16
"""Of a candidate, and of what is written where it matches."""

MATCHES = 1 << 12
"""Pairs of members for which memory is reserved at first."""

ALTERNATING = 2
"""Buffers: one is filled while another is handed on."""


class Buffer:
    """Memory of the host from which GPUs copy at full speed.

    Parameters
    ----------
    probes, candidates : int
        For how many there is room.
    """

    def __init__(self, probes: int, candidates: int) -> None:
        self.probes = _pinned(probes, np.int32)
        self.starts = _pinned(probes + 1, np.int64)
        self.candidates = _pinned(candidates, np.int32)
        self._copied = cupy.cuda.get_current_stream().record()

    def on_gpu(self, probes: int) -> GroupedSets:
        """Ask for a copy of so many probes' candidates, which the GPU makes when it comes to it."""
        columns, number = [], int(self.starts[probes])
        for some in (self.probes[:probes], self.starts[: probes + 1], self.candidates[:number]):
            column = cupy.empty(len(some), some.dtype)
            column.set(some)
            columns.append(column)
        self._copied = cupy.cuda.get_current_stream().record()
        return GroupedSets(columns[0], columns[1], columns[2], turned=False)

    def wait(self) -> None:
        """Wait until the copy is made: before, nothing may be written here, nor the memory given back."""
        self._copied.synchronize()


class GpuSetMatches(NamedTuple):
    """Pairs that match.

    Attributes
    ----------
    pairs : array (pairs, 2), int32
    overlaps : array (pairs,), int32
    compared : int
        Pairs of sets of which they are those that match.
    """

    pairs: Array
    overlaps: Array
    compared: int


class Filled(NamedTuple):
    """A chunk in a buffer.

    Attributes
    ----------
    buffer : Buffer
    probes : int
        How many have candidates in it.
    last : bool
        Whether there are no others.
    following : int or None
        The first probe of which no candidate is in the chunk or before it; None: there is none, or the last
        one's candidates do not end in the chunk.
    matches : Matches or None
        Of the other members of the groups, where they are not left to the GPU.
    """

    buffer: Buffer
    probes: int
    last: bool
    following: int | None
    matches: GpuSetMatches | None


class GpuSetChunk(NamedTuple):
    """Candidates on the GPU.

    Attributes
    ----------
    found : Grouped
    ends : bool
        Whether none of its probes has more in the next chunk.
    next : int or None
        Where it ends, the probe to go on with, if there is one.
    matches : Matches or None
        As of `Filled`, and on the host.
    """

    found: GroupedSets
    ends: bool
    next: int | None
    matches: GpuSetMatches | None


class HostFilter:
    """Filters by an index on the CPU, probe by probe from one on.

    Parameters
    ----------
    join : Operands
    lengths : Prefixes
    positional : bool
        Whether sets that meet too late in their prefixes are left out.
    start : int
        The first probe.
    members : bool
        Whether it pairs the other members of groups, too.
    """

    def __init__(self, join: Operands, lengths: Prefixes, start: int, *, positional: bool,
                 members: bool = False) -> None:  # fmt: skip
        q, d = (
            {key: side.block[key].get() for key in ("offsets", "tokens")} for side in (join.left, join.right)
        )
        prefix, indexed = lengths.left.get(), lengths.right.get()
        entries = int(indexed.sum(dtype=np.int64))
        universe = max(join.left.block["universe"], join.right.block["universe"])
        lists = np.zeros((universe + 1, 2), np.int64)
        index = lists, np.empty(entries, np.int32), np.empty(entries, np.int32)
        build((d["offsets"], d["tokens"], indexed), index)
        n, sizes = len(join.right), (int(join.left.distinct[-1]), int(join.right.distinct[-1]))
        scratch = np.zeros(sizes[1] + 1, np.int64), np.zeros(n, np.int32), np.empty(n, np.int32)
        self._state = np.array([start - 1, 0, 0, 0], np.int64)
        self._probes, limits = len(join.left), tuple(join.rule.limits(*sizes))
        self._paired: tuple[Any, ...] | None = None
        if members:
            both = lengths.left_members.get(), lengths.right_members.get()
            self._paired = (q["offsets"], q["tokens"]), (d["offsets"], d["tokens"]), both, limits, join.same
        self._given: tuple[Any, ...] = (
            (q["offsets"], q["tokens"], prefix), d["offsets"], (join.low.get(), join.high.get()), index,
            limits, positional, scratch, self._state,
        )  # fmt: skip

    @property
    def listed(self) -> int:
        """Entries of the index that were looked at."""
        return int(self._state[LISTED])

    def fill(self, buffer: Buffer) -> Filled:
        """Fill a buffer with candidates that follow those before."""
        probes = fill(*self._given, buffer.probes, buffer.starts, buffer.candidates)
        state = self._state
        last = state[PROBE] == self._probes
        following = int(state[PROBE]) if state[HANDED] == 0 < state[FOUND] else None
        matches = None
        if self._paired:
            matches = self.match_members(buffer.probes[:probes], buffer.starts, buffer.candidates)
        return Filled(buffer, probes, bool(last), following, matches)

    def match_members(self, probes: Array, starts: Array, candidates: Array) -> GpuSetMatches:
        """Find the matches of the members of groups, but for the pairs of those that stand for them."""
        assert self._paired
        room = MATCHES
        while True:
            out = np.empty((room, 2), np.int32), np.empty(room, np.int32)
            number, compared = pair_members(*self._paired, (probes, starts, candidates), out)
            if number <= room:
                return GpuSetMatches(out[0][:number], out[1][:number], compared)
            room = number


def chunks(filters: HostFilter, probes: int, room: int) -> Iterator[GpuSetChunk]:
    """Hand chunks of up to `room` candidates to the GPU, while the next one is filled."""
    buffers = [Buffer(min(probes, room), room) for _ in range(ALTERNATING)]
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="simjoin-filter") as pool:
            coming, turn = pool.submit(filters.fill, buffers[0]), 0
            while True:
                filled = coming.result()
                turn = (turn + 1) % ALTERNATING
                if not filled.last:
                    buffers[turn].wait()
                    coming = pool.submit(filters.fill, buffers[turn])
                ends = filled.last or filled.following is not None
                yield GpuSetChunk(filled.buffer.on_gpu(filled.probes), ends, filled.following, filled.matches)
                if filled.last:
                    return
    finally:
        for buffer in buffers:
            buffer.wait()


def _pinned(number: int, dtype: type[np.generic]) -> Array:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(max(1, number * size)), dtype, number)
