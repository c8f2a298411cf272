"""Calls that are the same for plain tables and for Dask's."""

import dask.dataframe as dd
import pandas as pd
import pytest

from dask_simjoin.request.tables import (
    by_partition,
    computed,
    in_one,
    meta_of,
    reduced,
)

FRAME = pd.DataFrame({"x": [3, 1, 2]})


def more(frame, number):
    return frame + number


@pytest.mark.parametrize("lazy", [False, True])
def test_plain_and_lazy_tables(lazy):
    table = dd.from_pandas(FRAME, npartitions=2) if lazy else FRAME
    assert list(meta_of(table).columns) == ["x"] and computed(5) == 5
    assert len(meta_of(table)) == (0 if lazy else 3)
    for how in ({}, {"meta": FRAME.iloc[:0]}, {"meta": lambda: FRAME.iloc[:0]}):
        made = computed(by_partition(more, table, 1, **how))
        assert made["x"].tolist() == [4, 2, 3]
    biggest = reduced(lambda rows: rows.max().to_frame().T, pd.DataFrame.max, table)
    assert (
        int(computed(biggest).max().max() if not lazy else computed(biggest).max()) == 3
    )
    assert computed(in_one(table)).equals(FRAME)
    assert not lazy or in_one(table).npartitions == 1
