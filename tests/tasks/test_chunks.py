"""Chunks of several partitions that threads read and put together."""

from dataclasses import replace

import dask
import numpy as np
import pytest

from dask_simjoin.engine.cpu.frames import FRAMES
from dask_simjoin.tasks import chunks
from tests.support.frames import planned, split
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of

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
        layout = planned(frame_of(rng.uniform(size=(50, 2 if eps < 0.1 else 6))), eps)[1]
        for threads in (1, 2, 3):
            found = chunks.whole_points(parts, layout, threads)
            assert (found == np.concatenate(parts)).all()
            assert found.flags.f_contiguous == (layout.method == "sweep")


@pytest.mark.parametrize("cuts", [(300,), (1, 1, 200, 640)])
def test_threads_read_partitions_of_a_chunk(monkeypatch, cuts):
    monkeypatch.setattr(chunks, "LEAST_READ", 1)
    x = np.random.default_rng(1).uniform(size=(700, 2))
    x[::50, 1] = np.nan
    held = split(frame_of(x), cuts).persist()
    with dask.config.set(scheduler="threads", num_workers=3):
        pairs = held.simjoin.self_join(0.05, dropna=True)
        assert pairs.expr.plan.threads == 3
        tasks = {str(key) for key in pairs.__dask_graph__()}
        assert not any("simjoin_points" in key for key in tasks)
        assert as_set(pairs.compute()) == brute_force(x, 0.05)


@pytest.mark.parametrize("dims", [2, 9])
@pytest.mark.parametrize("kind", NUMBERS)
def test_partitions_are_read_to_where_they_are_indexed(kind, dims, monkeypatch):
    """Columns of any numbers, for sweeps and for tiles; what is read to is used again, and one is empty."""
    monkeypatch.setattr(chunks, "LEAST_READ", 1)
    frame = NUMBERS[kind](frame_of(np.random.default_rng(2).uniform(size=(700, dims))))
    held = split(frame.assign(name=np.arange(700) * 3), (1, 1, 200, 640)).persist()
    eps = (0.05 if dims == 2 else 0.45) * (1000 if float(frame["c1"].max()) > 1 else 1)
    with dask.config.set(scheduler="threads", num_workers=2):
        lazy = held.simjoin.self_join(eps, on=list(frame.columns), keep="name")
        assert lazy.expr.plan.layout.method == ("sweep" if dims == 2 else "tiles")
        found = lazy.compute()
        assert held.simjoin.count_pairs(eps, on=list(frame.columns)).compute() == len(found) > 100
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
    """What lies in the room is as what would lie elsewhere; what comes out of it is not kept for long."""
    frame = frame_of(np.random.default_rng(5).uniform(size=(50, columns)))
    names, room = tuple(frame.columns), np.empty(60 * columns)
    for some in (frame, frame.iloc[10:40], frame.iloc[:0], frame.astype("float32")):
        x = FRAMES.coordinates(some, names, room)
        assert np.array_equal(x, FRAMES.coordinates(some, names)) and x.flags.f_contiguous
        assert np.shares_memory(x, room) == (len(some) > 0)


@pytest.mark.parametrize("dropna", [False, True])
def test_whole_partitions_are_indexed_from_one_frame(dropna):
    frame = frame_of(np.random.default_rng(6).uniform(size=(60, 2))).assign(name=np.arange(60) * 2)
    if dropna:
        frame.loc[[0, 20, 21, 59], "c0"] = np.nan
    spec, layout, _ = planned(frame.dropna(), 0.1)
    spec = replace(spec, dropna=dropna, keep=("name",))
    found = chunks.index_partitions(layout, spec, 1, True, [20, 0, 25, 15], frame)
    sizes = [19, 0, 23, 14] if dropna else [20, 0, 25, 15]
    assert found["ends"].tolist() == np.cumsum(sizes).tolist()
    assert found["ids"].tolist() == frame.dropna().index.tolist()
    assert sorted(found["kept"]["name"]) == frame.dropna()["name"].tolist()
