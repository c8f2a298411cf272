"""Examples of results."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.calls.examples import nearest_example, pairs_example, series_example
from dask_simjoin.errors import (
    ColumnError,
)
from dask_simjoin.request.requests import JoinRequest, KnnJoinRequest

LEFT = pd.DataFrame({"x": [0.0], "name": ["a"]}, index=["i"])
RIGHT = pd.DataFrame({"x": [1.0], "size": np.array([3], np.int32)})


def test_examples_are_empty_and_have_the_columns_of_results():
    spec = JoinRequest(
        RIGHT, 2.0, on="x", keep=["name", "size"], return_distance=True
    ).spec(LEFT, RIGHT)
    found = pairs_example(LEFT, RIGHT, spec)
    assert len(found) == 0
    assert list(found.columns) == ["left", "right", "distance", "name", "size"]
    assert found.dtypes["right"] == np.int64 and found.dtypes["size"] == np.int32
    missing = pairs_example(LEFT, RIGHT, spec, "left")
    assert missing.dtypes["size"] == pd.Int32Dtype()


def test_nearest_rows_have_ranks():
    spec = KnnJoinRequest(RIGHT, 1, on="x", keep="name").spec(LEFT, RIGHT)
    assert list(nearest_example(LEFT, RIGHT, spec).columns) == [
        "left",
        "right",
        "rank",
        "distance",
        "name",
    ]


def test_series_have_the_index_of_the_frame():
    found = series_example(LEFT, "count")
    assert found.name == "count" and found.dtype == np.int64
    assert found.index.dtype == LEFT.index.dtype


def test_categories_that_dask_does_not_know_are_refused():
    other = dd.from_pandas(RIGHT.assign(kind=["k"]), npartitions=1).astype(
        {"kind": "category"}
    )
    with pytest.raises(ColumnError, match="whose categories Dask does not know"):
        dd.from_pandas(LEFT, npartitions=1).simjoin.join(
            other, 2.0, on="x", how="left", keep="kind"
        )
