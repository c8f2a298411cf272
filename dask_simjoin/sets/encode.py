"""Encode the sets of a table: one order of the tokens of all partitions, and blocks of distinct sets.

Partitions number their own tokens.  Their vocabularies are merged in a tree, at whose root tokens are put in
order, the rarest first; down the tree each part learns the ranks of its own tokens, so no string is looked
up twice.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from dask_simjoin.engine.base import encoding_kernels
from dask_simjoin.errors import TokenError
from dask_simjoin.sets.types import Occurrences, SetBlock, Vocabulary, kind_of, numbered

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
    tokens, codes = numbered([part["tokens"] for part in parts])
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
