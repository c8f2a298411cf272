"""Coordinates that are no finite float64 numbers are refused when the join is planned."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.base import is_dask_collection

from dask_simjoin.errors import CoordinateError, NumberError
from tests.support.frames import computed, lay
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.profiles import every_nth

VERBS = ["self_join", "neighbor_counts", "count_pairs"]
NAN, INF = np.nan, np.inf
LIMIT = 2**53


@pytest.fixture(params=VERBS)
def verb(request):
    """Every verb that takes eps."""
    return request.param


def assert_refused(frame, verb, text, **options):
    """The call is fine where it is lazy; planning is refused with an error that `text`
    matches.
    """
    call = getattr(frame.simjoin, verb)
    if not is_dask_collection(frame):
        with pytest.raises(CoordinateError, match=text):
            call(1.0, **options)
        return
    lazy = call(1.0, **options)
    if verb == "self_join":
        assert list(lazy.columns) == ["left", "right"]
        with pytest.raises(CoordinateError, match=text):
            _ = lazy.npartitions
    with pytest.raises(CoordinateError, match=text):
        lazy.compute()


def assert_joined(frame, how, rows, eps=1.0, on=("x",), **options):
    """All verbs give what the definition says of the rows at these positions, and of no
    others.
    """
    on = list(on)
    kept = frame.iloc[rows]
    labels = kept.index.tolist()
    x = np.stack([kept[c].to_numpy(dtype="float64") for c in on], axis=1)
    expected = {(labels[i], labels[j]) for i, j in brute_force(x, eps)}
    data = lay(frame, how)
    assert_same_pairs(
        as_set(computed(data.simjoin.self_join(eps, on=on, **options))), expected
    )
    counts = computed(data.simjoin.neighbor_counts(eps, on=on, **options))
    ends = pd.Series(
        [end for pair in expected for end in pair], dtype=kept.index.dtype
    ).value_counts()
    every = frame.index.tolist()
    assert counts.index.tolist() == every
    assert counts.tolist() == ends.reindex(every, fill_value=0).tolist()
    assert computed(data.simjoin.count_pairs(eps, on=on, **options)) == len(expected)
    return expected


# --- NaN and infinity
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "text", "first"),
    [
        ([0, 1, 2, NAN, 4, NAN], "has 2 missing values", 3),
        ([0, 1, INF, 3, -INF, INF], "has 3 infinite values", 2),
        ([NAN, 1, 2, 3, INF, 5], "has 1 missing value and 1 infinite value", 0),
        ([NAN] * 6, "has 6 missing values", 0),
        ([INF] * 6, "has 6 infinite values", 0),
    ],
    ids=["nan", "inf", "both", "all nan", "all inf"],
)
@pytest.mark.parametrize(
    ("dtype", "verb"),
    [("float64", verb) for verb in VERBS]
    + [(d, "self_join") for d in ("float32", "float16", "Float64")],
)
def test_nan_and_infinity(how, verb, values, text, first, dtype):
    frame = pd.DataFrame(
        {"y": 0.0, "x": pd.array(values, dtype=dtype)}, index=range(10, 16)
    )
    where = f"at label {first + 10}" + in_partition(how, first // 2)
    whole = rf"Coordinates must be finite numbers: column 'x' {text} \(first {where}\)"
    remedy = r"\. Use dropna=True \(those rows then have no partner\), or replace these values first"
    assert_refused(lay(frame, how), verb, whole + remedy)


def in_partition(how, number):
    """The partition in a message, where there are several of them."""
    return f" in partition {number}" if how == "dask-3" else ""


def test_several_columns_are_named_in_the_order_of_on(how, verb):
    frame = pd.DataFrame(
        {
            "a": [0, 1, 2, 3, 4, INF],
            "b": [0.0, 1, 2, 3, 4, 5],
            "c": [0, 1, 2, NAN, 4, 5],
            "d": [NAN, 1, -INF, 3, NAN, 5],
        }
    )
    text = (
        rf"column 'd' has 2 missing values and 1 infinite value \(first at label 0{in_partition(how, 0)}\); "
        rf"column 'c' has 1 missing value \(first at label 3{in_partition(how, 1)}\); "
        rf"column 'a' has 1 infinite value \(first at label 5{in_partition(how, 2)}\)\. Use dropna=True"
    )
    assert_refused(lay(frame, how), verb, text, on=["d", "c", "b", "a"])


def test_columns_that_take_no_part_may_hold_anything(how):
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, 5.0], "y": [NAN, INF, NAN], "z": [LIMIT + 1, 0, 0]}
    )
    assert len(assert_joined(frame, how, [0, 1, 2])) == 1


def test_sparse_missing_values(how, verb):
    frame = pd.DataFrame({"x": pd.arrays.SparseArray([0.0, NAN, 1.0, NAN, NAN, 0.0])})
    assert_refused(
        lay(frame, how), verb, r"column 'x' has 3 missing values \(first at label 1"
    )
    assert_joined(frame, how, [0, 2, 5], dropna=True)


def test_finite_numbers_whose_sum_is_infinite_are_fine(how):
    frame = pd.DataFrame({"x": [1e308, 1.5e308, -1.7e308, 1e308, -1e308, 0.0]})
    assert len(assert_joined(frame, how, range(6))) == 1


def test_coordinates_are_checked_before_ids(how):
    frame = pd.DataFrame({"x": [0.0, NAN, 1.0]}, index=[7, 7, 7])
    assert_refused(lay(frame, how), "self_join", "column 'x' has 1 missing value")


# --- dropna
# ---------------------------------------------------------------------------------------


BAD_ROWS = pd.DataFrame(
    {
        "x": [0.0, 0.5, NAN, 1.0, 1.5, INF, 2.0, 2.5, 9.0, 9.5],
        "y": [0.0, NAN, NAN, 0.0, 0.5, 0.0, 0.0, -INF, 0.0, 0.1],
    },
    index=[30, 10, 20, 0, 40, 50, 60, 90, 80, 70],
)
GOOD_ROWS = [0, 3, 4, 6, 8, 9]


@pytest.mark.parametrize("dtype", ["float64", "float32", "double[pyarrow]"])
def test_dropna_leaves_out_bad_rows_and_only_those(how, method, dtype):
    frame = BAD_ROWS.astype(dtype)
    expected = assert_joined(
        frame, how, GOOD_ROWS, on=("x", "y"), dropna=True, method=method
    )
    assert len(expected) == 5


def test_dropna_looks_only_at_the_coordinates(how):
    assert_joined(BAD_ROWS, how, [0, 1, 3, 4, 6, 7, 8, 9], on=("x",), dropna=True)
    assert_joined(BAD_ROWS, how, [0, 3, 4, 5, 6, 8, 9], on=("y",), dropna=True)


def test_dropna_with_nothing_to_drop(how):
    frame = BAD_ROWS.iloc[GOOD_ROWS]
    data = lay(frame, how)
    for verb in VERBS:
        plain, dropped = (
            computed(getattr(data.simjoin, verb)(1.0, **options))
            for options in ({}, {"dropna": True})
        )
        if verb == "count_pairs":
            assert plain == dropped
        else:
            assert plain.to_numpy().tolist() == dropped.to_numpy().tolist()
            assert plain.index.equals(dropped.index)


def test_dropna_with_everything_to_drop(how):
    frame = BAD_ROWS.assign(x=NAN)
    assert assert_joined(frame, how, [], dropna=True) == set()
    pairs = computed(
        lay(frame, how).simjoin.self_join(1.0, dropna=True, return_distance=True)
    )
    assert pairs.dtypes.tolist() == [np.dtype("int64")] * 2 + [np.dtype("float64")]


def test_dropna_empties_a_partition(how):
    frame = pd.DataFrame({"x": [0.0, 1.0, NAN, NAN, 1.5, 9.0]})
    assert_joined(frame, how, [0, 1, 4, 5], dropna=True)


def test_dropna_and_both_directions_and_self(how):
    pairs = lay(BAD_ROWS, how).simjoin.self_join(
        1.0, dropna=True, pairs="both", include_self=True
    )
    labels = BAD_ROWS.index[GOOD_ROWS].tolist()
    once = {
        (labels[i], labels[j])
        for i, j in brute_force(BAD_ROWS.iloc[GOOD_ROWS].to_numpy(), 1.0)
    }
    expected = once | {(b, a) for a, b in once} | {(a, a) for a in labels}
    assert as_set(computed(pairs)) == expected
    count = lay(BAD_ROWS, how).simjoin.count_pairs(
        1.0, dropna=True, pairs="both", include_self=True
    )
    assert computed(count) == len(expected)


@pytest.mark.parametrize("where", ["index", "column"])
def test_ids_of_dropped_rows_may_repeat_and_may_be_missing(how, where):
    frame = pd.DataFrame(
        {"x": [0.0, NAN, 1.0, NAN, NAN, 2.0], "key": [5.0, 5.0, 6.0, NAN, 6.0, 7.0]}
    )
    options = {"id": "key"} if where == "column" else {}
    if where == "index":
        frame = frame.set_index("key")
    data = lay(frame, how)
    pairs = data.simjoin.self_join(1.0, on="x", dropna=True, **options)
    assert as_set(computed(pairs)) == {(5.0, 6.0), (6.0, 7.0)}


# --- missing values of nullable and Arrow dtypes
# --------------------------------------------------

NULLABLE = [
    "Int8",
    "UInt16",
    "Int64",
    "UInt64",
    "Float32",
    "Float64",
    "boolean",
    "int8[pyarrow]",
    "int64[pyarrow]",
    "uint64[pyarrow]",
    "float[pyarrow]",
    "double[pyarrow]",
    "bool[pyarrow]",
]


def nullable(values, dtype):
    """A frame with one column x of the dtype."""
    if dtype in ("boolean", "bool[pyarrow]"):
        values = [None if v is None else bool(v) for v in values]
    return pd.DataFrame({"x": pd.array(values, dtype=dtype)})


@pytest.mark.parametrize(
    ("dtype", "verb"),
    [(dtype, "self_join") for dtype in NULLABLE]
    + [("Int64", verb) for verb in VERBS[1:]],
)
def test_missing_values(how, verb, dtype):
    frame = nullable([0, 1, 1, None, 0, None], dtype).assign(y=0.0)
    text = rf"column 'x' has 2 missing values \(first at label 3{in_partition(how, 1)}\)\. Use dropna=True"
    assert_refused(lay(frame, how), verb, text, on=["x", "y"])


@pytest.mark.parametrize("dtype", every_nth(5, NULLABLE))
def test_rows_with_missing_values_are_dropped(how, dtype):
    frame = nullable([0, 1, 1, None, 0, None], dtype)
    assert assert_joined(frame, how, [0, 1, 2, 4], eps=0.0, dropna=True) == {
        (0, 4),
        (1, 2),
    }


@pytest.mark.parametrize("dtype", every_nth(5, NULLABLE))
def test_all_values_of_a_partition_are_missing(how, dtype):
    frame = nullable([0, 1, None, None, 1, 0], dtype)
    text = (
        rf"column 'x' has 2 missing values \(first at label 2{in_partition(how, 1)}\)"
    )
    assert_refused(lay(frame, how), "self_join", text, on="x")
    assert_joined(frame, how, [0, 1, 4, 5], eps=0.0, dropna=True)


@pytest.mark.parametrize("dtype", every_nth(5, NULLABLE))
def test_all_values_are_missing(how, dtype):
    frame = nullable([None] * 4, dtype)
    assert_refused(
        lay(frame, how), "self_join", "column 'x' has 4 missing values", on="x"
    )
    assert_joined(frame, how, [], dropna=True)


# --- integers that float64 cannot hold
# ------------------------------------------------------------

SIGNED = ["int64", "Int64", "int64[pyarrow]"]
UNSIGNED = ["uint64", "UInt64", "uint64[pyarrow]"]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (dtype, value)
        for dtype in SIGNED
        for value in (LIMIT + 1, -LIMIT - 1, 2**63 - 1, -(2**63))
    ]
    + [(dtype, value) for dtype in UNSIGNED for value in (LIMIT + 1, 2**63, 2**64 - 1)],
)
def test_integers_beyond_2_to_the_53(how, dtype, value):
    frame = pd.DataFrame(
        {"y": 0.0, "x": pd.Series([0, 1, 2, value, 4, 5], dtype=dtype)}
    )
    where = r" \(partition 1\)" if how == "dask-3" else ""
    text = (
        rf"Column 'x' holds the integer {value}{where}\. Beyond 2\*\*53, float64 cannot "
        r"represent every integer\. If these are ids, use id='x' and other coordinates\. "
        r"Otherwise subtract an offset .* df\['x'\] = df\['x'\]\.astype\('float64'\)\."
    )
    for verb in VERBS if value == LIMIT + 1 else VERBS[:1]:
        assert_refused(lay(frame, how), verb, text)


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_integers_up_to_2_to_the_53(how, dtype):
    values = [LIMIT, LIMIT - 1, 0, 1, LIMIT - 2]
    values.append(5 if dtype in UNSIGNED else -LIMIT)
    frame = pd.DataFrame({"x": pd.array(values, dtype=dtype)})
    assert assert_joined(frame, how, range(6)) == {(0, 1), (1, 4), (2, 3)}


def test_the_remedies_for_large_integers_work(how):
    frame = pd.DataFrame({"x": np.array([2**62, 2**62 + 1, 2**62 + 3], np.int64)})
    assert_refused(lay(frame, how), "self_join", "holds the integer")
    assert assert_joined(frame - 2**62, how, range(3)) == {(0, 1)}
    assert len(assert_joined(frame.astype("float64"), how, range(3))) == 3


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_large_integers_next_to_missing_values(how, dtype):
    frame = pd.DataFrame({"x": pd.array([None, 1, 2, 3, 4, LIMIT + 1], dtype=dtype)})
    assert_refused(lay(frame, how), "self_join", "column 'x' has 1 missing value")
    where = r" \(partition 2\)" if how == "dask-3" else ""
    text = rf"Column 'x' holds the integer {LIMIT + 1}{where}\."
    assert_refused(lay(frame, how), "self_join", text, dropna=True)


def test_large_integers_of_rows_that_are_dropped(how):
    frame = pd.DataFrame(
        {"x": np.array([0, LIMIT + 1, 1], np.int64), "y": [0.0, NAN, 0.0]}
    )
    assert assert_joined(frame, how, [0, 2], on=("x", "y"), dropna=True) == {(0, 2)}


def test_the_first_column_of_on_with_large_integers_is_named(how):
    frame = pd.DataFrame({"a": np.array([0, LIMIT + 1]), "b": np.array([LIMIT + 3, 0])})
    for on in (["a", "b"], ["b", "a"]):
        value = int(frame[on[0]].max())
        assert_refused(
            lay(frame, how),
            "self_join",
            rf"Column '{on[0]}' holds the integer {value}",
            on=on,
        )


def test_names_of_columns_are_shown_as_they_are(how):
    frame = pd.DataFrame({7: [0.0, NAN], "it's": [INF, 0.0]})
    text = 'column 7 has 1 missing value .*column "it\'s" has 1 infinite'
    assert_refused(lay(frame, how), "self_join", text)


def unlike_parts(column, value):
    """A Dask DataFrame whose second partition has a value that its dtypes do not
    show.
    """
    good = pd.DataFrame(
        {"id": range(4), "x": np.arange(4.0), "y": 0.0, "r": 1.0, "n": 1.0}
    )
    bad = good.assign(id=good["id"] + 4, **{column: good[column].astype(object)})
    bad.loc[2, column] = value
    return dd.from_map(
        lambda part: part, [good, bad], meta=good.iloc[:0], enforce_metadata=False
    )


ROW = {"on": ["x", "y"], "id": "id"}


@pytest.mark.parametrize(
    ("column", "do"),
    [
        ("x", lambda frame: frame.simjoin.self_join(1, **ROW)),
        ("x", lambda frame: frame.simjoin.self_join(1, dropna=True, **ROW)),
        ("x", lambda frame: frame.simjoin.self_join(1, on="x", id="id")),
        ("y", lambda frame: frame.simjoin.knn_join(k=1, **ROW)),
        ("y", lambda frame: frame.simjoin.neighbor_counts(1, on=["x", "y"])),
        ("x", lambda frame: frame.simjoin.dbscan(1, min_samples=2, on=["x", "y"])),
        ("r", lambda frame: frame.simjoin.self_join("r", pairs="both", **ROW)),
        ("n", lambda frame: frame.simjoin.self_join(1, within={"n": 1}, **ROW)),
        ("n", lambda frame: frame.simjoin.self_join(1, within={"n": "5 %"}, **ROW)),
    ],
)
@pytest.mark.parametrize("value", ["north", pd.Timestamp("2026"), [1.0], 1j])
def test_a_value_that_is_no_number_is_named(column, do, value):
    # Dask converts objects to texts, unless this setting is off
    with (
        dask.config.set({"dataframe.convert-string": value == "north"}),
        pytest.raises(NumberError, match="which is not a number") as caught,
    ):
        do(unlike_parts(column, value)).compute()
    error = caught.value
    assert (error.column, error.row, error.value) == (column, 2, repr(value))
    assert f"Column {column!r} holds {value!r} in row 2" in str(error)
    assert "pd.to_numeric(" in str(error) and "errors='coerce'" in str(error)


def test_the_table_with_a_value_that_is_no_number_is_named():
    good, bad = unlike_parts("x", 1.0), unlike_parts("x", "north")
    text = r"In the right table, column 'x' holds 'north' in row 2 of partition 1"
    with pytest.raises(NumberError, match=text):
        good.simjoin.join(bad, 1, **ROW).compute()


@pytest.mark.parametrize("value", ["2.5", None])
def test_texts_of_numbers_in_a_partition_are_numbers(value):
    found = unlike_parts("x", value).simjoin.self_join(1, dropna=True, **ROW)
    x = [0, 1, 2, 3, 0, 1, NAN if value is None else float(value), 3]
    rows = pd.DataFrame({"id": range(8), "x": x, "y": 0.0})
    want = rows.simjoin.self_join(1, dropna=True, **ROW)
    assert as_set(found.compute()) == as_set(want) != set()
