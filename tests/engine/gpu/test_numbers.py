"""Sets of nodes are numbered on a GPU by their least rows, and rows of points are
taken, as NumPy does.
"""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.engine.gpu.build import rows_at
from dask_simjoin.engine.gpu.joiner import JOINER
from tests.support.sets_of_nodes import numbers_of, some_sets

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("n", [0, 1, 300, 70_000])
def test_numbers(n, kind):
    parent, taking, order = some_sets(
        min(n, 300), min(n, 300) // 2, np.random.default_rng(0)
    )
    # the same sets, and others of one node each: more nodes than a block of threads has
    if n > 300:
        more = np.arange(len(parent), n)
        parent, taking = (
            np.concatenate([parent, more]),
            np.concatenate([taking, np.ones(len(more), bool)]),
        )
        order = np.concatenate([order, more]).astype(np.int32)
        want = numbers_of(parent[:300], taking[:300], order[:300])
        want += (np.arange(len(more)) + max(want) + 1).tolist()
    else:
        want = numbers_of(parent, taking, order)
    there = cupy.asarray(parent.astype(kind))
    found = JOINER.numbers(there, (cupy.asarray(taking), cupy.asarray(order)))
    assert found.dtype == np.int64 and found.tolist() == want
    assert (
        JOINER.numbers(there).tolist()
        == np.unique(parent, return_inverse=True)[1].tolist()
    )


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize(("n", "dims"), [(0, 2), (1, 1), (1000, 3), (70_000, 17)])
def test_rows(n, dims, order):
    x = np.asarray(np.random.default_rng(0).uniform(size=(n, dims)), order=order)
    places = np.random.default_rng(1).permutation(n).astype(np.int32)
    found = rows_at(cupy.asarray(x, order=order), cupy.asarray(places))
    assert found.flags.c_contiguous and (found.get() == x[places]).all()
    half = rows_at(
        cupy.asarray(x, order=order)[::2], cupy.asarray(places[places < (n + 1) // 2])
    )
    assert (half.get() == x[::2][places[places < (n + 1) // 2]]).all()
