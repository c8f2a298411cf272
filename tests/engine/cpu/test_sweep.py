"""The row sweep's index, and pairs at the ends of windows, rows and arrays."""

import numpy as np
import pytest

from dask_simjoin.engine import process
from dask_simjoin.engine.cpu import sorting
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.index import grids
from dask_simjoin.planning.sample import moments
from tests.support.oracle import assert_same_pairs, brute_force


def layout_of(x, eps):
    m = moments(x)
    return JOINER.layout("sweep", m.lower, m.upper, m.mean, m.variance, eps * eps)


def uniform(rng, n, d):
    return rng.uniform(size=(n, d))


def alike(rng, n, d):
    """One point far away: most of the others have one fixed-point value."""
    x = rng.uniform(size=(n, d))
    x[0] = 1e20
    return x


def few_values(rng, n, d):
    return rng.integers(0, 3, (n, d)).astype(float)


def ulps(rng, n, d):
    """Neighbouring numbers, which share fixed-point values, beside wide ones."""
    x = 1.0 + rng.integers(0, 40, (n, d)) * 2.0**-52
    x[: n // 2] += rng.uniform(0, 1e6, (n // 2, d))
    return x


def enormous(rng, n, d):
    return rng.uniform(-1, 1, (n, d)) * 1.7e308


@pytest.mark.parametrize("points", [uniform, alike, few_values, ulps, enormous])
@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@pytest.mark.parametrize(("order", "threads"), [("C", 1), ("F", 1), ("F", 2), ("F", 7)])
def test_the_index_is_that_of_numpy(points, dims, order, threads, monkeypatch):
    monkeypatch.setattr(sorting, "MIN_PART", 100)
    monkeypatch.setattr(process, "MIN_PART", 100)
    x = np.asarray(points(np.random.default_rng(dims), 5000, dims), order=order)
    for eps in (1e-3, 0.3):
        layout = layout_of(x, eps)
        built, expected = (
            JOINER.build(x, layout, threads),
            grids.build(x, layout.grid, SWEEP_LANES),
        )
        for name in ("cols", "keys", "starts"):
            assert np.array_equal(built[name], expected[name]), name
        assert {name: part.dtype for name, part in built.items()} == {
            name: part.dtype for name, part in expected.items()
        }
        places = built["order"][: len(x)]  # of equal points any may come first
        assert sorted(places.tolist()) == list(range(len(x)))
        assert np.array_equal(x[places].T, built["cols"][:, : len(x)])


@pytest.mark.parametrize("near", [1, 7, 15, 16, 17, 31, 32, 33, 100])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 50])
def test_windows_of_any_length(n, near):
    """`near` points on either side, and then none for a while; rows end with the
    arrays.
    """
    x = np.concatenate([np.arange(n), 10 * n + np.arange(near) / near, [1e3]])
    x = np.random.default_rng(near).permutation(np.stack([x, np.zeros(len(x))], axis=1))
    for eps in (0.5, 1.0, float(n)):
        layout = layout_of(x, eps)
        index = JOINER.build(x, layout)
        expected = brute_force(x, eps)
        labels = np.arange(len(x), dtype=np.int64)[index["order"][: len(x)]] * 10
        found = JOINER.pairs(
            index,
            index,
            layout,
            is_self_join=True,
            labels=(labels, labels),
            distance=np.sqrt,
        )
        pairs = [
            (a // 10, b // 10)
            for a, b in zip(found.left.tolist(), found.right.tolist(), strict=True)
        ]
        assert len(set(pairs)) == len(pairs)
        assert_same_pairs(set(pairs), expected)
        away = [float(np.sqrt((x[a, 0] - x[b, 0]) ** 2)) for a, b in pairs]
        assert found.distance.tolist() == away
        counts = JOINER.counts(index, index, layout, is_self_join=True)[0]
        places = np.array(sorted(expected), np.int64).reshape(-1)
        assert counts.tolist() == np.bincount(places, minlength=len(x)).tolist()
        weights = JOINER.weights(index, index, layout, is_self_join=True)
        assert weights.sum() == len(expected)
        parts = [
            JOINER.weights(index, index, layout, is_self_join=True, rows=rows)
            for rows in ((0, near), (near, len(x)))
        ]
        assert np.concatenate(parts).tolist() == weights.tolist()


@pytest.mark.parametrize("enough", [1, 3, 40])
@pytest.mark.parametrize("dims", [1, 3])
def test_counts_that_may_stop_early(enough, dims):
    rng = np.random.default_rng(enough)
    x, y = (rng.integers(0, 9, (n, dims)) / 8 for n in (300, 200))
    layout = layout_of(x, 0.25)
    q, d = (JOINER.build(side, layout) for side in (x, y))
    own = JOINER.counts(q, q, layout, is_self_join=True)[0]
    some = JOINER.counts(q, q, layout, is_self_join=True, enough=enough)[0]
    assert (np.minimum(some, enough) == np.minimum(own, enough)).all()
    both = JOINER.counts(q, d, layout, is_self_join=False)
    found = JOINER.counts(q, d, layout, is_self_join=False, enough=enough)
    for one, true in zip(found, both, strict=True):
        assert (np.minimum(one, enough) == np.minimum(true, enough)).all()
    for rows in ((0, 100), (100, 300)):
        how = {"is_self_join": False, "rows": rows}
        exact = JOINER.weights(q, d, layout, **how)
        weights = JOINER.weights(q, d, layout, enough=enough, **how)
        assert (np.minimum(weights, enough) == np.minimum(exact, enough)).all()
