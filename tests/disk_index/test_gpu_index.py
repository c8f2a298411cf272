"""Indexes of cuDF frames: what pandas frames say, in the same files."""

import numpy as np
import pandas as pd
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")

import dask_simjoin
from dask_simjoin.disk_index import writing
from tests.support.oracle import as_set, assert_same_pairs

pytestmark = pytest.mark.gpu

N, KNOWN = 400, 300
GONE = [3, 17, 40]


def table(names="numbers", d=2):
    x = np.random.default_rng(5).integers(1, 60, (N, d)).astype(float)
    keys = {
        "numbers": np.arange(1000, 1000 - N, -1),
        "texts": [f"row {k}" for k in range(N)],
    }[names]
    columns = {f"x{k}": column for k, column in enumerate(x.T)}
    return pd.DataFrame(
        {"key": keys} | columns | {"name": [f"name {k % 5}" for k in range(N)]}
    )


def moved(frame, how):
    """A frame on the GPU, plain or in so many partitions."""
    own = cudf.from_pandas(frame)
    return (
        own
        if how == "cudf"
        else dask_cudf.from_cudf(own, npartitions=int(how[-1]), sort=False)
    )


def pairs(lazy):
    """The pairs of a lazy frame that lies on the GPU."""
    found = lazy.compute(scheduler="sync")
    assert type(found).__module__.startswith("cudf")
    return as_set(found.to_pandas())


@pytest.fixture(params=["cudf", "dask-1", "dask-3"])
def how(request):
    """Where rows lie."""
    return request.param


@pytest.mark.parametrize("names", ["numbers", "texts"])
@pytest.mark.parametrize(
    ("metric", "eps"), [("euclidean", 2.0), ("manhattan", 2.0), ("cosine", 1e-4)]
)
def test_updates_replaced_rows_and_restores(
    how, names, metric, eps, tmp_path, monkeypatch
):
    monkeypatch.setattr(writing, "PARTITION", 128)
    frame = table(names)
    options = {
        "on": ["x0", "x1"],
        "id": "key",
        "metric": metric,
        "keep": "name",
        "return_distance": True,
    }
    index = moved(frame.iloc[:KNOWN], how).simjoin.index(
        eps, tmp_path / "index", row_group=16, store_pairs=names == "texts", **options
    )
    before = as_set(frame.iloc[:KNOWN].simjoin.self_join(eps, **options))
    assert_same_pairs(pairs(index.pairs()), before)
    later = frame.iloc[KNOWN - 50 :].copy()
    later["x0"] += 1
    changes = index.update(
        moved(later, how), delete=frame["key"].iloc[GONE].tolist(), if_exists="replace"
    )
    assert (
        changes.report.inserted,
        changes.report.replaced,
        changes.report.deleted,
    ) == (100, 50, 3)
    now = frame.copy()
    now.loc[later.index, "x0"] = later["x0"]
    now = now.drop(GONE)
    after = as_set(now.simjoin.self_join(eps, **options))
    assert after - before and before - after
    assert_same_pairs(pairs(index.pairs()), after)
    told = now.simjoin.self_join(eps, **options).sort_values(
        ["left", "right"], ignore_index=True
    )
    found = (
        index.pairs()
        .compute(scheduler="sync")
        .to_pandas()
        .sort_values(["left", "right"], ignore_index=True)
    )
    pd.testing.assert_series_equal(found["distance"], told["distance"])
    assert found["name_left"].tolist() == told["name_left"].tolist()
    assert pairs(changes.added) >= after - before
    on_host = dask_simjoin.open_index(tmp_path / "index", backend="pandas")
    assert_same_pairs(as_set(on_host.pairs().compute()), after)
    index.restore(1)
    assert_same_pairs(pairs(index.pairs()), before)
    index.optimize("all")
    assert_same_pairs(pairs(index.pairs()), before)
    assert set(index.rows().compute(scheduler="sync").to_pandas()["key"]) == set(
        frame["key"].iloc[:KNOWN]
    )


def test_lists(tmp_path):
    x = np.random.default_rng(0).normal(size=(N, 24))
    x[KNOWN:] = x[: N - KNOWN] + 0.01
    frame = pd.DataFrame({"key": range(N), "v": list(x)})
    index = moved(frame.iloc[:KNOWN], "dask-3").simjoin.index(
        0.01, tmp_path / "index", on="v", id="key", metric="cosine", row_group=16
    )
    changes = index.update(moved(frame.iloc[KNOWN:], "cudf"))
    want = as_set(frame.simjoin.self_join(0.01, on="v", id="key", metric="cosine"))
    assert want
    assert_same_pairs(pairs(index.pairs()), want)
    assert_same_pairs(pairs(changes.added), want)


def test_an_index_of_pandas_on_the_gpu(tmp_path):
    """The same files: one library makes them, another reads and updates them."""
    frame = table("texts")
    options = {"on": ["x0", "x1"], "id": "key"}
    frame.iloc[:KNOWN].simjoin.index(2.0, tmp_path / "index", row_group=16, **options)
    index = dask_simjoin.open_index(tmp_path / "index", backend="cudf")
    index.update(moved(frame.iloc[KNOWN:], "cudf"))
    want = as_set(frame.simjoin.self_join(2.0, **options))
    assert_same_pairs(pairs(index.pairs()), want)
    other = moved(
        frame.iloc[:50].assign(key=[f"guest {k}" for k in range(50)]), "dask-1"
    )
    near = as_set(frame.iloc[:50].simjoin.join(frame, 2.0, **options))
    assert_same_pairs(
        pairs(index.join(other)), {(f"guest {a.split()[1]}", b) for a, b in near}
    )


@pytest.mark.parametrize("d", [2, 24])
def test_rows_that_are_held_on_the_gpu(how, d, tmp_path, monkeypatch):
    """They give what the same files give, and none of them is read."""
    monkeypatch.setattr(writing, "PARTITION", 128)
    frame, eps = table("texts", d), {2: 2.0, 24: 80.0}[d]
    options = {
        "on": [f"x{k}" for k in range(d)],
        "id": "key",
        "keep": "name",
        "return_distance": True,
    }
    index = moved(frame.iloc[:KNOWN], how).simjoin.index(
        eps, tmp_path / "index", row_group=16, store_pairs=d > 2, **options
    )
    assert index.persist().memory.rows_on_disk == 0
    assert index.memory.bytes_held > 8 * d * KNOWN
    later = frame.iloc[KNOWN - 50 :].copy()
    later["x0"] *= 1.5  # some lie beyond what the segments' indexes serve
    changes = index.update(
        moved(later, how), delete=frame["key"].iloc[GONE].tolist(), if_exists="replace"
    )
    assert changes.work.row_groups_read == 0 < changes.work.row_groups_held
    told = (
        dask_simjoin.open_index(tmp_path / "index", backend="pandas")
        .changes(1)
        .compute()
    )
    for side, sign in ((changes.added, 1), (changes.removed, -1)):
        want = as_set(told[told["diff"] == sign])
        assert want
        assert_same_pairs(pairs(side), want)
