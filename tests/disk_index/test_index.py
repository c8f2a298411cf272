"""Indexes of every metric, of lists, of all kinds of ids and columns, however rows lie in frames."""

import datetime
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster
from distributed.scheduler import NoWorkerError

import dask_simjoin
from dask_simjoin.disk_index import writing
from dask_simjoin.disk_index import writing as loading
from dask_simjoin.graph import workers
from dask_simjoin.graph.shuffle import cut_rows
from dask_simjoin.planning import resources as moving
from dask_simjoin.planning.resources import resources_for
from tests.support.frames import lay
from tests.support.gates import until
from tests.support.growing import Model
from tests.support.oracle import as_set, assert_same_pairs, brute_force, totals

N, KNOWN = 90, 60
GONE = [3, 17, 40]

METRICS = {
    "euclidean": (2, 2.0),
    "sqeuclidean": (2, 2.0),
    "manhattan": (2, 2.0),
    "chebyshev": (2, 1.0),
    "minkowski": (3, 2.0),
    "cosine": (2, 0.005),
    "haversine": (2, 300_000.0),
}


def points(metric, d=2):
    """Points on a grid, so that many distances are equal to `eps`."""
    x = np.random.default_rng(5).integers(1, 24, (N, d)).astype(float)
    return x - [11, 50] if metric == "haversine" else x


def table(x, lists=False):
    """Rows named by a column that counts down."""
    names = np.arange(1000, 1000 - len(x), -1)
    if lists:
        return pd.DataFrame({"key": names, "v": list(x)})
    return pd.DataFrame({"key": names} | {f"x{k}": column for k, column in enumerate(x.T)})


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric(metric, tmp_path):
    """Some rows come and others go, and the index tells the pairs and their distances before and after."""
    p, eps = METRICS[metric]
    frame = table(points(metric))
    how = {"on": ["x0", "x1"], "id": "key", "metric": metric} | ({"p": p} if metric == "minkowski" else {})
    told = {"return_distance": True, **how}
    index = frame.iloc[:KNOWN].simjoin.index(eps, tmp_path / "index", row_group=8, **told)
    gone = frame["key"].iloc[GONE]
    changes = index.update(lay(frame.iloc[KNOWN:], "dask-3"), delete=gone)
    before = frame.iloc[:KNOWN].simjoin.self_join(eps, **told)
    after = frame.drop(GONE).simjoin.self_join(eps, **told)
    assert as_set(before) and as_set(after) - as_set(before) and as_set(before) - as_set(after)
    assert_same_pairs(as_set(index.pairs().compute()), as_set(after))
    assert_same_pairs(as_set(changes.added.compute()), as_set(after) - as_set(before))
    assert_same_pairs(as_set(changes.removed.compute()), as_set(before) - as_set(after))
    keys = ["left", "right"]
    found = index.pairs().compute().sort_values(keys, ignore_index=True)
    pd.testing.assert_frame_equal(found, after.sort_values(keys, ignore_index=True))
    assert_same_pairs(
        as_set(index.pairs(eps / 2).compute()), as_set(frame.drop(GONE).simjoin.self_join(eps / 2, **how))
    )


@pytest.mark.parametrize("kind", ["objects", "arrow"])
def test_lists(kind, tmp_path):
    """Of 24 numbers, of which boxes tell 16."""
    x = np.random.default_rng(0).normal(size=(N, 24))
    x[KNOWN:] = x[: N - KNOWN] + np.random.default_rng(1).normal(scale=0.05, size=(N - KNOWN, 24))
    frame = table(x, lists=True)
    if kind == "arrow":
        frame["v"] = frame["v"].astype(pd.ArrowDtype(pa.list_(pa.float64())))
    index = frame.iloc[:KNOWN].simjoin.index(
        0.01, tmp_path / "index", on="v", id="key", metric="cosine", row_group=8
    )
    assert len(index.options.cut) == 16
    changes = index.update(frame.iloc[KNOWN:], delete=frame["key"].iloc[GONE].tolist())
    names = frame["key"].tolist()
    want = {
        (names[i], names[j]) for i, j in brute_force(x, 0.01, "cosine") if i not in GONE and j not in GONE
    }
    assert len(want) > 20
    assert_same_pairs(as_set(changes.added.compute()), want)
    assert_same_pairs(as_set(index.pairs().compute()), want)
    rows = index.rows().compute().set_index("key")["v"]
    assert np.array_equal(np.stack(rows.loc[names[:3]].map(np.asarray)), x[:3])


def test_lists_of_which_none_is_left(tmp_path):
    """In a row group: no list tells how long it is."""
    frame = table(np.arange(12.0).reshape(4, 3), lists=True)
    index = frame.simjoin.index(9.0, tmp_path / "index", on="v", id="key", row_group=2, recluster="never")
    changes = index.delete(frame["key"].iloc[:2])
    assert as_set(changes.removed.compute()) == {(1000, 999), (999, 998)}
    assert as_set(index.pairs().compute()) == {(998, 997)}
    assert index.plan(frame.iloc[:0]).rows == 0


def test_distances_with_units(tmp_path):
    frame = pd.DataFrame({"key": [1, 2, 3], "lat": [0.0, 0.0, 1.0], "lon": [180.0, -179.5, 0.0]})
    index = frame.simjoin.index("60 km", tmp_path / "index", on=["lat", "lon"], id="key", metric="haversine")
    assert (
        as_set(index.pairs().compute())
        == as_set(index.join(frame.iloc[[0]]).compute()) - {(1, 1)}
        == {(1, 2)}
    )
    assert as_set(index.pairs("50 km").compute()) == set()


@pytest.mark.parametrize(("batches", "how"), [(3, "pandas"), (1, "dask-1"), (3, "dask-3")])
def test_neither_partitions_nor_batches_change_pairs(batches, how, tmp_path, monkeypatch):
    """Nor that rows are shuffled into files of regions, as many are."""
    monkeypatch.setattr(loading, "FILE_ROWS", 16)
    frame = table(points("euclidean"))
    index = lay(frame.iloc[:40], how).simjoin.index(
        2.0, tmp_path / "index", on=["x0", "x1"], id="key", row_group=4
    )
    files = {"pandas": 1, "dask-1": 1, "dask-3": 3}[how]
    assert (
        len(list((tmp_path / "index" / "boxes").iterdir())),
        index.history()["files"].iloc[0] >= files,
    ) == (1, True)
    step = -(-(N - 40) // batches)
    for start in range(40, N, step):
        index.update(lay(frame.iloc[start : start + step], how))
    want = as_set(frame.simjoin.self_join(2.0, on=["x0", "x1"], id="key"))
    assert_same_pairs(as_set(index.pairs().compute()), want)
    changes = index.changes(1).compute()
    assert (changes["diff"] == 1).all() and changes["diff"].dtype == np.int8
    old = as_set(frame.iloc[:40].simjoin.self_join(2.0, on=["x0", "x1"], id="key"))
    assert_same_pairs(as_set(changes), want - old)


STARTED = datetime.datetime(2026, 1, 1)
NAMES = {
    "negative": np.arange(N) - 20,
    "uint64": np.arange(N, dtype=np.uint64) + np.uint64(2**63),
    "int32": np.arange(N, dtype=np.int32)[::-1].copy(),
    "float": np.arange(N) / 4 - 3,
    "texts": np.array([f"row {k}" for k in range(N)], object),
    "arrow": pd.array([f"row {k}" for k in range(N)], "string[pyarrow]"),
    "dates": pd.date_range(STARTED, periods=N, freq="h"),
    "nullable": pd.array(np.arange(N), "Int64"),
}


@pytest.mark.parametrize(
    ("kind", "column"), [*((kind, True) for kind in NAMES), ("negative", False), ("texts", False)]
)
def test_ids_of_every_kind(kind, column, tmp_path):
    """As a column, or as the frame's index: their dtype, look-ups, and refusals that name them."""
    x = points("euclidean")
    names = pd.Index(NAMES[kind])
    frame = pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1]}, index=names)
    id = None
    if column:
        frame, id = frame.rename_axis("who").reset_index(), "who"
    index = frame.iloc[:KNOWN].simjoin.index(2.0, tmp_path / "index", on=["x0", "x1"], id=id, row_group=8)
    moved = frame.iloc[50:].copy()
    moved["x0"] += 1
    changes = index.update(moved, delete=names[GONE], if_exists="replace")
    assert (changes.report.inserted, changes.report.replaced, changes.report.deleted) == (30, 10, 3)
    x[50:, 0] += 1
    want = {(names[i], names[j]) for i, j in brute_force(x, 2.0) if i not in GONE and j not in GONE}
    found = index.pairs().compute()
    assert_same_pairs(as_set(found), want)
    assert found["left"].dtype.name == names.dtype.name  # pandas 2 keeps Arrow's texts in Python
    rows = index.rows().compute()
    kept = rows["who"] if column else rows.index
    assert set(kept) == set(names.delete(GONE)) and kept.dtype.name == names.dtype.name
    with pytest.raises(
        dask_simjoin.errors.OptionError, match="delete= names 1 id that no row of the index has"
    ):
        index.delete(names[GONE[:1]])


def test_kept_columns_of_every_kind(tmp_path):
    """Their values and dtypes come back, but for categories, which become their values."""
    x = np.zeros((4, 1))
    kept = {
        "text": ["a", None, "c", "d"],
        "number": pd.array([1, None, 3, 4], "Int64"),
        "when": pd.date_range("2026-01-01", periods=4, tz="UTC"),
        "list": [[1], [1, 2], [], [3]],
        "kind": pd.Categorical(["u", "v", "u", "v"]),
        "flag": [True, False, True, False],
    }
    frame = pd.DataFrame({"key": range(4), "x": x[:, 0]} | kept)
    index = frame.iloc[:2].simjoin.index(0, tmp_path / "index", on="x", id="key", keep=list(kept))
    index.update(frame.iloc[2:])
    found = index.pairs().compute().sort_values(["left", "right"], ignore_index=True)
    want = frame.simjoin.self_join(0, on="x", id="key", keep=list(kept))
    want = want.sort_values(["left", "right"], ignore_index=True)
    assert list(found.columns) == list(want.columns)
    for name in found.columns:
        if name.startswith("kind"):
            assert found[name].tolist() == want[name].tolist()
        elif name.startswith("list"):
            assert [list(some) for some in found[name]] == [list(some) for some in want[name]]
        else:
            pd.testing.assert_series_equal(found[name], want[name])


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_a_foreign_table(how, tmp_path):
    """Joined with the index without being taken in; it may have ids of its own."""
    x = points("euclidean")
    frame = table(x)
    index = frame.iloc[:KNOWN].simjoin.index(2.0, tmp_path / "index", on=["x0", "x1"], id="key", row_group=8)
    index.delete([1000])
    other = frame.iloc[KNOWN:].assign(key=[f"guest {k}" for k in range(KNOWN, N)])
    found = as_set(index.join(lay(other, how)).compute())
    near = totals(x[KNOWN:], x[:KNOWN]) <= 4
    want = {(f"guest {KNOWN + i}", 1000 - j) for i, j in zip(*np.nonzero(near), strict=True) if j}
    assert_same_pairs(found, want)
    assert index.version == 2


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


def test_a_version_that_is_opened_stays(tmp_path):
    frame = table(points("euclidean"))
    made = frame.iloc[:KNOWN].simjoin.index(2.0, tmp_path / "index", on=["x0", "x1"], id="key")
    first = dask_simjoin.open_index(tmp_path / "index", version=1)
    last = dask_simjoin.open_index(str(tmp_path / "index"))
    made.update(frame.iloc[KNOWN:])
    assert (first.version, last.version, len(first), len(last)) == (1, 2, KNOWN, N)
    assert_same_pairs(
        as_set(first.pairs().compute()),
        as_set(frame.iloc[:KNOWN].simjoin.self_join(2.0, on=["x0", "x1"], id="key")),
    )
    with pytest.raises(dask_simjoin.errors.OptionError, match="opened at version 1, which never changes"):
        first.delete([1000])


def test_updates_on_a_cluster(client, tmp_path):
    """Workers read and write; the client only decides."""
    frame = table(points("euclidean"))
    index = lay(frame.iloc[:KNOWN], "dask-3").simjoin.index(
        2.0, tmp_path / "index", on=["x0", "x1"], id="key", row_group=8
    )
    changes = index.update(lay(frame.iloc[KNOWN:], "dask-3"), delete=frame["key"].iloc[GONE])
    model = Model(2.0, {key: tuple(x) for key, x in zip(frame["key"], points("euclidean"), strict=True)})
    model.update({}, frame["key"].iloc[GONE].tolist())
    assert_same_pairs(as_set(index.pairs().compute()), model.pairs())
    assert as_set(changes.added.compute()) and as_set(changes.removed.compute())


def slow_part(number, frame, size):
    """A partition that takes a moment, so that there is a middle."""
    time.sleep(0.05)
    return frame.iloc[number * size : (number + 1) * size]


def any_done(dask_scheduler, kind):
    """Whether a task of a kind is done."""
    tasks = dask_scheduler.tasks
    return any(str(key).startswith(f"('{kind}-") and tasks[key].state == "memory" for key in tasks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shuffle", "kind"), [("tasks", "simjoin_write"), ("p2p", "simjoin_write"), ("p2p", "shuffle-transfer")]
)
def test_a_worker_that_is_killed_in_a_first_load(shuffle, kind, mortal_workers, tmp_path, monkeypatch):
    """Rows are sent and files written anew, under other names: no row is there twice, and none is lost."""
    monkeypatch.setattr(loading, "FILE_ROWS", 300)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"key": np.arange(6000), "x": rng.uniform(size=6000), "y": rng.uniform(size=6000)})
    with Client(mortal_workers) as client, dask.config.set({"dataframe.shuffle.method": shuffle}):
        client.wait_for_workers(2, timeout=60)
        source = dd.from_map(slow_part, range(20), frame=frame, size=300, meta=frame.iloc[:0])
        folder = str(tmp_path / "index")
        with ThreadPoolExecutor(1) as pool:
            pids = list(client.run(os.getpid).values())
            making = pool.submit(source.simjoin.index, 0.01, folder, on=["x", "y"], id="key", row_group=64)
            deadline = time.monotonic() + 60
            while not client.run_on_scheduler(any_done, kind=kind):
                assert time.monotonic() < deadline and not making.done(), f"no {kind} was done"
            os.kill(pids[0], signal.SIGKILL)
            index = making.result(timeout=60)
        assert sorted(index.rows().compute()["key"]) == frame["key"].tolist()
        found = as_set(index.pairs().compute())
    assert_same_pairs(found, as_set(frame.simjoin.self_join(0.01, on=["x", "y"], id="key")))
    assert len(index) == 6000


@pytest.mark.processes
def test_a_cluster_without_workers_is_an_error(tmp_path, monkeypatch):
    """Once a LocalCluster has given up its workers, as it does if they die again, nothing waits for ever."""
    monkeypatch.setattr(workers, "NO_WORKERS", 0.2)
    frame = table(points("euclidean"))
    how = {"on": ["x0", "x1"], "id": "key"}
    index = frame.iloc[:KNOWN].simjoin.index(2.0, tmp_path / "index", **how)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as alone,
        Client(alone),
    ):
        alone.scale(0)
        until(lambda: not alone.scheduler.workers, "the worker did not leave")
        for work in (
            lambda: lay(frame, "dask-3").simjoin.index(2.0, tmp_path / "other", **how),
            lambda: index.update(lay(frame.iloc[KNOWN:], "dask-3")),
            lambda: index.pairs().compute(),
        ):
            alone.scheduler.no_workers_timeout = None  # it was told so by the work before
            with pytest.raises(NoWorkerError):
                work()


@pytest.mark.parametrize("room", [True, False])
def test_shuffled_in_pieces_or_where_workers_have_no_room_not_at_all(room, client, tmp_path, monkeypatch):
    """Files are of regions then, or of partitions, which are the same rows and pairs."""
    monkeypatch.setattr(loading, "FILE_ROWS", 40)
    memory = resources_for("pandas").memory
    monkeypatch.setattr(moving, "AT_ONCE", memory / (10 * (4 * 8 + moving.MOVE_BYTES)))
    monkeypatch.setattr(moving, "LEAST_WORKER", 0 if room else 2**60)
    sent = []
    monkeypatch.setattr(writing, "cut_rows", lambda *some: sent.append(cut_rows(*some)) or sent[-1])
    frame = table(points("euclidean"))
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        index = lay(frame, "dask-3").simjoin.index(
            2.0, tmp_path / "index", on=["x0", "x1"], id="key", row_group=8
        )
    assert [len(some) > 3 for some in sent] == [True] * room
    assert sorted(index.rows().compute()["key"]) == sorted(frame["key"])
    own = as_set(index.pairs().compute())
    assert_same_pairs(own, as_set(frame.simjoin.self_join(2.0, on=["x0", "x1"], id="key")))


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_a_plan_tells_what_an_update_reads(how, tmp_path):
    """Of rows in a corner few row groups, and nothing is taken in."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"key": np.arange(4000), "x": rng.uniform(size=4000), "y": rng.uniform(size=4000)})
    index = frame.simjoin.index(0.02, tmp_path / "index", on=["x", "y"], id="key", row_group=64)
    corner = pd.DataFrame(
        {"key": np.arange(5000, 5200), "x": rng.uniform(0, 0.1, 200), "y": rng.uniform(0, 0.1, 200)}
    )
    plan = index.plan(lay(corner, how))
    assert index.version == 1
    changes = index.update(lay(corner, how))
    assert (plan.rows, plan.row_groups) == (200, 64 - 1)
    assert 0 < plan.row_groups_read == changes.work.row_groups_read < 10
    assert 0.5 < plan.pairs / len(changes.added) < 2


@pytest.mark.parametrize(
    "x", [[1.7e308, -1.7e308, 0.0, 5e-324], [1.0, 1.0, 1.0, 1.0], [1e15, 1e15 + 1, 1e15 + 2.25, -1e15]]
)
def test_odd_points(x, tmp_path):
    """The largest and smallest numbers, equal rows, large offsets: nothing of an index warns of them."""
    frame = pd.DataFrame({"key": range(4), "x": x})
    index = frame.iloc[:0].simjoin.index(1.0, tmp_path / "index", on="x", id="key", row_group=2)
    assert as_set(index.pairs().compute()) == set()
    for k in range(4):
        index.update(frame.iloc[[k]])
    again = frame.assign(key=frame["key"] + 10)
    assert index.plan(again).rows == 4
    index.update(again)
    index.optimize("all")
    assert index.quality().rows == 8
    whole = pd.concat([frame, again], ignore_index=True)
    assert_same_pairs(as_set(index.pairs().compute()), as_set(whole.simjoin.self_join(1.0, on="x", id="key")))
