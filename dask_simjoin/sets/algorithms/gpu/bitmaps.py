"""Finds candidates by comparing bitmaps of all pairs of sets of admissible sizes, tile by tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu.batches import Flat, batches
from dask_simjoin.sets.algorithms.gpu.launch import blocks, over
from dask_simjoin.sets.algorithms.gpu.operands import Operands, Side

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


def words_for(*sides: Side) -> int:
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
class Tiles:
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
    def of(cls, join: Operands, rows: int) -> Tiles:
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
    tiles = Tiles.of(join, rows)
    constants = {"WORDS": bits.words, "ROWS": rows, "COLUMNS": COLUMNS} | join.constants

    def find(first: int, number: int, out: Array, told: Array) -> None:
        arguments = (
            bits.left, join.left.sizes, np.int32(len(join.left)), bits.right, join.right.sizes, join.needs,
            join.limits, tiles.work, tiles.low, tiles.high, np.int32(len(tiles.low)), np.int64(first),
            np.int32(join.same), out, np.uint64(len(out)), told,
        )  # fmt: skip
        blocks(number, rows, "bitmaps", "survivors", arguments, **constants)

    return batches(find, tiles.units, start, UNITS, room)
