"""A first load of an index: rows that are read once, sent to regions, and written."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from distributed.scheduler import NoWorkerError

from dask_simjoin.disk_index import writing
from dask_simjoin.disk_index import writing as loading
from dask_simjoin.graph import workers
from dask_simjoin.graph.shuffle import cut_rows
from dask_simjoin.planning import resources as moving
from dask_simjoin.planning.resources import limits_for
from tests.disk_index.test_index import KNOWN, points, table
from tests.support.frames import lay
from tests.support.gates import PATIENCE, until
from tests.support.kills import killing
from tests.support.oracle import as_set, assert_same_pairs


def test_rows_left_out(tmp_path):
    """`dropna` leaves rows out of every update, and their ids are free."""
    frame = pd.DataFrame({"key": range(6), "x": [0.0, np.nan, 1.0, 2.0, np.inf, 3.0]})
    index = lay(frame.iloc[:3], "dask-3").simjoin.index(
        1.0, tmp_path / "index", on="x", id="key", dropna=True
    )
    assert len(index) == 2
    index.update(frame.iloc[3:])
    assert as_set(index.pairs().compute()) == {(0, 2), (2, 3), (3, 5)}
    changes = index.update(pd.DataFrame({"key": [1, 4], "x": [0.5, np.nan]}))
    assert changes.report.inserted == 1
    assert as_set(changes.added.compute()) == {(0, 1), (2, 1)}


def part(number, frame, size):
    return frame.iloc[number * size : (number + 1) * size]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shuffle", "kind"),
    [("tasks", "simjoin_write"), ("p2p", "simjoin_write"), ("p2p", "shuffle-transfer")],
)
def test_a_worker_that_is_killed_in_a_first_load(
    shuffle, kind, mortal_workers, tmp_path, monkeypatch
):
    """Rows are sent and files written anew, under other names: no row is there twice,
    and none is lost.
    """
    monkeypatch.setattr(loading, "PARTITION", 300)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "key": np.arange(6000),
            "x": rng.uniform(size=6000),
            "y": rng.uniform(size=6000),
        }
    )
    with (
        Client(mortal_workers) as client,
        dask.config.set({"dataframe.shuffle.method": shuffle}),
    ):
        client.wait_for_workers(2, timeout=PATIENCE)
        source = dd.from_map(
            part, range(20), frame=frame, size=300, meta=frame.iloc[:0]
        )
        folder, how = str(tmp_path / "index"), {"id": "key", "row_group": 64}
        with killing(mortal_workers, client, f"{kind}-") as killer:
            index = source.simjoin.index(0.01, folder, on=["x", "y"], **how)
        assert killer.killed
        assert sorted(index.rows().compute()["key"]) == frame["key"].tolist()
        found = as_set(index.pairs().compute())
    assert_same_pairs(
        found, as_set(frame.simjoin.self_join(0.01, on=["x", "y"], id="key"))
    )
    assert len(index) == 6000


@pytest.mark.processes
def test_a_cluster_without_workers_is_an_error(tmp_path, monkeypatch):
    """Once a LocalCluster has given up its workers, as it does if they die again,
    nothing waits for ever.
    """
    monkeypatch.setattr(workers, "NO_WORKERS", 0.2)
    frame = table(points("euclidean"))
    how = {"on": ["x0", "x1"], "id": "key"}
    index = frame.iloc[:KNOWN].simjoin.index(2.0, tmp_path / "index", **how)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as alone,
        Client(alone),
    ):
        alone.scale(0)
        until(lambda: not alone.scheduler.workers, "the worker did not leave")
        for work in (
            lambda: lay(frame, "dask-3").simjoin.index(2.0, tmp_path / "other", **how),
            lambda: index.update(lay(frame.iloc[KNOWN:], "dask-3")),
            lambda: index.pairs().compute(),
        ):
            # it was told so by the work before
            alone.scheduler.no_workers_timeout = None
            with pytest.raises(NoWorkerError):
                work()


@pytest.mark.parametrize("room", [True, False])
def test_shuffled_in_pieces_or_where_workers_have_no_room_not_at_all(
    room, client, tmp_path, monkeypatch
):
    """Files are of regions then, or of partitions, which are the same rows and pairs."""
    monkeypatch.setattr(loading, "PARTITION", 40)
    memory = limits_for("pandas").memory
    monkeypatch.setattr(
        moving, "MOVED_SHARE", memory / (10 * (4 * 8 + moving.ENTRY_BYTES))
    )
    monkeypatch.setattr(moving, "MIN_WORKER", 0 if room else 2**60)
    sent = []
    monkeypatch.setattr(
        writing, "cut_rows", lambda *some: sent.append(cut_rows(*some)) or sent[-1]
    )
    frame = table(points("euclidean"))
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        index = lay(frame, "dask-3").simjoin.index(
            2.0, tmp_path / "index", on=["x0", "x1"], id="key", row_group=8
        )
    assert [len(some) > 3 for some in sent] == [True] * room
    assert sorted(index.rows().compute()["key"]) == sorted(frame["key"])
    own = as_set(index.pairs().compute())
    assert_same_pairs(
        own, as_set(frame.simjoin.self_join(2.0, on=["x0", "x1"], id="key"))
    )
