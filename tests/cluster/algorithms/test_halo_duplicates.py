"""Marks of near duplicates in chunks with halos, which are marked alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster.algorithms import edges
from dask_simjoin.cluster.algorithms.halo_duplicates import (
    choose_winners,
    groups_of_chunk,
    marks_of_chunk,
    near_others,
)
from dask_simjoin.cluster.expressions.components import NearDuplicated
from dask_simjoin.planning import tables
from dask_simjoin.planning.spatial_chunks import ClusterChunks
from dask_simjoin.request.clusters import NearDuplicatedRequest
from dask_simjoin.tasks.matches import BlockPair
from tests.cluster.algorithms.test_duplicates import KEEP, wanted
from tests.support.cluster_chunks import parts_of, planned, sent_chunks
from tests.support.points import cases, frame_of
from tests.support.profiles import every_nth, examples

OUTPUT = replace(NearDuplicated._output, halo=1)


@pytest.fixture(autouse=True, scope="module")
def any_halos():
    """Halos of any size."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "pay", lambda chunks, rows: True)
        yield


def marks_by_chunk(x, eps, keep, blocksize, cuts=(), threads=1, values=None, **options):
    """The marks, the messages, and the number of chunks. The marks are None if a chunk
    would be too large with its halo.
    """
    frame = frame_of(x)
    on = list(frame.columns)
    if values is not None:
        frame = frame.assign(v=values)
    parts = parts_of(frame, sorted(cuts))
    how = {"partitioning": "spatial", "blocksize": blocksize, "on": on} | options
    asked = NearDuplicatedRequest(eps, keep=keep, grouping="connected", **how)
    spec, plan = planned(parts, asked, OUTPUT)
    if not isinstance(plan.chunks, ClusterChunks):
        return None, (), len(plan.chunks)
    groups = [list(range(k, len(parts), 2)) for k in range(min(2, len(parts)))]
    _, chunks = sent_chunks(parts, groups, spec, plan)
    pairs = [BlockPair(chunk, chunk, True, spec, plan.layout) for chunk in chunks]
    if keep is False:
        made, shared = [near_others(pair, threads) for pair in pairs], ()
    else:
        each = [groups_of_chunk(pair, keep, threads) for pair in pairs]
        found, shared = zip(*each, strict=True)
        winners = choose_winners(*shared)
        made = [
            marks_of_chunk(pair, c, threads, found[c], winners)
            for c, pair in enumerate(pairs)
        ]
    marks = np.full(len(x), -2)
    for own, chunk in zip(made, chunks, strict=True):
        marks[chunk["position"][: chunk["own"]]] = own
    return marks.tolist(), shared, len(chunks)


@settings(max_examples=examples(150))
@given(
    cases(max_dims=4, max_points=80),
    st.sampled_from(KEEP),
    st.sampled_from([10, 30, 60]),
    st.integers(1, 3),
    st.integers(0, 2**16),
)
def test_any_points(case, keep, rows, threads, seed):
    """On a lattice, many distances equal the largest one, and halos end at rows."""
    if not len(case.x):
        return
    values = np.random.default_rng(seed).integers(-2, 3, len(case.x)) / 2.0
    values[values == 1] = np.nan
    size = rows * (8 * case.x.shape[1] + 56)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(edges, "MIN_PLACES", 4)
        found, _, _ = marks_by_chunk(
            case.x, case.eps, keep, size, case.cuts, threads, values
        )
    want = wanted(case.x, case.eps, keep, "connected", values)
    assert found in (None, [int(mark) for mark in want])


@pytest.mark.parametrize("keep", KEEP)
def test_groups_that_pass_through_all_chunks(keep):
    """Parts of a spiral belong together only by way of other chunks."""
    turn = np.linspace(1, 30, 4000)
    spiral = np.stack([turn * np.cos(turn), turn * np.sin(turn)], axis=1)
    apart = spiral[:500] + np.array([80.0, 0])
    random = np.random.default_rng(0)
    x = random.permutation(np.concatenate([spiral, apart, [[200.0, 0]]]))
    values = random.integers(0, 9, len(x)) * 1.0
    found, _, number = marks_by_chunk(
        x, 0.5, keep, "40 kB", (10, 10, 2000, 3000), values=values
    )
    want = wanted(x, 0.5, keep, "connected", values)
    assert number > 4 and found == want and 0 < found.count(0) < len(x)


@pytest.mark.parametrize(
    "metric", every_nth(3, ["manhattan", "chebyshev", ("minkowski", 3)])
)
def test_other_metrics(metric):
    name, p = (metric, 2) if isinstance(metric, str) else metric
    x = np.round(np.random.default_rng(4).uniform(size=(1500, 2)), 2)
    how = {"metric": name} | ({"p": p} if name == "minkowski" else {})
    for keep in ("last", False):
        found, _, number = marks_by_chunk(x, 0.02, keep, "30 kB", (500, 501), **how)
        want = frame_of(x).simjoin.near_duplicated(
            0.02, keep=keep, grouping="connected", **how
        )
        assert number > 2 and found == want.tolist()


def test_only_groups_with_rows_in_several_chunks_are_sent():
    """Most rows near a wall have no neighbor behind it."""
    x = np.random.default_rng(2).uniform(size=(4000, 2))
    found, shared, number = marks_by_chunk(x, 0.004, "first", "40 kB", (1000,))
    assert number > 4 and found == wanted(x, 0.004, "first", "connected")
    sent = np.concatenate([some.rows for some in shared])
    near = (((x[:, None] - x[sent]) ** 2).sum(2) <= 0.004**2).sum(0)
    assert 0 < len(sent) < 200 and near.min() > 1
    assert all(len(some.best) == len(some.keys) for some in shared)
