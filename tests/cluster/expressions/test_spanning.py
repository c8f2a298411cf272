"""Lazy spanning trees: chunks that meet, shared rounds, and workers without room."""

import math

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split

from dask_simjoin.cluster.expressions import spanning as expressions
from dask_simjoin.engine.cpu.spanning import CpuSpanner
from dask_simjoin.errors import BudgetError
from dask_simjoin.graph.placement import worker_of
from dask_simjoin.planning import resources, searches
from dask_simjoin.planning.checks import TREE_SHARE
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.resources import workers_of
from tests.support.density import SETS
from tests.support.points import frame_of
from tests.support.profiles import every_nth
from tests.support.task_stream import tasks_of


@pytest.mark.parametrize("name", ["varied", "wide", "lattice", "identical points"])
def test_threads_share_the_rounds_of_one_task(name, monkeypatch):
    share_all(monkeypatch)
    x = np.random.default_rng(1).permutation(SETS[name][0])
    frame = frame_of(np.concatenate([x, x + 3]))
    want = frame.simjoin.spanning_tree(min_samples=4, threads=1)
    for threads in (2, 3):
        with dask.config.set(num_workers=threads):
            ddf = dd.from_pandas(frame, npartitions=threads)
            lazy = ddf.simjoin.spanning_tree(min_samples=4, blocksize="1 GB")
            plan = lazy.expr.plan
            assert len(plan.chunks) == plan.work.sharing[0] == 1
            assert plan.indexing.threads == threads
            pd.testing.assert_frame_equal(lazy.compute(scheduler="threads"), want)


def share_all(monkeypatch):
    """Let rounds of trees be shared, however few rows and columns there are."""
    for limit in ("SHARED_DIMS", "MIN_PART", "MOMENT", "SAMPLED"):
        monkeypatch.setattr(searches, limit, 0 if limit == "MOMENT" else 1)


@pytest.mark.parametrize("copies", [1, 2])
def test_rounds_that_workers_share(client, copies, monkeypatch):
    """Each makes the components for itself, does its own part each time, and tells the
    others of edges.

    Chunks are copied on GPUs, each of which makes its own.
    """
    share_all(monkeypatch)
    # as if each worker had a host of its own
    monkeypatch.setattr(resources, "threads_of_host", lambda workers: 1)
    monkeypatch.setattr(Costs, "copies", lambda costs, chunks, parts: copies)
    x = np.random.default_rng(copies).permutation(SETS["varied"][0])
    frame = frame_of(np.concatenate([x, x + 3]))
    lazy = dd.from_pandas(frame, npartitions=2).simjoin.hdbscan(9, blocksize="1 GB")
    assert len(lazy.expr.plan.chunks) == 1 and lazy.expr.plan.work.sharing == (2, 2)
    with tasks_of(client) as ran:
        found = lazy.compute()
    pd.testing.assert_frame_equal(found, frame.simjoin.hdbscan(9))
    steps = ("search", "joined", "begin", "share", "round", *("index",) * (copies > 1))
    done = {step: set() for step in steps}
    for task in ran:
        if (step := key_split(task["key"]).rpartition("_")[2]) in done:
            done[step].add((worker_of(task["key"]) or 0, task["worker"]))
    there = sorted(workers_of(client))
    assert all(each == {(0, there[0]), (1, there[1])} for each in done.values()), done


def test_one_worker_makes_a_tree_with_the_threads_of_its_host(client, monkeypatch):
    share_all(monkeypatch)
    frame = frame_of(SETS["varied"][0])
    lazy = dd.from_pandas(frame, npartitions=2).simjoin.hdbscan(9, blocksize="1 GB")
    plan = lazy.expr.plan
    assert plan.work.sharing == (1, 1) and plan.indexing.threads == plan.limits.of_host
    assert plan.limits.of_host == 2 * plan.limits.together == plan.limits.threads
    with tasks_of(client) as ran:
        pd.testing.assert_frame_equal(lazy.compute(), frame.simjoin.hdbscan(9))
    names = [key_split(task["key"]) for task in ran]
    assert names.count("simjoin_hdbscan_search") == 1


@pytest.mark.slow
def test_on_a_cluster(client):
    frame = frame_of(SETS["moons"][0][:300])
    lazy = dd.from_pandas(frame, npartitions=2).simjoin.hdbscan(
        9, partitioning="entity", blocksize="50 kB"
    )
    assert len(lazy.expr.plan.chunks) > 1
    pd.testing.assert_frame_equal(lazy.compute(), frame.simjoin.hdbscan(9))


@pytest.mark.parametrize("kind", every_nth(4, ["even", "apart"]))
def test_far_chunks_do_not_meet(kind):
    """Nor is an edge lost, where groups of chunks are far apart."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(2000, 2)) + (
        10 * rng.integers(0, 3, (2000, 1)) if kind == "apart" else 0
    )
    lazy = dd.from_pandas(frame_of(x), npartitions=3).simjoin
    tree = lazy.spanning_tree(partitioning="spatial", blocksize="30 kB", min_samples=3)
    chunks, joined = len(tree.expr.plan.chunks), len(tree.expr.plan.work.joined)
    assert chunks > 20 and joined < 0.8 * chunks * (chunks - 1) / 2
    want = frame_of(x).simjoin.spanning_tree(min_samples=3)
    pd.testing.assert_frame_equal(tree.compute(scheduler="sync"), want)


def test_a_tree_that_fits_no_worker(monkeypatch):
    frame = frame_of(SETS["moons"][0][:200])
    lazy = dd.from_pandas(frame, npartitions=2).simjoin
    for one, each in (
        (lazy.hdbscan(7), 64),
        (lazy.hdbscan(2), 120),
        (lazy.spanning_tree(), 64),
    ):
        limit = math.ceil(len(frame) * each / TREE_SHARE)
        monkeypatch.setattr(
            expressions,
            "limits_for",
            lambda library, limit=limit: Limits(limit=limit - 1),
        )
        with pytest.raises(
            BudgetError, match=r"spanning tree of all 200 rows, .* smallest worker has"
        ):
            one.compute(scheduler="sync")
        monkeypatch.setattr(
            expressions,
            "limits_for",
            lambda library, limit=limit: Limits(limit=limit),
        )
        one.compute(scheduler="sync")


@pytest.mark.parametrize("partitioning", every_nth(4, ["entity", "spatial"]))
def test_partitions_without_rows(partitioning):
    frame = frame_of(np.random.default_rng(0).normal(size=(40, 2)))
    left_out = frame.iloc[10:20] * np.nan
    parts = [frame.iloc[:0], frame.iloc[:10], left_out, frame.iloc[20:]]
    lazy = dd.from_map(lambda part: part, parts, meta=frame.iloc[:0])
    how = {"min_samples": 5, "dropna": True}
    found = lazy.simjoin.hdbscan(
        3, partitioning=partitioning, blocksize=600, **how
    ).compute()
    pd.testing.assert_frame_equal(found, pd.concat(parts).simjoin.hdbscan(3, **how))


def test_what_trees_take_is_prepared_while_rows_are_searched(monkeypatch):
    asked = []
    monkeypatch.setattr(
        CpuSpanner, "prepare", staticmethod(lambda *more: asked.append(more))
    )
    frame = frame_of(np.random.default_rng(0).normal(size=(300, 2)))
    frame.simjoin.hdbscan(5)
    assert len(asked) == 1
    with dask.config.set(scheduler="sync"):
        dd.from_pandas(frame, npartitions=3).simjoin.spanning_tree().compute()
    assert len(asked) > 1
