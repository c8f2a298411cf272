"""The most similar right rows of each left row, against brute force."""

from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import OptionError
from dask_simjoin.sets import best, local
from dask_simjoin.sets.requests import Best
from tests.support.edits import edit_distance
from tests.support.profiles import examples
from tests.support.random_sets import best_pairs

KINDS = {
    "sets": ("set_join", {"threshold": 0.3, "tokenizer": ("qgrams", 1)}),
    "edits": ("edit_join", {"k": 2}),
    "similarity": ("edit_join", {"similarity": 0.5}),
}


def rank_of(kind, one, other):
    """Return how similar two texts are; None: they do not match."""
    if one is None or other is None:
        return None
    if kind == "sets":
        a, b = set(one), set(other)
        found = len(a & b) / len(a | b) if a and b else 0
        return found if 10 * len(a & b) >= 3 * len(a | b) and found else None
    distance, longest = edit_distance(one, other), max(len(one), len(other), 1)
    if kind == "edits":
        return -distance if distance <= 2 else None
    return -distance / longest if 2 * distance <= longest else None


def wanted(kind, left, right, ties, number):
    pairs = {
        (i, j): rank
        for i, one in enumerate(left)
        for j, other in enumerate(right)
        if (rank := rank_of(kind, one, other)) is not None
    }
    return best_pairs(pairs, ties, number)


NUMBERS = st.sampled_from([True, 2, 5, 1000])
TEXTS = st.lists(st.none() | st.text("ab", max_size=5), min_size=1, max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(60))
@given(
    left=TEXTS,
    right=TEXTS,
    ties=st.sampled_from(["first", "all"]),
    number=NUMBERS,
    data=st.data(),
)
def test_best_matches_are_those_of_brute_force(kind, left, right, ties, number, data):
    verb, how = KINDS[kind]
    pairs = wanted(kind, left, right, ties, number)
    frame = pd.DataFrame({"t": pd.Series(left, dtype=object)})
    other = pd.DataFrame({"t": pd.Series(right, dtype=object), "n": range(len(right))})
    lazy, far = (
        dd.from_pandas(table, npartitions=data.draw(st.integers(1, 3)), sort=False)
        for table in (frame, other)
    )
    small = {"blocksize": data.draw(st.sampled_from([200, 10_000]))}
    for a, b, more in ((frame, other, {}), (lazy, far, small)):
        how = how | more | {"best": number, "ties": ties, "on": "t", "keep": "n"}
        found = getattr(a.simjoin, verb)(b, how="left", **how)
        found = found if a is frame else found.compute()
        hit = found[found["right"].notna()]
        assert set(zip(hit["left"], hit["right"], strict=True)) == set(pairs)
        assert len(hit) == len(pairs) and (hit["n"] == hit["right"]).all()
        alone = {*range(len(left))} - {i for i, _ in pairs}
        assert set(found["left"][found["right"].isna()]) == alone
        if a is frame:
            inner = getattr(a.simjoin, verb)(b, **how)
            assert list(zip(inner["left"], inner["right"], strict=True)) == [*pairs]


@pytest.mark.parametrize("number", [1, 3])
def test_few_pairs_are_held(monkeypatch, number):
    """Each batch has a better row for each of ten groups, so few of them stay."""
    monkeypatch.setattr(best, "BATCH", 10)
    monkeypatch.setattr(best, "_ranked", lambda _, pairs: pairs)
    monkeypatch.setattr(best, "all_groups", len)
    held = []
    chosen = best.best_of

    def watched(left, *others):
        held.append(len(left))
        return chosen(left, *others)

    monkeypatch.setattr(best, "best_of", watched)
    group, one = np.arange(10), np.ones(10)
    batches = (
        best.GroupPairs(group, np.full(10, n), n * one, one) for n in range(99, -1, -1)
    )
    task = SimpleNamespace(query=group, spec=SimpleNamespace(best=Best(number, False)))
    found = best.best_groups(task, batches, np.arange(100))
    assert found.left.tolist() == np.repeat(group, number).tolist()
    assert found.right.tolist() == [*range(number)] * 10
    assert len(held) > 10 and max(held) <= 20 + 20 * number


def test_pairs_behind_enough_better_ones_are_dropped(monkeypatch):
    """Three pairs of each group are known, so later batches add nothing."""
    monkeypatch.setattr(best, "BATCH", 10)
    monkeypatch.setattr(best, "_ranked", lambda _, pairs: pairs)
    monkeypatch.setattr(best, "all_groups", len)
    held = []
    chosen = best.best_of

    def watched(left, *others):
        held.append(len(left))
        return chosen(left, *others)

    monkeypatch.setattr(best, "best_of", watched)
    group, one = np.arange(10), np.ones(10)
    batches = (best.GroupPairs(group, np.full(10, n), n * one, one) for n in range(100))
    task = SimpleNamespace(query=group, spec=SimpleNamespace(best=Best(3, False)))
    found = best.best_groups(task, batches, np.arange(100))
    assert found.right.tolist() == [0, 1, 2] * 10 and len(held) <= 4


def test_groups_behind_enough_rows_do_not_become_pairs(monkeypatch):
    """The best group of each left row has four rows, and the next one is not needed."""
    frame = pd.DataFrame({"t": ["ab"] * 4 + ["abc"] * 1000})
    numbers = []
    monkeypatch.setattr(
        local, "memory_check", lambda *_: lambda number: numbers.append(number)
    )
    for ties in ("first", "all"):
        found = frame[:1].simjoin.edit_join(frame, "t", 1, best=3, ties=ties)
        assert found["right"].tolist() == [*range(3 if ties == "first" else 4)]
    assert numbers == [3, 4]


def test_equal_rows_far_apart_are_all_best():
    frame = pd.DataFrame({"t": ["a", "b"] * 40})
    how = {"on": "t", "k": 1, "best": True}
    found = frame.simjoin.edit_join(frame, ties="all", **how)
    assert len(found) == 80 * 40
    found = frame.simjoin.edit_join(frame, **how)
    assert found["right"].tolist() == [n % 2 for n in range(80)]
    lazy = dd.from_pandas(frame, npartitions=3)
    assert lazy.simjoin.edit_join(lazy, **how).compute()["right"].sum() == 40


def test_the_first_row_of_a_group_is_the_first_in_its_table():
    chunk = {"order": [2, 0, 1], "position": [4, 1, 7], "firsts": [0, 2, 3]}
    chunk = {name: np.array(value) for name, value in chunk.items()}
    found = best.rows_of_groups(chunk)
    assert found.places.tolist() == [1, 0, 2] and found.numbers.tolist() == [4, 7, 1]
    assert found.position.tolist() == [4, 1]


def test_what_is_refused():
    frame = pd.DataFrame({"t": ["a"]})
    for more, said in (
        ({"ties": "all"}, "ties='all' needs best=True"),
        ({"best": True, "how": "outer"}, "best=True is not allowed with how='outer'"),
        ({"best": True, "how": "leftsemi"}, "Leave out best="),
        ({"best": 3, "how": "right"}, "best=3 is not allowed with how='right'"),
        ({"best": 2, "matching": "greedy"}, "best=2 is not allowed with matching"),
        ({"best": 0}, "best=0 is not allowed; use True for the most similar row"),
        ({"best": -1}, "whole number >= 1, such as 3"),
        ({"best": 2.0}, "best=2.0 is not allowed"),
        ({"best": "all"}, "best='all' is not allowed"),
        ({"best": np.array([True, False])}, "is not allowed; use True"),
    ):
        with pytest.raises(OptionError, match=said):
            frame.simjoin.edit_join(frame, "t", 1, **more)
        with pytest.raises(OptionError, match=said):
            frame.simjoin.set_join(frame, "t", 1, tokenizer="words", **more)


def test_groups_without_rows_have_any_first_row():
    frame = pd.DataFrame({"t": np.array([], object)})
    found = frame.simjoin.set_join(frame, "t", 1, tokenizer="words", best=True)
    assert not len(found) and list(found.columns) == ["left", "right"]
