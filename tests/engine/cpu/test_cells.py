"""Density clusters by cells, against their definition and the other methods."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin  # noqa: F401  (registers the accessor)
from dask_simjoin.engine.cpu import cells, spanning
from dask_simjoin.engine.cpu.cells import DensityClusters, worthwhile
from dask_simjoin.engine.index.grids import MAX_DIMS, CellLayout
from tests.support.density import labels_of_neighbours
from tests.support.oracle import squared_distances, totals
from tests.support.points import cases
from tests.support.profiles import chosen, everything, examples, in_turns


def labels_by_cells(x, threshold, min_samples, threads=1, norm=2):
    """Label rows of points by cells, whether that is worthwhile or not."""
    layout = CellLayout(threshold, norm)
    index = cells.build(x, layout, threads)
    order = index["order"][: len(x)]
    found = DensityClusters(index, layout, threads)
    core = found.cores(min_samples)
    labels = spanning.numbers(found.components(), core, order, threads)
    for places, low in found.borders(labels):
        labels[places] = low
    out = np.empty_like(labels)
    out[order] = labels
    return out.tolist()


def by_definition(x, eps, min_samples):
    return labels_of_neighbours(squared_distances(x, x) <= eps * eps, min_samples)


@settings(max_examples=examples(400))
@given(cases(max_dims=MAX_DIMS, max_points=60), st.integers(1, 12), st.integers(1, 3))
def test_any_points(case, min_samples, threads):
    x = case.x[:, :MAX_DIMS].astype(float)
    if len(x):
        found = labels_by_cells(x, case.eps * case.eps, min_samples, threads)
        assert found == by_definition(x, case.eps, min_samples)


@pytest.fixture
def small_parts(monkeypatch):
    """Cut the work of few points into parts."""
    monkeypatch.setattr(cells, "MIN_PART", 20)


def points(random, kind, n, dims):
    if kind == "uniform":
        return random.random((n, dims))
    if kind == "blobs":
        return random.integers(0, 4, (n, 1)) * 0.2 + random.normal(0, 0.05, (n, dims))
    if kind == "lattice":  # many distances are exactly eps
        return random.integers(0, 8, (n, dims)) * 0.1
    if kind == "far":
        return random.random((n, dims)) * 2.0**-20 + 1e6
    if kind == "constant":
        return np.where(np.arange(dims) == 0, random.random((n, 1)), 3.0)
    return random.random((n, dims)) * 5e-324 * 2.0**30


KINDS = ("uniform", "blobs", "lattice", "far", "constant", "denormal")
UNITS = {"far": 2.0**-20, "denormal": 5e-324 * 2.0**30}


@in_turns(1, dims=[1, 2, 3, 4], kind=list(KINDS))
def test_kinds_of_points(kind, dims, small_parts):
    for seed in range(3 if everything() else 1):
        random = np.random.default_rng(seed)
        x = points(random, kind, 300, dims)
        eps = random.choice([0.1, 0.2, 0.3, 0.5]) * UNITS.get(kind, 1.0)
        for min_samples in (1, 2, 5, 20, 1000):
            want = by_definition(x, eps, min_samples)
            for threads in (1, 3):
                assert labels_by_cells(x, eps * eps, min_samples, threads) == want


@in_turns(2, norm=chosen([1, 2, 3, np.inf], [2, np.inf]), dims=[1, 2, 3, 4])
def test_norms(dims, norm, small_parts):
    random = np.random.default_rng(dims)
    x, threshold = (
        points(random, "lattice", 300, dims),
        0.2 if norm in (1, np.inf) else 0.2**norm,
    )
    metric = {1: "manhattan", 2: "euclidean", np.inf: "chebyshev"}.get(
        norm, "minkowski"
    )
    near = totals(x, x, metric, norm) <= threshold
    for min_samples in (1, 4, 30):
        want = labels_of_neighbours(near, min_samples)
        assert labels_by_cells(x, threshold, min_samples, 2, norm) == want


def test_dense_points_are_worth_cells():
    random = np.random.default_rng(0)
    x = np.asfortranarray(random.random((100_000, 3)))
    assert worthwhile(x, CellLayout(0.1**2), 10)
    assert not worthwhile(x, CellLayout(0.01**2), 10)
    assert not worthwhile(x[:0], CellLayout(0.1**2), 10)


@pytest.mark.parametrize("dims", [2, 3])
def test_plain_frames_take_cells_where_rows_are_dense(dims, monkeypatch):
    taken = []
    monkeypatch.setattr(
        cells, "build", lambda *args, build=cells.build: taken.append(1) or build(*args)
    )
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        points(random, "blobs", 3000, dims), columns=list("abc")[:dims]
    )
    found = frame.simjoin.dbscan(0.05, 5)
    assert taken == [1]
    assert found.equals(frame.simjoin.dbscan(0.05, 5, method="sweep")) and taken == [1]
    frame.simjoin.dbscan(1e-4, 5)
    assert taken == [1]
