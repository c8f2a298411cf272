"""Bounds, means and sums of squares of columns against NumPy."""

import math

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.moments import CACHED, column_moments


@pytest.mark.parametrize("rows", [1, 7, 8, 33, CACHED + 5, 2 * CACHED])
def test_columns(rows):
    columns = np.random.default_rng(rows).normal(5, 3, (3, rows))
    bounds, mean, squares = np.empty((3, 2)), np.empty(3), np.empty(3)
    column_moments(columns, bounds, mean, squares)
    assert bounds.tolist() == [[min(column), max(column)] for column in columns.tolist()]
    for column, middle, away in zip(columns.tolist(), mean, squares, strict=True):
        want = math.fsum(column) / rows
        assert math.isclose(middle, want, rel_tol=1e-13)
        assert math.isclose(away, math.fsum((x - want) ** 2 for x in column), rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 5, 20])
def test_what_is_not_finite_shows_in_the_mean(value, row):
    columns = np.ones((2, 21))
    columns[1, row] = value
    bounds, mean, squares = np.empty((2, 2)), np.empty(2), np.empty(2)
    column_moments(columns, bounds, mean, squares)
    assert mean[0] == 1.0 and squares[0] == 0.0 and not np.isfinite(mean[1])
