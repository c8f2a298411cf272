from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import (
    ColumnError,
    DuplicateIdError,
    OptionError,
    OptionTypeError,
)
from dask_simjoin.strings.requests import EditJoinRequest, EditRule, EditSelfJoinRequest

RULES = [EditRule(0), EditRule(3), EditRule(10**9)] + [
    EditRule(None, Fraction(p, q), tail=4)
    for p, q in ((1, 10), (1, 3), (9, 10), (1, 1), (1, 10**19))
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_limits_are_the_largest_distances_that_match(rule):
    for length in range(40):
        want = [
            d
            for d in range(length + 1)
            if (
                d <= rule.k
                if rule.similarity is None
                else length - d >= rule.similarity * length
            )
        ]
        assert rule.limit(length) == max(want)
    assert rule.limits(39).tolist() == [rule.limit(length) for length in range(40)]


@pytest.mark.parametrize("rule", RULES[:-1], ids=str)
def test_sizes_are_bounded_tightly(rule):
    for length in range(20):
        near = [m for m in range(300) if abs(m - length) <= rule.limit(max(m, length))]
        size = length + rule.tail
        assert rule.smallest(size) == near[0] + rule.tail
        if near[-1] < 299:
            assert rule.largest(size) == near[-1] + rule.tail


def test_equal_strings_have_distance_zero():
    assert EditRule(2).score_of_equals(np.array([3, 5])).tolist() == [0, 0]
    assert EditRule(2).score(np.array([3]), np.array([4]), np.array([1])).tolist() == [
        1
    ]


def test_a_spec_has_the_rule_and_the_columns():
    meta = pd.DataFrame({"t": ["a"], "u": ["b"], "n": [1]}).iloc[:0]
    spec = EditSelfJoinRequest(on="t", k=2, keep="n", return_distance=True).spec(meta)
    assert (spec.rule.k, spec.rule.tail, spec.columns, spec.score) == (
        2,
        1,
        ["t", "n"],
        "distance",
    )
    assert spec.request == "k=2"
    both = EditJoinRequest(other=meta, left_on="t", right_on="u", similarity=0.9).spec(
        meta, meta
    )
    assert (both.on, both.right.on, both.request) == (("t",), ("u",), "similarity=0.9")


def test_columns_and_options_are_refused_at_the_call():
    frame = pd.DataFrame({"t": ["a", "b"], "n": [1, 2]})
    with pytest.raises(ColumnError, match="holds no texts"):
        frame.simjoin.edit_self_join("n", 1)
    with pytest.raises(ColumnError, match="names 2 columns"):
        frame.simjoin.edit_self_join(["t", "n"], 1)
    with pytest.raises(OptionTypeError, match="both missing"):
        frame.simjoin.edit_self_join("t")
    with pytest.raises(OptionTypeError, match="both given"):
        frame.simjoin.edit_self_join("t", 1, similarity=0.9)
    for k in (-1, 1.5, float("nan"), float("inf")):
        with pytest.raises(OptionError, match="k="):
            frame.simjoin.edit_self_join("t", k)
    for k in ("1", True, [1]):
        with pytest.raises(OptionTypeError, match="k="):
            frame.simjoin.edit_self_join("t", k)
    for similarity in (0, 1.1, float("nan")):
        with pytest.raises(OptionError, match="similarity="):
            frame.simjoin.edit_self_join("t", similarity=similarity)
    with pytest.raises(OptionError, match="how="):
        frame.simjoin.edit_join(frame, "t", 1, how="cross")
    with pytest.raises(DuplicateIdError):
        frame.assign(n=1).simjoin.edit_self_join("t", 1, id="n")
