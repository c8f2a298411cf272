"""Sets as arrays of token numbers, on the host or on a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.metrics.norms import Array


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


class SetCounters(NamedTuple):
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


Tokens = Any
"""Tokens that differ: an array (n,) int64, an Arrow array of strings, or None where there is none."""


class Occurrences(NamedTuple):
    """Hold the tokens of rows as they occur, repetitions included.

    Attributes
    ----------
    offsets : array (rows + 1,), int64
        Where each row's tokens begin and end.
    codes : array (occurrences,), int32 or int64
        Their numbers in `tokens`.
    tokens : array of int64, or Arrow array of strings
        Which there are, each once.
    """

    offsets: np.ndarray
    codes: np.ndarray
    tokens: Tokens


class Vocabulary(TypedDict):
    """Hold tokens, each once, and in how many rows each of them is."""

    tokens: Tokens
    frequency: np.ndarray


def of_strings(offsets: np.ndarray, flat: Any) -> Occurrences:
    """Number strings of Arrow."""
    coded = pc.dictionary_encode(flat)
    return Occurrences(offsets, coded.indices.to_numpy(zero_copy_only=False), coded.dictionary)


def of_integers(offsets: np.ndarray, flat: np.ndarray) -> Occurrences:
    """Number integers."""
    codes, tokens = numbered_integers(flat)
    return Occurrences(offsets, codes, tokens)


DENSE = 4
"""How many times as many integers as occur may lie between the least and the largest, to be counted."""


def numbered_integers(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (n,) int32 of integers (n,) among those that differ, and these."""
    if not len(flat):
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    low, high = int(flat.min()), int(flat.max())
    if high - low < DENSE * len(flat) + 1024:
        places = flat - low
        present = np.zeros(high - low + 1, np.bool_)
        present[places] = True
        rank = np.cumsum(present, dtype=np.int32) - np.int32(1)
        return rank[places], np.flatnonzero(present) + low
    codes, tokens = pd.factorize(flat)
    return codes.astype(np.int32), tokens


def kind_of(tokens: Tokens) -> str | None:
    """Name what tokens are; None: there is none."""
    if tokens is None or not len(tokens):
        return None
    return "integers" if isinstance(tokens, np.ndarray) else "strings"


def _numbered_parts(parts: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Number integers of several arrays; where they lie close, none is copied for it."""
    low, high = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    number = sum(map(len, parts))
    if high - low >= DENSE * number + 1024:
        codes, tokens = numbered_integers(np.concatenate(parts))
        return tokens, _cut(codes, parts)
    present = np.zeros(high - low + 1, np.bool_)
    for part in parts:
        present[part - low] = True
    rank = np.cumsum(present, dtype=np.int32)
    rank -= 1
    return np.flatnonzero(present) + low, [rank[part - low] for part in parts]


def _cut(codes: np.ndarray, parts: list[Tokens]) -> list[np.ndarray]:
    """Cut numbers of the tokens of several vocabularies: arrays of their own, which travel alone."""
    ends = np.cumsum([len(part) for part in parts])
    return [some.copy() for some in np.split(codes, ends[:-1])]


def numbered(parts: list[Tokens]) -> tuple[Tokens, list[np.ndarray]]:
    """Put tokens of several vocabularies together: which there are, and the numbers of each part's, int32."""
    there = [part for part in parts if kind_of(part) is not None]
    if not there:
        return None, [np.zeros(0, np.int32) for _ in parts]
    if kind_of(there[0]) == "integers":
        tokens, codes = _numbered_parts(there)
    else:
        coded = pc.dictionary_encode(pa.concat_arrays(there))
        tokens, codes = coded.dictionary, _cut(coded.indices.to_numpy(zero_copy_only=False), there)
    found = iter(codes)
    return tokens, [np.zeros(0, np.int32) if kind_of(part) is None else next(found) for part in parts]


def same_numbers(tokens: Tokens) -> np.ndarray:
    """Return the number of each token (tokens,), int64, in all partitions alike: strings are hashed."""
    if tokens is None:
        return np.zeros(0, np.int64)
    if isinstance(tokens, np.ndarray):
        return tokens.astype(np.int64)
    hashed: np.ndarray = pd.util.hash_array(tokens.to_numpy(zero_copy_only=False), categorize=False)
    return hashed.view(np.int64)
