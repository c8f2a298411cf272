"""Columns of odd labels: those of ours never take their place, and no label is taken
for something else.
"""

import datetime
import re
import time
from decimal import Decimal
from types import SimpleNamespace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin
from dask_simjoin.errors import ColumnError, OptionError, UnsupportedFrameError
from dask_simjoin.request.columns import check_label, left_out
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest
from tests.support.frames import computed
from tests.support.profiles import every_nth
from tests.support.remedies import repaired

OURS = [
    "left",
    "right",
    "rank",
    "distance",
    "similarity",
    "id",
    "component",
    "neighbors",
    "k_distance",
    "cluster",
    "order",
    "duplicate",
    "diff",
    "row",
    "value",
    "key",
    "ids",
    "kept",
    "own_limit",
    "order",
    "simjoin_row_id",
    "row_id",
    "by=g",
    "by=g'",
    "matches",
    "taken",
    "position",
    "_seq",
    "_partitions",
    "count",
    "limit",
]
"""Names that a verb gives a column, of a result or in between."""


def odd_frame(rows=12):
    """A frame with columns of all those names, whose values a verb must not touch."""
    rng = np.random.default_rng(0)
    own = {
        name: rng.integers(0, 100, rows) + 100 * k
        for k, name in enumerate(dict.fromkeys(OURS))
    }
    more = {7: rng.integers(0, 9, rows), ("a", 1): np.arange(rows)}
    x = pd.DataFrame(
        {"x": rng.integers(0, 6, rows) * 1.0, "g": rng.choice(list("ab"), rows)}
    )
    return pd.concat([x, pd.DataFrame(own), pd.DataFrame(more, index=x.index)], axis=1)


FRAME = odd_frame()
HOW = {"on": "x", "by": "g"}


@pytest.fixture(params=[0, 1, 3])
def frame(request):
    """Plain, and of Dask in one partition and in three."""
    with dask.config.set(scheduler="sync"):
        yield (
            dd.from_pandas(FRAME, npartitions=request.param) if request.param else FRAME
        )


def near():
    x, g = FRAME["x"].to_numpy(), FRAME["g"].to_numpy()
    return (np.abs(x[:, None] - x) <= 1.0) & (g[:, None] == g)


def test_rows_come_back_with_all_their_columns(frame):
    half = FRAME.iloc[::2]
    matched = near()[:, ::2].any(axis=1)
    for way, rows in (("leftsemi", matched), ("leftanti", ~matched)):
        found = computed(frame.simjoin.join(half, 1.0, how=way, **HOW))
        pd.testing.assert_frame_equal(found, FRAME[rows], check_dtype=False)
    once = computed(frame.simjoin.drop_near_duplicates(1.0, **HOW))
    marks = computed(frame.simjoin.near_duplicated(1.0, **HOW))
    pd.testing.assert_frame_equal(once, FRAME[~marks.to_numpy()], check_dtype=False)


def test_each_column_is_kept_as_it_is(frame):
    i, j = np.nonzero(np.triu(near(), 1))
    names = [name for name in FRAME.columns if name != "x"]
    found = computed(
        frame.simjoin.self_join(1.0, keep=names, return_distance=True, **HOW)
    )
    found = found.sort_values(["left", "right"])
    assert list(zip(found["left"], found["right"], strict=True)) == sorted(
        zip(i, j, strict=True)
    )
    for name in names:
        for side in ("left", "right"):
            assert found[f"{name}_{side}"].tolist() == FRAME[name][found[side]].tolist()


@pytest.mark.parametrize("name", ["by=g", "by=g'", "distance", "left", 7])
def test_each_column_is_a_coordinate_or_an_id(frame, name):
    x = FRAME[name].to_numpy()
    want = (np.abs(x[:, None] - x) <= 10) & (
        FRAME["g"].to_numpy()[:, None] == FRAME["g"].to_numpy()
    )
    assert (
        computed(frame.simjoin.count_pairs(10, on=[name], by="g"))
        == (want.sum() - len(x)) // 2
    )
    if FRAME[name].is_unique:
        pairs = computed(frame.simjoin.self_join(1.0, id=name, **HOW))
        i, j = np.nonzero(np.triu(near(), 1))
        assert set(zip(pairs["left"], pairs["right"], strict=True)) == set(
            zip(x[i], x[j], strict=True)
        )


@pytest.mark.parametrize("lazy", [False, True])
def test_a_tuple_that_names_a_column_of_groups(lazy):
    frame = FRAME.rename(columns={"g": ("g", 0)})
    want = (near().sum() - len(FRAME)) // 2
    with dask.config.set(scheduler="sync"):
        data = dd.from_pandas(frame, npartitions=2) if lazy else frame
        for by in (("g", 0), [("g", 0)]):
            assert computed(data.simjoin.count_pairs(1.0, on="x", by=by)) == want
        assert (
            computed(data.simjoin.count_pairs(1.0, on="x", by=[("g", 0), "rank"])) == 0
        )


@pytest.mark.parametrize("label", [True, False, None, np.nan])
@pytest.mark.parametrize("lazy", [False, True])
def test_truth_values_and_missing_labels_are_refused(label, lazy):
    """Of pandas [True] is a mask, and [None] names nothing."""
    frame = pd.DataFrame({"x": [0.0, 1.0, 9.0], label: [1, 2, 3]})
    frame = dd.from_pandas(frame, npartitions=2) if lazy else frame
    verbs = frame.simjoin
    calls = [
        lambda: verbs.self_join(1.0, on=[label]),
        lambda: verbs.self_join(1.0, on=["x", label]),
        lambda: verbs.self_join(1.0),
        lambda: verbs.self_join(1.0, on="x", by=[label]),
        lambda: verbs.self_join(1.0, on="x", keep=[label]),
        lambda: verbs.join(frame, 1.0, on="x", keep=[label]),
        lambda: verbs.knn_join(frame, 1, on="x", by=[label], max_distance=1.0),
        lambda: verbs.set_self_join([label], 1.0),
    ]
    if label is not None:
        calls.append(lambda: verbs.self_join(1.0, on="x", id=label))
    for call in calls:
        with pytest.raises(
            ColumnError,
            match=r"(on|by|keep|id)= names the column (True|False|None|nan),",
        ):
            call()
    assert len(computed(verbs.self_join(1.0, on="x"))) == 1


def test_what_results_call_their_own_columns_is_reserved():
    frame, other = FRAME[["x", "distance", "left"]], FRAME[["x"]]
    for name in ("distance", "left"):
        with pytest.raises(
            OptionError, match=rf"column '{name}', .* is reserved .*; rename the column"
        ):
            frame.simjoin.join(other, 1.0, on="x", keep=name)
    with pytest.raises(
        OptionError,
        match=r"column 'left', a name that is reserved .* or use other suff",
    ):
        frame.simjoin.self_join(1.0, on="x", keep="left", suffixes=("", "_other"))
    one = pd.DataFrame({"x": [0.0], "a": 1, "a_left": 2})
    with pytest.raises(OptionError, match=r"two columns 'a_left'.*use other suffixes"):
        one.simjoin.join(one[["x", "a"]], 1.0, on="x", keep=["a", "a_left"])


X = np.random.default_rng(0).uniform(size=(60, 2))
ROWS = pd.DataFrame(X)
CALLS = {
    "self_join": (0.1,),
    "neighbor_counts": (0.1,),
    "count_pairs": (0.1,),
    "knn_join": (None, 3),
    "dbscan": (0.1, 3),
    "near_duplicated": (0.1,),
    "drop_near_duplicates": (0.1,),
    "k_distances": (2,),
}


class Streamed:
    """What offers Arrow's interface and nothing else, as tables of other libraries do."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def same(found, want):
    """Whether two results are the same."""
    if isinstance(found, pa.Table | pa.Array):  # as the table that was given
        found = found.to_pandas()
    if isinstance(want, int):
        return found == want
    if want.ndim == 1:
        return found.tolist() == want.tolist()
    rows = [
        sorted(map(tuple, frame.reset_index(drop=True).to_numpy().tolist()))
        for frame in (found, want)
    ]
    return rows[0] == rows[1] and len(rows[0]) > 0


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("kind", ["numpy", "records", "dask", "arrow", "stream"])
def test_verbs_take_them(verb, kind):
    table = pa.table({str(name): ROWS[name].to_numpy() for name in ROWS})
    given = {
        "numpy": X,
        "records": ROWS.rename(columns=str).to_records(index=False),
        "dask": da.from_array(X, chunks=(25, 1)),
        "arrow": table,
        "stream": Streamed(table),
    }[kind]
    want = getattr(ROWS.simjoin, verb)(*CALLS[verb])
    assert same(computed(getattr(dask_simjoin, verb)(given, *CALLS[verb])), want)


@pytest.mark.parametrize(
    "other",
    [X[:20], Streamed(pa.table({"0": X[:20, 0], "1": X[:20, 1]}))],
    ids=["array", "table"],
)
def test_as_the_right_table(other):
    on = (
        {}
        if isinstance(other, np.ndarray)
        else {"left_on": [0, 1], "right_on": ["0", "1"]}
    )
    want = ROWS.simjoin.join(ROWS.iloc[:20], 0.1)
    assert same(ROWS.simjoin.join(other, 0.1, **on), want)
    assert same(dask_simjoin.join(X, other, 0.1, **on), want)


def test_values_of_tables_stay_what_they_are():
    """Large integers with missing ones would change as float64; texts and lists are
    Arrow's own.
    """
    table = pa.table(
        {
            "x": [0.0, 0.5, 9.0],
            "number": pa.array([2**60 + 1, None, 3]),
            "text": ["a", None, "c"],
            "view": pa.array(["a", "b", "c"], pa.string_view()),
            "many": [["a"], ["b"], []],
        }
    )
    keep = ["number", "text", "view", "many"]
    (row,) = dask_simjoin.self_join(Streamed(table), 1.0, on="x", keep=keep).to_pylist()
    assert row["number_left"] == 2**60 + 1 and pd.isna(row["number_right"])
    assert row["text_left"] == "a" and pd.isna(row["text_right"])
    assert (row["view_left"], row["view_right"]) == ("a", "b")
    assert (list(row["many_left"]), list(row["many_right"])) == (["a"], ["b"])


def test_lists_and_sets_of_tables():
    table = pa.table(
        {
            "vector": [[0.0, 0.0], [0.0, 1.0], [5.0, 5.0]],
            "words": [["a", "b"], ["b", "a"], ["c"]],
        }
    )
    assert dask_simjoin.count_pairs(table, 1.0, on="vector") == 1
    assert dask_simjoin.count_set_pairs(Streamed(table), "words", 1.0) == 1


def test_components_of_tables():
    table = Streamed(pa.table({"left": [1, 2], "right": [2, 3]}))
    assert dask_simjoin.connected_components(table)["component"].to_pylist() == [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), ()])
def test_arrays_of_other_shapes(shape):
    with pytest.raises(
        UnsupportedFrameError, match=re.escape(f"frame= is an array of shape {shape}")
    ):
        dask_simjoin.self_join(np.zeros(shape), 1.0)
    with pytest.raises(
        UnsupportedFrameError, match=re.escape(f"other= is an array of shape {shape}")
    ):
        ROWS.simjoin.join(np.zeros(shape), 1.0)


def test_what_is_nothing_of_the_kind():
    for given in ([[0.0, 1.0]], 3, "text", None):
        with pytest.raises(
            UnsupportedFrameError, match="is not a data frame; use a Dask DataFrame"
        ):
            dask_simjoin.self_join(given, 1.0)


@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_other_libraries(library):
    there = pytest.importorskip(library)
    made = (
        there.DataFrame
        if library == "polars"
        else lambda columns: there.from_arrow(pa.table(columns))
    )
    found = dask_simjoin.self_join(
        made({"x": X[:, 0], "y": X[:, 1]}), 0.1, return_distance=True
    )
    assert isinstance(found, pa.Table if library == "duckdb" else there.DataFrame)
    found = found.to_pandas()
    assert same(found, ROWS.simjoin.self_join(0.1, return_distance=True))


def test_labels_equal_to_truth_values():
    with pytest.raises(ColumnError, match="a label that pandas and Dask do not find"):
        check_label("on", np.True_, pd.Index([0, "x"]))
    for name in (1, 2, 1.0, "x", ("x", 1)):
        check_label("on", name, pd.Index([1, 2, "x", False]))
    for name in (0, np.int64(0), 0.0):
        with pytest.raises(ColumnError):
            check_label("on", name, pd.Index([1, 2, "x", False]))


WIDE = 20_000


@pytest.mark.parametrize(
    "names", every_nth(4, [range(WIDE), [f"c{n}" for n in range(WIDE)]])
)
def test_checks_of_many_columns_are_fast(names):
    """Each of these checks took many seconds when it compared all pairs of columns."""
    names = list(names)
    meta = pd.DataFrame(np.zeros((0, WIDE)), columns=names)
    begin = time.process_time()
    for on in (None, names):
        assert SelfJoinRequest(1.0, on=on).spec(meta).coordinates.dims == WIDE
        request = JoinRequest(meta, 1.0, on=on)
        assert request.spec(meta, meta).coordinates.dims == WIDE
    assert len(SelfJoinRequest(1.0, on=names[:2], keep=names).spec(meta).keep) == WIDE
    assert time.process_time() - begin < 3
    with pytest.raises(ColumnError, match="more than once"):
        SelfJoinRequest(1.0, on=[*names, names[7]]).spec(meta)
    with pytest.raises(ColumnError, match="more than once"):
        SelfJoinRequest(1.0, on=names[:2], keep=[*names, names[7]]).spec(meta)


CUDF = {
    "ListDtype": pa.array,
    "StructDtype": dict,
    "CategoricalDtype": np.int64,
    "Decimal64Dtype": Decimal,
}
"""Name of a dtype of cuDF -> what its attribute `type` is; for lists, a function."""


def test_only_decimals_of_cudf_are_numbers_that_are_left_out():
    base = pd.api.extensions.ExtensionDtype
    dtypes = [
        type(name, (base,), {"__module__": "cudf", "name": name, "type": kind})()
        for name, kind in CUDF.items()
    ]
    meta = SimpleNamespace(columns=pd.Index(list("abcd")), dtypes=dtypes)
    assert left_out(meta, ()) == (("d", "Decimal64Dtype"),)


def arrow_column(values, kind):
    return pd.Series(values, dtype=pd.ArrowDtype(kind))


TIMES = [datetime.time(1), datetime.time(2)]
CONVERTIBLE = {
    "texts": arrow_column(["1", "2"], pa.string()),
    "large texts": arrow_column(["1", "2"], pa.large_string()),
    "dictionary": pd.Series(
        pd.array(
            pa.array(["1", "2"]).dictionary_encode(),
            dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())),
        )
    ),
    "times": arrow_column(TIMES, pa.time64("us")),
    "struct": arrow_column([{"a": 1}, {"a": 2}], pa.struct({"a": pa.int64()})),
    "lists of texts": arrow_column([["1"], ["2"]], pa.list_(pa.string())),
    "lists of decimals": arrow_column(
        [[Decimal(1)], [Decimal(2)]], pa.list_(pa.decimal128(3, 1))
    ),
    "matrices": arrow_column([[[1.0]], [[2.0]]], pa.list_(pa.list_(pa.float64()))),
    "tensors": pd.Series(
        pd.arrays.ArrowExtensionArray(
            pa.chunked_array(
                [pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3)))]
            )
        )
    ),
    "periods": pd.Series(pd.period_range("2020", periods=2)),
    "intervals": pd.Series(pd.interval_range(0, 2)),
}


@pytest.mark.parametrize("kind", CONVERTIBLE)
def test_suggested_conversions_of_columns_work(kind):
    df = pd.DataFrame({"v": CONVERTIBLE[kind]})
    with pytest.raises(ColumnError) as error:
        df.simjoin.self_join(1e9, on="v")
    df = repaired(str(error.value), df)
    assert len(df.simjoin.self_join(1e9, on="v")) == 1


@pytest.mark.parametrize("kind", [pa.binary(), pa.map_(pa.string(), pa.int64())])
def test_no_conversion_is_suggested_for_columns_without_numbers(kind):
    frame = pd.DataFrame({"v": arrow_column([None, None], kind)})
    with pytest.raises(ColumnError, match=r"must be numbers\. Name numeric .* only\.$"):
        frame.simjoin.self_join(1, on="v")


@pytest.mark.parametrize("verb", ["join", "knn_join"])
@pytest.mark.parametrize("left_is_times", [True, False])
def test_the_remedy_for_times_names_one_origin_for_two_tables(verb, left_is_times):
    times = pd.to_datetime(["2024-05-01 12:00", "2024-05-01 13:00"])
    left = pd.DataFrame({"t": times if left_is_times else [0.0, 3600.0]})
    right = pd.DataFrame({"t": times[1:]})
    with pytest.raises(ColumnError) as e:
        getattr(left.simjoin, verb)(right, 1, on="t")
    assert ".min()" not in str(e.value)
    assert "Use the same origin in both tables" in str(e.value)
    convert = re.search(r"(df\['t'\] = .*?\(\))\. Use", str(e.value))[1]
    for frame in (left, right) if left_is_times else (right,):
        exec(convert, {"df": frame, "origin": times[0]})
    found = getattr(left.simjoin, verb)(right, 1, on="t")
    assert [1, 0] in found[["left", "right"]].to_numpy().tolist()
