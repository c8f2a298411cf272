"""Rows without a neighbor: `how="left"` and `how="leftanti"` of `knn_join`, against the
definition.
"""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.errors import OptionError
from dask_simjoin.metrics import make_metric
from tests.support.frames import split
from tests.support.metrics import ENGINE, make_rows, of_all_norms
from tests.support.oracle import distances, totals
from tests.support.points import cases, frame_of, without_overflow
from tests.support.profiles import every_nth, examples, in_turns

PARTITIONINGS = ["entity", "spatial", "auto"]


def neighbors(left, right, k, on, least=0.0, most=np.inf):
    """(left, right, rank, distance) by the definition; None where a row has no
    neighbor.
    """
    data = left if right is None else right
    away = distances(left[on].to_numpy(float), data[on].to_numpy(float), "euclidean", 2)
    squares = np.zeros_like(away)
    with np.errstate(over="ignore"):
        for name in on:
            squares += (
                left[name].to_numpy(float)[:, None] - data[name].to_numpy(float)
            ) ** 2
    rows = []
    for i, label in enumerate(left.index):
        within = (squares[i] >= least * least) & (squares[i] <= most * most)
        if right is None:
            within[i] = False
        near = np.flatnonzero(within)
        near = near[np.argsort(squares[i, near], kind="stable")]
        rows += [
            (label, data.index[j], n + 1, float(away[i, j]))
            for n, j in enumerate(near[:k])
        ]
        if not len(near):
            rows.append((label, None, None, None))
    return rows


def as_rows(found):
    """Return the rows of a result, with None for missing values."""
    return [
        tuple(None if pd.isna(value) else value for value in row)
        for row in zip(
            *(found[name].tolist() for name in ("left", "right", "rank", "distance")),
            strict=True,
        )
    ]


def check(left, right, k, on, lazy, least=None, most=None, **options):
    """Compare all kinds of joins with the definition, plain and lazily."""
    bounds = {} if least is None else {"min_distance": least}
    bounds |= {} if most is None else {"max_distance": most}
    expected = neighbors(
        left, right, k, on, least or 0.0, np.inf if most is None else most
    )
    alone = [row[0] for row in expected if row[1] is None]
    inner = [row for row in expected if row[1] is not None]
    order = {label: n for n, label in enumerate(left.index)}
    for how, want in (("inner", inner), ("left", expected)):
        plain = left.simjoin.knn_join(right, k, how=how, on=on, **bounds)
        assert as_rows(plain) == want
        result = lazy[0].simjoin.knn_join(
            lazy[1], k, how=how, on=on, **bounds, **options
        )
        found = result.compute(scheduler="sync")
        assert (
            sorted(as_rows(found), key=lambda row: (order[row[0]], row[2] or 0)) == want
        )
        assert list(found.dtypes) == list(result.dtypes) == list(plain.dtypes)
    plain = left.simjoin.knn_join(right, k, how="leftanti", on=on, **bounds)
    pd.testing.assert_frame_equal(plain, left.loc[alone])
    result = lazy[0].simjoin.knn_join(
        lazy[1], k, how="leftanti", on=on, **bounds, **options
    )
    pd.testing.assert_frame_equal(result.compute(scheduler="sync"), left.loc[alone])


def check_drawn(case, data, **bounds):
    """Check tables and options that are drawn: a table with itself, or both parts of a
    cut one.
    """
    n, x = len(case.x), without_overflow(case.x)
    two, k = data.draw(st.booleans()), data.draw(st.sampled_from([1, 2, 5, 60]))
    cut = data.draw(st.integers(0, n)) if two else n
    whole = frame_of(x).set_index(np.random.default_rng(n).permutation(n) + 5)
    left, right = whole.iloc[:cut], whole.iloc[cut:] if two else None
    cuts = [
        data.draw(st.lists(st.integers(0, rows), max_size=2)) for rows in (cut, n - cut)
    ]
    lazy = split(left, cuts[0]), split(right, cuts[1]) if two else None
    options = {"partitioning": data.draw(st.sampled_from(PARTITIONINGS))}
    options["blocksize"] = data.draw(
        st.sampled_from([None, 12 * (8 * case.x.shape[1] + 48 + 32 * k)])
    )
    check(left, right, k, list(left.columns), lazy, **bounds, **options)


@settings(max_examples=examples(60))
@given(cases(max_dims=9, max_points=40), st.data())
def test_any_points(case, data):
    most = data.draw(st.sampled_from([None, case.eps]))
    check_drawn(case, data, most=most)


@in_turns(1, partitioning=["plain", "entity", "spatial"], two=[False, True])
def test_kept_columns_and_ids(partitioning, two):
    rng = np.random.default_rng(3)
    left = frame_of(rng.integers(0, 40, (150, 2)) * 1.0).assign(
        name=[f"n{n % 7}" for n in range(150)]
    )
    left["id"] = rng.permutation(150)
    right = left.iloc[40:100].assign(
        id=np.arange(60) + 500,
        c0=left.c0 + 0.5,
        flag=True,
        size=np.arange(40, 100, dtype=np.int32),
        day=pd.Timestamp("2026-01-01"),
    )
    other = right if two else None
    how = {"on": ["c0", "c1"], "id": "id", "max_distance": 1.0, "how": "left"}
    keep = ["name", "flag", "size", "day"] if two else ["name"]
    plain = left.simjoin.knn_join(other, 2, keep=keep, **how)
    found = plain
    if partitioning != "plain":
        lazy = split(left, [50, 90]), split(right, [20]) if two else None
        made = lazy[0].simjoin.knn_join(
            lazy[1], 2, keep=keep, **how, partitioning=partitioning, blocksize="8 kB"
        )
        found = made.compute(scheduler="threads").sort_values(
            ["left", "rank"], ignore_index=True
        )
        plain = plain.sort_values(["left", "rank"], ignore_index=True)
        assert list(made.dtypes) == list(plain.dtypes)
    pd.testing.assert_frame_equal(found, plain, check_dtype=False)
    missing = found.right.isna()
    assert 0 < missing.sum() < len(found)
    assert set(found.left) == set(left.id)
    assert (found[missing].drop(columns=["left", found.columns[4]]).isna()).all(
        axis=None
    )
    data = (other if two else left).set_index("id")
    of_left = left.set_index("id").name
    assert (found.name_left.to_numpy() == of_left.loc[found.left].to_numpy()).all()
    for name in keep:
        called = name if name != "name" else "name_right"
        values = found[called][~missing].tolist()
        assert values == data[name].loc[found.right[~missing]].tolist()
    joined = (
        left.simjoin.join(other, 1.0, keep=keep, on=["c0", "c1"], id="id", how="left")
        if two
        else None
    )
    if two:  # as those of a join within a distance
        assert found.dtypes["right"] == joined.dtypes["right"] == "Int64"
        assert all(
            found.dtypes[name] == joined.dtypes[name] for name in keep if name != "name"
        )
    assert found.dtypes["rank"] == "Int64"
    assert found.dtypes["distance"] == "float64"


@pytest.mark.parametrize("by", [None, "kind"])
def test_rows_without_coordinates_have_no_neighbor(by):
    rng = np.random.default_rng(9)
    frame = pd.DataFrame(rng.integers(0, 60, (80, 2)).astype(float), columns=["x", "y"])
    frame.loc[rng.random(80) < 0.2, "x"] = np.nan
    frame["kind"] = rng.integers(0, 2, 80)
    lazy = dd.from_pandas(frame, npartitions=3)
    options = {"on": ["x", "y"], "max_distance": 4.0, "dropna": True, "by": by}
    for other, lazy_other in (
        (None, None),
        (frame[20:50], dd.from_pandas(frame[20:50], npartitions=2)),
    ):
        alone = frame.simjoin.knn_join(other, 1, how="leftanti", **options)
        pairs = frame.simjoin.knn_join(other, 1, **options)
        assert set(alone.index) == set(frame.index) - set(pairs.left)
        found = lazy.simjoin.knn_join(lazy_other, 1, how="leftanti", **options)
        pd.testing.assert_frame_equal(found.compute(scheduler="sync"), alone)
        rest = lazy.simjoin.knn_join(lazy_other, 1, how="left", **options).compute(
            scheduler="sync"
        )
        assert sorted(rest.left[rest.right.isna()]) == sorted(alone.index)


def test_tables_without_rows():
    some = pd.DataFrame({"x": [1.0, 2.0]})
    none = some.iloc[:0]
    tables = (some, none, 2), (none, some, 0), (none, none.copy(), 0)
    for left, right, number in tables:
        lazy = split(left, []), split(right, [])
        for a, b in ((left, right), lazy):
            for how in ("left", "leftanti"):
                found = a.simjoin.knn_join(b, 3, how=how)
                assert (
                    len(
                        found.compute(scheduler="sync")
                        if hasattr(found, "compute")
                        else found
                    )
                    == number
                )


def test_what_is_refused():
    frame = pd.DataFrame({"x": [0.0, 1.0]})
    join = frame.simjoin.knn_join
    with pytest.raises(
        OptionError, match=r"how='anti' is not allowed.*did you mean 'leftanti'"
    ):
        join(k=1, how="anti")
    with pytest.raises(
        OptionError, match=r"how='right' is not allowed.*swap the tables: other"
    ):
        join(k=1, how="right")
    with pytest.raises(
        OptionError, match="how='leftsemi' is not allowed; use one of 'inner', 'left'"
    ):
        join(k=1, how="leftsemi")
    with pytest.raises(
        OptionError, match="how='left' is not allowed with mutual=True; leave out one"
    ):
        join(k=1, how="left", mutual=True)


def test_partitions_are_in_the_order_of_left_rows():
    frame = pd.DataFrame({"x": [5.0, 90.0, 6.0, 70.0, 5.5]})
    found = dd.from_pandas(frame, npartitions=1).simjoin.knn_join(
        k=2, how="left", max_distance=1.0
    )
    assert found.compute().left.tolist() == [0, 0, 1, 2, 2, 3, 4, 4]


# --- the smallest distance
# ------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(cases(max_dims=9, max_points=40), st.data())
def test_any_points_with_a_smallest_distance(case, data):
    """Columns of many dimensions take the filter in float32, few ones the exact search."""
    least = data.draw(st.sampled_from([0.0, case.eps, case.eps / 2]))
    most = data.draw(st.sampled_from([None, case.eps]))
    check_drawn(case, data, least=least, most=most)


@in_turns(1, bounds=every_nth(5, [(3.0, None), (3.0, 4.0), (2.0, 2.0)]), dims=[2, 24])
def test_many_rows_are_too_near(dims, bounds):
    """Rows on a lattice with many copies: whole tiles are nearer, and ties are at the
    bounds.
    """
    rng = np.random.default_rng(dims)
    x = rng.integers(0, 6, (400, dims)).astype(float)
    x[:, 2:] = 0
    left = frame_of(x)
    on = list(left.columns)
    lazy = split(left, [130, 260]), None
    for partitioning in ("entity", "spatial"):
        check(
            left,
            None,
            3,
            on,
            lazy,
            *bounds,
            partitioning=partitioning,
            blocksize=200 * dims * 8,
        )
    other = frame_of(rng.integers(0, 6, (300, dims)) * 1.0 * (np.arange(dims) < 2))
    check(
        left,
        other,
        2,
        on,
        (lazy[0], split(other, [100])),
        *bounds,
        blocksize=200 * dims * 8,
    )


@pytest.mark.parametrize(("metric", "p"), of_all_norms(ENGINE))
def test_any_metric(metric, p):
    """A neighbor at the distance counts, and one that is nearer by a unit in the last
    place does not.
    """
    frame = frame_of(make_rows(metric, 60, 2, np.random.default_rng(2)))
    data = frame.to_numpy()
    total = totals(data, data, metric, p)
    found = frame.simjoin.knn_join(k=59, metric=metric, p=p)
    make = make_metric(metric, p)
    for least in (
        found.distance.median(),
        float(np.nextafter(found.distance.median(), 0)),
        0.0,
    ):
        wanted = total >= make.least_total(least)
        np.fill_diagonal(wanted, False)
        some = frame.simjoin.knn_join(k=59, min_distance=least, metric=metric, p=p)
        pairs = set(zip(some.left, some.right, strict=True))
        assert pairs == {(i, j) for i, j in np.argwhere(wanted).tolist()}
        lazy = split(frame, [13, 50]).simjoin.knn_join(
            k=3, min_distance=least, metric=metric, p=p, blocksize="2 kB"
        )
        first = some[some["rank"] <= 3].reset_index(drop=True)
        found_lazily = lazy.compute(scheduler="sync").sort_values(
            ["left", "rank"], ignore_index=True
        )
        pd.testing.assert_frame_equal(found_lazily, first)


def test_opposite_directions_are_at_the_largest_distance():
    frame = pd.DataFrame({"x": [1.0, -1.0, 0.0], "y": [0.0, 0.0, 1.0]})
    found = frame.simjoin.knn_join(k=2, metric="cosine", min_distance=2.0)
    assert list(zip(found.left, found.right, strict=True)) == [(0, 1), (1, 0)]


def test_mutual_neighbors_have_a_smallest_distance():
    rng = np.random.default_rng(6)
    frame = frame_of(rng.integers(0, 9, (60, 2)) * 1.0)
    one = frame.simjoin.knn_join(k=2, min_distance=2.0)
    both = {(a, b) for a, b in zip(one.left, one.right, strict=True)}
    for table in (frame, split(frame, [20])):
        found = table.simjoin.knn_join(k=2, min_distance=2.0, mutual=True)
        found = found if table is frame else found.compute(scheduler="sync")
        assert set(zip(found.left, found.right, strict=True)) == {
            (a, b) for a, b in both if (b, a) in both
        }


def test_units_and_groups():
    frame = pd.DataFrame(
        {"lat": [0.0, 0.001, 0.1, 0.2], "lon": 0.0, "by": list("aaab")}
    )
    options = {"on": ["lat", "lon"], "metric": "haversine"}
    found = frame.simjoin.knn_join(k=1, min_distance="1 km", **options)
    assert found.right.tolist() == [2, 2, 1, 2]
    found = frame.simjoin.knn_join(
        k=1, min_distance="1 km", max_distance="1000 km", by="by", **options
    )
    assert found.right.tolist() == [2, 2, 1]


def test_refused_smallest_distances():
    frame = pd.DataFrame({"x": [0.0, 1.0]})
    join = frame.simjoin.knn_join
    with pytest.raises(
        OptionError, match=r"min_distance=2 is larger than max_distance=1, so no row"
    ):
        join(k=1, min_distance=2, max_distance=1)
    with pytest.raises(
        OptionError, match=r"min_distance=-1 is not allowed; use a finite number >= 0"
    ):
        join(k=1, min_distance=-1)
    with pytest.raises(
        OptionError,
        match=r"min_distance=1 is not allowed with method='zorder'.*'tiles'",
    ):
        join(k=1, min_distance=1, method="zorder")
    with pytest.raises(
        OptionError, match=r"with method='zorder' and approximate=True, which may miss"
    ):
        join(k=1, min_distance=1, method="zorder", approximate=True)
    with pytest.raises(OptionError, match=r"min_distance='1 km' has a unit"):
        join(k=1, min_distance="1 km")


def test_plans_with_a_smallest_distance():
    """Their number of rows is an upper bound, and chunks beyond the bound of a sample
    are skipped.
    """
    lazy = dd.from_pandas(pd.DataFrame({"x": np.arange(4000.0)}), npartitions=16)
    joined = lazy.simjoin.knn_join(
        k=2, min_distance=100.0, partitioning="entity", blocksize="40 kB"
    )
    report = joined.expr.report
    assert report.pairs_low == 0 < report.pairs_high == 8000
    searches = joined.expr.plan.work.searches
    assert 0 < max(map(len, searches)) < len(searches)
    found = joined.compute(scheduler="sync")
    assert len(found) == 8000 and found.distance.min() == 100.0
