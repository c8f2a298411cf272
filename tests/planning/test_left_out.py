"""Rows that are left out are counted by column and reason, and described in words."""

import logging

import dask
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.planning.left_out import (
    LeftOut,
    LeftOutRows,
    left_out_in_words,
    merged_reasons,
)
from tests.support.frames import computed, lay

NAN, INF = np.nan, np.inf

FRAME = pd.DataFrame(
    {
        "lat": [0.0, NAN, NAN, NAN, 0.0, 0.5],
        "lon": [0.0, 0.0, 0.0, NAN, -INF, 0.0],
        "g": ["a", "a", "a", "a", "a", None],
    }
)
TEXT = (
    "5 of 6 rows: 3 miss 'lat'; 1 misses 'lon'; 1 has an infinite value in 'lon'; "
    "1 misses 'g'"
)
HOW = {"on": ["lat", "lon"], "by": "g", "dropna": True}


@pytest.mark.parametrize("how", ["pandas", "dask-1", "dask-3"])
def test_plans_count_rows_by_column_and_reason(how):
    plan = lay(FRAME, how).simjoin.plan(1.0, **HOW)
    assert plan.rows_left_out == 5 and plan.rows == 1
    assert f"left out       {TEXT}" in str(plan)
    (table,) = plan.to_dict()["left_out"]
    assert (table["rows"], table["table_rows"]) == (5, 6)
    assert table["reasons"][0] == {"columns": ["lat"], "reason": "missing", "rows": 3}
    assert [reason["rows"] for reason in table["reasons"]] == [3, 1, 1, 1]


@pytest.mark.parametrize("how", ["pandas", "dask-1", "dask-3"])
def test_rows_are_listed_with_their_reasons(how):
    """Any number of partitions has the rows that the masks of pandas have."""
    random = np.random.default_rng(3)
    data = pd.DataFrame(
        random.choice([0.0, 1.0, NAN, INF], (60, 2)), columns=["x", "y"]
    )
    data["g"] = random.choice(["a", None], 60)
    wanted = set()
    for name in data.columns:
        wanted |= {(row, name, "missing") for row in np.flatnonzero(data[name].isna())}
    for name in ("x", "y"):
        rows = np.flatnonzero(np.isinf(data[name]))
        wanted |= {(row, name, "infinite") for row in rows}
    frame = lay(data, how)
    with dask.config.set(scheduler="sync"):
        plan = frame.simjoin.plan(1.0, on=["x", "y"], by="g", dropna=True)
        sizes = [60] if how == "pandas" else [*frame.map_partitions(len).compute()]
    listed = plan.list_left_out()
    first = np.cumsum([0, *sizes])[listed["partition"]]
    rows = zip(listed["row"] + first, listed["column"], listed["reason"], strict=True)
    assert len(listed) == len(wanted) and set(rows) == wanted
    assert (listed["table"] == "left").all()
    assert listed[["partition", "row"]].apply(tuple, axis=1).is_monotonic_increasing
    assert listed[["partition", "row"]].drop_duplicates().shape[0] == plan.rows_left_out


def test_rows_of_both_tables_are_listed():
    with dask.config.set(scheduler="sync"):
        joined = lay(FRAME, "dask-3").simjoin.join(FRAME[:2], 1.0, **HOW)
        joined.compute()
    listed = joined.simjoin.report().list_left_out()
    assert listed["table"].tolist() == ["left"] * 6 + ["right"]
    assert listed.iloc[-1].tolist() == ["right", 0, 1, "lat", "missing"]


def test_rows_without_a_text_are_listed():
    frame = pd.DataFrame({"t": ["ab", None, "ac", None], "g": [1.0, 1.0, NAN, 1.0]})
    with dask.config.set(scheduler="sync"):
        for data in (frame, lay(frame, "dask-1")):
            listed = data.simjoin.edit_plan("t", 1, by="g").list_left_out()
            assert listed["row"].tolist() == [1, 2, 3]
            assert set(listed["column"]) == {"t or g"}


def test_a_complete_table_has_an_empty_list():
    listed = FRAME[:1].simjoin.plan(1.0, **HOW).list_left_out()
    assert len(listed) == 0 and listed.dtypes["row"] == "int64"
    assert listed.columns.tolist() == ["table", "partition", "row", "column", "reason"]


def test_nothing_is_said_if_no_row_is_left_out():
    plan = FRAME[:1].simjoin.plan(1.0, **HOW)
    assert plan.rows_left_out == 0 and "left out" not in str(plan)


def test_each_table_has_its_own_line():
    with dask.config.set(scheduler="sync"):
        joined = lay(FRAME, "dask-3").simjoin.join(FRAME[:2], 1.0, **HOW)
        joined.compute()
    report = joined.simjoin.report()
    left = TEXT.replace("rows:", "rows of the left table:")
    words = f"{left}. 1 of 2 rows of the right table: 1 misses 'lat'"
    assert words in str(report) and words in report.planned_line()
    assert report.to_dict()["rows_left_out"] == 6
    assert [table["rows"] for table in report.left_out] == [5, 1]


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_rows_are_logged(how, caplog):
    with (
        caplog.at_level(logging.INFO, "dask_simjoin"),
        dask.config.set(scheduler="sync"),
    ):
        computed(lay(FRAME, how).simjoin.count_pairs(1.0, **HOW))
    assert sum(f"left out {TEXT}" in line for line in caplog.messages) == 1


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_rows_without_a_text_are_logged(how, caplog):
    data = lay(pd.DataFrame({"t": ["ab", None, "ac", None]}), how)
    with (
        caplog.at_level(logging.INFO, "dask_simjoin"),
        dask.config.set(scheduler="sync"),
    ):
        computed(data.simjoin.edit_neighbor_counts("t", 1))
    text = "left out 2 of 4 rows: 2 miss 't'"
    assert sum(text in line for line in caplog.messages) == 1


def test_lists_and_rows_of_zeros():
    lists = pd.DataFrame({"v": [[0.0, 0.0], [1.0, NAN], None, [1.0, INF], [1.0, 1.0]]})
    plan = lists.simjoin.plan(0.1, metric="cosine", dropna=True, on="v")
    assert (
        "4 of 5 rows: 2 miss 'v'; 1 has an infinite value in 'v'; "
        "1 has no direction, only zeros"
    ) in str(plan)


def test_missing_points_have_the_name_of_their_geometry():
    geopandas = pytest.importorskip("geopandas")
    points = geopandas.points_from_xy([8.0, 8.0, 8.0], [50.0, 50.0, 50.0])
    frame = geopandas.GeoDataFrame({"n": [1.0, NAN, 1.0]}, geometry=points, crs=4326)
    frame.loc[2, "geometry"] = None
    plan = frame.simjoin.plan("1 km", dropna=True, by="n")
    assert "2 of 3 rows: 1 misses 'geometry'; 1 misses 'n'" in str(plan)
    listed = plan.list_left_out()[["row", "column"]]
    assert listed.to_numpy().tolist() == [[1, "n"], [2, "geometry"]]


def test_texts_and_sets_without_a_value():
    frame = pd.DataFrame({"t": ["a b", None, "a b", "c"], "g": [1.0, 1.0, NAN, 2.0]})
    plan = frame.simjoin.edit_plan("t", 1, by="g")
    assert "left out       2 of 4 rows: 2 miss 't' or 'g'" in str(plan)
    sets = frame.simjoin.set_plan("t", 0.5, tokenizer="words")
    assert sets.rows_left_out == 1 and "1 of 4 rows: 1 misses 't'" in str(sets)
    allowed = frame.simjoin.set_plan("t", 0.5, tokenizer="words", allow_missing=True)
    assert allowed.rows_left_out == 0 and "without a set  1" in str(allowed)


def test_words():
    one = LeftOut(1, (1,), (LeftOutRows(("x",), "infinite", 1),))
    assert left_out_in_words([one]) == "1 of 1 row: 1 has an infinite value in 'x'"
    assert left_out_in_words([LeftOut(3, (0, 0))]) is None
    assert left_out_in_words([]) is None
    x, y = (LeftOutRows((name,), "missing", 2) for name in "xy")
    assert merged_reasons([[y], [x, y]], ["x", "y"]) == (x, y._replace(rows=4))


def test_public_words_stay_the_same_without_dropna():
    """A plan has the numbers also if no option leaves out rows."""
    found = dask_simjoin.plan(pd.DataFrame({"x": [0.0, 1.0]}), 1.0).to_dict()
    assert found["rows_left_out"] == 0 and found["left_out"][0]["table_rows"] == 2
