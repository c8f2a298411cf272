"""The task that matches rows one to one."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError
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


def test_partitions_can_be_chosen():
    frame = pd.DataFrame({"x": np.arange(9.0)})
    lazy = split(frame, [3, 6])
    found = lazy.simjoin.join(lazy, 0.5, on="x", matching="greedy", how="outer")
    assert found.partitions[0].compute()["left"].tolist() == list(range(9))
    assert len(found.persist()) == len(found) == 9
