"""The choice of a method of set joins, and of the size of bitmaps."""

import numpy as np

from dask_simjoin.sets.cpu.candidates import (
    ADMISSIBLE,
    ENTRIES,
    LOOKUPS,
    OF_LISTS,
    OF_PAIRS,
    WORK,
)
from dask_simjoin.sets.cpu.choice import (
    SetChoice,
    Work,
    choose,
    costs,
    is_sample_needed,
    usual_words,
)
from dask_simjoin.sets.methods import Bitmap, PPJoin


def test_the_cheapest_algorithm_is_chosen():
    counted = np.zeros((3, 5))
    counted[WORK, [ADMISSIBLE, LOOKUPS, ENTRIES]] = 1e7, 1e4, 1e5
    counted[OF_LISTS] = 1e7, 1e6, 1e4, 1e4, 1e4
    counted[OF_PAIRS] = 1e9, 1e8, 1e4, 1e4, 1e4
    some = Work(counted, 10_000, 300_000, 300_000, 20_000, 30.0)
    every = costs(some)
    assert choose(None, some) == min(every, key=every.get) == SetChoice(True, 2)
    assert choose(Bitmap(), some) == SetChoice(False, 2)
    # few entries are merged, so bitmaps cost more than they save
    counted[OF_LISTS] = 1e5
    assert choose(None, some) == choose(PPJoin(), some) == SetChoice(True, 0)
    counted[WORK, [LOOKUPS, ENTRIES]] = 1e7, 1e9
    assert not choose(None, some).listed


def test_bitmaps_take_limited_memory():
    counted = np.zeros((3, 8))
    counted[OF_LISTS] = counted[OF_PAIRS] = 1e12 / 10.0 ** np.arange(8)
    assert choose(None, Work(counted, 10_000, 300_000, 300_000, 100, 8.0)).words > 16
    assert (
        choose(None, Work(counted, 10_000, 300_000, 300_000, 300_000, 8.0)).words <= 8
    )


def test_pairs_are_sampled_only_if_bitmaps_may_pay():
    counted = np.zeros((3, 4))
    counted[WORK, LOOKUPS] = 1e4
    counted[OF_LISTS, 0] = 1e4
    some = Work(counted, 10_000, 300_000, 300_000, 20_000, 30.0)
    assert not is_sample_needed(None, some) and is_sample_needed(Bitmap(), some)
    counted[OF_LISTS, 0] = 1e8
    assert is_sample_needed(None, some)


def test_usual_words():
    assert [usual_words(size) for size in (3, 17, 100, 10_000)] == [1, 2, 8, 64]
