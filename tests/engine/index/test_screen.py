"""By which dimensions candidates are looked through first: few of the wide; any give
the same pairs.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.index import cpu_tiles
from dask_simjoin.engine.index.screen import JoinSample, Screen, make_screen
from dask_simjoin.planning.sample import moments
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import cases
from tests.support.profiles import examples, pairwise


def drawn(x, rows=None):
    return JoinSample(x, x, rows or len(x))


def screen_of(x, eps, rows=None):
    found = moments(x)
    return make_screen(
        found.lower, found.upper, found.variance, eps * eps, drawn(x, rows)
    )


def unlike(n, narrow, rng, wide=2, width=100.0):
    return np.column_stack(
        [rng.uniform(size=(n, narrow)), rng.uniform(0, width, (n, wide))]
    )


def test_the_widest_dimensions_are_taken_in_their_order():
    x = np.random.default_rng(0).uniform(size=(3000, 6)) * [1, 300, 1, 1, 400, 1]
    screen = screen_of(x, 1.0)
    assert screen.dims == (1, 4)
    assert screen.rest == pytest.approx(4, rel=0.01)


def test_alike_dimensions_are_compared_at_once():
    rng = np.random.default_rng(0)
    assert screen_of(rng.uniform(size=(3000, 8)), 0.4) is None
    assert screen_of(rng.uniform(size=(3000, 2)) * [1, 1000], 0.4) is None
    x = rng.uniform(size=(3000, 6))
    assert make_screen(x.min(0), x.max(0), x.var(0), 1.0, None) is None


def test_many_open_candidates_are_no_work_for_all_dimensions():
    """Of many more rows the same sample stands for more candidates."""
    x = unlike(4000, 6, np.random.default_rng(1))
    assert screen_of(x, 1.0, 4000) is not None
    assert screen_of(x, 1.0, 10_000_000) is None


@pairwise(
    offset=[0.0, 1e7], narrow=[2, 5, 14], width=[0.01, 0.7, 1.0], scale=[1.0, 1e-6, 1e6]
)
def test_pairs_are_those_of_the_definition(narrow, width, scale, offset):
    """In float32 and in float64, where what is left may add more or less than eps, and
    ties at eps.
    """
    rng = np.random.default_rng(narrow)
    x = unlike(700, narrow, rng) * scale
    x[:, :narrow] *= width
    # lattice: distances that are eps
    x[::7, narrow:] = np.round(x[::7, narrow:] / scale) * scale
    x[::7, :narrow] = 0
    x = np.concatenate([x, x[:100]]) + offset * scale
    for eps in (1.0 * scale, math.sqrt(2) * scale, 3.0 * scale):
        found = moments(x)
        moment = found.lower, found.upper, found.mean, found.variance
        layout = JOINER.layout("tiles", *moment, eps * eps, 2, drawn(x))
        assert layout.screen is not None
        index = JOINER.build(x, layout)
        pairs = JOINER.pairs(index, index, layout, is_self_join=True)
        expected = brute_force(x, eps)
        assert_same_pairs(
            set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)), expected
        )
        half = JOINER.build(x[:400], layout), JOINER.build(x[400:], layout)
        found = JOINER.pairs(*half, layout, is_self_join=False)
        across = {
            (i, j + 400)
            for i, j in zip(found.left.tolist(), found.right.tolist(), strict=True)
        }
        assert_same_pairs(across, {(i, j) for i, j in expected if i < 400 <= j})
        counts = JOINER.counts(index, index, layout, is_self_join=True)[0]
        assert counts.sum() == 2 * len(expected)


def test_narrow_dimensions_leave_little_open():
    """Two points are a pair for sure where the wide columns leave room for all that the
    others can add.
    """
    rng = np.random.default_rng(5)
    x = unlike(2000, 3, rng, width=60.0)
    x[:, :3] *= 0.01
    found = moments(x)
    layout = JOINER.layout(
        "tiles", found.lower, found.upper, found.mean, found.variance, 4.0, 2, drawn(x)
    )
    assert layout.screen.dims == (3, 4) and layout.filter is not None
    index = JOINER.build(x, layout)
    pairs = JOINER.pairs(index, index, layout, is_self_join=True)
    assert pairs.decided < len(pairs.left) / 50


@settings(max_examples=examples(300))
@given(case=cases(max_dims=24), seed=st.integers(0, 2**32 - 1))
def test_any_dimensions_may_be_first(case, seed):
    x = case.x.astype(np.float64)
    if len(x) < 2 or x.shape[1] < 2:
        return
    rng = np.random.default_rng(seed)
    dims = np.sort(rng.permutation(x.shape[1])[: rng.integers(1, x.shape[1])])
    found = moments(x)
    with np.errstate(over="ignore"):
        others = np.delete((found.upper - found.lower) * (1 + 2.0**-40), dims)
        screen = Screen(tuple(dims.tolist()), float((others**2).sum()) * (1 + 2.0**-40))
    moment = found.lower, found.upper, found.mean, found.variance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_tiles, "make_screen", lambda *_: screen)
        layout = JOINER.layout("tiles", *moment, case.eps * case.eps)
    index = JOINER.build(x, layout)
    pairs = JOINER.pairs(index, index, layout, is_self_join=True)
    found = set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    assert_same_pairs(found, brute_force(x, case.eps))
