"""Coordinates in one column of lists, as embeddings are kept."""

import decimal
import re

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.columns import extremes, vectors
from dask_simjoin.errors import (
    ColumnError,
    CoordinateError,
    OptionError,
    SourceChangedError,
)
from dask_simjoin.metrics import make_metric
from tests.support.density import labels_of_neighbours
from tests.support.frames import computed, lay
from tests.support.oracle import (
    as_set,
    assert_same_pairs,
    brute_force,
    distances,
    totals,
)
from tests.support.profiles import in_turns
from tests.support.remedies import rows_of_one_length

NAN, INF = np.nan, np.inf
PARTS = ["entity", "spatial"]


def arrow(rows, kind):
    """Rows as an Arrow list column of a kind of list."""
    return pd.array(rows, dtype=pd.ArrowDtype(kind))


def lists(x, kind):
    """Vectors (n, d) as a column; `kind`: how."""
    d = x.shape[1]
    of = pa.from_numpy_dtype(x.dtype)
    rows = x.tolist()
    if kind == "list":
        return arrow(rows, pa.list_(of))
    if kind == "large_list":
        return arrow(rows, pa.large_list(of))
    if kind == "fixed":
        return arrow(rows, pa.list_(of, d))
    column = np.empty(len(x), object)
    make = {
        "lists": list,
        "tuples": tuple,
        "arrays": lambda row: np.array(row, x.dtype),
    }.get(kind)
    for n, row in enumerate(rows):
        column[n] = make(row) if make else (list, tuple, np.array)[n % 3](row)
    return column


KINDS = ["list", "large_list", "fixed", "lists", "tuples", "arrays", "mixed"]


@pytest.fixture
def x():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 9))
    return centres[rng.integers(6, size=90)] + rng.normal(0, 0.1, (90, 9))


# --- columns as arrays
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i1", "u4"])
def test_lists_are_read_exactly(kind, dtype):
    x = (np.random.default_rng(0).normal(size=(50, 7)) * 50).clip(0).astype(dtype)
    series = pd.Series(lists(x, kind))
    found = vectors(series)
    assert found.dtype == np.float64 and found.tolist() == x.tolist()
    assert vectors(series[20:31]).tolist() == x[20:31].tolist()
    assert vectors(pd.concat([series[40:], series[:3], series[3:3]])).tolist() == [
        *x[40:].tolist(),
        *x[:3].tolist(),
    ]
    assert vectors(series[:0]).shape == (0, 7 if kind == "fixed" else 1)
    told = lists_of(series)
    assert told.length == (7 if kind == "fixed" else None)
    assert told.kind == (x.dtype if kind in ("list", "large_list", "fixed") else None)


def test_half_floats_and_truth_values():
    half = pd.Series(arrow([np.array([0.5, 2.25], "f2"), None], pa.list_(pa.float16())))
    np.testing.assert_array_equal(vectors(half), [[0.5, 2.25], [NAN, NAN]])
    truth = pd.Series(arrow([[True, False], [None, True]], pa.list_(pa.bool_())))
    np.testing.assert_array_equal(vectors(truth), [[1, 0], [NAN, 1]])


@pytest.mark.parametrize("kind", ["list", "fixed", "lists"])
@pytest.mark.parametrize("of", ["f8", "i4"])
def test_missing_lists_and_numbers_become_nan(kind, of):
    rows = [[1, 2], None, [3, None], [4, 5]]
    of = pa.from_numpy_dtype(np.dtype(of))
    dtype = {"list": pa.list_(of), "fixed": pa.list_(of, 2)}.get(kind)
    series = (
        pd.Series(rows, dtype=object)
        if dtype is None
        else pd.Series(arrow(rows, dtype))
    )
    want = np.array([[1, 2], [NAN, NAN], [3, NAN], [4, 5]])
    np.testing.assert_array_equal(vectors(series), want)
    np.testing.assert_array_equal(vectors(series[1:3]), want[1:3])
    assert vectors(series[1:2]).shape == (1, 2 if kind == "fixed" else 1)


def test_wide_lists_of_several_chunks():
    x = np.random.default_rng(0).normal(size=(300, 2048)).astype("f4")
    chunks = [
        pa.FixedSizeListArray.from_arrays(pa.array(some.ravel()), 2048)
        for some in (x[:100], x[100:])
    ]
    series = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array(chunks)))
    assert (vectors(series) == x).all()
    assert vectors(series).flags.f_contiguous


def test_integers_in_lists():
    for column in (
        arrow([[1, -7], [5, None]], pa.list_(pa.int64())),
        [[1, -7], [5, 0]],
    ):
        assert extremes(pd.Series(column)) == [5, -7]
    assert extremes(pd.Series([[1.5], [2.0]])) == []
    assert extremes(pd.Series(arrow([None], pa.list_(pa.int64())))) == []


# --- joins
# ----------------------------------------------------------------------------------------


def assert_joined(frame, x, eps, metric, how, **options):
    near = totals(x, x, metric) <= make_metric(metric).threshold(eps)
    pairs = brute_force(x, eps, metric)
    options |= {"on": "vec", "metric": metric}
    data = lay(frame, how)
    found = computed(data.simjoin.self_join(eps, return_distance=True, **options))
    assert_same_pairs(as_set(found), pairs)
    assert (
        found.distance.tolist()
        == distances(x, x, metric)[found.left, found.right].tolist()
    )
    assert (
        computed(data.simjoin.neighbor_counts(eps, **options)).tolist()
        == (near.sum(1) - 1).tolist()
    )
    assert computed(data.simjoin.count_pairs(eps, **options)) == len(pairs)
    assert computed(
        data.simjoin.dbscan(eps, 4, **options)
    ).tolist() == labels_of_neighbours(near, 4)
    options.pop("method", None)
    want = np.sort(distances(x, x, metric), axis=1)[:, 3].tolist()
    assert computed(data.simjoin.k_distances(3, **options)).tolist() == want
    return pairs


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", ["fixed", "arrays"])
def test_all_verbs(x, how, kind, metric):
    frame = pd.DataFrame({"vec": lists(x.astype("f4"), kind), "name": "a", "z": 0.0})
    eps = 0.5 if metric == "euclidean" else 0.02
    x = x.astype("f4").astype("f8")
    pairs = assert_joined(frame, x, eps, metric, how)
    assert 100 < len(pairs) < 3000
    assert computed(
        lay(frame, how).simjoin.count_pairs(eps, on=["vec"], metric=metric)
    ) == len(pairs)


@in_turns(
    1,
    lists_of=[("fixed", "euclidean"), ("lists", "cosine"), ("list", "sqeuclidean")],
    partitioning=list(PARTS),
)
def test_partitionings(x, partitioning, lists_of):
    kind, metric = lists_of
    frame = pd.DataFrame({"vec": lists(x, kind)})
    eps = 0.02 if metric == "cosine" else 0.5
    with dask.config.set(scheduler="sync"):
        assert_joined(
            frame, x, eps, metric, "dask-3", partitioning=partitioning, blocksize=1700
        )


@pytest.mark.parametrize("kind", ["fixed", "list", "arrays"])
def test_columns_of_one_number_and_of_many(kind):
    rng = np.random.default_rng(1)
    for d in (1, 2, 5, 130):
        x = rng.integers(0, 3, (40, d)).astype(float)
        frame = pd.DataFrame({"vec": lists(x, kind)})
        for how in ("pandas", "dask-3"):
            pairs = lay(frame, how).simjoin.self_join(float(np.sqrt(d)), on="vec")
            assert_same_pairs(
                as_set(computed(pairs)), brute_force(x, float(np.sqrt(d)))
            )


def test_two_thousand_dimensions():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 2048))
    x[30:] = x[:30] + rng.normal(0, 0.05, (30, 2048))
    frame = pd.DataFrame({"vec": lists(x, "arrays")})
    assert as_set(frame.simjoin.self_join(0.01, on="vec", metric="cosine")) == {
        (k, k + 30) for k in range(30)
    }


@pytest.mark.parametrize("kind", ["fixed", "list", "arrays"])
@pytest.mark.parametrize("partitioning", PARTS)
def test_empty_partitions(x, kind, partitioning):
    frame = pd.DataFrame({"vec": lists(x, kind)})
    parts = [frame[:0], frame[:40], frame[40:40], frame[40:], frame[:0]]
    with dask.config.set({"dataframe.convert-string": False}):
        ddf = dd.from_map(lambda part: part, parts, meta=frame[:0])
        nothing = dd.from_map(lambda part: part, parts[:1], meta=frame[:0])
    options = {"on": "vec", "partitioning": partitioning, "blocksize": 3000}
    assert_same_pairs(
        as_set(ddf.simjoin.self_join(0.5, **options).compute()), brute_force(x, 0.5)
    )
    assert ddf.simjoin.neighbor_counts(0.5, **options).compute().shape == (90,)
    assert nothing.simjoin.count_pairs(0.5, **options).compute() == 0
    assert len(nothing.simjoin.self_join(0.5, **options).compute()) == 0
    assert frame[:0].simjoin.neighbor_counts(0.5, on="vec").shape == (0,)
    assert len(frame[:0].simjoin.self_join(0.5, on="vec")) == 0


@pytest.mark.parametrize("dtype", ["numpy_nullable", "pyarrow"])
def test_parquet(x, tmp_path, dtype):
    column = pa.FixedSizeListArray.from_arrays(pa.array(x.astype("f4").ravel()), 9)
    table = pa.table({"name": [f"n{k}" for k in range(90)], "vec": column})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=30)
    options = {} if dtype == "numpy_nullable" else {"dtype_backend": dtype}
    ddf = dd.read_parquet(tmp_path / "x.parquet", split_row_groups=True, **options)
    assert ddf.npartitions == 3
    pairs = ddf.simjoin.self_join(0.02, on="vec", id="name", metric="cosine").compute()
    want = {(f"n{a}", f"n{b}") for a, b in brute_force(x.astype("f4"), 0.02, "cosine")}
    assert_same_pairs(as_set(pairs), want)


@pytest.mark.parametrize("kind", ["fixed", "arrays"])
def test_two_tables(x, how, kind):
    left, right = (
        pd.DataFrame({"vec": lists(some, kind)}) for some in (x[:50], x[50:])
    )
    away = distances(x[:50], x[50:], "cosine")
    want = set(zip(*(rows.tolist() for rows in np.nonzero(away <= 0.02)), strict=True))
    options = {"on": "vec", "metric": "cosine"}
    found = lay(left, how).simjoin.join(lay(right, how), 0.02, **options)
    assert_same_pairs(as_set(computed(found)), want)
    found = computed(lay(left, how).simjoin.knn_join(lay(right, how), 2, **options))
    found = found.sort_values(["left", "rank"])
    assert found.distance.tolist() == np.sort(away, axis=1)[:, :2].ravel().tolist()
    nothing = lay(right[:0], "dask-1" if how != "pandas" else how)
    assert len(computed(lay(left, how).simjoin.join(nothing, 0.02, **options))) == 0
    assert len(computed(nothing.simjoin.join(lay(left, how), 0.02, **options))) == 0


def test_two_tables_of_other_lengths(x, how):
    left, right = (
        pd.DataFrame({"vec": lists(some, "arrays")}) for some in (x, x[:, 1:])
    )
    with pytest.raises(
        CoordinateError,
        match="9 numbers in column 'vec' of the left table, but 8 in column 'vec'",
    ):
        computed(lay(left, how).simjoin.join(lay(right, how), 0.02, on="vec"))
    with pytest.raises(
        ColumnError,
        match=r"'vec' of the left table holds (lists|objects), and 'x' of the right one num",
    ):
        lay(left, how).simjoin.join(
            pd.DataFrame({"x": [1.0]}), 0.1, left_on="vec", right_on="x"
        )


def test_plans(x):
    frame = pd.DataFrame({"vec": lists(x, "arrays")})
    plan = frame.simjoin.plan(0.5, on="vec")
    assert "9: the numbers of each list in 'vec'" in repr(plan)


# --- what is refused
# ------------------------------------------------------------------------------


def test_lists_are_named_and_alone():
    frame = pd.DataFrame(
        {
            "x": [0.0, 1.0],
            "vec": lists(np.eye(2), "fixed"),
            "other": lists(np.eye(2), "arrays"),
        }
    )
    assert frame.simjoin.count_pairs(1.0) == 1  # of x only
    with pytest.raises(
        ColumnError,
        match=r"on= names 'vec' of dtype .* A column of lists must be the only one: on='vec'",
    ):
        frame.simjoin.count_pairs(1.0, on=["x", "vec"])
    with pytest.raises(ColumnError, match="'other' of dtype object"):
        frame.simjoin.count_pairs(1.0, on=["other", "x"])
    with pytest.raises(ColumnError, match="haversine' needs 2 columns"):
        frame.simjoin.count_pairs(1.0, on="vec", metric="haversine")


def test_strings_that_dask_makes_of_lists_are_pointed_out():
    ddf = dd.from_pandas(pd.DataFrame({"vec": [[0.0, 1.0], [1.0, 0.0]]}), npartitions=1)
    with pytest.raises(
        ColumnError,
        match=r"If 'vec' held lists, Dask has converted them to texts: create",
    ):
        ddf.simjoin.count_pairs(1.0, on="vec")


@pytest.mark.parametrize("kind", ["list", "object"])
def test_lists_of_other_lengths(how, kind):
    rows = [[0.0, 1], [0, 2], [0, 3], [0, 4, 5], [0, 6], [0]]
    column = (
        arrow(rows, pa.list_(pa.float64()))
        if kind == "list"
        else pd.Series(rows, index=list("abcdef"))
    )
    frame = pd.DataFrame({"vec": column}, index=list("abcdef"))
    if how == "dask-3":  # of two rows each
        text = (
            "in partition 1, 1 list has length 2 (first in row 0, label 'c') and 1 list "
            "has length 3 (first in row 1, label 'd'). To keep the lists of the most"
        )
    else:
        text = (
            "4 lists have length 2 (first in row 0, label 'a'), 1 list has length 3 "
            "(first in row 3, label 'd') and 1 list has length 1 (first in row 5, label "
            "'f'). To keep only the lists of length 2: "
        )
    text = re.escape(
        f"Column 'vec' must hold lists of numbers of equal length, but {text}"
    )
    for dropna in (False, True):
        with pytest.raises(
            CoordinateError,
            match=text,
        ) as caught:
            computed(lay(frame, how).simjoin.self_join(1.0, on="vec", dropna=dropna))
        if how != "dask-1":  # it is taken for a pandas DataFrame
            kept = rows_of_one_length(str(caught.value), lay(frame, how))
            pairs = computed(kept.simjoin.self_join(1.0, on="vec"))
            assert pairs.to_numpy().tolist() == [["a", "b"], ["b", "c"]]


def test_many_lengths_are_counted():
    frame = pd.DataFrame({"vec": [[0.0] * n for n in (5, 4, 3, 2, 1, 1)]})
    text = (
        "1 list has length 5 (first in row 0, label 0), 1 list has length 4 (first in row "
        "1, label 1), 2 lists have length 1 (first in row 4, label 4) and 2 lists have "
        "other lengths."
    )
    with pytest.raises(CoordinateError, match=re.escape(text)):
        frame.simjoin.self_join(1.0, on="vec")


def test_missing_lists_and_lists_of_other_lengths():
    frame = pd.DataFrame({"vec": [[0.0], [0.0, 1], None, [1.0, 1]]})
    with pytest.raises(CoordinateError, match=r"2 lists .* row 1, label 1\)") as caught:
        frame.simjoin.self_join(2.0, on="vec", dropna=True)
    kept = rows_of_one_length(str(caught.value), frame)
    assert kept.simjoin.self_join(2.0, on="vec").to_numpy().tolist() == [[1, 3]]


def test_partitions_of_other_lengths():
    frame = pd.DataFrame(
        {"vec": [[0.0, 1], [0, 2], [0, 3, 1], [0, 4, 5], [0, 6], [0, 1]]}
    )
    with pytest.raises(
        CoordinateError,
        match="of partition 0 have 2 numbers, and lists of partition 1 have 3",
    ):
        lay(frame, "dask-3").simjoin.count_pairs(1.0, on="vec").compute()
    with pytest.raises(
        CoordinateError,
        match="of partition 0 have 2 numbers, and lists of partition 1 have 3",
    ) as caught:
        lay(frame, "dask-3").simjoin.k_distances(1, on="vec").compute()
    kept = rows_of_one_length(str(caught.value), lay(frame, "dask-3"))
    assert len(kept.simjoin.k_distances(1, on="vec").compute()) == 4


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([[0.0], 5], "an int"),
        (["ab", [0.0]], "a str"),
        ([np.zeros((1, 2)), [0.0]], "a ndarray"),
        ([[0.0], ["1"]], "a list with a str in it, which is not a real number"),
        ([[0.0], [[1.0]]], "a list with a list in it, which is not a real number"),
        ([[0.0], [1j]], "a list with a complex in it, which is not a real number"),
    ],
)
def test_what_is_no_list_of_numbers(how, rows, what):
    frame = pd.DataFrame({"vec": pd.Series(rows, dtype=object)})
    with pytest.raises(
        CoordinateError,
        match=rf"holds {what} in row [01].* \(label [01]\), but coordinates"
        if what.count(" ") == 1
        else rf"row [01].* \(label [01]\) holds {what}",
    ):
        computed(lay(frame, how).simjoin.count_pairs(1.0, on="vec"))


def test_objects_that_are_numbers(how):
    rows = [None, decimal.Decimal("0.5"), decimal.Decimal(2)]
    frame = pd.DataFrame({"x": pd.Series(rows, dtype=object)})
    text = (
        r"Column 'x' holds a Decimal in row \d.* \(label 1\), but coordinates must have "
        r"a dtype of integers or floats. If the values are numbers, such as Decimal, "
        r"convert them: df\['x'\] = df\['x'\].astype\('float64'\)\."
    )
    with pytest.raises(CoordinateError, match=text):
        computed(lay(frame, how).simjoin.count_pairs(1.0, on="x"))


def test_lists_without_numbers(how):
    with pytest.raises(CoordinateError, match="The lists of column 'vec' are empty"):
        computed(
            lay(pd.DataFrame({"vec": [[], [], []]}), how).simjoin.count_pairs(
                1.0, on="vec"
            )
        )


@pytest.mark.parametrize("kind", ["list", "object"])
def test_missing_and_infinite_numbers(how, kind):
    rows = [[0.0, 1], None, [NAN, 1], [INF, NAN], [0, 1.5], [0, -INF]]
    column = arrow(rows, pa.list_(pa.float64())) if kind == "list" else rows
    frame = pd.DataFrame({"vec": column})
    text = r"column 'vec' has 3 rows with missing numbers and 2 rows with infinite numbers \(first at label 1"
    with pytest.raises(CoordinateError, match=text):
        computed(lay(frame, how).simjoin.count_pairs(1.0, on="vec"))
    pairs = lay(frame, how).simjoin.self_join(1.0, on="vec", dropna=True)
    assert as_set(computed(pairs)) == {(0, 4)}
    counts = computed(
        lay(frame, how).simjoin.neighbor_counts(1.0, on="vec", dropna=True)
    )
    assert counts.to_dict() == {0: 1, 1: 0, 2: 0, 3: 0, 4: 1, 5: 0}


@pytest.mark.parametrize("kind", ["list", "object"])
def test_partitions_of_missing_lists_only(kind):
    rows = [[0.0, 1], [0, 1], None, None, [0, 1.5], None]
    frame = pd.DataFrame(
        {"vec": arrow(rows, pa.list_(pa.float64())) if kind == "list" else rows}
    )
    for partitioning in PARTS:
        options = {
            "on": "vec",
            "dropna": True,
            "partitioning": partitioning,
            "blocksize": 60,
        }
        pairs = lay(frame, "dask-3").simjoin.self_join(1.0, **options)
        assert as_set(pairs.compute()) == {(0, 1), (0, 4), (1, 4)}
    with pytest.raises(
        CoordinateError, match="column 'vec' has 3 rows with missing numbers"
    ):
        lay(frame, "dask-3").simjoin.count_pairs(1.0, on="vec").compute()


@pytest.mark.parametrize("kind", ["list", "object"])
def test_large_integers(how, kind):
    rows = [[0, 1], [2, 2**53 + 1], [1, 0]]
    frame = pd.DataFrame(
        {"vec": arrow(rows, pa.list_(pa.int64())) if kind == "list" else rows}
    )
    for metric in ("euclidean", "cosine"):
        with pytest.raises(
            CoordinateError, match="Column 'vec' holds the integer 9007199254740993"
        ):
            computed(lay(frame, how).simjoin.count_pairs(1.0, on="vec", metric=metric))


def test_methods_that_do_not_serve_so_many_numbers(how):
    frame = pd.DataFrame({"vec": lists(np.eye(6), "arrays")})
    text = "method='sweep' takes at most 4 numbers, and the lists of column 'vec' have 6; use method='tiles'"
    with pytest.raises(OptionError, match=text):
        computed(lay(frame, how).simjoin.count_pairs(1.0, on="vec", method="sweep"))
    frame = pd.DataFrame({"vec": lists(np.eye(6), "fixed")})
    with pytest.raises(OptionError, match=text):
        lay(frame, how).simjoin.count_pairs(1.0, on="vec", method="sweep")


def test_a_source_whose_lists_changed_is_refused(x):
    calls = []

    def read(number):
        calls.append(number)
        index = range(90 * number, 90 * number + 90)
        return pd.DataFrame(
            {"vec": lists(x[:, : 9 if len(calls) < 3 else 8], "arrays")}, index=index
        )

    with dask.config.set({"dataframe.convert-string": False, "scheduler": "sync"}):
        ddf = dd.from_map(read, range(2), meta=read(0)[:0])
        pairs = ddf.simjoin.self_join(0.5, on="vec", partitioning="entity")
        calls.clear()
        pairs.compute()  # the join takes the rows that its planning has read
        with pytest.raises(
            SourceChangedError, match="has coordinates in another range"
        ):
            pairs.compute()


@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_masked_numbers_in_lists_are_missing(dtype):
    rows = np.ma.masked_array(np.arange(8).reshape(4, 2), dtype=dtype)
    rows[1, 0] = np.ma.masked
    frame = pd.DataFrame({"v": pd.Series(list(rows), dtype=object)})
    with pytest.raises(
        CoordinateError, match="column 'v' has 1 row with missing numbers"
    ):
        frame.simjoin.count_pairs(9.0, on="v")
    assert frame.simjoin.count_pairs(3.0, on="v", dropna=True) == 1
    plain = pd.DataFrame({"v": pd.Series(list(rows[2:]), dtype=object)})
    assert plain.simjoin.count_pairs(3.0, on="v") == 1


def test_large_integers_next_to_missing_numbers():
    for rows in ([[2**53 + 1, 0], [None, 1]], [np.ma.array([2**60, 1], mask=[0, 1])]):
        frame = pd.DataFrame({"v": pd.Series(rows, dtype=object)})
        with pytest.raises(CoordinateError, match=r"beyond 2\*\*53"):
            frame.simjoin.count_pairs(1.0, on="v", dropna=True)
