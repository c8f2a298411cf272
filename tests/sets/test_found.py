"""Equal sets stand for several rows."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.sets.encode import collapse, hashes, ranked
from tests.sets.test_encode import read
from tests.support.sets_oracle import block_of


@given(rows=st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=40), seed=st.integers(0, 9))
def test_equal_sets_are_put_together(rows, seed):
    sets, vocabulary = read(rows)
    rank = np.random.default_rng(seed).permutation(len(vocabulary["frequency"])).astype(np.int32)
    sets = ranked(sets, rank)
    missing = np.array([not row and k % 2 == 1 for k, row in enumerate(rows)], bool)
    made = collapse(sets, len(rank), missing)
    tokens = [
        sets["codes"][a:b].tolist() for a, b in zip(sets["offsets"][:-1], sets["offsets"][1:], strict=True)
    ]
    block, order = block_of([row for row in tokens if row])
    for name in ("offsets", "tokens", "weights"):
        assert made["block"][name].tolist() == block[name].tolist()
    firsts, places = made["firsts"].tolist(), made["order"].tolist()
    assert sorted(places) == list(range(len(rows))) and firsts[-1] == len(rows)
    for n, key in enumerate(order):
        group = places[firsts[n] : firsts[n + 1]]
        assert group == sorted(group) and all(tuple(tokens[row]) == key for row in group)
    empty = places[firsts[-3] : firsts[-2]]
    assert all(not rows[row] and not missing[row] for row in empty)
    assert all(missing[row] for row in places[firsts[-2] :])
    equal = hashes(sets)
    assert all(
        (equal[a] == equal[b]) == (tokens[a] == tokens[b]) for a in range(len(rows)) for b in range(len(rows))
    )


def test_long_sets_that_differ_late():
    """Keys hold only the first tokens: what they leave open is put in order token by token."""
    random = np.random.default_rng(1)
    base = list(range(60))
    rows = [[*base, 60 + int(random.integers(4)), 70 + int(random.integers(3))] for _ in range(200)]
    sets, vocabulary = read(rows)
    made = collapse(ranked(sets, np.arange(len(vocabulary["frequency"]), dtype=np.int32)), 80)
    offsets, tokens = made["block"]["offsets"], made["block"]["tokens"]
    found = [tuple(tokens[a:b]) for a, b in itertools.pairwise(offsets)]
    assert found == sorted(found) and len(set(found)) == len({frozenset(row) for row in rows})
