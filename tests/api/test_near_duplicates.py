"""Near duplicates that are dropped, and numbers of rows."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tests.engine.test_ids import PAIRED, days
from tests.support.frames import computed, lay
from tests.support.oracle import as_set, squared_distances


def test_row_ids_are_numbers_of_rows(how):
    frame = pd.DataFrame(
        {"x": PAIRED, "name": list("abcdef")}, index=[3, 3, 1, 1, 2, 2]
    )
    numbered = lay(frame, how).simjoin.with_row_id()
    assert list(numbered.columns) == ["x", "name", "row_id"]
    assert numbered.dtypes["row_id"] == np.dtype("int64")
    rows = computed(numbered)
    pd.testing.assert_frame_equal(rows, frame.assign(row_id=np.arange(6)))
    assert list(frame.columns) == ["x", "name"]


def test_row_ids_of_a_filtered_frame(how):
    frame = pd.DataFrame({"x": PAIRED})
    data = lay(frame, how)
    for keep, expected in (
        (lambda x: x > 5, 4),
        (lambda x: x > 20, 1),
        (lambda x: x > 99, 0),
    ):
        part = data[keep(data["x"])].simjoin.with_row_id()
        assert computed(part)["row_id"].tolist() == list(range(expected))
        pairs = computed(part.simjoin.self_join(99.0, id="row_id"))
        assert as_set(pairs) == {
            (i, j) for i in range(expected) for j in range(i + 1, expected)
        }


def test_row_ids_of_no_rows(how):
    frame = pd.DataFrame({"x": PAIRED}).iloc[:0]
    rows = computed(lay(frame, how).simjoin.with_row_id())
    assert rows["row_id"].dtype == np.dtype("int64")
    assert len(rows) == 0


@pytest.mark.parametrize(
    "first", [list("abcdef"), [None] * 6, [np.nan] * 6, days(1, 2, 3, 4, 5, 6)]
)
def test_the_first_column_may_be_of_any_kind(how, first):
    frame = pd.DataFrame({"first": first, "x": PAIRED})
    rows = computed(lay(frame, how).simjoin.with_row_id())
    assert rows["row_id"].tolist() == [0, 1, 2, 3, 4, 5]


def test_another_name_for_row_ids(how):
    numbered = lay(pd.DataFrame({"x": PAIRED}, index=[0] * 6), how).simjoin.with_row_id(
        "number"
    )
    pairs = numbered.simjoin.self_join(1.0, id="number")
    assert as_set(computed(pairs)) == {(0, 1), (2, 3), (4, 5)}


EPS = 0.05


def points():
    """Return 200 random rows, and 100 slightly moved copies of some of them."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=(300, 2))
    x[200:] = x[rng.integers(0, 200, 100)] + rng.normal(0, 0.01, (100, 2))
    return pd.DataFrame(x, columns=["x", "y"]).assign(
        name=[f"row {k}" for k in range(300)]
    )


@pytest.mark.parametrize("partitions", [None, 1, 4])
def test_first_of_each_group_stays(partitions):
    df = points()
    near = coo_array(
        squared_distances(df[["x", "y"]].to_numpy(), df[["x", "y"]].to_numpy())
        <= EPS * EPS
    )
    count, groups = connected_components(near, directed=False)
    first = [int(np.flatnonzero(groups == g)[0]) for g in range(count)]
    assert 0 < count < len(df) and max(np.bincount(groups)) > 3
    frame = df if partitions is None else dd.from_pandas(df, npartitions=partitions)
    once = frame.assign(
        g=frame.simjoin.dbscan(EPS, min_samples=1, on=["x", "y"])
    ).drop_duplicates("g")
    once = once if partitions is None else once.compute()
    assert sorted(once["g"]) == list(range(count))
    assert sorted(groups[once.index]) == list(range(count))
    if partitions is None:  # Dask's drop_duplicates does not say which row it keeps
        assert sorted(once.index) == sorted(first)
