"""The closest pairs are the first ones in the order of totals, left rows and right
rows.
"""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dask_simjoin
from dask_simjoin.errors import (
    BudgetError,
    ColumnError,
    DuplicateIdError,
    OptionError,
    OptionTypeError,
    UnsupportedFrameError,
)
from dask_simjoin.metrics import make_metric
from tests.support.frames import split
from tests.support.metrics import ENGINE, make_rows, of_all_norms
from tests.support.oracle import totals
from tests.support.points import without_overflow
from tests.support.profiles import chosen, every_nth, examples, in_turns

METRICS = [("euclidean", 2), *ENGINE]


def pairs_by_definition(left, right, n, metric="euclidean", p=2, max_distance=None):
    """(left, right, distance) of the closest pairs by brute force, as index labels."""
    x, y = (side.to_numpy(float) for side in (left, left if right is None else right))
    total = totals(x, y, metric, p)
    kind = make_metric(metric, p)
    allowed = (
        np.ones(total.shape, bool)
        if max_distance is None
        else total <= kind.threshold(max_distance)
    )
    i, j = np.nonzero(np.triu(allowed, 1) if right is None else allowed)
    order = np.lexsort((j, i, total[i, j]))[:n]
    i, j = i[order], j[order]
    labels = (
        left.index[i].tolist(),
        (left if right is None else right).index[j].tolist(),
    )
    return list(
        zip(*labels, kind.distance(total[i, j].copy(), np).tolist(), strict=True)
    )


def listed(found):
    return list(
        zip(
            *(found[name].tolist() for name in ("left", "right", "distance")),
            strict=True,
        )
    )


def tables(rng, metric, two):
    """Rows with random labels, and a right table or None."""
    dims, sizes = int(rng.integers(1, 13)), rng.integers(0, 50, 2)
    sides = [
        without_overflow(make_rows(metric, int(size), dims, rng), 3)
        for size in sizes[: 1 + two]
    ]
    columns = [f"x{k}" for k in range(sides[0].shape[1])]
    frames = [
        pd.DataFrame(x, rng.permutation(len(x)) + 100 * side, columns)
        for side, x in enumerate(sides)
    ]
    return frames[0], frames[1] if two else None


@pytest.mark.parametrize(("metric", "p"), of_all_norms(METRICS))
@settings(max_examples=examples(250), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    two=st.booleans(),
    n=st.sampled_from([1, 2, 3, 10, 50, 400, 5000]),
)
def test_pairs_are_those_of_the_definition(metric, p, seed, two, n):
    left, right = tables(np.random.default_rng(seed), metric, two)
    found = left.simjoin.closest_pairs(n, right, metric=metric, p=p)
    assert listed(found) == pairs_by_definition(left, right, n, metric, p)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_no_partitioning_changes_the_result(data):
    metric, p = data.draw(st.sampled_from(METRICS))
    two, n = data.draw(st.booleans()), data.draw(st.sampled_from([1, 3, 20, 5000]))
    left, right = tables(
        np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), metric, two
    )
    sides = [left, right] if two else [left]
    lazy = [
        split(side, data.draw(st.lists(st.integers(0, len(side)), max_size=2)))
        for side in sides
    ]
    how = {
        "metric": metric,
        "p": p,
        "partitioning": data.draw(st.sampled_from(["entity", "spatial", "auto"])),
    }
    how["blocksize"] = data.draw(st.sampled_from([None, 12 * (8 * left.shape[1] + 80)]))
    found = lazy[0].simjoin.closest_pairs(n, *lazy[1:], **how)
    assert found.npartitions == 1
    computed = found.compute(scheduler="sync")
    assert listed(computed) == pairs_by_definition(left, right, n, metric, p)
    assert computed.dtypes.tolist() == found.dtypes.tolist()


@settings(max_examples=examples(100), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(2, 60),
    values=st.integers(1, 4),
    n=st.integers(1, 100),
    two=st.booleans(),
)
def test_ties_go_to_the_first_rows(seed, rows, values, n, two):
    rng = np.random.default_rng(seed)
    left = pd.DataFrame(rng.integers(0, values, (rows, 2)).astype(float))
    right = (
        pd.DataFrame(rng.integers(0, values, (rows // 2, 2)).astype(float))
        if two
        else None
    )
    assert listed(left.simjoin.closest_pairs(n, right)) == pairs_by_definition(
        left, right, n
    )


def test_distances_that_are_rounded_to_one_number_are_in_order_of_their_squares():
    u = 2.0**-26
    df = pd.DataFrame({"x": [0.0, 1, 10, 11], "y": [0, u, 0, u], "z": [0, u, 0, 0]})
    found = df.simjoin.closest_pairs(2)
    assert listed(found) == [(2, 3, 1 + u * u), (0, 1, 1 + u * u)]
    squares = totals(df.to_numpy(), df.to_numpy())
    assert squares[0, 1] == 1 + 2 * u * u > squares[2, 3] == 1 + u * u


@pytest.mark.parametrize("n", every_nth(4, [1, 10, 3000]))
def test_more_duplicates_than_pairs_asked_for(n):
    df = pd.DataFrame(np.zeros((20_000, 2)))
    found = df.simjoin.closest_pairs(n)
    assert listed(found) == [(0, k + 1, 0.0) for k in range(n)]
    found = dd.from_pandas(df, npartitions=3).simjoin.closest_pairs(n).compute()
    assert listed(found) == [(0, k + 1, 0.0) for k in range(n)]


@in_turns(1, rows=[0, 1], lazy=[False, True])
def test_too_few_rows_for_a_pair(rows, lazy):
    df = pd.DataFrame({"x": np.zeros(rows), "name": ["a"] * rows})
    other = pd.DataFrame({"x": [1.0, 2.0]})
    frame = dd.from_pandas(df, npartitions=1) if lazy else df
    found = frame.simjoin.closest_pairs(3, on="x", keep="name")
    crossed = frame.simjoin.closest_pairs(3, other, on="x")
    if lazy:
        found, crossed = found.compute(), crossed.compute()
    assert not len(found)
    assert list(found.columns) == [
        "left",
        "right",
        "distance",
        "name_left",
        "name_right",
    ]
    assert listed(crossed) == [(0, 0, 1.0), (0, 1, 2.0)][: 2 * rows]


def test_ids_and_kept_columns():
    df = pd.DataFrame({"x": [0.0, 5.0, 4.5], "key": ["a", "b", "c"], "v": [1, 2, 3]})
    expected = pd.DataFrame(
        {
            "left": ["b"],
            "right": ["c"],
            "distance": [0.5],
            "v_left": [2],
            "v_right": [3],
        }
    )
    how = {"on": "x", "id": "key", "keep": "v"}
    pd.testing.assert_frame_equal(df.simjoin.closest_pairs(1, **how), expected)
    lazy = dd.from_pandas(df, npartitions=2).simjoin.closest_pairs(1, **how)
    # Dask has strings of Arrow
    pd.testing.assert_frame_equal(lazy.compute(), expected, check_dtype=False)


def test_columns_of_other_names_in_two_tables():
    left = pd.DataFrame({"x": [0.0, 3.0], "a": [7, 8]})
    right = pd.DataFrame({"z": [5.0, 3.25], "b": ["u", "v"]})
    how = {"left_on": "x", "right_on": "z", "left_id": "a", "right_id": "b"}
    assert listed(left.simjoin.closest_pairs(2, right, **how)) == [
        (8, "v", 0.25),
        (8, "u", 2.0),
    ]
    lazy = dd.from_pandas(left, npartitions=2).simjoin.closest_pairs(2, right, **how)
    assert listed(lazy.compute()) == [(8, "v", 0.25), (8, "u", 2.0)]


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_groups_and_a_largest_distance(two, lazy):
    rng = np.random.default_rng(3)
    left = pd.DataFrame({"x": rng.random(60), "g": rng.integers(0, 5, 60)})
    right = (
        pd.DataFrame({"x": rng.random(40), "g": rng.integers(0, 5, 40)})
        if two
        else None
    )
    data = left if right is None else right
    away = np.abs(left["x"].to_numpy()[:, None] - data["x"].to_numpy())
    allowed = (left["g"].to_numpy()[:, None] == data["g"].to_numpy()) & (
        away * away <= 0.3 * 0.3
    )
    i, j = np.nonzero(allowed if two else np.triu(allowed, 1))
    order = np.lexsort((j, i, away[i, j] ** 2))[:25]
    frame = dd.from_pandas(left, npartitions=3) if lazy else left
    found = frame.simjoin.closest_pairs(25, right, on="x", by="g", max_distance=0.3)
    found = found.compute() if lazy else found
    assert found["left"].tolist() == i[order].tolist()
    assert found["right"].tolist() == j[order].tolist()
    few = left.simjoin.closest_pairs(10**6, on="x", max_distance=0.01)
    assert listed(few) == pairs_by_definition(
        left[["x"]], None, 10**6, max_distance=0.01
    )


def closest_of_groups(left, right, groups, n, per_group, metric, p):
    """(left, right, distance) of the closest pairs within groups, as index labels;
    groups may be missing.
    """
    x, y = (side.to_numpy(float) for side in (left, left if right is None else right))
    total = totals(x, y, metric, p)
    own, others = groups[0], groups[-1]
    i, j = np.nonzero(
        np.ones(total.shape, bool)
        if right is not None
        else np.triu(np.ones(total.shape), 1)
    )
    pairs = sorted(
        (total[a, b], a, b)
        for a, b in zip(i.tolist(), j.tolist(), strict=True)
        if own[a] == others[b]
    )
    if per_group:
        seen = dict.fromkeys(set(own), 0)
        kept = []
        for pair in pairs:
            seen[own[pair[1]]] += 1
            if seen[own[pair[1]]] <= n:
                kept.append(pair)
        pairs = kept
    pairs = pairs[: None if per_group else n]
    away = (
        make_metric(metric, p)
        .distance(np.array([pair[0] for pair in pairs]), np)
        .tolist()
    )
    labels = left.index.tolist(), (left if right is None else right).index.tolist()
    return [
        (labels[0][a], labels[1][b], far)
        for (_, a, b), far in zip(pairs, away, strict=True)
    ]


@st.composite
def grouped_cases(draw):
    """Tables with groups of all sizes, also of single rows, and many ties; options; and
    the closest pairs.
    """
    metric, p = draw(st.sampled_from(METRICS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    two, per_group = draw(st.booleans()), draw(st.booleans())
    n, number = (
        draw(st.sampled_from([1, 2, 3, 10, 400])),
        draw(st.sampled_from([1, 2, 5, 40])),
    )
    left, right = tables(rng, metric, two)
    sides = [left, right] if two else [left]
    sides = [
        side.iloc[rng.integers(0, len(side), len(side))].set_axis(side.index)
        for side in sides
    ]
    assume(
        metric == "cosine"
        or all(np.abs(side.to_numpy()).max(initial=0) < 1e60 for side in sides)
    )
    groups = [rng.integers(0, number, len(side)) for side in sides]
    lists = [some.tolist() for some in groups]
    expected = closest_of_groups(
        sides[0], sides[1] if two else None, lists, n, per_group, metric, p
    )
    how = {
        "on": list(left.columns),
        "by": "g",
        "per_group": per_group,
        "metric": metric,
        "p": p,
    }
    return (
        [side.assign(g=own) for side, own in zip(sides, groups, strict=True)],
        n,
        how,
        expected,
    )


@settings(max_examples=examples(300), deadline=None)
@given(grouped_cases())
def test_groups_need_no_largest_distance(case):
    sides, n, how, expected = case
    assert listed(sides[0].simjoin.closest_pairs(n, *sides[1:], **how)) == expected


@settings(max_examples=examples(60), deadline=None)
@given(grouped_cases(), st.data())
def test_no_partitioning_changes_the_pairs_of_groups(case, data):
    sides, n, how, expected = case
    lazy = [
        split(side, data.draw(st.lists(st.integers(0, len(side)), max_size=2)))
        for side in sides
    ]
    how["partitioning"] = data.draw(st.sampled_from(["entity", "spatial", "auto"]))
    how["blocksize"] = data.draw(
        st.sampled_from([None, 20 * (8 * len(how["on"]) + 90)])
    )
    found = lazy[0].simjoin.closest_pairs(n, *lazy[1:], **how).compute(scheduler="sync")
    assert listed(found) == expected


@pytest.mark.parametrize("lazy", chosen([False, True], [True]))
def test_pairs_of_each_group_within_a_largest_distance(lazy):
    df = pd.DataFrame(
        {"x": [0.0, 1.0, 1.5, 9.0, 9.0, 20.0, 30.0], "g": list("aaabbcc"), "h": 1}
    )
    frame = dd.from_pandas(df, npartitions=3) if lazy else df
    how = {"on": "x", "by": ["g", "h"], "per_group": True}
    for n, bound, expected in (
        (1, None, [(3, 4, 0.0), (1, 2, 0.5), (5, 6, 10.0)]),
        (1, 5.0, [(3, 4, 0.0), (1, 2, 0.5)]),
        (2, None, [(3, 4, 0.0), (1, 2, 0.5), (0, 1, 1.0), (5, 6, 10.0)]),
    ):
        found = frame.simjoin.closest_pairs(n, max_distance=bound, **how)
        assert listed(found.compute() if lazy else found) == expected
    # each group has equal rows
    alone = frame[["x", "g"]].simjoin.closest_pairs(3, on="x", by="x")
    assert listed(alone.compute() if lazy else alone) == [(3, 4, 0.0)]


@pytest.mark.parametrize("lazy", [False, True])
def test_rows_without_a_group_are_in_no_pair(lazy):
    df = pd.DataFrame({"x": [0.0, 0.0, 1.0, 5.0], "g": ["a", None, "a", None]})
    frame = dd.from_pandas(df, npartitions=2) if lazy else df
    for per_group in (False, True):
        found = frame.simjoin.closest_pairs(
            9, on="x", by="g", per_group=per_group, dropna=True
        )
        assert listed(found.compute() if lazy else found) == [(0, 2, 1.0)]


@pytest.mark.parametrize("lazy", [False, True])
def test_groups_of_lists(lazy):
    df = pd.DataFrame(
        {"v": [[0.0, 1.0], [0.0, 3.0], [0.0, 2.0], [7.0, 1.0]], "g": [1, 1, 2, 2]}
    )
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(df, npartitions=2) if lazy else df
    found = frame.simjoin.closest_pairs(1, on="v", by="g", per_group=True)
    assert listed(found.compute() if lazy else found) == [(0, 1, 2.0), (2, 3, 50**0.5)]


@pytest.mark.parametrize("lazy", [False, True])
def test_groups_of_numbers_that_are_too_far_apart(lazy):
    df = pd.DataFrame({"x": [0.0, 1e300, 1.0], "g": [1, 1, 1]})
    frame = dd.from_pandas(df, npartitions=2) if lazy else df
    with pytest.raises(OptionError, match=r"by= needs max_distance= here\. Without it"):
        len(frame.simjoin.closest_pairs(1, on="x", by="g"))
    found = frame.simjoin.closest_pairs(1, on="x", by="g", max_distance=2.0)
    assert listed(found.compute() if lazy else found) == [(0, 2, 1.0)]


def test_rows_without_coordinates():
    df = pd.DataFrame({"x": [0.0, np.nan, 1.0, 1.5]}, index=list("abcd"))
    for frame in (df, dd.from_pandas(df, npartitions=2)):
        found = frame.simjoin.closest_pairs(9, dropna=True)
        found = found.compute() if frame is not df else found
        assert listed(found) == [("c", "d", 0.5), ("a", "c", 1.0), ("a", "d", 1.5)]


def test_workers_of_a_cluster(client):
    df = pd.DataFrame(np.random.default_rng(1).random((300, 2)))
    lazy = dd.from_pandas(df, npartitions=3)
    assert listed(lazy.simjoin.closest_pairs(7).compute()) == pairs_by_definition(
        df, None, 7
    )
    found = lazy.simjoin.closest_pairs(
        7, df.iloc[:50] + 0.5, partitioning="spatial"
    ).compute()
    assert listed(found) == pairs_by_definition(df, df.iloc[:50] + 0.5, 7)


def test_a_result_that_does_not_fit_is_refused():
    with pytest.raises(BudgetError, match="n=1000000000000"):
        pd.DataFrame(
            np.random.default_rng(0).random((300_000, 2))
        ).simjoin.closest_pairs(10**12)


def test_nothing_is_computed_before_it_is_needed():
    def refuse(part):
        assert not len(part), "computed at the call"
        return part

    lazy = dd.from_pandas(
        pd.DataFrame({"x": [0.0, 1.0]}), npartitions=1
    ).map_partitions(refuse, meta={"x": float})
    assert list(lazy.simjoin.closest_pairs(1).columns) == ["left", "right", "distance"]


def test_methods_agree():
    df = pd.DataFrame(np.random.default_rng(0).random((500, 3)))
    expected = pairs_by_definition(df, None, 40)
    for method in ("auto", "tiles", "zorder"):
        assert listed(df.simjoin.closest_pairs(40, method=method)) == expected


def test_arrays():
    found = dask_simjoin.closest_pairs(np.array([[0.0], [3.0], [1.0]]), 1)
    assert listed(found) == [(0, 2, 1.0)]


def test_mistakes_are_refused():
    df = pd.DataFrame({"x": [0.0, 1.0], "g": ["a", "a"]})
    for n in (0, -1, 1.5, True, None):
        with pytest.raises(OptionError, match="n="):
            df.simjoin.closest_pairs(n)
    with pytest.raises(OptionError, match="per_group=True needs by="):
        df.simjoin.closest_pairs(1, on="x", per_group=True)
    with pytest.raises(
        OptionTypeError, match="per_group=1 is not allowed; use True or False"
    ):
        df.simjoin.closest_pairs(1, on="x", by="g", per_group=1)
    with pytest.raises(OptionError, match="sweep"):
        df.simjoin.closest_pairs(1, method="sweep")
    with pytest.raises(OptionError, match="replicated"):
        df.simjoin.closest_pairs(1, partitioning="replicated")
    with pytest.raises(UnsupportedFrameError, match="other=5"):
        df.simjoin.closest_pairs(1, 5)
    with pytest.raises(ColumnError, match="nothing"):
        df.simjoin.closest_pairs(1, keep="nothing")


@pytest.mark.parametrize("lazy", [False, True])
def test_repeated_ids_are_refused(lazy):
    df = pd.DataFrame({"x": [0.0, 1.0, 5.0]}, index=[7, 7, 8])
    frame = dd.from_pandas(df, npartitions=2, sort=False) if lazy else df
    with pytest.raises(DuplicateIdError, match="7"):
        len(frame.simjoin.closest_pairs(1))


@pytest.mark.parametrize("step", every_nth(4, ["sort_values", "merge"]))
def test_rows_whose_order_differs_between_two_computations(step):
    """Shuffles on disk do not fix the order of rows with equal keys, and the result
    needs the rows twice.
    """
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, 30, (131, 2)) / 30, columns=["a", "b"])
    rows = rows.assign(id=rng.permutation(131), g=np.arange(131) % 7)
    expected = rows.simjoin.closest_pairs(5, id="id", on=["a", "b"])
    with dask.config.set({"dataframe.shuffle.method": "disk", "scheduler": "threads"}):
        lazy = dd.from_pandas(rows, npartitions=8, sort=False)
        if step == "merge":
            lazy = lazy.merge(
                dd.from_pandas(pd.DataFrame({"g": range(7)}), npartitions=3), on="g"
            )
        else:
            lazy = lazy.sort_values("a")
        found = lazy.simjoin.closest_pairs(5, id="id", on=["a", "b"]).compute()
    assert found["distance"].tolist() == expected["distance"].tolist()
