"""Near duplicates: which rows stay, by their definition, whatever the chunks."""

import re

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster.algorithms import duplicates
from dask_simjoin.cluster.algorithms.duplicates import numbers_of
from dask_simjoin.engine.base import host_joiner
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from tests.support.duplicates import marked, order_of
from tests.support.frames import split
from tests.support.oracle import squared_distances
from tests.support.points import cases, frame_of
from tests.support.profiles import examples

KEEP = ["first", "last", "v", False]


def wanted(x, eps, keep, grouping, values=None):
    """Marks by the definition."""
    near = squared_distances(x, x) <= eps * eps
    if keep is False:
        return (near.sum(1) > 1).tolist()
    return marked(near, order_of(keep, len(x), values), grouping)


@settings(max_examples=examples(150))
@given(
    cases(max_dims=6, max_points=60),
    st.sampled_from(KEEP),
    st.sampled_from(["greedy", "connected"]),
    st.sampled_from([4, 20, 1000]),
    st.sampled_from(["entity", "spatial", "auto"]),
    st.integers(0, 2**16),
)
def test_any_points(case, keep, grouping, rows, partitioning, seed):
    values = np.random.default_rng(seed).integers(-2, 3, len(case.x)) / 2.0
    values[values == 1] = np.nan
    frame = frame_of(case.x).assign(v=values)
    want = wanted(case.x, case.eps, keep, grouping, values)
    how = {"keep": keep, "grouping": grouping, "on": list(frame.columns[:-1])}
    assert frame.simjoin.near_duplicated(case.eps, **how).tolist() == want
    how |= {
        "partitioning": partitioning,
        "blocksize": rows * (8 * case.x.shape[1] + 48),
    }
    lazy = split(frame, case.cuts)
    found = lazy.simjoin.near_duplicated(case.eps, **how)
    stay = lazy.simjoin.drop_near_duplicates(case.eps, **how)
    with dask.config.set(scheduler="sync"):
        assert found.compute().tolist() == want
        assert (
            stay.compute().index.tolist()
            == np.flatnonzero(~np.array(want, bool)).tolist()
        )


@pytest.mark.parametrize("kind", ["even", "copies", "chain"])
def test_halves_of_rows_give_what_all_pairs_give(kind):
    """Where pairs are too many to be collected."""
    rng = np.random.default_rng(4)
    x = {
        "even": rng.uniform(size=(700, 2)),
        "copies": rng.uniform(size=(9, 2))[rng.integers(0, 9, 700)],
        "chain": np.stack([np.arange(700) * 0.03, np.zeros(700)], 1),
    }[kind]
    moments = x.min(0), x.max(0), x.mean(0), ((x - x.mean(0)) ** 2).sum(0)
    layout = host_joiner().layout("auto", *moments, 0.05**2)
    want = ~np.array(wanted(x, 0.05, "first", "greedy"))
    for few, most in ((2048, 0), (8, -4 * 700), (100, -4 * 350), (8, 10)):
        assert (
            duplicates.stays(x, layout, host_joiner(), few, most).tolist()
            == want.tolist()
        )


def test_like_pandas_where_rows_are_equal():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 5, (80, 2)), columns=["x", "y"]).assign(
        name=list("abcd") * 20
    )
    for keep in ("first", "last", False):
        found = frame.simjoin.near_duplicated(0, keep=keep)
        pd.testing.assert_series_equal(found, frame.duplicated(["x", "y"], keep=keep))
        once = frame.simjoin.drop_near_duplicates(0, keep=keep)
        pd.testing.assert_frame_equal(
            once, frame.drop_duplicates(["x", "y"], keep=keep)
        )


@pytest.mark.parametrize("lazy", [False, True])
def test_rows_without_coordinates(lazy):
    frame = pd.DataFrame(
        {"x": [1.0, np.nan, 1.0, np.inf, 5.0, 1.5]}, index=[3, 3, 4, 4, 5, 5]
    )
    data = split(frame, [2, 4]) if lazy else frame
    found = data.simjoin.near_duplicated(1.0, dropna=True)
    once = data.simjoin.drop_near_duplicates(1.0, dropna=True)
    if lazy:
        found, once = found.compute(), once.compute()
    marks = [False, False, True, False, False, True]
    assert found.tolist() == marks and found.index.equals(frame.index)
    pd.testing.assert_frame_equal(once, frame[~np.array(marks)])


@pytest.mark.parametrize(
    "dtype", ["float32", "int8", "uint64", "Int64", "Float64", "bool", "int64[pyarrow]"]
)
def test_order_of_any_numbers(dtype):
    values = (
        [3, 0, 7, 1, 0, 7]
        if dtype != "bool"
        else [True, False, True, False, False, True]
    )
    if dtype == "uint64":
        values[2] = values[5] = 2**64 - 1
    column = pd.Series(values, dtype=dtype)
    want = np.argsort([-int(value) for value in values], kind="stable").tolist()
    assert np.argsort(~numbers_of(column, np), kind="stable").tolist() == want


def test_order_of_signs_and_of_missing_values():
    column = pd.Series([0.0, -0.0, -np.inf, 5e-324, np.nan, -1.5, np.inf, -2.5])
    keys = numbers_of(column, np)
    assert keys[0] == keys[1]
    assert np.argsort(keys, kind="stable").tolist() == [4, 2, 7, 5, 0, 1, 3, 6]
    some = pd.Series([1, None, -5], dtype="Int64")
    assert np.argsort(numbers_of(some, np)).tolist() == [1, 2, 0]


def test_the_largest_of_a_column_that_is_no_coordinate():
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "votes": [1, 900, 5]})
    assert frame.simjoin.near_duplicated(1.0, keep="votes").tolist() == [
        True,
        False,
        True,
    ]
    assert (
        frame.simjoin.near_duplicated(1.0, keep="votes", on=["votes"]).tolist()
        == [False] * 3
    )


def test_refused():
    frame = pd.DataFrame({"x": [0.0, 1.0], "t": ["a", "b"]})
    for data in (frame, dd.from_pandas(frame, npartitions=1)):
        with pytest.raises(
            OptionError,
            match=re.escape("keep='lst' is not allowed (did you mean 'last'?)"),
        ):
            data.simjoin.near_duplicated(1, keep="lst")
        for keep in (True, None):
            with pytest.raises(
                OptionError, match=r"use 'first', 'last', False, or a column"
            ):
                data.simjoin.near_duplicated(1, keep=keep)
        with pytest.raises(ColumnError, match=r"keep='first': df.sort_values\('t'"):
            data.simjoin.drop_near_duplicates(1, keep="t")
        with pytest.raises(
            OptionError, match=r"df.sort_values\(\['x', 't'\], ascending=False\)"
        ):
            data.simjoin.near_duplicated(1, keep=["x", "t"])
        with pytest.raises(OptionError, match="grouping='chain' is not allowed"):
            data.simjoin.near_duplicated(1, grouping="chain")
        with pytest.raises(OptionTypeError, match="eps= is missing"):
            data.simjoin.near_duplicated()


DAYS = pd.Series(
    pd.to_datetime(["2024-01-03", None, "2024-01-09", "1960-05-01", "2024-01-09"])
).astype("datetime64[ns]")
TIMES = {
    **{unit: DAYS.dt.as_unit(unit) for unit in ("s", "ms", "us")},
    "zone": DAYS.dt.tz_localize("Europe/Zurich"),
    "arrow": DAYS.dt.as_unit("us").astype("timestamp[us][pyarrow]"),
    "arrow dates": DAYS.dt.date.astype("date32[pyarrow]"),
    "dates": DAYS.dt.date,
    "spans": DAYS - DAYS.min(),
}


@pytest.mark.parametrize("kind", TIMES)
def test_the_latest_row_is_kept(kind):
    """As for numbers: the first of equal times, and a missing time is the last."""
    frame = pd.DataFrame({"x": 0.0, "text": "a b c", "t": TIMES[kind]})
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(frame, npartitions=3)
    for data, how in ((frame, "greedy"), (lazy, "connected")):
        options = {"keep": "t", "grouping": how}
        found = [data.simjoin.drop_near_duplicates(1.0, on="x", **options)]
        if kind == "us":
            sets = {"tokenizer": "words", **options}
            found += [
                data.simjoin.drop_set_near_duplicates("text", 0.5, **sets),
                data.simjoin.drop_edit_near_duplicates("text", 1, **options),
            ]
        with dask.config.set(scheduler="sync"):
            for one in dask.compute(*found):
                assert one.index.tolist() == [2]


def test_objects_that_are_no_dates_are_refused():
    frame = pd.DataFrame({"x": [0.0, 1.0], "t": pd.Series([[1], "a"], dtype=object)})
    with pytest.raises(ColumnError, match="It holds other values than times"):
        frame.simjoin.near_duplicated(1.0, on="x", keep="t")


def test_cells_find_the_rows_without_a_neighbor():
    """Most cells of 6,000 points hold several of them, so points are not compared."""
    x = np.random.default_rng(3).normal(size=(6_000, 2))
    frame = pd.DataFrame(x, columns=["x", "y"])
    found = frame.simjoin.near_duplicated(0.3, keep=False)
    counts = frame.simjoin.neighbor_counts(0.3)
    assert found.tolist() == (counts > 0).tolist()
    assert 0 < (~found).sum() < 100
