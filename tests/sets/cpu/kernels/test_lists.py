"""Prefix lists against the definition."""

from fractions import Fraction

import numpy as np

from dask_simjoin.sets.cpu import joiner as search
from dask_simjoin.sets.predicate import Rule
from tests.sets.cpu.test_joiner import TOLD, alike, check
from tests.support.profiles import in_turns


@in_turns(1, method=TOLD, two=[False, True], sampled=[False, True])
def test_sets_of_many_sizes(two, method, sampled, monkeypatch):
    if sampled:  # sets are looked at, however few there are
        monkeypatch.setattr(search, "FEW", -1)
    rng = np.random.default_rng(5)
    left = [*alike(rng, 150, 90, 300), list(range(0, 900, 2))]
    right = [*alike(rng, 40, 30, 250), *left[::3]] if two else None
    for similarity, threshold in [("jaccard", "0.7"), ("dice", "0.6"), ("cosine", "0.8"), ("overlap", "20")]:
        for comparison in (">=", "="):
            _, _, expected = check(left, right, Rule(similarity, Fraction(threshold), comparison), method)
            assert expected or comparison == "="
