"""Joins of sets of plain frames, compared with the definition."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.errors import BudgetError
from dask_simjoin.sets.predicate import Rule
from tests.support.sets import (
    COMPARISONS,
    KINDS,
    SIMILARITIES,
    THRESHOLDS,
    as_columns,
    found_pairs,
    rows_of_sets,
    wanted_counts,
    wanted_pairs,
)


@given(
    rows=rows_of_sets(),
    similarity=st.sampled_from(SIMILARITIES),
    comparison=st.sampled_from(COMPARISONS),
    threshold=st.sampled_from(THRESHOLDS),
    empty=st.booleans(),
    missing=st.booleans(),
    kind=st.sampled_from(KINDS),
)
def test_all_pairs_of_one_table(
    rows, similarity, comparison, threshold, empty, missing, kind
):
    threshold = 2 if similarity == "overlap" else threshold
    empty = empty and similarity != "overlap"
    rule = Rule(similarity, Fraction(str(threshold)), comparison)
    frame, how = as_columns(rows, kind)
    how |= {
        "similarity": similarity,
        "comparison": comparison,
        "allow_empty": empty,
        "allow_missing": missing,
    }
    found = frame.simjoin.set_self_join(
        "sets", threshold, return_similarity=True, keep="name", **how
    )
    want = wanted_pairs(rows, rows, rule, empty, missing, same=True)
    assert found_pairs(found) == want
    assert found["name_left"].tolist() == [f"row {i}" for i in found["left"]]
    assert found["name_right"].tolist() == [f"row {i}" for i in found["right"]]
    assert frame.simjoin.count_set_pairs("sets", threshold, **how) == len(want)
    counts = frame.simjoin.set_neighbor_counts("sets", threshold, **how)
    assert counts.tolist() == wanted_counts(want, len(rows))


@given(
    left=rows_of_sets(),
    right=rows_of_sets(),
    similarity=st.sampled_from(SIMILARITIES),
    comparison=st.sampled_from(COMPARISONS),
    threshold=st.sampled_from(THRESHOLDS),
    special=st.booleans(),
    kind=st.sampled_from(KINDS),
)
def test_all_pairs_of_two_tables(
    left, right, similarity, comparison, threshold, special, kind
):
    threshold = 2 if similarity == "overlap" else threshold
    empty = special and similarity != "overlap"
    rule = Rule(similarity, Fraction(str(threshold)), comparison)
    (frame, how), (other, _) = as_columns(left, kind), as_columns(right, kind)
    how |= {
        "similarity": similarity,
        "comparison": comparison,
        "allow_empty": empty,
        "allow_missing": special,
    }
    want = wanted_pairs(left, right, rule, empty, special, same=False)
    found = frame.simjoin.set_join(
        other, "sets", threshold, return_similarity=True, **how
    )
    assert found_pairs(found) == want
    matched = sorted({i for i, _ in want})
    semi = frame.simjoin.set_join(other, "sets", threshold, how="leftsemi", **how)
    anti = frame.simjoin.set_join(other, "sets", threshold, how="leftanti", **how)
    assert semi.index.tolist() == matched
    assert anti.index.tolist() == [i for i in range(len(left)) if i not in set(matched)]
    outer = frame.simjoin.set_join(other, "sets", threshold, how="left", **how)
    assert set(outer["left"]) == set(range(len(left)))
    assert int(outer["right"].notna().sum()) == len(want)


def test_equal_sets_are_found_whatever_their_order():
    frame = pd.DataFrame(
        {"sets": [[3, 1, 2, 1], np.array([1, 2, 3]), (2, 3, 1), {1, 2, 3}, [1, 2]]}
    )
    found = frame.simjoin.set_self_join("sets", 1)
    assert found_pairs(found) == {(i, j): None for j in range(4) for i in range(j)}


def test_a_result_that_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr("dask_simjoin.planning.budget.free_memory", lambda: 1 << 20)
    frame = pd.DataFrame({"sets": [[1]] * 5000})
    with pytest.raises(
        BudgetError,
        match=r"threshold=0.5 gives at least 12,497,500 pairs .*count_set_pairs",
    ):
        frame.simjoin.set_self_join("sets", 0.5)
    assert frame.simjoin.count_set_pairs("sets", 0.5) == 5000 * 4999 // 2
