"""The GPU's joins by k-means clusters without a GPU: driver, and CUDA C++ compiled for
the host.
"""

import importlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.gpu.sources import Sink
from dask_simjoin.engine.index.gpu import HOST
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.papers.cluster_index import labels_of
from dask_simjoin.papers.cpu import kmeans as on_cpu
from dask_simjoin.papers.lists import INNER, WINDOWS, KMeans
from dask_simjoin.planning.sample import moments
from tests.support import host_gpu
from tests.support.host_fibers import fibers_like_cupy
from tests.support.method_checks import check_kernels, check_ties, found_of
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import a_distance, make_points
from tests.support.profiles import chosen


@pytest.fixture(scope="module")
def device(kernel_folder):
    with fibers_like_cupy(kernel_folder) as cupy:
        kmeans = importlib.import_module("dask_simjoin.papers.gpu.kmeans")
        kmeans.BUILDER = replace(
            HOST, order=lambda *given: HOST.order(*given).view(host_gpu.Array)
        )
        yield cupy, kmeans


def wide(x):
    """The same points in 20 dimensions, so that few kernels are compiled."""
    return np.column_stack([x, np.zeros((len(x), 20 - x.shape[1]))])


def laid_out(x, eps, options, kmeans, norm=2):
    x = np.asarray(x, float)
    m = moments(x)
    threshold = eps**2 if norm == 2 else eps
    return kmeans.layout(
        options,
        m.lower,
        m.upper,
        m.mean,
        m.variance,
        threshold,
        norm,
        JoinSample(x, x, len(x)),
    )


SIZES = list(enumerate((1, 161, 64, 65, 150)))
EVERY = list(itertools.product([2, 16, 20], WINDOWS, INNER, ["float32", "float64"]))
FEW = [
    (20, "one-sided", "tiles", "float32"),
    (20, "two-sided", "nested_loop", "float64"),
]


@pytest.mark.parametrize(
    ("dims", "windows", "inner", "precision"), chosen(EVERY, FEW[:1])
)
def test_pairs_are_those_of_the_definition(device, dims, windows, inner, precision):
    cupy, kmeans = device
    rng = np.random.default_rng(dims)
    for n, rows in chosen(SIZES, SIZES[3:4]):
        kind = ("clusters", "duplicates", "lattice", "clusters", "offset")[n % 5]
        x = make_points(kind, rows, dims, rng)
        eps = a_distance(x, rng, (0.05, 0.3)[n % 2], n % 3 - 1)
        options = KMeans(
            clusters=(1, 70, 9, 5, 3)[n],
            windows=windows,
            inner=inner,
            precision=precision,
            buffer=(10**8, 64)[n % 2],
            streams=1 + n % 3,
        )
        layout = laid_out(x, eps, options, kmeans)
        assert (layout.bounds is None) == (precision == "float64" or eps < 1e-100)
        cuts = sorted({0, min(63, rows), min(97, rows), rows})
        check_kernels(kmeans, x, eps, layout, cuts, rows // 3, cupy.asarray)


@pytest.mark.slow
@pytest.mark.parametrize("norm", chosen([1, 3, float("inf")], [1]))
def test_other_norms(device, norm):
    cupy, kmeans = device
    x = wide(np.random.default_rng(0).uniform(size=(200, 2)))
    m = moments(x)
    threshold = 0.1**norm if norm == 3 else 0.1
    for windows in WINDOWS:
        layout = kmeans.layout(
            KMeans(clusters=9, windows=windows),
            m.lower,
            m.upper,
            m.mean,
            m.variance,
            threshold,
            norm,
            JoinSample(x, x, 200),
        )
        assert layout.bounds is None and len(layout.centers) == 9
        index = kmeans.build(cupy.asarray(x), layout)
        expected = brute_force(x, 0.1, "minkowski", norm)
        assert_same_pairs(found_of(kmeans, index, index, layout, True), expected)


@pytest.mark.slow
def test_labels_and_what_is_told_are_the_cpus(device):
    cupy, kmeans = device
    x = wide(make_points("clusters", 300, 2, np.random.default_rng(5)))
    for windows in WINDOWS:
        options = KMeans(clusters=70, windows=windows, precision="float64")
        layout = laid_out(x, 0.05, options, kmeans)
        index = kmeans.build(cupy.asarray(x), layout)
        m = moments(x)
        same = JOINER.layout(
            options,
            m.lower,
            m.upper,
            m.mean,
            m.variance,
            0.05**2,
            2,
            JoinSample(x, x, 300),
        )
        own = on_cpu.build(x, same)
        assert index["starts"].tolist() == own["starts"].tolist()
        totals = [np.empty(300), np.empty(300)]
        for total, side in zip(totals, (index, own), strict=True):
            total[side["order"][:300]] = side["totals"]
        assert totals[0].tolist() == totals[1].tolist()
        assert kmeans.layout_stats(index, layout) == on_cpu.layout_stats(own, same)


def test_without_copies_pairs_of_two_clusters_are_left_out(device):
    cupy, kmeans = device
    x = wide(make_points("clusters", 150, 2, np.random.default_rng(7)))
    options = KMeans(clusters=9, windows="two-sided")
    layout = options.approximate_layout(laid_out(x, 0.1, options, kmeans))
    index = kmeans.build(cupy.asarray(x), layout)
    label = labels_of(index, layout, cupy)
    every = brute_force(x, 0.1)
    expected = {(a, b) for a, b in every if label[a] == label[b]}
    assert expected < every
    assert_same_pairs(found_of(kmeans, index, index, layout, True), expected)
    some, rest = (kmeans.build(cupy.asarray(part), layout) for part in (x[:50], x[50:]))
    across = {(a, b - 50) for a, b in expected if a < 50 <= b}
    assert_same_pairs(found_of(kmeans, some, rest, layout, False), across)


@pytest.mark.slow
def test_few_clusters_at_a_time(device, monkeypatch):
    """So many that what is near to all of them does not fit into memory."""
    cupy, kmeans = device
    x = wide(make_points("clusters", 150, 2, np.random.default_rng(6)))
    near = importlib.import_module("dask_simjoin.papers.gpu.kmeans")
    monkeypatch.setattr(near, "BUFFER_SHARE", 1 << 34)
    for windows in ("one-sided", "two-sided"):
        layout = laid_out(x, 0.1, KMeans(clusters=140, windows=windows), kmeans)
        index = kmeans.build(cupy.asarray(x), layout)
        given = list(kmeans.lists(index, index, layout, True))
        assert [one.first for one in given[-3:]] == [0, 64, 128]
        assert_same_pairs(
            found_of(kmeans, index, index, layout, True), brute_force(x, 0.1)
        )


def test_sinks_tie_what_pairs_tie(device):
    cupy, kmeans = device
    x = wide(np.random.default_rng(1).exponential(1.0, (150, 2)))
    layout = laid_out(x, 0.1, KMeans(clusters=12), kmeans)
    check_ties(kmeans, Sink.LINK, x, 0.1, layout, cupy)


def test_no_rows(device):
    cupy, kmeans = device
    x = wide(np.random.default_rng(1).uniform(size=(20, 2)))
    layout = laid_out(x, 0.1, KMeans(clusters=3), kmeans)
    some, none = (kmeans.build(cupy.asarray(part), layout) for part in (x, x[:0]))
    for q, d in ((some, none), (none, some)):
        assert found_of(kmeans, q, d, layout, False) == set()
        assert [len(c) for c in kmeans.count(q, d, layout, is_self_join=False)] == [
            len(q["y"]),
            len(d["y"]),
        ]
    assert len(kmeans.count(none, none, layout, is_self_join=True)[0]) == 0
