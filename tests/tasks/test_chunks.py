"""Chunks of several partitions that threads read and put together."""

from dataclasses import replace

import dask
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.engine.compat import DIVIDED, FLOAT32
from dask_simjoin.engine.cpu.frames import FRAMES
from dask_simjoin.errors import SourceChangedError
from dask_simjoin.request.spec import Coordinates
from dask_simjoin.tasks import chunks
from tests.support.frames import planned, split
from tests.support.narrow import float32_rows, narrow_on_host
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of
from tests.support.profiles import in_turns

NUMBERS = {
    "float64": lambda frame: frame,
    "float32": lambda frame: frame.astype("float32"),
    "whole numbers": lambda frame: (frame * 1000).round().astype("int64"),
    "may be missing": lambda frame: (frame * 1000).round().astype("Int32"),
    "unlike": lambda frame: frame.astype({"c0": "float32"}),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("sizes", [[200_000, 0, 1], [0, 70_000, 70_000, 3, 0], [5, 4]])
def test_arrays_are_put_together_by_threads(order, sizes):
    rng = np.random.default_rng(0)
    parts = [np.asarray(rng.uniform(size=(n, 2)), order=order) for n in sizes]
    for eps in (0.01, 0.3):  # of 2 and of 6 columns
        layout = planned(frame_of(rng.uniform(size=(50, 2 if eps < 0.1 else 6))), eps)[
            1
        ]
        for threads in (1, 2, 3):
            found = chunks.concat_points(parts, layout, threads)
            assert (found == np.concatenate(parts)).all()
            assert found.flags.f_contiguous == (layout.method == "sweep")


@pytest.mark.parametrize("cuts", [(300,), (1, 1, 200, 640)])
def test_threads_read_partitions_of_a_chunk(monkeypatch, cuts):
    monkeypatch.setattr(chunks, "BATCH", 1)
    x = np.random.default_rng(1).uniform(size=(700, 2))
    x[::50, 1] = np.nan
    held = split(frame_of(x), cuts).persist()
    with dask.config.set(scheduler="threads", num_workers=3):
        pairs = held.simjoin.self_join(0.05, dropna=True)
        assert pairs.expr.plan.indexing.threads == 3
        tasks = {str(key) for key in pairs.__dask_graph__()}
        assert not any("simjoin_points" in key for key in tasks)
        assert as_set(pairs.compute()) == brute_force(x, 0.05)


@in_turns(1, dims=[2, 9], kind=list(NUMBERS))
def test_partitions_are_read_to_where_they_are_indexed(kind, dims, monkeypatch):
    """Columns of any numbers, for sweeps and for tiles; what is read to is used again,
    and one is empty.
    """
    monkeypatch.setattr(chunks, "BATCH", 1)
    frame = NUMBERS[kind](frame_of(np.random.default_rng(2).uniform(size=(700, dims))))
    held = split(frame.assign(name=np.arange(700) * 3), (1, 1, 200, 640)).persist()
    eps = (0.05 if dims == 2 else 0.45) * (1000 if float(frame["c1"].max()) > 1 else 1)
    with dask.config.set(scheduler="threads", num_workers=2):
        lazy = held.simjoin.self_join(eps, on=list(frame.columns), keep="name")
        assert lazy.expr.plan.layout.method == ("sweep" if dims == 2 else "tiles")
        found = lazy.compute()
        assert (
            held.simjoin.count_pairs(eps, on=list(frame.columns)).compute()
            == len(found)
            > 100
        )
    assert as_set(found) == brute_force(frame.to_numpy(np.float64), eps)
    assert (found["name_left"] == found["left"] * 3).all()


@pytest.mark.parametrize("metric", ["haversine", "cosine"])
def test_what_is_read_may_be_embedded(metric):
    frame = frame_of(np.random.default_rng(4).uniform(-80, 80, size=(300, 2)))
    eps = {"haversine": 5e5, "cosine": 1e-4}[metric]
    held = split(frame, (100, 100, 150)).persist()
    with dask.config.set(scheduler="threads", num_workers=2):
        assert held.simjoin.count_pairs(eps, metric=metric).compute() == len(
            brute_force(frame.to_numpy(), eps, metric)
        )


@pytest.mark.parametrize("columns", [3, 8])
def test_points_are_read_into_room(columns):
    """What lies in the room is as what would lie elsewhere; what comes out of it is not
    kept for long.
    """
    frame = frame_of(np.random.default_rng(5).uniform(size=(50, columns)))
    names, room = tuple(frame.columns), np.empty(60 * columns)
    for some in (frame, frame.iloc[10:40], frame.iloc[:0], frame.astype("float32")):
        x = FRAMES.coordinates(some, names, room)
        assert (
            np.array_equal(x, FRAMES.coordinates(some, names)) and x.flags.f_contiguous
        )
        assert np.shares_memory(x, room) == (len(some) > 0)


NARROW = {"euclidean": (6.0, FLOAT32), "cosine": (0.25, DIVIDED)}


def narrow_lists(missing=()):
    """Make lists of 40 float32 numbers. Half of the lists are near others, and some are
    missing.
    """
    rng = np.random.default_rng(0)
    x = float32_rows("normal", 300, 40, rng)
    x[150:] = x[:150] + rng.normal(0, 0.3, (150, 40)).astype(np.float32)
    return pd.DataFrame(
        {"vector": [None if k in missing else row for k, row in enumerate(x)]}
    )


VERBS = {
    "self_join": {"return_distance": True},
    "neighbor_counts": {},
    "count_pairs": {},
    "near_duplicated": {},
    "dbscan": {"min_samples": 2},
}


@in_turns(
    1,
    verb=list(VERBS),
    metric=list(NARROW),
    blocksize=["8 kB", None],
    missing=[(), {3, *range(100, 190)}],
)
def test_chunks_of_narrow_points(monkeypatch, metric, verb, blocksize, missing):
    """Whatever the chunks are made of, results are those of float64 points."""
    eps, storage = NARROW[metric]
    frame = narrow_lists(missing)
    options = {
        "on": "vector",
        "metric": metric,
        "blocksize": blocksize,
        "dropna": bool(missing),
    }

    def found():
        # `split` makes partitions that are empty, or have only missing lists
        parts = split(frame, (60, 60, 110, 170))
        lazy = getattr(parts.simjoin, verb)(eps, **options | VERBS[verb])
        result = lazy.compute(scheduler="sync")
        sort = ["left", "right"]
        return (
            result.sort_values(sort).reset_index(drop=True)
            if verb == "self_join"
            else result
        )

    want = found()
    with monkeypatch.context() as patch:
        stored = narrow_on_host(patch)
        again = found()
    assert storage in stored
    assert want.equals(again) if hasattr(want, "equals") else want == again
    assert np.sum(want if not hasattr(want, "columns") else len(want)) > 0


@pytest.mark.parametrize("metric", NARROW)
def test_narrow_points_of_two_tables(monkeypatch, metric):
    eps, storage = NARROW[metric]
    frame = narrow_lists()
    stored = narrow_on_host(monkeypatch)

    def pairs(left, right):
        lazy = split(left, (60, 100)).simjoin.join(
            split(right, (50,)), eps, on="vector", metric=metric
        )
        return as_set(lazy.compute(scheduler="sync")), lazy.expr.plan.indexing.narrow

    found, narrow = pairs(frame[:200], frame[100:])
    assert narrow and storage in stored and len(found) > 40
    other = frame.assign(vector=[row + 1e-12 for row in frame.vector.map(np.float64)])
    again, narrow = pairs(frame[:200], other[100:])
    assert not narrow and again == found


def test_narrow_points_take_half_of_the_memory(monkeypatch):
    frame = narrow_lists()
    wide = (
        split(frame, (100,))
        .simjoin.self_join(0.25, on="vector", metric="cosine")
        .expr.plan
    )
    narrow_on_host(monkeypatch)
    narrow = (
        split(frame, (100,))
        .simjoin.self_join(0.25, on="vector", metric="cosine")
        .expr.plan
    )
    assert (wide.indexing.narrow, narrow.indexing.narrow) == (False, True)
    assert wide.indexing.row_bytes - narrow.indexing.row_bytes == 8 * 40 - (4 * 40 + 8)
    options = {"on": "vector", "metric": "cosine", "partitioning": "spatial"}
    shuffled = split(frame, (100,)).simjoin.self_join(0.25, **options).expr.plan
    assert not shuffled.indexing.narrow
    assert shuffled.indexing.row_bytes == wide.indexing.row_bytes
    assert (
        not split(frame, (100,))
        .simjoin.knn_join(k=3, on="vector")
        .expr.plan.indexing.narrow
    )


def test_partitions_that_are_no_longer_narrow(monkeypatch):
    frame = frame_of(np.stack(narrow_lists().vector).astype(np.float64))
    narrow_on_host(monkeypatch)
    lazy = split(frame, ()).simjoin.self_join(6.0)
    plan, spec = lazy.expr.plan, lazy.expr.operand("spec")
    spec, fingerprint = (
        replace(
            spec,
            coordinates=Coordinates(plan.tables.dims, narrow=plan.indexing.narrow),
        ),
        (0, plan.tables.sources[0][0]),
    )
    assert (
        plan.indexing.narrow
        and chunks.read_points(frame, fingerprint, spec)["x"].dtype == np.float32
    )
    frame.iloc[7, 5] += 1e-14
    with pytest.raises(SourceChangedError):
        chunks.read_points(frame, fingerprint, spec)


@pytest.mark.parametrize("dropna", [False, True])
def test_whole_partitions_are_indexed_from_one_frame(dropna):
    frame = frame_of(np.random.default_rng(6).uniform(size=(60, 2))).assign(
        name=np.arange(60) * 2
    )
    if dropna:
        frame.loc[[0, 20, 21, 59], "c0"] = np.nan
    spec, layout, _ = planned(frame.dropna(), 0.1)
    spec = replace(spec, coordinates=Coordinates(2, dropna=dropna), keep=("name",))
    found = chunks.index_partitions(layout, spec, 1, True, [20, 0, 25, 15], frame)
    sizes = [19, 0, 23, 14] if dropna else [20, 0, 25, 15]
    assert found["ends"].tolist() == np.cumsum(sizes).tolist()
    assert found["ids"].tolist() == frame.dropna().index.tolist()
    assert sorted(found["kept"]["name"]) == frame.dropna()["name"].tolist()
