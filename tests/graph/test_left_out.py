"""Left rows without coordinates are in partitions of their own, and each is read once."""

import dask
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.graph import left_out
from tests.support.frames import split


@pytest.fixture
def frame():
    x = np.arange(40.0)
    x[[3, 4, 11, 25, 39]] = np.nan
    return pd.DataFrame({"x": x, "name": [f"n{k}" for k in range(40)]})


HOW = {"on": "x", "how": "left", "dropna": True, "keep": "name"}


@pytest.mark.parametrize("verb", ["join", "knn_join"])
def test_partitions_of_rows_that_are_left_out(frame, verb, monkeypatch):
    other = frame.iloc[::2]
    option = {"eps": 0.5} if verb == "join" else {"k": 1, "max_distance": 0.5}
    # another distance with the same pairs, so that Dask makes another expression
    again = {name: 0.4 if value == 0.5 else value for name, value in option.items()}
    want = getattr(frame.simjoin, verb)(other, **option, **HOW)
    lazy = split(frame, [10, 10, 20, 30])
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        few = getattr(lazy.simjoin, verb)(other, **option, **HOW)
        partitions, found = few.npartitions, [few.compute()]
        monkeypatch.setattr(left_out, "PARTITION", 2)
        many = getattr(lazy.simjoin, verb)(other, **again, **HOW)
        assert many.npartitions == partitions + 2
        for some in (*found, many.compute()):
            in_order = some.sort_values("left", ignore_index=True)
            pd.testing.assert_frame_equal(
                in_order, want.sort_values("left", ignore_index=True)
            )
        # the table's partitions have 2, 0, 1, 1 and 1 of these rows
        last = many.partitions[-2:].compute()
        assert last["left"].tolist() == [11, 25, 39] and last["right"].isna().all()
        columns = many[["name_left"]].compute()
        assert set(columns["name_left"]) == set(frame["name"])


def test_nothing_is_added_if_no_row_is_left_out(frame):
    whole = split(frame.dropna(), [10, 20])
    with dask.config.set(scheduler="sync"):
        some, every = (
            whole.simjoin.join(frame.dropna(), 0.5, on="x", how="left", dropna=dropna)
            for dropna in (True, False)
        )
        assert some.npartitions == every.npartitions


def test_without_any_row_that_can_be_compared(frame):
    nowhere = frame.assign(x=np.nan)
    lazy = split(nowhere, [10])
    with dask.config.set(scheduler="sync"):
        found = lazy.simjoin.join(frame, 0.5, **HOW).compute()
        assert found["left"].tolist() == frame.index.tolist()
        found = lazy.simjoin.knn_join(frame, 1, **HOW).compute()
        assert found["left"].tolist() == frame.index.tolist()
        found = lazy.simjoin.optics(1.0, 2, on="x", dropna=True).compute()
        assert (found["ordering"] == -1).all() and len(found) == 40
