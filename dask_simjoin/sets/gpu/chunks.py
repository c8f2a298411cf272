"""Filter candidates on the CPU in chunks: it fills a chunk while the GPU verifies the chunk before.

This follows Bellas and Gounaris. A separate host thread filters. The calling thread copies chunks to the GPU
and reads the matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.cpu.kernels.candidates import FOUND, LISTED, PROBE, WRITTEN, build, fill, pair_members
from dask_simjoin.sets.gpu.index import Prefixes
from dask_simjoin.sets.gpu.launches import Operands
from dask_simjoin.sets.gpu.verify import GroupedSets

CHUNK_BYTES = 64 << 20
"""Default memory for the candidates of a chunk, in bytes."""

CANDIDATE_BYTES = 16
"""Bytes per candidate, including the output if it matches."""

MATCHES = 1 << 12
"""Initial capacity for matching pairs of group members."""

ALTERNATING = 2
"""Number of buffers: one is filled while the GPU reads the other."""


class Buffer:
    """Pinned host memory for probes and candidates, which the GPU copies at full speed."""

    def __init__(self, probes: int, candidates: int) -> None:
        self.probes = _pinned(probes, np.int32)
        self.starts = _pinned(probes + 1, np.int64)
        self.candidates = _pinned(candidates, np.int32)
        self._copied = cupy.cuda.get_current_stream().record()

    def on_gpu(self, probes: int) -> GroupedSets:
        """Start to copy the first `probes` probes and their candidates to the GPU; see `wait`."""
        columns, number = [], int(self.starts[probes])
        for some in (self.probes[:probes], self.starts[: probes + 1], self.candidates[:number]):
            column = cupy.empty(len(some), some.dtype)
            column.set(some)
            columns.append(column)
        self._copied = cupy.cuda.get_current_stream().record()
        return GroupedSets(columns[0], columns[1], columns[2], turned=False)

    def wait(self) -> None:
        """Wait until the copy is complete; only then may the memory be overwritten or freed."""
        self._copied.synchronize()


class GpuSetMatches(NamedTuple):
    """Matching pairs (n, 2), int32, and their overlaps (n,), int32, in host memory."""

    pairs: Array
    overlaps: Array
    compared: int
    """Number of pairs that were compared."""


class Filled(NamedTuple):
    """A chunk of candidates in host memory."""

    buffer: Buffer
    probes: int
    """Number of probes in the chunk."""
    last: bool
    following: int | None
    """The first probe after the chunk; None: there is none, or the chunk ends within a probe's candidates."""
    matches: GpuSetMatches | None
    """Matches of other members of groups, if the CPU compares members."""


class GpuSetChunk(NamedTuple):
    """A chunk of candidates in GPU memory."""

    found: GroupedSets
    ends: bool
    """Whether all candidates of the last probe are in it."""
    next: int | None
    matches: GpuSetMatches | None


class HostFilter:
    """Finds the candidates of one probe after another, by an index on the CPU.

    `start`: the first probe. `positional`: reject pairs by the positions of their common tokens. `members`:
    also compare the other members of candidate groups.
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
            self._paired = (
                (q["offsets"], q["tokens"]),
                (d["offsets"], d["tokens"]),
                both,
                limits,
                join.is_self_join,
            )
        self._given: tuple[Any, ...] = (
            (q["offsets"], q["tokens"], prefix), d["offsets"], (join.low.get(), join.high.get()), index,
            limits, positional, scratch, self._state,
        )  # fmt: skip

    @property
    def listed(self) -> int:
        """Number of index entries that were read."""
        return int(self._state[LISTED])

    def fill(self, buffer: Buffer) -> Filled:
        probes = fill(*self._given, buffer.probes, buffer.starts, buffer.candidates)
        state = self._state
        last = state[PROBE] == self._probes
        following = int(state[PROBE]) if state[WRITTEN] == 0 < state[FOUND] else None
        matches = None
        if self._paired:
            matches = self.match_members(buffer.probes[:probes], buffer.starts, buffer.candidates)
        return Filled(buffer, probes, bool(last), following, matches)

    def match_members(self, probes: Array, starts: Array, candidates: Array) -> GpuSetMatches:
        """Find the matches between members of candidate groups, except pairs of two first members."""
        assert self._paired
        capacity = MATCHES
        while True:
            out = np.empty((capacity, 2), np.int32), np.empty(capacity, np.int32)
            number, compared = pair_members(*self._paired, (probes, starts, candidates), out)
            if number <= capacity:
                return GpuSetMatches(out[0][:number], out[1][:number], compared)
            capacity = number


def chunks(filters: HostFilter, probes: int, capacity: int) -> Iterator[GpuSetChunk]:
    """Yield chunks of up to `capacity` candidates on the GPU, while the CPU fills the next chunk."""
    buffers = [Buffer(min(probes, capacity), capacity) for _ in range(ALTERNATING)]
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
