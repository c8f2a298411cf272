"""Distances: the smallest float whose threshold is at least a total."""

import ctypes
import math
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.kernels import distances as kernels
from dask_simjoin.metrics import inverse, make_metric
from dask_simjoin.metrics.sphere import RADIUS
from dask_simjoin.request.units import ANGLES, LENGTHS
from tests.support import host_gpu

KINDS = [
    ("euclidean", 2),
    ("sqeuclidean", 2),
    ("manhattan", 2),
    ("chebyshev", 2),
    ("minkowski", 3),
    ("minkowski", 11),
    ("minkowski", 1.5),
    ("minkowski", 2.7),
    ("minkowski", 2**31 - 1),
    ("cosine", 2),
    ("haversine", 2),
]

MOST = {"cosine": 4.000000000000001, "haversine": 4.000000000000001}
"""Largest totals of unit vectors, after rounding."""


def totals_of(name, seed, n=300):
    """Draw totals that a metric can have, many of them small, large or subnormal."""
    rng, most = np.random.default_rng(seed), MOST.get(name, np.inf)
    largest = math.log10(min(most, 1e308))
    found = [
        rng.uniform(0, min(most, 10), n),
        10.0 ** rng.uniform(-323, largest, n),
        rng.integers(0, 50, n) * 5e-324,
        np.minimum(2.0 ** rng.integers(-1074, 1024, n), most),
        np.minimum(rng.integers(0, 30, n), most).astype(float),
        min(most, 4.0) - rng.uniform(0, 1e-7, n) ** 2,
        rng.uniform(0, 0.1, n) ** 2,
    ]
    return np.concatenate(found)


def check(totals, found, threshold):
    """Fail if a result is not the smallest float whose threshold is at least the total."""
    with np.errstate(all="ignore"):
        assert (threshold(found) >= totals).all()
        less = threshold(np.nextafter(found, 0))
        assert ((less < totals) | (found == 0)).all()


@pytest.mark.skipif(not host_gpu.available(), reason="needs g++")
def test_roots_of_a_gpu(tmp_path):
    """The kernel's text, compiled for the host; it works in place."""
    totals = np.append(totals_of("euclidean", 0, 3000), [0.0, np.inf, inverse.NORMAL])
    (tmp_path / "root.cpp").write_text(
        """
        #include <cmath>
        #include <cstring>
        static double __dmul_rn(double a, double b) { return a * b; }
        static double __longlong_as_double(long long a) { double b; memcpy(&b, &a, 8); return b; }
        static long long __double_as_longlong(double a) { long long b; memcpy(&b, &a, 8); return b; }
        extern "C" void roots(long long n, double* totals) {
            for (long long i = 0; i < n; i++) {
                double &total = totals[i], &root = totals[i];
        """
        + inverse.ROOT
        + "}}"
    )
    library = tmp_path / "root.so"
    options = "-O1", "-std=c++14", "-shared", "-fPIC", "-ffp-contract=off"
    subprocess.run(["g++", *options, tmp_path / "root.cpp", "-o", library], check=True)
    found = totals.copy()
    at = ctypes.c_void_p(found.ctypes.data)
    ctypes.CDLL(str(library)).roots(ctypes.c_longlong(len(found)), at)
    np.testing.assert_array_equal(found, inverse.roots(totals, np, None))


@pytest.mark.parametrize(("name", "p"), KINDS)
@given(seed=st.integers(0, 2**32))
def test_a_distance_is_the_smallest_eps_that_finds_its_pair(name, p, seed):
    metric, totals = make_metric(name, p), totals_of(name, seed)
    found = metric.distance(totals.copy(), np)
    check(totals, found, metric.threshold)
    compiled = metric.distance(totals.copy(), np, kernels)
    assert found.tolist() == compiled.tolist()
    order = np.argsort(totals, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    one = [float(metric.distance(total, np)[0]) for total in totals[:20, None].copy()]
    assert found[:20].tolist() == one
    assert metric.distance(np.array([0.0, math.inf]), np).tolist() == [0, math.inf]
    shaped = metric.distance(totals.reshape(-1, 7).copy(), np)
    assert shaped.tolist() == found.reshape(-1, 7).tolist()


@pytest.mark.parametrize("name", ["haversine", "cosine"])
@given(seed=st.integers(0, 2**32))
def test_a_distance_in_a_unit_is_the_smallest_that_finds_its_pair(name, seed):
    metric, totals = make_metric(name), totals_of(name, seed, 60)
    totals = totals[totals > 1e-300]
    sizes = list(ANGLES.values())
    if name == "haversine":
        sizes = [*LENGTHS.values(), *(RADIUS * size for size in sizes)]
    for size in sizes:
        found = metric.in_unit(totals.copy(), size, np, kernels)
        assert found.tolist() == metric.in_unit(totals.copy(), size, np).tolist()
        check(
            totals,
            found,
            lambda some, size=size: metric.threshold(metric.from_unit(some, size)),
        )
        some = found[:5].tolist()
        assert [float(metric.from_unit(one, size)) for one in some] == metric.from_unit(
            found[:5], size
        ).tolist()


@pytest.mark.parametrize(("name", "p"), KINDS)
def test_thresholds_never_decrease(name, p):
    metric, rng = make_metric(name, p), np.random.default_rng(5)
    starts = [
        10.0 ** rng.uniform(-323, 300, 300),
        10.0 ** rng.uniform(-170, -145, 300),
        np.pi * RADIUS + rng.uniform(-1, 1, 100),
        2 + rng.uniform(-1e-15, 1e-15, 10),
    ]
    bits = np.concatenate(starts).view(np.int64)[:, None] + np.arange(40)
    with np.errstate(all="ignore"):
        found = metric.threshold(bits.view(np.float64).reshape(-1)).reshape(bits.shape)
    assert (found[:, 1:] >= found[:, :-1]).all()


@pytest.mark.parametrize(("name", "p"), KINDS)
def test_the_smallest_total_of_a_smallest_distance(name, p):
    metric, totals = make_metric(name, p), totals_of(name, 7)
    found = metric.distance(totals.copy(), np)
    for least in [0.0, 1e-9, 0.3, 3**0.5, 2.0, 20015114.0, *found[::40].tolist()]:
        if math.isfinite(metric.threshold(least)):
            near = totals >= metric.least_total(least)
            assert (near == (found >= least)).all(), least


@pytest.mark.parametrize(
    ("name", "p", "largest"),
    [
        ("euclidean", 2, 1.3407807929942596e154),
        ("minkowski", 3, 5.643803094122361e102),
        ("manhattan", 2, 1.7976931348623157e308),
        ("cosine", 2, 1.7976931348623157e308),
        ("haversine", 2, 1.7976931348623157e308),
    ],
)
def test_largest_eps(name, p, largest):
    metric = make_metric(name, p)
    assert metric.largest_eps() == pytest.approx(largest, rel=1e-14)
    assert math.isfinite(metric.threshold(metric.largest_eps()))
    above = math.nextafter(metric.largest_eps(), math.inf)
    assert not math.isfinite(metric.threshold(above)) or above == math.inf
