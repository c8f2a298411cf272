"""Plans of set joins: blocks pruned by size, and refusals."""

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

from dask_simjoin.errors import (
    BudgetError,
    DuplicateIdError,
    OptionError,
    OptionTypeError,
)
from tests.sets.test_execution import HOW


def test_blocks_are_pruned_by_size():
    frame = pd.DataFrame({"sets": [list(range(n)) for n in range(1, 120)] * 20})
    with dask.config.set({"dataframe.convert-string": False}):
        ddf = dd.from_pandas(frame, npartitions=3, sort=False)
    plan = ddf.simjoin.set_plan("sets", 0.9, blocksize="60 kB")
    assert plan.blocks > 10
    assert plan.block_pairs < plan.blocks * 4 < plan.blocks * (plan.blocks + 1) // 2
    blocks = plan.to_frame()
    assert (blocks["query_sizes"] <= blocks["data_sizes"]).all()
    assert blocks["partitions"].sum() == plan.partitions
    assert plan.svg().startswith("<svg") and "<table>" in plan._repr_html_()
    found = ddf.simjoin.set_self_join("sets", 0.9, blocksize="60 kB")
    assert found.npartitions == plan.partitions
    assert len(found) == frame.simjoin.count_set_pairs("sets", 0.9)


def test_plans_refuse_as_joins_do(frame):
    ddf = dd.from_pandas(frame, npartitions=3)
    refused = pytest.raises(BudgetError, match=r"threshold=0\.7 gives at least")
    with dask.config.set({"simjoin.result-limit": "1 kB"}), refused:
        ddf.simjoin.set_plan(**HOW)
    with pytest.raises(DuplicateIdError, match="not unique"):
        pd.concat([frame, frame]).simjoin.set_plan(**HOW)
    with pytest.raises(OptionTypeError, match="threshold= is missing"):
        frame.simjoin.set_plan("text", tokenizer="words")
    with pytest.raises(OptionError, match="are for joins of two tables"):
        frame.simjoin.set_plan("text", 0.5, left_on="text")


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
    assert (
        plan.counted
        and f"  {truth:,} (counted)\n" in repr(plan)
        and "sampled" not in repr(plan)
    )
    assert repr(plan).startswith("Plan of a self-join of sets, jaccard >= 0.7\n")
