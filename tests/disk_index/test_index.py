"""Indexes of every metric, of lists, of all kinds of ids and columns, however rows lie
in frames.
"""

import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import writing as loading
from tests.support.frames import lay
from tests.support.growing import Model
from tests.support.oracle import as_set, assert_same_pairs, totals
from tests.support.profiles import every_nth

N, KNOWN = 90, 60
GONE = [3, 17, 40]


def points(metric, d=2):
    """Points on a grid, so that many distances are equal to `eps`."""
    x = np.random.default_rng(5).integers(1, 24, (N, d)).astype(float)
    return x - [11, 50] if metric == "haversine" else x


def table(x, lists=False):
    """Rows named by a column that counts down."""
    names = np.arange(1000, 1000 - len(x), -1)
    if lists:
        return pd.DataFrame({"key": names, "v": list(x)})
    return pd.DataFrame(
        {"key": names} | {f"x{k}": column for k, column in enumerate(x.T)}
    )


@pytest.mark.parametrize(
    ("batches", "how"), [(3, "pandas"), (1, "dask-1"), (3, "dask-3")]
)
def test_neither_partitions_nor_batches_change_pairs(
    batches, how, tmp_path, monkeypatch
):
    """Nor that rows are shuffled into files of regions, as many are."""
    monkeypatch.setattr(loading, "PARTITION", 16)
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


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_a_foreign_table(how, tmp_path):
    """Joined with the index without being taken in; it may have ids of its own."""
    x = points("euclidean")
    frame = table(x)
    index = frame.iloc[:KNOWN].simjoin.index(
        2.0, tmp_path / "index", on=["x0", "x1"], id="key", row_group=8
    )
    index.delete([1000])
    other = frame.iloc[KNOWN:].assign(key=[f"guest {k}" for k in range(KNOWN, N)])
    found = as_set(index.join(lay(other, how)).compute())
    near = totals(x[KNOWN:], x[:KNOWN]) <= 4
    want = {
        (f"guest {KNOWN + i}", 1000 - j)
        for i, j in zip(*np.nonzero(near), strict=True)
        if j
    }
    assert_same_pairs(found, want)
    assert index.version == 2


def test_a_version_that_is_opened_stays(tmp_path):
    frame = table(points("euclidean"))
    made = frame.iloc[:KNOWN].simjoin.index(
        2.0, tmp_path / "index", on=["x0", "x1"], id="key"
    )
    first = dask_simjoin.open_index(tmp_path / "index", version=1)
    last = dask_simjoin.open_index(str(tmp_path / "index"))
    made.update(frame.iloc[KNOWN:])
    assert (first.version, last.version, len(first), len(last)) == (1, 2, KNOWN, N)
    assert_same_pairs(
        as_set(first.pairs().compute()),
        as_set(frame.iloc[:KNOWN].simjoin.self_join(2.0, on=["x0", "x1"], id="key")),
    )
    with pytest.raises(
        dask_simjoin.errors.OptionError,
        match="opened at version 1, which never changes",
    ):
        first.delete([1000])


def test_updates_on_a_cluster(client, tmp_path):
    """Workers read and write; the client only decides."""
    frame = table(points("euclidean"))
    index = lay(frame.iloc[:KNOWN], "dask-3").simjoin.index(
        2.0, tmp_path / "index", on=["x0", "x1"], id="key", row_group=8
    )
    changes = index.update(
        lay(frame.iloc[KNOWN:], "dask-3"), delete=frame["key"].iloc[GONE]
    )
    model = Model(
        2.0,
        {
            key: tuple(x)
            for key, x in zip(frame["key"], points("euclidean"), strict=True)
        },
    )
    model.update({}, frame["key"].iloc[GONE].tolist())
    assert_same_pairs(as_set(index.pairs().compute()), model.pairs())
    assert as_set(changes.added.compute()) and as_set(changes.removed.compute())


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_a_plan_tells_what_an_update_reads(how, tmp_path):
    """Of rows in a corner few row groups, and nothing is taken in."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "key": np.arange(4000),
            "x": rng.uniform(size=4000),
            "y": rng.uniform(size=4000),
        }
    )
    index = frame.simjoin.index(
        0.02, tmp_path / "index", on=["x", "y"], id="key", row_group=64
    )
    corner = pd.DataFrame(
        {
            "key": np.arange(5000, 5200),
            "x": rng.uniform(0, 0.1, 200),
            "y": rng.uniform(0, 0.1, 200),
        }
    )
    plan = index.plan(lay(corner, how))
    assert index.version == 1
    changes = index.update(lay(corner, how))
    assert (plan.rows, plan.row_groups) == (200, 64 - 1)
    assert 0 < plan.row_groups_read == changes.work.row_groups_read < 10
    assert 0.5 < plan.pairs / len(changes.added) < 2


@pytest.mark.parametrize(
    "x",
    every_nth(
        4,
        [
            [1.7e308, -1.7e308, 0.0, 5e-324],
            [1.0, 1.0, 1.0, 1.0],
            [1e15, 1e15 + 1, 1e15 + 2.25, -1e15],
        ],
    ),
)
def test_odd_points(x, tmp_path):
    """The largest and smallest numbers, equal rows, large offsets: nothing of an index
    warns of them.
    """
    frame = pd.DataFrame({"key": range(4), "x": x})
    index = frame.iloc[:0].simjoin.index(
        1.0, tmp_path / "index", on="x", id="key", row_group=2
    )
    assert as_set(index.pairs().compute()) == set()
    for k in range(4):
        index.update(frame.iloc[[k]])
    again = frame.assign(key=frame["key"] + 10)
    assert index.plan(again).rows == 4
    index.update(again)
    index.optimize("all")
    assert index.quality().rows == 8
    whole = pd.concat([frame, again], ignore_index=True)
    assert_same_pairs(
        as_set(index.pairs().compute()),
        as_set(whole.simjoin.self_join(1.0, on="x", id="key")),
    )


def test_create_or_open(tmp_path):
    """The guide's recipe: every file is an update, whatever a killed process left
    behind.
    """
    frame = pd.DataFrame({"key": [1, 2], "x": [0.0, 0.5], "name": ["a", "b"]})
    for left_behind in ([], ["."], ["rows", "rows/0.parquet"]):
        path = tmp_path / f"index-{len(left_behind)}"
        for name in left_behind:
            place = path / name
            place.write_bytes(b"") if place.suffix else place.mkdir(parents=True)
        for _ in range(2):
            try:
                index = dask_simjoin.open_index(path)
            except dask_simjoin.errors.IndexFormatError:
                index = frame.head(0).simjoin.index(
                    1.0, path, on="x", id="key", keep="name"
                )
            index.update(frame, batch="first")
        assert len(index) == 2 and len(index.pairs()) == 1


@pytest.mark.parametrize(
    ("eps", "how", "shown"),
    [
        (
            "1 km",
            {"metric": "haversine", "return_distance": True},
            "haversine, eps=1 km, version",
        ),
        ("1 km", {"metric": "haversine"}, "haversine, eps=1000.0 m, version"),
        (
            "30 deg",
            {"metric": "cosine", "return_distance": True},
            "cosine, eps=30 deg, version",
        ),
        (1.5, {}, "euclidean, eps=1.5, version"),
    ],
)
def test_text_of_an_index(eps, how, shown, tmp_path):
    places = pd.DataFrame({"latitude": [1.0, 2.0], "longitude": 3.0})
    assert shown in repr(places.simjoin.index(eps, tmp_path / "index", **how))
