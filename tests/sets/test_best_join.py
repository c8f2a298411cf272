"""Lazy joins that return the most similar right row of each left row."""

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

FRAME = pd.DataFrame({"t": ["ab", "abc", "xyz", None, "abd", "q"]})
HOW = {"on": "t", "k": 1, "best": True, "how": "left", "return_distance": True}


@pytest.mark.slow
def test_partitions_and_columns_can_be_chosen():
    other = FRAME.copy()
    lazy = dd.from_pandas(FRAME, npartitions=3)
    found = lazy.simjoin.edit_join(
        dd.from_pandas(other, npartitions=3), blocksize=30, **HOW
    )
    assert found.npartitions > 1
    parts = dask.compute(*(found.partitions[n] for n in range(found.npartitions)))
    whole = pd.concat(parts).sort_values("left", ignore_index=True)
    expected = FRAME.simjoin.edit_join(other, **HOW)
    pd.testing.assert_frame_equal(
        whole, expected.sort_values("left", ignore_index=True)
    )
    assert found["right"].count().compute() == 5
    assert found.simjoin.report().rows == 6


def test_a_table_without_rows():
    lazy = dd.from_pandas(FRAME, npartitions=2)
    none = lazy[lazy["t"] == "none"]
    assert not len(none.simjoin.edit_join(lazy, **HOW))
    assert lazy.simjoin.edit_join(none, **HOW)["right"].isna().sum().compute() == 6
