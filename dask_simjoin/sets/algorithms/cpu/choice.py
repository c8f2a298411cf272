"""Choose by cost, from a sample, between bitmaps of all pairs and lists of prefixes, and bitmaps' sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.sets.algorithms.cpu.kernels.estimate import ADMISSIBLE, COMPARED, ENTRIES, LEFT, LOOKUPS
from dask_simjoin.sets.methods import Bitmap, SetMethod

WORDS = (1, 2, 4, 8, 16, 32, 64)
"""Words of 64 bits that bitmaps may have: what a sample tells of."""

ROOM = 16
"""Bytes of bitmaps for each token of a block, at most."""

PAIR, PAIR_WORD = 0.1, 0.075
ENTRY, ENTRY_WORD = 0.7, 0.12
LOOKUP = 8.0
MERGE, MERGE_TOKEN = 15.0, 1.4
"""Nanoseconds of a pair of bitmaps and each of its words, of an entry of a list and each of its words, of
finding a list, of comparing two sets and each of their tokens.  Measured with vectors of 512 bits."""


class Choice(NamedTuple):
    """How pairs are found: by lists or without, and with bitmaps of so many words (0: none)."""

    listed: bool
    words: int


def choose(asked: SetMethod | None, told: np.ndarray, mean_size: float, entries: float) -> Choice:
    """Return the choice of the least cost, of a method or of all (None).

    `entries`: of lists, for each token of the block.
    """
    every = costs(told, mean_size)
    # of a set there are two bitmaps without lists, and one for each entry with them
    most = {True: ROOM / (8 * max(entries, 1 / ROOM)), False: ROOM * mean_size / 16}
    of_method = [one for one in every if asked is None or one.listed != isinstance(asked, Bitmap)]
    allowed = [one for one in of_method if one.words <= max(most[one.listed], 1)]
    return min(allowed, key=every.__getitem__)


def costs(told: np.ndarray, mean_size: float) -> dict[Choice, float]:
    """Return the nanoseconds that each choice takes, from what `estimate.sample` told."""
    merge = MERGE + MERGE_TOKEN * mean_size
    share = told[LEFT:] / max(told[COMPARED], 1.0)
    found: dict[Choice, float] = {}
    for words, left in zip((0, *WORDS), (1.0, *share), strict=False):
        entry = ENTRY + ENTRY_WORD * words + left * merge
        found[Choice(True, words)] = told[LOOKUPS] * LOOKUP + told[ENTRIES] * entry
        if words:
            found[Choice(False, words)] = told[ADMISSIBLE] * (PAIR + PAIR_WORD * words + left * merge)
    return found


def usual_words(mean_size: float) -> int:
    """Return how many words leave out most pairs of sets of a mean size, at most thresholds."""
    return next((words for words in WORDS if 16 * words >= mean_size), WORDS[-1])
