"""What is foreseen of a join is what it runs, and what is rehearsed can be done."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.engine.gpu import arrays, load, nearest, rounds, spanning
from dask_simjoin.engine.gpu import spanning as dendrogram
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.index.gpu import make_device_layout
from dask_simjoin.tasks.counts import new_nodes

pytestmark = pytest.mark.gpu


def test_nothing_else_is_compiled():
    x = np.random.default_rng(0).uniform(size=(300, 5))
    layout = make_device_layout(x.min(0), x.max(0), x.mean(0), x.var(0), 0.04)
    JOINER.foresee(layout, shown=True, counted=True, connected=True)
    index = JOINER.build(cupy.asarray(x), layout)
    begun = set(load._modules)
    rows, every, pairs = len(x), cupy.ones(len(x), bool), []
    JOINER.visit(
        index,
        index,
        layout,
        lambda *told: pairs.append(len(told[0])),
        is_self_join=True,
    )
    assert (
        int(JOINER.counts(index, index, layout, is_self_join=True)[0].sum())
        == 2 * sum(pairs)
        > 0
    )
    parent = new_nodes(rows, cupy)
    JOINER.connect(index, index, layout, parent, (every, every), 0, is_self_join=True)
    JOINER.roots(parent)
    labels, low = JOINER.numbers(parent), cupy.full(rows, rows)
    JOINER.lowest(index, index, layout, (labels, labels), (low, low), is_self_join=True)
    assert set(load._modules) == begun


def test_rehearsals():
    arrays._read_some()
    nearest._convert_some()
    dendrogram.condense_some()
    rounds.search_some()
    spanning.join_some()
