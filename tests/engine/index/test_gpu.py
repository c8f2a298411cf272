"""The GPU's index and the bounds of its filters, computed with NumPy: no GPU is needed."""

import itertools

import numpy as np
import pytest

from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.filters import tensor_cores as wide
from dask_simjoin.engine.filters.bounds import make_bounds
from dask_simjoin.engine.index import gpu as device_nearest
from dask_simjoin.engine.index.gpu import ENGINES, build, make_device_layout, make_nearest_device_layout
from tests.support.oracle import squared_distances
from tests.support.points import KINDS, a_distance, make_points
from tests.support.profiles import chosen, in_turns

DIMS = [1, 2, 3, 6, 9, 16, 33, 100, 200]
RANKS = [0.0, 0.01, 0.3, 1.0]
WIDE = {201: 0.3, 256: 0.0, 384: 0.01, 768: 0.3, 1024: 1.0, 2048: 0.01}
"""Dimensions in which vectors are read slice by slice, and ranks of distances."""


def indexed(x, eps, engine):
    with np.errstate(over="ignore", invalid="ignore"):
        layout = make_device_layout(x.min(0), x.max(0), x.mean(0), x.var(0), eps * eps, engine)
        return layout, build(x, layout)


def indexes(engine, dims, rank, sizes=(2, 130)):
    """Indexes that use the engine, and their pairs as a matrix; distances are those of points, or nearly."""
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
    for layout, index, near in indexes("float32", dims, rank, chosen([2, 130, 300], [2, 130])):
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


def both_sides(vectors):
    """What queries and points are read as: of queries the halves of the last eight numbers are swapped."""
    right = vectors.astype(np.float64)
    left = right.copy()
    left[:, -8:-4], left[:, -4:] = right[:, -4:], right[:, -8:-4]
    return left, right


@in_turns(1, lambda dims, rank: WIDE.get(dims, rank) == rank, dims=[*DIMS, *WIDE], rank=RANKS)
def test_float16_loses_no_pair(dims, rank):
    """Without the tensor cores' own rounding, which only makes sums that are above 0 smaller."""
    used = 0
    sizes = chosen([2, 130, 300], [2, 130]) if dims <= 200 else [2, 70]
    for _, index, near in indexes("float16", dims, rank, sizes):
        used += 1
        n = len(near)
        left, right = both_sides(index["vectors"])
        width = half.width(dims)
        product, sure = left @ right.T, index["vectors_sure"]
        norm = (right[:n, :dims] ** 2).sum(1)
        error = 1.5 * width * 2.0**-23 * (norm[:, None] + norm[None, :])
        assert (product[:n, :n][near] > error[near]).all()
        assert near[(product >= sure[:, None] + sure[None, :])[:n, :n]].all()
        assert not (product[n:] >= 0).any() and not (product[:, n:] >= 0).any()
    assert used > 10


def cut(x, bits):
    """Numbers cut off below so many bits after the one of `2**exponent`, towards 0."""
    return np.trunc(np.ldexp(x, bits)) * np.ldexp(1.0, -bits)


def as_tensor_cores_round(left, right, group):
    """Products of two sides, `group` of each at a time, as in section 4 of what engine/filters/float16.py
    cites."""
    sums = np.zeros((len(left), len(right)))
    for k in range(0, left.shape[1], group):
        summands = left[:, None, k : k + group] * right[None, :, k : k + group]
        summands = np.concatenate([summands, sums[:, :, None]], axis=2)
        kept = 24 - np.frexp(np.abs(summands).max(axis=2))[1]
        sums = cut(summands, kept[:, :, None]).sum(axis=2)
        sums = cut(sums, 24 - np.frexp(sums)[1])
    return sums


def hard_to_add(kind, n, dims, rng):
    """Points far from their mean, in pairs that differ little: products that all add up, then cancel."""
    size = {"equal": np.ones(dims), "growing": np.linspace(0.01, 1, dims), "one": np.eye(dims)[0] * dims}[
        kind
    ]
    x = rng.choice([-1.0, 1.0], (n, dims)) * size * rng.uniform(0.9, 1, (n, 1))
    x[n // 2 :] = x[: n - n // 2] + rng.normal(size=(n - n // 2, dims)) * rng.choice(
        [1e-4, 1e-2], (n - n // 2, 1)
    )
    return x


@in_turns(1, dims=[9, 200, 256, 384, 768, 1024, 2048], kind=["equal", "growing", "one"])
def test_what_tensor_cores_round_loses_no_pair(kind, dims):
    """With their rounding, imitated: pairs keep their signs, and nothing is surer than it is."""
    rng = np.random.default_rng(dims)
    x = hard_to_add(kind, 24, dims, rng)
    distances = np.sort(squared_distances(x, x)[np.triu_indices(len(x), 1)])
    worst = 0.0
    for eps in np.sqrt(distances[[0, 6, 11, len(distances) // 2]]):
        layout, index = indexed(x, eps, "float16")
        assert layout.engine == "float16"
        near = (squared_distances(x, x) <= eps * eps)[np.ix_(index["order"], index["order"])]
        left, right = (side[: len(x)] for side in both_sides(index["vectors"]))
        sure = index["vectors_sure"][: len(x)]
        for group in (4, 8, 16):
            product = as_tensor_cores_round(left, right, group)
            assert (product[near] > 0).all()
            assert near[product >= sure[:, None] + sure[None, :]].all()
            most = np.abs(left) @ np.abs(right).T
            worst = max(worst, float((np.abs(product - left @ right.T) / most).max()))
    assert 0 < worst <= 1.5 * half.width(dims) * 2.0**-23


def test_kernels_of_the_tensor_cores_fit():
    assert wide.program(200, 227 * 1024)[0] == "tensor"
    for shared, dims in itertools.product((64, 99, 163, 227), (201, 384, 768, 1024, 2048)):
        found = wide.program(dims, shared * 1024)
        assert (found is None) == (shared == 64)
        if found:
            name, told, most = found
            assert name == "tensor_wide" and most + 9216 + 8 * dims <= shared * 1024
            assert told["WIDTH"] >= dims + 8 and -(-told["WIDTH"] // 16 // told["DEPTH"]) >= 2
            assert wide.program(dims, shared * 1024, counting=True)[2] < most
    assert wide.program(384, 227 * 1024)[1] == {"WIDTH": 400, "DEPTH": 4, "STAGES": 3}


def test_what_no_filter_serves_is_compared_in_float64():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(300, 3))
    engines = {eps: indexed(x, eps, "auto")[0].engine for eps in (0.1, 1e-9, 0.0)}
    assert engines == {0.1: "float32", 1e-9: "float64", 0.0: "float64"}
    assert indexed(x * 1e300, 1e299, "auto")[0].engine == "float64"
    assert indexed(rng.uniform(size=(300, 32)), 1.0, "auto")[0].engine == "float16"
    embedded = rng.normal(size=(300, 384))
    embedded /= np.sqrt((embedded * embedded).sum(1))[:, None]
    engines = {eps: indexed(embedded, eps, "auto")[0].engine for eps in (0.3, 0.05, 0.01, 1e-4, 1e-9)}
    assert engines == {0.3: "float16", 0.05: "float16", 0.01: "float32", 1e-4: "float32", 1e-9: "float64"}
    small = make_device_layout(*(np.array([v] * 64) for v in (0.0, 1.0, 0.5, 0.1)), 1.0, shared=64 * 1024)
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
        points = ((points - layout.bounds.centre) * layout.bounds.scale).astype(np.float32)
    lower, upper = (
        index[name][: index["levels"][1]].transpose(0, 2, 1).reshape(-1, 10) for name in ("lower", "upper")
    )
    tile = np.arange(n) // layout.tile
    assert (lower[tile] <= points).all() and (points <= upper[tile]).all()
    assert np.isinf(lower[tile[-1] + 1 :]).all()


# --- nearest neighbours: each query has a distance of its own ------------------------------------------


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
            d2 = squared_distances(index["y"], index["y"])
            yield layout, index, d2, np.sort(d2, axis=1)


def outer_of(d2, layout):
    """E, as the kernels compute it."""
    tiny, dims = 2.0**-1074, layout.dims
    return np.sqrt((d2 * (1 + (dims + 8) * 2.0**-52) + (dims + 2) * tiny) * layout.bounds.scale**2)


@in_turns(1, dims=DIMS, rank=[1, 10, 199])
def test_float32_loses_no_neighbour(dims, rank):
    used = 0
    for layout, index, d2, ranked in nearest_indexes("float32", dims):
        used += 1
        outer = outer_of(ranked[:, rank], layout) * (1 + 2.0**-50) + layout.bounds.rho
        reach = (outer**2 * (1 + (dims + 7) * 2.0**-24) + dims * 2.0**-140).astype(np.float32)
        z = index["z"].transpose(0, 2, 1).reshape(-1, dims)[: len(d2)]
        total = np.zeros(d2.shape, np.float32)
        for k in range(dims):
            away = z[:, None, k] - z[None, :, k]
            total += away * away
        assert total.max() < 32768
        assert (total <= np.nextafter(reach, np.float32(np.inf))[:, None])[d2 <= ranked[:, rank, None]].all()
    assert used > 7


@in_turns(1, dims=DIMS, rank=[1, 10, 199])
def test_float16_loses_no_neighbour(dims, rank):
    """Without the tensor cores' own rounding, for which there must be room."""
    used = 0
    for layout, index, d2, ranked in nearest_indexes("float16", dims):
        used += 1
        n, width = len(d2), half.width(dims)
        norm, error = index["norm"], index["error"]
        outer = outer_of(ranked[:, rank], layout) * (1 + 2.0**-50)
        assert outer.max() ** 2 < 32768
        term = half.query_term(outer, norm, error, index["most_error"][0], width)
        assert np.abs(term).max() < 30_000
        vectors = index["vectors"].astype(np.float64)
        own = vectors[:, width - 8 : width - 4].sum(axis=1)
        product = vectors[:n, :dims] @ vectors[:, :dims].T + own
        assert (product[:, :n] + 30_000 >= 0).all() and not (product[:, n:] + 30_000 >= 0).any()
        added = own[:n] - (2 * error**2 - norm) / 2
        assert (added > 0).all() and (added <= 4 * width * 2.0**-23 * (norm + 1)).all()
        room = 1.5 * width * 2.0**-23 * (norm[:, None] + norm[None, :])
        near = d2 <= ranked[:, rank, None]
        assert (term[:, None] + product[:, :n])[near].min() > 0
        assert (term[:, None] + product[:, :n] > room)[near].all()
    assert used > 7


def test_the_engine_of_a_search_follows_from_dimensions_and_the_sample():
    rng = np.random.default_rng(0)
    for dims, engine in ((2, "float64"), (4, "float64"), (6, "float32"), (16, "float16"), (201, "float32")):
        x = rng.uniform(size=(500, dims))
        assert nearest_layout(x, "auto", x).engine == nearest_layout(x, "auto").engine == engine
    x = rng.uniform(size=(500, 16))
    x[0] = 1e9
    assert nearest_layout(x, "auto", x).engine == "float64"
    x[0] = 1e5
    assert nearest_layout(x, "auto", x).engine == "float32"
    assert nearest_layout(x * 1e300, "float16").engine == "float64"
    assert nearest_layout(np.ones((5, 16)), "auto").engine == "float64"
    few = make_nearest_device_layout(*(np.array([v] * 200) for v in (0.0, 1.0, 0.5, 0.1)), shared=64 * 1024)
    assert few.engine == "float32"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [0, 1, 64, 65, 300])
def test_names_follow_the_index(engine, n):
    rng = np.random.default_rng(n)
    x = rng.uniform(size=(n, 3))
    index = device_nearest.build_nearest(x, nearest_layout(rng.uniform(size=(9, 3)), engine))
    assert (index["y"] == x[index["order"]]).all()
    names = rng.permutation(n)
    for given, want in ((names, names), (1000, np.arange(n) + 1000)):
        named = device_nearest.relabelled(index, given)
        assert (named["names"] == want[index["order"]]).all()
        assert named["least"].tolist() == [min(named["names"][a : a + 64]) for a in range(0, n, 64)]
