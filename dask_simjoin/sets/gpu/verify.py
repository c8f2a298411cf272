"""Compare the bitmaps of sets tile by tile, and verify candidate pairs by their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.gpu.launches import (
    SHARED_BYTES,
    Flat,
    Operands,
    SetOperand,
    SetPairSink,
    batches,
    blocks,
    over,
)

COLUMNS = 1024
"""Number of right sets that a block of threads compares with its tile of left sets.

This is one unit of work.
"""

WORDS = ((24, 4), (60, 8))
"""(size, words): if sets have at most this mean size, bitmaps have this many 32-bit
words.

With longer bitmaps, fewer pairs must be verified. Take sets of 3 tokens and a threshold
of 0.5: then 2 words leave 0.7 % of all pairs. With 4 words, 0.3 % are left, and with 8
words, 0.1 %.
"""


def words_for(*sides: SetOperand) -> int:
    """Return how many 32-bit words bitmaps should have, by the mean size of the sets."""
    mean = sum(len(side.block["tokens"]) for side in sides) / sum(map(len, sides))
    return next((words for size, words in WORDS if mean <= size), 16)


class Bits(NamedTuple):
    words: int  # number of 32-bit words of each bitmap; 0: there are no bitmaps
    left: Array
    right: Array
    """(n, words), uint32."""

    @classmethod
    def of(cls, join: Operands, words: int | None) -> Bits:
        """Make bitmaps of `words` words. None: the mean size of the sets determines the
        number of words.
        """
        words = words or words_for(join.left, join.right)
        made = []
        for side in (join.left,) if join.is_self_join else (join.left, join.right):
            out = cupy.empty((len(side), words), cupy.uint32)
            arguments = (*side.arguments, np.int64(len(side)), out)
            over(
                32 * len(side),
                "bitmaps",
                "make_bitmaps",
                arguments,
                WORDS=words,
                ROWS=0,
            )
            made.append(out)
        return cls(words, made[0], made[-1])


@dataclass(frozen=True)
class SetTiles:
    """Tiles of left sets. Each tile has a range of right sets. By size, at least one
    set of the tile can match each of them.
    """

    rows: int  # left sets per tile. A block of threads has one thread for each
    low: Array
    high: Array
    """(tiles,), int32: a set of the tile can match right sets `low` ... `high` - 1."""
    work: Array  # (tiles + 1,), int64: units of work before each tile, and their total
    units: int

    @classmethod
    def of(cls, join: Operands, rows: int) -> SetTiles:
        """Divide the left sets into tiles. Sets are sorted by size, so the first and
        last set of a tile give its range.
        """
        first = cupy.arange(0, len(join.left), rows)
        last = cupy.minimum(first + rows, len(join.left)) - 1
        low, high = join.low[first], join.high[last]
        units = (
            cupy.maximum(high - low, 0).astype(cupy.int64) + COLUMNS - 1
        ) // COLUMNS
        work = cupy.zeros(len(units) + 1, cupy.int64)
        cupy.cumsum(units, out=work[1:])
        return cls(rows, low, high, work, int(work[-1]))


def admissible_pairs(join: Operands) -> int:
    return int((join.high - join.low).astype(cupy.int64).sum())


def candidates(
    join: Operands, bits: Bits, rows: int, capacity: int, start: int
) -> Iterator[Flat]:
    """Find candidates by comparing bitmaps, beginning with unit of work number `start`."""
    tiles = SetTiles.of(join, rows)
    constants = {"WORDS": bits.words, "ROWS": rows, "COLUMNS": COLUMNS} | join.constants

    def find(first: int, number: int, out: Array, counter: Array) -> None:
        arguments = (
            bits.left,
            join.left.sizes,
            np.int32(len(join.left)),
            bits.right,
            join.right.sizes,
            join.needs,
            join.limits,
            tiles.work,
            tiles.low,
            tiles.high,
            np.int32(len(tiles.low)),
            np.int64(first),
            np.int32(join.is_self_join),
            out,
            np.uint64(len(out)),
            counter,
        )
        blocks(number, rows, "bitmaps", "survivors", arguments, **constants)

    return batches(find, tiles.units, start, 2**14, capacity)


class GroupedSets(NamedTuple):
    """Candidate pairs, grouped by probe."""

    # (probes,), int32: left sets; with `turned`, right sets, and the candidates are
    # left sets
    probes: Array
    # (probes + 1,), int64: where the candidates of each probe begin, and the end
    starts: Array
    candidates: Array  # (candidates,), int32
    turned: bool


def grouped(pairs: Array) -> GroupedSets:
    """Group candidate pairs by their right sets, which become the probes."""
    keys = cupy.sort(pairs.reshape(-1).view(cupy.uint64))
    probes = (keys >> np.uint64(32)).astype(cupy.int32)
    firsts = cupy.flatnonzero(probes[1:] != probes[:-1]) + 1
    ends = cupy.zeros(1, cupy.int64), cupy.full(1, len(keys), cupy.int64)
    starts = cupy.concatenate([ends[0], firsts.astype(cupy.int64), ends[1]])
    candidates = (keys & np.uint64(0xFFFFFFFF)).astype(cupy.int32)
    return GroupedSets(probes[starts[:-1]], starts, candidates, True)


def flat(some: GroupedSets) -> Array:
    number = len(some.candidates)
    pairs = cupy.empty((number, 2), cupy.int32)
    arguments = (
        some.probes,
        some.starts,
        np.int32(len(some.probes)),
        some.candidates,
        np.uint64(number),
        np.int32(some.turned),
        pairs,
    )
    over(number, "verify", "flatten", arguments)
    return pairs


def way_to_verify(join: Operands, verify: str) -> str:
    """Return how to verify candidates: `verify`, or for "auto" the way that is fastest."""
    if verify != "auto":
        return verify
    mean = sum(
        len(side.block["tokens"]) / len(side) for side in (join.left, join.right)
    )
    # most comparisons end after a few tokens. For 260 tokens in both sets, a thread per
    # pair is seven times as fast as a warp on an H200 (benchmarks/results/gpu-sets)
    return "warp" if mean > 2000 else "thread"


def verify_flat(
    join: Operands, pairs: Array, verify: str, threads: int, sink: SetPairSink
) -> None:
    """Verify candidates in any order.

    The ways "A", "B" and "C" need groups, so candidates are sorted first.
    """
    if not len(pairs):
        return
    way = way_to_verify(join, verify)
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
    if len(pairs):
        arguments = (pairs, overlaps, np.uint64(len(pairs)), *sink.take(len(pairs)))
        over(len(pairs), "verify", "take_pairs", arguments, SINK=sink.number)
        sink.done()


KERNELS = {"A": "verify_by_thread", "B": "verify_by_block", "C": "verify_by_path"}
"""Kernels by Bellas and Gounaris, for the values "A", "B" and "C" of the option
`verify`.
"""


def verify_grouped(
    join: Operands, some: GroupedSets, verify: str, threads: int, sink: SetPairSink
) -> None:
    number = len(some.probes)
    if not number:
        return
    way = way_to_verify(join, verify)
    if way not in KERNELS:
        verify_flat(join, flat(some), way, threads, sink)
        return
    largest = [int(side.distinct[-1]) for side in (join.left, join.right)]
    tokens = {"A": 0, "B": largest[some.turned], "C": sum(largest)}[way]
    # the kernel needs 256 bytes for other arrays
    shared = min(4 * tokens, SHARED_BYTES - 256)
    size = np.int32(number if way == "A" else shared // 4)
    arguments = (
        *(join.turned if some.turned else join.sides),
        some.probes,
        some.starts,
        some.candidates,
        size,
        np.int32(some.turned),
        *sink.take(len(some.candidates)),
    )
    constants = join.constants | {"SINK": sink.number}
    launched = -(-number // threads) if way == "A" else number
    blocks(launched, threads, "verify", KERNELS[way], arguments, shared, **constants)
    sink.done()
