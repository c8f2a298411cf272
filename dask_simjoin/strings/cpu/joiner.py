"""Join blocks of strings in NumPy arrays with Numba kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dask_simjoin.sets.token_ids import SetBlock, SetCounters, SetPairs, kinds_of, sizes_of
from dask_simjoin.strings.cpu.kernels.distances import LANES, WORD
from dask_simjoin.strings.cpu.kernels.search import (
    DONE,
    LISTED,
    NEXT,
    TOTAL,
    Out,
    Side,
    fill,
    search,
    set_powers,
    set_signatures,
)
from dask_simjoin.strings.requests import EditRule

LOOKUP, ENTRY, COMPARED = 12.0, 5.0, 7.0
"""Nanoseconds: to look up a substring, to compare an entry of its list, and to compare a string without an
index. Each includes its share of the time for verifying candidates."""

CODES = 1 << 16
"""Number of sampled codes, for the frequencies of characters."""

BATCH = 1 << 18
"""Pairs per batch, unless one string has more partners."""

NONE = np.empty(0, np.int64)


class EditSearch:
    """Finds the pairs of two blocks, or of one with itself.

    Strings of the larger block are looked up in the smaller one; `turned`: the right block is the larger one.
    """

    def __init__(self, left: SetBlock, right: SetBlock | None, rule: EditRule) -> None:
        self.same = right is None
        blocks = [left, left if right is None else right]
        self.turned = len(blocks[0]["weights"]) < len(blocks[1]["weights"])
        if self.turned:
            blocks.reverse()
        self.state = np.full(2, -1, np.int64)
        self.tally = np.zeros(TOTAL + 1, np.int64)
        self._rule = rule
        if not all(len(block["weights"]) for block in blocks):
            return
        self.state[:] = 0
        sides = [_side(blocks[0], rule.tail)]
        sides.append(sides[0] if self.same else _side(blocks[1], rule.tail))
        self._q, self._d = sides
        self._open(*(sizes_of(block) - rule.tail for block in blocks))

    @property
    def next(self) -> int | None:
        """The next string; None: the search is complete."""
        return None if self.state[NEXT] < 0 else int(self.state[NEXT])

    def run(self, out: Out) -> int:
        """Find pairs, as many as fit; return the number of pairs written."""
        if self.next is None:
            return 0
        rule = self._rule
        search(
            self._q, self._d, self.same, rule.tail, int(rule.transpositions), self._index, self._tables,
            self._scratch, self.state, out, self.tally,
        )  # fmt: skip
        return int(self.state[DONE])

    def _open(self, q_lengths: np.ndarray, d_lengths: np.ndarray) -> None:
        """Make the index and the scratch arrays."""
        rule, gap = self._rule, int(self._rule.transpositions)
        longest = int(max(q_lengths[-1], d_lengths[-1]))
        limits = rule.limits(longest)
        kinds = kinds_of(d_lengths + 1) - 1  # it needs sizes above 0, but strings may be empty
        firsts = np.append(np.searchsorted(d_lengths, kinds), len(d_lengths))
        widest = np.array([min(rule.longest(length) or 0, longest) for length in kinds.tolist()], np.int64)
        parts = self._parts(kinds, np.diff(firsts), limits[np.maximum(widest, kinds)] + 1, gap)
        entries = int(np.diff(firsts) @ parts)
        buckets = 1 << max(entries - 1, 1).bit_length()
        self._index = (
            np.zeros(buckets + 1, np.int64), np.empty(entries, np.int64),
            np.zeros(entries + LANES, np.int64),
        )  # fmt: skip
        offsets, tokens, _, signatures, _ = self._d
        fill(offsets, tokens, signatures, rule.tail, gap, kinds, firsts, parts, *self._index)
        powers = np.empty(longest + 1, np.int64)
        steps = min(longest, rule.longest(min(longest, WORD)) or 0)
        set_powers(powers)
        places = np.searchsorted(kinds, np.arange(longest + 1))
        self._tables = kinds, firsts, parts, limits, places, powers
        self._scratch = (
            np.empty(longest + 1, np.int64), np.full(len(d_lengths), -1, np.int64),
            np.empty(2 * int(limits[-1]) + 5, np.int64),
            np.zeros(1 + max(int(side[1].max(initial=0)) for side in (self._q, self._d)), np.int64),
            np.empty(LANES, np.int64), np.empty(LANES, np.int64), np.empty(LANES * max(steps, 1), np.int64),
        )  # fmt: skip

    def _parts(self, kinds: np.ndarray, strings: np.ndarray, parts: np.ndarray, gap: int) -> np.ndarray:
        """Return the count of segments of strings of each length; 0: comparing all of them is cheaper.

        `strings`: count of strings of each length.  `parts`: count of segments that an index of them needs.
        """
        lengths = np.maximum(kinds - gap * (parts - 1), 0) // parts
        windows = (parts - 1.0) ** 2 / 3 + parts  # mean over the possible lengths of the other string
        listed = windows * strings * self._repetition() ** lengths
        is_indexed = (lengths > 0) & (LOOKUP * windows + ENTRY * listed < COMPARED * strings)
        return np.where(is_indexed, parts, 0)

    def _repetition(self) -> float:
        """Return the probability that two codes of the index are equal, from a sample."""
        tokens = self._d[1]
        _, found = np.unique(tokens[:: max(len(tokens) // CODES, 1)], return_counts=True)
        return float(((found / max(found.sum(), 1)) ** 2).sum())


def _side(block: SetBlock, tail: int) -> Side:
    """Return a block's arrays for kernels, read-only so that they have one Numba type, and signatures."""
    found = []
    for name, dtype in (("offsets", np.int64), ("tokens", np.int32), ("weights", np.int64)):
        values = np.ascontiguousarray(block[name], dtype).view()  # type: ignore[literal-required]
        values.flags.writeable = False
        found.append(values)
    offsets, tokens, weights = found
    signatures, grams = (np.zeros(len(weights) + LANES, np.int64) for _ in range(2))
    set_signatures(offsets, tokens, tail, np.zeros(64, np.int64), signatures, grams)
    return offsets, tokens, weights, signatures, grams


class CpuEditJoiner:
    """Finds the pairs of blocks of strings within a distance: see `dask_simjoin.sets.methods.SetJoiner`.

    The distance of a pair takes the place of the number of common tokens.
    """

    def batches(self, left: SetBlock, right: SetBlock | None, rule: EditRule,
                method: Any = None) -> Iterator[SetPairs]:  # fmt: skip
        """Yield pairs of distinct strings in batches; the next batch reuses the arrays."""
        search = EditSearch(left, right, rule)
        columns = _columns(BATCH)
        while search.next is not None:
            done = search.run((*columns, NONE, NONE))
            one, other, found = (column[:done] for column in columns)
            if search.same or search.turned:
                one, other = other, one
            yield SetPairs(one, other, found)
            if search.next is not None and done < len(columns[0]) // 2:
                columns = _columns(4 * len(columns[0]))

    def count(self, left: SetBlock, right: SetBlock | None, rule: EditRule, method: Any = None) -> int:
        """Return the number of pairs of rows."""
        return int(_counted(left, right, rule)[TOTAL])

    def counts(self, left: SetBlock, right: SetBlock | None, rule: EditRule,
               method: Any = None) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Return the number of rows that match each string, by side; for one block, one array twice."""
        search = EditSearch(left, right, rule)
        found = np.zeros(len(left["weights"]), np.int64)
        other = found if right is None else np.zeros(len(right["weights"]), np.int64)
        search.run((*_columns(0), *((other, found) if search.turned else (found, other))))
        return found, other

    def counters(self, left: SetBlock, right: SetBlock | None, rule: EditRule,
                 method: Any = None) -> SetCounters:  # fmt: skip
        """Return counters of the work of `count`."""
        return SetCounters(*_counted(left, right, rule)[LISTED:TOTAL].tolist())


JOINER = CpuEditJoiner()


def _columns(room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)


def _counted(left: SetBlock, right: SetBlock | None, rule: EditRule) -> np.ndarray:
    search = EditSearch(left, right, rule)
    search.run((*_columns(0), NONE, NONE))
    return search.tally
