"""Thresholds as integers against fractions of whole numbers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.errors import OptionError
from dask_simjoin.sets.cpu import candidates
from dask_simjoin.sets.predicate import (
    COMPARISONS,
    NEVER,
    SIMILARITIES,
    Rule,
    next_fraction,
)
from tests.support.profiles import examples
from tests.support.sets_oracle import similar

need, beyond = kernel(candidates.need.py_func), kernel(candidates.beyond.py_func)
"""As Python can call them."""

THRESHOLDS = [
    Fraction(t)
    for t in ("0.55", "0.65", "0.8", "0.9", "0.95", "1/3", "1", "0.3333333333333333")
]


@st.composite
def rules(draw):
    """A rule of any similarity and comparison, often one that pairs of small sets are
    just at.
    """
    similarity = draw(st.sampled_from(SIMILARITIES))
    if similarity == "overlap":
        threshold = Fraction(draw(st.integers(1, 12)))
    else:
        fractions = st.fractions(Fraction(1, 50), 1, max_denominator=50)
        threshold = draw(st.sampled_from(THRESHOLDS) | fractions)
    return Rule(similarity, threshold, draw(st.sampled_from(COMPARISONS)))


def matches(rule, a, b, overlap):
    return similar(rule.similarity, rule.threshold, rule.comparison, a, b, overlap)


@settings(max_examples=examples(500))
@given(rules(), st.integers(1, 60), st.integers(1, 60))
@example(Rule("jaccard", Fraction("0.9")), 10, 9)  # in floating point this is 10
def test_overlaps_that_match_are_those_by_definition(rule, a, b):
    low, high = rule.need(a, b), rule.beyond(a, b)
    for overlap in range(min(a, b) + 1):
        assert (low <= overlap < high) == matches(rule, a, b, overlap)


@settings(max_examples=examples(300))
@given(rules(), st.integers(1, 60))
def test_sizes_that_can_match_are_those_by_definition(rule, a):
    high = rule.largest(a)
    for b in range(1, 200):
        able = rule.need(a, b) <= min(a, b)
        within = (
            rule.smallest(a) <= b
            and (high is None or b <= high)
            and a >= rule.smallest(b)
        )
        assert able == within


@settings(max_examples=examples(500))
@given(
    rules(),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_kernels_need_what_the_rule_needs(rule, a, b, more, other):
    limits = rule.limits(a + more, b + other)
    # else no overlap matches, and it is told so
    if min(rule.need(a, b), a, b) == rule.need(a, b):
        assert need(limits, a, b) == rule.need(a, b)
    else:
        assert need(limits, a, b) > min(a, b)
    for overlap in range(min(a, b) + 1):
        inside = need(limits, a, b) <= overlap < beyond(limits, a, b)
        assert inside == matches(rule, a, b, overlap)


@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("size", [999, 38_000])
def test_large_sets_compare_in_int64_whatever_the_digits_of_the_threshold(
    comparison, threshold, size
):
    rule = Rule("cosine", threshold, comparison)
    limits = rule.limits(size, size)
    for a in (size, size - 1, size // 2, 7):
        for b in (size, size - 13, size // 3 * 2):
            least, most = need(limits, a, b), beyond(limits, a, b)
            assert least < NEVER
            for overlap in {rule.need(a, b) + step for step in (-1, 0, 1)}:
                if 0 < overlap <= min(a, b):
                    assert (least <= overlap < most) == matches(rule, a, b, overlap)


def test_sets_too_large_for_int64_are_refused_by_name():
    rule = Rule("cosine", Fraction("0.7234567891234567"))
    with pytest.raises(
        OptionError,
        match=r"cosine: threshold=7234567891234567/10{16} cannot be compared exactly for sets of 1,000,000",
    ):
        rule.limits(10**6, 10**6)
    assert Rule("cosine", Fraction("0.71")).limits(10**6, 10**6)


@settings(max_examples=examples(300))
@given(st.fractions(0, 3, max_denominator=10**6), st.integers(1, 40), st.booleans())
def test_the_next_fraction_is_the_least_of_all(ratio, most, above):
    every = {Fraction(n, d) for d in range(1, most + 1) for n in range(4 * d + 1)}
    assert next_fraction(ratio, most, above) == min(
        f for f in every if (f > ratio if above else f >= ratio)
    )


@given(rules(), st.integers(1, 1000), st.integers(1, 1000), st.data())
def test_scores_are_the_similarities_rounded_once(rule, a, b, data):
    assume(min(a, b) > 0)
    overlap = data.draw(st.integers(0, min(a, b)))
    exact = {
        "jaccard": Fraction(overlap, a + b - overlap),
        "dice": Fraction(2 * overlap, a + b),
        "cosine": overlap / math.sqrt(a * b),
        "overlap": overlap,
    }[rule.similarity]
    found = rule.score(np.array([a]), np.array([b]), np.array([overlap], np.int32))
    assert found.dtype == np.float64
    assert found.tolist() == [float(exact)]


@settings(max_examples=examples(300))
@given(rules(), st.integers(1, 60))
@example(Rule("jaccard", Fraction(1, 2), ">"), 4)  # 8 is as much as with ">=" only
def test_bounds_of_sizes_are_tight(rule, a):
    """They are the least and the largest size of which as many tokens as there can be
    are enough.
    """
    assert rule.smallest(a) == next(
        b for b in itertools.count(1) if rule.need(a, b) <= b
    )
    high = rule.largest(a)
    if high is not None and high >= a:  # none of more than "1" alike is larger
        assert rule.need(a, high) <= a < rule.need(a, high + 1)
