"""Small pandas frames are read in this thread, and by the task that indexes them."""

import re
from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split

from dask_simjoin.errors import CoordinateError, UnitsWarning
from dask_simjoin.graph import planner
from dask_simjoin.graph.small_frames import small_frame, take_small_frame
from dask_simjoin.graph.source import freeze
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of
from tests.support.profiles import in_turns

EPS = 0.05


@pytest.fixture
def x():
    return np.random.default_rng(3).uniform(size=(400, 2))


def frozen(frame, columns, partitions=3, **options):
    return freeze(dd.from_pandas(frame, npartitions=partitions, **options), columns)


def tasks(lazy):
    """Number of tasks of each kind."""
    return Counter(key_split(key) for key in lazy.optimize().__dask_graph__())


INDEXES = {
    "range": lambda n: pd.RangeIndex(n),
    "unordered": lambda n: pd.Index(np.random.default_rng(0).permutation(n)),
    "texts": lambda n: pd.Index([f"n{k:04}" for k in range(n)]),
    "repeated": lambda n: pd.Index(np.arange(n) // 3),
}


@in_turns(
    1,
    sort=[True, False],
    columns=[["c0", "c1"], ["c0", "c1", "name"], ["c0", "c1", "name", "more"]],
    kind=list(INDEXES),
)
def test_partitions_are_those_of_dask(x, kind, columns, sort):
    frame = frame_of(x).assign(name=[f"n{k}" for k in range(len(x))], more=1)
    frame.index = INDEXES[kind](len(x))
    source = frozen(frame, columns, sort=sort)
    small = small_frame(source)
    wanted = [
        dd.from_pandas(frame, npartitions=3, sort=sort)[columns].get_partition(n)
        for n in range(3)
    ]
    for n, part in enumerate(wanted):
        pd.testing.assert_frame_equal(small.part(n, n + 1), part.compute())
    assert small.part(0, 3).equals(small.rows) and small.bounds[-1] == len(x)
    assert frame.index.equals(INDEXES[kind](len(x)))


def test_rows_are_kept_until_they_are_taken(x):
    source = frozen(frame_of(x), ["c0", "c1"])
    small = small_frame(source)
    assert small_frame(source) is small is take_small_frame(source)
    assert source.small is None
    assert (
        small_frame(source, max_bytes=100) is None and small_frame(source) is not small
    )


def test_other_sources_are_no_small_frames(x):
    frame = frame_of(x)
    lazy = dd.from_pandas(frame, npartitions=3)
    for other in (
        lazy.persist(),
        lazy.map_partitions(lambda part: part),
        lazy.partitions[[0, 2]],
    ):
        assert small_frame(freeze(other, ["c0", "c1"])) is None
    most = 16 * len(x)
    # the index also takes memory
    assert small_frame(freeze(lazy, ["c0", "c1"]), most) is None
    assert small_frame(freeze(lazy, ["c0"]), most) is not None


@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_one_task_reads_and_indexes_all_partitions(x, partitions, in_this_thread):
    lazy = dd.from_pandas(frame_of(x), npartitions=partitions)
    pairs = lazy.simjoin.self_join(EPS)
    assert tasks(pairs) == {"simjoin_index": 1, "simjoin_pairs": 1}
    assert as_set(pairs.compute()) == brute_force(x, EPS)
    assert not pairs.expr.plan.indexing.read_apart
    assert re.search(r"\n  tasks +about 2\n", str(lazy.simjoin.plan(EPS)))
    assert pairs.expr.plan.tables.sources[0] == tuple(
        (rows, box)
        for rows, box in lazy.persist()
        .simjoin.self_join(EPS)
        .expr.plan.tables.sources[0]
    )


def test_planning_runs_no_task(x, monkeypatch):
    monkeypatch.setattr(planner, "gather", None)
    plan = dd.from_pandas(frame_of(x), npartitions=4).simjoin.self_join(EPS).expr.plan
    assert plan.rows == len(x)


@pytest.mark.parametrize("partitions", [1, 5])
def test_rows_without_a_point_are_left_out(x, partitions):
    frame = frame_of(x)
    frame.loc[::7, "c0"] = np.nan
    lazy = dd.from_pandas(frame, npartitions=partitions)
    assert as_set(lazy.simjoin.self_join(EPS, dropna=True).compute()) == as_set(
        frame.simjoin.self_join(EPS, dropna=True)
    )
    counts = lazy.simjoin.neighbor_counts(EPS, dropna=True).compute()
    pd.testing.assert_series_equal(
        counts, frame.simjoin.neighbor_counts(EPS, dropna=True)
    )
    with pytest.raises(CoordinateError, match=r"58 missing values"):
        lazy.simjoin.count_pairs(EPS).compute()


@pytest.mark.parametrize(
    "verb", ["dbscan", "hdbscan", "near_duplicated", "neighbor_counts"]
)
def test_values_of_rows_are_those_of_the_plain_frame(x, verb):
    frame = frame_of(x)
    options = {"min_cluster_size": 5} if verb == "hdbscan" else {"eps": EPS}
    found = getattr(dd.from_pandas(frame, npartitions=5).simjoin, verb)(
        **options
    ).compute()
    wanted = getattr(frame.simjoin, verb)(**options)
    pd.testing.assert_frame_equal(pd.DataFrame(found), pd.DataFrame(wanted))


def test_several_chunks_are_read_apart(x):
    lazy = dd.from_pandas(frame_of(x), npartitions=5)
    pairs = lazy.simjoin.self_join(EPS, partitioning="entity", blocksize=160 * 24)
    assert tasks(pairs)["simjoin_index"] == len(pairs.expr.plan.chunks) > 1
    assert as_set(pairs.compute()) == brute_force(x, EPS)


def test_lists_are_checked_again_because_they_can_change(x):
    frame = pd.DataFrame({"v": list(x)})
    with dask.config.set({"dataframe.convert-string": False}):
        pairs = dd.from_pandas(frame, npartitions=2).simjoin.self_join(EPS, on="v")
    assert tasks(pairs)["simjoin_points"] == 2
    assert as_set(pairs.compute()) == brute_force(x, EPS)


def test_likely_mistakes_are_still_reported():
    places = np.random.default_rng(0).uniform([40, 0], [60, 20], (2000, 2))
    lazy = dd.from_pandas(pd.DataFrame(places, columns=["lat", "lon"]), npartitions=3)
    with pytest.warns(UnitsWarning, match="no two different points are within eps=5"):
        lazy.simjoin.count_pairs(5.0, on=["lat", "lon"], metric="haversine").compute()


def test_two_tables(x):
    left, right = frame_of(x[:250]), frame_of(x[250:])
    lazy = dd.from_pandas(left, npartitions=3).simjoin.join(
        dd.from_pandas(right, npartitions=2), EPS
    )
    assert tasks(lazy)["simjoin_index"] == 2
    assert as_set(lazy.compute()) == as_set(left.simjoin.join(right, EPS))
