"""Blocks of sets by size, of about equally much memory each, and which of them meet.

Sizes are cut into ranges; a range of too much memory is cut by a hash of sets, so that equal ones stay
together.  Empty sets have size 0, rows without a set -1.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dask_simjoin.sets.predicate import Rule

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
