"""Every method of the CPU against the definition."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.sets.algorithms.cpu.joiner import JOINER
from dask_simjoin.sets.methods import CHOICES
from dask_simjoin.sets.predicate import COMPARISONS, SIMILARITIES, Rule
from tests.support.profiles import examples
from tests.support.sets_oracle import block_of, matching

THRESHOLDS = [Fraction(t) for t in ("0.55", "0.65", "0.8", "0.9", "1/3", "1")]

SETS = st.lists(st.frozensets(st.integers(0, 14), min_size=1, max_size=12), max_size=20)


def rule_of(similarity, threshold, comparison):
    """A rule of a threshold that is a share, or of a number of tokens about as strict."""
    if similarity == "overlap":
        threshold = Fraction(1 + int(5 * threshold))
    return Rule(similarity, threshold, comparison)


def check(left, right, rule, method):
    """Compare all that a joiner tells with the definition."""
    q, q_sets = block_of(left)
    d, d_sets = (None, None) if right is None else block_of(right)
    expected = matching(q_sets, d_sets, rule)
    found = JOINER.pairs(q, d, rule, method)
    assert found.next is None
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert dict(zip(pairs, found.overlap.tolist(), strict=True)) == expected
    weights = q["weights"], (q if d is None else d)["weights"]
    products = [weights[0][i] * weights[1][j] for i, j in expected]
    assert JOINER.count(q, d, rule, method) == sum(products)
    counts = [np.zeros(len(w), np.int64) for w in weights]
    if d is None:
        counts[1] = counts[0]
    for i, j in expected:
        counts[0][i] += weights[1][j]
        counts[1][j] += weights[0][i]
    told = JOINER.counts(q, d, rule, method)
    assert [side.tolist() for side in told] == [side.tolist() for side in counts]
    counters = JOINER.counters(q, d, rule, method)
    assert counters.pairs == len(expected)
    assert counters.candidates >= counters.verified >= counters.pairs
    assert method == "groupjoin" or counters.listed >= counters.candidates
    return q, d, expected


@pytest.mark.parametrize("method", CHOICES)
@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_pairs_are_those_by_definition(similarity, comparison, method):
    @settings(max_examples=examples(60))
    @given(SETS, st.none() | SETS, st.sampled_from(THRESHOLDS))
    def check_some(left, right, threshold):
        check(left, right, rule_of(similarity, threshold, comparison), method)

    check_some()


@pytest.mark.parametrize("method", CHOICES)
@pytest.mark.parametrize("two", [False, True])
def test_pairs_in_parts_are_all_pairs(two, method):
    rng = np.random.default_rng(2)
    some = [[rng.choice(25, rng.integers(1, 15), replace=False).tolist() for _ in range(90)] for _ in "qd"]
    rule = Rule("jaccard", Fraction("0.4"))
    q, d, expected = check(some[0], some[1] if two else None, rule, method)
    for limit in (1, 7, 100, 10**6):
        found, start, longest = [], 0, 0
        while start is not None:
            part = JOINER.pairs(q, d, rule, method, limit=limit, start=start)
            found += zip(part.left.tolist(), part.right.tolist(), strict=True)
            longest, start = max(longest, len(part.left)), part.next
        assert sorted(found) == sorted(expected)
        assert longest < limit + max(len(q["weights"]), 1 if d is None else len(d["weights"]))
