"""Compare bitmaps of sets tile by tile, and verify candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.gpu.batches import SHARED_BYTES, Flat, SetPairSink, batches, blocks, over
from dask_simjoin.sets.gpu.operands import Operands, SetOperand

COLUMNS = 1024
"""Right sets that a block of threads compares with its tile of left ones."""

WORDS = ((24, 4), (60, 8))
"""Mean sizes of sets, and how many words of 32 bits their bitmaps have up to there.

Of pairs of queries of 3 tokens, 2 words leave .7 % at a threshold of .5, 4 words .3 %, 8 words .1 %.
"""

MOST_WORDS = 16
"""Of sets that are larger."""

UNITS = 1 << 14
"""Of which the first batch consists."""


def words_for(*sides: SetOperand) -> int:
    """Return how many words of 32 bits the bitmaps of sets of such sizes have."""
    mean = sum(len(side.block["tokens"]) for side in sides) / sum(map(len, sides))
    return next((words for size, words in WORDS if mean <= size), MOST_WORDS)


class Bits(NamedTuple):
    """Bitmaps of both sides.

    Attributes
    ----------
    words : int
        Of 32 bits, of each bitmap; 0: there are none.
    left, right : array (n, words), uint32
    """

    words: int
    left: Array
    right: Array

    @classmethod
    def of(cls, join: Operands, words: int | None) -> Bits:
        """Make bitmaps, of so many words or as many as the sets' sizes ask for."""
        words = words or words_for(join.left, join.right)
        made = []
        for side in (join.left,) if join.same else (join.left, join.right):
            out = cupy.empty((len(side), words), cupy.uint32)
            arguments = (*side.arguments, np.int64(len(side)), out)
            over(32 * len(side), "bitmaps", "make_bitmaps", arguments, WORDS=words, ROWS=0)
            made.append(out)
        return cls(words, made[0], made[-1])


@dataclass(frozen=True)
class SetTiles:
    """The tiles of a join: rows of as many sets as a block has threads, and for each a range of columns.

    Attributes
    ----------
    rows : int
        Sets of a tile.
    low, high : array (tiles,), int32
        The first right set that a set of the tile may match, and the one behind the last.
    work : array (tiles + 1,), int64
        Units of work before each tile, and of them all.
    units : int
        Of them all.
    """

    rows: int
    low: Array
    high: Array
    work: Array
    units: int

    @classmethod
    def of(cls, join: Operands, rows: int) -> SetTiles:
        """Cut a join into tiles: sets are sorted by size, so the first has the first partner."""
        first = cupy.arange(0, len(join.left), rows)
        last = cupy.minimum(first + rows, len(join.left)) - 1
        low, high = join.low[first], join.high[last]
        units = (cupy.maximum(high - low, 0).astype(cupy.int64) + COLUMNS - 1) // COLUMNS
        work = cupy.zeros(len(units) + 1, cupy.int64)
        cupy.cumsum(units, out=work[1:])
        return cls(rows, low, high, work, int(work[-1]))


def listed(join: Operands) -> int:
    """Return how many pairs have admissible sizes."""
    return int((join.high - join.low).astype(cupy.int64).sum())


def candidates(join: Operands, bits: Bits, rows: int, room: int, start: int) -> Iterator[Flat]:
    """Find candidates from a unit of work on."""
    tiles = SetTiles.of(join, rows)
    constants = {"WORDS": bits.words, "ROWS": rows, "COLUMNS": COLUMNS} | join.constants

    def find(first: int, number: int, out: Array, told: Array) -> None:
        arguments = (
            bits.left, join.left.sizes, np.int32(len(join.left)), bits.right, join.right.sizes, join.needs,
            join.limits, tiles.work, tiles.low, tiles.high, np.int32(len(tiles.low)), np.int64(first),
            np.int32(join.same), out, np.uint64(len(out)), told,
        )  # fmt: skip
        blocks(number, rows, "bitmaps", "survivors", arguments, **constants)

    return batches(find, tiles.units, start, UNITS, room)


LONG = 2000
"""Tokens of a pair of sets, on average, from which on a warp compares them together.

With 260 of them a thread each is seven times as fast on an H200: it gives most pairs up after a few
(benchmarks/results/gpu-sets).
"""


class GroupedSets(NamedTuple):
    """Candidates that follow each other probe by probe.

    Attributes
    ----------
    probes : array (probes,), int32
        Sets of the left side; or of the right one, with candidates of the left: `turned`.
    starts : array (probes + 1,), int64
        Where each one's candidates begin.
    candidates : array (candidates,), int32
    turned : bool
    """

    probes: Array
    starts: Array
    candidates: Array
    turned: bool


def grouped(pairs: Array) -> GroupedSets:
    """Sort flat candidates."""
    keys = cupy.sort(pairs.reshape(-1).view(cupy.uint64))
    probes = (keys >> np.uint64(32)).astype(cupy.int32)
    firsts = cupy.flatnonzero(probes[1:] != probes[:-1]) + 1
    ends = cupy.zeros(1, cupy.int64), cupy.full(1, len(keys), cupy.int64)
    starts = cupy.concatenate([ends[0], firsts.astype(cupy.int64), ends[1]])
    candidates = (keys & np.uint64(0xFFFFFFFF)).astype(cupy.int32)
    return GroupedSets(probes[starts[:-1]], starts, candidates, True)


def flat(some: GroupedSets) -> Array:
    """Name the probe of each candidate."""
    number = len(some.candidates)
    pairs = cupy.empty((number, 2), cupy.int32)
    arguments = (
        some.probes, some.starts, np.int32(len(some.probes)), some.candidates, np.uint64(number),
        np.int32(some.turned), pairs,
    )  # fmt: skip
    over(number, "verify", "flatten", arguments)
    return pairs


def way_for(join: Operands, verify: str) -> str:
    """Return the way that was asked for, or the best."""
    if verify != "auto":
        return verify
    mean = sum(len(side.block["tokens"]) / len(side) for side in (join.left, join.right))
    return "warp" if mean > LONG else "thread"


def verify_flat(join: Operands, pairs: Array, verify: str, threads: int, sink: SetPairSink) -> None:
    """Verify candidates in any order; A, B and C want them sorted."""
    if not len(pairs):
        return
    way = way_for(join, verify)
    if way in KERNELS:
        verify_grouped(join, grouped(pairs), way, threads, sink)
        return
    arguments = (*join.sides, pairs, np.uint64(len(pairs)), *sink.take(len(pairs)))
    constants = join.constants | {"SINK": sink.number}
    if way == "warp":
        over(32 * len(pairs), "verify", "verify_pairs_by_warp", arguments, **constants)
    else:
        over(len(pairs), "verify", "verify_pairs", arguments, **constants)
    sink.done()


def accept(pairs: Array, overlaps: Array, sink: SetPairSink) -> None:
    """Take pairs that something else found to match."""
    if len(pairs):
        arguments = (pairs, overlaps, np.uint64(len(pairs)), *sink.take(len(pairs)))
        over(len(pairs), "verify", "take_pairs", arguments, SINK=sink.number)
        sink.done()


KERNELS = {"A": "verify_by_thread", "B": "verify_by_block", "C": "verify_by_path"}
"""Those of Bellas and Gounaris."""


def verify_grouped(join: Operands, some: GroupedSets, verify: str, threads: int, sink: SetPairSink) -> None:
    """Verify candidates that follow each other probe by probe."""
    number = len(some.probes)
    if not number:
        return
    way = way_for(join, verify)
    if way not in KERNELS:
        verify_flat(join, flat(some), way, threads, sink)
        return
    largest = [int(side.distinct[-1]) for side in (join.left, join.right)]
    tokens = {"A": 0, "B": largest[some.turned], "C": sum(largest)}[way]
    shared = min(4 * tokens, SHARED_BYTES - 256)  # the kernel has some of its own
    size = np.int32(number if way == "A" else shared // 4)
    arguments = (
        *(join.turned if some.turned else join.sides), some.probes, some.starts, some.candidates, size,
        np.int32(some.turned), *sink.take(len(some.candidates)),
    )  # fmt: skip
    constants = join.constants | {"SINK": sink.number}
    launched = -(-number // threads) if way == "A" else number
    blocks(launched, threads, "verify", KERNELS[way], arguments, shared, **constants)
    sink.done()
