"""Searches that may miss neighbours say how many they find: plans and profiles, with an
interval.
"""

import math

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import ApproximateWarning, OptionError, OptionTypeError
from dask_simjoin.methods import ZOrder
from dask_simjoin.papers import recall
from tests.papers.cpu.test_kmeans import clus8
from tests.papers.cpu.test_zorder_nearest import layout_of
from tests.support.points import frame_of
from tests.support.profiles import everything

pytestmark = pytest.mark.filterwarnings(
    "ignore::dask_simjoin.errors.ApproximateWarning"
)

SAME = {"method": ZOrder(lists=3), "approximate": True}


def shared(found, exact):
    """The share of the exact rows that were found, by a join."""
    return len(found.merge(exact, on=["left", "right"])) / len(exact)


def test_plans_and_profiles_measure_the_share():
    frame = frame_of(clus8(2500))
    exact = frame.simjoin.knn_join(k=4)
    true = shared(frame.simjoin.knn_join(k=4, **SAME), exact)
    assert 0.2 < true < 0.9
    told = frame.simjoin.profile(k=4, **SAME).numbers  # of so few rows all are asked
    assert (
        told["recall"]
        == told["recall_low"]
        == told["recall_high"]
        == pytest.approx(true, abs=1e-12)
    )
    assert told["neighbors"] == told["recall_pairs"] == len(exact) == 4 * 2500
    plan = frame.simjoin.plan(k=4, **SAME)
    assert (
        plan.recall_low < plan.recall < plan.recall_high
        and abs(plan.recall - true) < 0.03
    )
    assert 0.01 < plan.recall_high - plan.recall_low < 0.1
    assert (
        f"recall         {plan.recall:.4f} of the true neighbors, 95 % interval"
        in repr(plan)
    )
    assert plan.plan.result.recall.pairs == 4 * 1000


def test_neighbours_of_another_table_and_within_a_distance():
    frame = frame_of(clus8(900))
    left, right = frame.iloc[:400], frame.iloc[300:]
    for bound in (None, 0.6):
        found, exact = (
            left.simjoin.knn_join(right, 3, max_distance=bound, **how)
            for how in (SAME, {})
        )
        plan = left.simjoin.plan(bound, other=right, k=3, **SAME)
        assert (
            plan.recall
            == plan.recall_low
            == pytest.approx(shared(found, exact), abs=1e-12)
        )
        assert plan.plan.result.recall.pairs == len(exact)
    told = frame.simjoin.profile(0.6, k=3, **SAME).numbers
    exact = frame.simjoin.knn_join(k=3, max_distance=0.6)
    found = frame.simjoin.knn_join(k=3, max_distance=0.6, **SAME)
    assert told["recall"] == pytest.approx(shared(found, exact), abs=1e-12)
    assert told["neighbors"] == len(found) and told["recall_pairs"] == len(exact)


def test_the_share_lies_in_its_interval(monkeypatch):
    """As often as is said, within what luck does to so many draws; the rows' order
    decides who is asked.
    """
    monkeypatch.setattr(recall, "MIN_MEASURED_PAIRS", 10)
    number, k = 2000, 5
    x = clus8(number)
    layout = layout_of(x, ZOrder(lists=3), True)
    true = recall.measured_neighbors(x, x, layout, k, "pandas")
    assert true.low == true.high == true.share and 0.2 < true.share < 0.9
    seeds, held = 600 if everything() else 40, 0
    for seed in range(seeds):
        mixed = x[np.random.default_rng(seed).permutation(number)]
        told = recall.measured_neighbors(
            mixed, mixed, layout, k, "pandas", rows=number // 5
        )
        assert told.low < told.share < told.high and told.pairs == k * number // 5
        held += told.low <= true.share <= told.high
    assert held >= 0.95 * seeds - 2 * math.sqrt(0.95 * 0.05 * seeds)


def test_few_rows_and_few_neighbours():
    frame = frame_of(clus8(60))
    # each has all others next to it
    told = frame.simjoin.profile(k=100, **SAME).numbers
    assert told["recall"] == told["recall_low"] == 1 and told["neighbors"] == 60 * 59
    for rows in (0, 1):
        told = frame.iloc[:rows].simjoin.profile(k=2, **SAME).numbers
        assert "recall" not in told and told["neighbors"] == 0
    alone = frame.iloc[:1].simjoin.plan(k=2, **SAME)
    assert math.isnan(alone.recall) and "unknown: 0 true neighbors" in repr(alone)
    x = clus8(60)
    told = recall.measured_neighbors(
        x, x, layout_of(x, None, True), 2, "pandas", rows=50
    )
    # of some rows, and less than 1,000
    assert math.isnan(told.share) and told.pairs == 100


def test_exact_searches_find_all():
    frame = frame_of(clus8(300))
    for method in ("auto", "tiles", "zorder"):
        found = frame.simjoin.profile(k=3, method=method)
        assert found.numbers == {"neighbors": 900, "recall": 1}
        assert (
            list(found.seconds) == ["layout", "index", "search"] and found.rows == 300
        )
        assert repr(found).startswith("Profile of a nearest-neighbor join\n")
    assert frame.simjoin.plan(k=3).recall == 1
    assert "recall" not in repr(frame.simjoin.plan(k=3))


def test_dask_frames_say_who_measures():
    dd = pytest.importorskip("dask.dataframe")
    frame = frame_of(clus8(600))
    lazy = dd.from_pandas(frame, npartitions=2)
    plan = lazy.simjoin.plan(k=3, **SAME)
    assert math.isnan(plan.recall) and "profile(k=3) measures it" in repr(plan)
    assert (
        lazy.simjoin.profile(k=3, **SAME).numbers
        == frame.simjoin.profile(k=3, **SAME).numbers
    )
    with pytest.warns(
        ApproximateWarning, match=r"profile\(k=...\) with the same options"
    ):
        lazy.simjoin.knn_join(k=3, **SAME).compute(scheduler="sync")


def test_what_a_profile_refuses():
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0]})
    with pytest.raises(
        OptionTypeError, match="eps= is missing; use a finite number >= 0, or k="
    ):
        frame.simjoin.profile()
    with pytest.raises(
        OptionError,
        match=r"approximate=True .* method='tiles'.* or use method='zorder'",
    ):
        frame.simjoin.profile(k=1, method="tiles", approximate=True)
    with pytest.raises(
        OptionError,
        match=r"approximate=True .* method='zorder'.* or use method='kmeans'",
    ):
        frame.simjoin.profile(1.0, method="zorder", approximate=True)
    with pytest.raises(OptionError, match="k=0 is not allowed"):
        frame.simjoin.profile(k=0)
    with pytest.raises(OptionError, match="eps=-1"):
        frame.simjoin.profile(-1, k=1)
