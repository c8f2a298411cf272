"""The task that matches rows one to one."""

import dask
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError, OptionError
from dask_simjoin.graph import matching
from tests.support.frames import split


class Small:
    room = 1 << 20


def test_all_pairs_must_fit_in_one_task(monkeypatch):
    lazy = split(pd.DataFrame({"x": np.zeros(3000)}), [1000])
    found = lazy.simjoin.join(lazy, 1, on="x", matching="greedy")
    monkeypatch.setattr(matching, "limits_for", lambda library: Small())
    with pytest.raises(BudgetError, match="needs all pairs at once: eps=1"):
        found.compute()


def test_pairs_that_do_not_fit_are_refused_before_the_join_runs():
    x, words = np.zeros(30_000), ["a b"] * 30_000
    lazy = split(pd.DataFrame({"x": x, "t": words}), [10_000])
    with dask.config.set({"simjoin.blocksize": "4 MB"}):
        for found in (
            lazy.simjoin.join(lazy, 1, on="x", matching="greedy"),
            lazy.simjoin.edit_join(lazy, "t", 1, matching="greedy"),
        ):
            with pytest.raises(
                BudgetError, match=r"needs all pairs at once: (eps|k)=1"
            ):
                found.optimize()


def test_plans_include_the_memory_of_the_matching():
    frame = pd.DataFrame({"x": np.zeros(300), "t": "a"})
    for table in (frame, split(frame, [100])):
        how = {"other": table, "matching": "greedy"}
        for plan in (
            table.simjoin.plan(1, on="x", **how),
            table.simjoin.edit_plan("t", 1, **how),
        ):
            assert plan.pairs == 90_000 and plan.task_bytes == 64 * 90_000
    with pytest.raises(OptionError, match="matching='greedy' is for joins of two"):
        frame.simjoin.plan(1, on="x", matching="greedy")
    with pytest.raises(OptionError, match="matching='greedy' is for joins of two"):
        frame.simjoin.set_plan("t", 1, tokenizer="words", matching="greedy")


def test_partitions_can_be_chosen():
    frame = pd.DataFrame({"x": np.arange(9.0)})
    lazy = split(frame, [3, 6])
    found = lazy.simjoin.join(lazy, 0.5, on="x", matching="greedy", how="outer")
    assert found.partitions[0].compute()["left"].tolist() == list(range(9))
    assert len(found.persist()) == len(found) == 9
