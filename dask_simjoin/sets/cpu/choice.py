"""Choose a method of set joins, and the size of bitmaps, by estimated costs."""

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
from dask_simjoin.sets.methods import (
    Bitmap,
    SetMethod,
)
from dask_simjoin.sizes import (
    ENTRY_BYTES,
    PROBED,
)

WORDS = (1, 2, 4, 8, 16, 32, 64)
"""The sizes that a bitmap may have, in words of 64 bits."""


PARTNERS = 15
"""Each of the sampled sets is compared with about this many sets."""


INSERT, INSERT_WORD = 10.0, 4.0
"""Measured nanoseconds: to find a list, its first bitmaps or the place of a new entry.
The second number is for each word of the bitmap of a new entry.
"""


ENTRY_WORD = 0.18
"""Measured nanoseconds to compare the bitmap of an entry, for each word."""


PAIR, PAIR_WORD = 0.14, 0.12
"""Measured nanoseconds to compare the bitmaps of two sets, and for each word of them.
"""


BITMAP, FLIP = 5.0, 2.2
"""Measured nanoseconds to build the bitmap of a set, and for each token of the set."""


MERGE, MERGE_TOKEN = 35.0, 0.67
"""Measured nanoseconds to merge the two sets of an entry, and for each token that two
matching sets need not share.

`MERGE_TOKEN` is for these tokens only, because a merge stops early once two sets are
too different.
"""


MERGE_OF_PAIR = 2.7
"""Merging all tokens of two sets takes this many times as long as merging two sets for
an entry.

For an entry, only the tokens after the common token are merged. And each pair is merged
only once.
"""


class SetChoice(NamedTuple):
    """A choice of algorithm. `listed`: whether lists of tokens are used, instead of all
    pairs. `words`: words per bitmap; 0: no bitmaps.
    """

    listed: bool
    words: int


class Work(NamedTuple):
    """Estimated work for two blocks."""

    # (3, bitmap sizes + 1): the counters of `sample`, scaled to all probes
    counted: np.ndarray
    # sets whose bitmaps are built, and their tokens
    sets: int
    tokens: int
    indexed: int  # tokens of the sets in the index
    entries: int  # entries of the index
    mean_size: float  # mean size of the probes


def choose(method: SetMethod | None, work: Work) -> SetChoice:
    """Return the cheapest algorithm of a method; for None, the cheapest algorithm of
    all methods.
    """
    every = costs(work)
    # an index copies a set's bitmap to each entry of the set; without an index, there
    # are two copies per set
    entries = work.entries / max(work.indexed, 1)
    # bitmaps take at most `ENTRY_BYTES` per token of a block
    max_words = {
        True: ENTRY_BYTES / (8 * max(entries, 1 / ENTRY_BYTES)),
        False: ENTRY_BYTES * work.mean_size / 16,
    }
    of_method = [
        one
        for one in every
        if method is None or one.listed != isinstance(method, Bitmap)
    ]
    allowed = [one for one in of_method if one.words <= max(max_words[one.listed], 1)]
    return min(allowed, key=every.__getitem__)


def costs(work: Work) -> dict[SetChoice, float]:
    """Return the estimated cost of each algorithm, in nanoseconds."""
    counted = work.counted
    lists = (counted[WORK, LOOKUPS] + work.entries) * INSERT
    bitmaps = work.sets * BITMAP + work.tokens * FLIP
    found = {SetChoice(True, 0): float(lists + counted[OF_LISTS, 0])}
    for words, of_list, of_pair in zip(
        WORDS, counted[OF_LISTS, 1:], counted[OF_PAIRS, 1:], strict=False
    ):
        copies = work.entries * INSERT_WORD * words
        reads = (
            counted[WORK, READ] * INSERT + counted[WORK, ENTRIES] * ENTRY_WORD * words
        )
        pairs = counted[WORK, ADMISSIBLE] * (PAIR + PAIR_WORD * words)
        found[SetChoice(True, words)] = float(
            lists + bitmaps + copies + reads + of_list
        )
        found[SetChoice(False, words)] = float(
            bitmaps + pairs + of_pair * MERGE_OF_PAIR
        )
    return found


def is_sample_needed(method: SetMethod | None, work: Work) -> bool:
    """Return whether a sample of pairs might lead to another choice than token lists
    without bitmaps.

    The counters in `work` are from a sample without partners, as if bitmaps rejected
    all pairs. So the costs of bitmaps are underestimated.
    """
    if isinstance(method, Bitmap):
        return True
    every = costs(work)
    sampling = PROBED * (PARTNERS + 1) * (BITMAP + FLIP * work.mean_size)
    return every.pop(SetChoice(True, 0)) > sampling + min(every.values())


def usual_words(mean_size: float) -> int:
    """Return how many words a bitmap needs so that it rejects most pairs of sets that
    have this mean size.
    """
    return next((words for words in WORDS if 16 * words >= mean_size), WORDS[-1])
