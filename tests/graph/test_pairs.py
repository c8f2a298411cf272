"""Lazy pairs: the announced columns in every partition."""

import dask.dataframe as dd
import pandas as pd
import pytest
from dask.dataframe.utils import assert_eq


@pytest.mark.parametrize(
    "options",
    [{}, {"return_distance": True}, {"pairs": "both", "include_self": True}],
    ids=str,
)
@pytest.mark.parametrize("npartitions", [1, 3])
def test_pairs_have_the_announced_columns_in_every_partition(options, npartitions):
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, 5.0, 5.5, 1.5, 9.0], "key": pd.Categorical(list("abcdef"))},
        index=list("uvwxyz"),
    )
    ddf = dd.from_pandas(frame, npartitions=npartitions)
    for id in (None, "key"):
        lazy = ddf.simjoin.self_join(1.0, on="x", id=id, **options)
        eager = frame.simjoin.self_join(1.0, on="x", id=id, **options)
        assert list(lazy.columns) == list(eager.columns)
        order = ["left", "right"]
        assert_eq(
            lazy.compute().sort_values(order, ignore_index=True),
            eager.sort_values(order, ignore_index=True),
            # labels are strings: Dask has its own dtype for these
            check_dtype=id is not None,
        )
        for n in range(lazy.npartitions):
            assert lazy.partitions[n].compute().dtypes.tolist() == lazy.dtypes.tolist()
