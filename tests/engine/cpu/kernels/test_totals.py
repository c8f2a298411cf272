"""Totals of every norm, term by term."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.simd import NormValue
from dask_simjoin.engine.cpu.kernels.totals import SQUARES, terms
from dask_simjoin.metrics import norms
from tests.metrics.test_norms import POWERS, totals
from tests.support.oracle import squared_distances
from tests.support.points import make_points


def test_vectors_of_a_kind_of_norm_that_nobody_wrote():
    """They are refused: else they would be those of another kind, and pairs be wrong."""

    class Ratios(NamedTuple):
        p: int

    with pytest.raises(
        NotImplementedError, match="Ratios has no vector instructions for its terms yet"
    ):
        terms(None, NormValue(Ratios, None), [])
    assert terms(None, NormValue(type(SQUARES), None), []) == []


def raised(t, p):
    """The square of the power half as high, and once more `t` where p is odd."""
    if p == 1:
        return t
    half = raised(t, p // 2)
    return half * half * t if p % 2 else half * half


@pytest.mark.parametrize("norm", POWERS)
def test_totals_are_those_of_the_package(norm):
    rng = np.random.default_rng(5)
    x = np.concatenate(
        [
            make_points(kind, 20, 6, rng)
            for kind in ("uniform", "scales", "huge", "tiny")
        ]
    )
    total = np.zeros((len(x), len(x)))
    with np.errstate(over="ignore"):
        for k in range(6):
            total = norms.add(total, np.abs(x[:, None, k] - x[None, :, k]), norm)
    np.testing.assert_array_equal(total, totals(x, x, norm))
    if norm < math.inf:
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(
                norms.power(x[:, 0], norm), raised(x[:, 0], norm)
            )
    if norm == 2:
        np.testing.assert_array_equal(total, squared_distances(x, x))
