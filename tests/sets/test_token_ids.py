"""Sets as token numbers: one order of tokens, and blocks of distinct sets."""

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.sets.columns import occurrences
from dask_simjoin.sets.token_ids import (
    collapse,
    distinct_sizes,
    hashes,
    merge,
    number_tokens,
    numbered_integers,
    ranked,
    ranks,
    ranks_of,
    sizes_of,
    take_sets,
    unique_tokens,
)
from tests.support.sets_oracle import block_of

TABLES = st.lists(
    st.lists(st.lists(st.integers(-3, 40), max_size=9), max_size=12),
    min_size=1,
    max_size=4,
)


def read(rows, strings=False):
    values = [[f"t{t}" for t in row] if strings else row for row in rows]
    kind = pa.string() if strings else pa.int64()
    column = pd.Series(pd.array(values, dtype=pd.ArrowDtype(pa.list_(kind))))
    return unique_tokens(occurrences(column, None)[1])


@given(tables=TABLES, strings=st.booleans())
def test_ranks_are_one_order_of_all_tables(tables, strings):
    """The rarest token is 0, and every table has the same number for a token."""
    encoded = [read(rows, strings) for rows in tables]
    merged = merge(*(vocabulary for _, vocabulary in encoded))
    whole = ranks(merged["vocabulary"])
    assert sorted(whole.tolist()) == list(range(len(whole)))
    counts = {}
    for rows in tables:
        for row in rows:
            for token in set(row):
                counts[token] = counts.get(token, 0) + 1
    assert len(whole) == len(counts)
    number_of = {}
    for n, (rows, (sets, _)) in enumerate(zip(tables, encoded, strict=True)):
        found = ranked(sets, ranks_of(whole, merged["codes"], n))
        for k, row in enumerate(rows):
            tokens = found["codes"][
                found["offsets"][k] : found["offsets"][k + 1]
            ].tolist()
            assert tokens == sorted(set(tokens)) and len(tokens) == len(set(row))
            number_of.setdefault(frozenset(row), tokens)
            assert number_of[frozenset(row)] == tokens
    order = {}
    for row, tokens in number_of.items():
        if len(row) == 1:
            order[tokens[0]] = counts[next(iter(row))]
    assert [order[rank] for rank in sorted(order)] == sorted(order.values())


@pytest.mark.parametrize(
    "values", [[[0, 2**40]], [[2**40 + k] for k in range(9)], [[-(2**62)], [2**62]]]
)
def test_integers_far_apart_and_near(values):
    parts = [read(values)[1], read([[5]])[1], read([[]])[1]]
    merged = merge(*parts)
    tokens = sorted({t for row in values for t in row} | {5})
    assert sorted(merged["vocabulary"]["tokens"].tolist()) == tokens
    for part, codes in zip(parts, merged["codes"], strict=True):
        own = [] if part["tokens"] is None else part["tokens"].tolist()
        assert merged["vocabulary"]["tokens"][codes].tolist() == own


def test_some_sets():
    sets, _ = read([[1, 2], [], [3], [1, 3]])
    some = take_sets(sets, np.array([3, 1, 0]))
    assert some["offsets"].tolist() == [0, 2, 2, 4]


@pytest.mark.parametrize("step", [1, 10**12])
def test_integers_are_numbered_among_those_that_differ(step):
    # close together, or far apart
    flat = np.random.default_rng(0).integers(-20, 20, 90) * step
    codes, tokens = numbered_integers(flat)
    assert codes.dtype == np.int32 and tokens[codes].tolist() == flat.tolist()
    assert sorted(tokens.tolist()) == sorted(set(flat.tolist()))
    together, parts = number_tokens([flat[:40], None, flat[40:]])
    assert np.concatenate([together[some] for some in parts]).tolist() == flat.tolist()
    assert (
        sorted(together.tolist()) == sorted(set(flat.tolist())) and len(parts[1]) == 0
    )


def test_sizes_of_a_block_are_listed_once():
    sizes = sizes_of({"offsets": np.array([0, 1, 2, 4, 6, 9])})
    assert sizes.tolist() == [1, 1, 2, 2, 3] and distinct_sizes(sizes).tolist() == [
        1,
        2,
        3,
    ]


@given(
    rows=st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=40),
    seed=st.integers(0, 9),
)
def test_equal_sets_are_put_together(rows, seed):
    sets, vocabulary = read(rows)
    rank = (
        np.random.default_rng(seed)
        .permutation(len(vocabulary["frequency"]))
        .astype(np.int32)
    )
    sets = ranked(sets, rank)
    missing = np.array([not row and k % 2 == 1 for k, row in enumerate(rows)], bool)
    made = collapse(sets, len(rank), missing)
    tokens = [
        sets["codes"][a:b].tolist()
        for a, b in zip(sets["offsets"][:-1], sets["offsets"][1:], strict=True)
    ]
    block, order = block_of([row for row in tokens if row])
    for name in ("offsets", "tokens", "weights"):
        assert made["block"][name].tolist() == block[name].tolist()
    firsts, places = made["firsts"].tolist(), made["order"].tolist()
    assert sorted(places) == list(range(len(rows))) and firsts[-1] == len(rows)
    for n, key in enumerate(order):
        group = places[firsts[n] : firsts[n + 1]]
        assert group == sorted(group) and all(
            tuple(tokens[row]) == key for row in group
        )
    empty = places[firsts[-3] : firsts[-2]]
    assert all(not rows[row] and not missing[row] for row in empty)
    assert all(missing[row] for row in places[firsts[-2] :])
    equal = hashes(sets)
    assert all(
        (equal[a] == equal[b]) == (tokens[a] == tokens[b])
        for a in range(len(rows))
        for b in range(len(rows))
    )


def test_long_sets_that_differ_late():
    """Keys hold only the first tokens: what they leave open is put in order token by
    token.
    """
    random = np.random.default_rng(1)
    base = list(range(60))
    rows = [
        [*base, 60 + int(random.integers(4)), 70 + int(random.integers(3))]
        for _ in range(200)
    ]
    sets, vocabulary = read(rows)
    made = collapse(
        ranked(sets, np.arange(len(vocabulary["frequency"]), dtype=np.int32)), 80
    )
    offsets, tokens = made["block"]["offsets"], made["block"]["tokens"]
    found = [tuple(tokens[a:b]) for a, b in itertools.pairwise(offsets)]
    assert found == sorted(found) and len(set(found)) == len(
        {frozenset(row) for row in rows}
    )
