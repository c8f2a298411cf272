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

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
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

TOTAL, LISTED, CANDIDATES, VERIFIED, PAIRS = range(5)
"""Indexes in `tally`: the number of pairs of rows, then the fields of `SetCounters`
(`dask_simjoin.sets.token_ids`).
"""

Side = tuple[Array, Array, Array, Array, Array]
"""Offsets, codes and weights of the strings in a block; then their two signatures,
padded by `SWEEP_LANES`.
"""

SegmentIndex = tuple[Array, Array, Array]

Scratch = tuple[Array, Array, Array, Array, Array, Array, Array]
"""The scratch arrays of a search.

First come arrays for one probe. They are the hashes of the probe's prefixes (longest +
1,); for each indexed string, the last probe compared with it (n,); `reached` of
`distance_within`; and `matches` of `set_matches`.

Then come arrays for the candidates that are compared at once. They are the numbers of
their strings (SWEEP_LANES,), their distances (SWEEP_LANES,), and `rows` of `lane_distances`.
"""

Tables = tuple[Array, Array, Array, Array, Array, Array]
"""Arrays by length, and then the powers of `BASE`.

The first three are for the distinct lengths of indexed strings: the length, the first
string with it, and the number of segments. The next two are for all possible lengths.
One has the largest distance to a string that is not longer. The other has the position
of the first indexed length that is not smaller. The last array has the powers.
"""

Out = tuple[Array, Array, Array, Array, Array]
"""Output arrays. The first three are for pairs: probes, indexed strings and distances.

The last two are for counts: for each string of both blocks, the number of matching
rows. An array of length 0 is not written.
"""


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


@device_function
def _verify(
    q: Side,
    d: Side,
    x: int,
    length: int,
    limit: int,
    by_bits: bool,
    tail: int,
    gap: int,
    count: int,
    scratch: Scratch,
    out: Out,
    written: int,
    tally: Array,
    state: Array,
) -> int:
    """Compute the distances between string `x` and `count` candidates of equal length,
    and write the pairs.

    Return the number of pairs written so far; or -1 if they do not fit in `out`.
    """
    offsets, tokens, weights, _, _ = q
    d_offsets, d_tokens, d_weights, _, _ = d
    _, _, reached, matches, pending, found, rows = scratch
    left, right, apart, q_counts, d_counts = out
    begin, n = offsets[x], offsets[x + 1] - tail - offsets[x]
    if by_bits:
        lane_distances(
            matches,
            n,
            d_tokens,
            d_offsets,
            pending,
            count,
            length,
            gap > 0,
            rows,
            found,
        )
    else:
        for s in range(count):
            start = d_offsets[pending[s]]
            found[s] = distance_within(
                tokens,
                begin,
                n,
                d_tokens,
                start,
                length,
                limit,
                gap > 0,
                reached,
                state,
            )
    for s in range(count):
        if found[s] > limit:
            continue
        y = pending[s]
        if len(left):
            if written == len(left):
                return -1
            left[written], right[written], apart[written] = x, y, found[s]
            written += 1
        tally[PAIRS] += 1
        tally[TOTAL] += weights[x] * d_weights[y]
        if len(q_counts):
            q_counts[x] += d_weights[y]
            d_counts[y] += weights[x]
    return written


@kernel
def search(
    q: Side,
    d: Side,
    is_self_join: bool,
    tail: int,
    gap: int,
    index: SegmentIndex,
    tables: Tables,
    scratch: Scratch,
    state: Array,
    out: Out,
    tally: Array,
) -> None:
    """Find the pairs of the probes from `state[NEXT]` on. Stop before the first probe
    whose pairs do not fit in `out`.

    `is_self_join`: whether both blocks are the same; then each pair is found once.
    `tail`: number of codes after each string; the strings of a pair must have equal
    tails. `gap`: 1 if a transposition is one edit, else 0.
    """
    q_offsets, q_tokens, q_weights, q_signatures, q_grams = q
    d_offsets, d_tokens, _, d_signatures, d_grams = d
    starts, entries, marks = index
    distinct, firsts, parts, limits, places, powers = tables
    prefix, stamps, _, matches, pending, _, _ = scratch
    mask, grams_of_edit = len(starts) - 2, 2 + gap
    written, waiting = 0, 0
    listed, candidates, verified = 0, 0, 0
    for x in range(state[NEXT], len(q_weights)):
        if state[STOP]:
            break
        begin, stop = q_offsets[x], q_offsets[x + 1]
        length = stop - tail - begin
        group = group_hash(q_tokens, stop, tail)
        code = 0
        prefix[0] = 0
        for p in range(length):
            code = code * BASE + (q_tokens[begin + p] + 1)
            prefix[p + 1] = code
        signature, grams = q_signatures[x], q_grams[x]
        # `lane_distances` takes one step per code, and `distance_within` about limit**2
        # steps
        # a step of `distance_within` takes as long as 4 of `lane_distances`
        by_bits = 0 < length <= min(MAX_SHORT, 4 * (limits[length] + 1) ** 2)
        if by_bits:
            set_matches(q_tokens, begin, length, matches)
        before = written
        fits = True
        for kind in range(places[max(0, length - limits[length])], len(distinct)):
            other = distinct[kind]
            limit = limits[max(length, other)]
            if other - length > limit or (is_self_join and other > length) or not fits:
                break
            number = parts[kind]
            first, last = firsts[kind], firsts[kind + 1]
            if is_self_join and last > x:
                last = x
            # without an index, all strings of this length are compared as one list
            for i in range(min(limit + 1, number) if number else 1):
                lo, hi, own = 0, 0, 0
                if number:
                    at = segment_start(i, number, other, gap)
                    own = segment_length(i, number, other, gap)
                    lo = max(0, at - i, at + length - other - (limit - i))
                    hi = min(length - own, at + i, at + length - other + (limit - i))
                for w in range(lo, hi + 1):
                    key, check = 0, 0
                    e, stop_list, listed_at = first, last, d_signatures.ctypes.data
                    if number:
                        key = segment_hash(
                            prefix[w + own] - prefix[w] * powers[own], other, i, group
                        )
                        bucket = (key >> CHECK_BITS) & mask
                        e, stop_list = starts[bucket], starts[bucket + 1]
                        check, listed_at = key & CHECK, marks.ctypes.data
                    listed += stop_list - e
                    while e < stop_list:
                        near = similar_signatures(signature, listed_at + 8 * e, limit)
                        if stop_list - e < SWEEP_LANES:
                            near &= (1 << (stop_list - e)) - 1
                        e += SWEEP_LANES
                        while near:
                            s = e - SWEEP_LANES + lowest_bit(near)
                            near &= near - 1
                            y = s
                            if number:
                                y = entries[s] & 0xFFFFFFFF
                                if (
                                    entries[s] >> 32 != check
                                    or (is_self_join and y >= x)
                                    or stamps[y] == x
                                ):
                                    continue
                                stamps[y] = x
                            if _differ(grams, d_grams[y]) > grams_of_edit * limit:
                                continue
                            candidates += 1
                            ends = d_offsets[y + 1]
                            size = ends - tail - d_offsets[y]
                            # equal hashes do not mean equal lengths and groups, so
                            # compare these
                            if size != other or not _same_group(
                                q_tokens, stop, d_tokens, ends, tail
                            ):
                                continue
                            verified += 1
                            pending[waiting] = y
                            waiting += 1
                            if waiting == SWEEP_LANES:
                                if fits:
                                    written = _verify(
                                        q,
                                        d,
                                        x,
                                        other,
                                        limit,
                                        by_bits,
                                        tail,
                                        gap,
                                        waiting,
                                        scratch,
                                        out,
                                        written,
                                        tally,
                                        state,
                                    )
                                waiting, fits = 0, written >= 0
            if waiting and fits:
                written = _verify(
                    q,
                    d,
                    x,
                    other,
                    limit,
                    by_bits,
                    tail,
                    gap,
                    waiting,
                    scratch,
                    out,
                    written,
                    tally,
                    state,
                )
                fits = written >= 0
            waiting = 0
        if by_bits:
            clear_matches(q_tokens, begin, length, matches)
        if not fits:
            # the next call searches this probe again, so forget which strings it was
            # compared with
            for kind in range(len(stamps)):
                if stamps[kind] == x:
                    stamps[kind] = -1
            state[NEXT], state[DONE] = x, before
            return
    tally[LISTED] += listed
    tally[CANDIDATES] += candidates
    tally[VERIFIED] += verified
    state[NEXT], state[DONE] = -1, written
