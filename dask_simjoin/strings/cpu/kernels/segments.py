"""Index strings by segments: Pass-Join of Li, Deng, Wang and Feng (VLDB 2012).

A string of the index is cut into more segments than a pair may have edits.  So one segment is unchanged, and
occurs in the other string near its place.  The index is a table of hashes of length, segment number and
codes.  Equal hashes of other segments only cost time, as all candidates are compared.

A transposition may change two adjacent segments.  If it counts as one edit, one code is left out between
segments, so a transposition changes only one segment.
"""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.norms import Array

BASE = 0x5851F42D4C957F2D
"""Base of the polynomial hash of codes, modulo 2**64."""

FIRST, SECOND, THIRD = 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB
"""Odd multipliers."""

CHECK_BITS = 31
CHECK = (1 << CHECK_BITS) - 1
"""Mask of the bits of a hash that entries store; the other bits select the bucket."""


@device_function
def segment_start(number: int, parts: int, length: int, gap: int) -> int:
    """Return the start of a segment.  The last ones are longer by one if segments cannot be equally long."""
    whole = length - gap * (parts - 1)
    base = whole // parts
    return int(number * (base + gap) + max(0, number - (parts - (whole - base * parts))))


@device_function
def segment_length(number: int, parts: int, length: int, gap: int) -> int:
    """Return the length of a segment."""
    whole = length - gap * (parts - 1)
    base = whole // parts
    return int(base + (1 if number >= parts - (whole - base * parts) else 0))


@device_function
def mixed(code: int, length: int, number: int, group: int) -> int:
    """Return the hash of a segment.  `code`: hash of its codes; `group`: hash of its string's group."""
    key = (code ^ ((length * THIRD) + number * SECOND + group)) * FIRST
    key = (key ^ ((key >> 32) & 0xFFFFFFFF)) * SECOND
    return int(key ^ ((key >> 29) & 0x7FFFFFFFF))


@device_function
def group_hash(tokens: Array, stop: int, tail: int) -> int:
    """Return the hash of the codes of a group, which are the last ones of a string; 0: there are none."""
    found = 0
    if tail > 1:
        for p in range(stop - tail, stop):
            found = found * BASE + tokens[p]
    return found


@kernel
def set_powers(powers: Array) -> None:
    """Write powers of the base of hashes."""
    power = 1
    for k in range(len(powers)):
        powers[k] = power
        power *= BASE


@device_function
def _bit(item: int) -> int:
    """Return the bit of an item in a signature."""
    return 1 << (((item ^ ((item >> 31) & 0x1FFFFFFFF)) * THIRD) >> 58 & 63)


@kernel
def set_signatures(offsets: Array, tokens: Array, tail: int, counted: Array, codes_of: Array,
                   pairs_of: Array) -> None:  # fmt: skip
    """Write a bit for each code and each of its occurrences, and a bit for each pair of adjacent codes.

    An edit adds one code, removes one, or does both, and changes two pairs of codes.  A transposition changes
    three pairs.  So the number of edits bounds the bits that one string has and the other lacks.
    `counted`: 64 zeros.
    """
    for k in range(len(offsets) - 1):
        codes, pairs, last = 0, 0, 0
        for p in range(offsets[k], offsets[k + 1] - tail):
            kind = tokens[p] & 63
            codes |= _bit((kind + 1) * FIRST + counted[kind] * SECOND)
            counted[kind] += 1
            pairs |= _bit((tokens[p] + 1) * FIRST + last * SECOND)
            last = tokens[p] + 1
        pairs |= _bit(last * SECOND)
        for p in range(offsets[k], offsets[k + 1] - tail):
            counted[tokens[p] & 63] = 0
        codes_of[k], pairs_of[k] = codes, pairs


@kernel
def fill(offsets: Array, tokens: Array, signatures: Array, tail: int, gap: int, kinds: Array, firsts: Array,
         parts: Array, starts: Array, entries: Array, marks: Array) -> None:  # fmt: skip
    """Put the segments of strings into buckets.

    `kinds`, `firsts`: lengths of strings, and the first string of each.  `parts`: segments of strings of each
    length; 0: they are not indexed.  `starts`: (buckets + 1,) zeros, which become the start of each bucket's
    entries.  `entries` (segments,): check and string.  `marks` (segments,): the string's first signature.
    """
    mask = len(starts) - 2
    for step in range(2):
        for kind in range(len(kinds)):
            length, number = kinds[kind], parts[kind]
            for k in range(firsts[kind], firsts[kind + 1]):
                group = group_hash(tokens, offsets[k + 1], tail)
                for i in range(number):
                    start = offsets[k] + segment_start(i, number, length, gap)
                    code = 0
                    for p in range(start, start + segment_length(i, number, length, gap)):
                        code = code * BASE + (tokens[p] + 1)
                    key = mixed(code, length, i, group)
                    bucket = (key >> CHECK_BITS) & mask
                    if step == 0:
                        starts[bucket + 1] += 1
                    else:
                        entries[starts[bucket]] = ((key & CHECK) << 32) | k
                        marks[starts[bucket]] = signatures[k]
                        starts[bucket] += 1
        if step == 0:
            for bucket in range(mask + 1):
                starts[bucket + 1] += starts[bucket]
    for bucket in range(mask, 0, -1):  # `starts[bucket]` is now where the next bucket begins
        starts[bucket] = starts[bucket - 1]
    starts[0] = 0


@kernel
def with_tails(ends: Array, points: Array, tails: Array, starts: Array, out: Array) -> None:
    """Copy the codes of strings, each followed by its tail.

    `ends` (n + 1,): bounds of the strings.  `tails`: (n, tail).  `starts` (n + 1,), `out`: the result's
    bounds and codes.
    """
    done = 0
    for k in range(len(tails)):
        starts[k] = done
        for p in range(ends[k], ends[k + 1]):
            out[done] = points[p]
            done += 1
        for t in range(tails.shape[1]):
            out[done] = tails[k, t]
            done += 1
    starts[len(tails)] = done
