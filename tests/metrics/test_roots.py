"""Minkowski's metric between whole powers: powers are products of roots."""

import math

import dask
import dask.dataframe as dd
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from dask_simjoin.engine.cpu.kernels.totals import Roots, kind_of
from dask_simjoin.metrics import make_metric
from dask_simjoin.metrics.norms import power, reach, reaches
from tests.support.metrics import make_rows
from tests.support.oracle import (
    as_set,
    assert_same_pairs,
    brute_force,
    distances,
    totals,
)
from tests.support.points import frame_of, without_overflow
from tests.support.profiles import examples

P = [1.5, 2.7, 1 + 2.0**-52, 17.125]


@pytest.mark.parametrize("p", P)
def test_powers_are_near_those_of_numpy(p):
    a = 10.0 ** np.random.default_rng(0).uniform(-10, 10, 1000)
    np.testing.assert_allclose(power(a, p), a**p, 1e-13)
    assert power(a, p).tolist() == [power(one, p) for one in a.tolist()]
    assert power(0.0, p) == 0 and power(1.0, p) == 1 and power(math.inf, p) == math.inf
    a = np.sort(np.concatenate([a, np.nextafter(a, 0)]))
    assert (np.diff(power(a, p)) >= 0).all()
    limits = power(a, p)
    assert (reaches(p, limits) >= a).all()
    assert [reach(p, one) >= far for one, far in zip(limits, a, strict=True)]


def test_kinds():
    assert kind_of(1.5) == Roots(1, 0, 1 << 51)
    assert kind_of(2.25) == Roots(2, 1, 1 << 50)
    assert kind_of(1 + 2.0**-52) == Roots(1, 0, 1)
    assert kind_of(5.0) == kind_of(5)


@pytest.mark.parametrize("p", P[:2])
def test_scipy_computes_the_same(p):
    x = np.random.default_rng(1).normal(size=(30, 4))
    want = cdist(x, x, "minkowski", p=p)
    np.testing.assert_allclose(distances(x, x, "minkowski", p), want, 1e-13)


@settings(max_examples=examples(60))
@given(
    p=st.sampled_from(P),
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(1, 7),
    rank=st.floats(0, 0.3),
    step=st.sampled_from([0.0, math.inf, None]),
)
def test_any_rows(p, seed, columns, rank, step):
    rows = make_rows("minkowski", 50, columns, np.random.default_rng(seed))
    x = without_overflow(rows, 18)
    away = distances(x, x, "minkowski", p)
    eps = float(np.sort(away[np.triu_indices(50, 1)])[int(rank * 1224)])
    eps = eps if step is None else math.nextafter(eps, step)
    how = {"metric": "minkowski", "p": p}
    pairs = frame_of(x).simjoin.self_join(eps, return_distance=True, **how)
    assert_same_pairs(as_set(pairs), brute_force(x, eps, "minkowski", p))
    assert pairs["distance"].tolist() == away[pairs["left"], pairs["right"]].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_counts(columns):
    x = np.random.default_rng(2).integers(0, 6, (150, columns)) / 2
    total = totals(x, x, "minkowski", 1.5)
    limit = make_metric("minkowski", 1.5).threshold(0.9)
    lazy = dd.from_pandas(frame_of(x), npartitions=3)
    for data in (frame_of(x), lazy):
        (counts,) = dask.compute(
            data.simjoin.neighbor_counts(0.9, metric="minkowski", p=1.5)
        )
        assert counts.tolist() == ((total <= limit).sum(1) - 1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [2, 5])
def test_nearest_rows(columns):
    x = np.random.default_rng(2).integers(0, 6, (150, columns)) / 2
    total = totals(x, x, "minkowski", 1.5)
    np.fill_diagonal(total, np.inf)
    nearest = frame_of(x).simjoin.knn_join(k=3, metric="minkowski", p=1.5)
    order = np.argsort(total, axis=1, kind="stable")[:, :3]
    found = nearest.sort_values(["left", "rank"])["right"].to_numpy()
    assert found.reshape(150, 3).tolist() == order.tolist()
