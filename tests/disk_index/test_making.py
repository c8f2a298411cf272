"""Indexes of every metric, of lists, and of ids and columns of every kind."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin
from tests.disk_index.test_index import GONE, KNOWN, N, points, table
from tests.support.frames import lay
from tests.support.oracle import as_set, assert_same_pairs, brute_force

METRICS = {
    "euclidean": (2, 2.0),
    "sqeuclidean": (2, 2.0),
    "manhattan": (2, 2.0),
    "chebyshev": (2, 1.0),
    "minkowski": (3, 2.0),
    "cosine": (2, 0.005),
    "haversine": (2, 300_000.0),
}


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
