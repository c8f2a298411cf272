from fractions import Fraction

import numpy as np
import pytest

from dask_simjoin.strings.predicate import EditRule

RULES = [EditRule(0), EditRule(3), EditRule(10**9)] + [
    EditRule(None, Fraction(p, q), tail=4) for p, q in ((1, 10), (1, 3), (9, 10), (1, 1), (1, 10**19))
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_limits_are_the_largest_distances_that_match(rule):
    for length in range(40):
        want = [
            d for d in range(length + 1)
            if (d <= rule.k if rule.similarity is None else length - d >= rule.similarity * length)
        ]  # fmt: skip
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
    assert EditRule(2).score(np.array([3]), np.array([4]), np.array([1])).tolist() == [1]
