"""Bitmaps of sets, and where they are compared."""

from fractions import Fraction

import numpy as np

from dask_simjoin.sets.cpu.joiner import SetChoice, SetSearch
from dask_simjoin.sets.methods import PPJoin
from dask_simjoin.sets.predicate import Rule
from tests.support.sets_oracle import block_of


def choice_for(sizes, universe, threshold, method="auto"):
    """What is chosen for 3000 random sets."""
    rng = np.random.default_rng(0)
    block, _ = block_of([rng.choice(universe, sizes, replace=False).tolist() for _ in range(3000)])
    return SetSearch(block, None, Rule("jaccard", Fraction(threshold)), method).choice


def test_long_sets_of_few_tokens_are_compared_by_bitmaps_and_others_by_lists():
    long = choice_for(100, 800, "0.5")
    assert not long.listed and long.words >= 4  # fewer bits leave nothing out
    assert choice_for(8, 20_000, "0.8").listed
    assert choice_for(100, 800, "0.5", PPJoin(words=32)) == SetChoice(True, 16)
    assert not choice_for(8, 20_000, "0.8", "bitmap").listed
