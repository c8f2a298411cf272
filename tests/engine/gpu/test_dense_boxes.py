"""Density clusters by a tree of boxes, compiled for the host."""

import dataclasses
import importlib
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from dask_simjoin.cluster import DBSCAN
from dask_simjoin.cluster.algorithms import dbscan
from dask_simjoin.engine.cpu import joiner as cpu
from dask_simjoin.engine.index.gpu import make_device_layout
from tests.support.host_fibers import fibers_like_cupy
from tests.support.oracle import totals
from tests.support.points import frame_of, make_points
from tests.support.profiles import every_nth, in_turns


@pytest.fixture(scope="module")
def boxes(kernel_folder):
    with fibers_like_cupy(kernel_folder):
        module = importlib.import_module("dask_simjoin.engine.gpu.dense_boxes")
        module.arrays.bounds = lambda x: (x.min(axis=0), x.max(axis=0))
        yield module


def layout_for(boxes, x, threshold, norm=2, engine="auto"):
    moments = x.min(0), x.max(0), x.mean(0), x.var(0)
    tiles = make_device_layout(*moments, threshold, engine, norm=norm)
    return boxes.layout_of(np.asfortranarray(x), tiles, 2, 1)


def found_by(boxes, x, threshold, min_samples, norm=2, engine="auto"):
    """Return core points, components, and labels with borders, in the order of x.

    A label is the smallest place in a component.
    """
    x = np.asfortranarray(x)
    layout = layout_for(boxes, x, threshold, norm, engine)
    index = boxes.build(x, layout)
    order = np.asarray(index["order"])
    assert sorted(order.tolist()) == list(range(len(x)))
    found = boxes.DensityClusters(index, layout)
    core = np.asarray(found.cores(min_samples))
    parent = np.asarray(found.components())
    labels = np.where(core, parent.astype(np.int64), -1)
    assert found.borders(labels) == ()
    return order, core, parent, labels


def check(boxes, x, eps, min_samples, norm=2, engine="auto"):
    threshold = eps * eps if norm == 2 else eps
    order, core, parent, labels = found_by(
        boxes, x, threshold, min_samples, norm, engine
    )
    near = totals(x[order], x[order], "minkowski", norm) <= threshold
    want = near.sum(axis=1) >= min_samples
    np.testing.assert_array_equal(core, want)
    places = np.arange(len(x))
    _, number = connected_components(near & want & want[:, None], directed=False)
    first = np.unique(number, return_index=True)[1]
    np.testing.assert_array_equal(parent, np.where(want, first[number], places))
    around = np.where(near & want, first[number], len(x)).min(axis=1)
    border = np.where(around < len(x), around, -1)
    np.testing.assert_array_equal(labels, np.where(want, first[number], border))


@in_turns(1, dims=[1, 2, 3], engine=["float32", "float64"])
def test_any_points(boxes, dims, engine):
    for seed, (kind, n) in enumerate(
        [("uniform", 300), ("lattice", 250), ("duplicates", 200)]
    ):
        x = make_points(kind, n, dims, np.random.default_rng(seed))
        for share in (0.02, 0.1, 0.4, 3.0):
            eps = share * float(np.ptp(x, axis=0).max() or 1.0)
            for min_samples in (1, 2, 3, 6, 20, 1000):
                check(boxes, x, eps, min_samples, engine=engine)


def compile_with(constants, boxes, monkeypatch):
    """Compile the kernels with other constants."""
    program = boxes.BoxLayout.program

    def changed(self, function):
        name, function, usual = program(self, function)
        return name, function, usual | constants

    monkeypatch.setattr(boxes.BoxLayout, "program", changed)


@pytest.mark.parametrize(
    "constants", every_nth(2, [{"LEAF": 1}, {"LEAF": 32}, {"PROBED": 1}])
)
def test_sizes_of_leaves_and_few_probed_points(boxes, constants, monkeypatch):
    """With few probed points, the points of cells search one by one."""
    monkeypatch.setattr(boxes, "LEAF", constants.get("LEAF", boxes.LEAF))
    compile_with(constants, boxes, monkeypatch)
    rng = np.random.default_rng(1)
    x = rng.random((400, 3)) * [1, 1, 0.2]
    for eps in (0.05, 0.2, 0.3, 0.6):
        for min_samples in (2, 4, 30):
            check(boxes, x, eps, min_samples)


@pytest.mark.parametrize("probed", every_nth(2, [1, 16]))
def test_cells_that_only_a_few_points_connect(boxes, probed, monkeypatch):
    """No point that is probed is near the other cell, but one of the others is."""
    compile_with({"PROBED": probed}, boxes, monkeypatch)
    left, right = np.linspace(0, 0.1, 512), np.linspace(1.5, 1.6, 512)
    left[-1] = 0.8
    for apart in (0.7, 0.9):
        x = np.zeros((1024, 2))
        x[:, 0] = np.concatenate([left, right + apart - 0.7])
        check(boxes, x, 0.81, 3)
        _, _, parent, _ = found_by(boxes, x, 0.81**2, 3)
        assert len(set(parent.tolist())) == 1 + (apart > 0.81)


def test_border_points_connect_no_cells(boxes):
    """In cells with a few core points, the nearest points may be border points."""
    first = [(-0.95, 0), (0, 0), (0.9, 0), (1.8, 0), (2.7, 0)]
    second = [(0, 0), (0.9, 0), (2, -1.4), (1.8, -0.5), (1.81, 0)]
    for places, sizes in ((first, (64, 8, 8, 8, 64)), (second, (64, 8, 56, 8, 8))):
        x = np.repeat(np.array(places, float), sizes, axis=0)
        check(boxes, x, 1.0, 40)
        _, core, parent, _ = found_by(boxes, x, 1.0, 40)
        assert (~core).sum() == 8 and len(set(parent[core].tolist())) == 2


@pytest.mark.parametrize("norm", every_nth(2, [1, 3, math.inf]))
def test_norms(boxes, norm):
    x = np.random.default_rng(2).random((250, 2))
    for min_samples in (1, 2, 7):
        for eps in (0.02, 0.05, 0.3):
            check(boxes, x, eps**3 if norm == 3 else eps, min_samples, norm)


@pytest.mark.parametrize("shift", [0.0, 1e6, 2.0**60])
def test_distances_of_exactly_eps(boxes, shift):
    """Also far from the origin, where float32 does not tell points apart."""
    x = np.array(np.meshgrid(*[np.arange(7.0)] * 3)).reshape(3, -1).T
    x = x * max(1.0, shift * 2.0**-52) + shift
    for eps in (1.0, math.nextafter(1.0, 0), math.sqrt(2), math.sqrt(3), 2.0):
        for min_samples in (2, 5, 27):
            check(boxes, x, eps * float(np.ptp(x[:, 0])) / 6, min_samples)


@pytest.mark.parametrize(("dims", "bits"), [(1, 6), (2, 4), (3, 3)])
def test_consecutive_points_are_neighbors(boxes, dims, bits, monkeypatch):
    """A Hilbert curve goes through a grid by steps from a cell to one beside it. It also
    does so if several sorts make it.
    """
    axes = np.meshgrid(*[np.arange(2.0**bits)] * dims)
    x = np.random.default_rng(dims).permutation(np.reshape(axes, (dims, -1)).T)
    # the cells of the curve are those of the grid
    layout = dataclasses.replace(
        layout_for(boxes, x, 1.0), bits=bits, side=2.0**bits, low=(0.0,) * dims
    )
    orders = []
    for most in (bits, 1, 2):
        monkeypatch.setattr(boxes, "_bits_per_sort", lambda n, dims, most=most: most)
        order = np.asarray(boxes.build(np.asfortranarray(x), layout)["order"])
        assert (np.abs(np.diff(x[order], axis=0)).sum(axis=1) == 1).all()
        orders.append(order.tolist())
    assert orders[1:] == orders[:1] * 2


def test_a_far_point(boxes, monkeypatch):
    """It leaves few bits of a key to the others."""
    x = np.random.default_rng(3).normal(size=(300, 3))
    x[17] = 1e6
    for bits in (2, 7, 31):
        monkeypatch.setattr(boxes, "_bits_per_sort", lambda n, dims, bits=bits: bits)
        assert layout_for(boxes, x, 0.04).bits == min(31, -(-24 // bits) * bits)
        check(boxes, x, 0.2, 4)


def test_equal_points_make_one_cell(boxes):
    """The first of them is the only one that searches."""
    x = np.full((3000, 2), 0.1)
    x[2900:] += 5
    order, core, parent, _ = found_by(boxes, x, 0.01, 5)
    assert core.all() and set(parent[:2900]) == {0} and set(parent[2900:]) == {2900}
    assert order.tolist() == list(range(3000))
    x[:] = 0.1
    assert set(found_by(boxes, x, 0.0, 2)[2].tolist()) == {0}


def test_constant_columns_and_few_rows(boxes):
    x = np.random.default_rng(4).random((100, 3))
    x[:, 1] = -7.25
    check(boxes, x, 0.1, 4)
    for rows in (1, 2, 8, 9):
        for min_samples in (1, 2, 3):
            check(boxes, x[:rows], 0.3, min_samples)


def test_what_joins_do_instead(boxes):
    """More columns, and points that the bits of a coordinate do not tell apart."""
    x = np.random.default_rng(5).random((50, 4))
    assert layout_for(boxes, x, 0.01) is None
    assert layout_for(boxes, x[:, :3], 0.01) is not None
    assert layout_for(boxes, x[:, :3], 1e-22) is None
    assert layout_for(boxes, x[:, :3], math.inf) is None
    tiles = layout_for(boxes, x[:, :3], 0.01).tiles
    wide = np.asfortranarray([[-1e308] * 3, [1e308] * 3])
    assert boxes.layout_of(wide, tiles, 2, 1) is None
    assert boxes.layout_of(x[:0, :3], None, 2, 1) is None


def test_verbs(boxes, monkeypatch):
    """Verbs of pandas frames that use boxes give the same results as without them."""

    def layout_of(x, joined, min_samples, threads):
        return layout_for(boxes, x, joined.threshold, joined.norm)

    rng = np.random.default_rng(6)
    x = np.concatenate([rng.normal(size=(300, 3)), rng.normal(size=(200, 3)) * 0.02])
    x[17, 1] = np.nan
    frame = frame_of(rng.permutation(x)).sample(frac=1, random_state=0)

    def results():
        for min_samples in (1, 2, 3, 9):
            yield frame.simjoin.dbscan(0.3, min_samples, dropna=True).tolist()
        fitted = DBSCAN(0.3, min_samples=4).fit(frame.dropna())
        yield fitted.labels_.tolist()
        yield fitted.core_sample_indices_.tolist()
        yield frame.simjoin.near_duplicated(0.2, keep=False, dropna=True).tolist()

    want = list(results())
    built, build = [], cpu.JOINER.build

    def build_boxes(self, x, layout, threads=1):
        if not isinstance(layout, boxes.BoxLayout):
            return build(x, layout, threads)
        built.append(layout)
        return boxes.build(x, layout)

    module = SimpleNamespace(layout_of=layout_of, DensityClusters=boxes.DensityClusters)
    monkeypatch.setattr(dbscan, "density_of", lambda array: module)
    monkeypatch.setattr(cpu.CpuJoiner, "build", build_boxes)
    assert list(results()) == want
    assert len(built) == 6
