"""Joins of two tables: the same pairs, however the tables lie, and rows that are in
pairs or in none.
"""

import math

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin  # noqa: F401
from dask_simjoin.errors import (
    BudgetError,
    ColumnError,
    CoordinateError,
    DuplicateIdError,
    OptionError,
    OptionTypeError,
    UnsupportedFrameError,
)
from dask_simjoin.metrics import make_metric
from tests.support.frames import split
from tests.support.metrics import metric_cases
from tests.support.oracle import (
    as_set,
    assert_same_pairs,
    distances,
    roots,
    squared_distances,
    totals,
)
from tests.support.points import cases, frame_of
from tests.support.profiles import every_nth, examples, in_turns


def table(n, dims, seed, text=False):
    """Points of a small lattice with attributes of several dtypes."""
    rng = np.random.default_rng(seed)
    frame = frame_of(rng.integers(0, 12, (n, dims)) * 0.5)
    frame["name"] = [f"n{k % 7}" for k in range(n)]
    frame["kind"] = pd.Categorical(["a", "b", "c"] * n)[:n]
    frame["when"] = pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(n), "D")
    frame[f"own{seed}"] = rng.uniform(size=n)
    frame.index = (
        [f"r{seed}-{k}" for k in range(n)] if text else rng.permutation(n) * 3 + seed
    )
    return frame


def near_pairs(left, right, eps, on):
    """Ids of pairs by the definition; `eps`: of all rows, or of each left one."""
    d2 = squared_distances(left[on].to_numpy(float), right[on].to_numpy(float))
    limit = np.asarray(eps, float)
    near = d2 <= (limit * limit if limit.ndim == 0 else (limit * limit)[:, None])
    return {
        (left.index[i], right.index[j]) for i, j in zip(*np.nonzero(near), strict=True)
    }


LAYOUTS = [
    ("plain", None),
    ("entity", None),
    ("entity", "2 kB"),
    ("spatial", None),
    ("spatial", "2 kB"),
    ("replicated", None),
    ("auto", "4 kB"),
]


def laid(left, right, how):
    """Both tables, plain or lazy, and options."""
    partitioning, blocksize = how
    if partitioning == "plain":
        return left, right, {}
    cuts = (len(left) // 3, len(left) // 2), (len(right) // 4,)
    return (
        split(left, cuts[0]),
        split(right, cuts[1]),
        {"partitioning": partitioning, "blocksize": blocksize},
    )


def value(result):
    """The result, computed by one thread if it is lazy."""
    return result.compute(scheduler="sync") if hasattr(result, "compute") else result


@settings(max_examples=examples(60))
@given(cases(max_dims=9, max_points=60), st.data())
def test_any_points(case, data):
    n = len(case.x)
    cut = data.draw(st.integers(0, n))
    left, right = frame_of(case.x[:cut]), frame_of(case.x[cut:])
    right.index = right.index + 1000
    expected = near_pairs(left, right, case.eps, list(left.columns))
    cuts = [
        data.draw(st.lists(st.integers(0, rows), max_size=2)) for rows in (cut, n - cut)
    ]
    output = data.draw(st.sampled_from([640, 10**6]))
    how = {
        "partitioning": data.draw(
            st.sampled_from(["entity", "spatial", "replicated", "auto"])
        ),
        "blocksize": data.draw(st.sampled_from([None, 12 * (8 * case.x.shape[1] + 8)])),
    }
    if how["partitioning"] == "replicated":
        how["blocksize"] = None
    lazy = split(left, cuts[0]).simjoin.join(
        split(right, cuts[1]), case.eps, return_distance=True, **how
    )
    with dask.config.set({"scheduler": "sync", "simjoin.output-size": output}):
        found = lazy.compute()
    plain = left.simjoin.join(right, case.eps, return_distance=True)
    for pairs in (found, plain):
        assert_same_pairs(as_set(pairs), expected)
    d2 = squared_distances(case.x[:cut], case.x[cut:])
    assert (
        found.distance.to_numpy() == roots(d2[found.left, found.right - 1000])
    ).all()
    assert list(found.dtypes) == list(plain.dtypes) == list(lazy.dtypes)


@settings(max_examples=examples(60))
@given(metric_cases(most=50), st.data())
def test_any_rows_of_any_metric(case, data):
    metric, p, x, eps = case
    n = len(x)
    cut = data.draw(st.integers(0, n))
    left, right = frame_of(x[:cut]), frame_of(x[cut:])
    own = data.draw(st.booleans())  # a distance of each left row
    limit = make_metric(metric, p).threshold(eps)
    if own:
        radii = eps * np.random.default_rng(n).choice([0.0, 0.5, 1.0], cut)
        with np.errstate(over="ignore"):
            limit = make_metric(metric, p).threshold(radii)[:, None]
        left["r"] = radii
    near = totals(x[:cut], x[cut:], metric, p) <= limit
    away = distances(x[:cut], x[cut:], metric, p)
    matched, on = near.any(axis=1), list(right.columns)
    partitioning = data.draw(
        st.sampled_from(["entity", "spatial", "replicated", "auto"])
    )
    blocksize = data.draw(st.sampled_from([None, 12 * (8 * x.shape[1] + 8)]))
    lazily = {
        "partitioning": partitioning,
        "blocksize": None if partitioning == "replicated" else blocksize,
    }
    cuts = [
        data.draw(st.lists(st.integers(0, rows), max_size=2)) for rows in (cut, n - cut)
    ]
    sides = (left, right, {}), (split(left, cuts[0]), split(right, cuts[1]), lazily)
    kinds = ["inner", "left", "leftsemi", "leftanti"]
    kind = data.draw(st.sampled_from(kinds if own else [*kinds, "right", "outer"]))
    for a, b, options in sides:
        how = {
            "how": kind,
            "on": on,
            "metric": metric,
            "p": p,
            "return_distance": True,
        } | options
        found = value(a.simjoin.join(b, "r" if own else eps, **how))
        if kind in ("leftsemi", "leftanti"):
            assert (
                found.index.tolist()
                == np.flatnonzero(matched == (kind == "leftsemi")).tolist()
            )
            continue
        pairs = found[found.right.notna() & found.left.notna()]
        for side, alone in (("left", ~matched), ("right", ~near.any(axis=0))):
            other = "right" if side == "left" else "left"
            wanted = np.flatnonzero(alone).tolist() if kind in (side, "outer") else []
            assert sorted(found[side][found[other].isna()]) == wanted
        assert_same_pairs(as_set(pairs), set(map(tuple, np.argwhere(near).tolist())))
        assert (
            pairs.distance.tolist()
            == away[pairs.left.astype(int), pairs.right.astype(int)].tolist()
        )


@in_turns(1, how=every_nth(4, LAYOUTS), columns=[(1, False), (2, True), (5, False)])
def test_attributes_of_both_rows(columns, how):
    dims, text = columns
    left, right = table(200, dims, 1, text), table(90, dims, 2, text)
    on = [f"c{k}" for k in range(dims)]
    a, b, options = laid(left, right, how)
    keep = ["name", "own1", "own2", "kind", "when"]
    lazy = a.simjoin.join(
        b, 0.5, on=on, keep=keep, return_distance=True, suffixes=("_l", "_r"), **options
    )
    pairs = value(lazy)
    assert list(pairs.columns) == [
        "left",
        "right",
        "distance",
        "name_l",
        "own1",
        "kind_l",
        "when_l",
        "name_r",
        "own2",
        "kind_r",
        "when_r",
    ]
    assert list(pairs.dtypes) == list(lazy.dtypes)
    assert_same_pairs(as_set(pairs), near_pairs(left, right, 0.5, on))
    for column in ("name", "kind", "when"):
        for side, frame in (("left", left), ("right", right)):
            assert (
                pairs[f"{column}_{side[0]}"].to_numpy()
                == frame[column].loc[pairs[side]].to_numpy()
            ).all()
    assert (pairs.own1.to_numpy() == left.own1.loc[pairs.left].to_numpy()).all()
    assert (pairs.own2.to_numpy() == right.own2.loc[pairs.right].to_numpy()).all()


@pytest.mark.parametrize(
    "how", every_nth(4, LAYOUTS), ids=lambda how: "-".join(map(str, how))
)
def test_rows_in_no_pair(how):
    left, right = table(200, 2, 1), table(60, 2, 2)
    left.iloc[5, 0] = left.iloc[9, 1] = 1e9  # far from everything
    on, eps = ["c0", "c1"], 0.4
    expected = near_pairs(left, right, eps, on)
    alone = left.index[~left.index.isin([pair[0] for pair in expected])]
    assert 2 < len(alone) < 200
    a, b, options = laid(left, right, how)
    lazy = a.simjoin.join(
        b,
        eps,
        on=on,
        how="left",
        keep=["name", "own2"],
        return_distance=True,
        **options,
    )
    found = value(lazy)
    assert list(found.dtypes) == list(lazy.dtypes)
    assert found.right.dtype == "Int64"
    matched = found[found.right.notna()]
    assert_same_pairs(as_set(matched), expected)
    rest = found[found.right.isna()]
    assert sorted(rest.left) == sorted(alone)
    assert rest[["distance", "name_right", "own2"]].isna().all(axis=None)
    assert (rest.name_left.to_numpy() == left.name.loc[rest.left].to_numpy()).all()
    semi = value(a.simjoin.join(b, eps, on=on, how="leftsemi", **options))
    anti = value(a.simjoin.join(b, eps, on=on, how="leftanti", **options))
    pd.testing.assert_frame_equal(semi, left[~left.index.isin(alone)])
    pd.testing.assert_frame_equal(anti, left[left.index.isin(alone)])
    assert len(value(lazy.right)) == len(found)


@pytest.mark.parametrize("lazy", [False, True])
def test_outer_joins_with_a_range_of_one_side(lazy):
    left = pd.DataFrame({"x": [0.0, 0.0, 3.0], "t": [5, 1, 2]})
    right = pd.DataFrame({"x": [0.5, 3.0, 9.0], "t": [4, 3, 9]})
    a, b = (split(left, [1]), split(right, [2])) if lazy else (left, right)
    how = {"on": "x", "within": {"t": (0, 3)}}
    for way, alone in (("right", []), ("outer", [(0, -1)])):
        found = value(a.simjoin.join(b, 1.0, how=way, **how)).fillna(-1)
        pairs = sorted(zip(found["left"], found["right"], strict=True))
        assert pairs == sorted([(1, 0), (2, 1), (-1, 2), *alone])


@pytest.mark.parametrize("lazy", [False, True])
def test_messages_name_the_tables_of_the_call(lazy):
    left, right = pd.DataFrame({"x": [0.0, 1.0]}), pd.DataFrame({"x": [0.0, math.nan]})
    tables = (split(left, []), split(right, [])) if lazy else (left, right)
    for a, b, name in ((*tables, "right"), (*tables[::-1], "left")):
        with pytest.raises(CoordinateError, match=f"In the {name} table"):
            value(a.simjoin.join(b, 1.0, how="outer"))


@in_turns(1, how=every_nth(4, LAYOUTS), dims=[2, 5])
def test_radii_are_those_of_left_rows(dims, how):
    left, right = table(200, dims, 1), table(90, dims, 2)
    left["r"] = np.random.default_rng(3).choice([0.0, 0.5, 1.0, 2.0, 4.0], 200)
    right["r"] = 99.0
    on = [f"c{k}" for k in range(dims)]
    expected = near_pairs(left, right, left.r, on)
    a, b, options = laid(left, right, how)
    found = value(
        a.simjoin.join(b, "r", on=on, keep="r", return_distance=True, **options)
    )
    assert_same_pairs(as_set(found), expected)
    assert (found.distance <= found.r_left).all()
    assert (found.r_right == 99).all()
    semi = value(a.simjoin.join(b, "r", on=on, how="leftsemi", **options))
    assert sorted(semi.index) == sorted({pair[0] for pair in expected})
    # the other way round other rows' radii count
    turned = (
        value(b.simjoin.join(a, "r", on=on, **options))
        if how[0] != "replicated"
        else None
    )
    if turned is not None:
        assert len(turned) == 200 * 90


def test_radii_where_tables_have_other_ids_and_columns():
    left = pd.DataFrame(
        {"x": [0.0, 5.0, 9.0], "r": [1.0, 0.0, 0.5], "a": ["p", "q", "s"]}
    )
    when = pd.to_datetime(["2020-01-01", "2021-01-01"])
    right = pd.DataFrame({"x": [0.5, 5.0], "b": [1, 2]}, index=when)
    found = left.simjoin.join(right, "r", on="x", keep="b")
    assert found.right.tolist() == when.tolist()
    assert found.b.tolist() == [1, 2]
    found = left.simjoin.join(right, "r", on="x", keep="a", how="left")
    assert found.right.isna().tolist() == [False, False, True]
    assert found.a.tolist() == ["p", "q", "s"]


def test_a_plain_table_keeps_its_objects_beside_a_lazy_one():
    lists = pd.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]], "o": [(1, 2), "a"]})
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(lists, npartitions=2)
    joined = lazy.simjoin.join(lists, 0.0, on="v", keep="o")
    found = joined.compute()
    assert found.o_right.tolist() == [(1, 2), "a"]
    assert found.dtypes.to_dict() == joined.dtypes.to_dict()


def test_categories_that_dask_does_not_know():
    left = pd.DataFrame({"x": np.arange(4.0), "c": list("abcd")})
    lazy = dd.from_pandas(left, npartitions=2)
    lazy["c"] = lazy["c"].astype("category")
    some = lazy.partitions[:1]
    found = lazy.simjoin.join(some, 0.1, how="left", on="x", left_id="c").compute()
    assert found.left.tolist() == list("abcd")
    assert found.right.isna().tolist() == [False, False, True, True]
    for option in ({"keep": "c"}, {"right_id": "c"}):
        with pytest.raises(
            ColumnError,
            match=r"missing values to 'c' of the right table.*categorize\(\)",
        ):
            lazy.simjoin.join(some, 0.1, how="left", on="x", **option)
        found = lazy.simjoin.join(
            some.categorize(), 0.1, how="left", on="x", **option
        ).compute()
        assert found["right" if "right_id" in option else "c_right"].tolist()[
            :2
        ] == list("ab")


@pytest.mark.parametrize(
    "kept",
    [
        pd.Series(pd.interval_range(0, 2)),
        pd.Series(pd.period_range("2020", periods=2, freq="D")),
        pd.Series([[1.0], [2.0]], dtype=pd.ArrowDtype(pa.list_(pa.float64()))),
        pd.Series(pd.to_datetime(["2020-01-01"] * 2)).astype("date32[pyarrow]"),
        pd.Series(pd.arrays.SparseArray([0, 1])),
        pd.Series(pd.date_range("2020", periods=2, tz="UTC")),
    ],
    ids=lambda kept: str(kept.dtype),
)
def test_left_joins_keep_columns_of_any_dtype(kept):
    right = pd.DataFrame({"x": [0.0, 1.0], "kept": kept})
    found = pd.DataFrame({"x": [1.0, 7.0]}).simjoin.join(
        right, 0.0, how="left", on="x", keep="kept"
    )
    value = found.kept.iloc[0]
    assert value == kept.iloc[1]
    assert pd.isna(found.kept.iloc[1])


def test_parquet_of_which_few_columns_are_read(tmp_path):
    """Dask merges partitions of such reads, and rows must still be their own."""
    left, right = table(400, 2, 1), table(200, 2, 2)
    for k in range(30):
        left[f"more{k}"] = np.arange(400) * 1000 + k
    left = left.drop(columns="kind").reset_index(names="label")
    dd.from_pandas(left, npartitions=8).to_parquet(tmp_path / "left")
    ddf = dd.read_parquet(tmp_path / "left")
    on = ["c0", "c1"]
    near = left.label.isin(
        [a for a, _ in near_pairs(left.set_index("label"), right, 0.3, on)]
    )
    for partitioning in ("entity", "spatial"):
        semi = ddf.simjoin.join(
            right, 0.3, on=on, how="leftsemi", partitioning=partitioning
        )
        assert sorted(semi.compute(scheduler="sync").label) == sorted(left.label[near])
        both = semi[["label", "more3"]].compute(scheduler="sync")
        assert sorted(both.label) == sorted(left.label[near])
        assert (both.more3 % 1000 == 3).all()


def test_threads_and_chosen_columns_and_partitions():
    left, right = table(200, 2, 1), table(90, 2, 2)
    a, b, options = laid(left, right, ("entity", "2 kB"))
    lazy = a.simjoin.join(
        b, 0.5, on=["c0", "c1"], keep="name", return_distance=True, **options
    )
    assert lazy.npartitions > 3
    whole = lazy.compute(scheduler="threads")
    assert_same_pairs(as_set(whole), near_pairs(left, right, 0.5, ["c0", "c1"]))
    assert list(lazy[["name_right", "left"]].compute(scheduler="sync").columns) == [
        "name_right",
        "left",
    ]
    parts = [
        lazy.partitions[k].compute(scheduler="sync") for k in range(lazy.npartitions)
    ]
    assert sum(map(len, parts)) == len(whole)
    assert lazy.map_partitions(len).compute(scheduler="sync").sum() == len(whole)


def test_rows_without_coordinates_have_no_match():
    left, right = table(50, 2, 1), table(50, 2, 2)
    left.iloc[3, 0] = np.nan
    right.iloc[4, 1] = np.inf
    on = ["c0", "c1"]
    with pytest.raises(
        CoordinateError, match=r"In the left table, .*'c0' has 1 missing"
    ):
        left.simjoin.join(right, 0.5, on=on)
    with pytest.raises(CoordinateError, match="'c1' has 1 infinite value"):
        left.drop(left.index[3]).simjoin.join(right, 0.5, on=on)
    for a in (left, split(left, [20])):
        joined = a.simjoin.join
        semi = value(joined(right, 0.5, on=on, how="leftsemi", dropna=True))
        anti = value(joined(right, 0.5, on=on, how="leftanti", dropna=True))
        assert len(semi) + len(anti) == 50
        assert left.index[3] in anti.index
        expected = near_pairs(
            left.drop(left.index[3]), right.drop(right.index[4]), 0.5, on
        )
        assert_same_pairs(
            as_set(value(a.simjoin.join(right, 0.5, on=on, dropna=True))), expected
        )


@in_turns(1, empty=["left", "right", "both"], lazy=[False, True])
def test_empty_tables(empty, lazy):
    left, right = table(20, 2, 1), table(20, 2, 2)
    left = left.iloc[:0] if empty in ("left", "both") else left
    right = right.iloc[:0] if empty in ("right", "both") else right
    a, b = (split(left, []), split(right, [])) if lazy else (left, right)
    on = ["c0", "c1"]
    for how, rows in (
        ("inner", 0),
        ("left", len(left)),
        ("right", len(right)),
        ("outer", len(left) + len(right)),
        ("leftsemi", 0),
        ("leftanti", len(left)),
    ):
        found = value(a.simjoin.join(b, 1.0, on=on, how=how, keep="name"))
        assert len(found) == rows
        for side, frame in (("left", left), ("right", right)):
            if how in (side, "outer"):
                assert sorted(found[side].dropna()) == sorted(frame.index)


def test_default_columns_are_those_that_both_have():
    left = pd.DataFrame({"x": [0.0], "y": [0.0], "a": [5.0], "row_id": [1]})
    right = pd.DataFrame({"b": [9.0], "y": [1.0], "x": [0.0], "row_id": [2]})
    assert len(left.simjoin.join(right, 1.0)) == 1
    pairs = left.simjoin.join(right, 1.0, left_on=["a"], right_on="b", id="row_id")
    assert not len(pairs)
    pairs = left.simjoin.join(right, 4.0, left_on=["a"], right_on="b", left_id="row_id")
    assert pairs.to_dict("list") == {"left": [1], "right": [0]}
    with pytest.raises(ColumnError, match="no numeric column of the same name"):
        left[["a"]].simjoin.join(right[["b"]], 1.0)


def test_what_is_refused_at_the_call():
    left, right = table(20, 2, 1), table(20, 2, 2)
    join = left.simjoin.join
    with pytest.raises(
        OptionError,
        match="how='full' is not allowed; use one of 'inner', 'left', 'right', 'outer'",
    ):
        join(right, 1.0, how="full")
    with pytest.raises(OptionError, match="right_on= is missing"):
        join(right, 1.0, left_on="c0")
    with pytest.raises(OptionError, match="use either on=, or left_on= and right_on="):
        join(right, 1.0, on="c0", left_on="c0", right_on="c0")
    with pytest.raises(ColumnError, match="joined on 2 columns"):
        join(right, 1.0, left_on=["c0", "c1"], right_on=["c0"])
    with pytest.raises(UnsupportedFrameError, match="is not a data frame"):
        join([1, 2], 1.0)
    with pytest.raises(
        ColumnError, match=r"keep= names 'nam', .* \(did you mean 'name'\?\)"
    ):
        join(right, 1.0, on="c0", keep=["nam"])
    with pytest.raises(ColumnError, match="keep= names 'name' more than once"):
        join(right, 1.0, on="c0", keep=["name", "name"])
    with pytest.raises(OptionTypeError, match="suffixes='_x' are not two strings"):
        join(right, 1.0, on="c0", keep="name", suffixes="_x")
    with pytest.raises(OptionError, match="two columns 'name'"):
        join(right, 1.0, on="c0", keep="name", suffixes=("", ""))
    with pytest.raises(OptionError, match="a column 'left', a name that is reserved"):
        left.assign(left=1).simjoin.join(right, 1.0, on="c0", keep="left")
    with pytest.raises(
        OptionTypeError, match=r"eps='radius' is neither a number nor a column"
    ):
        join(right, "radius", on="c0")
    with pytest.raises(ColumnError, match="eps='when' names a column of dtype"):
        join(right, "when", on="c0")
    with pytest.raises(OptionTypeError, match="has no option 'hows'"):
        join(right, 1.0, hows="left")


def test_what_is_refused_when_planned():
    left, right = table(20, 2, 1), table(20, 2, 2)
    on = ["c0", "c1"]
    for radius in (-1.0, np.nan, np.inf):
        wrong = left.assign(r=np.where(np.arange(20) == 7, radius, 1.0))
        with pytest.raises(
            CoordinateError,
            match=rf"1 of them is missing, .* \(first at label {left.index[7]}\)\.",
        ):
            wrong.simjoin.join(right, "r", on=on)
    with pytest.raises(
        CoordinateError, match=rf"\(first at label {left.index[7]} in partition 1\)\."
    ):
        split(wrong, [5]).simjoin.join(right, "r", on=on).compute()
    again = right.set_index(np.zeros(20, int))
    lazy = split(left, [5]).simjoin.join(split(again, [5]), 1.0, on=on)
    with pytest.raises(
        DuplicateIdError, match=r"In the right table, .* 0 repeats(?: in partition 0)?,"
    ):
        lazy.compute()
    with pytest.raises(
        DuplicateIdError, match=r"In the right table, .* 0 repeats(?: in partition 0)?,"
    ):
        left.simjoin.join(again, 1.0, on=on)
    dear = pytest.raises(BudgetError, match="The limit is 100 B")
    with dask.config.set({"simjoin.result-limit": "100 B"}), dear:
        split(left, [5]).simjoin.join(split(right, [5]), 9.0, on=on).compute()


def test_building_computes_nothing():
    def fail(*args):
        raise AssertionError("computed")

    left, right = table(20, 2, 1), table(20, 2, 2)
    lazy = [
        dd.from_map(fail, [0, 1], meta=frame.iloc[:0], label=f"never{k}")
        for k, frame in enumerate((left, right))
    ]
    for how in ("inner", "left", "leftsemi", "leftanti"):
        lazy[0].simjoin.join(lazy[1], 1.0, on=["c0", "c1"], how=how)
    lazy[0].simjoin.knn_join(lazy[1], 3, on=["c0", "c1"])


@pytest.mark.parametrize("how", ["leftsemi", "leftanti"])
@pytest.mark.parametrize("dropna", [False, True])
def test_semi_joins_read_what_they_need(how, dropna):
    """Of the frame's columns the reader is asked for coordinates, and besides for those
    of the result.
    """
    left, right = table(60, 2, 1), table(50, 2, 2)
    left.iloc[3, 0] = np.nan if dropna else 0.0
    asked = []

    def read(part, columns=None):
        asked.append(list(left.columns) if columns is None else list(columns))
        own = left.iloc[30 * part : 30 * part + 30]
        return own if columns is None else own[columns]

    label = f"read_{how}_{dropna}"  # else Dask takes one reader for another
    frame = dd.from_map(read, range(2), meta=left.iloc[:0], label=label)
    on = ["c0", "c1"]
    rows = frame.simjoin.join(right, 0.5, on=on, how=how, dropna=dropna)
    asked.clear()
    plan = rows.npartitions
    assert plan == 2
    near = {pair[0] for pair in near_pairs(left, right, 0.5, on)}
    wanted = [label for label in left.index if (label in near) == (how == "leftsemi")]
    assert wanted
    for columns in (["when"], ["own1", "c1"]):
        found = rows[columns].compute(scheduler="sync")
        assert sorted(found.index) == sorted(wanted)
        assert found.equals(left.loc[found.index, columns])
        assert asked
        assert {name for some in asked for name in some} == {*on, *columns}
        asked.clear()
