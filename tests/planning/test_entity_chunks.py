"""Chunks of consecutive rows: cut, merged, and replicated."""

import dask
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError
from dask_simjoin.graph import planner
from dask_simjoin.planning.limits import Limits
from tests.support.frames import split
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.points import frame_of
from tests.support.profiles import every_nth


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(5).uniform(size=(2000, 2))


def test_large_partitions_are_cut_and_small_ones_merged(x):
    ddf = split(frame_of(x), (1200, *range(1250, 2000, 50)))
    plan = ddf.simjoin.self_join(
        0.03, partitioning="entity", blocksize=300 * 24
    ).expr.plan
    assert max(plan.chunks.rows) <= 300
    assert sum(plan.chunks.rows) == 2000
    assert [len(pieces) for pieces in plan.chunks.pieces] == [1, 1, 1, 1, 6, 6, 4]


@pytest.mark.slow
def test_no_partition_of_the_result_is_much_larger_than_allowed(x):
    """Skew: a third of the points in one small cell, so that one block pair gives
    nearly all pairs.
    """
    x = np.concatenate([x, np.random.default_rng(1).normal(0.5, 0.004, (1000, 2))])
    ddf = split(frame_of(x), (1000, 2500))
    expected = brute_force(x, 0.01)
    for kind in ("entity", "spatial"):
        with dask.config.set({"simjoin.output-size": 16 * 5_000, "scheduler": "sync"}):
            pairs = ddf.simjoin.self_join(0.01, partitioning=kind, blocksize=1000 * 24)
            sizes, rows = dask.compute(pairs.map_partitions(len), pairs)
            assert_same_pairs(as_set(rows), expected)
        assert sizes.sum() == len(expected) > 300_000
        assert sizes.max() < 1.5 * 5_000


def test_replicated_is_one_chunk_and_parts_of_its_queries():
    x = np.random.default_rng(0).uniform(size=(3000, 2))
    ddf = split(frame_of(x), (1000, 1500))
    expected = brute_force(x, 0.02)
    with dask.config.set({"scheduler": "sync", "num_workers": 3}):
        pairs = ddf.simjoin.self_join(0.02, partitioning="replicated")
        assert pairs.expr.plan.work.even and len(pairs.expr.plan.chunks) == 1
        assert pairs.npartitions == 12
        assert_same_pairs(as_set(pairs.compute()), expected)
        report = ddf.simjoin.plan(0.02, partitioning="replicated")
        assert report.partitioning == "replicated" and "parts of its queries" in str(
            report
        )
        with pytest.raises(
            BudgetError, match=r"one chunk of all 3,000 rows.*use blocksize='90 kB'"
        ):
            ddf.simjoin.plan(0.02, partitioning="replicated", blocksize="10 kB")
        assert ddf.simjoin.count_pairs(
            0.02, partitioning="replicated"
        ).compute() == len(expected)
        assert ddf.simjoin.neighbor_counts(
            0.02, partitioning="replicated"
        ).sum().compute() == 2 * len(expected)


def test_pairs_are_counted_first_if_they_may_not_fit_or_are_clustered(monkeypatch):
    random = np.random.default_rng(0)
    frame = frame_of(random.uniform(size=(20_000, 2)))
    clump = frame_of(
        np.concatenate(
            [frame.to_numpy()[:19_500], 0.5 + random.normal(0, 0.001, (500, 2))]
        )
    )
    monkeypatch.setattr("dask_simjoin.planning.limits.LOCAL_CHUNK", 2**18)

    def cut(memory, output=None, frame=frame):
        have = Limits(2, shared=memory, together=2)
        monkeypatch.setattr(planner, "limits_for", lambda library: have)
        with dask.config.set({"simjoin.output-size": output}):
            pairs = split(frame, (9000,)).simjoin.self_join(0.01, partitioning="entity")
            sizes = pairs.map_partitions(len).compute(scheduler="sync")
        assert sizes.sum() == len(frame.simjoin.self_join(0.01)) and len(sizes) > 1
        return any("cuts" in str(key) for key in pairs.optimize().__dask_graph__())

    size = 16 * len(frame.simjoin.self_join(0.01))
    assert not cut(5 * size)
    assert cut(3 * size) and cut(5 * size, size // 4)
    assert cut(50 * size, frame=clump)


@pytest.mark.parametrize("skewed", every_nth(4, [False, True]))
def test_replicated_outputs_are_bounded(skewed):
    """By equally many rows where that does, and else by counting pairs first."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(6000, 2))
    if skewed:
        x[:200] = 0.5 + rng.normal(0, 1e-4, (200, 2))
    expected = brute_force(x, 0.02)
    with dask.config.set(
        {"scheduler": "sync", "num_workers": 1, "simjoin.output-size": 16 * 1500}
    ):
        pairs = split(frame_of(x), (2500,)).simjoin.self_join(
            0.02, partitioning="replicated"
        )
        assert pairs.expr.plan.work.even != skewed
        parts = dask.compute(*pairs.to_delayed())
    assert max(map(len, parts)) < 1.2 * 1500
    assert_same_pairs(set().union(*map(as_set, parts)), expected)


def test_tables_far_apart_do_not_meet():
    near = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 0.0]})
    far = near + 1000
    assert len(near.simjoin.join(far, 1.0)) == 0
    assert near.simjoin.join(far, 1.0, how="leftanti").equals(near)
    assert len(near.simjoin.join(near, 1.0)) == 4
