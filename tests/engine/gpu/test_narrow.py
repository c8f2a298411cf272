"""Indexes of narrow points give the pairs of the definition, as indexes of float64
points do, to the bit.
"""

import itertools

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.engine import compat as on_host
from dask_simjoin.engine.compat import storage_of
from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu import tiles as gpu_tiles
from dask_simjoin.engine.gpu.build import narrowed, widened
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.index.gpu import ENGINES, make_device_layout
from dask_simjoin.metrics import make_metric
from tests.support.narrow import KINDS, float32_rows

pytestmark = pytest.mark.gpu

DIMS = [1, 40, 384, 1000, 2048]
STORED = {"euclidean": 1, "cosine": 2}


@pytest.fixture(params=["warpgroups", "warps"])
def kernel(request, monkeypatch):
    """Both kernels of a GPU that has warpgroups."""
    if request.param == "warps":
        monkeypatch.setattr(half, "TENSOR_DIMS", 10**9)
    elif not load.has_warpgroups():
        pytest.skip("warpgroups need compute capability 9.0")


def points_of(x, metric):
    """Points of float32 rows in float64, without rows that have no direction, and the
    same narrow points.
    """
    columns = cupy.asfortranarray(cupy.asarray(x.astype(np.float64)))
    points, lengths = make_metric(metric).divided(columns, cupy)
    rows = narrowed(columns, points, lengths)
    assert rows is not None and rows.flags.c_contiguous
    there = cupy.isfinite(points).all(axis=1)
    return cupy.asfortranarray(points[there]), rows[there]


def totals(points):
    """All totals by the definition: CuPy rounds every operation."""
    total = cupy.zeros((len(points), len(points)))
    for k in range(points.shape[1]):
        t = points[:, k, None] - points[None, :, k]
        t *= t
        total += t
    return total.get()


def layout_of(points, threshold, engine):
    with np.errstate(over="ignore", invalid="ignore"):
        host = points.get()
        moments = host.min(0), host.max(0), host.mean(0), host.var(0)
    if not all(np.isfinite(m).all() for m in moments[2:]):
        moments = (
            *moments[:2],
            np.zeros(host.shape[1]),
            np.full(host.shape[1], np.inf),
        )
    return make_device_layout(*moments, threshold, engine)


def same_bits(found, want):
    return (
        cupy.ascontiguousarray(found).get().tobytes()
        == cupy.ascontiguousarray(want).get().tobytes()
    )


@pytest.mark.parametrize("metric", STORED)
@pytest.mark.parametrize("dims", [*DIMS, 31, 33])
@pytest.mark.parametrize("kind", KINDS)
def test_narrow_points_are_those_of_the_host(kind, dims, metric):
    for n in (1, 33, 500):
        x = float32_rows(kind, n, dims, np.random.default_rng(n))
        columns = x.astype(np.float64)
        points, lengths = make_metric(metric).divided(columns, np)
        want = on_host.narrowed(columns, points, lengths)
        for order in (cupy.asfortranarray, cupy.ascontiguousarray):
            given = [order(cupy.asarray(some)) for some in (columns, points)]
            found = narrowed(*given, None if lengths is None else cupy.asarray(lengths))
            there = ~np.isnan(points).any(axis=1)
            assert storage_of(found) == STORED[metric] and found.dtype == want.dtype
            assert found.get()[there].tobytes() == want[there].tobytes()
            assert same_bits(
                widened(found)[cupy.asarray(there)], given[1][cupy.asarray(there)]
            )
    own = points_of(x, metric)
    assert same_bits(widened(own[1]), own[0])


@pytest.mark.parametrize("dims", [40, 2048])
def test_no_narrow_points_where_a_bit_would_differ(dims):
    x = float32_rows("normal", 100, dims, np.random.default_rng(0)).astype(np.float64)
    for value in (0.1, 1e39, 1e-60, np.nextafter(1.0, 2.0)):
        other = x.copy()
        other[77, dims - 3] = value
        for metric in STORED:
            columns = cupy.asfortranarray(cupy.asarray(other))
            assert (
                narrowed(columns, *make_metric(metric).divided(columns, cupy)) is None
            )
    x[5, 7] = np.nan
    columns = cupy.asarray(x)
    assert narrowed(columns, *make_metric("cosine").divided(columns, cupy)) is not None
    assert narrowed(columns, columns[:, 1:], None) is None
    assert narrowed(columns[:0], columns[:0], None).shape == (0, dims)


@pytest.mark.parametrize("metric", STORED)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dims", [9, 40, 200, 384])
def test_the_index_is_that_of_float64_points(dims, engine, metric):
    x = float32_rows("normal", 5000, dims, np.random.default_rng(dims))
    points, rows = points_of(x, metric)
    layout = layout_of(points, 0.5, engine)
    one, other = (gpu_tiles.build(some, layout) for some in (points, rows))
    assert one.keys() == other.keys() and one["y"].nbytes > 1.5 * other[
        "y"
    ].nbytes - 8 * len(x)
    assert same_bits(widened(other["y"]), one["y"])
    for name in one.keys() - {"y", "vectors", "slices", "vectors_sure"}:
        assert same_bits(other[name], one[name]), name
    for name in one.keys() & {"vectors", "slices"}:
        found, expected = (in_use(some[name], name, dims) for some in (other, one))
        assert float((found != expected).mean()) < 1e-3
    empty = gpu_tiles.build(rows[:0], layout)
    assert len(empty["y"]) == 0 and empty["y"].dtype == rows.dtype


def in_use(vectors, name, dims):
    """The numbers of each tile of vectors without those that pad them, which nobody
    writes: the places of `place_in_tile` in `vectors.cu`.
    """
    tiles = vectors.reshape(-1, half.TILE * vectors.shape[1])
    if name == "vectors":
        return tiles
    width = half.width(dims)
    row, k = np.arange(half.TILE)[:, None], np.arange(width)
    last = (width - 1) // 64
    rest = width - 64 * last
    numbers = np.where((k // 64 < last) | (rest > 32), 64, rest)
    piece = k % 64 // 8 ^ row // (64 // numbers) % (numbers // 8)
    places = k // 64 * half.TILE * 64 + row * numbers + 8 * piece + k % 8
    assert len(np.unique(places)) == places.size
    return tiles[:, cupy.asarray(places.ravel())]


def pairs_of(q, d, layout, same, rows=None):
    """Pairs of positions, sorted, with the bits of their totals."""
    found = JOINER.pairs(
        q, d, layout, is_self_join=same, distance=lambda total: total, rows=rows
    )
    left, right, total = (some.get() for some in found[:3])
    order = np.lexsort((right, left))
    return left[order], right[order], total[order].view(np.int64)


def check(points, rows, d2, threshold, engine):
    """Pairs, counts and totals of narrow points, by the matrix of totals; None: another
    engine serves.
    """
    layout = layout_of(points, threshold, engine)
    if layout.engine != engine:
        return None
    near, cut = d2 <= threshold, len(rows) // 3
    whole, parts = (
        gpu_tiles.build(rows, layout),
        [gpu_tiles.build(p, layout) for p in (rows[:cut], rows[cut:])],
    )
    for q, d, same, want, of in (
        (whole, whole, True, np.triu(near, 1), d2),
        (*parts, False, near[:cut, cut:], d2[:cut, cut:]),
    ):
        left, right, total = pairs_of(q, d, layout, same)
        assert np.array_equal(np.stack([left, right], axis=1), np.argwhere(want))
        assert np.array_equal(total, of[left, right].view(np.int64))
        counts = JOINER.counts(q, d, layout, is_self_join=same)
        if same:
            assert np.array_equal(counts[0].get(), near.sum(1) - 1)
        else:
            assert np.array_equal(counts[0].get(), want.sum(1))
            assert np.array_equal(counts[1].get(), want.sum(0))
    shown = []
    JOINER.visit(
        whole,
        whole,
        layout,
        lambda *some: shown.append([a.get() for a in some]),
        is_self_join=True,
    )
    assert sum(len(some[0]) for some in shown) == np.triu(near, 1).sum()
    for left, right, total in shown:
        assert np.array_equal(total.view(np.int64), d2[left, right].view(np.int64))
    return layout


@pytest.mark.parametrize("metric", STORED)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", DIMS)
def test_ties_are_decided_as_in_float64(dims, kind, metric, kernel):
    """The threshold is the total of two points, or the next number on either side."""
    rng = np.random.default_rng(dims)
    x = float32_rows(kind, 400, dims, rng)
    # near-duplicates: at distances that float16 does not tell apart
    with np.errstate(over="ignore"):
        x[200:] = np.where(
            rng.uniform(size=(200, 1)) < 0.5,
            x[200:],
            x[:200] * np.float32(1 + 2.0**-12),
        )
    points, rows = points_of(x, metric)
    d2 = totals(points)
    some = np.sort(d2[np.triu_indices(len(d2), 1)])
    used = 0
    for rank, engine in itertools.product((0.002, 0.3), ENGINES):
        total = min(float(some[int(rank * (len(some) - 1))]), 1e300)
        for threshold in (
            total,
            np.nextafter(total, -1.0),
            np.nextafter(total, np.inf),
        ):
            if threshold >= 0:
                used += check(points, rows, d2, float(threshold), engine) is not None
    assert used


@pytest.mark.parametrize("metric", STORED)
def test_float64_decides_equal_sums(metric, kernel):
    """Equal sums of terms in other orders, at the threshold: the filters decide none of
    them.
    """
    rng = np.random.default_rng(5)
    x = np.tile((np.arange(384) % 4 * 0.1).astype(np.float32), (900, 1))
    x[:, 5:380:45] = rng.integers(0, 4, (900, 9)).astype(np.float32) * np.float32(0.1)
    points, rows = points_of(x, metric)
    d2 = totals(points)
    values = np.unique(d2[np.triu_indices(len(d2), 1)])
    for threshold in (float(values[len(values) // 3]), float(values[len(values) // 2])):
        assert check(points, rows, d2, threshold, "float16") is not None
        layout = layout_of(points, threshold, "float16")
        told = []
        for some in (points, rows):
            index = gpu_tiles.build(some, layout)
            last = [*gpu_tiles.batches(index, index, layout, is_self_join=True)][-1]
            told.append((last.decided, last.refused))
        assert min(told[0][0], told[1][0]) > 0


@pytest.mark.parametrize("metric", STORED)
def test_sinks(metric, kernel):
    rng = np.random.default_rng(3)
    x = float32_rows("normal", 900, 384, rng)
    x[450:] = x[:450] + rng.normal(0, 0.1, (450, 384)).astype(np.float32)
    points, rows = points_of(x, metric)
    threshold = {"euclidean": 384 * 0.01, "cosine": 0.01}[metric]
    layout = layout_of(points, threshold, "float16")
    assert layout.engine == "float16"
    near = totals(points) <= threshold
    parents = []
    for some in (points, rows):
        index, parent = gpu_tiles.build(some, layout), cupy.arange(900, dtype=np.uint32)
        taking = cupy.ones(900, bool)
        arguments = [taking, taking, parent, 0]
        gpu_tiles.pass_to(
            gpu_tiles.Sink.LINK, index, index, layout, arguments, is_self_join=True
        )
        JOINER.roots(parent)
        parents.append(parent.get())
    assert np.array_equal(*parents)
    left, right = np.nonzero(near)
    assert (
        np.array_equal(parents[0][left], parents[0][right])
        and len(np.unique(parents[0])) < 800
    )


def test_indexes_that_store_points_in_two_ways_are_not_joined():
    x = float32_rows("normal", 300, 64, np.random.default_rng(0))
    points, rows = points_of(x, "euclidean")
    layout = layout_of(points, 60.0, "float16")
    one, other = (gpu_tiles.build(some, layout) for some in (points, rows))
    with pytest.raises(TypeError, match="same way"):
        next(gpu_tiles.batches(one, other, layout, is_self_join=False))


@pytest.mark.parametrize("dims", [256, 2048])
def test_many_pairs_in_batches(monkeypatch, dims):
    """The kernel stops when the buffer is full, and goes on there; also if clusters
    share queries.
    """
    x = float32_rows("normal", 6000, dims, np.random.default_rng(0))
    points, rows = points_of(x, "cosine")
    layout = layout_of(points, 2.0, "float16")
    found = []
    monkeypatch.setattr(gpu_tiles, "BATCH", 1 << 20)
    for some in (points, rows):
        index = gpu_tiles.build(some, layout)
        places = [
            f.places.copy()
            for f in gpu_tiles.batches(index, index, layout, is_self_join=True)
        ]
        keys = [p.astype(cupy.int64)[:, 0] * 6000 + p[:, 1] for p in places]
        found.append(cupy.sort(cupy.concatenate(keys)))
        assert len(places) > 3
    assert same_bits(*found)
