"""Work that is cut into pieces: what they give together, and how even they are."""

import itertools

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.planning import costs
from dask_simjoin.tasks.chunks import make_chunk
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.pairs import cut_block, cut_weighed, weigh_block
from tests.support.density import labels_of_neighbours
from tests.support.frames import planned, split
from tests.support.oracle import (
    as_set,
    assert_same_pairs,
    brute_force,
    squared_distances,
)
from tests.support.points import cases, frame_of
from tests.support.profiles import examples, in_turns


@pytest.fixture
def fine(monkeypatch):
    """Cut whatever can be cut."""
    monkeypatch.setattr(costs, "MIN_PIECE", 0.0)
    monkeypatch.setattr(costs, "SAMPLED", 1)


def nearest(x, k):
    """Rows and their k nearest others, ties by number."""
    away = squared_distances(x, x)
    np.fill_diagonal(away, np.inf)
    order = np.lexsort((np.broadcast_to(np.arange(len(x)), away.shape), away), axis=1)[
        :, :k
    ]
    return [(i, j) for i, row in enumerate(order.tolist()) for j in row if i != j]


@in_turns(
    1,
    size=[(700, 2, 0.06), (700, 5, 0.3), (400, 20, 1.25)],
    partitioning=["entity", "spatial", "auto"],
)
def test_pieces_give_together_what_the_whole_gives(fine, partitioning, size):
    rows, dims, eps = size
    x = np.random.default_rng(dims).uniform(size=(rows, dims)).round(2)
    x[::50] = x[0]
    frame = frame_of(x)
    ddf = split(frame, (rows // 3,))
    near = squared_distances(x, x) <= eps * eps
    expected = brute_force(x, eps)
    how = {"partitioning": partitioning}
    with dask.config.set(scheduler="threads", num_workers=3):
        plan = ddf.simjoin.count_pairs(eps, **how).expr.plan
        assert plan.work.parts.max() > 1
        assert ddf.simjoin.count_pairs(eps, **how).compute() == len(expected)
        both = ddf.simjoin.count_pairs(
            eps, pairs="both", include_self=True, **how
        ).compute()
        assert both == near.sum()
        some = ddf.simjoin.count_pairs([eps / 2, eps, eps * 2], **how).compute()
        assert some.tolist() == [frame.simjoin.count_pairs(one) for one in some.index]
        many = ddf.simjoin.neighbor_counts([eps / 2, eps], **how).compute()
        pd.testing.assert_frame_equal(
            many, frame.simjoin.neighbor_counts([eps / 2, eps])
        )
        assert_same_pairs(as_set(ddf.simjoin.self_join(eps, **how).compute()), expected)
        with dask.config.set({"simjoin.output-size": 16 * max(1, len(expected) // 5)}):
            cut = ddf.simjoin.self_join(eps, **how)
            assert any("simjoin_weights" in str(key) for key in cut.__dask_graph__())
            assert_same_pairs(as_set(cut.compute()), expected)
        counts = ddf.simjoin.neighbor_counts(eps, **how).compute()
        pd.testing.assert_series_equal(counts, frame.simjoin.neighbor_counts(eps))
        for samples in (2, 4):
            labels = ddf.simjoin.dbscan(eps, samples, **how)
            assert labels.compute().tolist() == labels_of_neighbours(near, samples)
        found = ddf.simjoin.knn_join(k=3, **how).compute().sort_values(["left", "rank"])
        assert list(zip(found.left, found.right, strict=True)) == nearest(x, 3)
        distances = ddf.simjoin.k_distances(3, **how).compute()
        pd.testing.assert_series_equal(distances, frame.simjoin.k_distances(3))


@pytest.mark.parametrize("partitioning", ["entity", "spatial"])
def test_pieces_of_radii_and_of_two_tables(fine, partitioning):
    rng = np.random.default_rng(1)
    x, y = rng.uniform(size=(500, 2)), rng.uniform(size=(300, 2))
    radius = rng.uniform(0, 0.1, 500)
    frame, other = frame_of(x).assign(r=radius), frame_of(y)
    near = np.sqrt(squared_distances(x, y)) <= 0.05
    how = {"partitioning": partitioning}
    with dask.config.set(scheduler="threads", num_workers=3):
        left, right = split(frame, (200,)), split(other, (100,))
        columns = {"on": ["c0", "c1"]}
        pairs = left.simjoin.join(right, 0.05, **columns, **how)
        assert as_set(pairs.compute()) == {
            (i, j) for i, j in zip(*np.nonzero(near), strict=True)
        }
        alone = as_set(
            left.simjoin.join(right, 0.05, how="left", **columns, **how)
            .compute()
            .dropna()
        )
        assert alone == as_set(pairs.compute())
        count = left.simjoin.count_pairs("r", pairs="both", **columns, **how)
        assert count.compute() == frame.simjoin.count_pairs(
            "r", pairs="both", **columns
        )


@settings(max_examples=examples(60))
@given(cases(max_dims=9, max_points=200), st.integers(2, 7))
def test_parts_of_a_meeting_are_the_whole(case, parts):
    frame = frame_of(case.x)
    spec, layout, source = planned(frame, case.eps)
    chunk = make_chunk(frame, (0, source), spec, layout)
    whole = BlockPair(chunk, chunk, True, spec, layout)
    joiner = whole.joiner
    ranges = [whole._replace(part=(k, parts)).rows for k in range(parts)]
    assert ranges[0][0] == 0 and ranges[-1][1] == len(case.x)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    found = sum(
        joiner.counts(*whole.operands, is_self_join=True, rows=rows)[0]
        for rows in ranges
    )
    assert (
        found.tolist() == joiner.counts(*whole.operands, is_self_join=True)[0].tolist()
    )
    pairs = sum(
        int(joiner.weights(*whole.operands, is_self_join=True, rows=rows).sum())
        for rows in ranges
    )
    assert 2 * pairs == found.sum()
    weights = [weigh_block(whole._replace(part=(k, parts))) for k in range(parts)]
    for outputs in (2, 5):
        cuts = cut_weighed(layout.grain, outputs, *weights)
        assert cuts.tolist() == cut_block(whole, outputs).tolist() == sorted(cuts)
