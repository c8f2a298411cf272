"""The join of two tile indexes, around the widths of tiles and groups."""

import numpy as np
from hypothesis import given, settings

from dask_simjoin.catalog import METHODS
from dask_simjoin.engine.cpu.joiner import JOINER
from tests.engine.cpu.test_joiner import SWEEP_MAX_DIMS, _bounds, check
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import cases
from tests.support.profiles import examples, in_turns


@settings(max_examples=examples(150))
@given(cases(max_dims=SWEEP_MAX_DIMS))
def test_tiles_in_few_dimensions(case):
    check(case.x, case.eps, case.cuts, method="tiles")


@in_turns(1, n=[1, 2, 63, 64, 65, 127, 128, 129, 4095, 4097], method=list(METHODS))
def test_around_the_width_of_tiles_and_groups(n, method):
    x = np.random.default_rng(n).uniform(size=(n, 4))
    eps = 0.5 * n ** (-1 / 4)
    if n < 1000:
        check(x, eps, (n // 2,), method=method)
    else:
        layout = JOINER.layout(method, *_bounds(x), eps * eps)
        index = JOINER.build(x, layout)
        found = JOINER.pairs(index, index, layout, is_self_join=True)
        found = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
        assert_same_pairs(found, brute_force(x, eps))


def test_more_tiles_than_one_group_of_boxes():
    """Three levels of boxes: over 64 * 64 tiles."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=(300_000, 5))
    eps = 0.02
    by_tiles, by_filterless = (
        JOINER.pairs(index, index, layout, is_self_join=True)
        for layout in (JOINER.layout("tiles", *_bounds(x), eps * eps),)
        for layout in (layout, layout.__class__(layout.threshold, cut=layout.cut))
        for index in (JOINER.build(x, layout),)
    )
    one = set(zip(by_tiles.left.tolist(), by_tiles.right.tolist(), strict=True))
    other = set(
        zip(by_filterless.left.tolist(), by_filterless.right.tolist(), strict=True)
    )
    assert len(one) > 100
    assert_same_pairs(one, other)
