"""Components of frames of pairs: missing ends, ids of several kinds, and any
partitioning.
"""

import itertools

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.dataframe.utils import clear_known_categories
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin
from dask_simjoin.errors import ColumnError, UnsupportedFrameError
from tests.support.frames import split
from tests.support.oracle import brute_force
from tests.support.points import frame_of
from tests.support.profiles import examples, in_turns


def day(n):
    return None if n is None else pd.Timestamp("2020-01-01") + pd.Timedelta(days=n)


def text(n):
    return None if n is None else f"id {n:02}"


KINDS = {
    "Int64": (int, lambda ids: pd.array(ids, dtype="Int64")),
    "float64": (
        float,
        lambda ids: np.array([np.nan if n is None else n for n in ids], np.float64),
    ),
    "int64[pyarrow]": (int, lambda ids: pd.array(ids, dtype=pd.ArrowDtype(pa.int64()))),
    "str": (text, lambda ids: pd.array([text(n) for n in ids], dtype="str")),
    "string[pyarrow]": (
        text,
        lambda ids: pd.array([text(n) for n in ids], dtype="string[pyarrow]"),
    ),
    "datetime64": (day, lambda ids: pd.DatetimeIndex([day(n) for n in ids])),
    "None": (text, lambda ids: np.array([text(n) for n in ids] + [0], object)[:-1]),
    "NaN": (
        int,
        lambda ids: np.array([np.nan if n is None else n for n in ids] + ["x"], object)[
            :-1
        ],
    ),
    "NA": (
        text,
        lambda ids: np.array(
            [pd.NA if n is None else text(n) for n in ids] + [0], object
        )[:-1],
    ),
}


def definition(pairs):
    """Numbers of groups of ids, in the order of their smallest ids; None is no id."""
    groups = [{n} for n in sorted({n for pair in pairs for n in pair if n is not None})]
    for a, b in pairs:
        if a is not None and b is not None:
            met = [group for group in groups if group & {a, b}]
            groups = [group for group in groups if group not in met] + [
                set().union(*met)
            ]
    groups.sort(key=min)
    return {n: k for k, group in enumerate(groups) for n in group}


ID = st.one_of(st.none(), st.integers(0, 12))


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(ID, ID), max_size=12), st.sampled_from(list(KINDS)), st.data()
)
def test_a_missing_end_is_no_id(pairs, kind, data):
    name, column = KINDS[kind]
    frame = pd.DataFrame(
        {"left": column([a for a, _ in pairs]), "right": column([b for _, b in pairs])}
    )
    ends = sorted(data.draw(st.lists(st.integers(0, len(pairs)), max_size=4)))
    want = {name(n): k for n, k in definition(pairs).items()}
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        lazy = dask_simjoin.connected_components(split(frame, ends)).compute()
    for found in (dask_simjoin.connected_components(frame), lazy):
        assert (
            dict(zip(found.id.tolist(), found.component.tolist(), strict=True)) == want
        )
        assert len(found) == len(want) and found.id.dtype == lazy.id.dtype


LEFT = pd.DataFrame({"x": [0.0, 1.0, 50.0, 90.0]}, index=[1, 2, 3, 4])
RIGHT = pd.DataFrame({"x": [0.5]}, index=[10])


@in_turns(1, stored=[False, True], names=[int, str], parts=[0, 1, 2, 4])
def test_rows_of_a_left_join_without_a_partner_are_groups_of_their_own(
    parts, names, stored, tmp_path
):
    left, right = LEFT.rename(index=names), RIGHT.rename(index=names)
    pairs = (dd.from_pandas(left, npartitions=parts) if parts else left).simjoin.join(
        right, 1.0, on="x", how="left"
    )
    if stored and parts:
        pairs.to_parquet(tmp_path)
        pairs = dd.read_parquet(tmp_path)
    elif stored:
        pairs.to_csv(tmp_path / "pairs.csv", index=False)
        pairs = pd.read_csv(
            tmp_path / "pairs.csv", dtype=None if names is int else "str"
        )
    (found,) = dask.compute(dask_simjoin.connected_components(pairs))
    want = {1: 0, 2: 0, 10: 0, 3: 1, 4: 2}
    assert (
        dict(zip(found.id.map(int).tolist(), found.component.tolist(), strict=True))
        == want
    )


@pytest.mark.parametrize(
    "dtypes", [("int64", "float64"), ("Int64", "Float64"), (object, object)]
)
@pytest.mark.parametrize("parts", [0, 1, 2])
def test_whole_numbers_and_floats_are_told_apart(dtypes, parts):
    """Put together by pandas, whole numbers above 2**53 would be rounded to floats."""
    sides = [pd.Series(ids, dtype=object) for ids in ([2**53 + 1, 5], [2.0**53, 5.0])]
    pairs = pd.DataFrame(
        {
            name: side.astype(kind)
            for name, side, kind in zip(("left", "right"), sides, dtypes, strict=True)
        }
    )
    with dask.config.set({"dataframe.convert-string": False}):
        pairs = dd.from_pandas(pairs, npartitions=parts) if parts else pairs
        (found,) = dask.compute(dask_simjoin.connected_components(pairs))
    assert found.id.tolist() == [5, 2**53, 2**53 + 1] and found.component.tolist() == [
        0,
        1,
        1,
    ]


@pytest.mark.parametrize(
    "ids",
    [
        ["b", 2, 1.5, "a"],
        [(1, "a"), ("a", 1), (0, "b"), 3],
        [pd.Timestamp(0).date(), "a", 7],
    ],
)
def test_ids_that_do_not_compare_have_one_order_in_all_partitionings(ids):
    """By their kinds first."""
    pairs = pd.DataFrame(
        {"left": pd.Series(ids, dtype=object), "right": pd.Series(ids, dtype=object)}
    )
    found = []
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        for some in itertools.permutations(range(len(ids))):
            frame = pairs.iloc[list(some)].reset_index(drop=True)
            found += [frame, split(frame, [1]), split(frame, [1, 2])]
        every = dask.compute(*map(dask_simjoin.connected_components, found))
    assert len({tuple(some.id) for some in every}) == 1
    assert all(some.component.tolist() == list(range(len(ids))) for some in every)


def components(pairs):
    """Groups of ids by the definition: in the order of their smallest ids."""
    groups = []
    for a, b in pairs:
        touched = [g for g in groups if a in g or b in g]
        groups = [g for g in groups if g not in touched] + [
            set().union({a, b}, *touched)
        ]
    groups.sort(key=min)
    return {name: k for k, group in enumerate(groups) for name in group}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40),
    st.integers(1, 5),
    st.booleans(),
)
def test_connected_components(pairs, partitions, text):
    names = [(f"id {a:02}", f"id {b:02}") if text else (a, b) for a, b in pairs]
    frame = pd.DataFrame(names, columns=["left", "right"]).astype(
        "str" if text else "int64"
    )
    want = components(names)
    size = -(-len(frame) // partitions)
    ddf = split(frame, [min(len(frame), size * k) for k in range(1, partitions)])
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        lazy = dask_simjoin.connected_components(ddf).compute()
    for found in (dask_simjoin.connected_components(frame), lazy):
        assert (
            dict(zip(found.id.tolist(), found.component.tolist(), strict=True)) == want
        )
        assert found.component.dtype == np.int64 and found.id.is_monotonic_increasing


CATEGORIES = [([1, 2], [1, 2]), ([1, 5], [4]), ([], [8]), ([2], [8]), ([], [])]
"""Ids of the left and of the right rows of the pairs in each partition."""


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize("order", [1, -1])
def test_categories_of_partitions_and_sides_may_differ(kind, order):
    """Partitions without pairs, whose sides have other categories, included."""
    parts = []
    for left, right in CATEGORIES[::order]:
        n = min(len(left), len(right))
        sides = [
            pd.Categorical([kind(k) for k in ids[:n]], list(map(kind, ids)))
            for ids in (left, right)
        ]
        parts.append(pd.DataFrame(dict(zip(("left", "right"), sides, strict=True))))
    meta = clear_known_categories(parts[0].iloc[:0])
    lazy = dask_simjoin.connected_components(
        dd.from_map(lambda part: part, parts, meta=meta)
    )
    pairs = pd.concat([part.astype(object) for part in parts]).astype("category")
    (found,) = dask.compute(lazy)
    for one in (found, dask_simjoin.connected_components(pairs)):
        assert one["id"].tolist() == [kind(k) for k in (1, 2, 4, 8)]
        assert one["component"].tolist() == [0, 1, 0, 1]
        assert isinstance(one["id"].dtype, pd.CategoricalDtype)
    assert isinstance(lazy.dtypes["id"], pd.CategoricalDtype)


@pytest.mark.parametrize("rows", [0, 1])
def test_ids_of_a_left_join_have_one_dtype_with_and_without_pairs(rows):
    pairs = pd.DataFrame(
        {"left": np.arange(rows), "right": pd.array([3][:rows], "Int64")}
    )
    assert dask_simjoin.connected_components(pairs)["id"].dtype == "Int64"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("int64", "uint64"),
        ("UInt64", "int64[pyarrow]"),
        ("uint64", "int64[pyarrow]"),
        ("category", "int64"),
        (pd.ArrowDtype(pa.dictionary(pa.int8(), pa.int64())),) * 2,
    ],
)
def test_ids_of_both_sides_are_of_other_dtypes(left, right):
    """Numbers above 2**53 are not all floats, which pandas makes of signed and unsigned
    ones.
    """
    a = 2**53
    sides = {"left": ([a, a + 3, 1], left), "right": ([a + 1, a + 2, a + 1], right)}
    frame = pd.DataFrame(
        {
            name: pd.Series(ids, dtype=object).astype(kind)
            for name, (ids, kind) in sides.items()
        }
    )
    for pairs in (frame, dd.from_pandas(frame, npartitions=3)):
        groups = dask_simjoin.connected_components(pairs)
        groups = groups if pairs is frame else groups.compute()
        assert groups.id.tolist() == [1, a, a + 1, a + 2, a + 3]
        assert groups.component.tolist() == [0, 0, 0, 1, 1]


def test_components_of_a_join_are_clusters_of_one_neighbour():
    x = np.random.default_rng(0).uniform(size=(900, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=4)
    groups = dask_simjoin.connected_components(ddf.simjoin.self_join(0.02)).compute()
    labels = ddf.simjoin.dbscan(0.02, 2).compute()
    assert groups.id.tolist() == labels.index[labels >= 0].tolist()
    assert groups.component.tolist() == labels[labels >= 0].tolist()
    assert len(groups) == len({i for pair in brute_force(x, 0.02) for i in pair})


def test_frames_that_are_no_pairs():
    with pytest.raises(ColumnError, match="takes pairs, in the columns 'left' and"):
        dask_simjoin.connected_components(pd.DataFrame({"right": [1]}))
    with pytest.raises(UnsupportedFrameError):
        dask_simjoin.connected_components([(1, 2)])
