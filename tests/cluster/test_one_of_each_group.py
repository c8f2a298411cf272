"""De-duplication in one line: `dbscan` with `min_samples=1` numbers the groups that pairs connect."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tests.support.oracle import squared_distances

EPS = 0.05


def points():
    """Rows some of which are changed copies of others, chains of copies of copies among them."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=(300, 2))
    x[200:] = x[rng.integers(0, 200, 100)] + rng.normal(0, 0.01, (100, 2))
    return pd.DataFrame(x, columns=["x", "y"]).assign(name=[f"row {k}" for k in range(300)])


@pytest.mark.parametrize("partitions", [None, 1, 4])
def test_first_of_each_group_stays(partitions):
    df = points()
    near = coo_array(squared_distances(df[["x", "y"]].to_numpy(), df[["x", "y"]].to_numpy()) <= EPS * EPS)
    count, groups = connected_components(near, directed=False)
    first = [int(np.flatnonzero(groups == g)[0]) for g in range(count)]
    assert 0 < count < len(df) and max(np.bincount(groups)) > 3
    frame = df if partitions is None else dd.from_pandas(df, npartitions=partitions)
    once = frame.assign(g=frame.simjoin.dbscan(EPS, min_samples=1, on=["x", "y"])).drop_duplicates("g")
    once = once if partitions is None else once.compute()
    assert sorted(once["g"]) == list(range(count))
    assert sorted(groups[once.index]) == list(range(count))
    if partitions is None:  # Dask's drop_duplicates does not say which row it keeps
        assert sorted(once.index) == sorted(first)
