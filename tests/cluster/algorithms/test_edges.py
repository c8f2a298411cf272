"""Edges between near rows."""

import dask.dataframe as dd

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
        monkeypatch.setattr(module, "SORTED_EDGES", 300)
    assert_same(frame_of(x).simjoin.optics(2 * eps, min_samples), want)
    ddf = dd.from_pandas(frame_of(x), npartitions=5)
    lazy = ddf.simjoin.optics(
        2 * eps, min_samples, partitioning="entity", blocksize="12 kB"
    )
    assert_same(lazy.compute(scheduler="sync"), want)
