"""Verbs are refused if workers have too little disk space."""

from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dask_simjoin.errors import BudgetError
from dask_simjoin.graph import planner, worker_disks
from dask_simjoin.graph.worker_disks import by_disk
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.resources import WorkerDisk

WORDS = {"threshold": 0.5, "tokenizer": "whitespace"}

VERBS = {
    "self_join": lambda points, sets: (
        points.simjoin.self_join(0.1, on=["x", "y"]).npartitions
    ),
    "join": lambda points, sets: (
        points.simjoin.join(points, 0.1, on=["x", "y"]).npartitions
    ),
    "knn_join": lambda points, sets: (
        points.simjoin.knn_join(k=2, on=["x", "y"]).npartitions
    ),
    "k_distances": lambda points, sets: points.simjoin.k_distances(
        2, on=["x", "y"]
    ).compute(),
    "count_pairs": lambda points, sets: points.simjoin.count_pairs(
        0.1, on=["x", "y"]
    ).compute(),
    "neighbor_counts": lambda points, sets: points.simjoin.neighbor_counts(
        0.1, on=["x", "y"]
    ).compute(),
    "near_duplicated": lambda points, sets: points.simjoin.near_duplicated(
        0.1, on=["x", "y"]
    ).compute(),
    "dbscan": lambda points, sets: points.simjoin.dbscan(
        0.1, 3, on=["x", "y"]
    ).compute(),
    "optics": lambda points, sets: points.simjoin.optics(
        0.1, 3, on=["x", "y"]
    ).compute(),
    "hdbscan": lambda points, sets: points.simjoin.hdbscan(
        5, blocksize="8 kB", on=["x", "y"]
    ).compute(),
    "spanning_tree": lambda points, sets: points.simjoin.spanning_tree(
        blocksize="8 kB", on=["x", "y"]
    ).compute(),
    "neighbor_graph": lambda points, sets: points.simjoin.neighbor_graph(
        0.1, on=["x", "y"]
    ).compute(),
    "set_self_join": lambda points, sets: (
        sets.simjoin.set_self_join("s", **WORDS).npartitions
    ),
    "count_set_pairs": lambda points, sets: sets.simjoin.count_set_pairs(
        "s", **WORDS
    ).compute(),
    "set_neighbor_counts": lambda points, sets: sets.simjoin.set_neighbor_counts(
        "s", **WORDS
    ).compute(),
    "set_near_duplicated": lambda points, sets: sets.simjoin.set_near_duplicated(
        "s", **WORDS
    ).compute(),
}


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            memory_limit=0,
            dashboard_address=":0",
        ) as found,
        Client(found),
    ):
        yield found


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_that_need_more_than_is_free_are_refused(cluster, monkeypatch, verb):
    """Workers with so little memory that all rows go to disk, and 100 B are free."""
    have = Limits(2, 1 << 20, True, 1 << 20, workers=1, together=2)
    monkeypatch.setattr(planner, "limits_for", lambda library: have)
    x = np.random.default_rng(0).uniform(size=(400, 2))
    points = dd.from_pandas(pd.DataFrame(x, columns=["x", "y"]), npartitions=4)
    sets = dd.from_pandas(
        pd.DataFrame({"s": [f"{n % 7} {n % 5} x" for n in range(400)]}), npartitions=4
    )
    free = []

    def usage(directory):
        free.append(directory)
        return SimpleNamespace(free=100)

    monkeypatch.setattr(worker_disks.shutil, "disk_usage", usage)
    with pytest.raises(
        BudgetError,
        match=r"At least .* do not fit .* of 1 workers.*has only 100 B free",
    ):
        VERBS[verb](points, sets)
    assert free


def test_workers_that_share_a_disk_are_put_together():
    spills = [
        ("a", 1, "/one", 100, None),
        ("a", 2, "/two", 90, None),
        ("a", 1, "/one/more", 99, None),
        ("b", 1, "/one", 80, 30),
        ("b", 1, "/one", 80, 20),
    ]
    assert by_disk(spills) == [
        WorkerDisk("a", "/one", 2, 99),
        WorkerDisk("a", "/two", 1, 90),
        WorkerDisk("b", "/one", 2, 50),
    ]


def test_workers_are_not_asked_where_nothing_goes_to_disk(cluster, monkeypatch):
    monkeypatch.setattr(
        Client, "run", lambda *_, **__: pytest.fail("workers were asked")
    )
    frame = dd.from_pandas(pd.DataFrame({"x": [0.0, 1.0]}), npartitions=1)
    assert frame.simjoin.count_pairs(1.0, on="x").compute() == 1
