"""Flags and tallies on a GPU, without what CuPy compiles for them: what NumPy says."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.engine.compat import (
    all_of,
    all_of_rows,
    any_of,
    count_of,
    count_up,
    float32_below,
    inverse_of,
    looked_up,
    tally,
)

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("n", [0, 1, 100, 300_000])
def test_flags(n):
    for flags in (np.ones(n, bool), np.zeros(n, bool), np.arange(n) != n // 2):
        device = cupy.asarray(flags)
        assert all_of(device) == flags.all() == all_of(flags)
        assert any_of(device) == flags.any() == any_of(flags)
        assert count_of(device) == flags.sum() == count_of(flags)


@pytest.mark.parametrize("kind", ["uint16", "int32", "int64"])
@pytest.mark.parametrize("n", [0, 300_000])
def test_tallies(n, kind):
    places = np.random.default_rng(0).integers(0, 100, n).astype(kind)
    weights = np.arange(n, dtype=float)
    for own in (None, weights):
        found = tally(
            cupy.asarray(places), 101, None if own is None else cupy.asarray(own)
        )
        told = tally(places, 101, own)
        assert found.dtype == told.dtype and found.get().tolist() == told.tolist()
        if own is None:
            count_up(found, cupy.asarray(places), cupy.asarray(places[::2]))
            count_up(told, places, places[::2])
            assert found.get().tolist() == told.tolist()


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("n", [0, 1, 3000])
def test_flags_of_rows(n, order):
    flags = np.asarray(np.random.default_rng(0).uniform(size=(n, 3)) < 0.7, order=order)
    found = all_of_rows(cupy.asarray(flags, order=order))
    assert found.dtype == bool and found.get().tolist() == all_of_rows(flags).tolist()


def test_numbers_below_and_looked_up():
    rng = np.random.default_rng(0)
    values = rng.uniform(size=500) * 10.0 ** rng.integers(-50, 50, 500)
    values = np.concatenate([values, [0.0, 1e300, np.inf, -1]])
    found, want = (
        float32_below(cupy.asarray(np.stack([values] * 2, axis=1))[:, 1]).get(),
        float32_below(values),
    )
    tiny = np.abs(values) < np.finfo(np.float32).tiny
    assert found.dtype == np.float32
    assert (found <= values).all() and (found == want)[~tiny].all() and tiny.sum() > 9
    table, places = (
        np.arange(9, dtype=np.int32)[::-1].copy(),
        rng.integers(-1, 9, (50, 6)),
    )
    for kind in (np.int32, np.int64):
        some = places.astype(kind)
        found = looked_up(cupy.asarray(table), cupy.asarray(some)[:, :4])
        assert (
            found.dtype == np.int32
            and found.get().tolist() == looked_up(table, some[:, :4]).tolist()
        )
        order = rng.permutation(700).astype(kind)
        assert (
            inverse_of(cupy.asarray(order)).get().tolist() == inverse_of(order).tolist()
        )
