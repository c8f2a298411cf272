"""Joins with gates give the pairs that the definition allows, by every method."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.gated import GatedLayout
from dask_simjoin.metrics import gates
from dask_simjoin.metrics.gates import NUMBERS, UNLIKE, Compared, Gate, Gates
from dask_simjoin.planning.sample import moments
from tests.support.oracle import squared_distances

NEAR = Gates(("t",), ("s",), (Gate(NUMBERS, -2.0, 2.0), Gate(UNLIKE)), (0.5,), 2)
LIMIT = 1.0


def points(rng, rows):
    """Return points, their times and their codes, and all columns of an index."""
    x = rng.integers(0, 9, (rows, 2)) / 2
    t, s = rng.integers(0, 20, rows) * 1.0, rng.integers(0, 3, rows)
    words = [gates.words_of(some) for some in (t, s)]
    return x, t, s, np.concatenate([x, t[:, None] * 0.25, *words], axis=1)


def layout_of(every, method):
    m = moments(np.ascontiguousarray(every[:, :3]))
    threshold = gates.widened(2, LIMIT, NEAR.widths, NEAR.words)
    sides = m.lower, m.upper, m.mean, m.variance
    inner = JOINER.layout(method, *sides, threshold)
    return GatedLayout(inner, NEAR, LIMIT, Compared())


def allowed(one, other):
    near = squared_distances(one[0], other[0]) <= LIMIT
    near &= np.abs(other[1][None] - one[1][:, None]) <= 2.0
    return near & (other[2][None] != one[2][:, None])


@pytest.mark.parametrize("method", ["sweep", "tiles", "grid", "nested_loop"])
def test_pairs_counts_and_parts(method):
    rng = np.random.default_rng(5)
    one, other = points(rng, 300), points(rng, 200)
    layout = layout_of(one[3], method)
    assert layout.threshold > LIMIT and layout.method == method
    q, d = (JOINER.build(side[3], layout) for side in (one, other))
    # an index of the points of an index is the same
    again = JOINER.build(JOINER.points(q, layout), layout)
    assert again["values"].tolist() == q["values"][again["order"][:300]].tolist()
    want = allowed(one, other)
    found = JOINER.pairs(q, d, layout, is_self_join=False)
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == list(
        zip(*(side.tolist() for side in np.nonzero(want)), strict=True)
    )
    own = allowed(one, one)
    counts = JOINER.counts(q, q, layout, is_self_join=True)[0]
    assert counts.tolist() == own.sum(1).tolist()
    number, cut = 0, 128
    for rows in ((0, cut), (cut, 300)):
        weights = JOINER.weights(q, q, layout, is_self_join=True, rows=rows)
        number += int(weights.sum())
    assert number == own.sum() // 2
    limits = np.array([0.25, 1.0])
    tally = JOINER.tally(q, q, layout, limits, is_self_join=True, by_row=False)
    small = own & (squared_distances(one[0], one[0]) <= 0.25)
    assert tally[0][0].tolist() == [small.sum() // 2, own.sum() // 2]
