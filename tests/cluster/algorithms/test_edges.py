"""Edges between near rows."""

import dask.dataframe as dd
import pandas as pd
import pytest

from dask_simjoin.cluster.algorithms import optics
from dask_simjoin.cluster.expressions import optics as graph_optics
from tests.cluster.expressions.test_optics import assert_same, sklearn_optics
from tests.support.density import SETS
from tests.support.points import frame_of


def test_edges_that_are_sorted_in_many_runs(monkeypatch):
    x, eps, min_samples = SETS["blobs"]
    x = x[:600]
    want = sklearn_optics(x, 2 * eps, min_samples)
    for module in (optics, graph_optics):
        monkeypatch.setattr(module, "PAIRS_AT_ONCE", 300)
    assert_same(frame_of(x).simjoin.optics(2 * eps, min_samples), want)
    ddf = dd.from_pandas(frame_of(x), npartitions=5)
    lazy = ddf.simjoin.optics(
        2 * eps, min_samples, partitioning="entity", blocksize="12 kB"
    )
    assert_same(lazy.compute(scheduler="sync"), want)


@pytest.mark.parametrize("method", ["tiles", "sweep"])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_components_of_chunks_that_may_be_empty(rows, method):
    """Two of three partitions have no rows."""
    frame = pd.DataFrame({"x": [0.0, 0.1, 5.0], "y": 0.0, "g": 0}).iloc[:rows]
    parts = [frame.iloc[:0], frame, frame.iloc[:0]]
    how = {"on": ["x", "y"], "grouping": "connected", "method": method}
    for found in (
        frame.simjoin.near_duplicated(0.2, **how),
        dd.from_map(lambda part: part, parts, meta=frame.iloc[:0])
        .simjoin.near_duplicated(0.2, **how, blocksize=200)
        .compute(scheduler="sync"),
    ):
        assert found.tolist() == [False, True, False][:rows]
