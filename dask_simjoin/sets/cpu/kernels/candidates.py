"""Find candidates in the lists of common tokens, and verify them by merging.

Probes are the sets of one side; of the other side an index has the sets in whose prefixes a token is, in
their order, which is that of sizes.
"""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source, kernel
from dask_simjoin.engine.cpu.kernels.tile_simd import count_bits
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.kinds import NEVER, NONE, PRODUCT

STEPS = 8
"""How many steps are done before it is asked whether the rest can still decide."""


@inline_source
def common(x: Array, i: int, i_end: int, y: Array, j: int, j_end: int, found: int, least: int) -> int:
    """Return `found` and how many tokens are in both ranges, or less than `least` if it is less."""
    while True:
        rest = min(i_end - i, j_end - j)
        if found + rest < least:
            return found
        if rest < STEPS:
            break
        for _ in range(STEPS):
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
"""The fields of `Limits`."""


@device_function
def least(kind: int, n: int, d: int, above: bool, a: int, b: int) -> int:
    """Return the least overlap o with o * d >= n * (a+b), or o**2 * d >= n * a * b, or o * d >= n."""
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
    """Return the least overlap of sets of these sizes that may match."""
    return least(limits[0], limits[1], limits[2], limits[3], a, b)


@device_function
def beyond(limits: Numbers, a: int, b: int) -> int:
    """Return the least overlap that is too much."""
    if limits[4]:
        return least(limits[0], limits[1], limits[2], limits[5], a, b)
    return NEVER


@device_function
def set_rows(limits: Numbers, a: int, lo: int, hi: int, kinds: Array, rows: Array) -> tuple[int, int]:
    """Return which `kinds` of sizes, lo ... hi-1, may match a size, and tell what they need.

    `lo` and `hi` are those of a smaller size, or 0.  At each of these sizes `rows[0]` gets the least overlap,
    and `rows[1]` how many tokens at most are in one set only, of pairs up to that size.
    """
    while lo < kinds.size and need(limits, a, kinds[lo]) > kinds[lo]:
        lo += 1
    while hi < kinds.size and need(limits, a, kinds[hi]) <= a:
        hi += 1
    differ = 0
    for kind in range(lo, hi):
        b = kinds[kind]
        rows[0, b] = need(limits, a, b)
        differ = max(differ, a + b - 2 * rows[0, b])
        rows[1, b] = differ
    return lo, hi


Probes = tuple[Array, Array, Array]
"""The offsets, tokens and prefixes' lengths of a side."""

Lists = tuple[Array, Array, Array]
"""Of an index: where each token's list begins and ends, and in the lists the sets, and the token's places."""

PROBE, FOUND, HANDED, LISTED = range(4)
"""Places of what `fill` keeps: the probe at hand, how many candidates it has, how many of them have been
handed out, and how many entries of the index were looked at so far."""


@kernel
def build(side: Probes, index: Lists) -> None:
    """Build the index of prefixes; its first array (universe + 1, 2) is of zeros."""
    offsets, tokens, lengths = side
    lists, sets, places = index
    for k in range(lengths.size):
        for i in range(lengths[k]):
            lists[tokens[offsets[k] + i] + 1, 0] += 1
    for t in range(1, lists.shape[0]):
        lists[t, 0] += lists[t - 1, 0]
    for t in range(lists.shape[0]):  # Numba compiles a second and a half to copy an array
        lists[t, 1] = lists[t, 0]
    for k in range(lengths.size):
        for i in range(lengths[k]):
            t = tokens[offsets[k] + i]
            sets[lists[t, 1]], places[lists[t, 1]] = k, i
            lists[t, 1] += 1


@device_function
def meet(probe: int, q: Probes, d_offsets: Array, reach: tuple[Array, Array], index: Lists, positional: bool,
         scratch: tuple[Array, Array, Array], state: Array) -> int:  # fmt: skip
    """Find the candidates of a probe, which the last array of `scratch` gets: how many.

    Its array before, of zeros, is so again.
    """
    row, seen, met = scratch
    offsets, tokens, lengths = q
    lists, sets, places = index
    begin, first, last = offsets[probe], reach[0][probe], reach[1][probe]
    a = offsets[probe + 1] - begin
    number = 0
    for i in range(lengths[probe]):
        token = tokens[begin + i]
        at, stop = lists[token, 0], lists[token, 1]
        while at < stop and sets[at] < first:  # which is not less of later probes
            at += 1
        lists[token, 0] = at
        while at < stop and sets[at] < last:
            other = sets[at]
            state[LISTED] += 1
            if seen[other] == 0:
                met[number] = other
                number += 1
            if not positional:
                seen[other] = 1
            elif seen[other] >= 0:
                b = d_offsets[other + 1] - d_offsets[other]
                near = seen[other] + min(a - i, b - places[at]) >= row[b]
                seen[other] = seen[other] + 1 if near else -1
            at += 1
    kept = 0
    for k in range(number):
        if seen[met[k]] > 0:
            met[kept] = met[k]
            kept += 1
        seen[met[k]] = 0
    return kept


@kernel
def fill(q: Probes, d_offsets: Array, reach: tuple[Array, Array], index: Lists, limits: Numbers,
         positional: bool, scratch: tuple[Array, Array, Array], state: Array, probes: Array, starts: Array,
         candidates: Array) -> int:  # fmt: skip
    """Go on with the candidates of probes until there is no more room: how many probes have any.

    `candidates` gets those of `probes[k]` at `starts[k]` ... `starts[k + 1]` - 1.  `reach`: the first of the
    sets that each probe may match, and the one behind the last.  `scratch`: what `meet` works in, and what
    sets of each size need with the probe at hand.  A probe of more candidates than there is room for is gone
    on with next time.
    """
    offsets, _, lengths = q
    row, _, met = scratch
    number = filled = size = 0
    starts[0] = 0
    while True:
        if state[HANDED] == state[FOUND]:
            if state[PROBE] + 1 == lengths.size:
                state[PROBE] += 1
            if state[PROBE] == lengths.size:
                return number
            state[PROBE] += 1
            probe = state[PROBE]
            state[FOUND] = state[HANDED] = 0
            first, last = reach[0][probe], reach[1][probe]
            if lengths[probe] == 0 or first >= last:
                continue
            a = offsets[probe + 1] - offsets[probe]
            if positional and a != size:
                size = a
                low, high = d_offsets[first + 1] - d_offsets[first], d_offsets[last] - d_offsets[last - 1]
                for b in range(low, high + 1):
                    row[b] = need(limits, a, b)
            state[FOUND] = meet(probe, q, d_offsets, reach, index, positional, scratch, state)
            continue
        more = min(state[FOUND] - state[HANDED], candidates.size - filled)
        if more == 0 or number == probes.size:
            return number
        for k in range(more):
            candidates[filled + k] = met[state[HANDED] + k]
        state[HANDED] += more
        filled += more
        probes[number] = state[PROBE]
        number += 1
        starts[number] = filled


@kernel
def pair_members(q: tuple[Array, Array], d: tuple[Array, Array], members: tuple[Array, Array],
                 limits: Numbers, same: bool, chunk: tuple[Array, Array, Array],
                 out: tuple[Array, Array]) -> tuple[int, int]:  # fmt: skip
    """Find the pairs that match of members of groups whose first sets are candidates.

    Returns how many they are, and of how many.  The pair of first sets is left to others; `out` gets as many
    pairs, and overlaps, as it has room for.
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
            least, most = need(limits, a, b), beyond(limits, a, b)
            for i in range(p, p + members[0][p]):
                for j in range(c, c + members[1][c]):
                    if (i == p and j == c) or (same and i >= j):
                        continue
                    compared += 1
                    begin, first = q_offsets[i], d_offsets[j]
                    found = common(q_tokens, begin, begin + a, d_tokens, first, first + b, 0, least)
                    if least <= found < most:
                        if number < overlaps.size:
                            pairs[number, 0], pairs[number, 1], overlaps[number] = i, j, found
                        number += 1
    return number, compared


Side = tuple[Array, Array, Array]
"""The offsets, tokens and weights of a block's sets."""

Out = tuple[Array, Array, Array, Array, Array]
"""Where pairs are written: positions of both sides and overlaps; and weights of partners of each set."""

NEXT, FILLED, STAMP, DONE = range(4)
"""Of a search: its next set, how many are in lists, the number of its last visit, and pairs it wrote."""

TOTAL, TALLY_LISTED, CANDIDATES, VERIFIED, PAIRS = range(5)
"""Of what is counted: the sum of products of weights, and the fields of `Counters`."""


PARTNERS = 31
"""Sets that each set of the sample is compared with, or a few more."""

ADMISSIBLE, COMPARED, LOOKUPS, ENTRIES, LEFT = range(5)
"""What is told: pairs of admissible sizes; those that were compared; tokens of prefixes; entries of their
lists, of such sizes; and, from `LEFT` on, how many of the compared ones bitmaps of 1, 2 ... words leave."""


@kernel
def sample(q: Side, d: Side, same: bool, limits: Numbers, prefixes: Array, lists: Array, kinds: Array,
           starts: Array, rows: Array, step: int, bits: Array, told: Array) -> None:  # fmt: skip
    """Look at every `step`-th set of `q`, and compare some of `d`, before it if they are the same.

    `bits`: memory for the words of the largest bitmap; the smaller ones are its halves' xor, and so on.
    `told`: float64.
    """
    q_offsets, q_tokens, _ = q
    d_offsets, d_tokens, _ = d
    lo, hi, size = np.int64(0), np.int64(0), 0  # literals would be compiled for themselves
    mask, most = lists.shape[0] - 1, bits.size
    for k in range(step // 2, q_offsets.size - 1, step):
        begin, end = q_offsets[k], q_offsets[k + 1]
        if end - begin != size:
            size = end - begin
            lo, hi = set_rows(limits, size, lo, hi, kinds, rows)
        first, last = starts[lo], starts[hi]
        if same:
            last = min(last, k)
        if first >= last:
            continue
        told[ADMISSIBLE] += last - first
        share = (last - first) / (d_offsets.size - 1)
        for p in range(begin, begin + prefixes[size]):
            bucket = q_tokens[p] & mask
            told[LOOKUPS] += 1
            if bucket < mask:  # where the last list ends is not told
                told[ENTRIES] += share * (lists[bucket + 1, 0] - lists[bucket, 0])
        stride = max((last - first) // PARTNERS, 1)
        for other in range(first + k % stride, last, stride):
            there, over = d_offsets[other], d_offsets[other + 1]
            for w in range(most):
                bits[w] = 0
            for p in range(begin, end):
                bit = q_tokens[p] & (64 * most - 1)
                bits[bit >> 6] ^= 1 << (bit & 63)
            for p in range(there, over):
                bit = d_tokens[p] & (64 * most - 1)
                bits[bit >> 6] ^= 1 << (bit & 63)
            told[COMPARED] += 1
            words, place = most, told.size - 1
            while words > 0:
                differ = 0
                for w in range(words):
                    differ += count_bits(bits[w])
                told[place] += differ <= size + over - there - 2 * rows[0, over - there]
                words //= 2
                place -= 1
                for w in range(words):
                    bits[w] ^= bits[w + words]
