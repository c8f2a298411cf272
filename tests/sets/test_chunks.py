"""Chunks of sets, read from partitions."""

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.errors import SourceChangedError
from tests.support.sets import found_pairs


@pytest.fixture(autouse=True)
def plain_lists():
    """Lists stay lists in Dask DataFrames that are made of pandas'."""
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "threads"}):
        yield


def test_a_source_that_changes_is_refused():
    sizes = iter([4, 5])

    def read(n):
        return pd.DataFrame({"sets": [[1, 2]] * next(sizes)})

    ddf = dd.from_map(read, [0], meta=pd.DataFrame({"sets": [[1]]}).iloc[:0])
    pairs = ddf.simjoin.set_self_join("sets", 0.5)
    assert len(pairs.compute()) == 6  # of the rows that planning has read
    with pytest.raises(
        SourceChangedError, match="had 4 rows when the join was planned and has 5 now"
    ):
        pairs.compute()


def test_arrow_lists_and_empty_partitions():
    dtype = pd.ArrowDtype(pa.list_(pa.string()))
    frame = pd.DataFrame(
        {"sets": pd.array([["a", "b"], ["b", "a"], [], None], dtype=dtype)}
    )
    ddf = dd.from_map(
        lambda n: frame if n == 1 else frame.iloc[:0], range(3), meta=frame.iloc[:0]
    )
    assert found_pairs(ddf.simjoin.set_self_join("sets", 0.5).compute()) == {
        (0, 1): None
    }
    none = dd.from_pandas(frame.iloc[:0], npartitions=1)
    assert len(none.simjoin.set_self_join("sets", 0.5).compute()) == 0
    assert none.simjoin.count_set_pairs("sets", 0.5).compute() == 0
    assert len(none.simjoin.set_neighbor_counts("sets", 0.5).compute()) == 0
    assert len(ddf.simjoin.set_join(none, "sets", 0.5, how="leftanti").compute()) == 4
