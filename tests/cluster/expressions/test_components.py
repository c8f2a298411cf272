"""Lazy labels of DBSCAN and marks of near duplicates: chunks, parts of their work,
memory.
"""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError
from dask_simjoin.planning import costs, limits, resources
from tests.cluster.algorithms.test_dbscan import by_definition, labels_of
from tests.cluster.algorithms.test_duplicates import wanted
from tests.support.density import SETS
from tests.support.points import frame_of
from tests.support.profiles import in_turns


@pytest.mark.slow
def test_on_a_cluster(client, monkeypatch):
    x, eps, min_samples = SETS["moons"]
    ddf = dd.from_pandas(frame_of(x), npartitions=6)
    with monkeypatch.context() as fine:  # workers that share one chunk's places
        fine.setattr(costs, "MIN_CLUSTER_PIECE", 0.0)
        fine.setattr(costs, "ROW_OF_PIECE", 0.0)
        fine.setattr(costs, "SAMPLED", 1)
        alone = ddf.simjoin.dbscan(eps, min_samples, partitioning="entity")
        assert len(alone.expr.plan.chunks) == 1 < alone.expr.plan.work.parts.max()
        assert alone.compute().tolist() == labels_of(x, eps, min_samples)
    for partitioning in ("entity", "spatial"):
        how = {"partitioning": partitioning, "blocksize": "12 kB"}
        labels = ddf.simjoin.dbscan(eps, min_samples, **how).compute()
        assert labels.tolist() == labels_of(x, eps, min_samples)


@in_turns(1, partitioning=["entity", "spatial"], shape=["lattice", "lines"])
def test_clusters_that_only_other_chunks_connect(partitioning, shape):
    """Hardly two rows of a chunk are near each other, and their places are in another
    order.
    """
    random = np.random.default_rng(3)
    if shape == "lattice":
        x = np.stack(np.meshgrid(np.arange(40.0), np.arange(30.0)), axis=-1).reshape(
            -1, 2
        )
        x = x[random.random(len(x)) < 0.75]
        eps, min_samples = 1.0, 4
    else:  # four lines: each is one cluster, and each chunk has rows of it
        line = random.uniform(0, 60, 1500)
        x, eps, min_samples = (
            np.stack([line, 5.0 * random.integers(0, 4, 1500)], axis=1),
            1.0,
            3,
        )
    x = random.permutation(x)
    frame, want = frame_of(x), labels_of(x, eps, min_samples)
    assert max(want) > 2 and -1 in labels_of(x, 0.5, min_samples)
    ddf = dd.from_pandas(frame, npartitions=24)
    for rows in (40, 200):
        how = {"partitioning": partitioning, "blocksize": rows * 64}
        lazy = ddf.simjoin.dbscan(eps, min_samples, **how)
        assert len(lazy.expr.plan.chunks) > 4
        assert lazy.compute().tolist() == want


@pytest.mark.parametrize("partitioning", ["entity", "spatial"])
def test_parts_of_block_pairs_give_the_same_labels(partitioning, monkeypatch):
    x, eps, min_samples = SETS["moons"]
    x = np.random.default_rng(5).permutation(x)
    monkeypatch.setattr(costs, "MIN_PIECE", 0.0)
    monkeypatch.setattr(costs, "MIN_ROW_PIECE", 0.0)
    monkeypatch.setattr(costs, "ROW_OF_PIECE", 0.0)
    monkeypatch.setattr(costs, "SAMPLED", 1)
    ddf = dd.from_pandas(frame_of(x), npartitions=8)
    with dask.config.set(scheduler="threads", num_workers=4):
        labels = ddf.simjoin.dbscan(
            eps,
            min_samples,
            partitioning=partitioning,
            blocksize=f"{len(x) // 3 * 64} B",
        )
        plan = labels.expr.plan
        assert len(plan.chunks) > 1 and plan.work.parts.max() > 1
        assert labels.compute().tolist() == labels_of(x, eps, min_samples)


@pytest.mark.parametrize("min_samples", [2, 256, 257, 1200, 1201])
def test_counts_of_several_chunks_are_added_up(min_samples):
    """The count of one chunk is clipped to its dtype; the sums over chunks must not be."""
    x = np.zeros((2400, 2))
    x[::2] += 5.0  # in each of four chunks 300
    ddf = dd.from_pandas(frame_of(x), npartitions=4)
    labels = ddf.simjoin.dbscan(
        1.0, min_samples, partitioning="entity", blocksize=600 * 64
    )
    assert len(labels.expr.plan.chunks) == 4
    assert labels.compute().tolist() == by_definition(x, 1.0, min_samples)


def test_one_chunk_where_the_memory_of_this_process_has_room_for_it(monkeypatch):
    """Several take longer, and as much memory: threads share it, and all of them are
    kept.
    """
    monkeypatch.setattr(resources, "MEMORY_LIMIT", 10_000_000)
    monkeypatch.setattr(limits, "LOCAL_CHUNK", 64_000)
    frame = frame_of(np.random.default_rng(0).uniform(size=(20_000, 2)))
    with dask.config.set(scheduler="threads", num_workers=2):
        labels = dd.from_pandas(frame, npartitions=4).simjoin.dbscan(0.005, 4)
        plan = labels.expr.plan
        assert (
            len(plan.chunks) == 1
            and plan.limits.chunk == 2_000_000 < 2 * plan.rows * plan.indexing.row_bytes
        )
        assert labels.compute().tolist() == labels_of(frame.to_numpy(), 0.005, 4)
        twice = dd.from_pandas(
            pd.concat([frame, frame + 2], ignore_index=True), npartitions=4
        )
        plan = twice.simjoin.dbscan(0.005, 4).expr.plan
        assert len(plan.chunks) > 1 and plan.limits.chunk < 1_000_000


@pytest.mark.parametrize("frames", ["labels", "assigned"])
def test_partitions_of_labels_are_fused_with_what_follows(frames):
    """Many are made of one chunk, and a task of a cluster takes longer than most of
    them.
    """
    x, eps, min_samples = SETS["moons"]
    frame = frame_of(x)
    ddf = dd.from_pandas(frame, npartitions=12)
    labels = ddf.simjoin.dbscan(eps, min_samples)
    lazy = labels + 1 if frames == "labels" else ddf.assign(label=labels)
    lazy = lazy.optimize()
    keys = [str(key) for key in lazy.__dask_graph__()]
    # none besides what they are fused into
    assert sum("simjoin_dbscan_rows" in key for key in keys) == 12
    assert not any(
        "simjoin_dbscan_rows" in key and "add" not in key and "assign" not in key
        for key in keys
    )
    found = lazy.compute() - 1 if frames == "labels" else lazy.compute().label
    assert found.tolist() == labels_of(x, eps, min_samples)
    some = labels.partitions[[3, 7]].optimize().compute()
    assert (
        some.tolist() == labels.compute()[some.index].tolist()
        and len(some) == len(x) // 6
    )


@pytest.mark.parametrize("grouping", ["greedy", "connected"])
def test_lazy_marks_are_aligned_and_computed_late(grouping):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.uniform(size=(400, 2)), columns=["x", "y"]).assign(
        name="a"
    )
    ddf = dd.from_pandas(frame, npartitions=4)
    want = np.array(wanted(frame[["x", "y"]].to_numpy(), 0.05, "first", grouping))
    how = {"grouping": grouping, "on": ["x", "y"]}
    with dask.config.set(scheduler=None):
        lazy = ddf.simjoin.near_duplicated(0.05, **how)
    assert lazy.dtype == bool and lazy.name is None
    assert lazy.divisions == ddf.divisions
    whole = ddf.assign(gone=lazy).compute()
    assert whole["gone"].tolist() == want.tolist()
    assert lazy.partitions[2].compute().tolist() == want[200:300].tolist()
    names = ddf.simjoin.drop_near_duplicates(0.05, **how)[["name"]]
    assert names.compute().index.tolist() == frame.index[~want].tolist()
    assert names.divisions == ddf.divisions


def test_pairs_that_one_task_cannot_hold(client):
    """In the order of a column pairs meet in one task; in that of the frame they need
    not.
    """
    x = np.random.default_rng(1).uniform(size=(2000, 2))
    ddf = dd.from_pandas(
        pd.DataFrame(x, columns=["x", "y"]).assign(v=1.0), npartitions=3
    )
    how = {"on": ["x", "y"], "blocksize": "30 kB"}
    want = wanted(x, 0.2, "first", "greedy")
    with pytest.MonkeyPatch.context() as patched:
        assert (
            ddf.simjoin.near_duplicated(0.2, keep="v", **how).compute().tolist() == want
        )
        patched.setattr(
            "dask_simjoin.cluster.expressions.components.ROW_BYTES", 1 << 20
        )
        assert ddf.simjoin.near_duplicated(0.2, **how).compute().tolist() == want
        with pytest.raises(
            BudgetError, match=r"one task needs all pairs.*Use grouping='connected'"
        ):
            ddf.simjoin.near_duplicated(
                0.2, keep="v", partitioning="entity", **how
            ).compute()
