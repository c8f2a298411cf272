"""Join blocks of sets in NumPy arrays with Numba kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.sets.cpu.kernels.candidates import (
    ADMISSIBLE,
    COMPARED,
    ENTRIES,
    LEFT,
    LOOKUPS,
    Out,
    Side,
    sample,
)
from dask_simjoin.sets.cpu.kernels.joins import (
    LANES,
    find_units,
    join_bitmaps,
    join_lists,
    open_lists,
    set_bits,
    set_prefixes,
)
from dask_simjoin.sets.methods import AUTO, AllPairs, Bitmap, GroupJoin, SetMethod, options_of
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.token_ids import SetBlock, SetCounters, SetPairs, kinds_of

WORDS = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of bitmaps in words of 64 bits."""

MAX_BITMAP_BYTES = 16
"""Largest number of bytes of bitmaps per token of a block, if the joiner chooses them."""

PAIR, PAIR_WORD = 0.1, 0.075
ENTRY, ENTRY_WORD = 0.7, 0.12
LOOKUP = 8.0
MERGE, MERGE_TOKEN = 15.0, 1.4
"""Nanoseconds, measured with vectors of 512 bits.

`PAIR`, `PAIR_WORD`: to compare two bitmaps, and for each of their words.  `ENTRY`, `ENTRY_WORD`: to read an
entry of a list, and for each word of its bitmap.  `LOOKUP`: to find a list.  `MERGE`, `MERGE_TOKEN`: to
compare two sets, and for each of their tokens.
"""


class SetChoice(NamedTuple):
    """How pairs are found: with or without lists, and with bitmaps of `words` words; 0: no bitmaps."""

    listed: bool
    words: int


def choose(method: SetMethod | None, counted: np.ndarray, mean_size: float, entries: float) -> SetChoice:
    """Return the cheapest choice that a method allows; None: all methods.

    `counted`: counters of `sample`.  `entries`: number of entries of lists per token of the block.
    """
    every = costs(counted, mean_size)
    # without lists, bitmaps are kept in two orders; with lists, each entry has a bitmap
    max_words = {
        True: MAX_BITMAP_BYTES / (8 * max(entries, 1 / MAX_BITMAP_BYTES)),
        False: MAX_BITMAP_BYTES * mean_size / 16,
    }
    of_method = [one for one in every if method is None or one.listed != isinstance(method, Bitmap)]
    allowed = [one for one in of_method if one.words <= max(max_words[one.listed], 1)]
    return min(allowed, key=every.__getitem__)


def costs(counted: np.ndarray, mean_size: float) -> dict[SetChoice, float]:
    """Return the nanoseconds of each choice, from the counters of `sample`."""
    merge = MERGE + MERGE_TOKEN * mean_size
    share = counted[LEFT:] / max(counted[COMPARED], 1.0)
    found: dict[SetChoice, float] = {}
    for words, left in zip((0, *WORDS), (1.0, *share), strict=False):
        entry = ENTRY + ENTRY_WORD * words + left * merge
        found[SetChoice(True, words)] = counted[LOOKUPS] * LOOKUP + counted[ENTRIES] * entry
        if words:
            found[SetChoice(False, words)] = counted[ADMISSIBLE] * (PAIR + PAIR_WORD * words + left * merge)
    return found


def usual_words(mean_size: float) -> int:
    """Return the number of bitmap words that rejects most pairs of sets of this mean size."""
    return next((words for words in WORDS if 16 * words >= mean_size), WORDS[-1])


SAMPLE = 128
"""Number of sampled sets of the looked-up side, for the choice of a method and of bitmaps."""

FEW = 1 << 20
"""For at most this many pairs of sets, no sample is taken: every method is fast."""

NONE = np.empty(0, np.int64)
"""Stands for arrays of counts that are not wanted."""


class BlockSearch:
    """Finds the pairs of two blocks, or of one with itself, as many at a time as fit."""

    same: bool
    """Whether it finds the pairs within one block; then the kernel writes the later set of a pair first."""
    turned: bool
    """Whether the right block is looked up in the left one; then the kernel writes right sets first."""
    state: np.ndarray
    """First the next set to look up, or -1; last the number of pairs written."""
    tally: np.ndarray
    """(5,), int64: number of pairs of rows, and the fields of `SetCounters`."""

    @property
    def next(self) -> int | None:
        """The next set; None: the search is complete."""
        return None if self.state[0] < 0 else int(self.state[0])

    def run(self, out: Out) -> int:
        """Find pairs until no more fit; return the number of pairs written."""
        if self.next is None:
            return 0
        self._find(out)
        return int(self.state[-1])

    def _find(self, out: Out) -> None:
        raise NotImplementedError


class SetSearch(BlockSearch):
    """Looks up the side with the larger sets on average in the other side."""

    def __init__(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod) -> None:
        sides = arrays_of(left), arrays_of(left if right is None else right)
        sizes = [np.diff(side[0]) for side in sides]
        self.same = right is None
        self.turned = False
        self.state = np.full(4, -1, np.int64)
        self.tally = np.zeros(5, np.int64)
        if not all(len(some) for some in sizes):
            return
        if not self.same and sizes[0].mean() < sizes[1].mean():
            self.turned, sides, sizes = True, sides[::-1], sizes[::-1]
        self.state[:] = 0
        self._q, self._d = sides
        self._q_sizes, self._d_sizes = sizes
        self._limits = tuple(rule.limits(int(sizes[0][-1]), int(sizes[1][-1])))
        self._rows = np.zeros((2, int(sizes[1][-1]) + 1), np.int64)
        self._kinds = kinds_of(sizes[1])
        self._universe = max(left["universe"], 0 if right is None else right["universe"])
        self.choice = self._open(options_of(method))

    def _find(self, out: Out) -> None:
        same = self._q, self._d, self.same, self._limits
        self._join(*same, *self._operands, self._rows, *self._stamps, self.state, out, self.tally)

    def _open(self, method: SetMethod | None) -> SetChoice:
        """Make the arrays of a method, or of the best one."""
        words = None if method is None else method.words
        if isinstance(method, AllPairs | GroupJoin):
            words = 0
        if words:
            words = max(words // 2, 1)
        if isinstance(method, Bitmap) and words:
            return self._open_bitmaps(words)
        prefixes = self._prefixes()
        units = [np.arange(len(self._q_sizes) + 1)] * 2
        if not self.same:
            units[1] = np.arange(len(self._d_sizes) + 1)
        if isinstance(method, GroupJoin):
            units = self._units(prefixes)
        lists_of = self._lists(units[1], prefixes[1])
        mean = float(self._q_sizes.mean())
        if words is None and len(self._q_sizes) * len(self._d_sizes) <= FEW:
            words = usual_words(mean)
        if words is None:
            entries = lists_of[1] / len(self._d[1])
            choice = choose(method, self._sample(prefixes[0], lists_of[0]), mean, entries)
        else:
            choice = SetChoice(not isinstance(method, Bitmap), words)
        if not choice.listed:
            return self._open_bitmaps(choice.words)
        return self._open_lists(choice, not isinstance(method, AllPairs), units, prefixes, lists_of)

    def _open_bitmaps(self, words: int) -> SetChoice:
        q_bits, d_bits = self._bits(words)
        by_word = np.zeros((words, len(self._d_sizes) + LANES), np.int64)
        by_word[:, : len(self._d_sizes)] = d_bits.T
        self._join: Any = join_bitmaps
        self._operands: tuple[Any, ...] = q_bits, by_word, self._kinds, self._starts(self._d_sizes)
        self._stamps: tuple[Any, ...] = ()
        return SetChoice(False, words)

    def _open_lists(self, choice: SetChoice, positions: bool, units: list[np.ndarray],
                    prefixes: list[np.ndarray], lists_of: tuple[np.ndarray, int]) -> SetChoice:  # fmt: skip
        places, entries = lists_of
        room = entries + LANES
        index = (
            *units, *prefixes, places, np.zeros(room, np.int32), np.zeros(room, np.int32),
            np.zeros((choice.words, room), np.int64),
        )  # fmt: skip
        self._join = join_lists
        starts = self._starts(self._d_sizes[units[1][:-1]])
        self._operands = positions, *self._bits(choice.words), index, self._kinds, starts
        self._stamps = (np.zeros(len(units[1]) - 1, np.int64),)
        return choice

    def _starts(self, sizes: np.ndarray) -> np.ndarray:
        """Return the position of the first set of each distinct size, and the number of sets."""
        return np.append(np.searchsorted(sizes, self._kinds), len(sizes))

    def _prefixes(self) -> list[np.ndarray]:
        """Return the lengths of prefixes by size, for both sides."""
        found = []
        for sizes, others, own in (
            (self._q_sizes, self._d_sizes, False),
            (self._d_sizes, self._q_sizes, True),
        ):
            prefixes = np.zeros(int(sizes[-1]) + 1, np.int64)
            set_prefixes(self._limits, int(others[0]), own and self.same, prefixes)
            found.append(prefixes)
        return found

    def _units(self, prefixes: list[np.ndarray]) -> list[np.ndarray]:
        """Return the starts of groups of sets with equal sizes and prefixes, for both sides."""
        found = []
        for (offsets, tokens, _), own in zip((self._q, self._d), prefixes, strict=True):
            units = np.empty(len(offsets), np.int64)
            longest = prefixes[0] if self.same else own
            found.append(units[: find_units(offsets, tokens, longest, units) + 1].copy())
        return found

    def _lists(self, units: np.ndarray, prefixes: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the bounds of the lists of tokens, and their total capacity."""
        offsets, tokens, _ = self._d
        entries = int(prefixes[self._d_sizes[units[:-1]]].sum())
        # one list per token, but at most about two lists per entry: tokens then share lists
        many = max(min(self._universe, 2 * entries), 1)
        places = np.zeros((1 << (many - 1).bit_length(), 2), np.int64)
        open_lists(offsets, tokens, units, prefixes, places)
        return places, entries

    def _sample(self, prefixes: np.ndarray, places: np.ndarray) -> np.ndarray:
        step = max(len(self._q_sizes) // SAMPLE, 1)
        # larger bitmaps are not worth their memory for sets of this mean size
        kinds = min(int(self._q_sizes.mean()).bit_length() + 1, len(WORDS))
        counted = np.zeros(LEFT + kinds)
        sample(
            self._q, self._d, self.same, self._limits, prefixes, places, self._kinds,
            self._starts(self._d_sizes), self._rows, step, np.empty(WORDS[kinds - 1], np.int64), counted,
        )  # fmt: skip
        return counted

    def _bits(self, words: int) -> list[np.ndarray]:
        """Return the bitmaps of both sides' sets (n, words)."""
        found = []
        for offsets, tokens, _ in (self._q,) if self.same else (self._q, self._d):
            bits = np.zeros((len(offsets) - 1, words), np.int64)
            if words:
                set_bits(offsets, tokens, bits)
            found.append(bits)
        return [found[0], found[-1]]


def arrays_of(block: SetBlock) -> Side:
    """Return a block's arrays for kernels: all are read-only, so they have one Numba type."""
    found = []
    for name, dtype in (("offsets", np.int64), ("tokens", np.int32), ("weights", np.int64)):
        values = np.ascontiguousarray(block[name], dtype).view()  # type: ignore[literal-required]
        values.flags.writeable = False
        found.append(values)
    offsets, tokens, weights = found
    return offsets, tokens, weights


BATCH = 1 << 18
"""Pairs per batch, unless one set has more partners."""


class CpuSetJoiner:
    """See `SetJoiner`."""

    def _search(
        self, left: SetBlock, right: SetBlock | None, rule: Any, method: str | SetMethod
    ) -> BlockSearch:
        return SetSearch(left, right, rule, method)

    def batches(self, left: SetBlock, right: SetBlock | None, rule: Any,
                method: str | SetMethod = AUTO) -> Iterator[SetPairs]:  # fmt: skip
        search = self._search(left, right, rule, method)
        columns = _columns(BATCH)
        while search.next is not None:
            done = search.run((*columns, NONE, NONE))
            one, other, found = (column[:done] for column in columns)
            if search.same or search.turned:
                one, other = other, one
            yield SetPairs(one, other, found)
            if search.next is not None and done < len(columns[0]) // 2:
                columns = _columns(4 * len(columns[0]))

    def count(self, left: SetBlock, right: SetBlock | None, rule: Any, method: str | SetMethod = AUTO) -> int:
        return int(self._tally(left, right, rule, method)[0])

    def counts(self, left: SetBlock, right: SetBlock | None, rule: Any,
               method: str | SetMethod = AUTO) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        search = self._search(left, right, rule, method)
        found = np.zeros(len(left["weights"]), np.int64)
        other = found if right is None else np.zeros(len(right["weights"]), np.int64)
        search.run((*_columns(0), *((other, found) if search.turned else (found, other))))
        return found, other

    def counters(self, left: SetBlock, right: SetBlock | None, rule: Any,
                 method: str | SetMethod = AUTO) -> SetCounters:  # fmt: skip
        return SetCounters(*self._tally(left, right, rule, method)[1:].tolist())

    def _tally(
        self, left: SetBlock, right: SetBlock | None, rule: Any, method: str | SetMethod
    ) -> np.ndarray:
        search = self._search(left, right, rule, method)
        search.run((*_columns(0), NONE, NONE))
        return search.tally


JOINER = CpuSetJoiner()


def _columns(room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
