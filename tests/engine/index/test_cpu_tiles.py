"""The tree of boxes over tiles, against NumPy; arrays that begin on a cache line."""

import numpy as np
import pytest

from dask_simjoin.engine.index.cpu_tiles import (
    TILE,
    aligned,
    aligned_empty,
    box_tree,
    make_tiles_layout,
)


@pytest.mark.parametrize("boxes", [1, 63, 64, 65, 64 * 64, 64 * 64 + 1])
def test_each_box_bounds_those_below_it(boxes):
    rng = np.random.default_rng(boxes)
    low = rng.normal(size=(boxes, 2))
    high = low + rng.uniform(size=(boxes, 2))
    lower, upper, levels = box_tree(low, high)
    assert levels[0] == 0 and levels[-1] == len(lower) and levels[-1] - levels[-2] == 1
    for level in range(len(levels) - 1):
        groups = slice(levels[level], levels[level + 1])
        own = [
            side[groups].transpose(0, 2, 1).reshape(-1, 2) for side in (lower, upper)
        ]
        assert (
            own[0][: len(low)].tolist() == low.tolist()
            and own[1][: len(high)].tolist() == high.tolist()
        )
        assert (own[0][len(low) :] == np.inf).all() and (
            own[1][len(high) :] == -np.inf
        ).all()
        cuts = np.arange(0, len(low), TILE)
        low, high = np.minimum.reduceat(low, cuts), np.maximum.reduceat(high, cuts)


def test_arrays_begin_on_a_cache_line():
    made = aligned_empty((3, 5), np.float32)
    assert (
        made.ctypes.data % 64 == 0 and made.shape == (3, 5) and made.dtype == np.float32
    )
    assert aligned(made) is made
    other = np.arange(33.0)[1:]
    while other.ctypes.data % 64 == 0:
        other = other[1:]
    copy = aligned(other)
    assert copy.ctypes.data % 64 == 0 and copy.tolist() == other.tolist()


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_a_smaller_threshold_narrows_filters(norm):
    x = np.random.default_rng(0).normal(size=(500, 8))
    layout = make_tiles_layout(x.min(0), x.max(0), x.mean(0), x.var(0), 4.0, norm)
    fewer = layout.narrowed(1.0)
    assert fewer.threshold == 1.0 and fewer.norm == norm and fewer.kind == layout.kind
    index = {"norm": 1.0, "y": x}
    assert fewer.box_reach(index, index) < layout.box_reach(index, index)
