"""Candidates as the CPU's filters leave them, probe by probe, into buffers that something else verifies.

Probes are the sets of one side; of the other side an index has the sets in whose prefixes a token is, in
their order, which is that of sizes.
"""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.cpu.kernels.merge import common
from dask_simjoin.sets.algorithms.cpu.kernels.needs import Numbers, beyond, need

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
