"""Columns of all dtypes in each role: results are equal to results of plain numbers or
objects, or the package raises an error.
"""

import datetime
import decimal
import itertools
from numbers import Number

import dask
import dask.array
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.cluster import DBSCAN
from dask_simjoin.errors import ColumnError, ColumnsWarning, DuplicateIdError
from tests.support.frames import computed
from tests.support.profiles import every_nth, in_turns

NUMBERS = [0, 1, 2, 300, 301, 302]
GROUPS = [0, 0, 0, 300, 300, 300]
TEXTS = ["aa", "ab", "ac", "xx", "xy", "yz"]


def arrow(values, kind):
    return pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(values, kind)]))


def coded(values, kind, ordered=False):
    """Return texts as an Arrow dictionary of `kind`."""
    plain = pa.array(values).dictionary_encode()
    words = plain.dictionary.cast(kind)
    made = pa.DictionaryArray.from_arrays(plain.indices, words, ordered=ordered)
    return pd.arrays.ArrowExtensionArray(pa.chunked_array([made]))


def of_dtype(kind):
    return lambda values: pd.array(values, dtype=kind)


def of_numpy(kind):
    return lambda values: np.array(values, kind)


def of_arrow(kind):
    return lambda values: arrow(values, kind)


def objects(convert):
    return lambda values: pd.Series([*map(convert, values)], dtype=object)


def day(k):
    return datetime.datetime(2024, 1, 1) + datetime.timedelta(days=k)


COORDINATES = {
    **{kind: of_numpy(kind) for kind in (">i2", ">u2", ">i4", ">i8", ">f4", ">f8")},
    **{kind: of_numpy(kind) for kind in ("int16", "uint64", "float16", "float32")},
    **{kind: of_dtype(kind) for kind in ("Int16", "UInt64", "Float32")},
    "arrow int16": of_arrow(pa.int16()),
    "arrow double": of_arrow(pa.float64()),
    "sparse": lambda values: pd.arrays.SparseArray(values, fill_value=0),
}
"""Dtypes of numbers that are coordinates."""

OTHER_NUMBERS = {
    "long double": of_numpy(np.longdouble),
    "decimals": lambda values: arrow(
        [decimal.Decimal(k) for k in values], pa.decimal128(9, 2)
    ),
    "wide decimals": lambda values: arrow(
        [decimal.Decimal(k) for k in values], pa.decimal256(50, 2)
    ),
    "complex": of_numpy(complex),
}
"""Dtypes of numbers that cannot be coordinates, because float64 may round them."""

STRINGS = {
    "str": of_dtype("str"),
    "string": of_dtype("string"),
    "string[python]": of_dtype("string[python]"),
    "arrow string": of_arrow(pa.string()),
    "arrow view": of_arrow(pa.string_view()),
    "category": pd.Categorical,
    "ordered": lambda values: pd.Categorical(values, ordered=True),
    "dictionary": lambda values: coded(values, pa.string()),
    "views": lambda values: coded(values, pa.string_view()),
    "ordered views": lambda values: coded(values, pa.string_view(), ordered=True),
}
"""Dtypes of texts."""

OBJECTS = {
    "texts": objects(str),
    "dates": objects(day),
    "days": objects(lambda k: day(k).date()),
    "spans": objects(lambda k: datetime.timedelta(days=k)),
    "periods": objects(lambda k: pd.Period("2024-01", "D") + k),
    "intervals": objects(lambda k: pd.Interval(k, k + 1)),
    "integers": objects(int),
    "mixed": objects(lambda k: str(k) if k % 2 else k),
    "decimals": objects(decimal.Decimal),
}
"""Python objects, in columns of dtype object."""


def frame_of(column):
    return pd.DataFrame(
        {
            "x": [0.0, 1, 2, 100, 101, 102],
            "odd": column,
            "n": np.arange(6),
            "s": pd.Series(TEXTS, dtype="str"),
        }
    )


def listed(found):
    """Return the rows of a result as plain values, sorted."""
    columns = [found[name].astype(object).tolist() for name in found]
    rows = [tuple(map(plain, row)) for row in zip(*columns, strict=True)]
    return sorted(rows, key=str)


def plain(value):
    if isinstance(value, (str, bytes)):
        return value
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    return complex(value) if isinstance(value, (Number, np.bool_)) else value


def parts_of(lazy):
    """Compute the partitions of a lazy frame, and check that they have the dtypes of
    the example.
    """
    parts = dask.compute(*lazy.to_delayed(), scheduler="sync")
    for part in parts:
        assert part.dtypes.astype(str).to_dict() == lazy.dtypes.astype(str).to_dict()
    return pd.concat(parts)


CALLS = itertools.count()


def in_parts(frame):
    # Dask gives frames the same token if only the words of Arrow dictionaries differ
    frame = frame.assign(call=next(CALLS))
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_pandas(frame, npartitions=2, sort=False)


def kept(frame, **options):
    """Call some verbs that keep the odd column; yield their results."""
    joins = frame.simjoin
    yield joins.self_join(1.5, on="x", **options)
    yield joins.join(frame, 0.5, left_on="x", right_on="n", how="left", **options)
    yield joins.knn_join(k=1, on="x", **options)
    yield joins.closest_pairs(3, on="x", **options)
    yield joins.edit_self_join("s", 1, **options)
    yield joins.set_join(frame, "s", 1.0, tokenizer="words", how="left", **options)


def grouped(frame):
    joins = frame.simjoin
    yield joins.self_join(3.5, on="x", by="odd", id="n")
    yield joins.join(frame, 3.5, on="x", by="odd", id="n")
    yield joins.knn_join(k=1, on="x", by="odd", id="n", max_distance=9.0)
    yield joins.edit_self_join("s", 1, by="odd", id="n")


ROLES = {
    "id": lambda frame: kept(frame, id="odd"),
    "keep": lambda frame: kept(frame, id="n", keep="odd"),
    "by": grouped,
}


def check(role, column, like, lazy=True):
    """Compare the results of a column with the results of a plain column."""
    frame, same = frame_of(column), frame_of(like)
    for found, expected in zip(ROLES[role](frame), ROLES[role](same), strict=True):
        assert listed(found) == listed(expected)
    if lazy:
        of_parts = ROLES[role](in_parts(frame))
        for found, expected, _ in zip(of_parts, ROLES[role](same), "1", strict=False):
            assert listed(parts_of(found)) == listed(expected)


@pytest.mark.parametrize("kind", every_nth(4, COORDINATES))
def test_coordinates(kind):
    frame, same = (
        frame_of(COORDINATES[kind](NUMBERS)),
        frame_of(np.array(NUMBERS, "f8")),
    )
    for call in (
        lambda joins: joins.self_join(1.5, on=["odd", "x"], id="n"),
        lambda joins: joins.self_join("odd", on="x", id="n", pairs="both"),
        lambda joins: joins.knn_join(k=1, on=["x", "odd"], id="n"),
        lambda joins: joins.drop_near_duplicates(1.5, on="odd")[["n"]],
        lambda joins: joins.dbscan(1.5, min_samples=2, on="odd").to_frame(),
    ):
        assert listed(call(frame.simjoin)) == listed(call(same.simjoin))
    lazy = in_parts(frame).simjoin.drop_near_duplicates(1.5, on="odd")
    expected = same.simjoin.drop_near_duplicates(1.5, on="odd")
    assert listed(lazy.compute(scheduler="sync")[["n"]]) == listed(expected[["n"]])


@in_turns(1, kind=every_nth(4, COORDINATES), role=list(ROLES))
def test_numbers(kind, role):
    values = {"id": [0, 1, 2, 300, 301, 302], "by": GROUPS, "keep": NUMBERS}[role]
    if (kind, role) == ("float16", "id"):
        with pytest.raises(ColumnError, match="which pandas cannot look up"):
            check(role, COORDINATES[kind](values), values)
        return
    check(role, COORDINATES[kind](values), values, lazy=kind.startswith(">"))


@in_turns(1, kind=every_nth(4, OTHER_NUMBERS), role=["by", "keep"])
def test_other_numbers(kind, role):
    check(role, OTHER_NUMBERS[kind](GROUPS), GROUPS, lazy=False)


@in_turns(1, kind=every_nth(4, STRINGS), role=list(ROLES))
def test_texts(kind, role):
    values = [f"r{k}" for k in (GROUPS if role == "by" else NUMBERS)]
    check(role, STRINGS[kind](values), pd.Series(values, dtype=object))


@pytest.mark.parametrize("kind", every_nth(4, STRINGS))
def test_texts_are_compared(kind):
    frame, same = (
        frame_of(STRINGS[kind](TEXTS)),
        frame_of(pd.Series(TEXTS, dtype=object)),
    )
    for call in (
        lambda joins: joins.edit_self_join("odd", 1, id="n"),
        lambda joins: joins.set_join(same, "odd", 1.0, tokenizer="words", id="n"),
    ):
        assert listed(call(frame.simjoin)) == listed(call(same.simjoin))
    lazy = in_parts(frame).simjoin.edit_self_join("odd", 1, id="n", keep="odd")
    expected = same.simjoin.edit_self_join("odd", 1, id="n", keep="odd")
    assert listed(parts_of(lazy)) == listed(expected)


@in_turns(1, kind=every_nth(4, OBJECTS), role=list(ROLES))
def test_objects_stay_objects(kind, role):
    column = OBJECTS[kind](GROUPS if role == "by" else NUMBERS)
    for found in ROLES[role](frame_of(column)):
        names = {"id": ["left", "right"], "keep": ["odd_left", "odd_right"], "by": []}
        assert {found[name].dtype for name in names[role]} <= {np.dtype(object)}
    check(role, column, column)


@pytest.mark.parametrize("kind", every_nth(4, ["int64", "datetime64[ns]"]))
def test_intervals_keep_their_ends(kind):
    first = 2**53 + 1
    starts = pd.Index(np.arange(first, first + 6)).astype(kind)
    column = pd.arrays.IntervalArray.from_arrays(
        starts, starts + (starts[1] - starts[0])
    )
    frame = frame_of(column)
    for role in ("id", "keep"):
        for found in ROLES[role](frame):
            names = ("left", "right") if role == "id" else ("odd_left", "odd_right")
            for name in names:
                assert found[name].dtype in (column.dtype, np.dtype(object))
                assert set(found[name].dropna()) <= set(column)
        for lazy, _ in zip(ROLES[role](in_parts(frame)), "12", strict=False):
            parts_of(lazy)


def test_sparse_integers_keep_their_digits():
    column = pd.arrays.SparseArray([0, 0, 0, 2**53 + 1, 2, 3], fill_value=0)
    frame = frame_of(column)
    found = frame.simjoin.join(frame, 0.5, on="x", how="left", keep="odd")
    assert found["odd_right"].tolist() == column.tolist()
    assert found["odd_right"].dtype == "Int64"


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", ["list", "map", "struct"])
def test_nested_ids_are_refused(kind, lazy):
    kinds = {
        "list": ([[k] for k in NUMBERS], pa.list_(pa.int64())),
        "map": ([[("a", k)] for k in NUMBERS], pa.map_(pa.string(), pa.int64())),
        "struct": ([{"a": k} for k in NUMBERS], pa.struct({"a": pa.int64()})),
    }
    frame = frame_of(arrow(*kinds[kind]))
    frame = in_parts(frame) if lazy else frame
    with pytest.raises(DuplicateIdError, match="which are not single values"):
        computed(frame.simjoin.self_join(1.5, on="x", id="odd"))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", OTHER_NUMBERS)
def test_other_numbers_are_no_coordinates(kind, lazy):
    frame = frame_of(OTHER_NUMBERS[kind](NUMBERS))[["x", "odd"]]
    frame = in_parts(frame)[["x", "odd"]] if lazy else frame

    def count(**options):
        return computed(frame.simjoin.count_pairs(1.5, **options))

    text = r"'odd' is of dtype .* and is left out. To use it, convert it"
    with pytest.warns(ColumnsWarning, match=text):
        assert count() == 4
    assert count(by="odd") == 0
    with pytest.raises(ColumnError, match="'odd' of dtype") as raised:
        count(on="odd")
    assert ("decimal numbers" in str(raised.value)) == kind.endswith("decimals")
    with pytest.raises(ColumnError, match="which holds no distances; name a column of"):
        frame.simjoin.self_join("odd", on="x")


def test_other_numbers_that_have_another_role():
    frame = frame_of(OTHER_NUMBERS["decimals"](NUMBERS))[["x", "odd"]]
    frame.simjoin.self_join(1.5, id="odd")
    frame.simjoin.self_join(1.5, keep="odd")
    frame.rename(columns={"odd": "user_id"}).simjoin.count_pairs(1.5)
    with pytest.warns(ColumnsWarning, match="'odd' is of dtype decimal"):
        frame.simjoin.join(frame, 1.5)
    frame.simjoin.join(frame[["x"]], 1.5)  # only one table has it


@pytest.mark.parametrize("convert", every_nth(4, [False, True]))
def test_categories_that_dask_made(convert):
    frame = frame_of(pd.Series([f"g{k}" for k in GROUPS], dtype="str"))
    with dask.config.set({"dataframe.convert-string": convert}):
        made = dd.from_pandas(frame, npartitions=2).astype({"odd": "category"})
    lazy = made.categorize()
    for found, expected in zip(grouped(lazy), grouped(frame), strict=True):
        assert listed(found.compute(scheduler="sync")) == listed(expected)
    marked = lazy.simjoin.drop_near_duplicates(1.5, on="x", by="odd")
    assert len(marked.compute(scheduler="sync")) == 4
    found = lazy.simjoin.count_edit_pairs("s", 1, by="odd").compute(scheduler="sync")
    assert found == frame.simjoin.count_edit_pairs("s", 1, by="odd") == 4


def test_categories_that_differ_between_partitions():
    one = frame_of(pd.Categorical(list("abcabc"))).iloc[:3]
    other = frame_of(pd.Categorical(list("xyzzyx"))).iloc[3:]
    other = other.assign(odd=other["odd"].cat.remove_unused_categories())
    meta = one.iloc[:0].astype({"odd": "category"})
    lazy = dd.from_map(lambda part: part, [one, other], meta=meta)
    for found in (
        lazy.simjoin.self_join(1.5, on="x", id="n", keep="odd"),
        lazy.simjoin.self_join(1.5, on="x", id="n", keep="odd", partitioning="spatial"),
        lazy.simjoin.knn_join(k=1, on="x", id="n", keep="odd"),
        lazy.simjoin.knn_join(k=1, on="x", id="s", keep="odd"),
    ):
        made = parts_of(found)
        assert {*made["odd_left"]} <= set("abczyx")


@pytest.mark.parametrize("kind", every_nth(4, ["string", "str", "object"]))
def test_categories_of_another_dtype_than_the_meta_has(kind):
    """Rows without a match get the dtype of the meta, and Dask concatenates only equal
    ones.
    """
    frame = frame_of(pd.Categorical(list("abcabc")))
    words = pd.Index(["a"], dtype=kind)
    meta = frame.iloc[:0].assign(odd=pd.Categorical([], words))
    lazy = dd.from_map(lambda part: part, [frame.iloc[:3], frame.iloc[3:]], meta=meta)
    how = {"on": "x", "id": "n", "keep": "odd", "how": "left"}
    for found in (
        lazy.simjoin.join(lazy, 0.0, **how),
        lazy.simjoin.join(lazy, 0.0, **how, blocksize=100),
        lazy.simjoin.knn_join(lazy, 9, max_distance=0.5, **how),
    ):
        made = found.compute(scheduler="sync")
        wanted = found._meta["odd_left"].dtype.categories.dtype
        assert made["odd_left"].dtype.categories.dtype == wanted
        assert {*made["odd_left"]} == set("abc")


def test_estimators_take_big_endian_arrays():
    x = np.array([[0, 0], [0.1, 0], [0.2, 0], [5, 5]]).astype(">f8")
    for rows in (x, pd.DataFrame(x), dask.array.from_array(x, chunks=(2, 2))):
        found = DBSCAN(eps=0.15, min_samples=2).fit(rows)
        assert np.asarray(found.labels_).tolist() == [0, 0, 0, -1]
    assert found.n_features_in_ == 2


def test_big_endian_labels():
    labels = pd.Index(np.array([5, 6, 700], ">i2"), name="key")
    frame = pd.DataFrame({"x": np.array([0, 0.5, 9], ">f8")}, index=labels)
    assert frame.simjoin.self_join(1.0).to_numpy().tolist() == [[5, 6]]
    assert frame.simjoin.drop_near_duplicates(1.0).index.tolist() == [5, 700]


@pytest.mark.parametrize("convert", every_nth(4, [False, True]))
def test_big_endian_columns_that_dask_describes_as_native(convert):
    frame = frame_of(np.array(GROUPS, ">f8"))
    with dask.config.set({"dataframe.convert-string": convert}):
        lazy = dd.from_pandas(frame, npartitions=2, sort=False)
    expected = frame.simjoin.drop_near_duplicates(1.5, on="x", by="odd")
    found = lazy.simjoin.drop_near_duplicates(1.5, on="x", by="odd")
    assert found.compute(scheduler="sync")["n"].tolist() == expected["n"].tolist()
    found = lazy.simjoin.join(frame, 1.5, on=["x", "odd"], how="leftsemi")
    assert len(found.compute(scheduler="sync")) == 6
    hidden = lazy.map_partitions(
        lambda rows: rows, meta=lazy._meta.astype({"odd": "f8"})
    )
    found = hidden.simjoin.closest_pairs(2, on=["x", "odd"], keep="odd", dropna=True)
    assert len(found.compute(scheduler="sync")) == 2


def test_big_endian_rows_of_an_index(tmp_path):
    frame = pd.DataFrame(
        {"x": np.array([0, 0.5, 9], ">f8"), "key": np.array([1, 300, 5], ">i4")}
    )
    index = frame.simjoin.index(1.0, tmp_path / "index", on="x", id="key")
    added = index.update(frame.assign(key=np.array([7, 8, 900], ">i4"))).added
    assert sorted(added.compute().to_numpy().tolist()) == [
        [1, 7],
        [1, 8],
        [5, 900],
        [7, 8],
        [300, 7],
        [300, 8],
    ]
    found = index.join(frame).compute()
    assert set(found["left"]) == {1, 300, 5}
