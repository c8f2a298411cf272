"""Join blocks of sets on CPUs: choose an algorithm, and run its Numba kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.sets.cpu.candidates import (
    ADMISSIBLE,
    ENTRIES,
    LOOKUPS,
    OF_LISTS,
    OF_PAIRS,
    READ,
    WORK,
    Out,
    Side,
    sample,
)
from dask_simjoin.sets.cpu.joins import (
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
from dask_simjoin.sets.token_ids import SetBlock, SetCounters, SetPairs, distinct_sizes

NO_COUNTS = np.empty(0, np.int64)
"""Passed to kernels in place of counts that are not needed."""


class BlockSearch:
    """A search for pairs of one or two blocks. It stops if the output is full, and can go on later."""

    is_self_join: bool
    """Whether both blocks are the same. The kernel then writes the later set of a pair first."""
    right_probes: bool
    """Whether the right block provides the probes. The kernel then writes the right set of a pair first."""
    state: np.ndarray
    """State of the kernel: first the next probe (-1: done), last the number of written pairs."""
    tally: np.ndarray  # counters (5,), int64: pairs of rows, then the fields of `SetCounters`

    @property
    def next(self) -> int | None:
        """The next probe; None: the search is complete."""
        return None if self.state[0] < 0 else int(self.state[0])

    def run(self, out: Out) -> int:
        """Go on until the search is complete or the output is full; return the number of written pairs."""
        if self.next is None:
            return 0
        self._find(out)
        return int(self.state[-1])

    def _find(self, out: Out) -> None:
        raise NotImplementedError


class SetSearch(BlockSearch):
    """A search by prefix lists or bitmaps. The block with the larger mean set size provides the probes."""

    def __init__(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod) -> None:
        sides = arrays_of(left), arrays_of(left if right is None else right)
        sizes = [np.diff(side[0]) for side in sides]
        self.is_self_join = right is None
        self.right_probes = False
        self.state = np.full(4, -1, np.int64)
        self.tally = np.zeros(5, np.int64)
        if not all(len(some) for some in sizes):
            return
        if not self.is_self_join and sizes[0].mean() < sizes[1].mean():
            self.right_probes, sides, sizes = True, sides[::-1], sizes[::-1]
        self.state[:] = 0
        self._q, self._d = sides
        self._q_sizes, self._d_sizes = sizes
        self._limits = tuple(rule.limits(int(sizes[0][-1]), int(sizes[1][-1])))
        self._rows = np.zeros((2, int(sizes[1][-1]) + 1), np.int64)
        self._distinct = distinct_sizes(sizes[1])
        self._universe = max(left["universe"], 0 if right is None else right["universe"])
        self.choice = self._open(options_of(method))

    def _find(self, out: Out) -> None:
        sides = self._q, self._d, self.is_self_join, self._limits
        self._join(*sides, *self._operands, self._rows, *self._stamps, self.state, out, self.tally)

    @property
    def _mean_size(self) -> float:
        """Mean size of the probes."""
        return len(self._q[1]) / len(self._q_sizes)

    def _open(self, method: SetMethod | None) -> SetChoice:
        words = None if method is None else method.words
        if isinstance(method, AllPairs | GroupJoin):
            words = 0
        if words:
            words = max(words // 2, 1)
        if isinstance(method, Bitmap) and words:
            return self._open_bitmaps(words)
        prefixes = self._prefixes()
        units = [np.arange(len(self._q_sizes) + 1)] * 2
        if not self.is_self_join:
            units[1] = np.arange(len(self._d_sizes) + 1)
        if isinstance(method, GroupJoin):
            units = self._units(prefixes)
        lists_of = self._lists(units[1], prefixes[1])
        if words is None and len(self._q_sizes) * len(self._d_sizes) <= MAX_UNSAMPLED:
            words = usual_words(self._mean_size)
        if words is None:
            choice = self._choose(method, prefixes, lists_of)
        else:
            choice = SetChoice(not isinstance(method, Bitmap), words)
        if not choice.listed:
            return self._open_bitmaps(choice.words)
        # if few entries are read, checking positions takes longer than merging the rejected pairs
        positions = choice.words > 0 if method is None else not isinstance(method, AllPairs)
        return self._open_lists(choice, positions, units, prefixes, lists_of)

    def _choose(self, method: SetMethod | None, prefixes: list[np.ndarray],
                lists_of: tuple[np.ndarray, int]) -> SetChoice:  # fmt: skip
        places, entries = lists_of
        blocks = [self._d] if self.is_self_join else [self._d, self._q]
        sets, tokens = (sum(len(block[k]) for block in blocks) for k in (2, 1))
        more = sets, tokens, len(self._d[1]), entries, self._mean_size
        if not is_sample_needed(method, Work(self._sample(prefixes, places, 0), *more)):
            return SetChoice(True, 0)
        return choose(method, Work(self._sample(prefixes, places, PARTNERS), *more))

    def _open_bitmaps(self, words: int) -> SetChoice:
        q_bits, d_bits = self._bits(words)
        by_word = np.zeros((words, len(self._d_sizes) + LANES), np.int64)
        by_word[:, : len(self._d_sizes)] = d_bits.T
        self._join: Any = join_bitmaps
        self._operands: tuple[Any, ...] = q_bits, by_word, self._distinct, self._starts(self._d_sizes)
        self._stamps: tuple[Any, ...] = ()
        return SetChoice(False, words)

    def _open_lists(self, choice: SetChoice, positions: bool, units: list[np.ndarray],
                    prefixes: list[np.ndarray], lists_of: tuple[np.ndarray, int]) -> SetChoice:  # fmt: skip
        places, entries = lists_of
        capacity = entries + LANES
        index = (
            *units, *prefixes, places, np.zeros(capacity, np.int32), np.zeros(capacity, np.int32),
            np.zeros((choice.words, capacity), np.int64),
        )  # fmt: skip
        self._join = join_lists
        starts = self._starts(self._d_sizes[units[1][:-1]])
        self._operands = positions, *self._bits(choice.words), index, self._distinct, starts
        self._stamps = (np.zeros(len(units[1]) - 1, np.int64),)
        return choice

    def _starts(self, sizes: np.ndarray) -> np.ndarray:
        """Return the position of the first set of each distinct size, followed by the number of sets."""
        return np.append(np.searchsorted(sizes, self._distinct), len(sizes))

    def _prefixes(self) -> list[np.ndarray]:
        """For both blocks, return the prefix length of each set size."""
        found = []
        for sizes, others, own in (
            (self._q_sizes, self._d_sizes, False),
            (self._d_sizes, self._q_sizes, True),
        ):
            prefixes = np.zeros(int(sizes[-1]) + 1, np.int64)
            set_prefixes(self._limits, int(others[0]), own and self.is_self_join, prefixes)
            found.append(prefixes)
        return found

    def _units(self, prefixes: list[np.ndarray]) -> list[np.ndarray]:
        """For both blocks, return the start of each run of sets with equal sizes and prefixes."""
        found = []
        for (offsets, tokens, _), own in zip((self._q, self._d), prefixes, strict=True):
            units = np.empty(len(offsets), np.int64)
            longest = prefixes[0] if self.is_self_join else own
            found.append(units[: find_units(offsets, tokens, longest, units) + 1].copy())
        return found

    def _lists(self, units: np.ndarray, prefixes: np.ndarray) -> tuple[np.ndarray, int]:
        """Return where each token's list starts and ends, and the number of entries of all lists."""
        offsets, tokens, _ = self._d
        entries = int(prefixes[self._d_sizes[units[:-1]]].sum())
        # if tokens are more than twice the entries, several tokens share a list, to save memory
        many = max(min(self._universe, 2 * entries), 1)
        places = np.zeros((1 << (many - 1).bit_length(), 2), np.int64)
        open_lists(offsets, tokens, units, prefixes, places)
        return places, entries

    def _sample(self, prefixes: list[np.ndarray], places: np.ndarray, partners: int) -> np.ndarray:
        """Return the counters of `sample`, for all probes."""
        step = max(len(self._q_sizes) // SAMPLED_SETS, 1)
        # larger bitmaps are not worth their memory for sets of this mean size
        sizes = min(max(int(self._mean_size).bit_length() + 1, 3), len(WORDS))
        counted = np.zeros((3, len(WORDS) + 1))
        starts = self._starts(self._d_sizes)
        before = np.append(0, np.cumsum(np.diff(starts) * prefixes[1][self._distinct]))
        sample(
            self._q, self._d, self.is_self_join, self._limits, prefixes[0], places, self._distinct, starts,
            before, step, partners, (MERGE, MERGE_TOKEN), np.empty((2, WORDS[sizes - 1]), np.int64), counted,
        )  # fmt: skip
        return counted[:, : sizes + 1] * step

    def _bits(self, words: int) -> list[np.ndarray]:
        """Return the bitmaps (sets, words) of both blocks."""
        found = []
        for offsets, tokens, _ in (self._q,) if self.is_self_join else (self._q, self._d):
            bits = np.zeros((len(offsets) - 1, words), np.int64)
            if words:
                set_bits(offsets, tokens, bits)
            found.append(bits)
        return [found[0], found[-1]]


def arrays_of(block: SetBlock) -> Side:
    """Return the arrays of a block, all read-only, so that Numba compiles each kernel only once."""
    found = []
    for name, dtype in (("offsets", np.int64), ("tokens", np.int32), ("weights", np.int64)):
        values = np.ascontiguousarray(block[name], dtype).view()  # type: ignore[literal-required]
        values.flags.writeable = False
        found.append(values)
    offsets, tokens, weights = found
    return offsets, tokens, weights


BATCH = 1 << 18
"""Pairs per batch. A set with more partners gets a larger batch."""


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
            done = search.run((*columns, NO_COUNTS, NO_COUNTS))
            one, other, found = (column[:done] for column in columns)
            if search.is_self_join or search.right_probes:
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
        search.run((*_columns(0), *((other, found) if search.right_probes else (found, other))))
        return found, other

    def counters(self, left: SetBlock, right: SetBlock | None, rule: Any,
                 method: str | SetMethod = AUTO) -> SetCounters:  # fmt: skip
        return SetCounters(*self._tally(left, right, rule, method)[1:].tolist())

    def _tally(
        self, left: SetBlock, right: SetBlock | None, rule: Any, method: str | SetMethod
    ) -> np.ndarray:
        search = self._search(left, right, rule, method)
        search.run((*_columns(0), NO_COUNTS, NO_COUNTS))
        return search.tally


JOINER = CpuSetJoiner()


def _columns(capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity, np.int32)


WORDS = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of a bitmap, in words of 64 bits."""

MAX_BITMAP_BYTES = 16
"""If the joiner chooses the size of bitmaps, they take at most this many bytes per token of a block."""

SAMPLED_SETS = 64
"""To choose an algorithm, about this many sets of the probing block are compared."""

PARTNERS = 15
"""Each sampled set is compared with about this many sets."""

MAX_UNSAMPLED = 1 << 20
"""If there are at most this many pairs of sets, no sample is taken, because every algorithm is fast."""

LOOKUP = 8.0
"""Nanoseconds for finding the list of a token."""

INSERT, INSERT_WORD = 10.0, 4.0
"""Nanoseconds for adding an entry to a list, and for each word of its bitmap."""

READ_BITMAPS = 18.0
"""Nanoseconds for the first bitmaps that are read from a list."""

ENTRY_WORD = 0.18
"""Nanoseconds for each word of an entry's bitmap that is compared."""

PAIR, PAIR_WORD = 0.14, 0.12
"""Nanoseconds for comparing the bitmaps of a pair of sets, and for each word of them."""

BITMAP, FLIP = 5.0, 2.2
"""Nanoseconds for building the bitmap of a set, and for each of its tokens."""

MERGE, MERGE_TOKEN = 35.0, 0.67
"""Nanoseconds for merging the sets of an entry, and for each token that two matching sets may not share.

`MERGE_TOKEN` counts these tokens only, because the merge of two sets that are too different stops early.
"""

MERGE_OF_PAIR = 2.7
"""Merging the sets of a pair takes this many times as long as merging two sets for an entry.

Entries of a list are merged after the common token, and each pair only once.
"""


class SetChoice(NamedTuple):
    """An algorithm: an index of token lists or all pairs (`listed`), and words per bitmap (0: no bitmaps)."""

    listed: bool
    words: int


class Work(NamedTuple):
    """Estimated work for two blocks."""

    counted: np.ndarray  # (3, bitmap sizes + 1): the counters of `sample`, scaled to all probes
    # sets whose bitmaps are built, and their tokens
    sets: int
    tokens: int
    indexed: int  # tokens of the sets in the index
    entries: int  # entries of the index
    mean_size: float  # mean size of the probes


def choose(method: SetMethod | None, work: Work) -> SetChoice:
    """Return the cheapest algorithm for a method; None: of all methods."""
    every = costs(work)
    # an index has a copy of a set's bitmap in each of its entries; without one, there are two copies per set
    entries = work.entries / max(work.indexed, 1)
    max_words = {
        True: MAX_BITMAP_BYTES / (8 * max(entries, 1 / MAX_BITMAP_BYTES)),
        False: MAX_BITMAP_BYTES * work.mean_size / 16,
    }
    of_method = [one for one in every if method is None or one.listed != isinstance(method, Bitmap)]
    allowed = [one for one in of_method if one.words <= max(max_words[one.listed], 1)]
    return min(allowed, key=every.__getitem__)


def costs(work: Work) -> dict[SetChoice, float]:
    """Return the estimated nanoseconds of each algorithm."""
    counted = work.counted
    lists = counted[WORK, LOOKUPS] * LOOKUP + work.entries * INSERT
    bitmaps = work.sets * BITMAP + work.tokens * FLIP
    found = {SetChoice(True, 0): float(lists + counted[OF_LISTS, 0])}
    for words, of_list, of_pair in zip(WORDS, counted[OF_LISTS, 1:], counted[OF_PAIRS, 1:], strict=False):
        copies = work.entries * INSERT_WORD * words
        reads = counted[WORK, READ] * READ_BITMAPS + counted[WORK, ENTRIES] * ENTRY_WORD * words
        pairs = counted[WORK, ADMISSIBLE] * (PAIR + PAIR_WORD * words)
        found[SetChoice(True, words)] = float(lists + bitmaps + copies + reads + of_list)
        found[SetChoice(False, words)] = float(bitmaps + pairs + of_pair * MERGE_OF_PAIR)
    return found


def is_sample_needed(method: SetMethod | None, work: Work) -> bool:
    """Return whether a sample of pairs could lead to another choice than lists without bitmaps.

    `work` has the counters without partners, as if bitmaps rejected all pairs. So the costs of bitmaps are
    too low.
    """
    if isinstance(method, Bitmap):
        return True
    every = costs(work)
    sampling = SAMPLED_SETS * (PARTNERS + 1) * (BITMAP + FLIP * work.mean_size)
    return every.pop(SetChoice(True, 0)) > sampling + min(every.values())


def usual_words(mean_size: float) -> int:
    """Return how many words a bitmap needs to reject most pairs of sets of this mean size."""
    return next((words for words in WORDS if 16 * words >= mean_size), WORDS[-1])
