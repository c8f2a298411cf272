"""With `dropna`, rows without coordinates have no partner, but no result that has the
rows of the input loses them.
"""

import importlib
import itertools
from importlib.util import find_spec

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin
from tests.support.frames import computed, itself
from tests.support.profiles import examples

NAN, INF = np.nan, np.inf
ON = ["x", "y"]


def frame_with_holes(rng, rows, share):
    """Return points on a lattice, some of them without coordinates; labels repeat."""
    x = rng.integers(0, 8, (rows, 2)).astype(float)
    holes = np.flatnonzero(rng.random(rows) < share)
    for row in holes.tolist():
        x[row] = [(NAN, 1.0), (2.0, INF), (-INF, NAN)][int(rng.integers(3))]
    frame = pd.DataFrame(x, columns=ON)
    frame["key"] = rng.permutation(rows) + 100
    frame["g"] = pd.Series(
        rng.choice(np.array(["a", "b", None], object), rows, p=[0.5, 0.4, 0.1]),
        dtype=object,
    )
    frame["name"] = [f"n{k}" for k in range(rows)]
    frame.index = rng.integers(0, max(1, rows // 2), rows)
    return frame


def parts_of(rng, frame, lazy):
    """Return the frame, or a Dask DataFrame, which may have empty partitions."""
    if not lazy:
        return frame
    cuts = [0, *np.sort(rng.integers(0, len(frame) + 1, 3)).tolist(), len(frame)]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(cuts)]
    return dd.from_map(itself, parts, meta=frame.iloc[:0], label=f"n{rng.random()}")


def rows_in_order(frame):
    """Return the rows as sorted tuples, with None for missing values."""
    some = frame.astype(object).where(frame.notna(), None)
    return sorted(map(tuple, some.to_numpy().tolist()), key=repr)


def usable(frame, by):
    found = np.isfinite(frame[ON].to_numpy(float)).all(axis=1)
    return found & frame["g"].notna().to_numpy() if by else found


def near_rows(one, other, eps, by):
    """Return the matrix of matches by definition."""
    a, b = one[ON].to_numpy(float), other[ON].to_numpy(float)
    with np.errstate(invalid="ignore"):
        near = ((a[:, None] - b[None]) ** 2).sum(axis=2) <= eps * eps
    near &= usable(one, by)[:, None] & usable(other, by)[None]
    if by:
        near &= one["g"].to_numpy()[:, None] == other["g"].to_numpy()[None]
    return near


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30))
def test_joins_against_the_definition(seed):
    rng = np.random.default_rng(seed)
    shares = [0.0, 0.3, 1.0]
    one, other = (
        frame_with_holes(rng, int(rng.choice([0, 1, 9, 25])), rng.choice(shares))
        for _ in range(2)
    )
    lazy, by, eps = rng.random() < 0.7, rng.choice([None, "g"]), float(rng.integers(3))
    how = {
        "on": ON,
        "dropna": True,
        "by": by,
        "partitioning": str(rng.choice(["auto", "entity", "spatial"])),
    }
    if lazy and rng.random() < 0.5:
        how["blocksize"] = int(rng.choice([400, 900]))
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        left = parts_of(rng, one, lazy)
        right = parts_of(rng, other, lazy and rng.random() < 0.7)
        near = near_rows(one, other, eps, by)
        i, j = np.nonzero(near)
        alone = np.flatnonzero(~near.any(axis=1))
        pairs = pd.DataFrame(
            {
                "left": one["key"].to_numpy()[[*i, *alone]],
                "right": [*other["key"].to_numpy()[j], *[None] * len(alone)],
                "name_left": one["name"].to_numpy()[[*i, *alone]],
                "name_right": [*other["name"].to_numpy()[j], *[None] * len(alone)],
            }
        )
        named = {"id": "key", "keep": "name", **how}
        found = left.simjoin.join(right, eps, how="left", **named)
        assert rows_in_order(computed(found)) == rows_in_order(pairs)
        if lazy:
            assert len(found[["right"]]) == len(pairs)
        found = computed(left.simjoin.join(right, eps, **named))
        assert rows_in_order(found) == rows_in_order(pairs[: len(i)])
        found = computed(left.simjoin.join(right, eps, how="leftanti", **how))
        pd.testing.assert_frame_equal(found, one.iloc[alone])
        found = computed(left.simjoin.join(right, eps, how="leftsemi", **how))
        pd.testing.assert_frame_equal(found, one[near.any(axis=1)])

        nearest = {"k": 99, "max_distance": eps}
        found = computed(left.simjoin.knn_join(right, how="left", **nearest, **named))
        assert rows_in_order(found[pairs.columns]) == rows_in_order(pairs)
        if not lazy:  # in the order of the left rows
            keys = np.sort(np.append(i, alone))
            assert found["left"].tolist() == one["key"].to_numpy()[keys].tolist()
        found = computed(left.simjoin.knn_join(right, how="leftanti", **nearest, **how))
        pd.testing.assert_frame_equal(found, one.iloc[alone])

        near = near_rows(one, one, eps, by)
        found = computed(left.simjoin.neighbor_counts(eps, **how))
        want = near.sum(axis=1) - usable(one, by)
        assert found.tolist() == want.tolist() and found.index.equals(one.index)
        found = computed(left.simjoin.drop_near_duplicates(eps, keep=False, **how))
        pd.testing.assert_frame_equal(found, one[near.sum(axis=1) < 2])


TEXTS = pd.DataFrame(
    {"t": ["abc", None, "abd", None, "xyz"], "n": range(5)}, index=[1, 1, 2, 3, 3]
)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", ["edit", "set"])
def test_rows_without_a_text_or_a_set(kind, lazy):
    frame = TEXTS if kind == "edit" else TEXTS.assign(t=TEXTS["t"].str.split(""))
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        data = dd.from_pandas(frame, npartitions=2, sort=False) if lazy else frame
        how = ("t", 1) if kind == "edit" else ("t", 0.4)
        verb = {
            name: getattr(data.simjoin, name.format(kind))
            for name in (
                "{}_join",
                "{}_near_duplicated",
                "drop_{}_near_duplicates",
                "{}_neighbor_counts",
            )
        }
        marks = computed(verb["{}_near_duplicated"](*how))
        assert marks.tolist() == [False, False, True, False, False]
        rest = computed(verb["drop_{}_near_duplicates"](*how))
        assert rest["n"].tolist() == [0, 1, 3, 4]
        counts = computed(verb["{}_neighbor_counts"](*how))
        assert counts.tolist() == [1, 0, 1, 0, 0]
        anti = computed(verb["{}_join"](frame[:2], *how, how="leftanti"))
        assert anti["n"].tolist() == [1, 3, 4]
        semi = computed(verb["{}_join"](frame[:2], *how, how="leftsemi"))
        assert semi["n"].tolist() == [0, 2]


def listed(column):
    """Return the values of a column of Arrow or polars."""
    return column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()


def test_polars_and_arrow():
    pa = pytest.importorskip("pyarrow")
    tables = [pa.table({"x": [0.0, None, 0.5, INF]})]
    if find_spec("polars") is not None:
        tables.append(importlib.import_module("polars").from_arrow(tables[0]))
    for table in tables:
        how = {"on": "x", "dropna": True}
        marks = dask_simjoin.near_duplicated(table, 1.0, **how)
        assert listed(marks) == [False, False, True, False]
        assert len(dask_simjoin.drop_near_duplicates(table, 1.0, **how)) == 3
        counts = dask_simjoin.neighbor_counts(table, 1.0, **how)
        assert listed(counts) == [1, 0, 1, 0]
        assert len(dask_simjoin.dbscan(table, 1.0, 2, **how)) == 4
        assert len(dask_simjoin.join(table, table, 1.0, how="leftanti", **how)) == 2
        assert len(dask_simjoin.join(table, table, 1.0, how="left", **how)) == 6
        assert len(dask_simjoin.knn_join(table, table, 1, how="left", **how)) == 4


def test_missing_and_empty_points():
    geopandas = pytest.importorskip("geopandas")
    from shapely import Point

    points = [Point(0, 0), None, Point(), Point(1, 0)]
    frame = geopandas.GeoDataFrame({"n": range(4)}, geometry=points, crs="EPSG:2056")
    rest = frame.simjoin.drop_near_duplicates(1.5, dropna=True)
    assert rest["n"].tolist() == [0, 1, 2]
    anti = frame.simjoin.join(frame[3:], 1.5, how="leftanti", dropna=True)
    assert anti["n"].tolist() == [1, 2] and isinstance(anti, geopandas.GeoDataFrame)
    left = frame.simjoin.knn_join(frame[3:], 1, how="left", dropna=True)
    assert left["left"].tolist() == [0, 1, 2, 3]
    assert left["right"].isna().tolist() == [False, True, True, False]
    plan = frame.simjoin.plan(1.5, dropna=True)
    assert "2 of 4 rows: 2 miss 'geometry'" in str(plan)
