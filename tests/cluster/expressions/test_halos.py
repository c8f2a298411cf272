"""Lazy values of chunks with halos, which workers label alone, or which are compared."""

from collections import Counter

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from distributed import wait

from dask_simjoin.planning import resources
from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.planning.spatial_chunks import ClusterChunks
from tests.cluster.algorithms.test_duplicates import wanted
from tests.support.frames import split
from tests.support.profiles import in_turns
from tests.support.task_stream import tasks_of

EPS, MIN_SAMPLES = 0.03, 4
HALOS = {"partitioning": "spatial", "blocksize": "60 kB"}
REGIONS = {"partitioning": "spatial", "blocksize": "9 kB"}


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(5)
    frame = pd.DataFrame(
        random.uniform(size=(3000, 2)),
        columns=["x", "y"],
        index=random.permutation(3000),
    )
    frame.index.name = "row"
    return frame


@pytest.fixture(scope="module")
def want(frame):
    return frame.simjoin.dbscan(EPS, MIN_SAMPLES)


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for k in range(8):
        frame.iloc[375 * k : 375 * (k + 1)].to_parquet(folder / f"{k}.parquet")
    return folder


@pytest.mark.parametrize("how", [HALOS, REGIONS], ids=["halos", "regions"])
def test_files_are_read_once(files, want, client, how):
    labels = dd.read_parquet(files).simjoin.dbscan(EPS, MIN_SAMPLES, **how)
    with tasks_of(client) as ran:
        found = labels.compute()
    chunks = labels.expr.plan.chunks
    assert (
        chunks.method == BY_WORKER
        and len(chunks) > 1
        and isinstance(chunks, ClusterChunks) == (how is HALOS)
    )
    pd.testing.assert_series_equal(found, want)
    steps = Counter(key_split(task["key"]) for task in ran)
    assert steps["simjoin_send"] <= 4 and steps["simjoin_index"] == len(chunks)
    assert (
        sum(
            number
            for step, number in steps.items()
            if "read_parquet" in step or "readparquet" in step
        )
        == 8
    )
    assert not [step for step in steps if "shuffle" in step or "simjoin_points" in step]
    # the rows are gone, so they are read again
    pd.testing.assert_series_equal(labels.compute(), want)


def test_labels_beside_their_rows(files, frame, want, client):
    rows = dd.read_parquet(files)
    labels = rows.simjoin.dbscan(EPS, MIN_SAMPLES, **HALOS)
    pd.testing.assert_frame_equal(
        rows.assign(label=labels).compute(), frame.assign(label=want)
    )
    some = labels.partitions[[1, 6]].compute()
    pd.testing.assert_series_equal(
        some, pd.concat([want.iloc[375:750], want.iloc[2250:2625]])
    )
    kept = rows[rows.x > 0.5]
    found = kept.simjoin.dbscan(EPS, MIN_SAMPLES, **HALOS).compute()
    pd.testing.assert_series_equal(
        found, frame[frame.x > 0.5].simjoin.dbscan(EPS, MIN_SAMPLES)
    )


def test_rows_that_may_move_are_not_kept(files, frame, client):
    moved = dd.read_parquet(files).shuffle("x", npartitions=4)
    labels = moved.simjoin.dbscan(EPS, MIN_SAMPLES, **HALOS)
    assert labels.expr.plan.chunks.method != BY_WORKER
    found = moved.assign(label=labels).compute().sort_index()
    assert found.label.max() == frame.simjoin.dbscan(EPS, MIN_SAMPLES).max()


@pytest.mark.parametrize(
    "how",
    [HALOS, pytest.param(REGIONS, marks=pytest.mark.slow)],
    ids=["halos", "regions"],
)
def test_rows_that_do_not_fit_in_memory(files, frame, want, client, how, monkeypatch):
    """They are shuffled by p2p, and their labels return by it. Chunks with wide halos
    are not compared with each other.
    """
    monkeypatch.setattr(resources, "fits_in_memory", lambda *_: False)
    kept = dd.read_parquet(files).persist()
    labels = kept.simjoin.dbscan(EPS, MIN_SAMPLES, **how)
    chunks = labels.expr.plan.chunks
    assert chunks.method == "p2p" and len(chunks) > 1
    assert isinstance(chunks, ClusterChunks) == (how is HALOS)
    with tasks_of(client) as ran:
        found = labels.compute()
    pd.testing.assert_series_equal(found, want)
    steps = Counter(key_split(task["key"]) for task in ran)
    assert ("simjoin_dbscan_across" in steps) == (how is REGIONS)
    pd.testing.assert_frame_equal(
        kept.assign(label=labels).compute(), frame.assign(label=want)
    )
    some = labels.partitions[[1, 6]].compute()
    pd.testing.assert_series_equal(
        some, pd.concat([want.iloc[375:750], want.iloc[2250:2625]])
    )


@pytest.mark.slow
def test_labels_of_ranges_are_listed_by_worker(frame, want, client, monkeypatch):
    """Labels of other indexes take memory, so each partition has its own task."""
    monkeypatch.setattr(resources, "fits_in_memory", lambda *_: False)
    for rows, several in ((frame.reset_index(drop=True), True), (frame, False)):
        held = dd.from_pandas(rows, npartitions=8, sort=False).persist()
        wait(held)
        labels = held.simjoin.dbscan(EPS, MIN_SAMPLES, **HALOS)
        steps = Counter(
            key_split(key) for key in labels.expr.optimize().__dask_graph__()
        )
        assert (steps["simjoin_labels"] < 8) == several
        found = labels.partitions[[6, 1]].compute()
        alike = pd.concat([want.iloc[2250:2625], want.iloc[375:750]])
        assert found.tolist() == alike.tolist()
        assert found.index.equals(rows.index[[*range(2250, 2625), *range(375, 750)]])
        assert labels.compute().tolist() == want.tolist()


@pytest.fixture(scope="module")
def grouped():
    """Rows in two groups, with a column whose largest value stays. Chains of rows pass
    through several regions.
    """
    random = np.random.default_rng(8)
    turn = np.linspace(1, 20, 1500)
    spiral = np.stack([turn * np.cos(turn), turn * np.sin(turn)], axis=1) / 40 + 0.5
    x = random.permutation(np.concatenate([spiral, random.uniform(size=(1500, 2))]))
    frame = pd.DataFrame(x, columns=["x", "y"])
    return frame.assign(kind=random.integers(0, 2, 3000), v=random.normal(size=3000))


@in_turns(
    2,
    keep=["first", "last", "v", False],
    moving=["by worker", "p2p"],
    options=[{}, {"by": "kind"}, {"within": {"v": 0.5}}],
    how=[HALOS, REGIONS],
)
def test_near_duplicates(grouped, client, monkeypatch, keep, moving, options, how):
    """Some partitions are empty."""
    if moving == "p2p":
        monkeypatch.setattr(resources, "fits_in_memory", lambda *_: False)
    options = options | {"keep": keep, "grouping": "connected", "on": ["x", "y"]}
    want = grouped.simjoin.near_duplicated(0.012, **options)
    assert 0 < want.sum() < len(want)
    if not {"by", "within"} & options.keys():
        values = grouped[["x", "y"]].to_numpy(), grouped["v"]
        assert want.tolist() == wanted(values[0], 0.012, keep, "connected", values[1])
    held = split(grouped, (0, 400, 400, 1100, 1900, 2950, 3000)).persist()
    wait(held)
    marks = held.simjoin.near_duplicated(0.012, **options, **how)
    chunks = marks.expr.plan.chunks
    # no worker holds the rows if a step adds the groups to them
    assert chunks.method == moving or "by" in options
    alone = isinstance(chunks, ClusterChunks)
    assert len(chunks) > 1 and (alone == (how is HALOS) or "by" in options)
    steps = Counter(key_split(key) for key in marks.expr.optimize().__dask_graph__())
    assert ("simjoin_duplicates_number" in steps) == (alone and keep is not False)
    pd.testing.assert_series_equal(marks.compute(), want)
    some = marks.partitions[[5, 2]].compute()
    assert some.equals(pd.concat([want.iloc[1900:2950], want.iloc[400:400]]))
    rest = held.simjoin.drop_near_duplicates(0.012, **options, **how).compute()
    pd.testing.assert_frame_equal(rest, grouped[~want])
