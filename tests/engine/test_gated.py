"""The layout of a join with gates describes the layout of its candidates."""

import numpy as np

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.gated import GatedLayout, GatedSearch
from dask_simjoin.metrics.gates import Compared, Gates


def test_it_has_the_properties_of_the_layout_of_candidates():
    box = np.zeros(2), np.ones(2), np.full(2, 0.5), np.full(2, 0.1)
    inner = JOINER.layout("sweep", *box, 0.25)
    found = GatedLayout(inner, Gates(), 0.1, Compared())
    for name in ("method", "norm", "threshold", "grain"):
        assert getattr(found, name) == getattr(inner, name)
    assert found.in_words(str) == inner.in_words(str)
    search = GatedSearch(found)
    assert (search.method, search.norm) == (inner.method, inner.norm)
