"""Wrong options are refused at the call, before any partition is computed."""

import contextlib
import datetime
import decimal
import re
from fractions import Fraction

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin
from dask_simjoin import errors
from dask_simjoin.errors import (
    ColumnError,
    ColumnsWarning,
    OptionError,
    OptionTypeError,
    UnsupportedFrameError,
)
from tests.support.frames import computed
from tests.support.oracle import as_set

VERBS = ["self_join", "neighbor_counts", "count_pairs"]
HUGE = 10**400


def never(_):
    raise AssertionError("a partition was computed")


def lay(frame, how):
    """The frame itself, or a Dask DataFrame like it whose partitions cannot be
    computed.
    """
    if how == "pandas":
        return frame
    return dd.from_map(never, range(3), meta=frame.iloc[:0])


@pytest.fixture(params=["pandas", "dask"])
def how(request):
    """A plain frame, or one of three partitions."""
    return request.param


@pytest.fixture(params=VERBS)
def verb(request):
    """Every verb that takes eps."""
    return request.param


@pytest.fixture
def places():
    """Four places; the first three lie in a row, 1 apart."""
    return pd.DataFrame(
        {
            "longitude": [0.0, 1.0, 2.0, 9.0],
            "latitude": [0.0, 0.0, 0.0, 0.0],
            "name": list("abcd"),
            "seen": [True, False, True, False],
        }
    )


def call(frame, verb, *args, **options):
    return getattr(frame.simjoin, verb)(*args, **options)


def test_frames_of_this_file_do_raise_when_they_are_computed(places):
    ddf = lay(places, "dask")
    pairs = ddf.simjoin.self_join(1.0)
    with pytest.raises(AssertionError, match="a partition was computed"):
        pairs.compute()


def test_a_call_computes_nothing(places, verb):
    ddf = lay(places, "dask")
    result = call(ddf, verb, 1.0, on=["longitude", "latitude"])
    if verb == "self_join":
        assert list(result.columns) == ["left", "right"]
        assert result.dtypes.tolist() == [np.dtype("int64")] * 2
    elif verb == "neighbor_counts":
        assert (result.name, result.dtype) == ("neighbors", np.dtype("int64"))
    assert isinstance(ddf.simjoin.with_row_id(), dd.DataFrame)


# --- eps
# ------------------------------------------------------------------------------------------


def plain(value):
    """Format a value; scalars of NumPy as those of Python."""
    is_scalar = isinstance(value, np.generic) and value.dtype.kind != "m"
    return repr(value.item() if is_scalar else value)


@pytest.mark.parametrize(
    "eps",
    [
        -1,
        -1e-300,
        Fraction(-1, 3),
        np.int8(-1),
        float("nan"),
        np.float32("nan"),
        float("inf"),
        -np.inf,
    ],
    ids=repr,
)
def test_eps_must_be_finite_and_not_negative(places, how, verb, eps):
    with pytest.raises(
        OptionError,
        match=rf"eps={re.escape(plain(eps))} is not allowed; use a finite number >= 0",
    ):
        call(lay(places, how), verb, eps)


@pytest.mark.parametrize(
    "eps",
    [
        "1",
        b"1",
        None,
        True,
        False,
        np.True_,
        1j,
        [1.0],
        (1.0,),
        {"eps": 1.0},
        np.array(1.0),
        pd.NA,
        decimal.Decimal(1),
        datetime.timedelta(1),
        np.timedelta64(1, "s"),
        np.timedelta64(1, "ns"),
    ],
    ids=repr,
)
def test_eps_must_be_a_number(places, how, verb, eps):
    if verb != "self_join" and isinstance(eps, list | tuple | dict):
        pytest.skip("of counts several are asked for")
    with pytest.raises(
        OptionTypeError,
        match=rf"eps={re.escape(plain(eps))} is not a number; use a finite number >= 0",
    ):
        call(lay(places, how), verb, eps)


@pytest.mark.parametrize(
    "eps", [HUGE, -HUGE, 10**5000], ids=["10**400", "-10**400", "10**5000"]
)
def test_eps_beyond_float64(places, how, eps):
    """Python refuses to print integers of more than 4300 digits."""
    with pytest.raises(
        OptionError, match=r"eps=.* is not allowed; use a finite number >= 0"
    ) as caught:
        lay(places, how).simjoin.self_join(eps)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", ["pandas", "dask"])
def test_eps_that_is_a_frame_is_not_printed_whole(places, name):
    eps = (
        pd.concat([places] * 30)
        if name == "pandas"
        else lay(places, "dask").longitude.std()
    )
    text = "is a data frame" if name == "pandas" else "is not a number; use a finite"
    with pytest.raises(OptionTypeError, match=text) as caught:
        places.simjoin.self_join(eps)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "eps",
    [
        1,
        1.0,
        np.float16(1),
        np.float32(1),
        np.float64(1),
        np.longdouble(1),
        np.int8(1),
        np.uint64(1),
        Fraction(1),
    ],
    ids=lambda eps: type(eps).__name__,
)
def test_any_real_number_is_an_eps(places, eps):
    assert as_set(places.simjoin.self_join(eps)) == {(0, 1), (1, 2)}
    assert places.simjoin.neighbor_counts(eps).tolist() == [1, 2, 1, 0]
    assert places.simjoin.count_pairs(eps) == 2


def test_eps_is_converted_to_float64_exactly_as_float_does():
    tenth = np.float32(0.1)  # a little more than 0.1
    frame = pd.DataFrame({"x": [0.0, 0.1, 2 * float(tenth)]})
    assert as_set(frame.simjoin.self_join(tenth)) == {(0, 1)}
    assert as_set(frame.simjoin.self_join(0.1)) == {(0, 1)}
    assert as_set(
        pd.DataFrame({"x": [0.0, float(tenth)]}).simjoin.self_join(tenth)
    ) == {(0, 1)}
    assert (
        as_set(pd.DataFrame({"x": [0.0, float(tenth)]}).simjoin.self_join(0.1)) == set()
    )
    assert as_set(
        pd.DataFrame({"x": [0.0, 1 / 3]}).simjoin.self_join(Fraction(1, 3))
    ) == {(0, 1)}


def test_minus_zero_is_zero(places):
    assert places.simjoin.count_pairs(-0.0) == 0


# --- on
# -------------------------------------------------------------------------------------------


def test_on_names_no_column(places, how, verb):
    text = (
        r"on= names 'longitud', which is not a column \(did you mean 'longitude'\?\); the columns are "
        r"'longitude', 'latitude', 'name', 'seen'\."
    )
    for on in ("longitud", ["latitude", "longitud"]):
        with pytest.raises(ColumnError, match=text):
            call(lay(places, how), verb, 1.0, on=on)


@pytest.mark.parametrize("name", ["zzz", 3, None, ("longitude", "latitude")], ids=repr)
def test_on_names_no_column_and_none_is_alike(places, how, name):
    with pytest.raises(
        ColumnError,
        match=rf"on= names {re.escape(repr(name))}, which is not a column; the columns",
    ):
        lay(places, how).simjoin.self_join(1.0, on=[name])


def test_on_names_no_column_of_many(how):
    wide = pd.DataFrame(np.zeros((2, 100)), columns=[f"c{k:02}" for k in range(100)])
    with pytest.raises(
        ColumnError, match=r"'c00', 'c01', .* 'c11' and 88 more\."
    ) as caught:
        lay(wide, how).simjoin.self_join(1.0, on="zzz")
    assert "'c12'" not in str(caught.value)


@pytest.mark.parametrize(
    "on",
    [[], (), np.array([], object), pd.Index([])],
    ids=["list", "tuple", "array", "Index"],
)
def test_on_is_empty(places, how, verb, on):
    with pytest.raises(
        ColumnError,
        match=r"names no column; name at least one, or leave out on= for all numeric",
    ):
        call(lay(places, how), verb, 1.0, on=on)


def test_on_repeats_a_column(places, how, verb):
    with pytest.raises(
        ColumnError, match="on= names 'latitude' more than once; name each column once"
    ):
        call(lay(places, how), verb, 1.0, on=["latitude", "longitude", "latitude"])


@pytest.mark.parametrize("on", [[["longitude"]], [{"longitude"}], [{}]], ids=repr)
def test_on_holds_what_no_column_can_be_called(places, how, on):
    with pytest.raises(
        ColumnError, match=rf"{re.escape(repr(on[0]))} cannot be the name of a column"
    ):
        lay(places, how).simjoin.self_join(1.0, on=on)


NOT_NUMBERS = {
    "string": pd.Series(list("abcd"), dtype="string"),
    "category": pd.Series(pd.Categorical([1, 2, 3, 4])),
    "datetime": pd.Series(pd.date_range("2020", periods=4)),
    "datetime with zone": pd.Series(pd.date_range("2020", periods=4, tz="UTC")),
    "timedelta": pd.Series(pd.to_timedelta([1, 2, 3, 4], unit="s")),
    "period": pd.Series(pd.period_range("2020", periods=4, freq="D")),
    "interval": pd.Series(pd.interval_range(0, 4)),
    "complex": pd.Series([1j, 2, 3, 4]),
    "longdouble": pd.Series(np.arange(4, dtype=np.longdouble)),
    "Arrow decimal": pd.Series(
        [decimal.Decimal(1)] * 4, dtype=pd.ArrowDtype(pa.decimal128(9, 2))
    ),
    "Arrow string": pd.Series(list("abcd"), dtype=pd.ArrowDtype(pa.string())),
    "Arrow timestamp": pd.Series(
        pd.date_range("2020", periods=4), dtype=pd.ArrowDtype(pa.timestamp("us"))
    ),
    "Arrow list of strings": pd.Series(
        [["a"]] * 4, dtype=pd.ArrowDtype(pa.list_(pa.string()))
    ),
}
text = pd.Series(list("abcd"))
if text.dtype != object:  # of pandas 3
    NOT_NUMBERS["str"] = text
MAYBE_LISTS = {
    "object": pd.Series([1, 2, 3, 4], dtype=object),
    "Arrow list": pd.Series(
        [[1.0, 2.0]] * 4, dtype=pd.ArrowDtype(pa.list_(pa.float64()))
    ),
}


@pytest.mark.parametrize("kind", NOT_NUMBERS)
def test_on_names_a_column_that_holds_no_real_numbers(how, kind):
    frame = lay(pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0], "c": NOT_NUMBERS[kind]}), how)
    dtype = re.escape(str(frame.dtypes["c"]))
    what = "numbers"
    if kind in ("Arrow decimal", "complex", "longdouble"):
        what = "integers or floats of at most 64 bits"
        what += ", not decimal numbers" if kind == "Arrow decimal" else ""
    text = rf"on= names 'c' of dtype {dtype}, but coordinates must be {what}\. .*"
    times = {
        "M": r"df\['c'\] = \(df\['c'\] - df\['c'\]\.min\(\)\)\.dt\.total_seconds",
        "m": r"df\['c'\] = df\['c'\]\.dt\.total_seconds",
    }
    own = {
        "period": r"To count periods: df\['c'\] = df\['c'\]\.astype\('int64'\)",
        "interval": r"df\['c'\] = pd\.IntervalIndex\(df\['c'\]\)\.mid",
        "Arrow list of strings": r"df\['c'\] = df\['c'\]\.astype\(pd\.ArrowDtype",
    }
    if kind in own:
        text += own[kind]
    elif kind in ("Arrow string", "str", "string"):
        text += r"df\['c'\] = pd\.to_numeric\(df\['c'\], errors='coerce'\)"
    elif kind == "complex":
        text += r"numpy\.real\(df\['c'\]\)"
    else:
        text += times.get(NOT_NUMBERS[kind].dtype.kind, r".*\.astype\('float64'\)")
    for on in (["x", "c"], "c"):
        with pytest.raises(ColumnError, match=text):
            frame.simjoin.self_join(1.0, on=on)


@pytest.mark.parametrize("kind", [*NOT_NUMBERS, *MAYBE_LISTS])
def test_columns_that_hold_no_real_numbers_are_left_out_by_default(kind):
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, 2.0, 9.0], "c": (NOT_NUMBERS | MAYBE_LISTS)[kind]}
    )
    warned = ("object", "complex", "longdouble", "Arrow decimal")
    objects = (
        pytest.warns(ColumnsWarning) if kind in warned else contextlib.nullcontext()
    )
    with objects:
        assert as_set(frame.simjoin.self_join(1.0)) == {(0, 1), (1, 2)}


def test_there_is_no_numeric_column(how, verb):
    frame = pd.DataFrame({"name": list("ab"), "seen": [True, False], "row_id": [0, 1]})
    text = (
        r"no numeric column to join on besides ids and booleans \(columns: 'name' of dtype .*, "
        r"'seen' of dtype bool, 'row_id' of dtype int64\); "
        r"name the coordinates with on=\[\.\.\.\]"
    )
    with pytest.raises(ColumnError, match=text):
        call(lay(frame, how), verb, 1.0)


def test_there_is_no_column(how, verb):
    with pytest.raises(ColumnError, match="no numeric column to join on"):
        call(lay(pd.DataFrame(index=[0, 1]), how), verb, 1.0)


def test_the_only_numeric_column_is_the_id(how):
    frame = pd.DataFrame({"name": list("ab"), "key": [0, 1]})
    with pytest.raises(ColumnError, match=r"no numeric column to join on besides ids"):
        lay(frame, how).simjoin.self_join(1.0, id="key")


@pytest.mark.parametrize(
    "on",
    [
        "longitude",
        ["longitude"],
        ("longitude",),
        np.array(["longitude"]),
        pd.Index(["longitude"]),
        np.str_("longitude"),
        {"longitude": None},
        iter(["longitude"]),
    ],
    ids=lambda on: type(on).__name__,
)
def test_on_may_be_one_name_or_any_list_of_names(places, on):
    assert as_set(places.simjoin.self_join(1.0, on=on)) == {(0, 1), (1, 2)}


@pytest.mark.parametrize("how", ["pandas", "dask"])
def test_names_of_columns_may_be_tuples(how):
    frame = pd.DataFrame({0: [0.0, 1.0, 9.0], 1: [0.0, 5.0, 0.0]})
    frame.columns = pd.Index([("a", "x"), ("a", "y")], tupleize_cols=False)
    data = frame if how == "pandas" else dd.from_pandas(frame, npartitions=2)
    for on in (("a", "x"), [("a", "x")]):
        assert computed(data.simjoin.count_pairs(1.0, on=on)) == 1
    assert computed(data.simjoin.count_pairs(1.0, on=[("a", "x"), ("a", "y")])) == 0
    assert computed(data.simjoin.count_pairs(1.0)) == 0


@pytest.mark.parametrize("how", ["pandas", "dask"])
def test_names_of_columns_may_be_numbers(how):
    frame = pd.DataFrame({0: [0.0, 1.0, 9.0], 1: [0.0, 5.0, 0.0], 2: [7, 8, 9]})
    data = frame if how == "pandas" else dd.from_pandas(frame, npartitions=2)
    pairs = data.simjoin.self_join(1.0, on=0, id=2)
    assert as_set(computed(pairs)) == {(7, 8)}
    assert computed(data.simjoin.count_pairs(1.0, on=[0, 1])) == 0
    with pytest.raises(
        ColumnError,
        match=r"on= names 7, which is not a column; the columns are 0, 1, 2\.",
    ):
        data.simjoin.self_join(1.0, on=[0, 7])


# --- id, and the columns as such
# ------------------------------------------------------------------


@pytest.mark.parametrize("id", ["key", 3, ("longitude", "latitude")], ids=repr)
def test_id_is_not_a_column(places, how, id):
    text = (
        rf"id={re.escape(repr(id))} is not a column; the columns are 'longitude', 'latitude', 'name', "
        r"'seen'\. Leave out id to name rows by their index labels"
    )
    with pytest.raises(ColumnError, match=text):
        lay(places, how).simjoin.self_join(1.0, id=id)


@pytest.mark.parametrize("id", [["name"], {}], ids=repr)
def test_id_is_what_no_column_can_be_called(places, how, id):
    with pytest.raises(
        ColumnError, match=rf"{re.escape(repr(id))} cannot be the name of a column"
    ):
        lay(places, how).simjoin.self_join(1.0, id=id)


def test_column_names_repeat(how, verb):
    frame = pd.DataFrame(np.zeros((2, 5)), columns=["x", "y", "x", "z", "y"])
    text = "several columns named 'x', 'y'; column names must be unique: rename or drop all but one"
    for on in (None, "z"):
        with pytest.raises(ColumnError, match=text):
            call(lay(frame, how), verb, 1.0, on=on)


def test_columns_are_a_multiindex(how, verb):
    frame = pd.DataFrame(
        np.zeros((2, 2)), columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    )
    text = r"columns are a MultiIndex, which cannot be joined on; flatten it, for example df\.columns = \['_'"
    for on in (None, ("a", "x"), "a"):
        with pytest.raises(ColumnError, match=text):
            call(lay(frame, how), verb, 1.0, on=on)


# --- metric, pairs, method, flags
# -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        (
            "metric",
            "one of 'euclidean', 'sqeuclidean', 'manhattan', 'chebyshev', 'minkowski', "
            "'cosine', ",
        ),
        ("pairs", "one of 'unique', 'both'"),
        ("method", "one of 'auto', 'sweep', 'tiles'"),
    ],
)
@pytest.mark.parametrize(
    "value", ["zzz", "", None, 1, True, ["both"], ("auto",), np.nan], ids=repr
)
def test_a_choice_is_not_one_of_those_allowed(places, how, name, allowed, value):
    text = rf"{name}={re.escape(repr(value))} is not allowed; use {allowed}"
    with pytest.raises(OptionError, match=text):
        lay(places, how).simjoin.self_join(1.0, **{name: value})


@pytest.mark.parametrize("name", ["metric", "method"])
def test_the_other_verbs_check_their_choices_too(places, how, verb, name):
    with pytest.raises(OptionError, match=rf"{name}='zzz' is not allowed"):
        call(lay(places, how), verb, 1.0, **{name: "zzz"})


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("pairs", "uniqe", "unique"),
        ("pairs", "bothh", "both"),
        ("metric", "Euclidean", "euclidean"),
        ("metric", "haversin", "haversine"),
        ("method", "tile", "tiles"),
        ("method", "swep", "sweep"),
    ],
)
def test_a_misspelt_choice(places, how, name, value, meant):
    with pytest.raises(
        OptionError, match=rf"{name}='{value}' .* \(did you mean '{meant}'\?\)"
    ):
        lay(places, how).simjoin.self_join(1.0, **{name: value})


@pytest.mark.parametrize(
    "p", [0, -1, 0.5, 2**31, HUGE, -np.inf, np.nan, Fraction(2, 3)], ids=str
)
def test_p_must_be_at_least_one(places, how, verb, p):
    with pytest.raises(
        OptionError,
        match=r"p=.* is not allowed; use a number from 1 to 2,147,483,647",
    ):
        call(lay(places, how), verb, 1.0, metric="minkowski", p=p)


@pytest.mark.parametrize("p", ["3", None, True, 1j, [3]], ids=repr)
def test_p_must_be_a_number(places, how, verb, p):
    with pytest.raises(
        OptionTypeError,
        match=rf"p={re.escape(repr(p))} is not a number; use a number",
    ):
        call(lay(places, how), verb, 1.0, metric="minkowski", p=p)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_p_is_of_minkowski(places, how, verb, metric):
    with pytest.raises(
        OptionError,
        match=rf"p=3 is only for metric='minkowski', not for metric='{metric}'",
    ):
        call(
            lay(places, how),
            verb,
            1.0,
            on=["latitude", "longitude"],
            metric=metric,
            p=3,
        )


@pytest.mark.parametrize(
    "p", [2, 2.0, np.int8(2), np.float32(2), Fraction(2)], ids=repr
)
def test_any_real_number_may_be_p(places, p):
    assert as_set(places.simjoin.self_join(1.0, metric="minkowski", p=p)) == {
        (0, 1),
        (1, 2),
    }
    assert as_set(places.simjoin.self_join(1.0, metric="euclidean", p=p)) == {
        (0, 1),
        (1, 2),
    }


def test_edges_of_optics_are_of_the_usual_metric(places, how):
    for metric in ("sqeuclidean", "cosine"):
        with pytest.raises(
            OptionError,
            match=rf"metric='{metric}' is not allowed in optics\(\).*mode='forest'",
        ):
            lay(places, how).simjoin.optics(1.0, metric=metric, mode="edges")
    lay(places, how).simjoin.optics(1.0, metric="minkowski", on="longitude")


def test_haversine_takes_two_columns_in_order(places, how, verb):
    frame = lay(places, how)
    for on, number in (("latitude", 1), (["latitude", "longitude", "seen"], 3)):
        with pytest.raises(
            ColumnError,
            match=rf"needs 2 columns, latitude and longitude, and on= names {number}",
        ):
            call(frame, verb, 1.0, metric="haversine", on=on)
    with pytest.raises(
        ColumnError, match=r"the opposite order; use on=\['latitude', 'longitude'\]"
    ):
        call(frame, verb, 1.0, metric="haversine")
    call(frame, verb, 1.0, metric="haversine", on=["latitude", "longitude"])


@pytest.mark.parametrize("name", ["include_self", "return_distance", "dropna"])
@pytest.mark.parametrize(
    "value", [1, 0, None, "True", "yes", [True], np.nan, pd.NA], ids=repr
)
def test_a_flag_is_not_true_or_false(places, how, name, value):
    with pytest.raises(
        OptionTypeError,
        match=rf"{name}={re.escape(repr(value))} is not allowed; use True or False",
    ):
        lay(places, how).simjoin.self_join(1.0, **{name: value})


def test_the_other_verbs_check_their_flags_too(places, how, verb):
    with pytest.raises(
        OptionTypeError, match="dropna=1 is not allowed; use True or False"
    ):
        call(lay(places, how), verb, 1.0, dropna=1)


@pytest.mark.parametrize("name", ["include_self", "return_distance", "dropna"])
@pytest.mark.parametrize("value", [True, False])
def test_a_flag_may_be_a_numpy_bool(places, name, value):
    by_numpy = places.simjoin.self_join(1.0, **{name: np.bool_(value)})
    pd.testing.assert_frame_equal(
        by_numpy, places.simjoin.self_join(1.0, **{name: value})
    )


def test_the_sweep_serves_four_columns(how, verb):
    frame = pd.DataFrame(np.zeros((2, 5)), columns=list("abcde"))
    text = "method='sweep' takes at most 4 columns, and on= names 5; use method='tiles' or 'grid' .*or 'auto'"
    for on in (None, list("edcba")):
        with pytest.raises(OptionError, match=text):
            call(lay(frame, how), verb, 1.0, on=on, method="sweep")
    call(lay(frame, how), verb, 1.0, on=list("abcd"), method="sweep")


# --- keywords and positions
# -----------------------------------------------------------------------

OPTIONS = {
    "self_join": "eps, on, metric, id, return_distance, distance_unit, keep, suffixes, "
    "by, within, different, pairs, include_self, dropna, p, box, threads, blocksize, "
    "partitioning, method, approximate",
    "neighbor_counts": "eps, other, on, left_on, right_on, metric, id, left_id, right_id, "
    "by, within, different, dropna, p, box, threads, blocksize, partitioning, method, approximate",
    "count_pairs": "eps, on, metric, id, by, within, different, pairs, include_self, "
    "dropna, p, box, threads, blocksize, partitioning, method, approximate",
}


def by_accessor(frame, verb, *args, **options):
    return getattr(frame.simjoin, verb)(*args, **options)


def by_function(frame, verb, *args, **options):
    return getattr(dask_simjoin, verb)(frame, *args, **options)


@pytest.mark.parametrize("by", [by_accessor, by_function])
class TestKeywords:
    def test_unknown(self, places, how, verb, by):
        with pytest.raises(
            OptionTypeError,
            match=rf"{verb}\(\) has no option 'zzz'; its options are {OPTIONS[verb]}\.",
        ):
            by(lay(places, how), verb, 1.0, zzz=1)

    @pytest.mark.parametrize(
        ("name", "meant"),
        [("metrics", "metric"), ("drop_na", "dropna"), ("Method", "method")],
    )
    def test_misspelt(self, places, how, verb, by, name, meant):
        with pytest.raises(
            OptionTypeError,
            match=rf"{verb}\(\) has no option '{name}' \(did you mean '{meant}'\?\)",
        ):
            by(lay(places, how), verb, 1.0, **{name: None})

    def test_option_of_another_verb(self, places, how, by):
        for verb, name in (
            ("neighbor_counts", "pairs"),
            ("count_pairs", "return_distance"),
        ):
            with pytest.raises(
                OptionTypeError,
                match=rf"{verb}\(\) has no option '{name}'(; its options are|\. )",
            ):
                by(lay(places, how), verb, 1.0, **{name: None})

    def test_options_by_position(self, places, how, verb, by):
        with pytest.raises(
            TypeError,
            match=rf"^{verb}\(.*eps\) got another .*, \['longitude'\]\. .*on=\['longitude'\]",
        ):
            by(lay(places, how), verb, 1.0, ["longitude"])

    def test_no_eps(self, places, how, verb, by):
        with pytest.raises(TypeError, match=rf"^eps= is missing: use {verb}\("):
            by(lay(places, how), verb, on="longitude")

    def test_eps_by_name(self, places, by):
        assert as_set(by(places, "self_join", eps=1.0)) == {(0, 1), (1, 2)}

    def test_with_row_id(self, places, how, by):
        with pytest.raises(
            OptionTypeError, match=r"with_row_id\(\) has no option 'names'.*\bname\b"
        ):
            by(lay(places, how), "with_row_id", names="key")


def test_columns_in_the_place_of_eps(places, how, verb):
    with pytest.raises(
        OptionTypeError, match=r"eps(=\[|\[0\]=)'longitude'\]? is not a number"
    ):
        call(lay(places, how), verb, ["longitude"])


# --- frames
# ---------------------------------------------------------------------------------------

NOT_FRAMES = {
    "Series": lambda df: df["longitude"],
    "Index": lambda df: df.set_index("longitude").index,
    "list": lambda df: df["longitude"].tolist(),
    "dict": lambda df: {"longitude": [0.0]},
    "NoneType": lambda df: None,
    "str": lambda df: "points.parquet",
    "DataFrameGroupBy": lambda df: df.groupby("seen"),
    "type": type,
}


@pytest.mark.parametrize("kind", NOT_FRAMES)
@pytest.mark.parametrize("verb", [*VERBS, "with_row_id"])
def test_not_a_frame(places, verb, kind):
    other = NOT_FRAMES[kind](places)
    args = () if verb == "with_row_id" else (1.0,)
    text = r"is not a data frame; use a Dask DataFrame or a pandas DataFrame"
    with pytest.raises(UnsupportedFrameError, match=text) as caught:
        getattr(dask_simjoin, verb)(other, *args)
    assert type(other).__name__ in str(caught.value)


@pytest.mark.parametrize("verb", [*VERBS, "with_row_id"])
def test_not_a_dask_dataframe(places, verb):
    ddf = lay(places, "dask")
    args = () if verb == "with_row_id" else (1.0,)
    for other in (ddf["longitude"], ddf.index, ddf["longitude"].sum()):
        with pytest.raises(
            UnsupportedFrameError,
            match=rf"{type(other).__name__} is not a data frame; use a Dask",
        ):
            getattr(dask_simjoin, verb)(other, *args)


def test_eps_and_frame_changed_places(places, verb):
    with pytest.raises(UnsupportedFrameError, match="float is not a data frame"):
        getattr(dask_simjoin, verb)(1.0, places)


def test_series_have_no_accessor(places):
    with pytest.raises(AttributeError, match="simjoin"):
        places["longitude"].simjoin  # noqa: B018
    with pytest.raises(AttributeError, match="simjoin"):
        lay(places, "dask")["longitude"].simjoin  # noqa: B018


class Places(pd.DataFrame):
    """A subclass as users write them, GeoPandas' for example."""

    @property
    def _constructor(self):
        return Places


# of pandas 2.2, to whatever is done with them
@pytest.mark.filterwarnings("ignore:Passing a BlockManager")
def test_subclasses_of_pandas_frames_are_frames(places, verb):
    expected = call(places, verb, 1.0)
    result = call(Places(places), verb, 1.0)
    if verb == "count_pairs":
        assert result == expected
    else:
        assert result.to_numpy().tolist() == expected.to_numpy().tolist()


# --- with_row_id
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["name", "latitude"])
def test_the_row_id_column_is_there_already(places, how, name):
    text = rf"name='{name}' is already a column of the frame; pass id='{name}', or choose another name"
    with pytest.raises(ColumnError, match=text):
        lay(places, how).simjoin.with_row_id(name)


def test_row_ids_are_added_twice(places, how):
    once = lay(places, how).simjoin.with_row_id()
    with pytest.raises(
        ColumnError,
        match="name='row_id' is already a column of the frame; pass id='row_id'",
    ):
        once.simjoin.with_row_id()
    assert "second" in once.simjoin.with_row_id("second").columns


@pytest.mark.parametrize("name", [5, None, ["key"], ("a", "b")], ids=repr)
def test_the_name_of_the_row_id_column_is_no_string(places, how, name):
    with pytest.raises(errors.SimJoinError, match=rf"name={re.escape(repr(name))}"):
        lay(places, how).simjoin.with_row_id(name)


def test_row_ids_for_a_multiindex_of_columns(how):
    frame = pd.DataFrame(
        np.zeros((2, 2)), columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    )
    with pytest.raises(ColumnError, match="columns are a MultiIndex"):
        lay(frame, how).simjoin.with_row_id()


def test_row_ids_for_a_frame_without_columns():
    ddf = lay(pd.DataFrame({"x": [0.0]}), "dask")[[]]
    with pytest.raises(
        ColumnError, match="has no column, so its rows cannot be numbered"
    ):
        ddf.simjoin.with_row_id()


# --- classes of errors
# ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.OptionError, ValueError),
        (errors.BudgetError, ValueError),
        (errors.OptionTypeError, TypeError),
        (errors.ColumnError, ValueError),
        (errors.CoordinateError, ValueError),
        (errors.ListError, ValueError),
        (errors.DuplicateIdError, ValueError),
        (errors.TokenError, ValueError),
        (errors.TextError, ValueError),
        (errors.SourceChangedError, RuntimeError),
        (errors.ScratchError, OSError),
        (errors.UnsupportedFrameError, TypeError),
    ],
)
def test_errors_are_what_users_of_pandas_catch(error, builtin):
    assert issubclass(error, errors.SimJoinError)
    assert issubclass(error, builtin)


def test_every_error_is_covered_above():
    defined = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.SimJoinError)
    }
    # besides those of indexes on disk, and of texts among numbers, which are in the data
    assert len(defined) == 15 + 5 + 1


def test_an_id_is_no_coordinate_of_counts_either(how):
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "key": [30, 10, 30]})
    data = dd.from_pandas(frame, npartitions=2) if how == "dask" else frame
    counts, number = (
        data.simjoin.neighbor_counts(1.0, id="key"),
        data.simjoin.count_pairs(1.0, id="key"),
    )
    assert (counts.compute() if how == "dask" else counts).tolist() == [1, 2, 1]
    assert (number.compute() if how == "dask" else number) == 2
    with pytest.raises(ColumnError, match="id='keys' is not a column"):
        data.simjoin.count_pairs(1.0, id="keys")


def test_columns_without_order(places, how):
    with pytest.raises(ColumnError, match=r"has no order.*use a list"):
        lay(places, how).simjoin.self_join(1.0, on={"longitude", "latitude"})
