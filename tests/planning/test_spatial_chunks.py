"""Chunks of regions: how they grow, where no shuffle is needed, and what travels."""

import cloudpickle
import dask
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import OptionError
from tests.support.frames import split
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.points import frame_of


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(5).uniform(size=(2000, 2))


def test_spatial_blocks_grow_with_the_data(x):
    """Entity chunks all meet each other, regions only meet their halos."""
    for parts in (10, 20, 40):
        size = 2000 // parts
        ddf = split(frame_of(x), range(size, 2000, size))
        chunks = {"blocksize": size * 24}
        entity = ddf.simjoin.self_join(0.01, partitioning="entity", **chunks).expr.plan
        assert len(entity.work) == parts * (parts + 1) // 2
        plan = ddf.simjoin.self_join(0.01, partitioning="spatial", **chunks).expr.plan
        assert plan.partitioning == "spatial"
        assert len(plan.work) <= 2 * parts


def test_sorted_data_need_no_shuffle():
    x = np.sort(np.random.default_rng(0).uniform(size=(2000, 1)), axis=0)
    plan = (
        split(frame_of(x), range(100, 2000, 100))
        .simjoin.self_join(1e-4, blocksize=1600)
        .expr.plan
    )
    assert plan.partitioning == "entity"
    assert len(plan.work) < 50


def test_float32_and_integer_columns_travel_exactly(x):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "a": x[:, 0].astype(np.float32),
            "b": rng.integers(0, 50, 2000).astype(np.int16),
            "c": pd.array(rng.integers(0, 3, 2000), "Int64"),
            "d": rng.uniform(size=2000) < 0.5,
        }
    )
    on = ["a", "b", "c", "d"]
    expected = brute_force(frame[on].astype(float).to_numpy(), 1.0)
    pairs = split(frame, (900,)).simjoin.self_join(
        1.0, on=on, partitioning="spatial", blocksize=300 * 40
    )
    assert_same_pairs(as_set(pairs.compute()), expected)


def test_ways_to_shuffle(x):
    ddf = split(frame_of(x), (1000,))
    chosen = {"partitioning": "spatial", "blocksize": 300 * 24}
    expected = brute_force(x, 0.03)
    # without a cluster
    for how, meant in (("disk", "disk"), ("tasks", "tasks"), ("p2p", "tasks")):
        with dask.config.set({"dataframe.shuffle.method": how}):
            pairs = ddf.simjoin.self_join(0.03, **chosen)
            assert pairs.expr.plan.chunks.method == meant
            assert_same_pairs(as_set(pairs.compute()), expected)
    with (
        dask.config.set({"dataframe.shuffle.method": "simple"}),
        pytest.raises(
            OptionError,
            match=r"shuffle.method='simple' is not allowed; use one of 'tasks'",
        ),
    ):
        ddf.simjoin.self_join(0.03, **chosen)


def test_regions_do_not_travel_with_every_task(x):
    ddf = split(frame_of(x), range(50, 2000, 50))
    pairs = ddf.simjoin.self_join(0.001, partitioning="spatial", blocksize=20 * 24)
    plan = pairs.expr.plan
    assert len(plan.chunks) > 60
    graph = dict(pairs.optimize().__dask_graph__())
    sizes = {
        key: len(cloudpickle.dumps(task))
        for key, task in graph.items()
        if "simjoin_send" in str(key)
    }
    assert len(sizes) >= 40
    assert max(sizes.values()) < 6000 < len(cloudpickle.dumps(plan.chunks))
