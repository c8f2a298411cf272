"""Columns with different names in two tables: joins return the same as after renaming."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import ColumnError, CoordinateError, OptionError
from tests.support.oracle import as_set
from tests.support.profiles import every_nth

START = pd.Timestamp("2024-01-01")

NAMES = {"year": "born", "t": "when", "ship": "mmsi"}
"""Column of the left table -> the same column of the right table."""

PAIRS = {
    "by": [("year", "born")],
    "within": {("t", "when"): ("-30 min", "0 h")},
    "different": [("ship", "mmsi")],
}
"""Options with pairs of names."""

SAME = {"by": "year", "within": {"t": ("-30 min", "0 h")}, "different": "ship"}
"""The same options for columns with the same names."""


def table(seed):
    rng = np.random.default_rng(seed)
    minutes = rng.integers(0, 100, 80)
    return pd.DataFrame(
        {
            "x": rng.random(80),
            "year": rng.integers(0, 4, 80),
            "t": START + pd.to_timedelta(minutes, unit="min"),
            "ship": rng.choice(["A", "B", None], 80),
            "name": rng.choice(["anna", "anne", "hanna", "bob", "rob", "bobby"], 80),
        }
    )


LEFT, SAME_NAMES = table(0), table(1)
RIGHT = SAME_NAMES.rename(columns=NAMES).astype({"born": "float64"})


def lay(frame, how):
    return frame if how == "plain" else dd.from_pandas(frame, npartitions=int(how))


@pytest.fixture(params=every_nth(4, ["3 2", "3 plain", "plain plain", "plain 2"]))
def tables(request):
    return [
        lay(frame, how)
        for frame, how in zip([LEFT, RIGHT], request.param.split(), strict=True)
    ]


def computed(found):
    return found.compute() if hasattr(found, "compute") else found


@pytest.mark.parametrize(
    "chosen",
    every_nth(5, [["by", "within", "different"], ["by"], ["within"], ["different"]]),
)
def test_joins_are_as_after_renaming(tables, chosen):
    pairs, same = ({name: of[name] for name in chosen} for of in (PAIRS, SAME))
    left, right = tables
    found = computed(left.simjoin.join(right, 0.2, on="x", how="outer", **pairs))
    want = LEFT.simjoin.join(SAME_NAMES, 0.2, on="x", how="outer", **same)
    inner = [
        as_set(some.dropna().astype({"left": "int64", "right": "int64"}))
        for some in (found, want)
    ]
    assert inner[0] == inner[1]
    assert len(inner[1]) > 20
    for side in ("left", "right"):
        assert sorted(found[side].dropna()) == sorted(want[side].dropna())


def test_other_verbs_are_as_after_renaming(tables):
    left, right = tables
    how = {"on": "x", "max_distance": 0.5}
    found = computed(left.simjoin.knn_join(right, 2, **how, **PAIRS))
    want = LEFT.simjoin.knn_join(SAME_NAMES, 2, **how, **SAME)
    assert as_set(found) == as_set(want)
    assert len(want) > 20
    pairs, same = ({"by": of["by"]} for of in (PAIRS, SAME))
    found = computed(left.simjoin.knn_join(right, 2, mutual=True, **how, **pairs))
    want = LEFT.simjoin.knn_join(SAME_NAMES, 2, mutual=True, **how, **same)
    assert as_set(found) == as_set(want)
    assert 0 < len(want) < 100
    found = computed(left.simjoin.neighbor_counts(0.2, other=right, on="x", **PAIRS))
    want = LEFT.simjoin.neighbor_counts(0.2, other=SAME_NAMES, on="x", **SAME)
    assert found.to_numpy().tolist() == want.tolist()
    greedy = {"on": "x", "matching": "greedy"}
    found = computed(left.simjoin.join(right, 0.2, **greedy, **PAIRS))
    want = LEFT.simjoin.join(SAME_NAMES, 0.2, **greedy, **SAME)
    assert as_set(found) == as_set(want)


def test_closest_pairs_of_each_group(tables):
    left, right = tables
    how = {"on": "x", "per_group": True, "keep": "x"}
    found = computed(left.simjoin.closest_pairs(2, right, by=PAIRS["by"], **how))
    want = LEFT.simjoin.closest_pairs(2, SAME_NAMES, by="year", **how)
    assert as_set(found) == as_set(want)
    assert len(want) == 8


def test_texts_are_joined_as_after_renaming(tables):
    left, right = tables
    found = computed(left.simjoin.edit_join(right, k=1, on="name", by=PAIRS["by"]))
    want = LEFT.simjoin.edit_join(SAME_NAMES, k=1, on="name", by="year")
    assert as_set(found) == as_set(want)
    assert len(want) > 20


def test_one_column_in_two_tolerances(tables):
    left, right = tables
    right = right.assign(end=right["when"] + pd.Timedelta("20 min"))
    within = {("t", "when"): (None, "0 h"), ("t", "end"): ("0 h", None)}
    found = as_set(computed(left.simjoin.join(right, 0.2, on="x", within=within)))
    x, y = LEFT["x"].to_numpy()[:, None], RIGHT["x"].to_numpy()
    t, when = LEFT["t"].to_numpy()[:, None], RIGHT["when"].to_numpy()
    inside = (when <= t) & (t <= when + np.timedelta64(20, "m"))
    rows = np.nonzero((abs(x - y) <= 0.2) & inside)
    assert found == {*zip(*(some.tolist() for some in rows), strict=True)}


def test_default_coordinates_leave_out_the_columns_of_pairs():
    left, right = LEFT.assign(born=9.0), RIGHT
    found = left.simjoin.join(right, 0.2, by=PAIRS["by"])
    want = LEFT.simjoin.join(SAME_NAMES, 0.2, on="x", by="year")
    assert as_set(found) == as_set(want)
    plan = left.simjoin.plan(0.2, other=right, on="x", **PAIRS)
    assert "'t' and 'when' within a tolerance, different 'ship' and 'mmsi'" in str(plan)


def test_missing_values_are_counted_once_and_named_by_their_tables():
    late = RIGHT.assign(end=RIGHT["when"])
    late.loc[3, "when"], late.loc[4, "born"] = pd.NaT, np.nan
    within = {("t", "when"): (None, "0 h"), ("t", "end"): ("0 h", None)}
    how = {"on": "x", "by": PAIRS["by"], "within": within}
    with pytest.raises(
        CoordinateError, match=r"column 'when' .*: 'born', missing in 1"
    ):
        LEFT.simjoin.join(late, 0.2, **how)
    left = LEFT.copy()
    left.loc[3, "t"] = pd.NaT
    plan = str(left.simjoin.plan(0.2, other=late, dropna=True, **how))
    assert "left table: 1 misses 't'. 2 of" in plan
    assert "right table: 1 misses 'born'; 1 misses 'when'" in plan


def test_a_column_named_by_a_tuple_is_not_a_pair():
    name = ("year", "born")
    left, right = (frame.assign(year=0, born=0) for frame in (LEFT, RIGHT))
    for frame, values in ((left, LEFT["year"]), (right, RIGHT["born"])):
        frame.insert(0, "key", values)
    left, right = (frame.rename(columns={"key": name}) for frame in (left, right))
    want = as_set(LEFT.simjoin.join(SAME_NAMES, 0.2, on="x", by="year"))
    for by in (name, [name], [(name, name)]):
        assert as_set(left.simjoin.join(right, 0.2, on="x", by=by)) == want
    with pytest.raises(ColumnError, match=r"right table, by= names .*, which is not a"):
        left.simjoin.join(RIGHT, 0.2, on="x", by=[name])
    found = left.simjoin.join(RIGHT, 0.2, on="x", by=[(name, "born")])
    assert as_set(found) == want


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"by": "year"}, r"right table, by= .* first: by=\[\('year', 'NAME'\)\]"),
        ({"by": "born"}, r"left table, by= .* first: by=\[\('NAME', 'born'\)\]"),
        ({"within": {"t": "1 h"}}, r"first: within=\{\('t', 'NAME'\): \.\.\.\}"),
        ({"different": "ship"}, r"first: different=\[\('ship', 'NAME'\)\]"),
        ({"by": [("year", "bron")]}, "right table, .* 'bron'.*did you mean 'born'"),
        ({"by": [("born", "year")]}, "A pair has the name in the left table first"),
        (
            {"by": [("year", "born"), ("year", "x")]},
            "In the left table, by= names 'year' more than once",
        ),
        ({"by": [("t", "x")]}, r"by= names \('t', 'x'\), .* are never equal"),
        ({"within": {("t", "x"): 1}}, r"names \('t', 'x'\), which is of dtypes"),
        ({"by": [("year", "born", "x")]}, "which is not a column"),
    ],
)
def test_refused_columns(options, text):
    with pytest.raises(ColumnError, match=text):
        LEFT.simjoin.join(RIGHT, 0.2, on="x", **options)


def test_equal_and_different_columns_are_compared_as_pairs():
    both = {"by": [("year", "born")], "different": [("year", "born")]}
    with pytest.raises(OptionError, match="by= and different= both name"):
        LEFT.simjoin.join(RIGHT, 0.2, on="x", **both)
    both["different"] = [("year", "x")]
    found = LEFT.simjoin.join(RIGHT, 0.2, on="x", **both)
    want = LEFT.simjoin.join(RIGHT, 0.2, on="x", by=both["by"])
    same = want["left"].map(LEFT["year"]) == want["right"].map(RIGHT["x"])
    assert as_set(found) == as_set(want[~same])


@pytest.mark.parametrize(
    ("option", "use"),
    [
        ({"by": [("x", "year")]}, "use by=['x', 'year']."),
        ({"different": [("x", "year")]}, "use different=['x', 'year']."),
        ({"within": {("x", "year"): 1}}, "Use within={'x': ...}."),
    ],
)
def test_pairs_are_for_two_tables(option, use):
    with pytest.raises(
        ColumnError, match="A pair of names is for two tables"
    ) as raised:
        LEFT.simjoin.self_join(0.2, on="x", **option)
    assert str(raised.value).endswith(use)
