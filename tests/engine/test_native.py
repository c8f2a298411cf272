"""Columns in which pandas or Arrow cannot select rows."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.engine.native import cast_arrow, is_native, native, without_views

VIEW, LARGE = pa.string_view(), pa.large_string()


def arrow(values, kind):
    return pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(values, kind)]))


@pytest.mark.parametrize("kind", [">i2", ">u4", ">i8", ">f4", ">f8", ">c16"])
def test_big_endian_columns_and_labels(kind):
    labels = pd.Index(np.array([5, 300], ">i4"), name="key")
    frame = pd.DataFrame({"x": np.array([1, 2], kind), "y": [0.5, 1.5]}, index=labels)
    made = native(frame)
    assert made["x"].dtype == np.dtype(kind).newbyteorder("=") and is_native(made)
    assert made["x"].tolist() == [1, 2] and made.index.tolist() == [5, 300]
    assert made.index.name == "key" and made.index.dtype == np.int32
    assert frame["x"].dtype == np.dtype(kind)  # the given frame is unchanged


def test_native_frames_are_returned_themselves():
    frame = pd.DataFrame({"x": [1.0], "s": ["a"], "c": pd.Categorical(["a"])})
    assert native(frame) is frame
    assert is_native(None)


def test_columns_of_one_name_are_all_converted():
    frame = pd.DataFrame(np.array([[1, 2]], ">i4"), columns=["a", "a"])
    assert is_native(native(frame)) and native(frame).to_numpy().tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("kind", "expected", "values"),
    [
        (VIEW, LARGE, ["a", None]),
        (pa.binary_view(), pa.large_binary(), [b"a", None]),
        (pa.list_(VIEW), pa.large_list(LARGE), [["a"], None]),
        (pa.list_(VIEW, 1), pa.list_(LARGE, 1), [["a"], None]),
        (
            pa.struct({"a": VIEW, "b": pa.int8()}),
            pa.struct({"a": LARGE, "b": pa.int8()}),
            [{"a": "x", "b": 1}, None],
        ),
        (pa.map_(VIEW, VIEW), pa.map_(LARGE, LARGE), [[("a", "b")], None]),
    ],
    ids=str,
)
def test_string_views_become_large_strings(kind, expected, values):
    frame = native(pd.DataFrame({"v": arrow(values, kind)}))
    assert frame["v"].dtype == pd.ArrowDtype(expected)
    found = frame["v"].array.__arrow_array__().to_pylist()
    assert found == values and is_native(frame)


@pytest.mark.parametrize("view", ["list_view", "large_list_view"])
@pytest.mark.parametrize("inner", [pa.float32(), VIEW], ids=str)
def test_list_views_become_lists(view, inner):
    kind = getattr(pa, view)(inner)
    values = [["1.5", "2"], None, []] if inner == VIEW else [[1.5, 2.0], None, []]
    frame = native(pd.DataFrame({"v": arrow(values, kind)}))
    expected = pa.large_list(LARGE if inner == VIEW else inner)
    assert frame["v"].dtype == pd.ArrowDtype(expected) and is_native(frame)
    found = frame["v"].array.__arrow_array__()
    assert found.to_pylist() == values and found.validate(full=True) is None
    part = native(pd.DataFrame({"v": arrow(values, kind)}).iloc[1:])["v"]
    assert part.array.__arrow_array__().to_pylist() == values[1:]


def test_list_views_in_structs_become_lists():
    kind = pa.struct({"a": pa.list_view(pa.int8())})
    found = native(pd.DataFrame({"v": arrow([{"a": [1, 2]}, None], kind)}))["v"]
    assert found.dtype == pd.ArrowDtype(pa.struct({"a": pa.large_list(pa.int8())}))
    found = found.array.__arrow_array__()
    assert found.to_pylist() == [{"a": [1, 2]}, None]
    assert found.validate(full=True) is None


@pytest.mark.parametrize("ordered", [False, True])
def test_dictionaries_of_string_views(ordered):
    codes = pa.array([1, None, 0], pa.uint8())
    words = pa.array(["b", "a"]).cast(VIEW)
    one = pa.DictionaryArray.from_arrays(codes, words, ordered=ordered)
    column = pd.arrays.ArrowExtensionArray(pa.chunked_array([one, one[:1]]))
    found = native(pd.DataFrame({"v": column}))["v"]
    expected = pa.dictionary(pa.uint8(), LARGE, ordered)
    assert found.dtype == pd.ArrowDtype(expected)
    assert found.array.__arrow_array__().to_pylist() == ["a", None, "b", "a"]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.list_(pa.int8()), pa.dictionary(pa.int8(), pa.string())]
)
def test_other_types_stay(kind):
    assert without_views(kind) == kind


def test_casts_by_way_of_objects():
    class Old:
        type = VIEW

        """An array of a version of Arrow that has no such cast."""

        def cast(self, kind):
            raise pa.ArrowNotImplementedError

        def to_pylist(self):
            return ["a", None]

    assert cast_arrow(Old(), LARGE).to_pylist() == ["a", None]
