"""What mistakes are told of: the value, what is allowed, and a remedy that works."""

import datetime
import math
import re
import subprocess
import sys
import traceback
from decimal import Decimal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import parse_bytes

import dask_simjoin
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.errors import (
    ColumnError,
    CoordinateError,
    OptionError,
    OptionTypeError,
    SimJoinWarning,
    UnsupportedFrameError,
)
from dask_simjoin.request.messages import ANY_JOIN, TIMES_ALONE, shown, size_text
from tests.checks.mistakes import Polygon, sparse
from tests.support.remedies import repaired

DAYS = pd.date_range("2020-01-01", periods=4)

FRAME = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0], "name": list("abcd"), "radii": 1.0})

TEXTS = FRAME.astype({"name": "str"})
HAS_TEXTS = TEXTS["name"].dtype != object
"""Texts have a type of their own from pandas 3 on; those before find them among
objects, row by row.
"""


def told(kind, call, *args, **options):
    with pytest.raises(kind) as caught:
        call(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("size", "like", "text"),
    [
        (0, 1, "0 B"),
        (999, 1, "999 B"),
        (1000, 1, "1 kB"),
        (1024, 1, "1 kiB"),
        (400 * 10**6, 1, "400 MB"),
        (1_500_000_000, 1, "1.5 GB"),
        (330 * 2**20, 1, "330 MiB"),
        (330 * 2**20, 400 * 10**6, "346 MB"),
        (1_234_567_890, 1, "1.15 GiB"),
        (2**40, 1, "1 TiB"),
        (1023 * 2**10, 1, "1 MiB"),
    ],
)
def test_sizes_are_in_the_units_of_users(size, like, text):
    assert size_text(size, like) == text


@pytest.mark.parametrize("like", [1, 10**6])
def test_sizes_that_are_recommended_suffice(like):
    for size in (1, 1001, 1025, 123_456, 2**20 + 1, 10**6 + 1, 5.5e12, 2**60):
        text = size_text(size, like, up=True)
        assert size <= parse_bytes(text) <= max(1024, 1.03 * size)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "times",
    [
        DAYS,
        DAYS.tz_localize("UTC"),
        DAYS - DAYS[0],
        DAYS.astype("timestamp[us][pyarrow]"),
    ],
    ids=["naive", "zoned", "differences", "arrow"],
)
def test_the_remedy_for_times_works(times, lazy):
    df = pd.DataFrame({"t": times, "x": 0.0})
    if lazy:
        df = dd.from_pandas(df, npartitions=2)
    text = told(ColumnError, df.simjoin.count_pairs, 1.0, on=["x", "t"])
    df = repaired(text.replace("seconds_per_unit", "86_400"), df)
    found = df.simjoin.count_pairs(1.0, on=["x", "t"])
    assert (found.compute() if lazy else found) == 3


def in_pandas(text, **names):
    """Run the expression that a message gives for pandas."""
    found = re.search(r"In pandas: (.*?)\.(?= To| If|$)", text)
    assert found, text
    return eval(found[1], {"pd": pd, **names})


SEEN = pd.DataFrame({"x": [0.0, 0.1, 0.2, 0.3], "t": DAYS, "g": list("aabb")})


def conditions(text):
    """Return the options `within` and `different` that a message gives."""
    found = re.search(r"(within|different)=('.*?'|\{.*?\})(?=[\s.,]|$)", text)
    return eval(f"dict({found[0]})")


def test_pairs_of_near_times_are_found_as_told():
    text = told(ColumnError, SEEN.simjoin.self_join, 1.0, on=["x", "t"])
    assert "use on=['x'] and, for example, within={'t': '10 min'}" in text
    text = told(OptionTypeError, SEEN.simjoin.self_join, 1.0, on="x", max_time="2 days")
    assert "With the times in 't', use within={'t': '10 min'}" in text
    options = conditions(text.replace("10 min", "1 D"))
    assert len(SEEN.simjoin.self_join(1.0, on="x", **options)) == 3


@pytest.mark.parametrize("option", ["direction", "allow_exact_matches"])
def test_nearest_earlier_rows_are_found_as_told(option):
    other = pd.DataFrame(
        {"x": [0.11, 0.3, 0.25], "t": DAYS[[2, 0, 1]]}, index=[7, 8, 9]
    )
    wrong = {"on": "x", option: True}
    text = told(OptionTypeError, SEEN.simjoin.knn_join, other, 1, **wrong)
    assert "With the times in 't', use within={'t': ('-1 h', '0 h')}" in text
    options = conditions(text.replace("-1 h", "-9 D"))
    found = SEEN.simjoin.knn_join(other, 1, on="x", **options).set_index("left")
    assert found["right"].to_dict() == {0: 8, 1: 9, 2: 9, 3: 8}


def test_pairs_of_different_groups_are_found_as_told():
    text = told(OptionTypeError, SEEN.simjoin.self_join, 1.0, on="x", unless="g")
    assert "With the groups in 'g', use different='g'" in text
    assert len(SEEN.simjoin.self_join(1.0, on="x", **conditions(text))) == 4


def test_verbs_without_conditions_name_those_that_have_them():
    text = told(OptionTypeError, SEEN.simjoin.hdbscan, 5, on="x", within={"t": "1 h"})
    assert (
        ". Only self_join(), join(), knn_join(), " in text and "take within=." in text
    )


@pytest.mark.parametrize(
    ("columns", "remedy"),
    [
        (["a", "b"], "{'a': 'left', 'b': 'right'}"),
        (["left", "b"], "{'b': 'right'}"),
        (["x", "y", "z"], "the ids of pairs, rename them to 'left' and 'right'."),
    ],
)
def test_rows_that_are_no_pairs_are_told_how_to_make_some(columns, remedy):
    frame = pd.DataFrame(1.0, range(2), columns)
    text = told(ColumnError, dask_simjoin.connected_components, frame)
    assert f"the columns are {', '.join(map(repr, columns))}. " in text
    assert remedy in text
    made = "connected_components(frame.simjoin.self_join(eps))"
    assert made in text and "frame.simjoin.dbscan(eps, min_samples=1)" in text
    names = {"frame": frame, "eps": 1.0} | vars(dask_simjoin)
    assert eval(made, names)["component"].tolist() == [0, 0]


def test_numbers_as_text_are_converted_as_told():
    # as plain text is in pandas 3
    df = pd.DataFrame({"x": ["1", "2.5"]}, dtype="string")
    text = told(ColumnError, df.simjoin.count_pairs, 2.0, on="x")
    assert "on= names 'x' of dtype" in text
    assert repaired(text, df).simjoin.count_pairs(2.0, on="x") == 1


@pytest.mark.parametrize("verb", ["join", "knn_join"])
@pytest.mark.parametrize(
    ("options", "table"),
    [
        ({"on": ["x", "radii"]}, "right"),
        ({"left_on": "z", "right_on": "x"}, "left"),
        ({"left_on": "x", "right_on": "z"}, "right"),
        ({"on": "x", "left_id": "z"}, "left"),
        ({"on": "x", "right_id": "radii"}, "right"),
    ],
)
def test_a_missing_column_is_told_with_its_table(verb, options, table):
    with pytest.raises(
        ColumnError, match=rf"^In the {table} table, .* is not a column"
    ) as caught:
        getattr(FRAME.simjoin, verb)(FRAME[["x"]], 1, **options)
    printed = "".join(traceback.format_exception(caught.value))
    # and not twice, as errors are that are chained
    assert printed.count("is not a column") == 1


def test_an_eps_that_is_no_column():
    text = told(
        OptionTypeError, FRAME.simjoin.self_join, "radius", on="x", pairs="both"
    )
    assert "is neither a number nor a column (did you mean 'radii'?). Use a" in text
    assert text.endswith("The numeric columns are 'x', 'radii'.")


def test_the_table_comes_before_eps_and_k():
    text = told(UnsupportedFrameError, FRAME.simjoin.join, 1.0, FRAME, on="x")
    assert (
        "other=1.0 is not a data frame. eps= is a data frame, so the arguments are swapped. "
        "Use join(other, eps)" in text
    )
    text = told(UnsupportedFrameError, FRAME.simjoin.knn_join, 3, on="x")
    assert (
        "other=3 is not a data frame. For the 3 nearest rows within this frame, use "
        "knn_join(k=3). Use knn_join(other, 3) for rows of another table" in text
    )
    text = told(UnsupportedFrameError, FRAME.simjoin.knn_join, [0.0, 1.0], on="x")
    assert text.startswith("other=[0.0, 1.0] is not") and "knn_join(k=" not in text
    assert told(UnsupportedFrameError, FRAME.simjoin.plan, 1.0, other=3).startswith(
        "other=3 is not a data"
    )


LARGEST = "the largest distance of a pair, such as 0.5."


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            FRAME.simjoin.self_join,
            f"eps= is missing: use self_join(eps, ...), where eps= is {LARGEST}",
        ),
        (
            FRAME.simjoin.optics,
            f"max_eps= is missing: use optics(max_eps, ...), where max_eps= is {LARGEST}",
        ),
        (
            FRAME.simjoin.join,
            "other= and eps= are missing: use join(other, eps, ...), where other= is the "
            f"second table and eps= is {LARGEST}",
        ),
        (
            dask_simjoin.dbscan,
            "frame= and eps= are missing: use dbscan(frame, eps, ...), where frame= is "
            f"the table and eps= is {LARGEST}",
        ),
    ],
)
def test_what_is_missing_is_told_without_private_names(call, text):
    assert told(OptionTypeError, call) == text


def test_options_are_named():
    text = told(OptionTypeError, FRAME.simjoin.self_join, 1.0, ["x"])
    start = "self_join(eps) got another positional argument, "
    assert text == (
        f"{start}['x']. For coordinates, use on=['x']; pass all other options by name."
    )
    text = told(OptionTypeError, FRAME.simjoin.self_join, 1.0, 2)
    assert text.startswith(f"{start}2. Pass it by name, as one of on=, metric=,")
    assert len(FRAME.simjoin.self_join(eps=1.0, on="x")) == 2


@pytest.mark.parametrize(
    ("verb", "remedy"),
    [
        (
            "neighbor_counts",
            "eps= is a data frame. Use neighbor_counts(eps, other=...).",
        ),
        ("self_join", "eps= is a data frame. join(), knn_join() and neighbor_counts()"),
        ("dbscan", "eps= is a data frame. join(), knn_join() and neighbor_counts()"),
        (
            "set_neighbor_counts",
            "on= is a data frame. Use set_neighbor_counts(on, threshold, other=...).",
        ),
        ("edit_self_join", "on= is a data frame. set_join() and edit_join() compare"),
    ],
)
def test_a_second_table_where_an_option_belongs(verb, remedy):
    for more in ((), ("1 km",), (1.0,)):
        text = told(OptionTypeError, getattr(FRAME.simjoin, verb), FRAME, *more)
        assert text.startswith(remedy)
    text = told(OptionTypeError, getattr(dask_simjoin, verb), FRAME, FRAME, 1.0)
    own = remedy.replace("counts(on", "counts(frame, on")
    assert text.startswith(own.replace("counts(eps", "counts(frame, eps"))


@pytest.mark.parametrize(
    "frame", [FRAME, dd.from_pandas(FRAME, npartitions=2)], ids=["pandas", "dask"]
)
def test_verbs_that_are_none(frame):
    for name, meant in [("kneighbors", "knn_join"), ("db_scan", "dbscan")]:
        text = told(AttributeError, getattr, frame.simjoin, name)
        assert text == (
            f".simjoin has no verb {name!r} (did you mean {meant!r}?); "
            "dir(frame.simjoin) lists all verbs."
        )
    for name in ANY_JOIN:
        text = told(AttributeError, getattr, frame.simjoin, name)
        assert text == (
            f".simjoin has no verb {name!r}. For pairs within one table use "
            "self_join(eps), for pairs of two tables join(other, eps), for the k "
            "nearest rows knn_join(k=10). dir(frame.simjoin) lists all verbs."
        )
    assert set(VERBS) <= set(dir(frame.simjoin))
    assert not hasattr(frame.simjoin, "_repr_markdown_")
    text = told(AttributeError, getattr, frame.simjoin, "xyz")
    assert f"no verb 'xyz'; use one of {min(VERBS)}," in text


def test_names_that_the_module_lacks():
    for name, meant in [("kneighbors", "knn_join"), ("db_scan", "dbscan")]:
        text = told(AttributeError, getattr, dask_simjoin, name)
        assert text == (
            f"module 'dask_simjoin' has no attribute {name!r} (did you mean {meant!r}?); "
            "dir(dask_simjoin) lists all verbs."
        )
    text = told(AttributeError, getattr, dask_simjoin, "radius_join")
    calls = re.findall(r"\bdask_simjoin\.\w+\([^()]*\)", text)
    assert len(calls) == 3
    for call in calls:
        names = {"frame": FRAME[["x"]], "other": FRAME[["x"]], "eps": 1.0}
        assert len(eval(call, {"dask_simjoin": dask_simjoin}, names))
    text = told(AttributeError, getattr, dask_simjoin, "xyz")
    assert f"no attribute 'xyz'; use one of {min(VERBS)}," in text
    text = told(AttributeError, getattr, dask_simjoin, "__wrong__")
    assert text == "module 'dask_simjoin' has no attribute '__wrong__'"


@pytest.mark.slow
def test_modules_that_are_not_loaded_are_named():
    code = "import dask_simjoin; dask_simjoin.neighbors"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.stderr.rstrip().endswith(
        "to load this module: import dask_simjoin.neighbors"
    )


def test_a_right_join_is_one_of_the_tables_swapped():
    text = told(OptionError, FRAME.simjoin.knn_join, FRAME, 1, on="x", how="right")
    assert "how='right' is not allowed" in text
    assert "Or swap the tables: other.simjoin.knn_join(frame, k, how='left')" in text
    text = told(OptionError, FRAME.simjoin.join, FRAME, 1.0, on="x", how="full")
    assert "(did you mean 'outer'?)" in text
    text = told(OptionError, FRAME.simjoin.join, FRAME, 1.0, on="x", how="semi")
    assert "did you mean 'leftsemi'?" in text and "swap" not in text


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("l2", "euclidean"),
        ("L1", "manhattan"),
        ("linf", "chebyshev"),
        ("cosin", "cosine"),
    ],
)
def test_metrics_by_other_names(name, meant):
    text = told(OptionError, FRAME.simjoin.self_join, 1.0, on="x", metric=name)
    assert (
        f"metric={name!r} is not allowed" in text and f"did you mean {meant!r}?" in text
    )


def test_a_metric_is_no_function():
    text = told(OptionError, FRAME.simjoin.self_join, 1.0, on="x", metric=max)
    assert (
        "metric=<built-in function max> is a function" in text
        and "Use one of 'euclidean'" in text
        and text.endswith("'braycurtis'.")
    )
    text = told(OptionError, FRAME.simjoin.self_join, 1.0, on="x", metric=math.dist)
    assert text.endswith("Instead of this function, use 'euclidean'.")


@pytest.mark.parametrize(
    ("verb", "option", "meant"),
    [
        ("knn_join", "n_neighbors", "k"),
        ("self_join", "radius", "eps"),
        ("knn_join", "radius", "max_distance"),
        ("knn_join", "eps", "max_distance"),
        ("self_join", "tolerance", "eps"),
        ("set_self_join", "eps", "threshold"),
        ("optics", "eps", "max_eps"),
        ("edit_self_join", "eps", "k"),
        ("count_edit_pairs", "max_distance", "k"),
        ("edit_self_join", "threshold", "similarity"),
        ("edit_self_join", "return_similarity", "return_distance"),
        ("join", "distance", "eps"),
        ("knn_join", "distance", "max_distance"),
    ],
)
def test_options_by_other_names(verb, option, meant):
    text = told(OptionTypeError, getattr(FRAME.simjoin, verb), **{option: 3})
    assert f"has no option {option!r} (did you mean {meant!r}?)" in text


def test_scalars_of_numpy_are_numbers():
    for value, text in (
        (np.float32(-0.5), "eps=-0.5 is"),
        (np.int64(-1), "eps=-1 is"),
        (np.str_("zz"), "eps='zz' is"),
    ):
        wrong = OptionTypeError if isinstance(value, str) else OptionError
        assert told(wrong, FRAME.simjoin.self_join, value, on="x").startswith(text)
    day = np.datetime64("2024-05-01", "D")
    assert shown(day) == "2024-05-01"
    assert shown(np.bool_(True)) == "True"


def test_a_distance_that_is_a_flag():
    text = told(OptionTypeError, FRAME.simjoin.self_join, 1.0, on="x", distance=True)
    assert "no option 'distance' (did you mean 'return_distance'?)" in text


def test_metrics_of_scaled_columns():
    def advice(metric):
        text = told(OptionError, FRAME.simjoin.self_join, 1.0, on="x", metric=metric)
        assert f"metric={metric!r} is not allowed" in text and "did you" not in text
        return text

    assert "Divide each column by its standard deviation" in advice("seuclidean")
    assert "w ** (1 / p) with 'minkowski'" in advice("wminkowski")
    x = np.random.default_rng(0).normal(size=(20, 3)) @ [
        [1, 2, 0],
        [0, 1, 3],
        [0, 0, 1],
    ]
    code = advice("mahalanobis").rpartition("array x: ")[2].rstrip(".")
    white = eval(code, {"numpy": np, "x": x})
    difference, inverse = x[0] - x[1], np.linalg.inv(np.cov(x.T))
    assert math.dist(*white[:2]) ** 2 == pytest.approx(
        difference @ inverse @ difference
    )
    assert "use metric='cosine'" in advice("correlation")


def test_objects_that_are_no_lists():
    df = pd.DataFrame({"o": [object(), object()]})
    text = told(CoordinateError, df.simjoin.self_join, 1.0, on="o")
    assert "holds an object in row 0 (label 0), but coordinates must be num" in text
    assert "name columns of numbers with on=" in text


def test_shapes_are_replaced_by_their_centroids_as_told():
    df = pd.DataFrame({"o": [Polygon(0.0, 0.0), Polygon(0.0, 1.0), Polygon(9.0, 9.0)]})
    text = told(CoordinateError, df.simjoin.self_join, 1.0, on="o")
    assert "holds a Polygon in row 0 (label 0)" in text and "Shapes cannot be" in text
    assert repaired(text, df).simjoin.count_pairs(1.0, on="o") == 1


def test_dates_are_converted_to_seconds_as_told():
    days = [datetime.date(2020, 1, day) for day in (1, 2, 4)]
    df = pd.DataFrame({"o": pd.Series(days, dtype=object)})
    text = told(CoordinateError, df.simjoin.count_pairs, 86_400, on="o")
    assert "use on= with the other columns and within={'o': '1 d'}" in text
    assert repaired(text, df).simjoin.count_pairs(86_400, on="o") == 1


def test_a_tolerance_in_time_is_no_distance():
    df = pd.DataFrame({"t": pd.date_range("2020", periods=3)})
    text = told(OptionError, df.simjoin.count_pairs, "1 d", on="t")
    assert "For a tolerance in time, use within= with the column of times, and" in text
    assert eval(
        TIMES_ALONE.partition("such as ")[2].partition(". With")[0],
        {"df": df.rename(columns={"t": "time"})},
    ).tolist() == [0, 86_400, 172_800]
    text = told(ColumnError, df.simjoin.dbscan, 1, within={"t": "1 h"})
    assert text.endswith(TIMES_ALONE)
    text = told(OptionError, df.simjoin.count_pairs, "1 km", on="t")
    assert "in time" not in text


def test_columns_of_other_dtypes_are_named():
    df = pd.DataFrame({"a": np.array([1.0], np.longdouble), "b": ["1"]})
    text = told(ColumnError, df.simjoin.count_pairs, 1.0)
    assert f"(columns: 'a' of dtype {df['a'].dtype}, 'b' of dtype" in text


def test_a_number_as_an_object_is_no_list():
    df = pd.DataFrame({"o": pd.Series([Decimal(1), Decimal(2)], dtype=object)})
    text = told(CoordinateError, df.simjoin.count_pairs, 1.0, on="o")
    assert (
        "holds a Decimal in row 0 (label 0), but coordinates must have a dtype" in text
    )
    assert repaired(text, df).simjoin.count_pairs(1.0, on="o") == 1


@pytest.mark.parametrize(
    ("on", "meant"),
    [
        ("x,y", "['x', 'y']"),
        ("x y", "['x', 'y']"),
        ("['x', 'y']", "['x', 'y']"),
        ("name", "'name_x' or 'name_y'"),
        ("X", "'x'"),
        ("7", "7, without quotes"),
    ],
)
def test_columns_that_are_meant(on, meant):
    df = pd.DataFrame(
        {"x": [0.0, 1.0], "y": [0.0, 0.0], "name_x": 1, "name_y": 2, 7: 1.0}
    )
    assert f"which is not a column (did you mean {meant}?);" in told(
        ColumnError, df.simjoin.count_pairs, 1, on=on
    )


@pytest.mark.parametrize("lazy", [False, True])
def test_the_name_of_the_index_is_no_column(lazy):
    df = FRAME.set_index("x")
    if lazy:
        df = dd.from_pandas(df, npartitions=2)
    for option in ("on", "by", "keep"):
        text = told(
            ColumnError, df.simjoin.self_join, 1.0, **{"on": "radii", option: "x"}
        )
        assert (
            f"{option}= names 'x', which is not a column, but the name of the index; "
            "use frame.reset_index() to make it a column" in text
        )
    found = df.reset_index().simjoin.count_pairs(1.0, on="x")
    assert (found.compute() if lazy else found) == 2


@pytest.mark.parametrize("keep", [True, "all", "*"])
def test_all_columns_are_kept_by_their_names(keep):
    text = told(ColumnError, FRAME.simjoin.self_join, 1.0, on="x", keep=keep)
    assert (
        f"keep= names {keep!r}, which is not a column; all are kept by "
        "keep=list(df.columns); the" in text
    )
    assert FRAME.simjoin.self_join(1.0, on="x", keep=list(FRAME.columns)).shape == (
        2,
        8,
    )
    left, right = FRAME, FRAME[["x"]].assign(new=7)
    text = told(ColumnError, left.simjoin.join, right, 1.0, on="x", keep=keep)
    assert (
        "all are kept by keep=list(left.columns.union(right.columns, sort=False));"
        in text
    )
    every = list(left.columns.union(right.columns, sort=False))
    kept = left.simjoin.join(right, 1.0, on="x", keep=every)
    assert {"x_left", "x_right", "name", "new"} <= set(kept.columns)


def test_texts_are_compared_as_sets():
    text = told(ColumnError, FRAME.simjoin.self_join, 1.0, on=["x", "name"])
    assert "edit_self_join('name', k=2) or set_self_join('name', 0.8, tokeni" in text
    assert len(FRAME.simjoin.edit_self_join("name", k=2)) == 6
    assert len(FRAME.simjoin.set_self_join("name", 0.8, tokenizer="words")) == 0
    if HAS_TEXTS:
        assert "convert-string" not in told(
            ColumnError, TEXTS.simjoin.self_join, 1.0, on="name"
        )
    lazy = dd.from_pandas(FRAME, npartitions=1)
    assert "convert-string" in told(ColumnError, lazy.simjoin.self_join, 1.0, on="name")


def test_texts_are_told_how_they_become_numbers():
    text = told(ColumnError, FRAME[["name"]].simjoin.self_join, 1.0)
    assert "such as Decimal, convert these columns: df.astype({...: 'float64'})" in text
    if HAS_TEXTS:
        text = told(ColumnError, TEXTS.simjoin.set_self_join, "name", 0.8)
        assert "tokenizer=" in text and "convert-string" not in text


@pytest.mark.parametrize(
    "names", [["lng", "lat"], ["ra", "dec"], ["Longitude", "Latitude"]]
)
def test_longitudes_before_latitudes(names):
    df = pd.DataFrame({name: [0.0, 1.0] for name in names})
    text = told(
        ColumnError, df.simjoin.count_pairs, 1000.0, on=names, metric="haversine"
    )
    assert f"are in the opposite order; use on=[{names[1]!r}, {names[0]!r}]" in text
    assert df.simjoin.count_pairs(1000.0, on=names[::-1], metric="haversine") == 0


def test_categories_are_named_by_by():
    df = FRAME.astype({"name": "category"})
    assert "use by='name'" in told(
        ColumnError, df.simjoin.self_join, 1.0, on=["x", "name"]
    )
    assert df.simjoin.count_pairs(1.0, on="x", by="name") == 0


@pytest.mark.parametrize(
    ("eps", "remedy"),
    [
        ("0.1", "such as 0.1 without quotes"),
        ("0,25", "use a decimal point: eps=0.25. A distance is a finite number >= 0."),
        (
            "1,000 m",
            "eps='1.000 m' (or eps='1000 m' if the comma separates thousands).",
        ),
        ("1e-3", "such as 0.001 without quotes"),
        ("0.123456789", "such as 0.123456789 without quotes"),
        (Decimal("0.1"), "such as float(eps)"),
        (datetime.timedelta(seconds=1), "in the unit of the column"),
        (
            [1.0, 2.0],
            ">= 0. For one distance per row, make it a column: frame = frame.",
        ),
        (pd.Series([1.0] * 40), ">= 0. For one distance per row, make it a column"),
        (dd.from_pandas(FRAME, npartitions=1)["x"].std(), "such as eps.compute()"),
        (dask.delayed(1.0), "such as eps.compute()"),
    ],
)
def test_distances_that_are_no_numbers(eps, remedy):
    text = told(OptionTypeError, FRAME.simjoin.self_join, eps, on="x")
    assert (
        ("is not a number; use" in text or "has a decimal comma; use" in text)
        and "a finite number >= 0" in text
        and remedy in text
        and "\n" not in text
    )


@pytest.mark.parametrize("eps", ["1e400", "inf", "nan", "-1"])
def test_numbers_that_are_not_allowed_are_not_recommended(eps):
    text = told(OptionTypeError, FRAME.simjoin.self_join, eps, on="x")
    assert "finite number >= 0, or for one" in text and "quotes" not in text


@pytest.mark.parametrize(
    "verb", ["dbscan", "near_duplicated", "drop_near_duplicates", "neighbor_graph"]
)
def test_verbs_that_take_one_distance_say_so(verb):
    options = {"min_samples": 2} if verb == "dbscan" else {}
    text = told(
        OptionTypeError, getattr(FRAME.simjoin, verb), [1.0, 2.0], on="x", **options
    )
    assert text == "eps=[1.0, 2.0] is not a number; use a finite number >= 0."


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (
            "a.parquet",
            "Read files first, for example with dask.dataframe.read_parquet()",
        ),
        ([FRAME, FRAME], "Combine tables first, with pandas.concat()"),
        ([[0.0], [1.0]], "Use pandas.DataFrame(...) to make a frame from lists."),
        (sparse(), "Make a sparse matrix dense first: pandas.DataFrame(x.toarray())."),
        (FRAME["x"], "Use .to_frame() to make a frame from one column"),
    ],
    ids=["path", "frames", "lists", "sparse", "series"],
)
def test_what_makes_a_frame(given, remedy):
    assert remedy in told(UnsupportedFrameError, dask_simjoin.self_join, given, 1.0)
    text = told(UnsupportedFrameError, FRAME.simjoin.join, given, 1.0)
    assert remedy in text and "Use join(other, eps)" in text and "\n" not in text
    assert told(UnsupportedFrameError, dask_simjoin.self_join, 1.0, FRAME).endswith(
        "The frame comes first."
    )


def test_two_tables_without_a_name_in_common_are_listed():
    text = told(ColumnError, FRAME.simjoin.join, pd.DataFrame({"a": [1.0]}), 1.0)
    assert (
        "The columns are 'x', 'name', 'radii' of the left table, and 'a' of the right "
        "one." in text
    )


@pytest.mark.parametrize(
    ("verb", "option", "remedy"),
    [
        (
            "self_join",
            "similarity",
            "use metric='cosine' and eps=0, which is one minus",
        ),
        ("self_join", "max_rows", ".head(n)"),
        ("drop_near_duplicates", "inplace", "the frame does not change"),
        ("drop_near_duplicates", "subset", "did you mean 'on'?"),
        ("neighbor_counts", "keep", "one value per row"),
        ("count_pairs", "keep", "use self_join(..., keep=...). For a number per row,"),
        ("count_set_pairs", "keep", "For a number per row, use set_neighbor_counts()"),
        ("set_self_join", "return_distance", "did you mean 'return_similarity'?"),
        ("knn_join", "return_distance", "knn_join() always returns distances"),
        ("knn_join", "direction", "use within={'time': ('-1 h', '0 h')}"),
        (
            "set_self_join",
            "before",
            "dbscan(), optics(), near_duplicated() and drop_near",
        ),
        ("self_join", "boxsize", "use box=L, or a length for each column"),
        ("dbscan", "Periodic", "such as box=[10, 10, None]"),
        ("hdbscan", "box", "drop_near_duplicates() take box=."),
        ("hdbscan", "within", "Only self_join(), join(), knn_join(), "),
        ("closest_pairs", "box", "use knn_join(k=10, max_distance=..., box=...)."),
        ("self_join", "how", "use drop_near_duplicates(..., keep=False)."),
        ("edit_self_join", "how", "use drop_edit_near_duplicates(..., keep=False)."),
        ("self_join", "tolerance", "use within={'time': '10 min'}"),
        ("edit_self_join", "unless", "take different=."),
        ("count_pairs", "other", "knn_join() and neighbor_counts() compare two tables"),
        ("dbscan", "eps2", "use within={'time': '10 min'}"),
        ("dbscan", "min_points", "did you mean 'min_samples'?"),
        ("edit_self_join", "ignore_case", "df['name'].str.casefold()"),
        ("dbscan", "sample_weight", "DBSCAN(eps).fit(frame, sample_weight=...)"),
        ("self_join", "w", "w ** 0.5 with metric='euclidean', w with 'manhattan'"),
        ("knn_join", "weights", "and w ** (1 / p) with 'minkowski'"),
        ("dbscan", "weight", "DBSCAN(eps).fit(frame, sample_weight=...)"),
        ("dbscan", "weights", "DBSCAN(eps).fit(frame, sample_weight=...)"),
        ("self_join", "predicate", "always within the distance eps="),
        ("self_join", "one_to_one", "with matching='greedy'"),
        ("self_join", "matching", "use knn_join(other, 1, mutual=True)"),
        ("self_join", "best", "use knn_join(other, 1), or within one table knn_join("),
        ("edit_self_join", "limit", "use best=n in set_join(), edit_join(), set_self"),
        ("self_join", "left_keep", "as in keep={'left': 'name', 'right': ["),
        ("neighbor_counts", "left_keep", "one value per row"),
    ],
)
def test_what_there_is_in_place_of_an_option(verb, option, remedy):
    text = told(OptionTypeError, getattr(FRAME.simjoin, verb), 1.0, **{option: 1})
    start = f"{verb}() has no option {option!r}"
    assert text.startswith((f"{start} (did", f"{start}. ")) and remedy in text


def test_a_percentage_is_no_distance():
    text = told(OptionTypeError, FRAME.simjoin.self_join, "5 %", on="x")
    assert "use within=, such as within={'radii': '5 %'}" in text


def test_what_there_is_in_place_of_a_metric():
    text = told(
        OptionError, FRAME.simjoin.self_join, 1.0, on="x", metric="inner_product"
    )
    assert (
        "metric='inner_product' is not allowed" in text
        and "metric='cosine' with eps=1-s" in text
    )
    text = told(OptionError, FRAME.simjoin.self_join, 1.0, on="x", metric="Jaccard")
    assert "Use set_self_join() to compare sets" in text
    text = told(OptionError, FRAME.simjoin.self_join, 1.0, on="x", method="kd_tree")
    assert (
        "method='kd_tree' is not allowed" in text
        and "All methods find the same pairs" in text
    )
    text = told(
        OptionError, FRAME.simjoin.set_self_join, "name", 0.8, similarity="levenshtein"
    )
    assert "similarity='levenshtein' is not allowed" in text and "('qgrams', 3)" in text


def test_sets_whose_arguments_changed_places():
    text = told(OptionTypeError, FRAME.simjoin.set_self_join, 0.8, "name")
    remedy = "set_self_join('name', 0.8, tokenizer='words')"
    assert f"The arguments are swapped: use {remedy}." in text
    assert len(eval(f"frame.simjoin.{remedy}", {"frame": FRAME})) == 0
    assert "(divide percents by 100)" in told(
        OptionTypeError, FRAME.simjoin.set_self_join, "name", "80%"
    )
    text = told(
        OptionError, FRAME.simjoin.set_self_join, "name", 0.8, tokenizer=("qgram", 3)
    )
    assert "did you mean 'qgrams'?" in text


def test_the_accessor_says_what_it_has():
    for frame in (FRAME, dd.from_pandas(FRAME, npartitions=1)):
        text = repr(frame.simjoin)
        assert (
            f"DataFrame: {min(VERBS)}, " in text
            and "help(frame.simjoin.self_join)" in text
        )


def test_an_option_that_was_given_is_not_suggested():
    text = told(OptionTypeError, FRAME.simjoin.self_join, on="x", tolerance=1.0)
    assert "(did you mean 'eps'?)" in text
    text = told(OptionTypeError, FRAME.simjoin.self_join, eps=1.0, tolerance="10 min")
    assert "use within={'time': '10 min'}" in text and "eps" not in text


def test_a_comma_in_a_distance_is_the_whole_message():
    text = told(OptionTypeError, FRAME.simjoin.self_join, "0,25 km", on="x")
    assert text == (
        "eps='0,25 km' has a decimal comma; use a decimal point: eps='0.25 km'. A distance "
        "is a finite number >= 0. With metric='haversine' it is in meters, or text with a "
        "unit, such as '0.25 km'."
    )
    frame = pd.DataFrame({"lat": [0.0, 0.001], "lon": 0.0})
    found = re.search(r"use a decimal point: (eps='.*?')", text)[1]
    join = f"frame.simjoin.count_pairs({found}, metric='haversine')"
    assert eval(join, {"frame": frame}) == 1


def test_rows_of_an_outer_join_are_those_of_two_joins():
    text = told(OptionError, FRAME.simjoin.knn_join, FRAME, 1, how="outer")
    other = "other.simjoin.knn_join(frame, k, how='leftanti')"
    assert text.endswith(f"Or use how='left', and add the rows of {other}.")


@pytest.mark.parametrize("how", ["right", "outer"])
def test_right_rows_are_counted_by_one_distance_without_losses(how):
    frame = FRAME.assign(r=1.0)
    text = told(OptionError, frame.simjoin.join, frame, "r", on="x", how=how)
    assert text.startswith(f"how={how!r} is not allowed with eps='r', a column")
    lossy = {"method": "kmeans", "approximate": True}
    text = told(OptionError, frame.simjoin.join, frame, 1, on="x", how=how, **lossy)
    assert text.startswith(f"how={how!r} is not allowed with approximate=True")


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("precomputed", "If you have pairs, use connected_components()"),
    ],
)
def test_metrics_without_coordinates(metric, said):
    assert said in told(OptionError, FRAME.simjoin.self_join, 1.0, metric=metric)


def test_pairs_of_texts_and_sets_are_filtered_by_further_columns():
    frame = pd.DataFrame(
        {"t": ["ab", "ac", "ad"], "p": [1.0, 1.5, 9.0], "g": [1, 1, 2]}
    )
    text = told(OptionTypeError, frame.simjoin.edit_self_join, "t", 1, within={"p": 1})
    assert "take within=. Keep the columns with keep=['p'], and filter" in text
    pairs = frame.simjoin.edit_self_join("t", 1, keep=["p", "g"])
    chosen = "filter the pairs (without best=, which chooses before the filter): "
    near = text.partition(chosen)[2][:-1].replace("...", "1")
    assert eval(near, {"pairs": pairs})["right"].tolist() == [1]
    how = {"threshold": 0.1, "tokenizer": ("qgrams", 1)}
    text = told(OptionTypeError, frame.simjoin.set_self_join, "t", by="g", **how)
    same = text.partition(chosen)[2][:-1]
    assert eval(same, {"pairs": pairs})["right"].tolist() == [1]


def test_a_column_of_groups_in_one_table_has_a_remedy():
    homes = pd.DataFrame({"x": [0.0, 5.0]})
    shops = pd.DataFrame({"x": [1.0, 6.0, 9.0], "kind": ["a", "b", "a"]})
    how = {"k": 1, "by": "kind", "max_distance": 10, "on": "x"}
    text = told(ColumnError, homes.simjoin.knn_join, shops, **how)
    some = text.partition("once per value: with ")[2].partition(", and without by=")[0]
    rows = eval(some, {"other": shops, "value": "b"})
    assert homes.simjoin.knn_join(rows, 1, on="x")["distance"].tolist() == [6.0, 1.0]
    text = told(ColumnError, homes.simjoin.knn_join, homes, **how)
    assert "once per value" not in text


PAIRS = pd.DataFrame(
    {"price_left": [10.0, 10.0, -5.0], "price_right": [12.5, 12.6, -5.0]}
)


@pytest.mark.parametrize(
    ("tolerance", "found"), [("20 %", [0, 2]), (2.5, [0, 2]), ("...", None)]
)
def test_pairs_are_filtered_by_the_tolerance_as_told(tolerance, found):
    within = {"price": (-1, 0) if found is None else tolerance}
    for verb in ("edit_self_join", "drop_edit_near_duplicates"):
        text = told(
            OptionTypeError, getattr(FRAME.simjoin, verb), "name", 1, within=within
        )
        code = re.search(r"pairs\[.*?\.abs\(\) <= .*?\](?=\.$|\. Then)", text)[0]
        if found is None:
            assert code.endswith("<= ...]")
            continue
        kept = eval(code, {"pairs": PAIRS, "numpy": np})
        assert kept.index.tolist() == found
    assert "keep one row of each group: groups = dask_simjoin.connected_comp" in text


def test_guessed_verbs():
    for name, use in (
        ("fuzzy_join", "did you mean 'edit_join'?"),
        ("cluster", "For clusters use dbscan(eps), or hdbscan() without a distance."),
        ("dedupe", "did you mean 'drop_near_duplicates'?"),
    ):
        assert use in told(AttributeError, getattr, FRAME.simjoin, name)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_frame_joined_with_itself(lazy):
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0], "t": ["a", "b", "cd"]})
    df = dd.from_pandas(frame, npartitions=1) if lazy else frame
    for call, use in (
        (lambda: df.simjoin.join(df, 1.0, on="x", how="leftanti"), "drop_near_dup"),
        (lambda: df.simjoin.edit_join(df, on="t", k=1, best=True), "edit_self_join("),
    ):
        with pytest.warns(SimJoinWarning, match=re.escape(use)) as caught:
            call()
        assert caught[0].filename == __file__
    df.simjoin.join(df, 1.0, on="x", how="leftanti", different="t")
