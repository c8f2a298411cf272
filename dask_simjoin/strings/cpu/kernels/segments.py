"""Index strings by segments: Pass-Join of Li, Deng, Wang and Feng (VLDB 2012).

A string of the index is cut into more segments than a pair may have edits.  So one segment is unchanged, and
occurs in the other string near its place.  The index is a table of hashes of length, segment number and
codes.  Equal hashes of other segments only cost time, as all candidates are compared.

A transposition may change two adjacent segments.  If it counts as one edit, one code is left out between
segments, so it changes one of them only.
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
"""The part of a hash that entries have; the rest selects the bucket."""


@device_function
def segment_start(number: int, parts: int, length: int, gap: int) -> int:
    """Return the start of a segment; the last ones are longer by one if the length is not a multiple."""
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
    """Return the hash of a segment; `code`: the hash of its codes, `group`: of the codes of its group."""
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


@kernel
def set_signatures(offsets: Array, tokens: Array, tail: int, counted: Array, out: Array) -> None:
    """Write a bit for each code of a string and each of its occurrences (n,), int64.

    An edit adds one such item, removes one, or does both.  So the bits that one string has and another has
    not are at most as many as the edits between them.  `counted`: 64 zeros.
    """
    for k in range(len(out)):
        found = 0
        for p in range(offsets[k], offsets[k + 1] - tail):
            kind = tokens[p] & 63
            item = (kind + 1) * FIRST + counted[kind] * SECOND
            found |= 1 << ((item ^ (item >> 31)) * THIRD >> 58 & 63)
            counted[kind] += 1
        for p in range(offsets[k], offsets[k + 1] - tail):
            counted[tokens[p] & 63] = 0
        out[k] = found


@kernel
def fill(offsets: Array, tokens: Array, signatures: Array, tail: int, gap: int, kinds: Array, firsts: Array,
         parts: Array, starts: Array, entries: Array) -> None:  # fmt: skip
    """Put the segments of strings into buckets.

    `kinds`, `firsts`: lengths of strings, and the first string of each.  `parts`: segments of strings of each
    length; 0: they are not indexed.  `starts`: (buckets + 1,) zeros; then the start of each bucket's entries.
    `entries` (segments, 2): check and string, and the string's signature.
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
                        entries[starts[bucket], 0] = ((key & CHECK) << 32) | k
                        entries[starts[bucket], 1] = signatures[k]
                        starts[bucket] += 1
        if step == 0:
            for bucket in range(mask + 1):
                starts[bucket + 1] += starts[bucket]
    for bucket in range(mask, 0, -1):  # each is now where the next one begins
        starts[bucket] = starts[bucket - 1]
    starts[0] = 0


@kernel
def with_tails(ends: Array, points: Array, tails: Array, starts: Array, out: Array) -> None:
    """Copy the codes of strings, each followed by its tail.

    `ends`: (n + 1,) of the strings; `tails`: (n, tail); `starts`: (n + 1,), and `out`: of the result.
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
