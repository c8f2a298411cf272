"""Lazy labels of DBSCAN on workers that hold the rows: they are sent once, and labels come back."""

from collections import Counter

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split

from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.planning.spatial_chunks import ClusterChunks
from tests.support.task_stream import tasks_of

EPS, MIN_SAMPLES = 0.03, 4
HALOS = {"partitioning": "spatial", "blocksize": "60 kB"}
REGIONS = {"partitioning": "spatial", "blocksize": "9 kB"}


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(5)
    frame = pd.DataFrame(random.uniform(size=(3000, 2)), columns=["x", "y"], index=random.permutation(3000))
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
        chunks.method == BY_WORKER and len(chunks) > 1 and isinstance(chunks, ClusterChunks) == (how is HALOS)
    )
    pd.testing.assert_series_equal(found, want)
    steps = Counter(key_split(task["key"]) for task in ran)
    assert steps["simjoin_send"] <= 4 and steps["simjoin_index"] == len(chunks)
    assert (
        sum(number for step, number in steps.items() if "read_parquet" in step or "readparquet" in step) == 8
    )
    assert not [step for step in steps if "shuffle" in step or "simjoin_points" in step]
    pd.testing.assert_series_equal(labels.compute(), want)  # the rows are gone, so they are read again


def test_labels_beside_their_rows(files, frame, want, client):
    rows = dd.read_parquet(files)
    labels = rows.simjoin.dbscan(EPS, MIN_SAMPLES, **HALOS)
    pd.testing.assert_frame_equal(rows.assign(label=labels).compute(), frame.assign(label=want))
    some = labels.partitions[[1, 6]].compute()
    pd.testing.assert_series_equal(some, pd.concat([want.iloc[375:750], want.iloc[2250:2625]]))
    kept = rows[rows.x > 0.5]
    found = kept.simjoin.dbscan(EPS, MIN_SAMPLES, **HALOS).compute()
    pd.testing.assert_series_equal(found, frame[frame.x > 0.5].simjoin.dbscan(EPS, MIN_SAMPLES))


def test_rows_that_may_move_are_not_kept(files, frame, client):
    moved = dd.read_parquet(files).shuffle("x", npartitions=4)
    labels = moved.simjoin.dbscan(EPS, MIN_SAMPLES, **HALOS)
    assert labels.expr.plan.chunks.method != BY_WORKER
    found = moved.assign(label=labels).compute().sort_index()
    assert found.label.max() == frame.simjoin.dbscan(EPS, MIN_SAMPLES).max()
