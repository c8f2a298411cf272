"""Flags and tallies on a GPU, without what CuPy compiles for them: what NumPy says."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.engine.compat import all_of, count_of, tally

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("n", [0, 1, 100, 300_000])
def test_flags(n):
    for flags in (np.ones(n, bool), np.zeros(n, bool), np.arange(n) != n // 2):
        device = cupy.asarray(flags)
        assert all_of(device) == flags.all() == all_of(flags)
        assert count_of(device) == flags.sum() == count_of(flags)


@pytest.mark.parametrize("kind", ["uint16", "int32", "int64"])
@pytest.mark.parametrize("n", [0, 300_000])
def test_tallies(n, kind):
    places = np.random.default_rng(0).integers(0, 100, n).astype(kind)
    weights = np.arange(n, dtype=float)
    for own in (None, weights):
        found = tally(cupy.asarray(places), 101, None if own is None else cupy.asarray(own))
        told = tally(places, 101, own)
        assert found.dtype == told.dtype and found.get().tolist() == told.tolist()
