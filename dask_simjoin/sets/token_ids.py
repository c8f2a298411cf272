"""Represent sets as arrays of token numbers. All partitions use the same numbers, and
blocks have distinct sets.

Each partition numbers its own tokens. A tree of tasks merges the vocabularies. Its root
ranks all tokens, beginning with the rarest one. The ranks go back down the tree, until
each partition has the ranks of its own tokens. So only the tasks that merge
vocabularies compare strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.engine.base import encoding_kernels
from dask_simjoin.errors import BudgetError, TokenError
from dask_simjoin.metrics.norms import Array
from dask_simjoin.request.messages import size_text
from dask_simjoin.sizes import ROW_BYTES


class SetBlock(TypedDict):
    """Distinct nonempty sets, sorted by size and then by tokens. For each set, the
    number of rows that have it.
    """

    offsets: Array  # start of each set's tokens, and the end (n + 1,), int64
    # ranks of tokens (tokens,), int32, ascending in each set; the rarest token has rank
    # 0
    tokens: Array
    universe: int  # exclusive bound of the ranks
    weights: Array  # number of rows with each set (n,), int64


class SetPairs(NamedTuple):
    """Matching pairs of distinct sets."""

    left: Array
    right: Array
    """Positions of the sets in both blocks (pairs,), int64; within one block, `left` <
    `right`.
    """
    overlap: Array  # number of common tokens (pairs,), int32
    next: int | None = None
    """If a limit stopped the search, the part to continue with; None if the search is
    complete.
    """


class SetCounters(NamedTuple):
    """How much work a join did. Its profile shows these counters."""

    listed: int  # index entries that were read, or pairs of sets of admissible sizes
    # pairs of sets that the filters by size, prefix and bitmap did not exclude
    candidates: int
    comparisons: int  # candidates whose tokens were compared
    distinct_pairs: int  # pairs of distinct sets that match


def sizes_of(block: SetBlock) -> np.ndarray:
    offsets: np.ndarray = block["offsets"]
    return offsets[1:] - offsets[:-1]


def distinct_sizes(sizes: np.ndarray) -> np.ndarray:
    """Return the distinct values in `sizes`, which must be sorted and above 0. This is
    faster than `numpy.unique`.
    """
    last = sizes > 0
    last[:-1] = sizes[1:] != sizes[:-1]
    return sizes[last]


Tokens = Any
"""Distinct tokens: an int64 array (n,), an Arrow array of strings, or None if there are
no tokens.
"""


class Occurrences(NamedTuple):
    """The tokens of each row, in their order in the row, and with repetitions."""

    # (rows + 1,), int64: start of each row's tokens; last, their end
    offsets: np.ndarray
    # positions of the tokens in `tokens` (occurrences,), int32 or int64
    codes: np.ndarray
    tokens: Tokens


class Vocabulary(TypedDict):
    """Distinct tokens. For each token, the number of rows that have it."""

    tokens: Tokens
    frequency: np.ndarray


def of_strings(offsets: np.ndarray, flat: Any) -> Occurrences:
    encoded = pc.dictionary_encode(flat)
    return Occurrences(
        offsets, encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary
    )


def of_integers(offsets: np.ndarray, flat: np.ndarray) -> Occurrences:
    codes, tokens = numbered_integers(flat)
    return Occurrences(offsets, codes, tokens)


def numbered_integers(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Assign a token number to each integer. Return these numbers (n,), int32, and the
    distinct integers.
    """
    if not len(flat):
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    tokens, (codes,) = _numbered_parts([flat])
    return codes, tokens


def kind_of(tokens: Tokens) -> str | None:
    """Return whether tokens are "integers" or "strings"; None if there are no tokens."""
    if tokens is None or not len(tokens):
        return None
    return "integers" if isinstance(tokens, np.ndarray) else "strings"


def _numbered_parts(parts: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Assign a token number to each integer in several arrays.

    Return the distinct integers, and for each array the numbers, int32.
    """
    low, high = (
        min(int(part.min()) for part in parts),
        max(int(part.max()) for part in parts),
    )
    # up to 4 values per integer, a table of the range is faster than a hash table
    if high - low >= 4 * sum(map(len, parts)) + 1024:
        codes, tokens = pd.factorize(
            np.concatenate(parts) if len(parts) > 1 else parts[0]
        )
        return tokens, _cut(codes.astype(np.int32), parts)
    present = np.zeros(high - low + 1, np.bool_)
    for part in parts:
        present[part - low] = True
    rank = np.cumsum(present, dtype=np.int32)
    rank -= 1
    return np.flatnonzero(present) + low, [rank[part - low] for part in parts]


def _cut(codes: np.ndarray, parts: list[Tokens]) -> list[np.ndarray]:
    """Split an array of token numbers by vocabulary. The parts are copies, because each
    is sent to another task.
    """
    if len(parts) == 1:
        return [codes]
    ends = np.cumsum([len(part) for part in parts])
    return [some.copy() for some in np.split(codes, ends[:-1])]


def number_tokens(parts: list[Tokens]) -> tuple[Tokens, list[np.ndarray]]:
    """Assign a number to each token in several vocabularies.

    Return the distinct tokens, and for each vocabulary the numbers.
    """
    there = [part for part in parts if kind_of(part) is not None]
    if not there:
        return None, [np.zeros(0, np.int32) for _ in parts]
    if kind_of(there[0]) == "integers":
        tokens, codes = _numbered_parts(there)
    else:
        encoded = pc.dictionary_encode(pa.concat_arrays(there))
        tokens, codes = (
            encoded.dictionary,
            _cut(encoded.indices.to_numpy(zero_copy_only=False), there),
        )
    found = iter(codes)
    return tokens, [
        np.zeros(0, np.int32) if kind_of(part) is None else next(found)
        for part in parts
    ]


def token_hashes(tokens: Tokens) -> np.ndarray:
    """For each token, return an int64 that is the same in all partitions: the integer,
    or the hash of the string.
    """
    if tokens is None:
        return np.zeros(0, np.int64)
    if isinstance(tokens, np.ndarray):
        return tokens.astype(np.int64)
    hashed: np.ndarray = pd.util.hash_array(
        tokens.to_numpy(zero_copy_only=False), categorize=False
    )
    return hashed.view(np.int64)


INDEX_BITS = np.iinfo(np.int32).bits
"""Number of bits that a token number has in sort keys."""

MAX_TOKENS = np.iinfo(np.int32).max
"""A vocabulary has at most this many tokens."""


class EncodedSets(TypedDict):
    """The set of each row. Tokens are numbers in a vocabulary, or ranks. A row has each
    token only once.
    """

    # (rows + 1,), int64: start of each row's tokens; last, their end
    offsets: np.ndarray
    codes: np.ndarray  # numbers or ranks of the tokens (tokens,), int32


def unique_tokens(found: Occurrences) -> tuple[EncodedSets, Vocabulary]:
    """Remove repeated tokens from each row. For each token, count the rows that have
    it.
    """
    number = 0 if found.tokens is None else len(found.tokens)
    offsets = np.ascontiguousarray(found.offsets, np.int64)
    codes = np.ascontiguousarray(found.codes, np.int32)
    once, out = np.empty(len(offsets), np.int64), np.empty(len(codes), np.int32)
    frequency = np.zeros(number, np.int64)
    last_row = np.zeros(number, np.int64)
    done = encoding_kernels().take_each_once(
        offsets, codes, last_row, once, out, frequency
    )
    kept = out if done == len(out) else out[:done].copy()
    return EncodedSets(offsets=once, codes=kept), Vocabulary(
        tokens=found.tokens, frequency=frequency
    )


class Merged(TypedDict):
    """A merged vocabulary, and for each of its parts the new numbers of the part's
    tokens.
    """

    vocabulary: Vocabulary
    codes: list[np.ndarray]


def check_vocabularies(parts: Sequence[Vocabulary], room: int | None) -> None:
    """Refuse to merge vocabularies that do not fit in the memory of one task. `room`:
    bytes of the task; None: unknown.
    """
    there = [part["tokens"] for part in parts if part["tokens"] is not None]
    number = sum(map(len, there))
    # twice, because the merged vocabulary has the tokens as well
    need = 2 * sum(tokens.nbytes for tokens in there) + ROW_BYTES * number
    if room is not None and need > room:
        raise BudgetError(
            f"One task merges the distinct tokens of all partitions. {number:,} of them "
            f"take at least {size_text(need, room)}, and the smallest worker has "
            f"{size_text(room)}. Use shorter q-grams, leave out tokens that only one row "
            "has, or use larger workers."
        )


def merge(*parts: Vocabulary, room: int | None = None) -> Merged:
    """Merge vocabularies. Raise an error if some have strings and others have integers,
    or if they do not fit: see `check_vocabularies`.
    """
    check_vocabularies(parts, room)
    kinds = {kind_of(part["tokens"]) for part in parts} - {None}
    if len(kinds) > 1:
        raise TokenError(
            "Some tokens are strings and others are integers, which are never equal. "
            "Convert one of them, "
            "for example the integers to strings."
        )
    tokens, codes = number_tokens([part["tokens"] for part in parts])
    number = 0 if tokens is None else len(tokens)
    if number > MAX_TOKENS:
        raise TokenError(
            f"There are {number:,} tokens, and at most {MAX_TOKENS:,} can be numbered; "
            "use shorter q-grams, "
            "or leave out tokens that only one row has."
        )
    frequency = np.zeros(number, np.int64)
    for own, part in zip(codes, parts, strict=True):
        # the tokens of a part are distinct, so each index occurs only once, as `+=`
        # requires
        frequency[own] += part["frequency"]
    return Merged(
        vocabulary=Vocabulary(tokens=tokens, frequency=frequency), codes=codes
    )


def ranks(vocabulary: Vocabulary) -> np.ndarray:
    """Return the rank of each token (tokens,), int32: the rarest first, among equals by
    token number.
    """
    frequency = vocabulary["frequency"]
    number = len(frequency)
    rank = np.empty(number, np.int32)
    largest = int(frequency.max(initial=0))
    if largest < 1 << (63 - INDEX_BITS):
        keys = np.sort((frequency << INDEX_BITS) | np.arange(number))
        order = keys & ((1 << INDEX_BITS) - 1)
    else:
        order = np.argsort(frequency, kind="stable")
    rank[order] = np.arange(number, dtype=np.int32)
    return rank


def ranks_of(whole: np.ndarray, codes: list[np.ndarray], part: int) -> np.ndarray:
    """Return the ranks of the tokens in a part. `whole`: the ranks of all tokens.
    `codes`: see `Merged`.
    """
    found: np.ndarray = whole[codes[part]]
    return found


def ranked(sets: EncodedSets, rank: np.ndarray) -> EncodedSets:
    """Replace the token numbers in each row by ranks, and sort them."""
    offsets, codes = sets["offsets"], sets["codes"]
    own, ordered = rank, None
    # other ranks belong to tokens of other partitions, so renumber the ranks without
    # gaps for the kernel
    if int(rank.max(initial=-1)) >= len(rank):
        # sorting ranks together with their positions is ten times as fast as a binary
        # search for each rank
        keys = np.sort((rank.astype(np.int64) << INDEX_BITS) | np.arange(len(rank)))
        ordered = (keys >> INDEX_BITS).astype(np.int32)
        own = np.empty(len(rank), np.int32)
        own[keys & ((1 << INDEX_BITS) - 1)] = np.arange(len(rank), dtype=np.int32)
    out, rows = np.empty(len(codes), np.int32), np.empty(len(codes), np.int32)
    starts, cursor = (
        np.zeros(len(rank) + 1, np.int64),
        np.empty(len(offsets) - 1, np.int64),
    )
    encoding_kernels().put_in_order(offsets, codes, own, starts, cursor, rows, out)
    return EncodedSets(offsets=offsets, codes=out if ordered is None else ordered[out])


class Collapsed(TypedDict):
    """A block of distinct sets, with the rows that have each set."""

    block: SetBlock
    order: np.ndarray
    """Rows by set (rows,), int64; at the end rows with empty sets, then rows without a
    set.
    """
    # (sets + 3,), int64: where in `order` each of these groups begins, and the end
    firsts: np.ndarray


def collapse(
    sets: EncodedSets, universe: int, missing: np.ndarray | None = None
) -> Collapsed:
    """Group rows with equal sets, and sort the distinct sets. `missing`: mask of the
    rows without a set.
    """
    kernels = encoding_kernels()
    offsets, tokens = sets["offsets"], sets["codes"]
    sizes = np.diff(offsets)
    filled, empty = np.flatnonzero(sizes), np.flatnonzero(sizes == 0)
    without = np.zeros(0, np.int64)
    if missing is not None:
        without, empty = empty[missing[empty]], empty[~missing[empty]]
    largest = int(sizes.max(initial=0))
    bits = max(1, int(universe - 1).bit_length()) if universe else 1
    number = (63 - largest.bit_length()) // bits
    keys = np.empty(len(filled), np.int64)
    kernels.pack(offsets, tokens, filled, bits, number, keys)
    by_key = np.argsort(keys, kind="stable")
    order = filled[by_key]
    starts = np.empty(len(order) + 1, np.int64)
    scratch = np.empty(len(order), np.int64)
    found = int(
        kernels.settle(offsets, tokens, keys[by_key], number, order, scratch, starts)
    )
    starts = starts[: found + 1].copy()
    chosen = order[starts[:-1]]
    distinct = take_sets(sets, chosen)
    block = SetBlock(
        offsets=distinct["offsets"],
        tokens=distinct["codes"],
        universe=universe,
        weights=np.diff(starts),
    )
    return Collapsed(
        block=block,
        order=np.concatenate([order, empty, without]),
        firsts=np.concatenate([starts, [len(order) + len(empty), len(sizes)]]).astype(
            np.int64
        ),
    )


def take_sets(sets: EncodedSets, rows: np.ndarray) -> EncodedSets:
    offsets = np.empty(len(rows) + 1, np.int64)
    codes = np.empty(int(np.diff(sets["offsets"])[rows].sum()), np.int32)
    encoding_kernels().gather_sets(sets["offsets"], sets["codes"], rows, offsets, codes)
    return EncodedSets(offsets=offsets, codes=codes)


def hashes(sets: EncodedSets) -> np.ndarray:
    """Hash the set of each row (rows,), uint64. Tokens must be sorted, otherwise equal
    sets may have different hashes.
    """
    out = np.empty(len(sets["offsets"]) - 1, np.uint64)
    encoding_kernels().hash_sets(sets["offsets"], sets["codes"], out)
    return out
