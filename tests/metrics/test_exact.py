"""The definition that checks use agrees with the package, and its sines with their exact
values.
"""

import decimal
import math
from fractions import Fraction

import numpy as np
import pytest

from dask_simjoin.metrics import make_metric
from tests.support import exact, oracle
from tests.support.metrics import ENGINE, make_rows
from tests.support.points import without_overflow
from tests.support.profiles import every_nth


def sine_of(angle):
    """The sine by its series, with 60 digits."""
    with decimal.localcontext(exact.WIDE):
        term = total = angle
        for k in range(2, 90, 2):
            term = -term * angle * angle / (k * (k + 1))
            total += term
        return total


@pytest.mark.parametrize("degrees", [1e-9, 12.5, 45.0, 89.999, 134.9, -179.99, 1e-300])
def test_sines_are_right_to_a_unit_in_the_last_place(degrees):
    found = exact.sine_cosine(degrees)
    with decimal.localcontext(exact.WIDE):
        x = decimal.Decimal(degrees) * exact.PI / 180
        wanted = sine_of(x), sine_of(exact.PI / 2 - x)
    for one, want in zip(found, wanted, strict=True):
        assert abs(Fraction(one) - Fraction(want)) <= Fraction(math.ulp(one))


@pytest.mark.parametrize(
    ("metric", "p"),
    every_nth(2, [("euclidean", 2), ("minkowski", 4), ("minkowski", 2.3), *ENGINE]),
)
def test_the_package_follows_the_definition(metric, p):
    rng = np.random.default_rng(5)
    for _ in range(6):
        rows = make_rows(metric, 20, int(rng.integers(1, 8)), rng)
        x = without_overflow(rows, 3)
        total = exact.totals(x[:9], x, metric, p)
        np.testing.assert_array_equal(total, oracle.totals(x[:9], x, metric, p))
        some = rng.choice(total.ravel(), 12)
        kind = make_metric(metric, p)
        for one, away in zip(some, kind.distance(some.copy(), np), strict=True):
            assert exact.is_distance(metric, p, one, away)
            assert exact.distance_of(metric, p, one) == away
            for far in (away, math.nextafter(away, 0), math.nextafter(away, math.inf)):
                # the thresholds that everything is within may differ
                one, other = exact.threshold(metric, p, far), kind.threshold(far)
                assert one == other or (
                    metric in exact.EMBEDDED and min(one, other) >= 5
                )
