"""Estimates from samples of sets."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from tests.sets.test_introspect import HOW


@pytest.fixture
def frame():
    random = np.random.default_rng(5)
    words = np.array([f"w{n}" for n in range(300)])
    texts = [
        " ".join(words[(random.pareto(1.0, random.integers(1, 12)) % 300).astype(int)]) for _ in range(4000)
    ]
    return pd.DataFrame({"text": texts})


def test_an_estimate_has_what_the_join_gives(frame):
    ddf = dd.from_pandas(frame, npartitions=3)
    truth = frame.simjoin.count_set_pairs(**HOW)
    for some in (frame, ddf):
        plan = some.simjoin.set_plan(**HOW)
        assert plan.rows == 4000
        assert plan.pairs_low <= truth <= plan.pairs_high
        assert 0.8 * truth < plan.pairs < 1.25 * truth
        assert plan.result_bytes == round(plan.pairs * 16)
    tokens = frame["text"].str.split().map(set).map(len).sum()
    assert abs(plan.tokens - tokens) < 0.1 * tokens


def test_a_small_frame_is_counted(frame):
    some = frame.iloc[:200]
    plan = some.simjoin.set_plan(**HOW)
    truth = some.simjoin.count_set_pairs(**HOW)
    assert plan.pairs == plan.pairs_low == plan.pairs_high == truth
    assert "sampled" in repr(plan) and "rows (all)" in repr(plan)
    assert repr(plan).startswith("Plan of a self-join of sets, jaccard >= 0.7\n")
