"""Sweeps find the pairs of the definition in any dimensions, and near points are few
cells apart.
"""

import math
import sys

import dask.dataframe as dd
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu import sinks
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.index import grids
from dask_simjoin.engine.index.grids import (
    MAX_DIMS,
    CellLayout,
    make_cells,
    runs,
    serves,
)
from dask_simjoin.engine.index.screen import JoinSample, dims_to_sweep
from dask_simjoin.metrics import make_metric
from dask_simjoin.metrics.norms import reach
from dask_simjoin.planning.sample import moments
from tests.support.frames import computed
from tests.support.oracle import as_set, assert_same_pairs, brute_force, distances
from tests.support.points import cases, frame_of
from tests.support.profiles import examples, in_turns

NORMS = {"euclidean": 2, "manhattan": 1, "minkowski": 3, "chebyshev": math.inf}


def swept(x, eps, rows=None, metric="euclidean"):
    kind = make_metric(metric, NORMS[metric])
    return dims_to_sweep(
        x.var(axis=0), kind.threshold(eps), kind.norm, JoinSample(x, x, rows or len(x))
    )


def test_as_few_dimensions_as_leave_few_candidates():
    rng = np.random.default_rng(0)
    narrow = rng.uniform(size=(4000, 6))
    time = np.column_stack([narrow, rng.uniform(0, 1e6, 4000)])
    plane = np.column_stack([narrow[:, :2], rng.uniform(0, 200, (4000, 2)), narrow])
    for metric in NORMS:
        assert swept(time, 1.0, metric=metric) == (6,)
        assert swept(plane, 1.0, metric=metric) == (2, 3)
        assert swept(narrow, 0.5, metric=metric) is None
    # the same points stand for more candidates
    assert swept(plane, 1.0, 100_000_000) is None
    assert swept(plane[:, :3], 1.0) is None  # which are swept in any case


def test_a_wide_column_that_says_nothing_new_is_left_out():
    rng = np.random.default_rng(1)
    people = rng.choice([0.0, 1e6], 4000) + rng.uniform(0, 0.1, 4000)
    x = np.column_stack(
        [
            people,
            people / 1000,
            rng.uniform(0, 100, (4000, 2)),
            rng.uniform(size=(4000, 2)),
        ]
    )
    assert swept(x, 1.0) == (2, 3)
    assert swept(np.repeat([[0.0, 1.0]], 4000, axis=0) @ np.ones((2, 5)), 1.0) is None


def test_no_sample_tells_nothing():
    x = np.random.default_rng(2).uniform(size=(100, 5)) * [1e6, 1, 1, 1, 1]
    for few in (x[:0], x[:1]):
        assert dims_to_sweep(x.var(axis=0), 1.0, 2, JoinSample(few, few, 100)) is None


def layout_of(x, threshold, norm, dims):
    found = moments(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "dims_to_sweep", lambda *_: dims)
        layout = JOINER.layout(
            "auto",
            found.lower,
            found.upper,
            found.mean,
            found.variance,
            threshold,
            norm,
            JoinSample(x, x, len(x)),
        )
    assert layout.dims == dims
    return layout


@pytest.mark.parametrize("metric", NORMS)
@settings(max_examples=examples(200))
@given(case=cases(max_dims=12), seed=st.integers(0, 2**32 - 1))
def test_any_dimensions_may_be_swept(metric, case, seed):
    x, rng = case.x.astype(np.float64), np.random.default_rng(seed)
    n, d = x.shape
    if n < 2 or d < 4:
        return
    kind = make_metric(metric, NORMS[metric])
    threshold = kind.threshold(case.eps)
    dims = tuple(np.sort(rng.permutation(d)[: rng.integers(1, 4)]).tolist())
    layout = layout_of(x, threshold, kind.norm, dims)
    expected = brute_force(x, case.eps, metric, NORMS[metric])
    index = JOINER.build(x, layout)
    assert np.array_equal(JOINER.points(index, layout), x[index["order"][:n]])

    found = JOINER.pairs(index, index, layout, is_self_join=True)
    assert_same_pairs(
        set(zip(found.left.tolist(), found.right.tolist(), strict=True)), expected
    )
    names = (1000 + index["order"][:n].astype(np.int64),) * 2
    rows = sorted(rng.integers(0, n + 1, 2).tolist())
    named, counts = set(), np.zeros(n, np.int64)
    for part in ((0, rows[0]), (rows[0], rows[1]), (rows[1], n)):
        found = JOINER.pairs(
            index,
            index,
            layout,
            is_self_join=True,
            rows=part,
            labels=names,
            distance=lambda totals: totals,
        )
        named |= set(zip(found.left.tolist(), found.right.tolist(), strict=True))
        there = zip(found.left - 1000, found.right - 1000, found.distance, strict=True)
        assert all(total <= threshold for *_, total in there)
        counts += JOINER.counts(index, index, layout, is_self_join=True, rows=part)[0]
    assert_same_pairs(named, {(i + 1000, j + 1000) for i, j in expected})
    ends = np.array(sorted(expected), np.int64).reshape(-1)
    assert counts.tolist() == np.bincount(ends, minlength=n).tolist()
    assert (
        counts.tolist()
        == JOINER.counts(index, index, layout, is_self_join=True)[0].tolist()
    )
    weights = JOINER.weights(index, index, layout, is_self_join=True)
    assert weights.sum() == len(expected)
    some = JOINER.weights(
        index, index, layout, is_self_join=True, rows=(rows[0], rows[1])
    )
    assert some.tolist() == weights[slice(*rows)].tolist()

    cut = int(rng.integers(0, n + 1))
    halves = JOINER.build(x[:cut], layout), JOINER.build(x[cut:], layout)
    across = {(i, j) for i, j in expected if i < cut <= j}
    found = JOINER.pairs(*halves, layout, is_self_join=False)
    assert_same_pairs(
        set(zip(found.left.tolist(), (found.right + cut).tolist(), strict=True)), across
    )
    assert [c.sum() for c in JOINER.counts(*halves, layout, is_self_join=False)] == [
        len(across)
    ] * 2


def unlike(n=1500):
    rng = np.random.default_rng(3)
    x = np.column_stack(
        [rng.uniform(size=(n, 3)), rng.uniform(0, 60, (n, 2)), rng.uniform(size=(n, 4))]
    )
    x[::5] = np.round(x[::5])  # distances that are eps
    return np.concatenate([x, x[:50]])


@in_turns(1, metric=list(NORMS), lazy=[False, True])
def test_verbs_say_what_the_definition_says(metric, lazy, monkeypatch):
    monkeypatch.setattr(sinks, "MIN_PART", 500)
    x, options = unlike(), {"metric": metric}
    if metric == "minkowski":
        options["p"] = 3
    plain = frame_of(x).assign(named=[f"row {n}" for n in range(len(x))])
    frame = dd.from_pandas(plain, npartitions=3) if lazy else plain
    on = [name for name in plain.columns if name != "named"]
    assert "sweep along" in repr(frame.simjoin.plan(1.0, on=on, **options))
    assert "then all columns" in repr(frame.simjoin.plan(1.0, on=on, **options))
    expected = brute_force(x, 1.0, metric, NORMS[metric])
    found = computed(
        frame.simjoin.self_join(
            1.0, on=on, return_distance=True, keep="named", **options
        )
    )
    assert_same_pairs(as_set(found), expected)
    away = distances(x, x, metric, NORMS[metric])
    assert (found.distance == away[found.left, found.right]).all()
    assert (found.named_left == [f"row {n}" for n in found.left]).all()
    both = computed(frame.simjoin.self_join(1.0, on=on, pairs="both", **options))
    assert_same_pairs(as_set(both), expected | {(j, i) for i, j in expected})
    degrees = np.bincount(np.array(sorted(expected)).reshape(-1), minlength=len(x))
    assert (
        computed(frame.simjoin.neighbor_counts(1.0, on=on, **options)).tolist()
        == degrees.tolist()
    )
    assert computed(frame.simjoin.count_pairs(1.0, on=on, **options)) == len(expected)
    labels = computed(frame.simjoin.dbscan(1.0, min_samples=1, on=on, **options))
    assert all(labels[i] == labels[j] for i, j in expected)
    assert labels.nunique() < len(x)


def test_near_points_are_at_most_two_cells_apart():
    random = np.random.default_rng(3)
    for dims in range(1, MAX_DIMS + 1):
        for scale in (1e-300, 1.0, 1e150, sys.float_info.max / 4):
            eps = random.random() * scale * 0.1
            x = (random.random((50, dims)) - 0.5) * scale
            x = np.concatenate(
                [x, x + (random.random((50, dims)) - 0.5) * 2 * eps, x[:, ::-1] + eps]
            )
            layout = CellLayout(min(eps * eps, sys.float_info.max))
            grid = make_cells(x.min(axis=0), x.max(axis=0), layout)
            place = [
                np.floor((x[:, k] * grid.scale - origin) / width)
                for k, origin, width in zip(
                    grid.dims, grid.origin, grid.width, strict=True
                )
            ]
            most = reach(2, layout.threshold)
            for k, some in zip(grid.dims, place, strict=True):
                with np.errstate(over="ignore"):
                    near = np.abs(x[:, None, k] - x[None, :, k]) <= most
                assert (np.abs(some[:, None] - some[None])[near] <= 2).all()


def test_each_run_of_cells_comes_once():
    grid = make_cells(np.zeros(3), np.ones(3), CellLayout(0.01))
    offsets, nearest = runs(grid, half=False)
    assert offsets[0] == 0 and len(set(offsets.tolist())) == 25 and nearest == 5
    later, _ = runs(grid, half=True)
    assert set(later.tolist()) == {key for key in offsets.tolist() if key >= 0}


def test_cells_serve_few_dimensions():
    assert not serves(5, 2) and not serves(3, 1) and serves(4, 2) and serves(4, np.inf)
