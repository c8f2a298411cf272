"""Bitmaps and prefix lists against the definition."""

from fractions import Fraction

import numpy as np

from dask_simjoin.sets.cpu import joiner as search
from dask_simjoin.sets.cpu.choice import SetChoice
from dask_simjoin.sets.cpu.joiner import SetSearch
from dask_simjoin.sets.methods import PPJoin
from dask_simjoin.sets.predicate import Rule
from tests.sets.cpu.test_joiner import TOLD, alike, check
from tests.support.profiles import every_nth, in_turns
from tests.support.sets_oracle import block_of


def choice_for(sizes, universe, threshold, method="auto"):
    """What is chosen for 3000 random sets."""
    rng = np.random.default_rng(0)
    block, _ = block_of(
        [rng.choice(universe, sizes, replace=False).tolist() for _ in range(3000)]
    )
    return SetSearch(block, None, Rule("jaccard", Fraction(threshold)), method).choice


def test_long_sets_of_few_tokens_are_compared_by_bitmaps_and_others_by_lists():
    long = choice_for(100, 800, "0.5")
    assert not long.listed and long.words >= 4  # fewer bits leave nothing out
    assert choice_for(8, 20_000, "0.8").listed
    assert choice_for(100, 800, "0.5", PPJoin(words=32)) == SetChoice(True, 16)
    assert not choice_for(8, 20_000, "0.8", "bitmap").listed


@in_turns(1, method=every_nth(2, TOLD), two=[False, True], sampled=[False, True])
def test_sets_of_many_sizes(two, method, sampled, monkeypatch):
    if sampled:  # sets are looked at, however few there are
        monkeypatch.setattr(search, "PARTITION", -1)
    rng = np.random.default_rng(5)
    left = [*alike(rng, 150, 90, 300), list(range(0, 900, 2))]
    right = [*alike(rng, 40, 30, 250), *left[::3]] if two else None
    for similarity, threshold in [
        ("jaccard", "0.7"),
        ("dice", "0.6"),
        ("cosine", "0.8"),
        ("overlap", "20"),
    ]:
        for comparison in (">=", "="):
            _, _, expected = check(
                left, right, Rule(similarity, Fraction(threshold), comparison), method
            )
            assert expected or comparison == "="
