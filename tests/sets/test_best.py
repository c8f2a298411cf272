"""The most similar right rows of each left row, against brute force."""

import itertools

import dask
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
        parts = [found] if a is frame else dask.compute(*found.partitions)
        assert all(part["left"].is_monotonic_increasing for part in parts)
        found = pd.concat(parts)
        hit = found[found["right"].notna()]
        assert set(zip(hit["left"], hit["right"], strict=True)) == set(pairs)
        assert len(hit) == len(pairs) and (hit["n"] == hit["right"]).all()
        alone = {*range(len(left))} - {i for i, _ in pairs}
        assert set(found["left"][found["right"].isna()]) == alone
        if a is frame:
            inner = getattr(a.simjoin, verb)(b, **how)
            assert list(zip(inner["left"], inner["right"], strict=True)) == [*pairs]


@pytest.mark.parametrize("npartitions", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_unmatched_rows_stay_between_the_others(kind, npartitions):
    verb, how = KINDS[kind]
    one, other = pd.DataFrame({"t": ["xyz", "ab", None, "abc"]}), ["abc", "ab"]
    two = pd.DataFrame({"t": other})
    if npartitions:
        one = dd.from_pandas(one, npartitions=npartitions)
        two = dd.from_pandas(two, npartitions=npartitions)
    found = getattr(one.simjoin, verb)(two, on="t", best=True, how="left", **how)
    found = found.compute() if npartitions else found
    assert found["left"].tolist() == [0, 1, 2, 3]
    assert found["right"].fillna(-1).tolist() == [-1, 1, -1, 0]


def with_option(frame, kind):
    """Return a frame with a column of groups, and an option for it, or for rows without
    tokens.
    """
    frame = frame.assign(g=[n % 3 == 0 for n in range(len(frame))])
    if kind == "sets":
        return frame, {"allow_empty": True, "allow_missing": True}
    return frame, {"by": "g"}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(20))
@given(
    texts=TEXTS,
    ties=st.sampled_from(["first", "all"]),
    number=NUMBERS,
    more=st.booleans(),
    data=st.data(),
)
def test_best_matches_within_a_table(kind, texts, ties, number, more, data):
    verb, how = KINDS[kind]
    frame = pd.DataFrame({"t": pd.Series(texts, dtype=object), "n": range(len(texts))})
    frame, option = with_option(frame, kind) if more else (frame, {})
    pairs = {}
    for (i, one), (j, other) in itertools.permutations(enumerate(texts), 2):
        if more and kind == "sets" and not one and one == other:
            pairs[i, j] = 1  # both are empty, or both are missing
        elif more and kind != "sets" and (i % 3 == 0) != (j % 3 == 0):
            continue
        elif (rank := rank_of(kind, one, other)) is not None:
            pairs[i, j] = rank
    want = [*best_pairs(pairs, ties, number)]
    how = how | option | {"best": number, "ties": ties, "on": "t", "keep": "n"}
    verb = verb.replace("join", "self_join")
    found = getattr(frame.simjoin, verb)(**how)
    assert list(zip(found["left"], found["right"], strict=True)) == want
    assert found["n_left"].equals(found["left"])
    assert found["n_right"].equals(found["right"])
    npartitions = data.draw(st.integers(1, 3))
    lazy = dd.from_pandas(frame, npartitions=npartitions, sort=False).simjoin
    size = data.draw(st.sampled_from([60, 200, 10_000]))
    rows = getattr(lazy, verb)(blocksize=size, **how).compute()
    assert (rows["n_left"] == rows["left"]).all()
    assert (rows["n_right"] == rows["right"]).all()
    rows = rows.sort_values("left", kind="stable", ignore_index=True)
    pd.testing.assert_frame_equal(rows, found)


def search_of_groups(left, right, number):
    """Return a search for groups of one row each."""
    sides = [
        best.Groups((), ones, np.arange(len(ones) + 1), *[places] * 3)
        for ones in (np.ones(left, int), np.ones(right, int))
        for places in [np.arange(len(ones))]
    ]
    return best.BestSearch(*sides, False, Best(number))


@pytest.fixture
def held(monkeypatch):
    """Cut batches small, and return the list of how many pairs each choice is among."""
    numbers, chosen = [], best.best_of

    def watched(left, *others):
        numbers.append(len(left))
        return chosen(left, *others)

    monkeypatch.setattr(best, "BATCH", 10)
    monkeypatch.setattr(best, "best_of", watched)
    return numbers


@pytest.mark.parametrize("number", [1, 3])
def test_few_pairs_are_held(held, number):
    """Each batch has a better row for each of ten groups, so few of them stay."""
    group, one = np.arange(10), np.ones(10)
    batches = (
        best.GroupPairs(group, np.full(10, n), n * one, one) for n in range(99, -1, -1)
    )
    found = search_of_groups(10, 100, number).best_groups(batches)
    assert found.left.tolist() == np.repeat(group, number).tolist()
    assert found.right.tolist() == [*range(number)] * 10
    assert len(held) > 10 and max(held) <= 20 + 20 * number


def test_pairs_behind_enough_better_ones_are_dropped(held):
    """Three pairs of each group are known, so later batches add nothing."""
    group, one = np.arange(10), np.ones(10)
    batches = (best.GroupPairs(group, np.full(10, n), n * one, one) for n in range(100))
    found = search_of_groups(10, 100, 3).best_groups(batches)
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
    found = frame.simjoin.edit_join(frame[:], **how)
    assert found["right"].tolist() == [n % 2 for n in range(80)]
    lazy = dd.from_pandas(frame, npartitions=3)
    assert lazy.simjoin.edit_join(frame, **how).compute()["right"].sum() == 40


def test_the_first_row_of_a_group_is_the_first_in_its_table():
    chunk = {"order": [2, 0, 1], "position": [4, 1, 7], "firsts": [0, 2, 3, 3]}
    chunk = {name: np.array(value) for name, value in chunk.items()}
    chunk["offsets"] = np.array([0, 5])
    found = best.groups_of(chunk)
    assert found.places.tolist() == [1, 0, 2] and found.numbers.tolist() == [4, 7, 1]
    assert found.position[:2].tolist() == [4, 1] and found.rows.tolist() == [2, 1, 0]
    both = best.groups_of(chunk, chunk)
    assert both.places.tolist() == [1, 0, 2, 4, 3, 5]
    assert both.rows.tolist() == [2, 1, 0] * 2 and both.sizes.tolist() == [5, 0, 0] * 2


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
    found = frame.simjoin.set_join(frame[:], "t", 1, tokenizer="words", best=True)
    assert not len(found) and list(found.columns) == ["left", "right"]
