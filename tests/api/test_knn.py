"""Joins with nearest neighbours: the definition, whatever the chunks, ties by the order
of the frame.
"""

import math
from dataclasses import replace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin  # noqa: F401
from dask_simjoin.errors import (
    BudgetError,
    CoordinateError,
    DuplicateIdError,
    OptionError,
    UnsupportedFrameError,
)
from dask_simjoin.metrics import make_metric
from dask_simjoin.planning import searches
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.outputs import nearest_output
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.tasks.chunks import whole_chunks
from dask_simjoin.tasks.nearest import search_chunk
from tests.support.frames import split
from tests.support.metrics import ENGINE, make_rows, metric_cases, of_all_norms
from tests.support.oracle import distances, totals
from tests.support.points import cases, frame_of, without_overflow
from tests.support.profiles import every_nth, examples, in_turns


def nearest(left, right, k, on, bound=math.inf, metric="euclidean", p=2):
    """(left, right, rank, distance) by the definition; `right` None: of one table."""
    data = left if right is None else right
    sides = left[on].to_numpy(float), data[on].to_numpy(float)
    total, away = (make(*sides, metric, p) for make in (totals, distances))
    limit = make_metric(metric, p).threshold(bound) if bound < math.inf else math.inf
    rows = []
    for i in range(len(left)):
        others = [
            j
            for j in range(len(data))
            if not (right is None and i == j) and total[i, j] <= limit
        ]
        others.sort(key=lambda j: (total[i, j], j))
        rows += [
            (left.index[i], data.index[j], rank + 1, float(away[i, j]))
            for rank, j in enumerate(others[:k])
        ]
    return rows


def rows_of(found, left):
    """The rows of a result, by the left row's place and rank."""
    place = {label: n for n, label in enumerate(left.index)}
    columns = (found[name].tolist() for name in ("left", "right", "rank", "distance"))
    return sorted(zip(*columns, strict=True), key=lambda row: (place[row[0]], row[2]))


def assert_nearest(x, eps, data, metric="euclidean", p=2):
    """The neighbours of some points are those of the definition, plain and lazily."""
    n = len(x)
    two = data.draw(st.booleans())
    k = data.draw(st.sampled_from([1, 2, 5, 60]))
    bound = data.draw(st.sampled_from([None, None, eps]))
    cut = data.draw(st.integers(0, n)) if two else n
    labels = np.random.default_rng(n).permutation(n) + 5
    whole = frame_of(x).set_index(labels)
    left, right = whole.iloc[:cut], whole.iloc[cut:] if two else None
    far = math.inf if bound is None else bound
    expected = nearest(left, right, k, list(left.columns), far, metric, p)
    cuts = [
        data.draw(st.lists(st.integers(0, rows), max_size=2)) for rows in (cut, n - cut)
    ]
    lazy = [split(left, cuts[0]), split(right, cuts[1]) if two else None]
    how = {"max_distance": bound, "metric": metric, "p": p}
    plain = left.simjoin.knn_join(right, k, **how)
    columns = (plain[name].tolist() for name in plain.columns)
    assert list(zip(*columns, strict=True)) == expected
    how |= {
        "partitioning": data.draw(st.sampled_from(["entity", "spatial", "auto"])),
        "blocksize": data.draw(
            st.sampled_from([None, 12 * (8 * x.shape[1] + 48 + 32 * k)])
        ),
    }
    result = lazy[0].simjoin.knn_join(lazy[1], k, **how)
    found = result.compute(scheduler="sync")
    assert rows_of(found, left) == expected
    assert list(found.dtypes) == list(plain.dtypes) == list(result.dtypes)


@settings(max_examples=examples(60))
@given(cases(max_dims=9, max_points=40), st.data())
def test_any_points(case, data):
    assert_nearest(without_overflow(case.x), case.eps, data)


@settings(max_examples=examples(60))
@given(metric_cases(most=40), st.data())
def test_any_rows_of_any_metric(case, data):
    metric, p, x, eps = case
    assert_nearest(without_overflow(x, p), eps, data, metric, p)


@pytest.mark.parametrize(("metric", "p"), every_nth(2, of_all_norms(ENGINE)))
def test_ties_are_in_the_order_of_the_frame(metric, p):
    """However its rows are dealt to chunks."""
    x = make_rows(metric, 30, 2, np.random.default_rng(2))
    frame = frame_of(np.concatenate([x, x[::-1], x])).set_index(np.arange(90)[::-1])
    expected = nearest(frame, None, 7, ["c0", "c1"], metric=metric, p=p)
    for partitioning in ("entity", "spatial"):
        result = split(frame, [13, 50]).simjoin.knn_join(
            k=7,
            metric=metric,
            p=p,
            partitioning=partitioning,
            blocksize=12 * (16 + 48 + 32 * 7),
        )
        assert rows_of(result.compute(scheduler="sync"), frame) == expected


@pytest.mark.parametrize("partitioning", ["plain", "entity", "spatial"])
@pytest.mark.parametrize("two", [False, True])
def test_attributes_of_both_rows(partitioning, two):
    rng = np.random.default_rng(4)
    left = frame_of(rng.integers(0, 9, (150, 2)) * 0.5).set_index(
        np.array([f"a{k}" for k in range(150)])
    )
    left["name"] = [f"n{k % 7}" for k in range(150)]
    right = (
        left.iloc[40:100]
        .rename(index=lambda label: f"b{label}")
        .assign(more=np.arange(60) * 0.5)
    )
    other = right if two else None
    keep = ["name", "more"] if two else ["name"]
    if partitioning == "plain":
        found = left.simjoin.knn_join(other, 3, on=["c0", "c1"], keep=keep)
    else:
        lazy = split(left, [50, 90]), split(right, [20]) if two else None
        joined = lazy[0].simjoin.knn_join(
            lazy[1],
            3,
            on=["c0", "c1"],
            keep=keep,
            partitioning=partitioning,
            blocksize="8 kB",
        )
        assert joined.npartitions > 2
        found = joined.compute(scheduler="threads")
    assert rows_of(found, left) == nearest(left, other, 3, ["c0", "c1"])
    data = right if two else left
    assert (found.name_left.to_numpy() == left.name.loc[found.left].to_numpy()).all()
    assert (found.name_right.to_numpy() == data.name.loc[found.right].to_numpy()).all()
    if two:
        assert (found.more.to_numpy() == data.more.loc[found.right].to_numpy()).all()


def test_near_chunks_only_are_searched():
    x = np.arange(4000.0)
    ddf = dd.from_pandas(pd.DataFrame({"x": x}), npartitions=16)
    joined = ddf.simjoin.knn_join(k=2, partitioning="entity", blocksize="40 kB")
    searches = joined.expr.plan.work.searches
    assert len(searches) > 8
    assert max(map(len, searches)) <= 4
    found = joined.compute(scheduler="sync")
    assert len(found) == 8000
    assert found.distance.max() == 2.0  # the ends
    assert (found.distance[(found.left > 0) & (found.left < 3999)] == 1.0).all()


def test_few_rows_and_none():
    one = pd.DataFrame({"x": [1.0]})
    none = one.iloc[:0]
    for lazy in (False, True):

        def lay(frame, lazy=lazy):
            return split(frame, []) if lazy else frame

        def value(result):
            return (
                result.compute(scheduler="sync")
                if hasattr(result, "compute")
                else result
            )

        assert not len(value(lay(one).simjoin.knn_join(k=3)))
        assert not len(value(lay(none).simjoin.knn_join(k=3)))
        assert not len(value(lay(one).simjoin.knn_join(lay(none), 3)))
        assert not len(value(lay(none).simjoin.knn_join(lay(one), 3)))
        found = value(lay(one).simjoin.knn_join(lay(one), 3))
        assert found.to_dict("list") == {
            "left": [0],
            "right": [0],
            "rank": [1],
            "distance": [0.0],
        }


def test_what_is_refused():
    df = pd.DataFrame({"x": [0.0, 1.0, np.nan], "name": list("abc")})
    join = df.simjoin.knn_join
    for k in (0, -1, 2.5, "3", True, None):
        with pytest.raises(
            OptionError, match=rf"k={k!r} is not allowed; use a whole number >= 1"
        ):
            join(k=k)
    with pytest.raises(OptionError, match="partitioning='replicated' is not allowed"):
        join(k=1, partitioning="replicated")
    with pytest.raises(OptionError, match="partitioning='replicated' is not allowed"):
        df.simjoin.plan(k=1, partitioning="replicated", dropna=True)
    with pytest.raises(OptionError, match="are for joins of two tables"):
        join(k=1, left_on="x", right_on="x")
    with pytest.raises(OptionError, match="max_distance=-1 is not allowed"):
        join(k=1, max_distance=-1)
    with pytest.raises(CoordinateError, match="'x' has 1 missing"):
        join(k=1)
    with pytest.raises(UnsupportedFrameError, match="is not a data frame"):
        join([0.0, 1.0], k=1)
    assert len(join(k=1, dropna=True)) == 2
    again = df.set_index(np.zeros(3, int))
    with pytest.raises(DuplicateIdError, match="0 repeats"):
        again.simjoin.knn_join(k=1, dropna=True)
    with pytest.raises(DuplicateIdError, match="0 repeats"):
        split(df, [1]).simjoin.knn_join(split(again, [1]), 1, dropna=True).compute(
            scheduler="sync"
        )


def test_one_partition_needs_only_its_own_chunks():
    ddf = dd.from_pandas(pd.DataFrame({"x": np.arange(4000.0)}), npartitions=8)
    joined = ddf.simjoin.knn_join(k=1, partitioning="entity", blocksize="40 kB")
    whole, part = (
        len(dict(some.optimize().__dask_graph__()))
        for some in (joined, joined.partitions[0])
    )
    assert part < whole / 2
    assert len(joined.partitions[0].compute(scheduler="sync"))


def test_chunks_beyond_the_largest_distance_are_not_searched():
    rng = np.random.default_rng(1)
    left = pd.DataFrame(rng.uniform(0, 10, (400, 2)), columns=["x", "y"])
    a, b = (
        dd.from_pandas(side, npartitions=2)
        for side in (left, left.assign(x=left.x + 100))
    )
    options = {"partitioning": "spatial", "blocksize": "2 kB"}
    near, every = (
        a.simjoin.plan(far, k=3, other=b, **options).block_pairs for far in (1.0, None)
    )
    assert near < every / 4  # regions reach into the gap
    assert len(a.simjoin.knn_join(b, 3, max_distance=1.0, **options)) == 0
    some, every = (
        a.simjoin.plan(far, k=20, **options).block_pairs for far in (0.1, None)
    )
    assert some < every


# --- more neighbours than there are rows
# ----------------------------------------------------------


@pytest.mark.parametrize("k", [10**6, 10**30])
def test_no_memory_for_neighbours_that_are_not_there(k, how):
    """Two arrays of 60 rows x 10**12 would be 960 TB."""
    frame = frame_of(np.random.default_rng(0).uniform(size=(60, 2)))
    few = frame.iloc[:3]
    frames = (
        [frame, few, frame.iloc[:0]]
        if how == "pandas"
        else [
            split(one, list(range(1, int(how[-1]))))
            for one in (frame, few, frame.iloc[:0])
        ]
    )
    every, three, none = frames
    for left, right, plain in (
        (every, None, None),
        (every, three, few),
        (three, every, frame),
    ):
        whole = frame if left is every else few
        found, want = left.simjoin.knn_join(right, k), whole.simjoin.knn_join(plain, 60)
        found = found if how == "pandas" else found.compute(scheduler="sync")
        order = ["left", "rank"]
        pd.testing.assert_frame_equal(
            found.sort_values(order, ignore_index=True),
            want.sort_values(order, ignore_index=True),
        )
    bound = every.simjoin.knn_join(k=k, max_distance=0.1)
    assert len(bound) == 2 * len(frame.simjoin.self_join(0.1))
    assert (
        len(every.simjoin.knn_join(none, k))
        == len(none.simjoin.knn_join(every, k))
        == 0
    )
    distances = every.simjoin.k_distances(k)
    assert np.isinf(np.asarray(distances)).all() and len(distances) == 60


def test_chunks_are_for_the_neighbours_that_are_there():
    """300 rows were cut into as many chunks as if each had 100,000 neighbours."""
    lazy = dd.from_pandas(frame_of(np.arange(300.0)[:, None]), npartitions=2)
    plan = lazy.simjoin.plan(k=100_000)
    assert plan.block_pairs == lazy.simjoin.plan(k=299).block_pairs == 1
    assert plan.pairs == 300 * 299
    assert (
        "at most 299 per row, because there are no more rows: k=100000 is larger"
        in repr(plan)
    )
    assert "is larger" not in repr(lazy.simjoin.plan(k=299))


def test_states_are_no_wider_than_the_rows_that_were_met():
    frame = frame_of(np.arange(12.0)[:, None])
    plan = make_plan_of(frame)
    state = search_chunk(*plan, 10**30, (0, 0))
    assert state["totals"].shape == state["row_numbers"].shape == (12, 12)


def make_plan_of(frame):
    spec = replace(SelfJoinRequest(eps=0.0).spec(frame.iloc[:0]), id=None)
    (chunk,), plan = whole_chunks([frame], spec, nearest_output(5))
    return chunk, chunk, plan.layout


def test_results_beyond_the_limit_are_refused():
    """Their number of rows is known, unless some neighbours may be too far."""
    frame = frame_of(np.arange(2000.0)[:, None])
    lazy = dd.from_pandas(frame, npartitions=2)
    message = r"k=100 gives 200,000 rows.*6.4 MB\). The limit is 1 MB.*result-limit.*smaller k.*raise"
    with dask.config.set({"simjoin.result-limit": "1 MB"}):
        join = lazy.simjoin.knn_join(k=100)
        for refused in (
            join.compute,
            lambda: len(join),
            lambda: lazy.simjoin.plan(k=100),
        ):
            with pytest.raises(BudgetError, match=message):
                refused()
        with pytest.raises(BudgetError, match=r"k=100 gives 200,000 rows"):
            lazy.simjoin.knn_join(lazy, k=100).compute()
        with pytest.raises(BudgetError, match=r"k=20 gives 40,000 rows \(1\.92 MB\)"):
            lazy.simjoin.knn_join(k=20, keep="c0", suffixes=("_a", "_b")).assign(
                x=1.0
            ).compute()
        assert len(lazy.simjoin.knn_join(k=10)) == 20_000
        assert len(lazy.simjoin.knn_join(k=100, max_distance=1.0)) == 3998
        assert len(lazy.simjoin.k_distances(100)) == 2000


@in_turns(2, how=["inner", "left"], two=[False, True], at_once=[False, True])
def test_each_part_of_a_chunk_is_one_partition(how, two, at_once, monkeypatch):
    # on a cluster, tasks search the parts of a chunk
    monkeypatch.setattr(searches, "_is_at_once", lambda *_: at_once)
    monkeypatch.setattr(
        Costs, "pieces", lambda costs, seconds, *_: np.full(len(seconds), 3)
    )
    x = np.random.default_rng(5).normal(size=(500, 2))
    x[::50, 0] = np.nan
    frame = frame_of(x).set_index(np.arange(500)[::-1])
    frame["name"] = [f"n{k}" for k in range(500)]
    lazy = split(frame, [120, 300])
    sides = (lazy, split(frame[100:220], [60])) if two else (lazy, None)
    options = {
        "k": 3,
        "on": ["c0", "c1"],
        "max_distance": 0.1,
        "how": how,
        "keep": ["name"],
        "dropna": True,
    }
    # with "left", one more partition has the rows without coordinates
    others = how == "left"
    small = sides[0].simjoin.knn_join(sides[1], **options)
    assert small.npartitions == 1 + others
    with dask.config.set({"simjoin.output-size": "40 kB"}):
        joined = sides[0].simjoin.knn_join(sides[1], **options)
        assert (
            len(joined.expr.plan.chunks) == 1 + two and joined.npartitions == 3 + others
        )
    place = {label: row for row, label in enumerate(frame.index)}
    parts = [part.compute(scheduler="threads") for part in joined.partitions]
    for part in parts:
        at = part.left.map(place).to_numpy()
        assert (
            len(part)
            and (np.diff(at) >= 0).all()
            and (np.diff(part["rank"])[np.diff(at) == 0] == 1).all()
        )
    assert len(set().union(*(part.left for part in parts))) == sum(
        part.left.nunique() for part in parts
    )
    plain = frame.simjoin.knn_join(frame[100:220] if two else None, **options)
    found = pd.concat(parts).sort_values(
        ["left", "rank"], ascending=[False, True], ignore_index=True
    )
    pd.testing.assert_frame_equal(found, plain, check_dtype=False)


def test_partitions_are_no_larger_than_planned(monkeypatch):
    """A single chunk may be large, but its result comes in partitions of the usual
    size.
    """
    monkeypatch.setattr("dask_simjoin.planning.limits.LOCAL_CHUNK", 1 << 14)
    frame = frame_of(np.random.default_rng(6).normal(size=(1000, 3)))
    joined = dd.from_pandas(frame, npartitions=4).simjoin.knn_join(k=4)
    report = joined.expr.report
    assert report.partitions == joined.npartitions and report.partition_bytes <= 1 << 14
    assert joined.map_partitions(len).compute().sum() == 4000
    searches = [
        key for key in dict(joined.optimize().__dask_graph__()) if "nearest" in str(key)
    ]
    assert report._tasks - report._making_tasks() == len(searches)


@pytest.mark.parametrize("other", [slice(0), slice(5)])
def test_rows_of_a_chunk_that_searches_nothing_come_once(other, monkeypatch):
    monkeypatch.setattr(
        Costs, "pieces", lambda costs, seconds, *_: np.full(len(seconds), 3)
    )
    frame = frame_of(np.arange(300.0)[:, None])
    far = (frame + 1e6)[other]
    sides = dd.from_pandas(frame, npartitions=3), dd.from_pandas(far, npartitions=1)
    with dask.config.set({"simjoin.output-size": "4 kB"}):
        lazy = sides[0].simjoin.knn_join(sides[1], 2, max_distance=0.1, how="left")
        assert lazy.npartitions == 1
    assert lazy.compute().left.tolist() == list(range(300))


def test_a_large_right_table_has_chunks_of_the_usual_size(monkeypatch):
    monkeypatch.setattr("dask_simjoin.planning.limits.LOCAL_CHUNK", 1 << 16)
    monkeypatch.setattr("dask_simjoin.planning.resources.MEMORY_LIMIT", 1 << 19)
    left, right = (
        frame_of(np.random.default_rng(7).uniform(size=(rows, 2)))
        for rows in (500, 50_000)
    )
    sides = (dd.from_pandas(side, npartitions=4) for side in (left, right))
    plan = (
        next(sides).simjoin.knn_join(next(sides), 10, partitioning="entity").expr.plan
    )
    assert len(plan.chunks.sides[0]) == 1 < len(plan.chunks.sides[1])


def test_too_many_partitions(monkeypatch):
    monkeypatch.setattr("dask_simjoin.planning.checks.MAX_TASKS", 50)
    lazy = dd.from_pandas(frame_of(np.arange(300.0)[:, None]), npartitions=2)
    limit = dask.config.set({"simjoin.output-size": "100 B"})
    with (
        limit,
        pytest.raises(BudgetError, match=r"partitions of .*, or a smaller k\.$"),
    ):
        lazy.simjoin.knn_join(k=2).compute()
