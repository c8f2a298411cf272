"""Gates decide exactly, and their coordinates exclude no pair."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.metrics import gates
from dask_simjoin.metrics.gates import NUMBERS, RELATIVE, TIMES, UNLIKE, Gate, Gates
from dask_simjoin.metrics.norms import add
from tests.support.profiles import examples

TIME = st.integers(-(2**63), 2**63 - 1)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=examples(300))
@given(values=st.lists(TIME, min_size=1), numbers=st.lists(NUMBER, min_size=1))
def test_words_hold_all_bits(values, numbers):
    for some in (np.array(values, np.int64), np.array(numbers)):
        words = gates.words_of(some)
        assert words.dtype == np.float64 and np.abs(words).max() < gates.WORD_TERM
        found = gates.values_of(np.concatenate([words, words], axis=1))
        assert (found == some.view(np.int64)[:, None]).all()


@settings(max_examples=examples(300))
@given(a=TIME, b=TIME, low=st.integers(-(2**62), 2**62), width=st.integers(0, 2**62))
def test_times_are_compared_as_integers(a, b, low, width):
    for left, right in ((a, b), (a, min(a + low, 2**63 - 1) if low > 0 else a)):
        rule = Gate(TIMES, low, low + width)
        sides = (np.array([value], np.int64) for value in (left, right))
        want = low <= right - left <= low + width
        assert gates.allows(rule, *sides).tolist() == [want]


@settings(max_examples=examples(500))
@given(
    a=NUMBER,
    ratio=st.floats(0.0, 2.0),
    share=st.one_of(st.floats(0, 0.999), st.sampled_from([0.0, 0.05, 0.5])),
)
def test_relative_tolerances_exclude_no_pair_by_their_coordinates(a, ratio, share):
    sides = np.array([[a], [a * ratio]])
    for other in (a * ratio, a * (1 - share), np.nextafter(a * (1 - share), 0), 0.0):
        sides[1] = other
        left, right = sides.view(np.int64)
        rule = Gate(RELATIVE, high=share)
        # it does not matter which row is the left one
        assert gates.allows(rule, left, right) == gates.allows(rule, right, left)
        if gates.allows(rule, left, right)[0]:
            away = np.abs(np.diff(gates.logarithms(sides[:, 0])))
            assert away[0] <= gates.log_tolerance(share)


@settings(max_examples=examples(500))
@given(
    a=NUMBER,
    tolerance=st.floats(0, 1e300),
    part=st.floats(-1, 1),
    eps=st.one_of(st.just(0.0), st.floats(1e-100, 1e100)),
    norm=st.sampled_from([1, 2, 3, math.inf]),
)
def test_pairs_are_candidates_in_all_coordinates(a, tolerance, part, eps, norm):
    threshold = eps if norm in (1, math.inf) else eps**norm
    width = gates.width_for(norm, threshold, 2)
    scale = gates.scale_for(width, tolerance)
    for b in (a + part * tolerance, a + tolerance, a - tolerance):
        if not (math.isfinite(b) and abs(b - a) <= tolerance):
            continue
        x = gates.coordinates(np.array([a, b]), scale)
        away = abs(x[1] - x[0])
        assert away <= tolerance * scale
        assert tolerance * scale <= width or scale == 2.0**-1000
        with np.errstate(over="ignore"):
            total = add(add(threshold, away, norm), gates.WORD_TERM, norm)
        widths = [tolerance * scale]
        assert total <= gates.widened(norm, threshold, widths, 1)


def test_logarithms_grow_with_the_number():
    x = np.array([0.0, 1e-310, 1e-300, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 1e300])
    found = gates.logarithms(x)
    assert (np.diff(found) >= 0).all() and found[0] == 0
    assert (gates.logarithms(-x) == -found).all()
    assert found[6] - found[4] == 1.0 and found[5] - found[4] == 0.5
    assert np.isnan(gates.logarithms(np.array([math.nan]))).all()


@pytest.mark.parametrize(
    ("rule", "one_sided"),
    [
        (Gate(TIMES, -5, 5), False),
        (Gate(TIMES, -5, 0), True),
        (Gate(NUMBERS, 0.5, 1.0), True),
        (Gate(RELATIVE, high=0.5), False),
        (Gate(UNLIKE), False),
    ],
)
def test_one_sided_ranges(rule, one_sided):
    found = Gates(rules=(Gate(UNLIKE), rule))
    assert rule.one_sided is found.one_sided is one_sided
    assert not found.two_sided.one_sided and found.words == 4
    a, b = np.array([7, 2, 5, 5]), np.array([2, 7, 5, 11])
    if rule.kind == NUMBERS:
        a, b = (side.astype(float).view(np.int64) for side in (a, b))
    either = gates.allows(rule, a, b) | gates.allows(rule, b, a)
    assert (either <= gates.allows(rule.two_sided, a, b)).all()
