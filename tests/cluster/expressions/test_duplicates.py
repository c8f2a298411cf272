"""Lazy marks of near duplicates: aligned, computed late, within memory."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError
from tests.cluster.algorithms.test_duplicates import wanted


@pytest.mark.parametrize("grouping", ["greedy", "connected"])
def test_lazy_marks_are_aligned_and_computed_late(grouping):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.uniform(size=(400, 2)), columns=["x", "y"]).assign(name="a")
    ddf = dd.from_pandas(frame, npartitions=4)
    want = np.array(wanted(frame[["x", "y"]].to_numpy(), 0.05, "first", grouping))
    how = {"grouping": grouping, "on": ["x", "y"]}
    with dask.config.set(scheduler=None):
        lazy = ddf.simjoin.near_duplicated(0.05, **how)
    assert lazy.dtype == bool and lazy.name is None
    assert lazy.divisions == ddf.divisions
    whole = ddf.assign(gone=lazy).compute()
    assert whole["gone"].tolist() == want.tolist()
    assert lazy.partitions[2].compute().tolist() == want[200:300].tolist()
    names = ddf.simjoin.drop_near_duplicates(0.05, **how)[["name"]]
    assert names.compute().index.tolist() == frame.index[~want].tolist()
    assert names.divisions == ddf.divisions


def test_pairs_that_one_task_cannot_hold(client):
    """In the order of a column pairs meet in one task; in that of the frame they need not."""
    x = np.random.default_rng(1).uniform(size=(2000, 2))
    ddf = dd.from_pandas(pd.DataFrame(x, columns=["x", "y"]).assign(v=1.0), npartitions=3)
    how = {"on": ["x", "y"], "blocksize": "30 kB"}
    want = wanted(x, 0.2, "first", "greedy")
    with pytest.MonkeyPatch.context() as patched:
        assert ddf.simjoin.near_duplicated(0.2, keep="v", **how).compute().tolist() == want
        patched.setattr("dask_simjoin.cluster.expressions.duplicates.PAIR_BYTES", 1 << 20)
        assert ddf.simjoin.near_duplicated(0.2, **how).compute().tolist() == want
        with pytest.raises(BudgetError, match=r"one task needs all pairs.*Use grouping='connected'"):
            ddf.simjoin.near_duplicated(0.2, keep="v", partitioning="entity", **how).compute()
