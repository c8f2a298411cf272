"""Boxes, means and variances of points, whatever they are and however they lie in memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.planning.statistics import sample as module
from dask_simjoin.planning.statistics.sample import bounds, box, merge_moments, moments
from tests.support.profiles import examples

VALUES = [0.0, -0.0, 1.0, -3.5, 1e-310, 1e6 + 1e-3, -1e17, 1e17]


def exact(x):
    """Means and mean squared deviations with 80 bits."""
    x = np.asarray(x, np.longdouble)
    mean = x.mean(axis=0)
    return mean, ((x - mean) ** 2).sum(axis=0)


@settings(max_examples=examples(150))
@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 2**32), st.sampled_from("CF"))
def test_moments(n, d, seed, order):
    random = np.random.default_rng(seed)
    x = np.array(random.choice(VALUES, (n, d)), order=order)
    found = moments(x)
    np.testing.assert_array_equal(found.lower, x.min(axis=0))
    np.testing.assert_array_equal(found.upper, x.max(axis=0))
    mean, squares = exact(x)
    size = np.abs(x).max(axis=0)
    assert (np.abs(found.mean - mean) <= 1e-14 * size + 1e-300).all()
    assert (np.abs(found.squares - squares) <= 1e-12 * n * size**2 + 1e-300).all()
    assert box(x) == box(x[::-1]) == box(np.asfortranarray(x)) == box(x + 0.0)


@pytest.mark.parametrize("rows", [1, 2047, 2048, 2049, 2051, 4097, 30_001])
def test_blocks_of_rows_give_what_all_give(rows):
    x = np.asfortranarray(np.random.default_rng(rows).normal(1e6, 1, (rows, 3)))
    found, (mean, squares) = moments(x), exact(x)
    np.testing.assert_allclose(found.mean, mean.astype(float), rtol=1e-15)
    np.testing.assert_allclose(found.squares, squares.astype(float), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal([found.lower, found.upper], [x.min(axis=0), x.max(axis=0)])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 3, 9])
def test_what_is_not_finite_shows_in_the_box(value, row):
    x = np.asfortranarray(np.random.default_rng(0).uniform(size=(10, 3)))
    x[row, 1] = value
    lower, upper = bounds(x)
    np.testing.assert_array_equal([lower, upper], [x.min(axis=0), x.max(axis=0)])
    assert not np.isfinite([moments(x).lower[1], moments(x).upper[1]]).all()
    assert np.isfinite([moments(x).lower[[0, 2]], moments(x).upper[[0, 2]]]).all()


def test_sums_may_overflow():
    x = np.full((5, 2), 1.7e308)
    x[0, 1] = -1.7e308
    for order in "CF":
        found = moments(np.array(x, order=order))
        np.testing.assert_allclose(found.mean, [1.7e308, 1.02e308])
        np.testing.assert_array_equal(found.upper, [1.7e308] * 2)
    assert moments(np.empty((0, 2))).rows == 0


def test_the_kernel_is_what_tells_them(monkeypatch):
    """Array expressions are for what it does not tell."""
    monkeypatch.setattr(module, "_bounds", None)
    assert moments(np.asfortranarray([[0.0, 3.0], [1.0, 5.0]])).mean.tolist() == [0.5, 4.0]
    with pytest.raises(TypeError):
        moments(np.full((3, 2), np.nan, order="F"))


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 9), min_size=1, max_size=13), st.integers(0, 2**32))
def test_parts_give_what_all_give(sizes, seed):
    """However many parts there are, and however many of them are empty."""
    x = np.random.default_rng(seed).normal(1e3, 1, (sum(sizes), 2))
    parts = [moments(part) for part in np.split(x, np.cumsum(sizes)[:-1])]
    found, all_ = merge_moments(parts), moments(x)
    assert found.rows == len(x)
    np.testing.assert_array_equal([found.lower, found.upper], [all_.lower, all_.upper])
    mean, squares = exact(x) if len(x) else (np.zeros(2), np.zeros(2))
    np.testing.assert_allclose(found.mean, mean.astype(float), rtol=1e-14)
    np.testing.assert_allclose(found.squares, squares.astype(float), rtol=1e-9, atol=1e-6)
