"""The block pairs of a plan, and what comes of each of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np


class BlockPairs:
    """What every plan has: chunks that meet, and the partitions of the result that they give.

    Attributes
    ----------
    blocks : array (block pairs, 2), int32
        Chunks that meet.
    slices : array (block pairs,), int64
        Partitions of the result that each block pair gives.
    parts : array (block pairs,), int64
        Pieces into which the work of block pairs is cut where it gives no rows.
    """

    blocks: np.ndarray
    slices: np.ndarray
    parts: np.ndarray

    def __len__(self) -> int:
        return len(self.blocks)

    @functools.cached_property
    def outputs(self) -> int:
        """Partitions of the result."""
        return int(self.slices.sum())

    def output(self, number: int) -> tuple[int, int, int]:
        """Return the block pair of a partition of the result, the slice of that, and how many there are."""
        block = int(np.searchsorted(self._ends, number, side="right"))
        parts = int(self.slices[block])
        return block, number - int(self._ends[block]) + parts, parts

    def pieces(self) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
        """Go through the pieces of the work: a block pair, its chunks, and which part of how many."""
        for b, ((i, j), parts) in enumerate(zip(self.blocks.tolist(), self.parts.tolist(), strict=True)):
            for number in range(parts):
                yield b, i, j, (number, parts)

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.slices)
