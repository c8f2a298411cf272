"""Unit vectors of degrees and chords of distances, against decimals of 60 digits."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from dask_simjoin.metrics import sphere
from tests.metrics.test_distances import HALF, INF, NAN
from tests.support.oracle import brute_force, distances

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


def true_sine(degrees):
    """Of a Decimal, to 50 digits."""
    quarter = (degrees / 90).to_integral_value()
    x = (degrees - 90 * quarter) * PI / 180
    sine = term = x
    for k in range(2, 80, 2):
        term *= -x * x / (k * (k + 1))
        sine += term
    cosine = (1 - sine * sine).sqrt()
    return (sine, cosine, -sine, -cosine)[int(quarter) % 4]


def test_sines_and_cosines_are_right_to_less_than_a_unit_in_the_last_place():
    rng = np.random.default_rng(0)
    some = [
        rng.uniform(-180, 180, 800),
        rng.uniform(-1, 1, 300) * 10.0 ** rng.uniform(-20, 1, 300),
        np.arange(-180.0, 181.0, 15),
        90 - 10.0 ** rng.uniform(-14, 0, 60),
        45 + rng.uniform(-1, 1, 60) * 1e-3,
        np.nextafter([45.0, 90, 135, 180, 0], 0),
        np.nextafter([45.0, 90, 135, 0], 180),
    ]
    degrees = np.concatenate(some)
    sine, cosine = sphere.sine_cosine(degrees, np)
    with localcontext(prec=50):
        for x, *found in zip(
            degrees.tolist(), sine.tolist(), cosine.tolist(), strict=True
        ):
            for value, turned in zip(found, (0, 90), strict=True):
                want = true_sine(Decimal(x) + turned)
                unit = Decimal(math.ulp(float(want)))
                assert abs(Decimal(value) - want) < Decimal("0.8") * unit, x


def test_whole_right_angles_are_exact():
    sine, cosine = sphere.sine_cosine(np.array([-180.0, -90, -0.0, 0, 90, 180]), np)
    assert sine.tolist() == [0, -1, 0, 0, 1, 0]
    assert cosine.tolist() == [-1, 0, 1, 1, 0, -1]
    assert (
        not np.signbit(sine[[0, 2, 3, 5]]).any()
        and not np.signbit(cosine[[1, 4]]).any()
    )


def test_equal_places_have_equal_vectors():
    lon = np.array([0.0, -0.0, 12.5, -180, 180, 77.7])
    for lat in (90.0, -90.0):
        poles = sphere.unit_vectors(np.stack([np.full(6, lat), lon], axis=1), np)
        assert {row.tobytes() for row in poles} == {
            np.array([0.0, 0.0, lat / 90]).tobytes()
        }
    for lat in (0.0, -0.0, 51.3, -89.999):
        a, b = sphere.unit_vectors(np.array([[lat, -180.0], [lat, 180.0]]), np)
        assert a.tobytes() == b.tobytes()
    zero = sphere.unit_vectors(
        np.array([[0.0, 0.0], [-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0]]), np
    )
    assert {row.tobytes() for row in zero} == {np.array([1.0, 0.0, 0.0]).tobytes()}


def test_blocks_of_places_change_nothing(monkeypatch):
    x = np.random.default_rng(0).uniform(-1, 1, (100, 2)) * [90, 180]
    want = sphere.unit_vectors(x, np)
    monkeypatch.setattr(sphere, "IN_CACHE", 7)
    assert sphere.unit_vectors(x, np).tolist() == want.tolist()


def test_what_is_no_place_becomes_nan_or_stays_finite():
    rows = np.array(
        [[NAN, 0.0], [0, INF], [-INF, 0], [91, 0], [1e300, -1e308], [0, 200]]
    )
    assert (
        np.isfinite(sphere.unit_vectors(rows, np)).all(axis=1).tolist()
        == [False] * 3 + [True] * 3
    )


def true_chord(distance):
    """Its square, rounded once."""
    with localcontext(prec=60):
        angle = Decimal(distance) / Decimal(sphere.RADIUS)
        term, total = Decimal(-2), Decimal(0)
        for k in range(1, 81, 2):
            term *= -angle * angle / (k * (k + 1))
            total += term
        return float(total)


def test_thresholds_on_the_sphere_are_rounded_once():
    rng = np.random.default_rng(0)
    some = [
        [0, 5e-324, 1e-160, 1e-140, 1000.0, HALF * 0.999999],
        rng.uniform(0, HALF, 500),
    ]
    metres = np.concatenate([*some, 10.0 ** rng.uniform(-12, 7, 500)])
    found = sphere.squared_chord(metres)
    assert found.tolist() == [true_chord(value) for value in metres.tolist()]
    assert found[:9].tolist() == [
        sphere.squared_chord(value) for value in metres[:9].tolist()
    ]


def test_thresholds_on_the_sphere():
    square = sphere.squared_chord
    assert square(0.0) == 0.0
    for eps in (1e-3, 1.0, 1234.5, 1e6, 1e7, 2e7):
        assert square(eps) == pytest.approx(
            4 * math.sin(eps / (2 * sphere.RADIUS)) ** 2, rel=1e-14
        )
        near = [math.nextafter(eps, 0), eps, math.nextafter(eps, INF)]
        assert sorted(map(square, near)) == [square(some) for some in near]
        assert sphere.arcs(np.array([square(eps)]), np)[0] == pytest.approx(
            eps, rel=1e-8, abs=1e-12
        )
    assert square(HALF * (1 - 1e-12)) <= 4 < square(HALF * (1 + 1e-12)) == square(1e300)


def test_known_distances_on_the_sphere():
    x = np.array(
        [[0.0, 0.0], [0, 180], [90, 5], [-90, 0], [0, 90], [0, -90], [0, 1], [60, 1]]
    )
    found = distances(x, x, "haversine")
    # the chords of the last 0.1 m are all rounded to a diameter
    assert found[0, 1] == found[2, 3] == found[4, 5] == pytest.approx(HALF, rel=5e-9)
    assert sphere.squared_chord(found[0, 1]) == 4.0
    assert (
        found[0, 2] == found[1, 3] == found[4, 0] == pytest.approx(HALF / 2, rel=1e-15)
    )
    assert found[0, 6] == pytest.approx(HALF / 180, rel=1e-14)
    assert found[6, 7] == pytest.approx(HALF / 3, rel=1e-15)
    assert (np.diag(found) == 0).all() and (found == found.T).all()
    assert len(brute_force(x, HALF, "haversine")) == 28


def test_distances_are_in_metres_of_the_mean_radius():
    """Half of the circumference, and from Paris to New York."""
    x = np.array([[0.0, 0.0], [0, 180], [48.8566, 2.3522], [40.7128, -74.006]])
    found = distances(x, x, "haversine")
    assert found[0, 1] == pytest.approx(20_015_114.442, abs=0.1)
    assert found[2, 3] == pytest.approx(5_837_241, abs=1000)
    squared = sphere.squared_chord(np.array([20_015_114.442, 1000.0]))
    assert sphere.arcs(squared, np) == pytest.approx([20_015_114.442, 1000.0], abs=0.5)
