"""The choice of an algorithm for sets from counted work."""

from fractions import Fraction

import numpy as np
import pytest

from dask_simjoin.sets.cpu import joiner
from dask_simjoin.sets.cpu.candidates import ADMISSIBLE, ENTRIES, LOOKUPS, OF_LISTS, OF_PAIRS, WORK
from dask_simjoin.sets.cpu.choice import SetChoice, Work, choose, costs, is_sample_needed, usual_words
from dask_simjoin.sets.cpu.joiner import JOINER, SetSearch
from dask_simjoin.sets.methods import AllPairs, Bitmap, PPJoin
from dask_simjoin.sets.predicate import Rule
from tests.sets.cpu.test_joiner import alike
from tests.support.sets_oracle import block_of


def test_the_cheapest_algorithm_is_chosen():
    counted = np.zeros((3, 5))
    counted[WORK, [ADMISSIBLE, LOOKUPS, ENTRIES]] = 1e7, 1e4, 1e5
    counted[OF_LISTS] = 1e7, 1e6, 1e4, 1e4, 1e4
    counted[OF_PAIRS] = 1e9, 1e8, 1e4, 1e4, 1e4
    some = Work(counted, 10_000, 300_000, 300_000, 20_000, 30.0)
    every = costs(some)
    assert choose(None, some) == min(every, key=every.get) == SetChoice(True, 2)
    assert choose(Bitmap(), some) == SetChoice(False, 2)
    counted[OF_LISTS] = 1e5  # few entries are merged, so bitmaps cost more than they save
    assert choose(None, some) == choose(PPJoin(), some) == SetChoice(True, 0)
    counted[WORK, [LOOKUPS, ENTRIES]] = 1e7, 1e9
    assert not choose(None, some).listed


def test_bitmaps_take_limited_memory():
    counted = np.zeros((3, 8))
    counted[OF_LISTS] = counted[OF_PAIRS] = 1e12 / 10.0 ** np.arange(8)
    assert choose(None, Work(counted, 10_000, 300_000, 300_000, 100, 8.0)).words > 16
    assert choose(None, Work(counted, 10_000, 300_000, 300_000, 300_000, 8.0)).words <= 8


def test_pairs_are_sampled_only_if_bitmaps_may_pay():
    counted = np.zeros((3, 4))
    counted[WORK, LOOKUPS] = 1e4
    counted[OF_LISTS, 0] = 1e4
    some = Work(counted, 10_000, 300_000, 300_000, 20_000, 30.0)
    assert not is_sample_needed(None, some) and is_sample_needed(Bitmap(), some)
    counted[OF_LISTS, 0] = 1e8
    assert is_sample_needed(None, some)


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("threshold", ["0.5", "0.7"])
def test_the_sample_tells_the_work(two, threshold, monkeypatch):
    monkeypatch.setattr(joiner, "SAMPLED_SETS", 10**6)
    rng = np.random.default_rng(7)
    sets = [rng.choice(400, rng.integers(5, 40), replace=False).tolist() for _ in range(2000)]
    left, right = block_of(sets)[0], block_of(alike(rng, 500, 30, 400))[0] if two else None
    rule = Rule("jaccard", Fraction(threshold))
    search = SetSearch(left, right, rule, AllPairs())
    prefixes = search._prefixes()
    places, _ = search._lists(np.arange(len(search._d_sizes) + 1), prefixes[1])
    counted = search._sample(prefixes, places, 10**6)
    listed = JOINER.counters(left, right, rule, "allpairs").listed
    lookups = prefixes[0][search._q_sizes].sum()
    # sets without partners of admissible sizes look nothing up
    assert 0.99 * lookups <= counted[WORK, LOOKUPS] <= lookups
    assert 0.5 * listed < counted[WORK, ENTRIES] < 2 * listed
    by_bitmaps = JOINER.counters(left, right, rule, Bitmap(words=4))
    assert counted[WORK, ADMISSIBLE] == by_bitmaps.listed
    assert (np.diff(counted[OF_PAIRS]) <= 0).all() and (np.diff(counted[OF_LISTS]) <= 1e-6).all()


def test_usual_words():
    assert [usual_words(size) for size in (3, 17, 100, 10_000)] == [1, 2, 8, 64]
