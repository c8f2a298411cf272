"""Join blocks of sets on CPUs: choose an algorithm, and run its Numba kernels."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import numpy as np

from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.process import interruptible, together
from dask_simjoin.sets.cpu.candidates import (
    Out,
    Side,
    SizeEntries,
    sample,
)
from dask_simjoin.sets.cpu.choice import (
    MERGE,
    MERGE_TOKEN,
    PARTNERS,
    WORDS,
    SetChoice,
    Work,
    choose,
    is_sample_needed,
    usual_words,
)
from dask_simjoin.sets.cpu.joins import (
    Sizes,
    find_units,
    join_bitmaps,
    join_lists,
    open_lists,
    set_bits,
    set_prefixes,
)
from dask_simjoin.sets.methods import (
    AUTO,
    AllPairs,
    Bitmap,
    GroupJoin,
    SetMethod,
    options_of,
)
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.token_ids import SetBlock, SetCounters, SetPairs, distinct_sizes
from dask_simjoin.sizes import BATCH, MIN_PART, PARTITION, PROBED

Made = TypeVar("Made")

NO_COUNTS = np.empty(0, np.int64)
"""Passed to kernels in place of arrays for counts, if counts are not needed."""


QUICK = 1e9
"""A search of at most this many steps takes less than a second, so it runs in the
calling thread. Starting a thread takes 0.1 ms.
"""


class BlockSearch:
    """A search for pairs in one block of sets, or between two. It stops when the output
    is full, and can be continued.
    """

    part: tuple[int, int] = (0, 1)
    """The share of the probes that this search has: (index of the share, number of
    shares).
    """
    is_self_join: bool
    """Whether both blocks are the same. If so, the kernel writes the later set of each
    pair first.
    """
    right_probes: bool
    """Whether the probes are in the right block.

    If so, the kernel writes the right set of each pair first.
    """
    state: np.ndarray
    """State of the kernel. The first item is the next probe (-1: done), and the last
    the number of written pairs. The kernel stops if the second last is not 0.
    """
    max_steps: float
    """Upper bound of the elementary steps that the search takes."""
    # counters (5,), int64: pairs of rows, then the fields of `SetCounters`
    tally: np.ndarray
    # arrays of the block of probes: first its offsets, tokens and weights
    _q: tuple[Any, ...]

    @property
    def next(self) -> int | None:
        """The next probe; None if the search is complete, or was stopped."""
        is_done = self.state[0] < 0 or self.state[-2]
        return None if is_done else int(self.state[0])

    def run(self, out: Out) -> int:
        """Continue until the search is complete or the output is full. Return the
        number of pairs written.
        """
        if self.next is None:
            return 0
        if self.max_steps <= QUICK:
            self._find(out)
        else:
            interruptible(functools.partial(self._find, out), self._stop)
        return int(self.state[-1])

    def batches(self) -> Iterator[SetPairs]:
        """Continue until the search is complete. Yield the pairs in batches, see
        `SetJoiner.batches`.
        """
        columns = _columns(BATCH)
        while self.next is not None:
            done = self.run((*columns, NO_COUNTS, NO_COUNTS))
            one, other, found = (column[:done] for column in columns)
            if self.is_self_join or self.right_probes:
                one, other = other, one
            yield SetPairs(one, other, found)
            if self.next is not None and done < len(columns[0]) // 2:
                columns = _columns(4 * len(columns[0]))

    def by_threads(
        self, threads: int, work: Callable[[BlockSearch], Made]
    ) -> list[Made]:
        """Search by several threads, which share the index. `work` runs the search of a
        share of the probes. Return its results in the order of the probes.
        """
        tokens = 0 if self.next is None else int(self._probe_offsets[-1])
        threads = min(threads, tokens // MIN_PART)
        if threads < 2:
            return [work(self)]
        self._complete_index()
        bounds = self._bounds(4 * threads)
        shares, running = len(bounds) - 1, set()

        def run(k: int) -> Made:
            own = self._share(bounds[k], bounds[k + 1])
            own.part = k, shares
            running.add(own)
            own.state[-2] = self.state[-2]  # `stop` may not have seen it
            try:
                return work(own)
            finally:
                running.remove(own)

        def stop() -> None:
            self._stop()
            for search in tuple(running):
                search._stop()

        calls = [functools.partial(run, k) for k in range(shares)]
        return together(calls, threads, stop)

    def _bounds(self, shares: int) -> list[int]:
        """Cut the probes into shares with about equal numbers of tokens. Return where
        they begin, and the number of probes.
        """
        offsets = self._probe_offsets
        wanted = int(offsets[-1]) * np.arange(1, shares) // shares
        cuts = np.searchsorted(offsets[:-1], wanted)
        return np.unique([0, *cuts, len(offsets) - 1]).tolist()

    @property
    def _probe_offsets(self) -> np.ndarray:
        """Start of the tokens of each probe, and the end (probes + 1,)."""
        offsets: np.ndarray = self._q[0]
        return offsets

    def _complete_index(self) -> None:
        """Make the index such that several threads can read it."""

    def _share(self, start: int, stop: int) -> Self:
        """Return a search of the probes `start` to `stop` - 1, for one thread. It has
        state and scratch arrays of its own, and shares the index.
        """
        own = copy.copy(self)
        own.state, own.tally = self.state.copy(), self.tally.copy()
        own.state[0] = start
        offsets, tokens, weights, *more = self._q
        own._q = offsets, tokens, weights[:stop], *more
        return own

    def _stop(self) -> None:
        self.state[-2] = 1

    def _find(self, out: Out) -> None:
        raise NotImplementedError


class SetSearch(BlockSearch):
    """A search by lists of tokens or by bitmaps. The probes are in the block whose sets
    are larger on average.
    """

    def __init__(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
    ) -> None:
        sides = arrays_of(left), arrays_of(left if right is None else right)
        sizes = [np.diff(side[0]) for side in sides]
        self.is_self_join = right is None
        self.right_probes = False
        self.state = np.full(5, -1, np.int64)
        self.tally = np.zeros(5, np.int64)
        self.max_steps = 0.0
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
        self._universe = max(
            left["universe"], 0 if right is None else right["universe"]
        )
        self.choice = self._open(options_of(method))
        self.max_steps = float(len(self._q_sizes)) * len(self._d[1])
        self.max_steps += float(len(self._d_sizes)) * len(self._q[1])

    def _find(self, out: Out) -> None:
        sides = self._q, self._d, self.is_self_join, self._limits
        self._join(
            *sides,
            *self._operands,
            (self._rows, *self._stamps),
            self.state,
            out,
            self.tally,
        )

    @property
    def _probe_offsets(self) -> np.ndarray:
        offsets: np.ndarray = self._q[0]
        return offsets[self._units]

    def _complete_index(self) -> None:
        if self.choice.listed:
            self.state[0] = len(self._units) - 1  # behind the last probe
            self._find((*_columns(0), NO_COUNTS, NO_COUNTS))
            self.state[0] = 0

    def _share(self, start: int, stop: int) -> Self:
        own = super()._share(start, int(self._units[stop]))
        own._rows = self._rows.copy()
        own._stamps = tuple(stamps.copy() for stamps in self._stamps)
        if self.choice.listed:
            _, *more, lists, entries, places, words = self._index
            # the kernel moves the starts of lists
            more += lists.copy(), entries, places, words
            own._index = self._units[: stop + 1], *more
            positions, bits, _, sizes = self._operands
            own._operands = positions, bits, own._index, sizes
        return own

    @property
    def _mean_size(self) -> float:
        """Mean size of the probes, in tokens."""
        return len(self._q[1]) / len(self._q_sizes)

    def _open(self, method: SetMethod | None) -> SetChoice:
        self._units = np.arange(len(self._q_sizes) + 1)
        words = None if method is None else method.words
        if isinstance(method, AllPairs | GroupJoin):
            words = 0
        if words:
            words = max(words // 2, 1)
        if isinstance(method, Bitmap) and words:
            return self._open_bitmaps(words)
        prefixes = self._prefixes()
        units = [self._units] * 2
        if not self.is_self_join:
            units[1] = np.arange(len(self._d_sizes) + 1)
        if isinstance(method, GroupJoin):
            units = self._find_units(prefixes)
            self._units = units[0]
        lists_of = self._lists(units[1], prefixes[1])
        if words is None and len(self._q_sizes) * len(self._d_sizes) <= PARTITION:
            words = usual_words(self._mean_size)
        if words is None:
            choice = self._choose(method, prefixes, lists_of)
        else:
            choice = SetChoice(not isinstance(method, Bitmap), words)
        if not choice.listed:
            return self._open_bitmaps(choice.words)
        # if few entries are read, it is faster to merge all pairs than to check
        # positions first
        positions = (
            choice.words > 0 if method is None else not isinstance(method, AllPairs)
        )
        return self._open_lists(choice, positions, units, prefixes, lists_of)

    def _choose(
        self,
        method: SetMethod | None,
        prefixes: list[np.ndarray],
        lists_of: tuple[np.ndarray, int],
    ) -> SetChoice:
        places, entries = lists_of
        blocks = [self._d] if self.is_self_join else [self._d, self._q]
        sets, tokens = (sum(len(block[k]) for block in blocks) for k in (2, 1))
        more = sets, tokens, len(self._d[1]), entries, self._mean_size
        if not is_sample_needed(method, Work(self._sample(prefixes, places, 0), *more)):
            return SetChoice(True, 0)
        return choose(method, Work(self._sample(prefixes, places, PARTNERS), *more))

    def _open_bitmaps(self, words: int) -> SetChoice:
        q_bits, d_bits = self._bits(words)
        by_word = np.zeros((words, len(self._d_sizes) + SWEEP_LANES), np.int64)
        by_word[:, : len(self._d_sizes)] = d_bits.T
        self._join: Any = join_bitmaps
        self._operands: tuple[Any, ...] = (
            (q_bits, by_word),
            Sizes(self._distinct, self._starts(self._d_sizes)),
        )
        self._stamps: tuple[Any, ...] = ()
        return SetChoice(False, words)

    def _open_lists(
        self,
        choice: SetChoice,
        positions: bool,
        units: list[np.ndarray],
        prefixes: list[np.ndarray],
        lists_of: tuple[np.ndarray, int],
    ) -> SetChoice:
        places, entries = lists_of
        capacity = entries + SWEEP_LANES
        self._index = (
            *units,
            *prefixes,
            places,
            np.zeros(capacity, np.int32),
            np.zeros(capacity, np.int32),
            np.zeros((choice.words, capacity), np.int64),
        )
        self._join = join_lists
        starts = self._starts(self._d_sizes[units[1][:-1]])
        self._operands = (
            positions,
            tuple(self._bits(choice.words)),
            self._index,
            Sizes(self._distinct, starts),
        )
        self._stamps = (np.zeros(len(units[1]) - 1, np.int64),)
        return choice

    def _starts(self, sizes: np.ndarray) -> np.ndarray:
        """For each distinct size, return the position of the first set with it; at the
        end, the number of sets.
        """
        return np.append(np.searchsorted(sizes, self._distinct), len(sizes))

    def _prefixes(self) -> list[np.ndarray]:
        """For both blocks, return the prefix length for each set size."""
        found = []
        for sizes, others, own in (
            (self._q_sizes, self._d_sizes, False),
            (self._d_sizes, self._q_sizes, True),
        ):
            prefixes = np.zeros(int(sizes[-1]) + 1, np.int64)
            set_prefixes(
                self._limits, int(others[0]), own and self.is_self_join, prefixes
            )
            found.append(prefixes)
        return found

    def _find_units(self, prefixes: list[np.ndarray]) -> list[np.ndarray]:
        """For each block, return where each run of sets with equal sizes and equal
        prefixes starts.
        """
        found = []
        for (offsets, tokens, _), own in zip((self._q, self._d), prefixes, strict=True):
            units = np.empty(len(offsets), np.int64)
            longest = prefixes[0] if self.is_self_join else own
            found.append(
                units[: find_units(offsets, tokens, longest, units) + 1].copy()
            )
        return found

    def _lists(self, units: np.ndarray, prefixes: np.ndarray) -> tuple[np.ndarray, int]:
        """Return where the list of each token starts and ends, and the number of
        entries in all lists.
        """
        offsets, tokens, _ = self._d
        entries = int(prefixes[self._d_sizes[units[:-1]]].sum())
        # if there are more than twice as many tokens as entries, several tokens share a
        # list, which saves memory
        many = max(min(self._universe, 2 * entries), 1)
        places = np.zeros((1 << (many - 1).bit_length(), 2), np.int64)
        open_lists(offsets, tokens, units, prefixes, places)
        return places, entries

    def _sample(
        self, prefixes: list[np.ndarray], places: np.ndarray, partners: int
    ) -> np.ndarray:
        """Return the counters of `sample`, scaled from the sampled probes to all
        probes.
        """
        step = max(len(self._q_sizes) // PROBED, 1)
        # for sets of this mean size, larger bitmaps are not worth their memory
        sizes = min(max(int(self._mean_size).bit_length() + 1, 3), len(WORDS))
        counted = np.zeros((3, len(WORDS) + 1))
        starts = self._starts(self._d_sizes)
        before = np.append(0, np.cumsum(np.diff(starts) * prefixes[1][self._distinct]))
        sample(
            self._q,
            self._d,
            self.is_self_join,
            self._limits,
            prefixes[0],
            places,
            SizeEntries(self._distinct, starts, before),
            step,
            partners,
            (MERGE, MERGE_TOKEN),
            np.empty((2, WORDS[sizes - 1]), np.int64),
            counted,
        )
        return counted[:, : sizes + 1] * step

    def _bits(self, words: int) -> list[np.ndarray]:
        """Return the bitmaps of the sets in both blocks, as two arrays (sets, words)."""
        found = []
        for offsets, tokens, _ in (
            (self._q,) if self.is_self_join else (self._q, self._d)
        ):
            bits = np.zeros((len(offsets) - 1, words), np.int64)
            if words:
                set_bits(offsets, tokens, bits)
            found.append(bits)
        return [found[0], found[-1]]


def arrays_of(block: SetBlock) -> Side:
    """Return the arrays of a block as read-only arrays.

    For writable arrays, Numba would compile each kernel once more.
    """
    found = []
    for name, dtype in (
        ("offsets", np.int64),
        ("tokens", np.int32),
        ("weights", np.int64),
    ):
        values = np.ascontiguousarray(block[name], dtype).view()  # type: ignore[literal-required]
        values.flags.writeable = False
        found.append(values)
    offsets, tokens, weights = found
    return offsets, tokens, weights


class CpuSetJoiner:
    """See `SetJoiner`."""

    def search(
        self, left: SetBlock, right: SetBlock | None, rule: Any, method: str | SetMethod
    ) -> BlockSearch:
        """Prepare a search: choose an algorithm, and make its index."""
        return SetSearch(left, right, rule, method)

    def batches(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Any,
        method: str | SetMethod = AUTO,
    ) -> Iterator[SetPairs]:
        return self.search(left, right, rule, method).batches()

    def count(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Any,
        method: str | SetMethod = AUTO,
        threads: int = 1,
    ) -> int:
        return int(self._tally(left, right, rule, method, threads)[0])

    def counts(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Any,
        method: str | SetMethod = AUTO,
        threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        sides, adding = [left] if right is None else [left, right], threading.Lock()
        counts = [np.zeros(len(side["weights"]), np.int64) for side in sides]

        def count(search: BlockSearch) -> None:
            own = counts if search.part[1] == 1 else [np.zeros_like(c) for c in counts]
            order = own[::-1] if search.right_probes else own
            search.run((*_columns(0), order[0], order[-1]))
            if own is not counts:
                with adding:
                    for found, more in zip(counts, own, strict=True):
                        found += more

        self.search(left, right, rule, method).by_threads(threads, count)
        return counts[0], counts[-1]

    def counters(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Any,
        method: str | SetMethod = AUTO,
    ) -> SetCounters:
        return SetCounters(*self._tally(left, right, rule, method)[1:].tolist())

    def _tally(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Any,
        method: str | SetMethod,
        threads: int = 1,
    ) -> np.ndarray:
        def tally(search: BlockSearch) -> np.ndarray:
            search.run((*_columns(0), NO_COUNTS, NO_COUNTS))
            return search.tally

        found = self.search(left, right, rule, method).by_threads(threads, tally)
        return np.sum(found, axis=0)


JOINER = CpuSetJoiner()


def _columns(capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
    )
