"""The layout of a join with gates describes the layout of its candidates, and arrays
have the totals of the kernel.
"""

import itertools
import math

import numpy as np
import pytest

from dask_simjoin.engine.cpu.gated import rules_of
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.kernels import gates as kernels
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.gated import GatedLayout, PairsSearch, totals_of
from dask_simjoin.metrics.formulas import (
    BRAY_CURTIS,
    CANBERRA,
    DIFFERENCES,
    HAMMING,
)
from dask_simjoin.metrics.gates import Compared, Gates


def test_it_has_the_properties_of_the_layout_of_candidates():
    box = np.zeros(2), np.ones(2), np.full(2, 0.5), np.full(2, 0.1)
    inner = JOINER.layout("sweep", *box, 0.25)
    found = GatedLayout(inner, Gates(), 0.1, Compared())
    for name in ("method", "norm", "threshold", "grain"):
        assert getattr(found, name) == getattr(inner, name)
    assert found.in_words(str) == inner.in_words(str)
    search = PairsSearch(found)
    assert (search.method, search.norm) == (inner.method, inner.norm)


@pytest.mark.parametrize(
    ("formula", "norm"),
    [
        *itertools.product([DIFFERENCES], [1, 2, 3, math.inf]),
        *itertools.product([HAMMING, CANBERRA, BRAY_CURTIS], [1]),
    ],
)
def test_totals_of_arrays_are_those_of_the_kernel(formula, norm):
    rng = np.random.default_rng(formula)
    # the last column has groups
    left, right = (
        np.column_stack([rng.choice([0.0, 0.1, 1 / 3, 2.0, 2.9], (50, 3)), group])
        for group in rng.integers(0, 2, (2, 50))
    )
    box = (3.0, 0.0, 2.95) if formula == DIFFERENCES else ()
    compared = Compared(numbers=3, coordinates=5, box=box, formula=formula)
    none = np.empty((50, 0), np.int64)
    sides = (kernels.Values(y, none, none.view(np.float64)) for y in (left, right))
    i, j = (each.ravel().astype(np.int32) for each in np.indices((50, 50)))
    near, totals = np.empty(2500, np.int32), np.empty(2500)
    lengths = np.array([*(box or (0.0,) * 3), 0.0])
    terms = kernels.Terms(formula, 3, lengths)
    how = rules_of(Gates()), terms, math.inf, kind_of(norm)
    assert kernels.decide(*sides, *how, i, j, near, totals) == 2500
    columns = zip(left[i].T, right[j].T, strict=True)
    found = totals_of(columns, compared, norm)
    assert np.array_equal(found, totals)
