"""Distances to k-th neighbours, on any partitioning."""

from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import CoordinateError, OptionError
from dask_simjoin.planning import searches
from dask_simjoin.planning.searches import largest_totals
from tests.support.frames import split
from tests.support.oracle import roots, squared_distances, totals
from tests.support.points import cases, frame_of, without_overflow
from tests.support.profiles import every_nth, examples, in_turns


def by_definition(x, k):
    """All distances, sorted; a row is no neighbour of itself."""
    d2 = squared_distances(x.astype(np.float64), x.astype(np.float64))
    np.fill_diagonal(d2, -1.0)
    d2.sort(axis=1)
    return roots(d2[:, k]).tolist() if k < len(x) else [np.inf] * len(x)


@settings(max_examples=examples(150))
@given(
    cases(max_dims=9, max_points=60),
    st.integers(1, 12),
    st.sampled_from([4, 20, 1000]),
    st.sampled_from(["entity", "spatial", "auto"]),
)
def test_any_points(case, k, rows, partitioning):
    x = without_overflow(case.x)
    want = by_definition(x, k)
    frame = frame_of(x)
    assert frame.simjoin.k_distances(k).tolist() == want
    how = {
        "partitioning": partitioning,
        "blocksize": rows * (8 * case.x.shape[1] + 48 + 32 * k),
    }
    lazy = split(frame, case.cuts).simjoin.k_distances(k, **how)
    with dask.config.set(scheduler="sync"):
        assert lazy.compute().tolist() == want


def sets():
    """Names and points: no tails, long tails, many equal points, far from the origin."""
    rng = np.random.default_rng(0)
    yield "uniform", rng.uniform(size=(1500, 2))
    yield "tails", rng.standard_cauchy((1500, 2))
    yield "blobs", rng.normal(size=(1500, 6)) + 9 * rng.integers(0, 3, (1500, 1))
    yield "equal points", np.repeat(rng.uniform(size=(15, 3)), 100, axis=0)
    yield "lattice", rng.integers(0, 9, (1500, 3)).astype(float)
    yield "offset", 1e9 + rng.uniform(size=(1500, 3))
    yield "line", np.arange(1500.0)[:, None]


SETS = dict(sets())


@in_turns(1, name=every_nth(4, SETS), k=[1, 7, 150], partitioning=["entity", "spatial"])
def test_every_partitioning(name, k, partitioning):
    x = np.random.default_rng(1).permutation(SETS[name])
    frame = frame_of(x)
    frame.index = frame.index + 100
    want = by_definition(x, k)
    ddf = dd.from_pandas(frame, npartitions=6)
    found = ddf.simjoin.k_distances(
        k, partitioning=partitioning, blocksize=100 * (88 + 32 * k)
    )
    chunks, plan = len(found.expr.plan.chunks), found.expr.plan
    assert chunks >= 10
    computed = found.compute(scheduler="sync")
    assert computed.tolist() == want and computed.index.tolist() == frame.index.tolist()
    assert computed.name == "k_distance" and computed.dtype == np.float64
    if partitioning == "spatial" and name in ("uniform", "line") and k == 1:
        assert len(plan.work) < chunks * (chunks + 1) // 2  # far chunks do not meet
    if k == 1:
        assert ddf.assign(far=found).far.compute(scheduler="sync").tolist() == want
    assert found.partitions[2].compute(scheduler="sync").tolist() == want[500:750]


@pytest.mark.parametrize("how", every_nth(4, ["inner", "left"]))
def test_one_task_searches_all_near_chunks(how, monkeypatch):
    """The number of tasks grows with the chunks, but not with their near chunks, as far
    as these fit in the memory of a task.
    """
    x = np.random.default_rng(2).uniform(size=(900, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=5)

    def joined(need):
        monkeypatch.setattr(searches, "NEED", need)
        found = ddf.simjoin.knn_join(
            k=3, how=how, partitioning="spatial", blocksize=40 * 184
        )
        graph = dict(found.expr.optimize().__dask_graph__())
        steps = Counter(key_split(key) for key in graph)
        rows = found.compute(scheduler="sync").sort_values(["left", "rank"])
        work = found.expr.plan.work
        return work, steps, rows.reset_index(drop=True)

    work, steps, rows = joined(need=1e9)
    near = [len(found) for found in work.searches]
    assert work.together.tolist() == near and max(near) > 4
    assert (work.parts == 1).all() and steps["simjoin_nearest_rows"] == len(near)
    assert "simjoin_nearest_search" not in steps and "simjoin_nearest_name" not in steps
    alone, more, same = joined(need=0)
    assert (alone.together == 1).all()
    assert more["simjoin_nearest_search"] == (alone.parts * near).sum()
    pd.testing.assert_frame_equal(rows, same)
    # a task has the memory for about five chunks
    some, fewer, same = joined(need=3)
    groups = np.array([len(some.groups(c)) for c in range(len(near))])
    assert 1 < some.together.max() < max(near) and min(groups) == 1 < max(groups)
    assert fewer["simjoin_nearest_search"] == groups[groups > 1].sum()
    pd.testing.assert_frame_equal(rows, same)


def test_limits_hold_for_any_point_of_a_box():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    lower = rng.normal(size=(40, 3))
    upper = lower + rng.uniform(0, 1, (40, 3))
    for k, norm in ((1, 2), (5, 2), (299, 2), (5, 1), (5, 3), (5, np.inf)):
        limits = largest_totals(x, lower, upper, k, norm)
        p = {"metric": "minkowski", "p": norm}
        inside = (
            lower[:, None] + rng.uniform(size=(40, 50, 3)) * (upper - lower)[:, None]
        )
        inside = np.concatenate([inside, lower[:, None], upper[:, None]], axis=1)
        for box, limit in zip(inside, limits, strict=True):
            assert (np.sort(totals(box, x, **p), axis=1)[:, k] <= limit).all()
    assert np.isinf(largest_totals(x, lower, upper, 300, 2)).all()


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_few_rows(rows):
    frame = frame_of(np.arange(float(rows))[:, None])
    want = by_definition(frame.to_numpy(), 3)
    for one in (frame, dd.from_pandas(frame, npartitions=1)):
        found = one.simjoin.k_distances(3)
        assert (found if one is frame else found.compute()).tolist() == want


def test_rows_left_out():
    frame = frame_of(SETS["uniform"][:400])
    frame.loc[::9, "c0"] = np.nan
    kept = frame.dropna()
    want = pd.Series(np.nan, frame.index, name="k_distance")
    want[kept.index] = by_definition(kept.to_numpy(), 4)
    with pytest.raises(CoordinateError, match="c0"):
        frame.simjoin.k_distances(4)
    found = frame.simjoin.k_distances(4, dropna=True)
    pd.testing.assert_series_equal(found, want, check_exact=True)
    for partitioning in ("entity", "spatial"):
        lazy = dd.from_pandas(frame, npartitions=5).simjoin.k_distances(
            4, dropna=True, partitioning=partitioning, blocksize="9 kB"
        )
        found = lazy.compute(scheduler="sync")
        pd.testing.assert_series_equal(found, want, check_exact=True)


def test_on_a_cluster(client):
    x = SETS["blobs"][:600]
    for partitioning in ("entity", "spatial"):
        lazy = dd.from_pandas(frame_of(x), npartitions=6).simjoin.k_distances(
            5, partitioning=partitioning, blocksize="25 kB"
        )
        assert lazy.compute().tolist() == by_definition(x, 5)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "5", None])
def test_bad_k(value):
    with pytest.raises(
        OptionError, match=r"k=.* is not allowed; use a whole number >= 1"
    ):
        frame_of(np.zeros((3, 2))).simjoin.k_distances(value)


def test_nothing_to_replicate():
    with pytest.raises(OptionError, match="partitioning='replicated' is not allowed"):
        frame_of(np.zeros((3, 2))).simjoin.k_distances(2, partitioning="replicated")
