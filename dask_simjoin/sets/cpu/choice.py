"""Choose the algorithm that joins two blocks of sets, and the size of its bitmaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.sets.cpu.candidates import (
    ADMISSIBLE,
    ENTRIES,
    LOOKUPS,
    OF_LISTS,
    OF_PAIRS,
    READ,
    WORK,
)
from dask_simjoin.sets.methods import Bitmap, SetMethod

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
    """Estimated work for two blocks.

    Attributes
    ----------
    counted : array (3, bitmap sizes + 1)
        The counters of `sample`, scaled to all probes.
    sets, tokens : int
        Sets whose bitmaps are built, and their tokens.
    indexed : int
        Tokens of the sets in the index.
    entries : int
        Entries of the index.
    mean_size : float
        Mean size of the probes.
    """

    counted: np.ndarray
    sets: int
    tokens: int
    indexed: int
    entries: int
    mean_size: float


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
