"""Blocks of sets by size: which of them are compared, and how rows reach them.

Sizes are cut into ranges; a range of too much memory is cut by a hash of sets, so that equal ones stay
together.  Empty sets have size 0, rows without a set -1.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.ids import joined
from dask_simjoin.metrics.norms import Array, Frame, Ids
from dask_simjoin.sets.chunks import ReadSetRows, ReadSets, SetChunk, read_sets, set_chunk
from dask_simjoin.sets.encode import CodedSets, hashes, ranked, some_sets
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.tasks.chunks import check_source, stacked

TOKEN_BYTES = 8
"""Of a token, by number and as it is sorted."""

MISSING, LAST = -1, 2**31
"""The least size, and one above all."""


@dataclass(frozen=True, eq=False)
class SizeBlocks:
    """Blocks of a table.

    Attributes
    ----------
    lows : array (ranges,), int64
        The least size of each range.
    splits : array (ranges,), int64
        How many blocks each range makes.
    rows, tokens, bytes : array (blocks,), float64
        Expected in each block, and the memory that they take.
    """

    lows: np.ndarray
    splits: np.ndarray
    rows: np.ndarray
    tokens: np.ndarray
    bytes: np.ndarray

    def __len__(self) -> int:
        return int(self.splits.sum())

    @functools.cached_property
    def _first(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.splits)])[:-1]

    def block_of(self, sizes: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Return the block of each set (sets,), int64; those of no token are in the first."""
        found = np.searchsorted(self.lows, sizes, side="right") - 1
        within = (hashes % self.splits[found].astype(np.uint64)).astype(np.int64)
        return np.where(sizes > 0, self._first[found] + within, 0)

    @functools.cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest size that each block may have (blocks,), int64."""
        highs = np.concatenate([self.lows[1:] - 1, [LAST]])
        return np.repeat(self.lows, self.splits), np.repeat(highs, self.splits)


def size_blocks(sizes: np.ndarray, hashes: np.ndarray, weights: np.ndarray, number: int,
                row_bytes: float = 0.0) -> SizeBlocks:  # fmt: skip
    """Make about so many blocks, from a sample of sets of these sizes, each of which stands for some rows.

    `row_bytes`: of a row besides its tokens.
    """
    kinds, which = np.unique(np.maximum(sizes, 0), return_inverse=True)
    taken = weights * (row_bytes + TOKEN_BYTES * np.maximum(sizes, 0))
    size_bytes = np.bincount(which, taken, minlength=len(kinds))
    each = max(float(size_bytes.sum()) / max(number, 1), 1.0)
    lows, splits = [MISSING], []
    held = 0.0
    for size, own in zip(kinds.tolist(), size_bytes.tolist(), strict=True):
        if held and held + own > 1.25 * each:
            lows.append(int(size))
            splits.append(max(1, round(held / each)))
            held = 0.0
        held += own
    splits.append(max(1, round(held / each)))
    none = np.zeros(0)
    found = SizeBlocks(np.array(lows), np.array(splits), none, none, none)
    block = found.block_of(sizes, hashes)
    expected = (
        np.bincount(block, each, minlength=len(found))
        for each in (weights, weights * np.maximum(sizes, 0), taken)
    )
    return SizeBlocks(found.lows, found.splits, *expected)


def meeting_blocks(left: SizeBlocks, right: SizeBlocks | None, rule: Rule, special: bool) -> np.ndarray:
    """Return the pairs of blocks (pairs, 2), int32, in which sets may match; the right ones numbered after.

    `right`: None: of one table, each block being with itself, too.  `special`: rows of no token may match.
    """
    first = 0 if right is None else len(left)
    pairs = []
    for i, meets in enumerate(_meets(left, right, rule, special)):
        found = np.flatnonzero(meets)
        pairs.append(np.stack([np.full(len(found), i), found + first], 1))
    return np.concatenate(pairs).astype(np.int32)


def count_meetings(left: SizeBlocks, right: SizeBlocks | None, rule: Rule, special: bool) -> int:
    """Tell how many those are, which may be more than there is room to list."""
    return sum(int(np.count_nonzero(meets)) for meets in _meets(left, right, rule, special))


def _meets(left: SizeBlocks, right: SizeBlocks | None, rule: Rule, special: bool) -> Iterator[np.ndarray]:
    """Tell of each block which others it meets (blocks,) bool: of one table, none before itself."""
    other = left if right is None else right
    reach = _reached(left, rule)
    back = _reached(other, rule)
    lows, highs = left.bounds
    other_lows, other_highs = other.bounds
    for i in range(len(left)):
        meets = (other_highs >= reach[0][i]) & (other_lows <= reach[1][i])
        meets &= (highs[i] >= back[0]) & (lows[i] <= back[1])
        if special and i == 0:
            meets[0] = True
        if right is None:
            meets[:i], meets[i] = False, True
        yield meets


def _reached(blocks: SizeBlocks, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest size that sets of each block may match (blocks,), int64."""
    lows, highs = blocks.bounds
    largest = [rule.largest(max(high, 1)) for high in highs.tolist()]
    return (
        np.array([rule.smallest(max(low, 1)) for low in lows.tolist()], np.int64),
        np.array([LAST if size is None else min(size, LAST) for size in largest], np.int64),
    )


class SetParcel(TypedDict):
    """Hold the rows that a partition sends to a block, in their order."""

    sets: CodedSets
    missing: np.ndarray | None
    position: np.ndarray
    """Their numbers in the frame (rows,), int64."""
    ids: Ids
    kept: NotRequired[Frame]


def read_partition(frame: Frame, known: tuple[int, int], spec: SetSpec) -> ReadSets:
    """Read a partition; `known`: its number, and its rows when the join was planned."""
    number, planned = known
    check_source(number, len(frame), planned)
    return read_sets(frame, spec, number)


def send(read: ReadSetRows, rank: np.ndarray, first: int, blocks: SizeBlocks) -> list[SetParcel | None]:
    """Put the rows of a partition into parcels for blocks; None: it has none for that block.

    `rank`: of each of its tokens; `first`: the number of its first row in the frame.
    """
    sets = ranked(read["sets"], rank)
    sizes = np.diff(sets["offsets"])
    block = blocks.block_of(sizes, hashes(sets))
    parcels: list[SetParcel | None] = []
    for b in range(len(blocks)):
        rows = np.flatnonzero(block == b)
        parcels.append(_some(read, sets, rows, first) if len(rows) else None)
    return parcels


def _some(read: ReadSetRows, sets: CodedSets, rows: np.ndarray, first: int) -> SetParcel:
    whole = len(rows) == len(read["ids"])
    missing = read["missing"]
    there = frames_for(read["example"]).xp.asarray(rows)
    parcel = SetParcel(
        sets=sets if whole else some_sets(sets, rows),
        missing=missing if whole or missing is None else missing[rows],
        position=rows + first,
        ids=read["ids"] if whole else read["ids"].take(there),
    )
    if "kept" in read:
        parcel["kept"] = read["kept"] if whole else read["kept"].iloc[there]
    return parcel


def gather_block(universe: int, example: Frame, spec: SetSpec, *parcels: SetParcel | None) -> SetChunk:
    """Make a block of what partitions send to it, in their order."""
    there = [parcel for parcel in parcels if parcel is not None]
    if not there:
        nothing = read_sets(example, spec)
        return set_chunk(
            nothing["sets"], universe, None, nothing["ids"], nothing["example"], nothing.get("kept"),
            np.zeros(0, np.int64),
        )  # fmt: skip
    sizes = [np.diff(parcel["sets"]["offsets"]) for parcel in there]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
    codes = np.concatenate([parcel["sets"]["codes"] for parcel in there])
    missing = None
    if any(parcel["missing"] is not None for parcel in there):
        missing = np.concatenate(
            [
                np.zeros(len(parcel["ids"]), np.bool_) if parcel["missing"] is None else parcel["missing"]
                for parcel in there
            ]
        )
    kept = None
    if "kept" in there[0]:
        kept = stacked([parcel["kept"] for parcel in there], example)
    return set_chunk(
        CodedSets(offsets=offsets, codes=codes), universe, missing,
        joined([parcel["ids"] for parcel in there]), example, kept,
        np.concatenate([parcel["position"] for parcel in there]),
    )  # fmt: skip


PartCounts = tuple[np.ndarray, Array]
"""Rows of a partition (some,), as numbers in it, and a number for each of them."""


def counts_by_partition(chunk: SetChunk, counts: Array | int, offsets: np.ndarray) -> list[PartCounts]:
    """Split numbers of the rows of a block, by position, by the partitions that they are of."""
    position = to_host(chunk["position"])
    cuts = np.searchsorted(position, offsets)
    values = np.zeros(len(position), np.int64) if isinstance(counts, int) else counts
    return [
        (position[start:stop] - first, values[start:stop])
        for start, stop, first in zip(cuts[:-1], cuts[1:], offsets[:-1], strict=True)
    ]


def put_beside(labels: Ids, meta: Frame, *parts: PartCounts) -> Frame:
    """Put the numbers of the rows of one partition together, beside the rows' labels."""
    frames = frames_for(meta)
    values = frames.xp.zeros(len(labels), np.int64)
    for rows, counts in parts:
        values[frames.xp.asarray(rows)] = frames.xp.asarray(counts)
    return frames.rows(values, labels, meta)
