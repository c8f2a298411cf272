"""Pairs of near boxes are the same as if all boxes were compared."""

import math

import numpy as np
import pytest

from dask_simjoin.metrics.norms import box_gap
from dask_simjoin.planning.near_boxes import GROUP, near_boxes


@pytest.mark.parametrize("number", [0, 1, GROUP, GROUP + 1, 5 * GROUP - 3])
@pytest.mark.parametrize("is_self_join", [False, True])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_near_boxes(number, is_self_join, norm):
    random = np.random.default_rng(number)

    def boxes(some):
        lower = np.sort(random.uniform(size=(some, 2)), axis=0)
        return lower, lower + random.uniform(0, 0.02, (some, 2))

    own = boxes(number)
    others = own if is_self_join else boxes(2 * GROUP + 5)
    if number > 1:
        others[0][0] = np.nan
        own[1][1] = np.nan
    limits = random.uniform(0, 0.05, number)
    limits[number // 2 : number // 2 + 1] = np.inf
    found = list(near_boxes(norm, own, others, limits, is_self_join))
    assert len(found) == number
    for n, (numbers, gaps) in enumerate(found):
        every = box_gap(norm, own[0][n], own[1][n], *others)
        want = np.flatnonzero(~(every > limits[n]))
        want = want[want >= n] if is_self_join else want
        assert numbers.tolist() == want.tolist()
        np.testing.assert_array_equal(gaps, every[want])


def test_most_pairs_are_not_compared(monkeypatch):
    """Boxes in the order of a line: only neighboring groups are compared."""
    compared = []

    def counted(norm, *sides):
        gap = box_gap(norm, *sides)
        compared.append(gap.size)
        return gap

    monkeypatch.setattr("dask_simjoin.planning.near_boxes.box_gap", counted)
    lower = np.arange(100 * GROUP, dtype=float)[:, None]
    boxes = lower, lower + 1
    found = list(near_boxes(2, boxes, boxes, np.zeros(len(lower)), True))
    assert [len(numbers) for numbers, _ in found] == [2] * (len(lower) - 1) + [1]
    assert sum(compared) < 4 * GROUP * len(lower)
