"""Blocks of rows of similar size, for joins of sets and texts.

If two rows are similar enough, their sizes are similar, too. So two blocks are compared
only if their sizes allow it. All sizes are cut into ranges, and the rows of a range are
a block. If they take too much memory, they are split into several blocks by a hash, so
that equal rows are in the same block. A row without elements has size 0, and a missing
row has size -1.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dask_simjoin.sizes import NUMBER_BYTES


class SizeRule(Protocol):
    """The bounds on the sizes of similar rows. They follow from the kind of similarity
    and its threshold.
    """

    def smallest(self, size: int, /) -> int:
        """Return the size of the smallest row that may match a row of this size."""

    def largest(self, size: int, /) -> int | None:
        """Return the size of the largest row that may match a row of this size; None:
        any size.
        """


MISSING, LAST = -1, 2**31
"""The smallest size, and a size above all others."""


@dataclass(frozen=True, eq=False)
class SizeBlocks:
    """The blocks of a table."""

    lows: np.ndarray  # (ranges,) int64: smallest size of each range
    splits: np.ndarray  # (ranges,) int64: number of blocks of each range
    # (blocks,) float64: expected number of rows of each block, number of their
    # elements, and bytes
    rows: np.ndarray
    elements: np.ndarray
    bytes: np.ndarray

    def __len__(self) -> int:
        return int(self.splits.sum())

    @functools.cached_property
    def _first(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.splits)])[:-1]

    def block_of(self, sizes: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Return the block of each row (rows,), int64.

        Rows without elements, and missing rows, are in block 0.
        """
        ranges = np.searchsorted(self.lows, sizes, side="right") - 1
        within = (hashes % self.splits[ranges].astype(np.uint64)).astype(np.int64)
        return np.where(sizes > 0, self._first[ranges] + within, 0)

    @functools.cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest size of each block (blocks,), int64."""
        highs = np.concatenate([self.lows[1:] - 1, [LAST]])
        return np.repeat(self.lows, self.splits), np.repeat(highs, self.splits)


def size_blocks(
    sizes: np.ndarray,
    hashes: np.ndarray,
    weights: np.ndarray,
    number: int,
    row_bytes: float = 0.0,
    element_bytes: float = NUMBER_BYTES,
) -> SizeBlocks:
    """Cut a table into about `number` blocks of equal memory, as estimated from a
    sample of rows.

    `sizes`, `hashes`: size and hash of each sampled row. `weights`: number of rows that
    each sampled row represents. `row_bytes`: bytes of a row without its elements.
    `element_bytes`: bytes of an element.
    """
    kinds, which = np.unique(np.maximum(sizes, 0), return_inverse=True)
    taken = weights * (row_bytes + element_bytes * np.maximum(sizes, 0))
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
    blocks = SizeBlocks(np.array(lows), np.array(splits), none, none, none)
    block = blocks.block_of(sizes, hashes)
    expected = (
        np.bincount(block, each, minlength=len(blocks))
        for each in (weights, weights * np.maximum(sizes, 0), taken)
    )
    return SizeBlocks(blocks.lows, blocks.splits, *expected)


def compared_blocks(
    left: SizeBlocks, right: SizeBlocks | None, rule: SizeRule, special: bool
) -> np.ndarray:
    """Return the pairs of blocks (pairs, 2), int32, whose rows may match.

    `right`: blocks of the right table, numbered after the blocks of the left table.
    None: pairs are within one table, and each block is also paired with itself.
    `special`: whether rows without elements may match.
    """
    first = 0 if right is None else len(left)
    pairs = []
    for i, compared in enumerate(_compared_with(left, right, rule, special)):
        found = np.flatnonzero(compared)
        pairs.append(np.stack([np.full(len(found), i), found + first], 1))
    return np.concatenate(pairs).astype(np.int32)


def count_compared_blocks(
    left: SizeBlocks, right: SizeBlocks | None, rule: SizeRule, special: bool
) -> int:
    """Count the pairs of `compared_blocks` without listing them, because a list might
    not fit in memory.
    """
    return sum(
        int(np.count_nonzero(compared))
        for compared in _compared_with(left, right, rule, special)
    )


def _compared_with(
    left: SizeBlocks, right: SizeBlocks | None, rule: SizeRule, special: bool
) -> Iterator[np.ndarray]:
    """Yield for each block a mask of the blocks that it is compared with.

    Within one table, earlier blocks are left out.
    """
    other = left if right is None else right
    reach = _size_limits(left, rule)
    back = _size_limits(other, rule)
    lows, highs = left.bounds
    other_lows, other_highs = other.bounds
    for i in range(len(left)):
        compared = (other_highs >= reach[0][i]) & (other_lows <= reach[1][i])
        compared &= (highs[i] >= back[0]) & (lows[i] <= back[1])
        if special and i == 0:
            compared[0] = True
        if right is None:
            compared[:i], compared[i] = False, True
        yield compared


def _size_limits(blocks: SizeBlocks, rule: SizeRule) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest size that rows of each block may match (blocks,),
    int64.
    """
    lows, highs = blocks.bounds
    largest = [rule.largest(max(high, 1)) for high in highs.tolist()]
    return (
        np.array([rule.smallest(max(low, 1)) for low in lows.tolist()], np.int64),
        np.array(
            [LAST if size is None else min(size, LAST) for size in largest], np.int64
        ),
    )


def candidate_pairs(
    blocks: np.ndarray, rows: np.ndarray, is_self_join: bool
) -> np.ndarray:
    """Return the number of candidate pairs of rows in each pair of blocks (pairs,),
    float64.
    """
    i, j = blocks[:, 0], blocks[:, 1]
    product: np.ndarray = rows[i] * rows[j]
    return np.where(
        (i == j) & is_self_join, np.maximum(rows[i] * (rows[i] - 1) / 2, 0), product
    )


def heavy_first(candidates: np.ndarray) -> np.ndarray:
    """Return an order of block pairs: those with the most candidates first, so that no
    large task comes last.

    Block pairs with similar numbers of candidates keep their order, so that a block is
    used again before it is spilled to disk.
    """
    return np.argsort(-np.floor(np.log2(np.maximum(candidates, 1))), kind="stable")
