"""The GPU's index and the bounds of its filters, computed with NumPy: no GPU is needed."""

import numpy as np
import pytest

from dask_simjoin.engine.filters.bounds import make_bounds
from dask_simjoin.engine.index import gpu as device_nearest
from dask_simjoin.engine.index.gpu import (
    ENGINES,
    build,
    make_device_layout,
    make_nearest_device_layout,
)
from tests.support.oracle import squared_distances
from tests.support.points import KINDS, a_distance, make_points
from tests.support.profiles import chosen, in_turns

DIMS = [1, 2, 3, 6, 9, 16, 33, 100, 200]
RANKS = [0.0, 0.01, 0.3, 1.0]


def indexed(x, eps, engine):
    with np.errstate(over="ignore", invalid="ignore"):
        layout = make_device_layout(
            x.min(0), x.max(0), x.mean(0), x.var(0), eps * eps, engine
        )
        return layout, build(x, layout)


def indexes(engine, dims, rank, sizes=(2, 130)):
    """Indexes that use the engine, and their pairs as a matrix; distances are those of
    points, or nearly.
    """
    for kind in KINDS:
        rng = np.random.default_rng(len(kind))
        for n in sizes:
            x = make_points(kind, n, dims, rng)
            squared = squared_distances(x, x)
            eps = a_distance(x, rng, rank, int(rng.integers(-1, 2)), squared)
            layout, index = indexed(x, eps, engine)
            if layout.engine == engine:
                near = squared <= eps * eps
                yield layout, index, near[np.ix_(index["order"], index["order"])]


@in_turns(1, dims=DIMS, rank=RANKS)
def test_float32_loses_no_pair(dims, rank):
    used = 0
    for layout, index, near in indexes(
        "float32", dims, rank, chosen([2, 130, 300], [2, 130])
    ):
        used += 1
        n = len(near)
        z = index["z"].transpose(0, 2, 1).reshape(-1, dims)[:n]
        total = np.zeros((n, n), np.float32)
        for k in range(dims):
            away = z[:, None, k] - z[None, :, k]
            total += away * away
        assert (total[near] <= layout.bounds.reach).all()
        assert near[total <= layout.bounds.sure].all()
    assert used > 10


def test_what_no_filter_serves_is_compared_in_float64():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(300, 3))
    engines = {eps: indexed(x, eps, "auto")[0].engine for eps in (0.1, 1e-9, 0.0)}
    assert engines == {0.1: "float32", 1e-9: "float64", 0.0: "float64"}
    assert indexed(x * 1e300, 1e299, "auto")[0].engine == "float64"
    assert indexed(rng.uniform(size=(300, 32)), 1.0, "auto")[0].engine == "float16"
    embedded = rng.normal(size=(300, 384))
    embedded /= np.sqrt((embedded * embedded).sum(1))[:, None]
    engines = {
        eps: indexed(embedded, eps, "auto")[0].engine
        for eps in (0.3, 0.05, 0.01, 1e-4, 1e-9)
    }
    assert engines == {
        0.3: "float16",
        0.05: "float16",
        0.01: "float32",
        1e-4: "float32",
        1e-9: "float64",
    }
    small = make_device_layout(
        *(np.array([v] * 64) for v in (0.0, 1.0, 0.5, 0.1)), 1.0, shared=64 * 1024
    )
    assert small.engine == "float32"
    assert make_bounds(np.zeros(2), np.zeros(2), np.zeros(2), 0.0) is None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 300, 5000])
def test_the_index_holds_every_point_in_its_box(n, engine):
    x = np.random.default_rng(n).uniform(size=(n, 10))
    layout = indexed(np.random.default_rng(1).uniform(size=(50, 10)), 0.3, engine)[0]
    index = build(x, layout)
    assert sorted(index["order"].tolist()) == list(range(n))
    assert index["order"].dtype == np.int32
    assert (index["y"] == x[index["order"]]).all()
    if not n:
        return
    points = x[index["order"]]
    if layout.bounds is not None:
        points = ((points - layout.bounds.centre) * layout.bounds.scale).astype(
            np.float32
        )
    lower, upper = (
        index[name][: index["levels"][1]].transpose(0, 2, 1).reshape(-1, 10)
        for name in ("lower", "upper")
    )
    tile = np.arange(n) // layout.tile
    assert (lower[tile] <= points).all() and (points <= upper[tile]).all()
    assert np.isinf(lower[tile[-1] + 1 :]).all()


# --- nearest neighbours: each query has a distance of its own
# ------------------------------------------


def nearest_layout(x, engine, sample=None):
    with np.errstate(over="ignore", invalid="ignore"):
        moments = x.min(0), x.max(0), np.nan_to_num(x.mean(0)), np.nan_to_num(x.var(0))
        return make_nearest_device_layout(*moments, sample, engine)


def nearest_indexes(engine, dims):
    """Indexes that use the engine, and the squared distances of their points."""
    for kind in KINDS:
        x = make_points(kind, 200, dims, np.random.default_rng(len(kind)))
        layout = nearest_layout(x, engine)
        if layout.engine == engine:
            index = device_nearest.build_nearest(x, layout)
            index = device_nearest.relabelled(index, 0)
            index = device_nearest.with_tiles(index, layout, device_nearest.HOST)
            d2 = squared_distances(index["y"], index["y"])
            yield layout, index, d2, np.sort(d2, axis=1)


def outer_of(d2, layout):
    """E, as the kernels compute it."""
    tiny, dims = 2.0**-1074, layout.dims
    return np.sqrt(
        (d2 * (1 + (dims + 8) * 2.0**-52) + (dims + 2) * tiny) * layout.bounds.scale**2
    )


@in_turns(1, dims=DIMS, rank=[1, 10, 199])
def test_float32_loses_no_neighbour(dims, rank):
    used = 0
    for layout, index, d2, ranked in nearest_indexes("float32", dims):
        used += 1
        outer = outer_of(ranked[:, rank], layout) * (1 + 2.0**-50) + layout.bounds.rho
        reach = (outer**2 * (1 + (dims + 7) * 2.0**-24) + dims * 2.0**-140).astype(
            np.float32
        )
        z = index["z"].transpose(0, 2, 1).reshape(-1, dims)[: len(d2)]
        total = np.zeros(d2.shape, np.float32)
        for k in range(dims):
            away = z[:, None, k] - z[None, :, k]
            total += away * away
        assert total.max() < 32768
        assert (total <= np.nextafter(reach, np.float32(np.inf))[:, None])[
            d2 <= ranked[:, rank, None]
        ].all()
    assert used > 7


def test_the_engine_of_a_search_follows_from_dimensions_and_the_sample():
    rng = np.random.default_rng(0)
    for dims, engine in (
        (2, "float64"),
        (4, "float64"),
        (6, "float32"),
        (16, "float16"),
        (201, "float32"),
    ):
        x = rng.uniform(size=(500, dims))
        assert (
            nearest_layout(x, "auto", x).engine
            == nearest_layout(x, "auto").engine
            == engine
        )
    x = rng.uniform(size=(500, 16))
    x[0] = 1e9
    assert nearest_layout(x, "auto", x).engine == "float64"
    x[0] = 1e5
    assert nearest_layout(x, "auto", x).engine == "float32"
    assert nearest_layout(x * 1e300, "float16").engine == "float64"
    assert nearest_layout(np.ones((5, 16)), "auto").engine == "float64"
    few = make_nearest_device_layout(
        *(np.array([v] * 200) for v in (0.0, 1.0, 0.5, 0.1)), shared=64 * 1024
    )
    assert few.engine == "float32"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [0, 1, 64, 65, 300])
@pytest.mark.parametrize("dims", [3, 7])
def test_names_follow_the_index(engine, n, dims):
    rng = np.random.default_rng(n)
    x = rng.uniform(size=(n, dims))
    layout = nearest_layout(rng.uniform(size=(9, dims)), engine)
    index = device_nearest.build_nearest(x, layout)
    assert ("lower" in index) == (n > 0 and dims > 6)
    assert (index["y"] == x[index["order"]]).all()
    names = rng.permutation(n)
    for given, want in ((names, names), (1000, np.arange(n) + 1000)):
        named = device_nearest.relabelled(index, given)
        assert (named["names"] == want[index["order"]]).all()
        if not n:
            continue
        own = named
        named = device_nearest.with_tiles(own, layout, device_nearest.HOST)
        assert device_nearest.with_tiles(own, layout, device_nearest.HOST) is named
        assert named["least"].tolist() == [
            min(named["names"][a : a + 64]) for a in range(0, n, 64)
        ]
