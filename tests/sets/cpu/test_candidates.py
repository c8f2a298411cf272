"""Candidates by lists of tokens: every pair that matches is among them, filtered by
place or not.
"""

from fractions import Fraction

import numpy as np
import pytest

from dask_simjoin.sets.cpu.candidates import build, fill
from dask_simjoin.sets.predicate import Rule
from tests.support.sets_oracle import block_of, matching


def candidates_of(block, rule, positional, room):
    """All candidates of the sets of a block among those behind it, with whole sets as
    prefixes.
    """
    offsets, tokens, n = block["offsets"], block["tokens"], len(block["offsets"]) - 1
    lengths = np.diff(offsets).astype(np.int32)
    most = int(lengths.max())
    lists = np.zeros((block["universe"] + 1, 2), np.int64)
    index = lists, np.empty(len(tokens), np.int32), np.empty(len(tokens), np.int32)
    build((offsets, tokens, lengths), index)
    reach = np.arange(1, n + 1, dtype=np.int32), np.full(n, n, np.int32)
    scratch = np.zeros(most + 1, np.int64), np.zeros(n, np.int32), np.empty(n, np.int32)
    state, found = np.array([-1, 0, 0, 0]), []
    limits = tuple(rule.limits(most, most))
    while state[0] < n:
        probes, starts, some = (
            np.empty(n, np.int32),
            np.empty(n + 1, np.int32),
            np.empty(room, np.int32),
        )
        number = fill(
            (offsets, tokens, lengths),
            offsets,
            reach,
            index,
            limits,
            positional,
            scratch,
            state,
            probes,
            starts,
            some,
        )
        found += [
            (int(probes[k]), int(c))
            for k in range(number)
            for c in some[starts[k] : starts[k + 1]]
        ]
    assert (scratch[1] == 0).all()
    return found


@pytest.mark.parametrize("positional", [True, False])
@pytest.mark.parametrize(
    "rule",
    [
        Rule("jaccard", Fraction(1, 2)),
        Rule("overlap", Fraction(3)),
        Rule("cosine", Fraction(2, 3), ">"),
    ],
)
def test_no_pair_is_lost(rule, positional):
    rng = np.random.default_rng(0)
    block, sets = block_of(
        [rng.choice(14, rng.integers(1, 9), replace=False).tolist() for _ in range(60)]
    )
    wanted = set(matching(sets, None, rule))
    counted = {}
    for room in (7, 1000):  # however little there is room for at a time
        found = candidates_of(block, rule, positional, room)
        assert len(found) == len(set(found)) and wanted <= set(found)
        counted[room] = sorted(found)
    assert counted[7] == counted[1000] and len(wanted) > 20
    sharing = [
        (i, j)
        for j in range(len(sets))
        for i in range(j)
        if set(sets[i]) & set(sets[j])
    ]
    assert (len(counted[7]) < len(sharing)) == positional  # places leave some out
