"""Encoding: one order of tokens, blocks of distinct sets, and which blocks meet."""

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.sets.blocks import MISSING, SizeBlocks, count_meetings, meeting_blocks, size_blocks
from dask_simjoin.sets.columns import occurrences
from dask_simjoin.sets.encode import collapse, each_once, hashes, merge, ranked, ranks, ranks_of, some_sets
from dask_simjoin.sets.predicate import Rule
from tests.support.sets import COMPARISONS, SIMILARITIES, THRESHOLDS
from tests.support.sets_oracle import block_of

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


def test_some_sets():
    sets, _ = read([[1, 2], [], [3], [1, 3]])
    some = some_sets(sets, np.array([3, 1, 0]))
    assert some["offsets"].tolist() == [0, 2, 2, 4]


@given(
    left=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    right=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    similarity=st.sampled_from(SIMILARITIES),
    comparison=st.sampled_from(COMPARISONS),
    threshold=st.sampled_from(THRESHOLDS),
    number=st.integers(1, 9),
    two=st.booleans(),
)
def test_blocks_of_sizes_that_may_match_meet(left, right, similarity, comparison, threshold, number, two):
    """Whatever sizes a sample had: all sizes are in some block, and no pair of them is left out."""
    threshold = 7 if similarity == "overlap" else Fraction(str(threshold))
    rule = Rule(similarity, Fraction(threshold), comparison)
    sides = [
        size_blocks(np.array(sizes), np.arange(len(sizes), dtype=np.uint64), np.ones(len(sizes)), number)
        for sizes in (left, right if two else left)
    ]
    asked = sides[0], sides[1] if two else None, rule, False
    met = {tuple(pair) for pair in meeting_blocks(*asked).tolist()}
    assert count_meetings(*asked) == len(met)
    for side, sizes in zip(sides, (left, right if two else left), strict=True):
        assert side.rows.sum() == len(sizes) and len(side) <= 2 * number + 1
    every = np.arange(1, 70)
    blocks = [
        {
            (size, int(side.block_of(np.array([size]), np.array([h], np.uint64))[0]))
            for size in every
            for h in range(9)
        }
        for side in sides
    ]
    for a, i in blocks[0]:
        for b, j in blocks[1]:
            least = rule.need(int(a), int(b))
            if least <= min(a, b) and least < rule.beyond(int(a), int(b)):
                pair = (i, j + len(sides[0])) if two else (min(i, j), max(i, j))
                assert pair in met


def test_rows_of_no_token_are_in_the_first_block():
    blocks = SizeBlocks(np.array([MISSING, 3]), np.array([2, 2]), *np.zeros((3, 4)))
    sizes, hashed = np.array([-1, 0, 2, 2, 3, 9]), np.array([1, 1, 0, 1, 0, 1], np.uint64)
    assert blocks.block_of(sizes, hashed).tolist() == [0, 0, 0, 1, 2, 3]
    alone = meeting_blocks(blocks, blocks, Rule("jaccard", Fraction(1)), True)
    assert [0, 4] in alone.tolist()


@pytest.mark.parametrize("values", [[[0, 2**40]], [[2**40 + k] for k in range(9)], [[-(2**62)], [2**62]]])
def test_integers_far_apart_and_near(values):
    parts = [read(values)[1], read([[5]])[1], read([[]])[1]]
    merged = merge(*parts)
    tokens = sorted({t for row in values for t in row} | {5})
    assert sorted(merged["vocabulary"]["tokens"].tolist()) == tokens
    for part, codes in zip(parts, merged["codes"], strict=True):
        own = [] if part["tokens"] is None else part["tokens"].tolist()
        assert merged["vocabulary"]["tokens"][codes].tolist() == own
