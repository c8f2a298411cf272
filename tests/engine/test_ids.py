"""Ids name rows: they must be unique, and come back as they are."""

import functools
import re

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.engine.ids import as_id_keys, from_id_keys, joined, united
from dask_simjoin.errors import ColumnError, DuplicateIdError, SimJoinError
from tests.support.frames import computed, itself, lay, split
from tests.support.oracle import as_set, assert_same_pairs
from tests.support.profiles import pairwise

PAIRED = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0]
"""Six coordinates; rows 0 and 1, 2 and 3, 4 and 5 are pairs at eps = 1."""

REMEDY = r"frame = frame\.simjoin\.with_row_id\(\), then id='row_id'"


HOW = ["pandas", "dask-1", "dask-3"]
WHERE = ["index", "column"]


@pytest.fixture(params=WHERE)
def where(request):
    """Rows are named by the index, or by the column "key"."""
    return request.param


def named(ids, where, x=PAIRED):
    """A frame whose rows are named by the ids, and the options that say so."""
    frame = pd.DataFrame({"x": x, "key": ids})
    if where == "column":
        return frame, {"on": "x", "id": "key"}
    return frame.set_index("key"), {"on": "x"}


def assert_refused(frame, how, options, text):
    """Planning is refused; with Dask the call is not."""
    data = lay(frame, how)
    if how == "pandas":
        with pytest.raises(DuplicateIdError, match=text):
            data.simjoin.self_join(1.0, **options)
        return
    pairs = data.simjoin.self_join(1.0, **options)
    with pytest.raises(DuplicateIdError, match=text):
        _ = pairs.npartitions
    with pytest.raises(DuplicateIdError, match=text):
        pairs.compute()


def days(*numbers, unit="us"):
    return pd.DatetimeIndex([f"2020-01-{n:02}" for n in numbers]).as_unit(unit)


# --- ids of every dtype come back as they are
# -----------------------------------------------------


def arrow(values, kind):
    return pd.array(list(values), dtype=pd.ArrowDtype(kind))


KINDS = {
    "int64": np.array([3, 1, 2, 9, 0, 7]),
    "negative": np.array([-3, -1, -2, -9, 0, -7]),
    "sorted": np.array([-5, -1, 0, 3, 4, 2**62]),
    "int8": np.array([3, 1, 2, 9, 0, -128], np.int8),
    "uint8": np.array([3, 1, 2, 9, 0, 255], np.uint8),
    "uint64": np.array([3, 1, 2**63, 9, 0, 2**64 - 1], np.uint64),
    "float64": np.array([0.5, 1, 2, -9, 0, np.inf]),
    "float32": np.array([0.5, 1, 2, -9, 0, 7], np.float32),
    "str": pd.array(list("bacfed"), dtype="str"),
    "object of strings": np.array(list("bacfed"), object),
    "object of bytes": np.array([b"b", b"a", b"c", b"f", b"e", b"d"], object),
    "object of mixed": np.array(["b", 1, 2.5, "f", "e", 0], object),
    "Arrow string": arrow("bacfed", pa.string()),
    "Arrow large string": arrow("bacfed", pa.large_string()),
    "string": pd.array(list("bacfed"), dtype="string[python]"),
    "Int64": pd.array([3, 1, 2, 9, 0, 7], dtype="Int64"),
    "Arrow int64": arrow([3, 1, 2, 9, 0, 7], pa.int64()),
    "datetime us": days(6, 5, 3, 4, 1, 2),
    "datetime ns": days(6, 5, 3, 4, 1, 2, unit="ns"),
    "datetime with zone": days(6, 5, 3, 4, 1, 2).tz_localize("Europe/Prague"),
    "timedelta": pd.to_timedelta([3, 1, 2, 9, 0, 7], unit="s"),
    "period": days(6, 5, 3, 4, 1, 2).to_period("D"),
    "interval": pd.interval_range(0, 6)[[3, 1, 2, 5, 0, 4]],
    "category": pd.Categorical(list("bacfed")),
    "category with unused": pd.Categorical(list("bacfed"), categories=list("zfbacyed")),
    "ordered category": pd.Categorical(
        list("bacfed"), categories=list("fedcba"), ordered=True
    ),
    "category of numbers": pd.Categorical([3, 1, 2, 9, 0, 7]),
}


@pairwise(kind=list(KINDS), how=HOW, where=WHERE)
def test_ids_of_every_dtype(how, where, kind):
    frame, options = named(KINDS[kind], where)
    dtype = frame["key"].dtype if where == "column" else frame.index.dtype
    keys = (frame["key"] if where == "column" else frame.index).tolist()
    lazy = lay(frame, how).simjoin.self_join(1.0, return_distance=True, **options)
    pairs = computed(lazy)
    assert as_set(pairs) == {(keys[i], keys[i + 1]) for i in (0, 2, 4)}
    assert pairs.dtypes.tolist() == [dtype, dtype, np.dtype("float64")]
    assert lazy.dtypes.tolist() == pairs.dtypes.tolist()
    assert list(lazy.columns) == list(pairs.columns) == ["left", "right", "distance"]


@pairwise(kind=list(KINDS), how=HOW, where=WHERE)
def test_dtypes_of_empty_results(how, where, kind):
    frame, options = named(KINDS[kind], where)
    dtype = frame["key"].dtype if where == "column" else frame.index.dtype
    for data in (frame, frame.iloc[:0]):
        pairs = computed(lay(data, how).simjoin.self_join(0.0, **options))
        assert len(pairs) == 0
        assert pairs.dtypes.tolist() == [dtype, dtype]


@pairwise(kind=list(KINDS), how=HOW, where=WHERE)
def test_a_repeated_id_of_every_dtype(how, where, kind):
    """The first id comes back in the last row, so in another partition if there are
    three.
    """
    ids = KINDS[kind]
    frame, options = named(ids.take([0, 1, 2, 3, 4, 0]), where)
    value = (frame["key"] if where == "column" else frame.index)[:1].tolist()[0]
    place = {"dask-3": " in several partitions", "pandas": ""}.get(
        how, "(?: in partition 0)?"
    )
    subject = r"The ids in column 'key'" if where == "column" else "The index labels"
    # datetimes are shown as Python or as pandas shows them
    shown = {
        "datetime": r".*2020\D+0?1\D+0?6.*",
        "timedelta": ".*(00:00:03|seconds=3).*",
    }
    shown = shown.get(kind.split()[0], re.escape(repr(value)))
    text = rf"{subject} are not unique: {shown} repeats{place}, .*{REMEDY}"
    assert_refused(frame, how, options, text)


@pytest.mark.parametrize(
    "index", [range(10, -2, -2), range(5, 17, 2), range(-3, 3)], ids=str
)
def test_ranges_with_a_step(how, index):
    frame = pd.DataFrame({"x": PAIRED}, index=index)
    pairs = computed(lay(frame, how).simjoin.self_join(1.0))
    assert as_set(pairs) == {(index[i], index[i + 1]) for i in (0, 2, 4)}
    assert pairs.dtypes.tolist() == [np.dtype("int64")] * 2


@pytest.mark.parametrize(
    "index", [range(6), range(100, 70, -5), range(-12, 0, 2)], ids=str
)
def test_ranges_of_which_dropna_keeps_a_part(how, index):
    """The labels of the middle partition are a range no more, those of the others are."""
    frame = pd.DataFrame({"x": [0.0, 1.0, np.nan, 11.0, 11.5, 1.5]}, index=index)
    kept = [0, 1, 3, 4, 5]
    once = {(index[i], index[j]) for i, j in ((0, 1), (1, 5), (3, 4))}
    both = once | {(b, a) for a, b in once} | {(index[i], index[i]) for i in kept}
    data = lay(frame, how)
    for options, expected in (
        ({}, once),
        ({"pairs": "both", "include_self": True}, both),
    ):
        pairs = computed(
            data.simjoin.self_join(1.0, dropna=True, return_distance=True, **options)
        )
        assert as_set(pairs) == expected
        assert pairs.dtypes.tolist() == [np.dtype("int64")] * 2 + [np.dtype("float64")]
        x = dict(zip(index, frame["x"], strict=True))
        assert all(d == abs(x[a] - x[b]) for a, b, d in pairs.itertuples(index=False))


def test_a_named_index_and_columns_named_like_the_results(how):
    frame = pd.DataFrame({"left": PAIRED, "right": 0.0, "distance": 0.0})
    frame.index = pd.Index(list("abcdef"), name="left")
    pairs = lay(frame, how).simjoin.self_join(1.0, return_distance=True)
    assert as_set(computed(pairs)) == {("a", "b"), ("c", "d"), ("e", "f")}
    assert computed(pairs)["distance"].tolist() == [1.0] * 3


def test_an_id_that_is_a_coordinate_too(how):
    frame = pd.DataFrame({"x": PAIRED, "y": 0.0})
    pairs = lay(frame, how).simjoin.self_join(1.0, on=["x", "y"], id="x")
    assert as_set(computed(pairs)) == {(0.0, 1.0), (10.0, 11.0), (20.0, 21.0)}


def test_an_id_column_is_no_coordinate_by_default(how):
    frame = pd.DataFrame({"x": PAIRED, "key": [600, 500, 400, 300, 200, 100]})
    pairs = lay(frame, how).simjoin.self_join(1.0, id="key")
    assert as_set(computed(pairs)) == {(600, 500), (400, 300), (200, 100)}


def test_the_other_columns_take_no_part(how):
    frame = pd.DataFrame(
        {"x": PAIRED, "key": range(6), "text": [None] * 6, "bad": [np.nan] * 6}
    )
    pairs = lay(frame, how).simjoin.self_join(1.0, on="x", id="key")
    assert as_set(computed(pairs)) == {(0, 1), (2, 3), (4, 5)}


@pytest.mark.parametrize("unknown", [False, True])
def test_categories_that_differ_between_partitions(unknown):
    """As read_parquet gives them: each file has its own categories."""
    parts = [
        pd.DataFrame({"x": PAIRED[2 * i : 2 * i + 2], "key": pd.Categorical(keys)})
        for i, keys in enumerate([["a", "b"], ["b2", "a2"], ["c", "d"]])
    ]
    meta = parts[0].iloc[:0]
    if unknown:
        meta = meta.assign(
            key=meta["key"].cat.set_categories(["__UNKNOWN_CATEGORIES__"])
        )
    ddf = dd.from_map(itself, parts, meta=meta)
    pairs = ddf.simjoin.self_join(1.0, id="key")
    assert as_set(pairs.compute()) == {("a", "b"), ("b2", "a2"), ("c", "d")}
    parts[2] = parts[2].assign(key=pd.Categorical(["c", "a2"]))
    again = dd.from_map(itself, parts, meta=meta).simjoin.self_join(1.0, id="key")
    with pytest.raises(DuplicateIdError, match="'a2' repeats in several partitions"):
        again.compute()


# --- ids that repeat
# ------------------------------------------------------------------------------


def test_numbers_of_neighbours_and_of_pairs_need_no_ids(how):
    frame = pd.DataFrame(
        {"x": PAIRED}, index=pd.Index([7.0, 7.0, 7.0, np.nan, np.nan, 1.0], name="key")
    )
    data = lay(frame, how)
    counts = computed(data.simjoin.neighbor_counts(1.0))
    assert counts.tolist() == [1] * 6
    assert counts.index.equals(frame.index)
    assert computed(data.simjoin.count_pairs(1.0)) == 3


def test_repeated_labels_do_not_matter_where_a_column_is_the_id(how):
    frame = pd.DataFrame({"x": PAIRED, "key": list("abcdef")}, index=[0] * 6)
    pairs = lay(frame, how).simjoin.self_join(1.0, id="key")
    assert as_set(computed(pairs)) == {("a", "b"), ("c", "d"), ("e", "f")}


# --- ids that are missing, or cannot be ids
# -------------------------------------------------------

MISSING = {
    "float": [1.0, 2.0, np.nan, np.nan, 5.0, 6.0],
    "str": pd.Series(["a", "b", None, None, "c", "d"]).array,  # objects in pandas 2
    "string": pd.array(["a", "b", None, None, "c", "d"], dtype="string"),
    "object": np.array(["a", "b", None, None, "c", "d"], object),
    "Int64": pd.array([1, 2, None, None, 5, 6], dtype="Int64"),
    "Arrow int64": arrow([1, 2, None, None, 5, 6], pa.int64()),
    "Arrow string": arrow(["a", "b", None, None, "c", "d"], pa.string()),
    "datetime": pd.to_datetime(["2020", "2021", None, None, "2022", "2023"]),
    "category": pd.Categorical(["a", "b", None, None, "c", "d"]),
}


@pytest.mark.parametrize("case", MISSING)
def test_missing_ids(how, where, case):
    row = "row 0 in partition 1" if how == "dask-3" else "row 2"
    label = "label 2 in partition 1" if how == "dask-3" else "label 2"
    subject = (
        rf"column 'key' has 2 missing ids \(first at {label}\)\. To leave out rows without "
        r"an id: frame = frame\.dropna\(subset=\['key'\]\)\. "
        if where == "column"
        else rf"the index has 2 missing labels \(first at {row}\)\. "
    )
    text = rf"^Every row needs a unique id, but {subject}(Or u|U)se id= .*{REMEDY}(?!.*repeat)"
    frame, options = named(MISSING[case], where)
    assert_refused(frame, how, options, text)


def test_labels_of_several_levels():
    """Dask has no such index; pandas has."""
    index = pd.MultiIndex.from_product(
        [[0, 1, 2], ["a", "b"]], names=["number", "letter"]
    )
    frame = pd.DataFrame({"x": PAIRED, "key": range(6)}, index=index)
    assert as_set(frame.simjoin.self_join(1.0, id="key")) == {(0, 1), (2, 3), (4, 5)}
    assert frame.simjoin.count_pairs(1.0, on="x") == 3
    assert frame.simjoin.neighbor_counts(1.0, on="x").index.equals(index)
    with pytest.raises(SimJoinError, match=r"MultiIndex.*(with_row_id|reset_index)"):
        frame.simjoin.self_join(1.0, on="x")


@pytest.mark.parametrize("how", ["pandas", "dask-1"])
def test_ids_that_cannot_be_hashed(how):
    frame = pd.DataFrame({"x": PAIRED, "key": [[2], [1], [4], [3], [6], [5]]})
    data = lay(frame, how)
    with pytest.raises(SimJoinError, match="'key'"):
        computed(data.simjoin.self_join(1.0, on="x", id="key"))


# --- with_row_id
# ----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    """A frame read from three parquet files; the rows of each are numbered from 0."""
    for i in range(3):
        part = pd.DataFrame({"x": PAIRED[2 * i : 2 * i + 2], "unread": [0.5, 0.25]})
        part.to_parquet(tmp_path / f"part-{i}.parquet")
    ddf = dd.read_parquet(tmp_path)
    assert ddf.npartitions == 3
    assert ddf.index.compute().tolist() == [0, 1] * 3
    return ddf


def test_parquet_files_repeat_their_labels(files):
    pairs = files.simjoin.self_join(1.0, on="x")
    text = (
        r"^The index labels are not unique: [01] repeats in several partitions, so pairs would be "
        rf"ambiguous\. Use id= with a column of unique values, or add one: {REMEDY}\. Labels often repeat"
    )
    with pytest.raises(DuplicateIdError, match=text):
        pairs.compute()


def test_parquet_files_with_row_ids(files):
    numbered = files.simjoin.with_row_id()
    assert numbered.dtypes["row_id"] == np.dtype("int64")
    pairs = numbered.simjoin.self_join(
        1.0, on="x", id="row_id", return_distance=True
    ).compute()
    assert as_set(pairs) == {(0, 1), (2, 3), (4, 5)}
    assert pairs.dtypes.tolist() == [np.dtype("int64")] * 2 + [np.dtype("float64")]
    rows = numbered.compute()
    assert rows["row_id"].tolist() == [0, 1, 2, 3, 4, 5]
    assert rows["x"].tolist() == PAIRED
    # eps = 11: the pairs of rows at most 11 apart, whatever their numbers and the other
    # column are
    more = numbered.simjoin.self_join(11.0, on="x", id="row_id").compute()
    expected = {
        (i, j) for i in range(6) for j in range(i + 1, 6) if PAIRED[j] - PAIRED[i] <= 11
    }
    assert_same_pairs(as_set(more), expected)


def test_parquet_files_without_coordinates_named(files):
    """`row_id` is no coordinate, the column `unread` is."""
    numbered = files.simjoin.with_row_id()
    assert numbered.simjoin.count_pairs(1.0).compute() == 0
    assert as_set(numbered.simjoin.self_join(1.1, id="row_id").compute()) == {
        (0, 1),
        (2, 3),
        (4, 5),
    }


def test_the_row_id_column_is_no_coordinate_by_default(how):
    frame = pd.DataFrame({"x": PAIRED, "row_id": [0, 100, 200, 300, 400, 500]})
    data = lay(frame, how)
    assert as_set(computed(data.simjoin.self_join(1.0))) == {(0, 1), (2, 3), (4, 5)}
    assert computed(data.simjoin.neighbor_counts(1.0)).tolist() == [1] * 6
    assert computed(data.simjoin.count_pairs(1.0)) == 3


def test_the_row_id_column_is_a_coordinate_where_it_is_named(how):
    frame = pd.DataFrame({"x": PAIRED, "row_id": [0, 100, 101, 300, 400, 500]})
    data = lay(frame, how)
    assert as_set(computed(data.simjoin.self_join(1.0, on="row_id"))) == {(1, 2)}
    assert computed(data.simjoin.count_pairs(1.0, on=["x", "row_id"])) == 0


# --- out of core
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
@pytest.mark.parametrize("dtype", ["float16", "halffloat[pyarrow]"])
def test_ids_of_16_bits_are_refused(how, dtype):
    half = np.arange(4, dtype="float16")
    ids = half if dtype == "float16" else pd.array(half, dtype=dtype)
    plain = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "i": ids})
    frame = lay(plain, how)
    for verb in (frame.simjoin.self_join, functools.partial(frame.simjoin.join, plain)):
        with pytest.raises(
            ColumnError, match=rf"column 'i' are of dtype {re.escape(dtype)}.*astype"
        ):
            verb(1.0, on="x", id="i")


def test_an_index_of_16_bits_is_refused_where_rows_are_named():
    half = pd.Index(pd.array(np.arange(3, dtype="float16"), dtype="halffloat[pyarrow]"))
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0]}, index=half)
    with pytest.raises(
        ColumnError, match=r"index labels are of dtype halffloat\[pyarrow\].*astype"
    ):
        frame.simjoin.self_join(1.0)
    assert frame.simjoin.neighbor_counts(1.0).tolist() == [1, 2, 1]


def test_numbers_among_objects_stay_what_they_are_in_each_partition():
    """Put together by pandas, they would all be floats, and the first two the same."""
    ids = np.array([2**53 + 1, 7, 2.0**53, 0.5, True, 3], object)
    frame, options = named(ids, "index")
    for cuts in ([2], [2, 4], [1, 3]):
        with dask.config.set(scheduler="sync"):
            pairs = split(frame, cuts).simjoin.self_join(1.0, **options).compute()
            near = (
                split(frame, cuts)
                .simjoin.knn_join(k=1, max_distance=1.0, **options)
                .compute()
            )
        assert_same_pairs(as_set(pairs), {(2**53 + 1, 7), (2.0**53, 0.5), (True, 3)})
        for found in (pairs, near):
            assert {type(value) for value in [*found["left"], *found["right"]]} == {
                int,
                float,
                bool,
            }


@pytest.mark.parametrize("kind", [">i2", ">u4", ">i8"])
def test_keys_of_big_endian_ids(kind):
    ids = pd.Index(np.array([3, 300, 7], kind))
    keys = as_id_keys(ids, np.array([1, 0]))
    assert keys.tolist() == [300, 3] and keys.dtype == np.int64
    found = from_id_keys(keys, ids)
    assert found.tolist() == [300, 3] and found.dtype.isnative


def test_categories_of_parts_are_united():
    one, other = pd.Categorical(["a", "b"]), pd.Categorical(["c", "a"])
    found = joined([pd.CategoricalIndex(one), pd.CategoricalIndex(other)])
    assert found.dtype == "category" and found.tolist() == ["a", "b", "c", "a"]
    ordered = [pd.CategoricalIndex(x, ordered=True) for x in (["a"], ["b"])]
    assert united(ordered) is ordered  # in which order, is unknown
    numbers = [pd.CategoricalIndex(x) for x in (["a"], [1])]
    assert united(numbers) is numbers
    plain = [pd.Index([1]), pd.Index([2])]
    assert united(plain) is plain


# --- integers that floats round
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "dtype", "rounds"),
    [
        (2**53, "float64", True),
        (2**24, "float32", True),
        (2**53, "int64", False),
        (2**52, "float64", False),
        (2**54, "Float64", True),
        (-(2**55), "float64", True),
    ],
)
@pytest.mark.parametrize("npartitions", [None, 2])
def test_ids_that_were_rounded_say_so(first, dtype, rounds, npartitions):
    """An id of an astronomical catalog has more digits than a float."""
    ids = [first, first + (1 if rounds else 0), 7]
    frame = pd.DataFrame({"source": ids, "x": [0.0, 1.0, 2.0]})
    frame = frame.astype({"source": dtype})
    if npartitions:
        frame = dd.from_pandas(frame, npartitions=npartitions, sort=False)
    with pytest.raises(DuplicateIdError) as caught:
        len(frame.simjoin.self_join(1.0, on="x", id="source"))
    text = str(caught.value)
    assert ("rounds integers of this size" in text) == rounds
    assert "Labels often repeat" not in text
