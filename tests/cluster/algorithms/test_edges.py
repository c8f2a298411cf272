"""Edges between near rows, in memory or in files."""

import dask.dataframe as dd

from dask_simjoin.cluster import local
from dask_simjoin.cluster.algorithms.edges import SpillLimits
from dask_simjoin.cluster.algorithms.scratch import StoredArray
from dask_simjoin.cluster.expressions import optics as graph_optics
from tests.cluster.expressions.test_optics import assert_same, sklearn_optics
from tests.support.density import SETS
from tests.support.points import frame_of


def test_edges_in_files(tmp_path, monkeypatch):
    """Runs and gathered edges of many pieces, all of them on disk, and gone afterwards."""
    x, eps, min_samples = SETS["blobs"]
    x = x[:600]
    want = sklearn_optics(x, 2 * eps, min_samples)
    held = []

    def room(directory, most, buffer):
        held.append(SpillLimits(str(tmp_path), 64, 300))
        return held[-1]

    monkeypatch.setattr(local, "SpillLimits", room)
    monkeypatch.setattr(graph_optics, "SpillLimits", room)
    discarded = []
    monkeypatch.setattr(
        StoredArray,
        "discard",
        lambda self, old=StoredArray.discard: (discarded.append(self), old(self)),
    )
    assert_same(frame_of(x).simjoin.optics(2 * eps, min_samples), want)
    ddf = dd.from_pandas(frame_of(x), npartitions=5)
    lazy = ddf.simjoin.optics(
        2 * eps, min_samples, partitioning="entity", blocksize="12 kB"
    )
    assert_same(lazy.compute(scheduler="sync"), want)
    assert sum(one.values is None for one in discarded) > 40 and held
    assert not list(tmp_path.iterdir())
