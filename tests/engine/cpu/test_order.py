"""The kd order of indexes has every point once, and tiles as small as the plain form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine import process
from dask_simjoin.engine.cpu import order as module
from dask_simjoin.engine.cpu import sorting
from dask_simjoin.engine.index import kdtree
from dask_simjoin.engine.index.cpu_tiles import CUTS, FAN_OUT, TILE
from tests.support.points import KINDS, make_points
from tests.support.profiles import examples, in_turns


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Give threads little work, and cut blocks by all three ways."""
    monkeypatch.setattr(process, "MIN_PART", 100)
    monkeypatch.setattr(process, "BATCH", 100)
    monkeypatch.setattr(sorting, "MIN_PART", 100)
    monkeypatch.setattr(module, "BATCH", 1024)


def cuts_of(x):
    with np.errstate(over="ignore", invalid="ignore"):
        return kdtree.dims_to_cut(np.nan_to_num(x.var(axis=0)))


@settings(max_examples=examples(200), deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(0, 9000),
    d=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
    fan_out=st.sampled_from([2, 4, 8]),
    threads=st.sampled_from([1, 2, 7, 32]),
)
def test_every_point_has_one_place(kind, n, d, seed, fan_out, threads):
    x = make_points(kind, n, d, np.random.default_rng(seed))
    cuts = cuts_of(x).first(n, TILE, CUTS) if n else kdtree.KdCuts((0,), (1.0,))
    x = module.by_row(np.asfortranarray(x), threads)
    order = module.kd_order(x, cuts, TILE, fan_out, threads)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(n))


@in_turns(1, d=[1, 2, 3, 6, 20], threads=[1, 2, 7, 32])
def test_tiles_are_as_small_as_those_of_the_plain_form(d, threads):
    x = np.random.default_rng(d).normal(size=(20_001, d)) * np.linspace(1, 9, d)
    cuts = cuts_of(x).first(len(x), TILE, CUTS)
    sizes = []
    for order in (
        kdtree.kd_order(x, cuts, TILE, FAN_OUT),
        module.kd_order(x, cuts, TILE, FAN_OUT, threads),
    ):
        tiles = x[order[: len(x) // TILE * TILE]].reshape(-1, TILE, d)
        sizes.append(np.log(np.ptp(tiles, axis=1)).sum(axis=1).mean())
    # samples of sorted blocks are a little better
    assert sizes[1] == pytest.approx(sizes[0], abs=0.06)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(5000),
        np.arange(5000.0),
        np.arange(5000.0)[::-1],
        np.r_[np.arange(2500.0), np.arange(2500.0)[::-1]],
        np.full(5000, np.inf),
        np.r_[np.zeros(4999), 1e300],
    ],
)
def test_ordered_and_equal_values(values):
    x = np.stack([values, values], axis=1)
    cuts = kdtree.KdCuts((0, 1), (1.0, 1.0))
    order = module.kd_order(x, cuts, TILE, FAN_OUT)
    assert np.array_equal(np.sort(order), np.arange(len(x)))
    leaves = values[order[: len(x) // TILE * TILE]].reshape(-1, TILE)
    assert (leaves.max(axis=1)[:-1] <= leaves.min(axis=1)[1:]).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_points_by_row(threads):
    x = np.random.default_rng(0).normal(size=(5000, 3))
    found = module.by_row(np.asfortranarray(x), threads)
    assert found.flags.c_contiguous
    assert np.array_equal(found, x)
    assert module.by_row(x, threads) is x
