"""Values come back to the partitions that workers hold, in their order, and merged if
they are reduced.
"""

import dask
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster

from dask_simjoin.graph.returned_rows import MergedRows, RowsByWorker
from tests.graph.test_row_values import REDUCED, nodes
from tests.support.frames import split
from tests.support.profiles import every_nth
from tests.support.task_stream import tasks_of

EPS = 0.03
HOW = {"partitioning": "spatial", "blocksize": "60 kB"}


@pytest.fixture(scope="module")
def frame():
    x = np.random.default_rng(8).uniform(size=(3000, 2))
    return pd.DataFrame(x, columns=["x", "y"], index=[f"r{k}" for k in range(3000)])


def labels_of(frame):
    """Return labels of partitions of several sizes; one partition is empty."""
    held = split(frame, (100, 250, 250, 500, 800, 1300, 1400, 2000, 2900)).persist()
    return held.simjoin.dbscan(EPS, 4, dropna=True, **HOW)


@pytest.mark.parametrize("reduced", every_nth(4, list(REDUCED)))
def test_reductions(frame, client, reduced):
    labels = labels_of(frame)
    lazy, want = (
        REDUCED[reduced](labels),
        REDUCED[reduced](frame.simjoin.dbscan(EPS, 4, dropna=True)),
    )
    found = lazy.compute()
    if np.ndim(found):
        pd.testing.assert_series_equal(found, want, check_index_type=False)
    else:
        assert found == want
    (few,) = nodes(lazy, MergedRows)
    assert few.npartitions in (2, 3) and not nodes(lazy, RowsByWorker)


def test_partitions(frame, client):
    frame = frame.copy()
    frame.iloc[1300:1400, 0] = np.nan  # all rows of a partition
    labels = labels_of(frame)
    want = frame.simjoin.dbscan(EPS, 4, dropna=True)
    sizes = labels.map_partitions(len)
    assert nodes(sizes, RowsByWorker) and not nodes(sizes, MergedRows)
    assert sizes.compute().tolist() == [100, 150, 0, 250, 300, 500, 100, 600, 900, 100]
    some = labels.partitions[5:8]
    pd.testing.assert_series_equal(
        some.compute(), want.iloc[800:2000], check_index_type=False
    )


@pytest.fixture
def client_that_moves_no_tasks():
    """A cluster whose idle workers take no tasks of busy ones, and with them their
    data.
    """
    how = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": ":0",
    }
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        LocalCluster(**how) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_lists_of_rows_are_not_sent(client_that_moves_no_tasks):
    """Each step of a chunk, and each step of a worker's rows, runs where its data are."""
    x = np.random.default_rng(8).uniform(size=(4000, 2))
    held = split(pd.DataFrame(x, columns=["x", "y"]), range(500, 4000, 500)).persist()
    client = client_that_moves_no_tasks
    with tasks_of(client) as ran:
        held.simjoin.dbscan(EPS, 4, **HOW).map_partitions(len).compute()
    sent = {"simjoin_send", "simjoin_rows", "simjoin_split", "simjoin_index"}
    workers = {}
    for task in ran:
        step = key_split(task["key"])
        workers.setdefault(step, set()).add(task["worker"])
        if step in sent:
            assert task["key"][1][0].startswith("worker ")
    assert sent <= workers.keys()
    moved = [
        key_split(key) for worker in client.run(_received).values() for key in worker
    ]
    assert "simjoin_parcel" in moved and not sent & set(moved)


def _received(dask_worker):
    return [key for one in dask_worker.transfer_incoming_log for key in one["keys"]]
