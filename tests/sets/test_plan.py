"""Plans of set joins: blocks pruned by size, and refusals."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.errors import (
    BudgetError,
    DuplicateIdError,
    OptionError,
    OptionTypeError,
)
from dask_simjoin.sets import plan
from tests.sets.test_local import HOW


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
    refused = pytest.raises(BudgetError, match=r"threshold=0\.7 gives an estimated")
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


def huge_rows():
    """Tables with one huge row that a sample would miss, in several kinds of columns."""
    arrays = [*([k, k + 1] for k in range(10_000)), np.arange(200_000)]
    texts = [*(f"a{k} b{k}" for k in range(10_000)), " ".join(map(str, range(60_000)))]
    arrow = pd.ArrowDtype(pa.large_list(pa.int64()))
    yield "lists", pd.Series([np.array(row) for row in arrays]), None, 200_000
    yield "arrow", pd.Series([list(row) for row in arrays], dtype=arrow), None, 200_000
    yield "texts", pd.Series(texts), "whitespace", 60_000
    yield "objects", pd.Series(texts, dtype=object), "whitespace", 60_000
    yield "categories", pd.Series(texts).astype("category"), "whitespace", 60_000


@pytest.mark.parametrize(
    ("column", "tokenizer", "size"),
    [pytest.param(*case, id=name) for name, *case in huge_rows()],
)
@pytest.mark.parametrize("place", [0, 5_000])
def test_plans_see_the_largest_row(column, tokenizer, size, place, monkeypatch):
    monkeypatch.setattr(plan, "MIN_PART", 50_000)
    order = [*range(place), len(column) - 1, *range(place, len(column) - 1)]
    frame = pd.DataFrame({"s": column.iloc[order].reset_index(drop=True)})
    how = {"threshold": 0.5, "tokenizer": tokenizer}
    small = frame.drop(index=place).simjoin.set_plan("s", **how)
    found = frame.simjoin.set_plan("s", **how)
    assert found.task_bytes > small.task_bytes + 16 * size
    assert found.tokens > small.tokens + size / 2
    with dask.config.set({"dataframe.convert-string": False}):
        ddf = dd.from_pandas(frame, npartitions=2, sort=False)
    assert (
        ddf.simjoin.set_plan("s", **how).task_bytes > small.task_bytes / 4 + 16 * size
    )


def test_plans_of_edit_joins_see_the_largest_row():
    texts = pd.Series([*(f"text{k}" for k in range(10_000)), "x" * 2_000_000])
    small, found = (
        some.to_frame("s").simjoin.edit_plan("s", k=1)
        for some in (texts.iloc[:-1], texts)
    )
    assert found.task_bytes > small.task_bytes + 10 * 2_000_000
