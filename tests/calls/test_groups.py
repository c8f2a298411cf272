"""Pairs only of rows that are equal in some columns: those that are found without, and
are equal there.
"""

import re

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import (
    ColumnError,
    CoordinateError,
    OptionError,
    OptionTypeError,
)
from dask_simjoin.metrics import METRICS, make_metric
from dask_simjoin.metrics.distances import Grouped, Metric, separation
from dask_simjoin.metrics.norms import add, is_norm
from tests.support.density import labels_of_neighbours
from tests.support.duplicates import marked, order_of
from tests.support.frames import computed, itself, lay, split
from tests.support.oracle import squared_distances, totals
from tests.support.points import cases, frame_of
from tests.support.profiles import examples

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.uniform(size=(120, 3)), columns=["x", "y", "z"]).assign(
    shop=RNG.integers(0, 4, 120),
    country=pd.Series(RNG.choice(list("abc"), 120)).astype("category"),
)
BY = ["shop", "country"]
WAYS = {
    "auto": {},
    "regions": {"partitioning": "spatial", "blocksize": "2 kB"},
    "entity": {"partitioning": "entity", "blocksize": "2 kB"},
}


def same_groups(frame, by):
    """Which rows are equal in some columns (n, n)."""
    number = frame.groupby(by, observed=True).ngroup().to_numpy()
    return number[:, None] == number


def rows_of(pairs):
    return {tuple(row) for row in pairs.to_numpy().tolist()}


def found(data, by, eps, **how):
    """Pairs with their distances, found with `by`."""
    return rows_of(
        computed(data.simjoin.self_join(eps, by=by, return_distance=True, **how))
    )


def wanted(frame, by, eps, **how):
    """The same, found without it."""
    pairs = frame.simjoin.self_join(eps, return_distance=True, **how)
    same = same_groups(frame, by)
    return {row for row in rows_of(pairs) if same[int(row[0]), int(row[1])]}


@settings(max_examples=examples(120))
@given(
    cases(max_dims=5, max_points=60),
    st.integers(1, 6),
    st.integers(0, 99),
    st.sampled_from(["euclidean", "manhattan", "chebyshev", "sqeuclidean"]),
    st.sampled_from(["entity", "spatial"]),
)
def test_any_points(case, groups, seed, metric, partitioning):
    """Huge, tiny and equal ones, with distances that are met exactly."""
    frame = frame_of(case.x).assign(
        g=np.random.default_rng(seed).integers(0, groups, len(case.x))
    )
    on = list(frame.columns[:-1])
    with np.errstate(over="ignore", under="ignore"):
        total = totals(case.x, case.x, metric, 2)
        near = total <= make_metric(metric).threshold(case.eps)
    near &= same_groups(frame, "g") if len(frame) else near
    want = set(
        zip(*(side.tolist() for side in np.nonzero(np.triu(near, 1))), strict=True)
    )
    how = {"on": on, "by": "g", "metric": metric}
    assert rows_of(frame.simjoin.self_join(case.eps, **how)) == want
    lazy = split(frame, case.cuts).simjoin.count_pairs(
        case.eps, **how, partitioning=partitioning, blocksize=20 * 64
    )
    with dask.config.set(scheduler="sync"):
        assert lazy.compute() == len(want)


@pytest.mark.parametrize(
    "name", ["euclidean", "minkowski", "cosine", "haversine", "chebyshev", "manhattan"]
)
def test_groups_are_further_apart_than_any_pair(name):
    metric = make_metric(name, 3 if name == "minkowski" else 2)
    for eps in (0.0, 5e-324, 1e-160, 1e-3, 1.0, np.nextafter(2, 3), 3.7e5, 1e40):
        apart = separation(metric, eps)
        if np.isfinite(apart):
            assert np.frexp(apart)[0] == 0.5  # a power of two
            with np.errstate(over="ignore", under="ignore"):
                total = add(np.zeros(1), np.array([apart]), metric.norm)[0]
            assert total > metric.threshold(eps)
    assert separation(make_metric("euclidean"), 1e200) == np.inf


def test_a_zero_that_is_added_changes_no_total():
    some = np.array([0.0, 5e-324, 1.0, np.nextafter(1, 2), 1e308, np.inf])
    for norm in (1, 2, 3, np.inf):
        assert np.array_equal(add(some, np.zeros(6), norm), some)
    assert Grouped(make_metric("haversine")).dims(3) == 4


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["pandas", "dask-3"])
@pytest.mark.parametrize(
    ("metric", "on", "eps"),
    [
        ("euclidean", ["x", "y"], 0.2),
        ("haversine", ["x", "y"], 2e4),
        ("cosine", ["x", "y", "z"], 0.02),
    ],
)
def test_every_metric_and_way(metric, on, eps, how, way):
    options = {"metric": metric, "on": on}
    want = wanted(FRAME, BY, eps, **options)
    assert len(want) > 10
    more = WAYS[way] if how != "pandas" else {}
    assert found(lay(FRAME, how), BY, eps, **options, **more) == want


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_lists(how):
    frame = FRAME.assign(e=list(FRAME[["x", "y", "z"]].to_numpy().astype("f4")))[
        ["e", "shop"]
    ]
    want = wanted(frame, "shop", 0.02, on="e", metric="cosine")
    for way in WAYS.values() if how != "pandas" else [{}]:
        assert (
            found(lay(frame, how), "shop", 0.02, on="e", metric="cosine", **way) == want
        )
    assert len(want) > 10


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_every_verb(how):
    data, xy = lay(FRAME, how), FRAME[["x", "y"]].to_numpy()
    near = (squared_distances(xy, xy) <= 0.2 * 0.2) & same_groups(FRAME, BY)
    options = {"on": ["x", "y"], "by": BY}
    verbs = data.simjoin
    assert (
        computed(verbs.neighbor_counts(0.2, **options)).tolist()
        == (near.sum(1) - 1).tolist()
    )
    assert computed(verbs.count_pairs(0.2, **options)) == (near.sum() - 120) // 2
    assert computed(verbs.dbscan(0.2, 3, **options)).tolist() == labels_of_neighbours(
        near, 3
    )
    gone = marked(near, order_of("first", 120))
    assert computed(verbs.near_duplicated(0.2, **options)).tolist() == gone
    once = computed(verbs.drop_near_duplicates(0.2, **options))
    assert list(once.columns) == list(FRAME.columns) and len(once) == 120 - sum(gone)
    pairs = computed(verbs.join(data, 0.2, **options))
    assert len(pairs) == near.sum()
    half = computed(verbs.join(FRAME.iloc[:40], 0.2, how="leftsemi", **options))
    assert half.index.tolist() == np.flatnonzero(near[:, :40].any(1)).tolist()
    assert list(half.columns) == list(FRAME.columns)
    far = np.where(near & ~np.eye(120, dtype=bool), squared_distances(xy, xy), np.inf)
    nearest = computed(verbs.knn_join(k=1, max_distance=0.2, **options))
    alone = np.isinf(far.min(1))
    assert dict(zip(nearest["left"], nearest["right"], strict=True)) == {
        int(n): int(far[n].argmin()) for n in np.flatnonzero(~alone)
    }
    if how != "pandas":
        label = data.simjoin.dbscan(0.2, 3, **options)
        assert data.assign(label=label).compute()[
            "label"
        ].tolist() == labels_of_neighbours(near, 3)
        assert label.divisions == data.divisions


def test_nothing_is_computed_at_the_call():
    def fail(part):
        raise AssertionError("computed")

    lazy = dd.from_pandas(FRAME, npartitions=2).map_partitions(
        fail, meta=FRAME.iloc[:0]
    )
    lazy.simjoin.self_join(0.1, on=["x"], by="shop")
    lazy.simjoin.dbscan(0.1, on=["x"], by=BY)


def test_by_is_no_coordinate():
    """Unless `on` names it."""
    frame = FRAME[["x", "y", "shop"]]
    assert rows_of(frame.simjoin.self_join(0.2, by="shop")) == rows_of(
        frame.simjoin.self_join(0.2, on=["x", "y"], by="shop")
    )
    assert frame.simjoin.count_pairs(
        0.2, by="shop", on=["x", "shop"]
    ) == frame.simjoin.count_pairs(0.2, by="shop", on="x")


@pytest.mark.parametrize("how", ["pandas", "dask-2"])
def test_missing_values(how):
    frame = pd.DataFrame({"x": [0.0, 0.0, 0.0], "t": ["a", None, "a"]})
    data = lay(frame, how)
    with pytest.raises(
        CoordinateError,
        match=r"^Columns of by= .*: 't', missing in 1 row \(first at.*Use dropna",
    ):
        computed(data.simjoin.count_pairs(1.0, by="t"))
    assert rows_of(computed(data.simjoin.self_join(1.0, by="t", dropna=True))) == {
        (0, 2)
    }


def test_two_tables_of_other_categories_and_numbers():
    one = FRAME.assign(country=FRAME["country"].astype(str))
    two = FRAME.iloc[:50].assign(shop=lambda some: some["shop"].astype("float32"))
    want = rows_of(FRAME.simjoin.join(FRAME.iloc[:50], 0.2, on=["x", "y"], by=BY))
    assert rows_of(one.simjoin.join(two, 0.2, on=["x", "y"], by=BY)) == want
    lazy = lay(one, "dask-3").simjoin.join(
        lay(two, "dask-2"), 0.2, on=["x", "y"], by=BY
    )
    assert rows_of(lazy.compute()) == want


LARGE = 2**53
"""From here on not all whole numbers are floats."""


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("int64", "uint64"),
        ("UInt64", "int64[pyarrow]"),
        ("int64[pyarrow]", "uint64"),
        ("Int64", "float64"),
        ("bool", "int64"),
        ("float32", "bool"),
    ],
)
@pytest.mark.parametrize("how", ["pandas", "dask-2"])
def test_numbers_of_two_tables_that_no_dtype_has_all_of(left, right, how):
    one = [LARGE, LARGE + 1, 1, 0] if "64" in left else [True, False, True, True]
    two = [1, LARGE, 0, LARGE + 2] if "64" in right else [True, False, False, True]
    x, two = np.zeros(4), two if left != "bool" else [1, 0, 2, 1]
    tables = [
        pd.DataFrame({"x": x, "g": pd.Series(g, dtype=kind)})
        for g, kind in ((one, left), (two, right))
    ]
    pairs = computed(
        lay(tables[0], how).simjoin.join(lay(tables[1], how), 1.0, on="x", by="g")
    )
    assert rows_of(pairs) == {
        (i, j) for i in range(4) for j in range(4) if one[i] == two[j]
    }


def test_groups_of_a_dictionary_of_arrow():
    frame = FRAME.assign(
        country=FRAME["country"].astype(
            pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
        )
    )
    for data in (frame, lay(frame, "dask-3")):
        assert found(data, BY, 0.2, on=["x", "y"]) == wanted(
            FRAME, BY, 0.2, on=["x", "y"]
        )


def test_refused():
    verbs = FRAME.simjoin
    with pytest.raises(OptionError, match="by= needs a largest distance"):
        verbs.knn_join(on="x", by="shop")
    with pytest.raises(OptionError, match="names a column, which by= does not support"):
        verbs.neighbor_counts("z", on="x", by="shop")
    with pytest.raises(OptionError, match="too large for by="):
        verbs.count_pairs(1e308, on="x", by="shop", metric="manhattan")
    with pytest.raises(
        OptionError, match="takes at most 4 columns, and on= names 4, and by= adds one"
    ):
        FRAME.assign(w=0.0).simjoin.count_pairs(
            1.0, on=["x", "y", "z", "w"], by="shop", method="sweep"
        )
    with pytest.raises(
        ColumnError, match=re.escape("not a column (did you mean 'shop'?)")
    ):
        verbs.count_pairs(1.0, on="x", by="shp")
    with pytest.raises(ColumnError, match=r"by=\[\] names no column"):
        verbs.count_pairs(1.0, on="x", by=[])
    with pytest.raises(ColumnError, match="of dtype int64 in the left table and of"):
        verbs.join(FRAME.assign(shop="a"), 1.0, on="x", by="shop")
    with pytest.raises(
        ColumnError, match="by= names 'shop' more than once; name each column once"
    ):
        verbs.count_pairs(1.0, on="x", by=["shop", "shop"])
    with pytest.raises(ColumnError, match="several columns named 'shop'"):
        FRAME.rename(columns={"country": "shop"}).simjoin.count_pairs(
            1.0, on="x", by="shop"
        )
    with pytest.raises(OptionError, match="by= needs a largest distance here"):
        verbs.k_distances(2, on="x", by="shop")


class Bounded(Metric):
    """A metric that is not a norm: its terms do not grow with the numbers of groups."""

    name = "bounded"

    def __init__(self):
        super().__init__(-1)


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_metrics_that_are_no_norms_are_refused(monkeypatch, how):
    monkeypatch.setitem(METRICS, "bounded", Bounded)
    data = lay(FRAME, how)
    for call in (
        lambda: data.simjoin.self_join(0.2, on=["x", "y"], by="shop", metric="bounded"),
        lambda: data.simjoin.join(
            data, 0.2, on=["x", "y"], by="shop", metric="bounded"
        ),
        lambda: data.simjoin.dbscan(0.2, on=["x", "y"], by="shop", metric="bounded"),
        lambda: data.simjoin.knn_join(
            k=1, on=["x", "y"], by="shop", metric="bounded", max_distance=1.0
        ),
        lambda: Grouped(Bounded()),
    ):
        with pytest.raises(
            OptionError, match="by= is not allowed with metric='bounded'"
        ):
            call()
    served = [
        make_metric(name, 3 if name == "minkowski" else 2)
        for name in METRICS
        if name != "bounded"
    ]
    assert all(is_norm(metric.norm) for metric in served)
    assert not any(map(is_norm, (0, 0.5, -1, -np.inf, np.nan)))


@pytest.mark.parametrize("kind", [object, pd.ArrowDtype(pa.list_(pa.int64()))])
def test_values_that_are_no_single_ones(kind):
    frame = pd.DataFrame(
        {"x": [0.0, 1.0], "tags": pd.Series([[1], [1, 2]], dtype=kind)}
    )
    with dask.config.set({"dataframe.convert-string": False}):
        for data in (frame, lay(frame, "dask-2")):
            with pytest.raises(
                ColumnError, match=r"by= names column 'tags' .* are not scalars.* Use"
            ):
                computed(data.simjoin.count_pairs(1.0, on="x", by="tags"))


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_mutual_neighbours(how):
    data, other = (
        lay(FRAME, how),
        lay(FRAME.iloc[60:].rename(index=lambda n: n + 1000), how),
    )
    one = {"on": ["x", "y"], "keep": "shop"}
    for k in (1, 3):
        way = computed(data.simjoin.knn_join(k=k, **one))
        both = rows_of(way[["left", "right"]]) & rows_of(way[["right", "left"]])
        mutual = computed(data.simjoin.knn_join(k=k, mutual=True, **one))
        assert list(mutual.columns) == list(way.columns)
        assert (
            rows_of(mutual) == {row for row in rows_of(way) if row[:2] in both} and both
        )
    there, back = FRAME.iloc[:60], FRAME.iloc[60:].rename(index=lambda n: n + 1000)
    want = rows_of(there.simjoin.knn_join(back, 1, on=["x", "y"])[["left", "right"]])
    want &= {
        row[::-1]
        for row in rows_of(
            back.simjoin.knn_join(there, 1, on=["x", "y"])[["left", "right"]]
        )
    }
    best = computed(
        lay(there, how).simjoin.knn_join(other, 1, on=["x", "y"], mutual=True)
    )
    assert rows_of(best[["left", "right"]]) == want and len(want) > 10
    with pytest.raises(OptionTypeError, match="mutual=1 is not allowed"):
        data.simjoin.knn_join(k=1, on="x", mutual=1)


def test_two_tables_of_many_files_stay_as_they_are():
    """Labels that restart name no row, ties go by the order of rows, and no table is
    shuffled.
    """
    rng = np.random.default_rng(2)
    one, two = (
        pd.DataFrame(
            {
                "x": rng.integers(0, 9, 30) * 1.0,
                "g": rng.integers(0, 2, 30),
                "key": range(30),
            }
        )
        for _ in range(2)
    )
    parts = [
        [table.iloc[k : k + 10].reset_index(drop=True) for k in (0, 10, 20)]
        for table in (one, two)
    ]
    lazy, other = (dd.from_map(itself, some, meta=some[0].iloc[:0]) for some in parts)
    how = {"on": "x", "by": "g"}
    want = one.simjoin.knn_join(two, 3, id="key", max_distance=2.0, **how)
    found = lazy.simjoin.knn_join(other, 3, id="key", max_distance=2.0, **how).compute()
    columns = ["left", "rank", "right", "distance"]
    sorted_both = [
        frame[columns].sort_values(columns, ignore_index=True)
        for frame in (found, want)
    ]
    pd.testing.assert_frame_equal(*sorted_both)
    for way in ("leftsemi", "leftanti"):
        want = one.simjoin.join(two, 0.0, how=way, **how)["key"].tolist()
        assert (
            lazy.simjoin.join(other, 0.0, how=way, **how).compute()["key"].tolist()
            == want
        )
