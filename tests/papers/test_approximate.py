"""Joins that may leave pairs out: what they find, what they say, and how many that is."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from dask_simjoin.catalog import METHODS, choices_of
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.errors import ApproximateWarning, OptionError, OptionTypeError
from dask_simjoin.methods import KMeans
from dask_simjoin.papers import recall
from dask_simjoin.papers.cluster_index import labels_of
from tests.papers.cpu.test_kmeans import any_options, clus8, laid_out
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import cases, frame_of
from tests.support.profiles import examples

EPS = 0.5
FEW = KMeans(clusters=20)


def pairs_of(frame):
    return set(zip(frame.left.tolist(), frame.right.tolist(), strict=True))


@settings(max_examples=examples(40))
@given(cases(max_dims=6, max_points=120), any_options)
def test_pairs_are_those_of_rows_of_one_cluster(case, options):
    x = np.asarray(case.x, float)
    if not len(x):
        return
    layout = options.approximate_layout(laid_out(x, case.eps, options))
    index = JOINER.build(x, layout)
    label = labels_of(index, layout)
    expected = {(a, b) for a, b in brute_force(x, case.eps) if label[a] == label[b]}
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    assert len(found.left) == len(expected)
    assert_same_pairs(pairs_of(found), expected)
    cut = len(x) // 3
    some, rest = (JOINER.build(part, layout) for part in (x[:cut], x[cut:]))
    across = JOINER.pairs(some, rest, layout, is_self_join=False)
    assert_same_pairs(
        pairs_of(across), {(a, b - cut) for a, b in expected if a < cut <= b}
    )


@pytest.mark.parametrize("method", ["kmeans", FEW])
def test_verbs_find_a_part_of_the_pairs(method):
    frame = frame_of(clus8(2000))
    same = {"method": method, "approximate": True}
    exact = pairs_of(frame.simjoin.self_join(EPS))
    with pytest.warns(ApproximateWarning, match="profile"):
        found = pairs_of(frame.simjoin.self_join(EPS, **same))
    assert found < exact
    with pytest.warns(ApproximateWarning):
        assert frame.simjoin.count_pairs(EPS, **same) == len(found)
    with pytest.warns(ApproximateWarning):
        counts = frame.simjoin.neighbor_counts(EPS, **same)
    assert (
        counts.tolist()
        == np.bincount(np.array(sorted(found)).reshape(-1), minlength=2000).tolist()
    )
    left, right = frame.iloc[:700], frame.iloc[700:]
    every = pairs_of(left.simjoin.join(right, EPS))
    with pytest.warns(ApproximateWarning):
        some = pairs_of(left.simjoin.join(right, EPS, **same))
    assert some and (some < every or (method != FEW and some == every))
    with pytest.warns(ApproximateWarning):
        left_out = left.simjoin.join(right, EPS, how="leftanti", **same)
    assert set(left_out.index) == set(left.index) - {a for a, _ in some}


@pytest.mark.parametrize("partitioning", ["entity", "spatial"])
def test_chunks_find_a_part_of_the_pairs_each_once(partitioning):
    dd = pytest.importorskip("dask.dataframe")
    frame = frame_of(clus8(1500))
    lazy = dd.from_pandas(frame, npartitions=3)
    exact = pairs_of(frame.simjoin.self_join(EPS))
    same = {"partitioning": partitioning, "blocksize": "40 kB"}
    lazy_pairs = lazy.simjoin.self_join(EPS, method=FEW, approximate=True, **same)
    with pytest.warns(ApproximateWarning) as caught:
        found = lazy_pairs.compute(scheduler="sync")
    assert lazy_pairs.npartitions >= 3
    assert [one.category for one in caught] == [ApproximateWarning]
    assert len(found) == len(pairs_of(found))
    assert 0.6 * len(exact) < len(found) < len(exact) and pairs_of(found) < exact


@pytest.mark.filterwarnings("ignore::dask_simjoin.errors.ApproximateWarning")
def test_plans_and_profiles_say_how_many():
    frame = frame_of(clus8(8000))
    same = {"method": FEW, "approximate": True}
    true = len(frame.simjoin.self_join(0.8, **same)) / frame.simjoin.count_pairs(0.8)
    plan, profile = frame.simjoin.plan(0.8, **same), frame.simjoin.profile(0.8, **same)
    assert (
        plan.recall_low < true < plan.recall_high
        and plan.recall_low < plan.recall < plan.recall_high
    )
    assert "; without windows; " in plan.engine
    assert f"recall         {plan.recall:.4f} of the true pairs, 95 % interval" in repr(
        plan
    )
    assert plan.pairs_low < true * frame.simjoin.count_pairs(0.8) < plan.pairs_high
    numbers = profile.numbers  # of so few rows all are joined
    assert (
        numbers["recall"]
        == numbers["recall_low"]
        == numbers["recall_high"]
        == pytest.approx(true)
    )
    assert numbers["recall_pairs"] == frame.simjoin.count_pairs(0.8)
    two = frame.iloc[:3000].simjoin.plan(0.8, other=frame.iloc[3000:], **same)
    assert two.recall_low < true < two.recall_high
    few = frame.iloc[:200]
    assert math.isnan(few.simjoin.plan(0.05, **same).recall)
    told = few.simjoin.profile(0.05, **same).numbers
    assert "recall" not in told and told["recall_pairs"] < 1000
    assert "too few" in repr(few.simjoin.plan(0.05, **same))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dask_simjoin.errors.ApproximateWarning")
def test_plans_hold_what_their_own_clusters_find():
    """Intervals that were told by other clusters held none of these."""
    same = {"method": KMeans(clusters=60), "approximate": True}
    held = 0
    for seed in (105, 116, 118, 120, 122, 125, 128, 129):
        rng = np.random.default_rng(seed)
        centers = rng.uniform(0, 10, (20, 8))
        frame = frame_of(
            centers[rng.integers(0, 20, 20_000)] + rng.normal(0, 0.3, (20_000, 8))
        )
        plan = frame.simjoin.plan(1.0, **same)
        share = frame.simjoin.count_pairs(1.0, **same) / frame.simjoin.count_pairs(1.0)
        held += plan.recall_low <= share <= plan.recall_high
    assert held >= 7  # of eight


def test_exact_methods_say_that_they_find_all():
    frame = frame_of(clus8(300))
    assert (
        frame.simjoin.plan(EPS).recall
        == frame.simjoin.plan(EPS, method="kmeans").recall_low
        == 1
    )
    assert "recall" not in repr(frame.simjoin.plan(EPS))
    for name in set(choices_of(8)) & METHODS.keys():
        told = frame.simjoin.profile(EPS, method=name).numbers
        assert told["recall"] == 1 and "recall_low" not in told


@pytest.mark.slow
def test_the_share_lies_in_its_interval(monkeypatch):
    """As often as is said, of samples of a quarter of the rows."""
    monkeypatch.setattr(recall, "MEASURED_ROWS", 800)
    monkeypatch.setattr(recall, "MIN_MEASURED_PAIRS", 10)
    x = clus8(3000)
    layout = laid_out(x, EPS, FEW)
    index = JOINER.build(x, layout)
    label = labels_of(index, layout)
    pairs = JOINER.pairs(index, index, layout, is_self_join=True)
    true = float((label[pairs.left] == label[pairs.right]).mean())
    held = 0
    for seed in range(100):
        mixed = np.random.default_rng(seed).permutation(3000)
        fewer = x[mixed]
        told = recall.measured_recall(fewer, layout, layout, JOINER)
        held += told.low <= true <= told.high
    assert held >= 95


@pytest.mark.parametrize("method", ["auto", *sorted(METHODS.keys() - {"kmeans"})])
def test_other_methods_leave_nothing_out(method):
    frame = pd.DataFrame({"x": [0.0, 1.0]})
    with pytest.raises(
        OptionError,
        match=f"approximate=True is not allowed with method='{method}'.*'kmeans'",
    ):
        frame.simjoin.count_pairs(1.0, method=method, approximate=True)
    with pytest.raises(
        OptionTypeError, match="approximate='yes' is not allowed; use True or False"
    ):
        frame.simjoin.plan(1.0, method=method, approximate="yes")


def test_verbs_that_have_no_such_option():
    frame = pd.DataFrame({"x": [0.0, 1.0]})
    for verb in ("dbscan", "neighbor_graph"):
        with pytest.raises(OptionTypeError, match="no option 'approximate'"):
            getattr(frame.simjoin, verb)(1.0, approximate=True)
