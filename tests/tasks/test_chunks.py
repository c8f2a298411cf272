"""Chunks of several partitions that threads read and put together."""

import dask
import numpy as np
import pytest

from dask_simjoin.tasks import chunks
from tests.support.frames import planned, split
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("sizes", [[200_000, 0, 1], [0, 70_000, 70_000, 3, 0], [5, 4]])
def test_arrays_are_put_together_by_threads(order, sizes):
    rng = np.random.default_rng(0)
    parts = [np.asarray(rng.uniform(size=(n, 2)), order=order) for n in sizes]
    for eps in (0.01, 0.3):  # of 2 and of 6 columns
        layout = planned(frame_of(rng.uniform(size=(50, 2 if eps < 0.1 else 6))), eps)[1]
        for threads in (1, 2, 3):
            found = chunks.whole_points(parts, layout, threads)
            assert (found == np.concatenate(parts)).all()
            assert found.flags.f_contiguous == (layout.method == "sweep")


@pytest.mark.parametrize("cuts", [(300,), (1, 1, 200, 640)])
def test_threads_read_partitions_of_a_chunk(monkeypatch, cuts):
    monkeypatch.setattr(chunks, "LEAST_READ", 1)
    x = np.random.default_rng(1).uniform(size=(700, 2))
    x[::50, 1] = np.nan
    held = split(frame_of(x), cuts).persist()
    with dask.config.set(scheduler="threads", num_workers=3):
        pairs = held.simjoin.self_join(0.05, dropna=True)
        assert pairs.expr.plan.threads == 3
        tasks = {str(key) for key in pairs.__dask_graph__()}
        assert not any("simjoin_points" in key for key in tasks)
        assert as_set(pairs.compute()) == brute_force(x, 0.05)
