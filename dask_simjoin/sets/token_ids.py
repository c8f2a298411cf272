"""Encode the sets of a table: one order of the tokens of all partitions, and blocks of distinct sets.

Partitions number their own tokens.  Their vocabularies are merged in a tree, at whose root tokens are put in
order, the rarest first; down the tree each part learns the ranks of its own tokens, so no string is looked
up twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.engine.base import encoding_kernels
from dask_simjoin.errors import TokenError
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


def number_tokens(parts: list[Tokens]) -> tuple[Tokens, list[np.ndarray]]:
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


INDEX_BITS = 32
"""Tokens are numbered in int32."""

MAX_TOKENS = 2**31 - 1
"""Of a vocabulary."""


class CodedSets(TypedDict):
    """Hold the sets of some rows, each token once, as numbers in a vocabulary or as ranks."""

    offsets: np.ndarray
    """(rows + 1,), int64: where each row's tokens begin and end."""
    codes: np.ndarray
    """(tokens,), int32."""


def each_once(found: Occurrences) -> tuple[CodedSets, Vocabulary]:
    """Leave out repetitions, and count in how many rows each token is."""
    number = 0 if found.tokens is None else len(found.tokens)
    offsets = np.ascontiguousarray(found.offsets, np.int64)
    codes = np.ascontiguousarray(found.codes, np.int32)
    once, out = np.empty(len(offsets), np.int64), np.empty(len(codes), np.int32)
    frequency = np.zeros(number, np.int64)
    seen = np.zeros(number, np.int64)
    done = encoding_kernels().take_each_once(offsets, codes, seen, once, out, frequency)
    kept = out if done == len(out) else out[:done].copy()
    return CodedSets(offsets=once, codes=kept), Vocabulary(tokens=found.tokens, frequency=frequency)


class Merged(TypedDict):
    """Hold a vocabulary made of several, and the numbers that the tokens of each have in it."""

    vocabulary: Vocabulary
    codes: list[np.ndarray]


def merge(*parts: Vocabulary) -> Merged:
    """Put vocabularies together; refuses strings among integers."""
    kinds = {kind_of(part["tokens"]) for part in parts} - {None}
    if len(kinds) > 1:
        raise TokenError(
            "Some tokens are strings and others are integers, which are never equal; convert one of them, "
            "for example the integers to strings."
        )
    tokens, codes = number_tokens([part["tokens"] for part in parts])
    number = 0 if tokens is None else len(tokens)
    if number > MAX_TOKENS:
        raise TokenError(
            f"There are {number:,} tokens, and at most {MAX_TOKENS:,} can be numbered; use shorter q-grams, "
            "or leave out tokens of one row."
        )
    frequency = np.zeros(number, np.int64)
    for own, part in zip(codes, parts, strict=True):
        frequency[own] += part["frequency"]  # each of them is there once
    return Merged(vocabulary=Vocabulary(tokens=tokens, frequency=frequency), codes=codes)


def ranks(vocabulary: Vocabulary) -> np.ndarray:
    """Order tokens by the number of rows that they are in, then by their numbers: ranks (tokens,), int32."""
    frequency = vocabulary["frequency"]
    number = len(frequency)
    rank = np.empty(number, np.int32)
    most = int(frequency.max(initial=0))
    if most < 1 << (63 - INDEX_BITS):
        keys = np.sort((frequency << INDEX_BITS) | np.arange(number))
        order = keys & ((1 << INDEX_BITS) - 1)
    else:
        order = np.argsort(frequency, kind="stable")
    rank[order] = np.arange(number, dtype=np.int32)
    return rank


def ranks_of(whole: np.ndarray, codes: list[np.ndarray], part: int) -> np.ndarray:
    """Return the ranks of the tokens of one of the vocabularies that were merged; `codes`: see `Merged`."""
    found: np.ndarray = whole[codes[part]]
    return found


def ranked(sets: CodedSets, rank: np.ndarray) -> CodedSets:
    """Replace numbers of tokens by their ranks, which differ, ascending in each row."""
    offsets, codes = sets["offsets"], sets["codes"]
    own, ordered = rank, None
    if int(rank.max(initial=-1)) >= len(rank):  # there are others elsewhere
        # sorted with their places: looking each of them up takes ten times as long
        keys = np.sort((rank.astype(np.int64) << INDEX_BITS) | np.arange(len(rank)))
        ordered = (keys >> INDEX_BITS).astype(np.int32)
        own = np.empty(len(rank), np.int32)
        own[keys & ((1 << INDEX_BITS) - 1)] = np.arange(len(rank), dtype=np.int32)
    out, rows = np.empty(len(codes), np.int32), np.empty(len(codes), np.int32)
    starts, cursor = np.zeros(len(rank) + 1, np.int64), np.empty(len(offsets) - 1, np.int64)
    encoding_kernels().put_in_order(offsets, codes, own, starts, cursor, rows, out)
    return CodedSets(offsets=offsets, codes=out if ordered is None else ordered[out])


class Collapsed(TypedDict):
    """Hold a block of distinct sets, and whose they are."""

    block: SetBlock
    order: np.ndarray
    """(rows,), int64: rows of the first set, of the second, and so on, of empty sets, and without a set."""
    firsts: np.ndarray
    """(sets + 3,), int64: where rows of each set begin in that, of empty ones, without one, and the end."""


def collapse(sets: CodedSets, universe: int, missing: np.ndarray | None = None) -> Collapsed:
    """Put equal sets together, and distinct ones in order; `missing`: which rows have none, (rows,) bool."""
    kernels = encoding_kernels()
    offsets, tokens = sets["offsets"], sets["codes"]
    sizes = np.diff(offsets)
    filled, empty = np.flatnonzero(sizes), np.flatnonzero(sizes == 0)
    without = np.zeros(0, np.int64)
    if missing is not None:
        without, empty = empty[missing[empty]], empty[~missing[empty]]
    most = int(sizes.max(initial=0))
    bits = max(1, int(universe - 1).bit_length()) if universe else 1
    number = (63 - most.bit_length()) // bits
    keys = np.empty(len(filled), np.int64)
    kernels.pack(offsets, tokens, filled, bits, number, keys)
    by_key = np.argsort(keys, kind="stable")
    order = filled[by_key]
    starts = np.empty(len(order) + 1, np.int64)
    room = np.empty(len(order), np.int64)
    found = int(kernels.settle(offsets, tokens, keys[by_key], number, order, room, starts))
    starts = starts[: found + 1].copy()
    chosen = order[starts[:-1]]
    distinct = some_sets(sets, chosen)
    block = SetBlock(
        offsets=distinct["offsets"], tokens=distinct["codes"], universe=universe, weights=np.diff(starts)
    )
    return Collapsed(
        block=block,
        order=np.concatenate([order, empty, without]),
        firsts=np.concatenate([starts, [len(order) + len(empty), len(sizes)]]).astype(np.int64),
    )


def some_sets(sets: CodedSets, rows: np.ndarray) -> CodedSets:
    """Copy the sets of some rows."""
    offsets = np.empty(len(rows) + 1, np.int64)
    codes = np.empty(int(np.diff(sets["offsets"])[rows].sum()), np.int32)
    encoding_kernels().gather_sets(sets["offsets"], sets["codes"], rows, offsets, codes)
    return CodedSets(offsets=offsets, codes=codes)


def hashes(sets: CodedSets) -> np.ndarray:
    """Hash the sets of rows (rows,), uint64, whose tokens are in order: equal ones alike."""
    out = np.empty(len(sets["offsets"]) - 1, np.uint64)
    encoding_kernels().hash_sets(sets["offsets"], sets["codes"], out)
    return out
