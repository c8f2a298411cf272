"""The row sweep: cells along a long axis."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.joiner import JOINER
from tests.engine.cpu.test_joiner import _bounds


@pytest.mark.parametrize("step", [0.1, 1.0, 1e-3])
def test_cells_lose_no_neighbour_along_a_long_axis(step):
    """Neighbours exactly eps apart, over more cells than the cells' margin could hide an error in."""
    n = 600_000
    x = np.zeros((n, 2))
    x[:, 0] = np.arange(n) * step
    lower, upper, mean, _ = _bounds(x)
    layout = JOINER.layout("sweep", lower, upper, mean, np.array([0.0, 1.0]), step * step)
    assert layout.grid.dims == (0,)
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, same=True)
    t = np.diff(x[:, 0])
    expected = np.flatnonzero(t * t <= step * step)
    assert sorted(found.left.tolist()) == expected.tolist()
    assert (found.right - found.left == 1).all()
