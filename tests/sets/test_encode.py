"""Encoding: one order of tokens, blocks of distinct sets, and which blocks meet."""

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.sets.columns import occurrences
from dask_simjoin.sets.encode import each_once, merge, ranked, ranks, ranks_of

TABLES = st.lists(st.lists(st.lists(st.integers(-3, 40), max_size=9), max_size=12), min_size=1, max_size=4)


def read(rows, strings=False):
    values = [[f"t{t}" for t in row] if strings else row for row in rows]
    kind = pa.string() if strings else pa.int64()
    column = pd.Series(pd.array(values, dtype=pd.ArrowDtype(pa.list_(kind))))
    return each_once(occurrences(column, None)[1])


@given(tables=TABLES, strings=st.booleans())
def test_ranks_are_one_order_of_all_tables(tables, strings):
    """The rarest token is 0, and every table has the same number for a token."""
    coded = [read(rows, strings) for rows in tables]
    merged = merge(*(vocabulary for _, vocabulary in coded))
    whole = ranks(merged["vocabulary"])
    assert sorted(whole.tolist()) == list(range(len(whole)))
    counts = {}
    for rows in tables:
        for row in rows:
            for token in set(row):
                counts[token] = counts.get(token, 0) + 1
    assert len(whole) == len(counts)
    number_of = {}
    for n, (rows, (sets, _)) in enumerate(zip(tables, coded, strict=True)):
        found = ranked(sets, ranks_of(whole, merged["codes"], n))
        for k, row in enumerate(rows):
            tokens = found["codes"][found["offsets"][k] : found["offsets"][k + 1]].tolist()
            assert tokens == sorted(set(tokens)) and len(tokens) == len(set(row))
            number_of.setdefault(frozenset(row), tokens)
            assert number_of[frozenset(row)] == tokens
    order = {}
    for row, tokens in number_of.items():
        if len(row) == 1:
            order[tokens[0]] = counts[next(iter(row))]
    assert [order[rank] for rank in sorted(order)] == sorted(order.values())


@pytest.mark.parametrize("values", [[[0, 2**40]], [[2**40 + k] for k in range(9)], [[-(2**62)], [2**62]]])
def test_integers_far_apart_and_near(values):
    parts = [read(values)[1], read([[5]])[1], read([[]])[1]]
    merged = merge(*parts)
    tokens = sorted({t for row in values for t in row} | {5})
    assert sorted(merged["vocabulary"]["tokens"].tolist()) == tokens
    for part, codes in zip(parts, merged["codes"], strict=True):
        own = [] if part["tokens"] is None else part["tokens"].tolist()
        assert merged["vocabulary"]["tokens"][codes].tolist() == own
