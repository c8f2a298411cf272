"""What arrays of both libraries are asked for: numbers rounded down, places that may be none, inverses."""

import numpy as np
import pytest

from dask_simjoin.engine.compat import float32_below, inverse_of, looked_up


def test_what_is_rounded_down_is_the_largest_that_is_not_above():
    rng = np.random.default_rng(0)
    values = rng.normal(size=2000) * 10.0 ** rng.integers(-60, 60, 2000)
    values = np.concatenate([values, [0.0, 1.0, -1.0, 3.5e38, 1e300, np.inf]])
    found = float32_below(values)
    assert found.dtype == np.float32
    assert (found <= values).all()
    with np.errstate(over="ignore"):
        assert (np.nextafter(found, np.float32(np.inf)) > values)[:-1].all()
    assert found[-1] == np.inf


@pytest.mark.parametrize("rows", [0, 3])
def test_places_of_none(rows):
    table = np.arange(10, 10 + rows, dtype=np.int32)
    places = np.array([[-1, -1], [rows - 1, -1]])
    found = looked_up(table, places)
    assert found.dtype == np.int32
    assert found.tolist() == [[-1, -1], [12 if rows else -1, -1]]


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_where_numbers_are(kind):
    found = inverse_of(np.array([2, 0, 3, 1], kind))
    assert found.dtype == np.int32 and found.tolist() == [1, 3, 0, 2]
