"""What sets are to kernels: plain arrays, on the host or on a GPU."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

import numpy as np

from dask_simjoin.metrics.types import Array


class SetBlock(TypedDict):
    """Distinct sets, none of them empty, sorted by size and then by tokens, and whose rows they are.

    Attributes
    ----------
    offsets : array (n + 1,), int64
        Where each set's tokens begin, and where the last one's end.
    tokens : array (tokens,), int32
        Of one set after the other, ascending: the rarest token of all is 0.
    universe : int
        Tokens are less.
    weights : array (n,), int64
        How many rows each set stands for.
    """

    offsets: Array
    tokens: Array
    universe: int
    weights: Array


class SetPairs(NamedTuple):
    """Pairs of distinct sets.

    Attributes
    ----------
    left, right : array (pairs,), int64
        Positions of sets in the left and in the right block; of one block the smaller first.
    overlap : array (pairs,), int32
        How many tokens both have.
    next : int or None
        Where to go on if a limit ended the search; None: these are all.
    """

    left: Array
    right: Array
    overlap: Array
    next: int | None = None


class Counters(NamedTuple):
    """What a join did, for its profile.

    Attributes
    ----------
    listed : int
        Entries of the index, or pairs of sets of admissible sizes, that were looked at.
    candidates : int
        Pairs of sets that were left by filters of prefixes, sizes and positions.
    verified : int
        Pairs of sets whose tokens were compared, other filters having left them.
    pairs : int
        Pairs of distinct sets that match.
    """

    listed: int
    candidates: int
    verified: int
    pairs: int


def sizes_of(block: SetBlock) -> np.ndarray:
    """Return how many tokens each set has (n,), where the block's arrays are."""
    offsets: np.ndarray = block["offsets"]
    return offsets[1:] - offsets[:-1]


def kinds_of(sizes: np.ndarray) -> np.ndarray:
    """Return each of a block's sizes once; they ascend and are above 0, of which `unique` knows nothing."""
    last = sizes > 0
    last[:-1] = sizes[1:] != sizes[:-1]
    return sizes[last]
