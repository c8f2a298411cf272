"""Nearest rows with all rows at the distance of the last one."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import OptionError
from dask_simjoin.metrics import make_metric
from tests.support.frames import split
from tests.support.metrics import ENGINE, make_rows, of_all_norms
from tests.support.oracle import in_unit, totals
from tests.support.points import without_overflow
from tests.support.profiles import every_nth, examples, in_turns


def wanted(left, right, k, metric="euclidean", p=2, least=0.0, most=None, size=None):
    """Return the rows (left, right, rank, distance) by brute force."""
    kind, own = make_metric(metric, p), right is None
    right = left if own else right
    x, y = left.to_numpy(float), right.to_numpy(float)
    total = totals(x, y, metric, p)
    away = kind.distance(total.copy(), np)
    near = (away >= least) & ((most is None) | (away <= (most or 0)))
    if own:
        np.fill_diagonal(near, False)
    away = away if size is None else in_unit(away, size)
    rows = []
    for i in range(len(x)):
        some = [j for j in np.lexsort((np.arange(len(y)), total[i])) if near[i, j]]
        last = away[i, some[k - 1]] if len(some) >= k else np.inf
        some = [j for j in some if away[i, j] <= last]
        rows += [
            (left.index[i], right.index[j], rank + 1, away[i, j])
            for rank, j in enumerate(some)
        ]
    return rows


def rows_of(found):
    return list(found.itertuples(index=False, name=None))


@pytest.mark.parametrize(("metric", "p"), every_nth(2, of_all_norms(ENGINE)))
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_any_rows(metric, p, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    two, k = data.draw(st.booleans()), data.draw(st.sampled_from([1, 1, 2, 5, 70]))
    dims = 2 if metric == "haversine" else data.draw(st.sampled_from([1, 2, 5, 20]))
    x = without_overflow(make_rows(metric, 60, dims, rng), 3)
    if data.draw(st.booleans()):
        x = np.round(x, 1) + (metric == "cosine")
    n = data.draw(st.integers(0, 60))
    frame = pd.DataFrame(x).set_axis(rng.permutation(60) + 5)
    left, right = (frame.iloc[:n], frame.iloc[n:]) if two else (frame, None)
    away = make_metric(metric, p).distance(totals(x[:9], x, metric, p), np).ravel()
    far = data.draw(st.sampled_from([None, *np.sort(away)[::90].tolist()]))
    near = data.draw(st.sampled_from([None, *np.sort(away)[::180].tolist()]))
    near = near if near is None or far is None or near <= far else None
    how = {"metric": metric, "p": p, "max_distance": far, "min_distance": near}
    want = wanted(left, right, k, metric, p, near or 0.0, far)
    found = left.simjoin.knn_join(right, k, ties="all", on=list(x_columns(x)), **how)
    assert rows_of(found) == want
    cuts = sorted(data.draw(st.lists(st.integers(0, len(left)), max_size=2)))
    lazy = split(left, cuts).simjoin.knn_join(
        None if right is None else split(right, []),
        k,
        ties="all",
        on=list(x_columns(x)),
        partitioning=data.draw(st.sampled_from(["entity", "spatial", "auto"])),
        blocksize=data.draw(st.sampled_from([None, 12 * (8 * dims + 48 + 32 * k)])),
        **how,
    )
    found = lazy.compute(scheduler="sync")
    order = {label: n for n, label in enumerate(left.index)}
    found = sorted(rows_of(found), key=lambda row: (order[row[0]], row[2]))
    assert found == want


def x_columns(x):
    return range(x.shape[1])


LATTICE = pd.DataFrame(
    np.stack(np.meshgrid(np.arange(6) * 0.1, np.arange(6) * 0.1), -1).reshape(-1, 2),
    columns=["x", "y"],
)


def test_equal_distances_of_different_totals():
    """On a lattice of tenths, totals differ in the last bits where distances do not."""
    found = LATTICE.simjoin.knn_join(k=1, ties="all")
    assert rows_of(found) == wanted(LATTICE, None, 1)
    assert rows_of(found[found["rank"] == 1]) == rows_of(LATTICE.simjoin.knn_join(k=1))


@pytest.mark.parametrize("how", ["left", "leftanti"])
def test_rows_without_a_neighbor(how):
    points = pd.concat([LATTICE, LATTICE.assign(x=LATTICE["x"] + 50)])
    points = points.reset_index(drop=True)
    points.loc[7] = [9.0, 9.0]
    options = {"max_distance": 1.0, "how": how, "on": ["x", "y"], "k": 2}
    found = points.simjoin.knn_join(ties="all", **options)
    lazy = dd.from_pandas(points, npartitions=4)
    for kind in ("entity", "spatial"):
        other = lazy.simjoin.knn_join(
            ties="all", partitioning=kind, blocksize="1 kB", **options
        ).compute()
        if how == "leftanti":
            assert other.index.tolist() == found.index.tolist() == [7]
            continue
        other = other.sort_values(["left", "rank"]).reset_index(drop=True)
        pd.testing.assert_frame_equal(other, found)
    if how == "left":
        alone = found[found["right"].isna()]
        assert alone["left"].tolist() == [7] and alone["rank"].isna().all()
        rest = found[found["right"].notna()]
        want = wanted(points, None, 2, most=1.0)
        assert rest["right"].astype(int).tolist() == [row[1] for row in want]


def test_mutual_neighbors():
    found = LATTICE.simjoin.knn_join(k=1, ties="all", mutual=True)
    all_pairs = {row[:2] for row in wanted(LATTICE, None, 1)}
    both = {(a, b) for a, b in all_pairs if (b, a) in all_pairs}
    assert {row[:2] for row in rows_of(found)} == both
    lazy = dd.from_pandas(LATTICE, npartitions=3)
    found = lazy.simjoin.knn_join(k=1, ties="all", mutual=True).compute()
    assert {row[:2] for row in rows_of(found)} == both
    left, right = LATTICE.iloc[:20], LATTICE.iloc[20:]
    found = left.simjoin.knn_join(right, 1, ties="all", mutual=True)
    one = {row[:2] for row in wanted(left, right, 1)}
    other = {row[1::-1] for row in wanted(right, left, 1)}
    assert {row[:2] for row in rows_of(found)} == one & other


def test_groups_units_kept_columns_and_lists():
    points = LATTICE.assign(g=np.arange(36) % 2, name=[f"n{k}" for k in range(36)])
    found = points.simjoin.knn_join(
        k=1, ties="all", max_distance=9, by="g", on=["x", "y"], keep=["g", "name"]
    )
    assert (found["g_left"] == found["g_right"]).all()
    assert (found["name_right"] == "n" + found["right"].astype(str)).all()
    for g in (0, 1):
        part = LATTICE[points["g"] == g]
        own = found[found["g_left"] == g][["left", "right", "rank", "distance"]]
        assert rows_of(own) == wanted(part, None, 1)
    sphere = {"metric": "haversine", "ties": "all", "k": 2, "on": ["x", "y"]}
    found = LATTICE.simjoin.knn_join(distance_unit="km", **sphere)
    want = wanted(LATTICE, None, 2, "haversine", size=1000)
    assert rows_of(found) == want and len(want) > 72
    lists = pd.DataFrame({"v": LATTICE.to_numpy().tolist()})
    found = lists.simjoin.knn_join(k=1, ties="all", on="v")
    assert rows_of(found) == wanted(LATTICE, None, 1)


def test_many_duplicates():
    points = pd.DataFrame({"x": np.r_[np.zeros(700), 1.0, 5.0, 1e6]})
    found = points.simjoin.knn_join(points, 1, ties="all")
    assert len(found) == 700 * 700 + 3 and (found["distance"] == 0).all()
    found = points.iloc[-2:].simjoin.knn_join(points.iloc[:-2], 2, ties="all")
    assert found.groupby("left").size().tolist() == [701, 701]


def test_refusals():
    with pytest.raises(OptionError, match="ties='some' is not allowed; use one of"):
        LATTICE.simjoin.knn_join(k=1, ties="some")
    for options in ({"method": "zorder"}, {"method": "zorder", "approximate": True}):
        with pytest.raises(OptionError, match="ties='all' is not allowed with method"):
            LATTICE.simjoin.knn_join(k=1, ties="all", **options)


@in_turns(1, far=[None, 1.0], k=[1, 3])
def test_left_joins_keep_rows_without_coordinates(k, far):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"x": rng.integers(0, 30, 40).astype(float), "name": "a"})
    frame["name"] = [f"row {n}" for n in range(40)]
    frame.loc[[0, 7, 8, 39], "x"] = [np.nan, np.inf, np.nan, np.nan]
    frame.index += 100
    how = {"on": "x", "dropna": True, "ties": "all", "keep": "name"}
    other = frame.iloc[3:20]
    pairs = frame.simjoin.knn_join(other, k, max_distance=far, **how)
    found = frame.simjoin.knn_join(other, k, max_distance=far, how="left", **how)
    assert found["name_left"].tolist() == [f"row {n - 100}" for n in found["left"]]
    assert found["left"].is_monotonic_increasing
    alone = found[found["right"].isna()]
    assert set(alone["left"]) == set(frame.index) - set(pairs["left"])
    assert alone["left"].is_unique and {100, 107, 108, 139} <= {*alone["left"]}
    assert alone["rank"].isna().all() and alone["name_right"].isna().all()
    matched = found[found["right"].notna()].reset_index(drop=True)
    pd.testing.assert_frame_equal(matched, pairs, check_dtype=False)
    lazy = dd.from_pandas(frame, 3).simjoin.knn_join(
        dd.from_pandas(other, 2), k, max_distance=far, how="left", **how
    )
    computed = lazy.compute(scheduler="sync").sort_values(["left", "rank"])
    expected = found.astype(computed.dtypes).sort_values(["left", "rank"])
    pd.testing.assert_frame_equal(
        computed.reset_index(drop=True), expected.reset_index(drop=True)
    )
