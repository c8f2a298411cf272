"""Joins with `within` and `different` return what brute force finds."""

import datetime
import re
from decimal import Decimal

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
    ColumnsWarning,
    CoordinateError,
    OptionError,
    OptionTypeError,
    UnitsWarning,
)
from tests.support.oracle import as_set, totals
from tests.support.profiles import every_nth, examples, in_turns
from tests.support.random_conditions import Conditions

START = pd.Timestamp("2024-03-01 12:00:00.000000001")


def table(rows, seed=0):
    """Return rows on a lattice, with times that differ by nanoseconds."""
    rng = np.random.default_rng(seed)
    since = rng.integers(0, 40, rows) * 30 * 10**9 + rng.integers(-1, 2, rows)
    return pd.DataFrame(
        {
            "x": rng.integers(0, 12, rows) / 4,
            "y": rng.integers(0, 12, rows) / 4,
            "t": START + pd.to_timedelta(since, unit="ns"),
            "price": rng.integers(90, 110, rows) * 1.0,
            "ship": rng.choice(["Ada", "Bo", None], rows),
            "port": rng.integers(0, 3, rows),
            "far": rng.integers(1, 4, rows) / 4,
        }
    )


def near(one, other, eps, options):
    """Return which rows are near and allowed, by the definition (n, m)."""
    x, y = (side[["x", "y"]].to_numpy() for side in (one, other))
    eps = np.asarray(eps)
    limit = (eps * eps)[:, None] if eps.ndim else eps * eps
    found = (totals(x, y) <= limit) & Conditions(options).allowed(one, other)
    if one is other:
        np.fill_diagonal(found, False)
    return found


def matrix(pairs, rows, columns):
    found = np.zeros((rows, columns), bool)
    for i, j in as_set(pairs):
        found[i, j] = True
    return found


def laid(frame, way):
    """Return the frame, or a Dask DataFrame and options that divide its rows."""
    if way == "plain":
        return frame, {}
    return dd.from_pandas(frame, npartitions=3), {
        "partitioning": way,
        "blocksize": 40 * len(frame),
    }


OPTIONS = [
    {"within": {"t": "1 min"}},
    {"within": {"t": "60000000001 ns", "price": "5 %"}, "different": "ship"},
    {"within": {"price": 3}, "different": ["ship", "port"]},
    {"within": {"t": "0 s", "x": 0.25}},
    {"different": ["ship"]},
]
ON = {"on": ["x", "y"]}


@in_turns(1, options=every_nth(4, OPTIONS), way=["plain", "entity", "spatial"])
def test_verbs_of_one_table(options, way):
    frame = table(160, len(way))
    lazy, how = laid(frame, way)
    how = how | ON | options
    want = near(frame, frame, 0.5, options)
    call = lazy.simjoin
    with dask.config.set({"simjoin.threads": 3}):
        (pairs,) = dask.compute(call.self_join(0.5, return_distance=True, **how))
        assert (matrix(pairs, 160, 160) == np.triu(want)).all()
        assert pairs["distance"].tolist() == [
            np.hypot(*(frame.loc[i, ["x", "y"]] - frame.loc[j, ["x", "y"]]))
            for i, j in zip(pairs["left"], pairs["right"], strict=True)
        ]
        counts, number = dask.compute(
            call.neighbor_counts([0.25, 0.5], **how),
            call.count_pairs(0.5, pairs="both", **how),
        )
    assert counts[0.5].tolist() == want.sum(1).tolist() and number == want.sum()
    small = near(frame, frame, 0.25, options)
    assert counts[0.25].tolist() == small.sum(1).tolist()


ONE_SIDED = [
    {"within": {"t": ("-2 min", "0 s")}},
    {"within": {"price": (1, 5)}, "different": "port"},
    {"within": {"t": ("-1 ns", "30 s"), "price": "4 %"}},
    {"within": {"t": (None, "-1 ns"), "price": (-3, None)}},
]


@in_turns(1, options=every_nth(4, ONE_SIDED), way=["plain", "entity", "spatial"])
def test_ranges_are_for_the_right_row_minus_the_left_row(options, way):
    frame, other = table(120, 3), table(90, 4)
    other["t"] = other["t"].astype("datetime64[ns]").dt.floor("us").dt.as_unit("us")
    lazy, how = laid(frame, way)
    how = how | ON | options
    want = near(frame, frame, 0.5, options)
    pairs = lazy.simjoin.self_join(0.5, pairs="both", **how)
    counts = lazy.simjoin.neighbor_counts(0.5, **how)
    joined = lazy.simjoin.join(other, 0.5, **how)
    nearest = lazy.simjoin.knn_join(other, 2, max_distance=0.5, **how)
    pairs, counts, joined, nearest = dask.compute(pairs, counts, joined, nearest)
    assert (matrix(pairs, 120, 120) == want).all()
    assert counts.tolist() == want.sum(1).tolist()
    several, number = dask.compute(
        lazy.simjoin.neighbor_counts([0.5, 0.25], **how),
        lazy.simjoin.count_pairs([0.5, 0.25], pairs="both", **how),
    )
    small = near(frame, frame, 0.25, options)
    assert several[0.5].tolist() == want.sum(1).tolist()
    assert several[0.25].tolist() == small.sum(1).tolist()
    assert number.tolist() == [want.sum(), small.sum()]
    want = near(frame, other, 0.5, options)
    assert (matrix(joined, 120, 90) == want).all()
    away = totals(*(side[["x", "y"]].to_numpy() for side in (frame, other)))
    away[~want] = np.inf
    for i in range(120):
        order = np.argsort(away[i], kind="stable")[:2]
        found = nearest.loc[nearest["left"] == i].sort_values("rank")["right"]
        assert found.tolist() == [j for j in order.tolist() if away[i, j] < np.inf]


@settings(max_examples=examples(12))
@given(
    st.integers(0, 2**32),
    st.sampled_from([*OPTIONS, *ONE_SIDED, {"within": {"t": ("-9 D", "-8 D")}}]),
    st.sampled_from([1, 3, 200]),
    st.booleans(),
    st.sampled_from(["plain", "entity", "spatial"]),
)
def test_nearest_rows_without_a_largest_distance(seed, options, k, two_tables, way):
    frame = table(60, seed)
    other = table(50, seed + 1) if two_tables else frame
    missing = np.random.default_rng(seed).random(60) < 0.1
    frame.loc[missing, ["t", "price"]] = None
    kept = frame[[*options.get("within", {})]].notna().all(axis=1).to_numpy()
    lazy, how = laid(frame, way)
    how = how | ON | options | {"dropna": True}
    found = lazy.simjoin.knn_join(other if two_tables else None, k, **how)
    (found,) = dask.compute(found)
    data = kept if other is frame else np.ones(len(other), bool)
    want = near(frame[kept], other[data], np.inf, options)
    if other is frame:
        np.fill_diagonal(want, False)
    left, right = np.flatnonzero(kept), np.flatnonzero(data)
    away = totals(
        frame.loc[left, ["x", "y"]].to_numpy(), other.loc[right, ["x", "y"]].to_numpy()
    )
    away[~want] = np.inf
    nearest = []
    for at, i in enumerate(left.tolist()):
        order = right[np.argsort(away[at], kind="stable")[: want[at].sum()][:k]]
        nearest += [(i, j, rank) for rank, j in enumerate(order.tolist(), 1)]
    columns = found[["left", "right", "rank"]]
    assert sorted(columns.itertuples(index=False, name=None)) == sorted(nearest)


@in_turns(
    1,
    options=[OPTIONS[0], ONE_SIDED[0]],
    bound=[(0.25, "among their pairs"), (9.0, "a tree of boxes")],
    two_tables=[False, True],
)
def test_nearest_rows_are_among_few_pairs_or_in_a_tree(options, bound, two_tables):
    frame, (most, words) = table(700, 11), bound
    other = table(600, 12) if two_tables else frame
    how = ON | options | {"k": 2, "other": other if two_tables else None}
    assert words in str(frame.simjoin.plan(most, **how))
    found = frame.simjoin.knn_join(max_distance=most, **how)
    away = totals(*(side[["x", "y"]].to_numpy() for side in (frame, other)))
    away[~near(frame, other, most, options)] = np.inf
    order = np.argsort(away, axis=1, kind="stable")[:, :2]
    want = np.take_along_axis(away, order, axis=1) < np.inf
    assert found["right"].tolist() == order[want].tolist()
    assert found["left"].tolist() == np.nonzero(want)[0].tolist()


@in_turns(1, options=[*OPTIONS[:2], ONE_SIDED[0]], way=["plain", "entity", "spatial"])
def test_a_distance_for_each_row(options, way):
    frame = table(100, 7)
    lazy, how = laid(frame, way)
    pairs = lazy.simjoin.self_join("far", pairs="both", **how, **ON, **options)
    (pairs,) = dask.compute(pairs)
    want = near(frame, frame, frame["far"].to_numpy(), options)
    assert (matrix(pairs, 100, 100) == want).all()


@pytest.mark.parametrize("way", ["plain", "spatial"])
def test_groups_and_tolerances(way):
    frame = table(150, 9)
    lazy, how = laid(frame, way)
    options = {"within": {"t": "2 min"}, "different": "ship"}
    pairs = lazy.simjoin.self_join(0.75, by="port", **how, **ON, **options)
    (pairs,) = dask.compute(pairs)
    port = frame["port"].to_numpy()
    want = near(frame, frame, 0.75, options) & (port[:, None] == port)
    assert (matrix(pairs, 150, 150) == np.triu(want)).all()


WHEN = table(60, 2)["t"].dt.floor("s").reset_index(drop=True)
KINDS = {
    "s": WHEN.dt.as_unit("s"),
    "ms": WHEN.dt.as_unit("ms"),
    "zone": WHEN.dt.tz_localize("Europe/Berlin"),
    "spans": WHEN - START.floor("D"),
    "Arrow": WHEN.astype(pd.ArrowDtype(pa.timestamp("ms"))),
    "Arrow zone": WHEN.dt.tz_localize("UTC").astype(
        pd.ArrowDtype(pa.timestamp("us", "UTC"))
    ),
    "Arrow spans": (WHEN - START.floor("D")).astype(pd.ArrowDtype(pa.duration("us"))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_times(kind):
    frame = table(60, 2).assign(t=KINDS[kind])
    whole = table(60, 2).assign(t=WHEN)
    options = {"within": {"t": "60 s"}}
    pairs = frame.simjoin.self_join(0.75, **ON, **options)
    want = np.triu(near(whole, whole, 0.75, options))
    assert (matrix(pairs, 60, 60) == want).all() and want.any()


@pytest.mark.parametrize("made", [list, lambda days: pd.array(days, "date32[pyarrow]")])
def test_dates(made):
    days = [datetime.date(2024, 2, 27) + datetime.timedelta(k % 5) for k in range(40)]
    frame = table(40).assign(t=made(days))
    pairs = frame.simjoin.self_join(0.75, **ON, within={"t": "1 D"})
    whole = frame.assign(t=pd.to_datetime(days))
    want = np.triu(near(whole, whole, 0.75, {"within": {"t": "1 D"}}))
    assert (matrix(pairs, 40, 40) == want).all()


@settings(max_examples=examples(100))
@given(
    ages=st.lists(st.integers(0, 2**62), min_size=2, max_size=8),
    step=st.integers(0, 2**62),
)
def test_nanoseconds_are_never_rounded(ages, step):
    """Times of 290 years, and tolerances at which some of them just match."""
    ages = [*ages, *(age + step for age in ages[:3] if age + step < 2**63 - 1)]
    frame = pd.DataFrame({"x": 0.0, "t": pd.to_datetime(ages, unit="ns")})
    for tolerance in (step, max(step - 1, 0), abs(ages[0] - ages[1])):
        pairs = frame.simjoin.self_join(
            0.0, on="x", within={"t": np.timedelta64(tolerance, "ns")}
        )
        want = {
            (i, j)
            for j, b in enumerate(ages)
            for i, a in enumerate(ages[:j])
            if abs(a - b) <= tolerance
        }
        assert as_set(pairs) == want


@pytest.mark.parametrize(
    "metric",
    [
        "haversine",
        "cosine",
        "chebyshev",
        pytest.param("minkowski", marks=pytest.mark.slow),
    ],
)
def test_metrics(metric):
    frame = table(120, 5).assign(x=lambda f: f["x"] + 0.5)
    options = {"within": {"t": "1 min"}, "different": "port"}
    p = 3 if metric == "minkowski" else 2
    eps = {"haversine": "30 km", "cosine": 0.01}.get(metric, 0.5)
    how = {"metric": metric, "p": p, **ON}
    every = frame.simjoin.self_join(eps, **how)
    want = matrix(every, 120, 120) & Conditions(options).allowed(frame, frame)
    found = matrix(frame.simjoin.self_join(eps, **how, **options), 120, 120)
    assert (found == want).all() and 0 < want.sum() < len(every)


@pytest.mark.parametrize("lazy", [False, True])
def test_missing_values_have_no_partner(lazy):
    frame = pd.DataFrame(
        {"x": 0.0, "t": [START, pd.NaT, START, START], "s": [None, "a", None, "a"]}
    )
    call = (dd.from_pandas(frame, npartitions=2) if lazy else frame).simjoin
    how = {"on": "x", "within": {"t": "1 s"}}
    with pytest.raises(
        CoordinateError, match=r"column 't' has 1 missing value .*dropna"
    ):
        dask.compute(call.self_join(1.0, **how))
    (pairs, counts) = dask.compute(
        call.self_join(1.0, dropna=True, **how),
        call.neighbor_counts(1.0, dropna=True, **how),
    )
    assert as_set(pairs) == {(0, 2), (0, 3), (2, 3)}
    assert counts.tolist() == [2, 0, 2, 2]
    # of different=, missing values are equal, and need no dropna
    (pairs,) = dask.compute(call.self_join(1.0, on="x", different="s"))
    assert as_set(pairs) == {(0, 1), (0, 3), (1, 2), (2, 3)}
    # columns of conditions are not coordinates by default
    plan = call.plan(1.0, dropna=True, within={"t": "1 s"}, different="s")
    assert "1 of 4 rows" in repr(plan) and "word" not in repr(plan)
    assert "'t' within a tolerance, different 's'" in repr(plan)


def test_lists_and_groups():
    frame = table(80, 6)
    lists = frame.assign(v=frame[["x", "y"]].to_numpy().tolist())
    options = {"within": {"t": "3 min"}, "different": "ship"}
    pairs = lists.simjoin.self_join(0.75, on="v", by="port", **options)
    port = frame["port"].to_numpy()
    want = near(frame, frame, 0.75, options) & (port[:, None] == port)
    assert (matrix(pairs, 80, 80) == np.triu(want)).all()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"within": {"z": 1}}, ColumnError, "within= names 'z', which is not a column"),
        ({"different": []}, ColumnError, "different=[] names no column"),
        ({"within": {"ship": 1}}, ColumnError, "must hold numbers, times or dates"),
        ({"within": {"t": 5}}, OptionError, "Column 't' holds times"),
        ({"within": {"x": "5"}}, OptionError, "Column 'x' holds numbers"),
        ({"within": {"x": (0, 1)}}, OptionError, "Use pairs='both'"),
        ({"within": {"x": 1}, "approximate": True}, OptionError, "approximate=True"),
    ],
)
def test_what_is_refused_at_the_call(options, error, text):
    frame = table(5)
    for some in (frame, dd.from_pandas(frame, npartitions=2)):
        with pytest.raises(error) as caught:
            some.simjoin.self_join(1.0, **ON, **options)
        assert text in str(caught.value)


@pytest.mark.parametrize("tolerance", [1, "5 %", (-1, 0), (None, 2.0)])
@pytest.mark.parametrize("values", [[1, "a", 2.0], [datetime.date(2024, 1, 1)] * 3])
def test_tolerances_of_numbers_for_columns_of_objects(tolerance, values):
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "o": pd.Series(values, dtype=object)})
    with pytest.raises(ColumnError) as caught:
        frame.simjoin.self_join(1.0, on="x", within={"o": tolerance}, pairs="both")
    assert "pandas.to_numeric()" in str(caught.value) and "'1 D'" in str(caught.value)


DECIMAL = [Decimal("1.0"), Decimal("1.2"), Decimal("2.0")]
OF_NUMBERS = {
    "decimals": pd.Series(DECIMAL, dtype=object),
    "floats": pd.Series([1.0, 1.2, 2.0], dtype=object),
    "arrow": pd.Series(DECIMAL, dtype=pd.ArrowDtype(pa.decimal128(4, 1))),
}


@pytest.mark.parametrize("kind", OF_NUMBERS)
@pytest.mark.parametrize("side", ["one table", "left", "right", "both"])
@pytest.mark.parametrize("option", [{"within": {"p": 0.5}}, {"on": "p"}])
def test_objects_and_decimals_that_are_numbers(kind, side, option):
    exact = pd.DataFrame({"x": 0.0, "p": OF_NUMBERS[kind]})
    plain = exact.astype({"p": float})
    tables = [
        exact if side in (name, "both", "one table") else plain
        for name in ("left", "right")
    ]

    def pairs(left, right):
        if side == "one table":
            found = left.simjoin.self_join(0.5, **{"on": "x"} | option, pairs="both")
        else:
            found = left.simjoin.join(right, 0.5, **{"on": "x"} | option)
        return {*zip(found["left"], found["right"], strict=True)}

    with pytest.raises((ColumnError, CoordinateError)) as caught:
        pairs(*tables)
    text = str(caught.value)
    assert " one lists" not in text and "holds lists" not in text
    assert "holds times" not in text
    convert = re.search(r"df\['p'\] = df\['p'\]\.astype\('float64'\)", text)[0]
    for known in ({"df": table} for table in tables):
        exec(convert, known)
    same = {(0, 0), (1, 1), (2, 2)} if side != "one table" else set()
    assert pairs(*tables) == {(0, 1), (1, 0)} | same


def test_a_tolerance_that_is_a_decimal():
    frame = pd.DataFrame({"x": 0.0, "p": OF_NUMBERS["decimals"]})
    with pytest.raises(ColumnError, match=r"numbers, such as Decimal, .*float64"):
        frame.simjoin.self_join(1.0, on="x", within={"p": Decimal("0.5")})


def test_what_verbs_need():
    call, range_ = table(5).simjoin, {"within": {"t": ("0 s", "1 s")}}
    for wrong, text in [
        (lambda: call.dbscan(1.0, **ON, **range_), "dbscan() needs rows that are near"),
        (
            lambda: call.knn_join(k=1, max_distance=1, ties="all", **ON, **range_),
            "not allowed with ties='all'",
        ),
        (
            lambda: call.knn_join(k=1, max_distance=1, mutual=True, **ON, **range_),
            "mutual=True needs rows that are near",
        ),
    ]:
        with pytest.raises(OptionError) as caught:
            wrong()
        assert text in str(caught.value)
    frame = pd.DataFrame({"x": 0.0, "n": [2**53 + 1, 3]})
    with pytest.raises(ColumnError, match=r"integers of 2\*\*53 or more"):
        frame.simjoin.self_join(1.0, on="x", within={"n": 1})
    other = table(5).assign(t=5.0)
    with pytest.raises(ColumnError, match="Convert one of the columns"):
        call.join(other, 1.0, **ON, within={"t": "1 s"})


@pytest.mark.parametrize("way", ["plain", "entity", "spatial"])
def test_rows_that_are_left_out_may_have_the_largest_distance(way):
    frame = table(80, 7).assign(far=0.5)
    frame.loc[3, ["x", "far"]] = np.nan, 1000.0
    lazy, how = laid(frame, way)
    how = how | ON | {"within": {"t": "1 min"}, "pairs": "both", "dropna": True}
    (pairs,) = dask.compute(lazy.simjoin.self_join("far", **how))
    kept = frame["x"].notna().to_numpy()
    want = near(frame, frame, 0.5, {"within": {"t": "1 min"}})
    assert (matrix(pairs, 80, 80) == (want & kept & kept[:, None])).all()


def test_columns_with_similar_names():
    frame = table(60, 8)
    frame = frame.rename(columns={"port": 5, "price": "5"}).assign(word=frame["far"])
    frame = frame.rename(columns={"word": "t word 0"})
    for within in ({5: 1, "5": 3}, {"t": "1 min", "t word 0": 0.25}):
        pairs = frame.simjoin.self_join(0.5, within=within, pairs="both", **ON)
        want = near(frame, frame, 0.5, {"within": within})
        assert (matrix(pairs, 60, 60) == want).all() and want.any()


@pytest.mark.parametrize("within", [("0 s", "2 min"), ("1 min", "2 min")])
def test_plans_count_pairs_of_ranges_in_their_directions(within):
    frame = table(300, 9)
    how = ON | {"within": {"t": within}, "pairs": "both"}
    number = frame.simjoin.count_pairs(0.5, **how)
    for lazy in (frame, dd.from_pandas(frame, npartitions=2)):
        assert f" {number:,} (counted)" in str(lazy.simjoin.plan(0.5, **how))


def test_distances_that_are_refused_as_without_tolerances():
    frame = table(20, 10)
    for within in ({}, {"within": {"t": "1 min"}}):
        how = ON | within
        call = frame.simjoin
        with pytest.raises(OptionTypeError, match="max_distance='far' is not a number"):
            call.knn_join(k=1, max_distance="far", **how)
        with pytest.raises(OptionTypeError, match="eps='ship' is not a number"):
            call.dbscan("ship", 2, **how)
        with pytest.raises(ColumnError, match="eps='ship' names"):
            call.self_join("ship", pairs="both", **how)


def test_a_percentage_that_is_rounded_to_all():
    with pytest.raises(OptionError, match="less than 100 %"):
        table(5).simjoin.count_pairs(
            1, within={"price": "99.99999999999999999 %"}, **ON
        )


def test_warnings_name_no_added_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"lat": rng.uniform(40, 50, 600), "lon": rng.uniform(0, 9, 600), "t": 0.0}
    )
    how = {"on": ["lat", "lon"]}
    for within in ({}, {"within": {"t": 30}}, {"by": "t"}):
        with pytest.warns(UnitsWarning, match="look like degrees"):
            frame.simjoin.count_pairs(0.1, **how, **within)
    frame = frame.assign(code=rng.integers(0, 10**6, 600))
    with pytest.warns(ColumnsWarning) as caught:
        frame.simjoin.count_pairs(0.1, within={"t": 30})
    assert "columns, 'lat', 'lon', 'code'. 'code' holds" in str(caught[0].message)


def test_rows_cannot_be_equal_and_differ():
    frame = pd.DataFrame({"x": [0.0, 1.0], "city": ["a", "b"], "ship": [1, 2]})
    with pytest.raises(OptionError, match="both name 'city', so no two rows can match"):
        frame.simjoin.self_join(1.0, on=["x"], by="city", different="city")
    found = frame.simjoin.self_join(
        2.0, on=["x"], by="city", different=["city", "ship"]
    )
    assert len(found) == 0


def test_an_open_side_allows_differences_of_more_than_64_bits():
    ends = pd.to_datetime(["1678-01-01", "2262-01-01"]).as_unit("ns")
    frame = pd.DataFrame({"x": 0.0, "t": ends})
    for within, want in (
        ((None, "0 s"), {(1, 0)}),
        (("0 s", None), {(0, 1)}),
        (("1 s", "9 D"), set()),
    ):
        how = {"on": "x", "within": {"t": within}}
        pairs = frame.simjoin.self_join(1.0, pairs="both", **how)
        nearest = frame.simjoin.knn_join(k=1, **how)
        assert as_set(pairs) == as_set(nearest) == want


def test_the_remedy_for_columns_of_two_names():
    frame, other = table(4), table(4).rename(columns={"t": "when"})
    with pytest.raises(ColumnError) as caught:
        frame.simjoin.join(other, 1.0, **ON, within={"t": "1 s"})
    assert str(caught.value).endswith(
        "name the one of the left table first: within={('t', 'NAME'): ...}."
    )
    within = {("t", "when"): "9 D"}
    assert len(frame.simjoin.join(other, 9.0, **ON, within=within)) == 16
