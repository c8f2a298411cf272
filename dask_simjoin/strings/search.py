"""Find pairs of strings within an edit distance, with an index of segments or by
comparing signatures.

The index is the one of Pass-Join (Li, Deng, Wang and Feng, VLDB 2012). If a pair may
have k edits, a string is divided into k + 1 segments. At least one segment is
unchanged, so the other string has this segment near the same position. The index is a
hash table. A key consists of the length of the string, the number of the segment, and
the codes of the segment. Different keys with equal hashes only cost time, because all
candidates are verified.

A transposition can change two adjacent segments. If it counts as one edit, one code is
left out between any two segments. Then a transposition changes only one segment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import (
    device_function,
    inline_function,
    inline_source,
    kernel,
)
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.tile_simd import count_bits, lowest_bit
from dask_simjoin.metrics.norms import Array
from dask_simjoin.strings.distances import (
    MAX_SHORT,
    clear_matches,
    distance_within,
    lane_distances,
    set_matches,
    similar_signatures,
)

BASE = 0x5851F42D4C957F2D
"""Base of the polynomial hash of codes. The hash is computed modulo 2**64."""

FACTOR_1, FACTOR_2, FACTOR_3 = (
    0x1E3779B97F4A7C15,
    0x3F58476D1CE4E5B9,
    0x14D049BB133111EB,
)
"""Odd numbers that hash functions multiply by."""

CHECK = int(np.iinfo(np.int32).max)
CHECK_BITS = CHECK.bit_length()
"""An entry of the index stores this many bits of the hash. The other bits select its
bucket.
"""


@device_function
def segment_start(number: int, parts: int, length: int, gap: int) -> int:
    """Return where a segment starts in its string. The last segments may be longer by
    one code.
    """
    whole = length - gap * (parts - 1)
    base = whole // parts
    return int(
        number * (base + gap) + max(0, number - (parts - (whole - base * parts)))
    )


@device_function
def segment_length(number: int, parts: int, length: int, gap: int) -> int:
    whole = length - gap * (parts - 1)
    base = whole // parts
    return int(base + (1 if number >= parts - (whole - base * parts) else 0))


@device_function
def segment_hash(code: int, length: int, number: int, group: int) -> int:
    """Return the hash of a segment.

    `code`: the hash of the segment's codes. `group`: the hash of the string's group.
    """
    key = (code ^ ((length * FACTOR_3) + number * FACTOR_2 + group)) * FACTOR_1
    key = (key ^ ((key >> 32) & 0xFFFFFFFF)) * FACTOR_2
    return int(key ^ ((key >> 29) & 0x7FFFFFFFF))


@device_function
def group_hash(tokens: Array, stop: int, tail: int) -> int:
    """Return the hash of a string's group; 0 if there are no groups.

    The `tail` codes before position `stop` identify the group.
    """
    found = 0
    if tail > 1:
        for p in range(stop - tail, stop):
            found = found * BASE + tokens[p]
    return found


@kernel
def set_powers(powers: Array) -> None:
    power = 1
    for k in range(len(powers)):
        powers[k] = power
        power *= BASE


@device_function
def _bit(item: int) -> int:
    return 1 << (((item ^ ((item >> 31) & 0x1FFFFFFFF)) * FACTOR_3) >> 58 & 63)


@kernel
def set_signatures(
    offsets: Array,
    tokens: Array,
    tail: int,
    counted: Array,
    codes_of: Array,
    pairs_of: Array,
) -> None:
    """Write two signatures of each string. One has bits for the codes, the other for
    the pairs of adjacent codes.

    The n-th occurrence of a code in a string has a bit of its own. An edit adds a code,
    removes one, or does both, and it changes two pairs of codes. A transposition
    changes three pairs. So the number of edits limits how many bits one string has and
    the other does not. `counted`: scratch, 64 zeros.
    """
    for k in range(len(offsets) - 1):
        codes, pairs, last = 0, 0, 0
        for p in range(offsets[k], offsets[k + 1] - tail):
            kind = tokens[p] & 63
            codes |= _bit((kind + 1) * FACTOR_1 + counted[kind] * FACTOR_2)
            counted[kind] += 1
            pairs |= _bit((tokens[p] + 1) * FACTOR_1 + last * FACTOR_2)
            last = tokens[p] + 1
        pairs |= _bit(last * FACTOR_2)
        for p in range(offsets[k], offsets[k + 1] - tail):
            counted[tokens[p] & 63] = 0
        codes_of[k], pairs_of[k] = codes, pairs


@kernel
def fill(
    offsets: Array,
    tokens: Array,
    signatures: Array,
    tail: int,
    gap: int,
    distinct: Array,
    firsts: Array,
    parts: Array,
    starts: Array,
    entries: Array,
    marks: Array,
) -> None:
    """Build the index: write the segments of all strings to hash buckets.

    `distinct`, `firsts`: the distinct lengths, and the first string with each. `parts`:
    number of segments for each length; 0: not indexed. `starts` (buckets + 1,): zeros
    at first; then where the entries of each bucket start. `entries` (segments,): stored
    hash bits, and the string. `marks` (segments,): the first signature of the string.
    """
    mask = len(starts) - 2
    for step in range(2):
        for kind in range(len(distinct)):
            length, number = distinct[kind], parts[kind]
            for k in range(firsts[kind], firsts[kind + 1]):
                group = group_hash(tokens, offsets[k + 1], tail)
                for i in range(number):
                    start = offsets[k] + segment_start(i, number, length, gap)
                    code = 0
                    for p in range(
                        start, start + segment_length(i, number, length, gap)
                    ):
                        code = code * BASE + (tokens[p] + 1)
                    key = segment_hash(code, length, i, group)
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
    # here `starts[bucket]` is the end of the bucket, which is the start of the next one
    for bucket in range(mask, 0, -1):
        starts[bucket] = starts[bucket - 1]
    starts[0] = 0


@kernel
def with_tails(
    ends: Array, points: Array, tails: Array, starts: Array, out: Array
) -> None:
    """Copy the codes of strings, and append to each string its tail.

    `ends` (n + 1,): bounds of the strings. `tails` (n, tail): the tails. `starts` (n +
    1,), `out`: bounds and codes of the result.
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


NEXT, STOP, DONE = range(3)
"""Indexes in the array `state`. `NEXT`: the next probe, or -1 at the end. `STOP`: if
another thread sets it, the search ends soon, and its results are incomplete. `DONE`:
the number of written pairs.
"""

TOTAL, LISTED, CANDIDATES, COMPARISONS, DISTINCT_PAIRS = range(5)
"""Indexes in `tally`: the number of pairs of rows, then the fields of `SetCounters`
(`dask_simjoin.sets.token_ids`).
"""

Side = tuple[Array, Array, Array, Array, Array]
"""Offsets, codes and weights of the strings in a block; then their two signatures,
padded by `SWEEP_LANES`.
"""

Out = tuple[Array, Array, Array, Array, Array]
"""Output arrays. The first three are for pairs: probes, indexed strings and distances.

The last two are for counts: for each string of both blocks, the number of matching
rows. An array of length 0 is not written.
"""


class Tables(NamedTuple):
    """Arrays by length, and powers of `BASE`."""

    # distinct lengths of indexed strings; the first string and the number of segments
    # for each of them
    distinct: Array
    firsts: Array
    parts: Array
    # for each possible length, the largest distance to a string that is not longer
    limits: Array
    # for each possible length, the position of the first indexed length that is not
    # smaller
    places: Array
    powers: Array


class Scratch(NamedTuple):
    """The scratch arrays of a search."""

    prefix: Array  # hashes of the probe's prefixes (longest + 1,)
    stamps: Array  # the last probe that was compared with each indexed string (n,)
    reached: Array  # see `distance_within`
    matches: Array  # see `set_matches`
    # candidates that are compared at once (SWEEP_LANES,), and their distances
    pending: Array
    found: Array
    rows: Array  # see `lane_distances`


class Search(NamedTuple):
    """A search for the pairs of the probes `q` and the strings `d`.

    `is_self_join`: whether both blocks are the same; then each pair is found once.
    `tail`: number of codes after each string; the strings of a pair must have equal
    tails. `gap`: 1 if a transposition is one edit, else 0. `segments`: the arrays of
    the index, see `fill`.
    """

    q: Side
    d: Side
    is_self_join: bool
    tail: int
    gap: int
    segments: tuple[Array, Array, Array]
    tables: Tables
    scratch: Scratch


class Probe(NamedTuple):
    """The string that is compared with others."""

    number: int
    begin: int
    length: int
    group: int  # hash of its group
    signature: int
    grams: int  # its second signature
    by_bits: bool  # whether `lane_distances` compares it


class List(NamedTuple):
    """Candidates: the entries `first` to `stop` - 1 of a bucket of the index, or the
    strings with these numbers.
    """

    first: int
    stop: int
    signatures: int  # address of their first signatures
    check: int  # the stored bits of the hash; -1: strings


@device_function
def _differ(one: int, other: int) -> int:
    """For each of two signatures, count the bits that the other does not have. Return
    the larger count.
    """
    both = one & other
    return max(count_bits(one ^ both), count_bits(other ^ both))


@device_function
def _same_group(q: Array, a: int, d: Array, b: int, tail: int) -> bool:
    """Return whether the `tail` codes before position `a` equal the `tail` codes before
    position `b`.
    """
    p = 1
    while p <= tail and q[a - p] == d[b - p]:
        p += 1
    return p > tail


@inline_source
def _begin(s: Search, x: int) -> Probe:
    """Prepare the scratch arrays for a probe."""
    offsets, codes, _, signatures, grams = s.q
    begin, stop = offsets[x], offsets[x + 1]
    length = stop - s.tail - begin
    code, prefix = 0, s.scratch.prefix
    prefix[0] = 0
    for p in range(length):
        code = code * BASE + (codes[begin + p] + 1)
        prefix[p + 1] = code
    # `lane_distances` takes one step per code, and `distance_within` about limit**2
    # steps
    # a step of `distance_within` takes as long as 4 of `lane_distances`
    limit = s.tables.limits[length]
    by_bits = 0 < length <= min(MAX_SHORT, 4 * (limit + 1) ** 2)
    if by_bits:
        set_matches(codes, begin, length, s.scratch.matches)
    group = group_hash(codes, stop, s.tail)
    return Probe(x, begin, length, group, signatures[x], grams[x], by_bits)


@inline_source
def _windows(
    i: int, parts: int, length: int, probe: int, limit: int, gap: int
) -> tuple[int, int, int]:
    """Return the first and the last place where a probe can have segment `i` of a
    string, and the length of this segment.

    `length`, `probe`: lengths of the string and of the probe. `limit`: edits of a pair.
    """
    at, own = (
        segment_start(i, parts, length, gap),
        segment_length(i, parts, length, gap),
    )
    moved = at + probe - length
    low = max(0, at - i, moved - (limit - i))
    return low, min(probe - own, at + i, moved + (limit - i)), own


@inline_source
def _bucket(s: Search, key: int) -> List:
    starts, _, marks = s.segments
    bucket = (key >> CHECK_BITS) & (len(starts) - 2)
    return List(starts[bucket], starts[bucket + 1], marks.ctypes.data, key & CHECK)


@inline_source
def _is_new(s: Search, probe: Probe, y: int) -> bool:
    """Return whether the probe has not been compared with an indexed string before."""
    x, stamps = probe.number, s.scratch.stamps
    if (s.is_self_join and y >= x) or stamps[y] == x:
        return False
    stamps[y] = x
    return True


@device_function
def _verify(
    s: Search,
    probe: Probe,
    length: int,
    limit: int,
    count: int,
    out: Out,
    written: int,
    tally: Array,
    state: Array,
) -> int:
    """Compute the distances between the probe and `count` candidates of equal length,
    and write the pairs.

    Return the number of pairs written so far; or -1 if they do not fit in `out`.
    """
    _, codes, weights, _, _ = s.q
    d_offsets, d_codes, d_weights, _, _ = s.d
    _, _, reached, matches, pending, found, rows = s.scratch
    left, right, apart, q_counts, d_counts = out
    x, n, swaps = probe.number, probe.length, s.gap > 0
    if written < 0:
        return written
    if probe.by_bits:
        lane_distances(
            matches, n, d_codes, d_offsets, pending, count, length, swaps, rows, found
        )
    else:
        for k in range(count):
            found[k] = distance_within(
                codes,
                probe.begin,
                n,
                d_codes,
                d_offsets[pending[k]],
                length,
                limit,
                swaps,
                reached,
                state,
            )
    for k in range(count):
        if found[k] > limit:
            continue
        y = pending[k]
        if len(left):
            if written == len(left):
                return -1
            left[written], right[written], apart[written] = x, y, found[k]
            written += 1
        tally[DISTINCT_PAIRS] += 1
        tally[TOTAL] += weights[x] * d_weights[y]
        if len(q_counts):
            q_counts[x] += d_weights[y]
            d_counts[y] += weights[x]
    return written


# with `inline_source`, Numba's types and copies of variables make this loop slower
@inline_function
def _compare(
    s: Search,
    probe: Probe,
    listed: List,
    length: int,
    limit: int,
    waiting: int,
    out: Out,
    written: int,
    tally: Array,
    state: Array,
) -> tuple[int, int]:
    """Verify the candidates in a list, as soon as `SWEEP_LANES` wait for it. Return the
    number of those that wait, and the number of pairs written so far.
    """
    codes, end = s.q[1], probe.begin + probe.length + s.tail
    d_offsets, d_codes, _, _, d_grams = s.d
    entries = s.segments[1]
    e, stop, address, check = listed
    tally[LISTED] += stop - e
    while e < stop:
        near = similar_signatures(probe.signature, address + 8 * e, limit)
        if stop - e < SWEEP_LANES:
            near &= (1 << (stop - e)) - 1
        e += SWEEP_LANES
        while near:
            y = e - SWEEP_LANES + lowest_bit(near)
            near &= near - 1
            if check >= 0:
                entry = entries[y]
                y = entry & 0xFFFFFFFF
                if entry >> 32 != check or not _is_new(s, probe, y):
                    continue
            if _differ(probe.grams, d_grams[y]) > (2 + s.gap) * limit:
                continue
            tally[CANDIDATES] += 1
            d_end = d_offsets[y + 1]
            # equal hashes do not mean equal lengths and groups, so compare these
            if d_end - s.tail - d_offsets[y] != length or not _same_group(
                codes, end, d_codes, d_end, s.tail
            ):
                continue
            tally[COMPARISONS] += 1
            s.scratch.pending[waiting] = y
            waiting += 1
            if waiting == SWEEP_LANES:
                written = _verify(
                    s, probe, length, limit, waiting, out, written, tally, state
                )
                waiting = 0
    return waiting, written


@inline_source
def _search_lengths(
    s: Search, probe: Probe, out: Out, written: int, tally: Array, state: Array
) -> int:
    """Find the pairs of a probe. Return the number of pairs written so far; or -1 if
    they do not fit in `out`.
    """
    distinct, firsts, parts, limits, places, powers = s.tables
    x, own, prefix = probe.number, probe.length, s.scratch.prefix
    for kind in range(places[max(0, own - limits[own])], len(distinct)):
        length, number, waiting = distinct[kind], parts[kind], 0
        limit = limits[max(own, length)]
        if length - own > limit or (s.is_self_join and length > own):
            break
        # without an index, all strings of this length are compared as one list
        for i in range(min(limit + 1, number) if number else 1):
            low, high, size = 0, 0, 0
            if number:
                low, high, size = _windows(i, number, length, own, limit, s.gap)
            for w in range(low, high + 1):
                last = min(firsts[kind + 1], x) if s.is_self_join else firsts[kind + 1]
                listed = List(firsts[kind], last, s.d[3].ctypes.data, -1)
                if number:
                    code = prefix[w + size] - prefix[w] * powers[size]
                    listed = _bucket(s, segment_hash(code, length, i, probe.group))
                waiting, written = _compare(
                    s, probe, listed, length, limit, waiting, out, written, tally, state
                )
        if waiting:
            written = _verify(
                s, probe, length, limit, waiting, out, written, tally, state
            )
        if written < 0:
            break
    return written


@kernel
def search(s: Search, state: Array, out: Out, tally: Array) -> None:
    """Find the pairs of the probes from `state[NEXT]` on. Stop before the first probe
    whose pairs do not fit in `out`.
    """
    weights, stamps, written = s.q[2], s.scratch.stamps, 0
    for x in range(state[NEXT], len(weights)):
        if state[STOP]:
            break
        begun, counts = written, (tally[0], tally[1], tally[2], tally[3], tally[4])
        probe = _begin(s, x)
        written = _search_lengths(s, probe, out, written, tally, state)
        if probe.by_bits:
            clear_matches(s.q[1], probe.begin, probe.length, s.scratch.matches)
        if written < 0:
            # the next call searches this probe again, so forget which strings it was
            # compared with
            for y in range(len(stamps)):
                if stamps[y] == x:
                    stamps[y] = -1
            tally[0], tally[1], tally[2], tally[3], tally[4] = counts
            state[NEXT], state[DONE] = x, begun
            return
    state[NEXT], state[DONE] = -1, written
