"""Values come back to the partitions that workers hold, in their order, and merged if they are reduced."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.graph.returned_rows import MergedRows, RowsByWorker
from tests.graph.test_row_values import REDUCED, nodes
from tests.support.frames import split

EPS = 0.03
HOW = {"partitioning": "spatial", "blocksize": "60 kB"}


@pytest.fixture(scope="module")
def frame():
    x = np.random.default_rng(8).uniform(size=(3000, 2))
    x[1300:1400, 0] = np.nan
    return pd.DataFrame(x, columns=["x", "y"], index=[f"r{k}" for k in range(3000)])


@pytest.fixture
def labels(frame, client):
    """Labels of partitions of several sizes. One partition is empty, and all rows of another have NaN."""
    held = split(frame, (100, 250, 250, 500, 800, 1300, 1400, 2000, 2900)).persist()
    return held.simjoin.dbscan(EPS, 4, dropna=True, **HOW)


@pytest.mark.parametrize("reduced", list(REDUCED))
def test_reductions(frame, labels, reduced):
    lazy, want = REDUCED[reduced](labels), REDUCED[reduced](frame.simjoin.dbscan(EPS, 4, dropna=True))
    found = lazy.compute()
    if np.ndim(found):
        pd.testing.assert_series_equal(found, want, check_index_type=False)
    else:
        assert found == want
    (few,) = nodes(lazy, MergedRows)
    assert few.npartitions in (2, 3) and not nodes(lazy, RowsByWorker)


def test_partitions(frame, labels):
    want = frame.simjoin.dbscan(EPS, 4, dropna=True)
    sizes = labels.map_partitions(len)
    assert nodes(sizes, RowsByWorker) and not nodes(sizes, MergedRows)
    assert sizes.compute().tolist() == [100, 150, 0, 250, 300, 500, 0, 600, 900, 100]
    some = labels.partitions[5:8]
    pd.testing.assert_series_equal(some.compute(), want.iloc[800:1900], check_index_type=False)
