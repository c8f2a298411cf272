"""Coordinates of every numeric dtype, frames of every shape, and the dtypes of results."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.dataframe.utils import assert_eq

from dask_simjoin.catalog import METHODS
from dask_simjoin.errors import OptionError
from tests.support.frames import computed, itself, lay
from tests.support.oracle import (
    as_set,
    assert_same_pairs,
    brute_force,
    roots,
    squared_distances,
)
from tests.support.profiles import every_nth, in_turns

INT64, FLOAT64 = np.dtype("int64"), np.dtype("float64")


def assert_joined(frame, how, eps, on, **options):
    """All verbs give what the definition says; results have the dtypes that were
    announced.
    """
    x = np.stack([frame[c].to_numpy(dtype="float64") for c in on], axis=1)
    labels = frame.index.tolist()
    places = brute_force(x, eps)
    expected = {(labels[i], labels[j]) for i, j in places}
    data = lay(frame, how)
    lazy = data.simjoin.self_join(eps, on=on, return_distance=True, **options)
    pairs = computed(lazy)
    assert_same_pairs(as_set(pairs), expected)
    assert (
        lazy.dtypes.tolist()
        == pairs.dtypes.tolist()
        == [frame.index.dtype] * 2 + [FLOAT64]
    )
    at = {label: place for place, label in enumerate(labels)}
    d2 = squared_distances(x, x)
    for left, right, distance in pairs.itertuples(index=False):
        assert distance == roots(d2[at[left], at[right]])
    lazy = data.simjoin.neighbor_counts(eps, on=on, **options)
    counts = computed(lazy)
    assert (
        counts.tolist()
        == np.bincount([p for pair in places for p in pair], minlength=len(x)).tolist()
    )
    assert counts.index.tolist() == labels
    assert lazy.dtype == counts.dtype == INT64
    assert lazy.name == counts.name == "neighbors"
    assert lazy.index.dtype == counts.index.dtype == frame.index.dtype
    assert computed(data.simjoin.count_pairs(eps, on=on, **options)) == len(expected)
    return expected


# --- dtypes of coordinates
# ------------------------------------------------------------------------

NUMPY = [
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
OTHERS = [
    "Float32",
    "Float64",
    "Int8",
    "Int64",
    "UInt8",
    "UInt64",
    "halffloat[pyarrow]",
    "float[pyarrow]",
    "double[pyarrow]",
    "int8[pyarrow]",
    "int64[pyarrow]",
    "uint64[pyarrow]",
    "Sparse[float64]",
    pd.SparseDtype("float64", 0.0),
    "Sparse[int64]",
    pd.SparseDtype("int8", 5),
]
VALUES = [[3, 0, 100, 4, 0, 101, 103, 5], [4, 0, 100, 4, 0, 100, 104, 4]]


@pytest.mark.parametrize("dtype", every_nth(4, NUMPY + OTHERS), ids=str)
def test_numbers_of_every_dtype(how, dtype):
    frame = pd.DataFrame({"x": VALUES[0], "y": VALUES[1]}).astype(dtype)
    assert (frame.dtypes == dtype).all()
    expected = assert_joined(frame, how, 5.0, ["x", "y"])
    assert len(expected) == 9
    by_default = lay(frame, how).simjoin.self_join(5.0)
    assert as_set(computed(by_default)) == expected


def test_one_column_of_each_dtype(how):
    frame = pd.DataFrame(
        {
            f"c{k}": pd.Series(VALUES[k % 2]).astype(t)
            for k, t in enumerate(NUMPY + OTHERS)
        }
    )
    assert len(assert_joined(frame, how, 12.0, list(frame.columns))) > 0


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]", "Sparse[bool]"])
def test_booleans_are_coordinates_only_where_they_are_named(how, dtype):
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0, 5.5]})
    frame["flag"] = pd.Series([True, False, True, False]).astype(dtype)
    assert assert_joined(frame, how, 1.0, ["x", "flag"]) == set()
    assert assert_joined(frame, how, 0.0, ["flag"]) == {(0, 2), (1, 3)}
    assert assert_joined(frame, how, 0.0, ["flag"], dropna=True) == {(0, 2), (1, 3)}
    assert as_set(computed(lay(frame, how).simjoin.self_join(1.0))) == {(0, 1), (2, 3)}
    assert computed(lay(frame, how).simjoin.count_pairs(1.0)) == 2


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("uint8", [0, 255, 254]),
        ("uint64", [0, 2**53, 2**53 - 1]),
        ("int8", [-128, 127, 126]),
        ("int64", [-(2**53), 2**53, 2**53 - 1]),
        ("UInt8", [0, 255, 254]),
        ("uint8[pyarrow]", [0, 255, 254]),
        ("float16", [-65504, 65504, 65472]),
    ],
)
def test_differences_do_not_wrap_around(how, dtype, values):
    frame = pd.DataFrame({"x": pd.Series(values, dtype=dtype)})
    assert assert_joined(frame, how, 32.0, ["x"]) == {(1, 2)}


def test_float32_coordinates_are_taken_as_float64_exactly(how):
    """Differences of float32 numbers, as float64: 2**-24 more or less than eps decides."""
    x = np.array([1.0, 1 + 2.0**-23, 1 + 2.0**-22, 16777216.0], np.float32)
    frame = pd.DataFrame({"x": x})
    assert assert_joined(frame, how, 2.0**-23, ["x"]) == {(0, 1), (1, 2)}
    assert assert_joined(frame, how, np.nextafter(2.0**-23, 0), ["x"]) == set()


def test_numbers_that_float64_adds_in_the_order_of_on(how):
    """The sum of squares is rounded after each column."""
    frame = pd.DataFrame({"a": [0.0, 1.0], "b": [0.0, 1e-8], "c": [0.0, 1e-8]})
    total = (1.0 + 1e-16) + 1e-16
    assert total == 1.0
    assert (1e-16 + 1e-16) + 1.0 > 1.0
    assert assert_joined(frame, how, 1.0, ["a", "b", "c"]) == {(0, 1)}
    assert assert_joined(frame, how, 1.0, ["b", "c", "a"]) == set()


# --- memory layouts
# -------------------------------------------------------------------------------


UNIFORM = np.random.default_rng(0).uniform(size=(90, 3))
READ_ONLY = UNIFORM.copy()
READ_ONLY.setflags(write=False)
CHUNKS = pa.chunked_array([UNIFORM[:40, 0], UNIFORM[40:, 0]])
LAYOUTS = {
    "C order": pd.DataFrame(UNIFORM, columns=list("abc")),
    "Fortran order": pd.DataFrame(np.asfortranarray(UNIFORM), columns=list("abc")),
    "read-only": pd.DataFrame(READ_ONLY, columns=list("abc"), copy=False),
    "strided": pd.DataFrame(np.repeat(UNIFORM, 2, axis=0), columns=list("abc"))[::2],
    "reversed": pd.DataFrame(UNIFORM, columns=list("abc"))[::-1],
    "big-endian": pd.DataFrame(UNIFORM.astype(">f8"), columns=list("abc")),
    "Arrow chunks": pd.DataFrame({"a": pd.arrays.ArrowExtensionArray(CHUNKS)}).join(
        pd.DataFrame(UNIFORM[:, 1:], columns=list("bc"))
    ),
}


@pytest.mark.parametrize("name", every_nth(4, LAYOUTS))
def test_memory_layouts(how, method, name):
    frame = LAYOUTS[name]
    before = frame.copy()
    try:
        frame[["c", "a"]]
    except ValueError:
        pytest.skip("pandas 2 cannot choose such columns itself")
    assert len(assert_joined(frame, how, 0.2, list("abc"), method=method)) > 50
    pd.testing.assert_frame_equal(frame, before)


# --- frames that are special, and fine
# ------------------------------------------------------------


@pytest.mark.parametrize("eps", [0, 0.0, -0.0])
def test_eps_0_finds_duplicates(how, method, eps):
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, -0.0, 1.0, np.nextafter(1, 2), 1.0], "y": [2.0] * 6}
    )
    expected = {(0, 2), (1, 3), (1, 5), (3, 5)}
    assert assert_joined(frame, how, eps, ["x", "y"], method=method) == expected


@pytest.mark.parametrize("eps", [1e-200, 1e-170])
def test_eps_whose_square_vanishes(how, method, eps):
    frame = pd.DataFrame({"x": [0.0, 0.0, 1e-200, 1.0]})
    assert assert_joined(frame, how, eps, ["x"], method=method) == {
        (0, 1),
        (0, 2),
        (1, 2),
    }


def test_coordinates_whose_squares_are_infinite(how, method):
    frame = pd.DataFrame({"x": [0.0, 1e154, -1e308, 1.7e308, 1.699e308, -1.7e308]})
    pairs = assert_joined(frame, how, 1e154, ["x"], method=method)
    assert pairs == {(0, 1)}
    with pytest.raises(OptionError, match=r"eps=1e\+200 is too large .* 2\.0\*\*665"):
        lay(frame, how).simjoin.self_join(1e200, method=method)


@pytest.mark.parametrize("columns", [1, 2, 6])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows(how, rows, columns):
    frame = pd.DataFrame(np.zeros((rows, columns))).set_axis(
        list("abcdef")[:columns], axis=1
    )
    assert len(assert_joined(frame, how, 1.0, list(frame.columns))) == rows // 2
    both = lay(frame, how).simjoin.self_join(1.0, pairs="both", include_self=True)
    assert as_set(computed(both)) == {(i, j) for i in range(rows) for j in range(rows)}
    count = lay(frame, how).simjoin.count_pairs(1.0, pairs="both", include_self=True)
    assert computed(count) == rows**2


@in_turns(
    2,
    parts=[[0], [0, 0, 0], [0, 3, 0, 0, 3], [3, 0, 3], [1, 5, 0]],
    method=list(METHODS),
)
def test_empty_partitions(parts, method):
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0, 5.5, 1.5, 9.0], "y": 0.0}).iloc[
        : sum(parts)
    ]
    ends = np.cumsum(parts)
    pieces = [
        frame.iloc[end - size : end] for size, end in zip(parts, ends, strict=True)
    ]
    ddf = dd.from_map(itself, pieces, meta=frame.iloc[:0])
    expected = brute_force(frame.to_numpy(), 1.0)
    assert as_set(ddf.simjoin.self_join(1.0, method=method).compute()) == expected
    counts = ddf.simjoin.neighbor_counts(1.0, method=method)
    assert counts.npartitions == len(parts)
    assert_eq(counts, frame.simjoin.neighbor_counts(1.0, method=method))
    assert ddf.simjoin.count_pairs(1.0, method=method).compute() == len(expected)


@pytest.mark.parametrize("bound", every_nth(4, [-1, 1, 5, 8, 99]))
def test_partitions_emptied_by_a_filter(bound):
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0, 5.5, 1.5, 9.0]})
    ddf = lay(frame, "dask-3")
    for data, kept in (
        (ddf[ddf["x"] > bound], frame[frame["x"] > bound]),
        (ddf.query(f"x < {bound}"), frame.query(f"x < {bound}")),
    ):
        labels = kept.index
        expected = {
            (labels[i], labels[j]) for i, j in brute_force(kept.to_numpy(), 1.0)
        }
        assert as_set(data.simjoin.self_join(1.0).compute()) == expected
        assert_eq(data.simjoin.neighbor_counts(1.0), kept.simjoin.neighbor_counts(1.0))
        assert data.simjoin.count_pairs(1.0).compute() == len(expected)


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_constant_columns(how, columns):
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0, 5.5, 1.5, 9.0]})
    for k in range(1, columns):
        frame.insert(0, f"c{k}", 10.0**k)
    assert assert_joined(frame, how, 1.0, list(frame.columns)) == {
        (0, 1),
        (1, 4),
        (2, 3),
    }


@pytest.mark.parametrize("columns", [1, 3, 5])
@pytest.mark.parametrize("eps", [0.0, 3.0])
def test_all_rows_are_the_same(how, columns, eps):
    frame = pd.DataFrame(np.full((70, columns), 1e9 + 0.1)).set_axis(
        list("abcde")[:columns], axis=1
    )
    assert len(assert_joined(frame, how, eps, list(frame.columns))) == 70 * 69 // 2


# --- lazy results are what they say
# ---------------------------------------------------------------
