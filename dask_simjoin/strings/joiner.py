"""Join blocks of strings on CPUs, by Numba kernels."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.sets.cpu.joiner import BlockSearch, CpuSetJoiner, arrays_of
from dask_simjoin.sets.token_ids import SetBlock, distinct_sizes, sizes_of
from dask_simjoin.strings.distances import MAX_SHORT
from dask_simjoin.strings.requests import EditRule
from dask_simjoin.strings.search import (
    Out,
    Scratch,
    Search,
    Side,
    Tables,
    fill,
    search,
    set_powers,
    set_signatures,
)

LOOKUP, ENTRY, COMPARED = 12.0, 5.0, 7.0
"""Measured nanoseconds: to look up a substring, to read an entry of its list, and to
compare a string without an index.

Each time includes a share of the time to verify candidates.
"""


class EditSearch(BlockSearch):
    """Looks up each string of the larger block in an index of the smaller block."""

    def __init__(self, left: SetBlock, right: SetBlock | None, rule: EditRule) -> None:
        self.is_self_join = right is None
        blocks = [left, left if right is None else right]
        self.right_probes = len(blocks[0]["weights"]) < len(blocks[1]["weights"])
        if self.right_probes:
            blocks.reverse()
        self.state = np.full(3, -1, np.int64)
        self.tally = np.zeros(5, np.int64)
        self.max_steps = float(len(blocks[0]["tokens"])) * len(blocks[1]["tokens"])
        self._rule = rule
        if not all(len(block["weights"]) for block in blocks):
            return
        self.state[:] = 0
        sides = [_side(blocks[0], rule.tail)]
        sides.append(sides[0] if self.is_self_join else _side(blocks[1], rule.tail))
        self._q, self._d = sides
        self._open(*(sizes_of(block) - rule.tail for block in blocks))

    def _share(self, start: int, stop: int) -> Self:
        own = super()._share(start, stop)
        own._scratch = Scratch(*(array.copy() for array in self._scratch))
        return own

    def _find(self, out: Out) -> None:
        work = Search(
            self._q,
            self._d,
            self.is_self_join,
            self._rule.tail,
            int(self._rule.transpositions),
            self._index,
            self._tables,
            self._scratch,
        )
        search(work, self.state, out, self.tally)

    def _open(self, q_lengths: np.ndarray, d_lengths: np.ndarray) -> None:
        """Make the index and the scratch arrays. `q_lengths`, `d_lengths`: lengths of
        the probes, and of the indexed strings.
        """
        rule, gap = self._rule, int(self._rule.transpositions)
        longest = int(max(q_lengths[-1], d_lengths[-1]))
        limits = rule.limits(longest)
        distinct = (
            distinct_sizes(d_lengths + 1) - 1
        )  # strings may be empty, but `distinct_sizes` needs sizes above 0
        firsts = np.append(np.searchsorted(d_lengths, distinct), len(d_lengths))
        widest = np.array(
            [min(rule.longest(length) or 0, longest) for length in distinct.tolist()],
            np.int64,
        )
        parts = self._parts(
            distinct, np.diff(firsts), limits[np.maximum(widest, distinct)] + 1, gap
        )
        entries = int(np.diff(firsts) @ parts)
        buckets = 1 << max(entries - 1, 1).bit_length()
        self._index = (
            np.zeros(buckets + 1, np.int64),
            np.empty(entries, np.int64),
            np.zeros(entries + SWEEP_LANES, np.int64),
        )
        offsets, tokens, _, signatures, _ = self._d
        fill(
            offsets,
            tokens,
            signatures,
            rule.tail,
            gap,
            distinct,
            firsts,
            parts,
            *self._index,
        )
        powers = np.empty(longest + 1, np.int64)
        steps = min(longest, rule.longest(min(longest, MAX_SHORT)) or 0)
        set_powers(powers)
        places = np.searchsorted(distinct, np.arange(longest + 1))
        self._tables = Tables(distinct, firsts, parts, limits, places, powers)
        self._scratch = Scratch(
            np.empty(longest + 1, np.int64),
            np.full(len(d_lengths), -1, np.int64),
            np.empty(2 * int(limits[-1]) + 5, np.int64),
            np.zeros(
                1 + max(int(side[1].max(initial=0)) for side in (self._q, self._d)),
                np.int64,
            ),
            np.empty(SWEEP_LANES, np.int64),
            np.empty(SWEEP_LANES, np.int64),
            np.empty(SWEEP_LANES * max(steps, 1), np.int64),
        )

    def _parts(
        self, distinct: np.ndarray, strings: np.ndarray, parts: np.ndarray, gap: int
    ) -> np.ndarray:
        """For each length of indexed strings, choose the number of segments; 0: strings
        of this length are not indexed.

        A length is not indexed if it is cheaper to compare all strings of this length.
        `strings`: number of strings with each length. `parts`: number of segments that
        an index needs.
        """
        lengths = np.maximum(distinct - gap * (parts - 1), 0) // parts
        # the mean over the lengths that probes may have
        windows = (parts - 1.0) ** 2 / 3 + parts
        listed = windows * strings * self._repetition() ** lengths
        is_indexed = (lengths > 0) & (
            LOOKUP * windows + ENTRY * listed < COMPARED * strings
        )
        return np.where(is_indexed, parts, 0)

    def _repetition(self) -> float:
        """Estimate the probability that two random codes in the index are equal."""
        tokens = self._d[1]
        _, found = np.unique(
            tokens[:: max(len(tokens) // 2**16, 1)], return_counts=True
        )
        return float(((found / max(found.sum(), 1)) ** 2).sum())


def _side(block: SetBlock, tail: int) -> Side:
    """Return the arrays that kernels need from a block, including the signatures of its
    strings.
    """
    offsets, tokens, weights = arrays_of(block)
    signatures, grams = (
        np.zeros(len(weights) + SWEEP_LANES, np.int64) for _ in range(2)
    )
    set_signatures(offsets, tokens, tail, np.zeros(64, np.int64), signatures, grams)
    return offsets, tokens, weights, signatures, grams


class CpuEditJoiner(CpuSetJoiner):
    """Finds the pairs of strings that are within an edit distance, for two blocks or
    one.

    Results have distances instead of the numbers of common tokens that joins of sets
    have.
    """

    def search(
        self, left: SetBlock, right: SetBlock | None, rule: Any, method: Any
    ) -> BlockSearch:
        return EditSearch(left, right, rule)


JOINER = CpuEditJoiner()
