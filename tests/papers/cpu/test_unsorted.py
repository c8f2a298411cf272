"""The index of methods that need none: rows and positions as they are."""

import numpy as np

from dask_simjoin.papers.cpu import unsorted


def test_rows_and_parts_of_them_keep_their_order():
    x = np.asfortranarray(np.random.default_rng(0).normal(size=(50, 3)))
    index = unsorted.build(x, None)
    assert unsorted.points(index).tolist() == x.tolist() and index["y"].flags.c_contiguous
    assert index["order"][:50].tolist() == list(range(50)) and unsorted.end(index, 7, None) == 50
    part = unsorted.part(index, 10, 30)
    assert part["y"].tolist() == x[10:30].tolist() and part["order"][:20].tolist() == list(range(10, 30))
    assert len(part["order"]) - len(part["y"]) == len(index["order"]) - len(index["y"])  # read as vectors
