"""Find candidate pairs by an index of prefixes, and verify each by merging its two
sets.

A probe is a set that is looked up in the index. For each token, the index lists the
other sets that have the token in their prefix, sorted by size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source, kernel
from dask_simjoin.engine.cpu.kernels.tile_simd import count_bits
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.predicate import NEVER, NONE, PRODUCT


@inline_source
def common(
    x: Array,
    i: int,
    i_end: int,
    y: Array,
    j: int,
    j_end: int,
    found: int,
    min_overlap: int,
) -> int:
    """Return `found` plus the number of common tokens. Stop early once `min_overlap`
    cannot be reached any more.
    """
    while True:
        rest = min(i_end - i, j_end - j)
        if found + rest < min_overlap:
            return found
        # after 8 steps, check again whether the two sets can still match
        if rest < 8:
            break
        for _ in range(8):
            s, t = x[i], y[j]
            found += s == t
            i += s <= t
            j += t <= s
    while i < i_end and j < j_end:
        s, t = x[i], y[j]
        found += s == t
        i += s <= t
        j += t <= s
    return found


Numbers = tuple[int, int, int, bool, bool, bool]
"""The fields of `Limits`, as a plain tuple for kernels."""


@device_function
def smallest_overlap(kind: int, n: int, d: int, above: bool, a: int, b: int) -> int:
    """Return the smallest overlap o of two sets with sizes `a` and `b` that fulfills
    the predicate.

    Depending on `kind`, the predicate is o * d >= n * (a+b), or o**2 * d >= n * a * b,
    or o * d >= n. `above`: whether to compare by > instead of >=.
    """
    if kind == PRODUCT:
        top = n * a * b + above
        o = int(math.sqrt(top / d))
        while o * o * d >= top:
            o -= 1
        while o * o * d < top:
            o += 1
        return o
    top = (n if kind == NONE else n * (a + b)) + above
    return (top + d - 1) // d


@device_function
def need(limits: Numbers, a: int, b: int) -> int:
    """Return the smallest overlap of two matching sets that have sizes `a` and `b`."""
    return smallest_overlap(limits[0], limits[1], limits[2], limits[3], a, b)


@device_function
def beyond(limits: Numbers, a: int, b: int) -> int:
    """Return the smallest overlap that is too large for a match of two sets that have
    sizes `a` and `b`.
    """
    if limits[4]:
        return smallest_overlap(limits[0], limits[1], limits[2], limits[5], a, b)
    return NEVER


@device_function
def size_range(
    limits: Numbers, a: int, lo: int, hi: int, distinct: Array
) -> tuple[int, int]:
    """Return the range `lo`, `hi` such that sets of size `a` can match only sets with
    sizes in `distinct[lo:hi]`.

    The arguments `lo` and `hi` are the range for a smaller `a`, or 0.
    """
    while lo < distinct.size and need(limits, a, distinct[lo]) > distinct[lo]:
        lo += 1
    while hi < distinct.size and need(limits, a, distinct[hi]) <= a:
        hi += 1
    return lo, hi


@device_function
def set_rows(
    limits: Numbers, a: int, lo: int, hi: int, distinct: Array, rows: Array
) -> tuple[int, int]:
    """Return the same range as `size_range`. In `rows`, describe matches for each size
    in the range.

    For each size b, `rows[0, b]` is set to the smallest overlap of a match. `rows[1,
    b]` is set to the largest number of tokens that two matching sets do not share, if
    the other set has at most size b.
    """
    lo, hi = size_range(limits, a, lo, hi, distinct)
    differ = 0
    for kind in range(lo, hi):
        b = distinct[kind]
        rows[0, b] = need(limits, a, b)
        differ = max(differ, a + b - 2 * rows[0, b])
        rows[1, b] = differ
    return lo, hi


Probes = tuple[Array, Array, Array]
"""The offsets, the tokens and the prefix lengths of a block of sets."""

Lists = tuple[Array, Array, Array]
"""An index: the bounds of each token's list; then the set and the token position of
each entry.
"""

PROBE, FOUND, WRITTEN, LISTED = range(4)
"""Indexes in the array `state` of the kernel `fill`.

`PROBE`: the current probe. `FOUND`: how many candidates it has. `WRITTEN`: how many of
these are written already. `LISTED`: how many index entries were read.
"""


@kernel
def build(side: Probes, index: Lists) -> None:
    """Build the index of prefixes. Its first array (universe + 1, 2) must be all zeros
    before the call.
    """
    offsets, tokens, lengths = side
    lists, sets, places = index
    for k in range(lengths.size):
        for i in range(lengths[k]):
            lists[tokens[offsets[k] + i] + 1, 0] += 1
    for t in range(1, lists.shape[0]):
        lists[t, 0] += lists[t - 1, 0]
    # copied in a loop, because Numba takes 1.5 s to compile the copy as one statement
    for t in range(lists.shape[0]):
        lists[t, 1] = lists[t, 0]
    for k in range(lengths.size):
        for i in range(lengths[k]):
            t = tokens[offsets[k] + i]
            sets[lists[t, 1]], places[lists[t, 1]] = k, i
            lists[t, 1] += 1


@device_function
def collect_candidates(
    probe: int,
    q: Probes,
    d_offsets: Array,
    reach: tuple[Array, Array],
    index: Lists,
    positional: bool,
    scratch: tuple[Array, Array, Array],
    state: Array,
) -> int:
    """Write the candidates of a probe to `met`, the last array in `scratch`. Return
    their number.

    `shared`, the second array in `scratch`, must be all zeros before the call. It is
    all zeros again afterwards.
    """
    row, shared, met = scratch
    offsets, tokens, lengths = q
    lists, sets, places = index
    begin, first, last = offsets[probe], reach[0][probe], reach[1][probe]
    a = offsets[probe + 1] - begin
    number = 0
    for i in range(lengths[probe]):
        token = tokens[begin + i]
        at, stop = lists[token, 0], lists[token, 1]
        # skip sets that neither this probe nor a later one can match
        while at < stop and sets[at] < first:
            at += 1
        lists[token, 0] = at
        while at < stop and sets[at] < last:
            other = sets[at]
            state[LISTED] += 1
            if shared[other] == 0:
                met[number] = other
                number += 1
            if not positional:
                shared[other] = 1
            elif shared[other] >= 0:
                b = d_offsets[other + 1] - d_offsets[other]
                near = shared[other] + min(a - i, b - places[at]) >= row[b]
                shared[other] = shared[other] + 1 if near else -1
            at += 1
    kept = 0
    for k in range(number):
        if shared[met[k]] > 0:
            met[kept] = met[k]
            kept += 1
        shared[met[k]] = 0
    return kept


@kernel
def fill(
    q: Probes,
    d_offsets: Array,
    reach: tuple[Array, Array],
    index: Lists,
    limits: Numbers,
    positional: bool,
    scratch: tuple[Array, Array, Array],
    state: Array,
    probes: Array,
    starts: Array,
    candidates: Array,
) -> int:
    """Write candidates of one probe after the other until the buffer is full. Return
    the number of probes written.

    The candidates of `probes[k]` are at `starts[k]` to `starts[k + 1]` - 1. If some
    candidates of a probe do not fit, the next call writes the rest. `reach`: by size, a
    probe can match only the indexed sets `reach[0]` to `reach[1]` - 1. `scratch`: the
    smallest overlap for each size, then the arrays `shared` and `met` of
    `collect_candidates`.
    """
    offsets, _, lengths = q
    row, _, met = scratch
    number = filled = size = 0
    starts[0] = 0
    while True:
        if state[WRITTEN] == state[FOUND]:
            if state[PROBE] + 1 == lengths.size:
                state[PROBE] += 1
            if state[PROBE] == lengths.size:
                return number
            state[PROBE] += 1
            probe = state[PROBE]
            state[FOUND] = state[WRITTEN] = 0
            first, last = reach[0][probe], reach[1][probe]
            if lengths[probe] == 0 or first >= last:
                continue
            a = offsets[probe + 1] - offsets[probe]
            if positional and a != size:
                size = a
                low, high = (
                    d_offsets[first + 1] - d_offsets[first],
                    d_offsets[last] - d_offsets[last - 1],
                )
                for b in range(low, high + 1):
                    row[b] = need(limits, a, b)
            state[FOUND] = collect_candidates(
                probe, q, d_offsets, reach, index, positional, scratch, state
            )
            continue
        more = min(state[FOUND] - state[WRITTEN], candidates.size - filled)
        if more == 0 or number == probes.size:
            return number
        for k in range(more):
            candidates[filled + k] = met[state[WRITTEN] + k]
        state[WRITTEN] += more
        filled += more
        probes[number] = state[PROBE]
        number += 1
        starts[number] = filled


@kernel
def pair_members(
    q: tuple[Array, Array],
    d: tuple[Array, Array],
    members: tuple[Array, Array],
    limits: Numbers,
    is_self_join: bool,
    chunk: tuple[Array, Array, Array],
    out: tuple[Array, Array],
) -> tuple[int, int]:
    """For pairs of groups of similar sets, verify the pairs of members, except the
    pairs of first members.

    `chunk` has candidate pairs of groups, each given by its first set. Return the
    number of matches, and the number of compared pairs. If matches exceed the capacity
    of `out`, the others are counted, but not written.
    """
    q_offsets, q_tokens = q
    d_offsets, d_tokens = d
    probes, starts, candidates = chunk
    pairs, overlaps = out
    number = compared = 0
    for k in range(probes.size):
        for at in range(starts[k], starts[k + 1]):
            p, c = probes[k], candidates[at]
            a, b = q_offsets[p + 1] - q_offsets[p], d_offsets[c + 1] - d_offsets[c]
            min_overlap, too_large = need(limits, a, b), beyond(limits, a, b)
            for i in range(p, p + members[0][p]):
                for j in range(c, c + members[1][c]):
                    if (i == p and j == c) or (is_self_join and i >= j):
                        continue
                    compared += 1
                    begin, first = q_offsets[i], d_offsets[j]
                    found = common(
                        q_tokens,
                        begin,
                        begin + a,
                        d_tokens,
                        first,
                        first + b,
                        0,
                        min_overlap,
                    )
                    if min_overlap <= found < too_large:
                        if number < overlaps.size:
                            pairs[number, 0], pairs[number, 1], overlaps[number] = (
                                i,
                                j,
                                found,
                            )
                        number += 1
    return number, compared


Side = tuple[Array, Array, Array]
"""The offsets, the tokens and the weights of a block of sets."""

Out = tuple[Array, Array, Array, Array, Array]
"""Output arrays. The first three are for pairs: positions in both blocks, and overlaps.

The last two are for counts: for each set of both blocks, the sum of the weights of its
partners. An array of length 0 is not written.
"""

NEXT, FILLED, STAMP, STOP, DONE = range(5)
"""Indexes in the state of a search: next probe, number of indexed sets, number of
probes so far, number of pairs written.
"""

TOTAL, TALLY_LISTED, CANDIDATES, COMPARISONS, DISTINCT_PAIRS = range(5)
"""Indexes in `tally`: the number of pairs of rows (sum of products of weights), then
the fields of `SetCounters`.
"""


ADMISSIBLE, LOOKUPS, READ, ENTRIES = range(4)
"""Indexes in the first row of the counters of `sample`.

`ADMISSIBLE`: number of pairs with admissible sizes. `LOOKUPS`: number of tokens in
prefixes of probes. `READ`: how many of these tokens have a list with an entry of an
admissible size. `ENTRIES`: the number of such entries.
"""

WORK, OF_LISTS, OF_PAIRS = range(3)
"""Rows in the counters of `sample`.

`WORK`: see above. `OF_LISTS`: nanoseconds to merge the sets of entries: first without
bitmaps, then with bitmaps of 1, 2, 4 ... words. `OF_PAIRS`: the same for all pairs with
admissible sizes.
"""


class SizeEntries(NamedTuple):
    """The distinct sizes of sets in a block, and the entries of smaller sets."""

    distinct: Array
    starts: Array  # the first set of each size; at the end, the number of sets
    # how many entries smaller sets have; at the end, how many all sets have
    before: Array


@kernel
def sample(
    q: Side,
    d: Side,
    is_self_join: bool,
    limits: Numbers,
    prefixes: Array,
    lists: Array,
    sizes: SizeEntries,
    step: int,
    partners: int,
    merge: tuple[float, float],
    bits: Array,
    counted: Array,
) -> None:
    """Estimate the work of each algorithm by comparing every `step`-th set of `q` with
    some sets of `d`.

    In a self-join, a set is compared only with earlier sets. `partners`: each sampled
    set is compared with about this many sets; 0: assume that bitmaps reject nothing.
    `merge`: nanoseconds per merge, and per token that two matching sets need not share.
    `bits` (2, words): scratch. The xor of the two halves of a bitmap is the bitmap of
    half its size. `counted`: the counters to add to, float64.
    """
    distinct, starts, before = sizes
    q_offsets, q_tokens, _ = q
    d_offsets, d_tokens, _ = d
    # np.int64, because Numba would compile another version of `size_range` for literals
    lo, hi, size = np.int64(0), np.int64(0), 0
    mask, max_words, own = lists.shape[0] - 1, bits.shape[1], 0
    last_bit = 64 * max_words - 1
    for k in range(step // 2, q_offsets.size - 1, step):
        begin, end = q_offsets[k], q_offsets[k + 1]
        if end - begin != size:
            size = end - begin
            lo, hi = size_range(limits, size, lo, hi, distinct)
        first, last, inside = starts[lo], starts[hi], before[hi] - before[lo]
        if is_self_join and k < last:
            while starts[own + 1] <= k:
                own += 1
            each = (before[own + 1] - before[own]) // (starts[own + 1] - starts[own])
            last, inside = k, before[own] + (k - starts[own]) * each - before[lo]
        if first >= last:
            continue
        share, entries = inside / max(before[-1], 1), 0.0
        for p in range(begin, begin + prefixes[size]):
            bucket = q_tokens[p] & mask
            counted[WORK, LOOKUPS] += 1
            # a list ends where the next one starts, so the end of the last list is not
            # known here
            if bucket < mask:
                listed = share * (lists[bucket + 1, 0] - lists[bucket, 0])
                counted[WORK, READ] += min(listed, 1.0)
                entries += listed
        pairs = last - first
        counted[WORK, ADMISSIBLE] += pairs
        counted[WORK, ENTRIES] += entries
        # two sets that are too different are merged only until they have this many
        # different tokens
        cost = merge[0] + merge[1] * 2 * (size - min(need(limits, size, size), size))
        counted[OF_LISTS, 0] += entries * cost
        counted[OF_PAIRS, 0] += pairs * cost
        if partners == 0:
            continue
        for w in range(max_words):
            bits[0, w] = 0
        for p in range(begin, end):
            bit = q_tokens[p] & last_bit
            bits[0, bit >> 6] ^= 1 << (bit & 63)
        stride = max(pairs // partners, 1)
        first += k % stride
        compared = (last - first + stride - 1) // stride
        for other in range(first, last, stride):
            there, over = d_offsets[other], d_offsets[other + 1]
            max_bits = size + over - there - 2 * need(limits, size, over - there)
            for w in range(max_words):
                bits[1, w] = bits[0, w]
            for p in range(there, over):
                bit = d_tokens[p] & last_bit
                bits[1, bit >> 6] ^= 1 << (bit & 63)
            words, place = max_words, 1
            while words > 1:
                words //= 2
                place += 1
            words = max_words
            while words > 0:
                differ = 0
                for w in range(words):
                    differ += count_bits(bits[1, w])
                if differ <= max_bits:
                    counted[OF_LISTS, place] += entries / compared * cost
                    counted[OF_PAIRS, place] += pairs / compared * cost
                words //= 2
                place -= 1
                for w in range(words):
                    bits[1, w] ^= bits[1, w + words]
