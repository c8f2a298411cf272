"""Which values `by` takes for equal: those of Python, in frames of pandas and of Dask,
of any dtypes.
"""

import datetime
import itertools
from decimal import Decimal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.base import is_dask_collection

from dask_simjoin.errors import ColumnError
from tests.support.frames import computed, split
from tests.support.profiles import every_nth, everything, in_turns

DAYS = [
    datetime.date(2020, 1, 1),
    datetime.date(2020, 1, 2),
    None,
    datetime.date(2020, 1, 1),
]
TIMES = pd.to_datetime(pd.Series(DAYS))
SPANS = pd.Series(pd.to_timedelta([0, 1, None, 1], unit="D"))
CENTS = [Decimal("0.00"), Decimal("1.00"), None, Decimal("1.00")]
HOURS = [datetime.time(1), datetime.time(2), None, datetime.time(1)]


def of(values, dtype):
    return pd.Series(
        pd.array(
            values,
            dtype=pd.ArrowDtype(dtype) if isinstance(dtype, pa.DataType) else dtype,
        )
    )


def objects(*values):
    return pd.Series(values, dtype=object)


KINDS = {
    "int64": of([0, 1, 2, 1], "int64"),
    "uint64": of([0, 1, 2, 1], "uint64"),
    "float16": pd.Series(np.array([0, 1, 2, 1], np.float16)),
    "float64": of([0.0, 1.0, np.nan, 1.0], "float64"),
    "Int64": of([0, 1, None, 1], "Int64"),
    "bool": of([False, True, True, False], "bool"),
    "int64[pyarrow]": of([0, 1, None, 1], pa.int64()),
    "decimal": of(CENTS, pa.decimal128(9, 2)),
    "decimal, finer": of(CENTS, pa.decimal128(9, 3)),
    "objects: decimals": objects(*CENTS),
    "objects: numbers": objects(0, 1.0, None, True),
    "objects: mixed": objects(0, "1", None, "x"),
    "objects: strings": objects("0", "1", None, "1"),
    "str": of(["0", "1", None, "1"], "str"),
    "string[pyarrow]": of(["0", "1", None, "1"], "string[pyarrow]"),
    "large_string": of(["0", "1", None, "1"], pa.large_string()),
    "category": pd.Series(["1", "0", None, "x"], dtype="category"),
    "category of integers": pd.Series([1, 0, 7, 1], dtype="category"),
    "dictionary": of(["0", "1", None, "1"], pa.dictionary(pa.int8(), pa.string())),
    "objects: bytes": objects(b"0", b"1", None, b"1"),
    "binary": of([b"0", b"1", None, b"1"], pa.binary()),
    "objects: dates": objects(*DAYS),
    "date32": of(DAYS, pa.date32()),
    "datetime64[s]": TIMES.astype("datetime64[s]"),
    "datetime64[ns]": TIMES.astype("datetime64[ns]"),
    "timestamp": TIMES.astype("datetime64[us]").astype(
        pd.ArrowDtype(pa.timestamp("us"))
    ),
    "UTC": TIMES.dt.tz_localize("UTC"),
    "Berlin": TIMES.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"),
    "timedelta64[s]": SPANS.astype("timedelta64[s]"),
    "timedelta64[ns]": SPANS.astype("timedelta64[ns]"),
    "Period[D]": TIMES.dt.to_period("D"),
    "Period[M]": TIMES.dt.to_period("M"),
    "left intervals": pd.Series(
        pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3, 4], closed="left")
    ),
    "right intervals": pd.Series(
        pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3, 4], closed="right")
    ),
    "float intervals": pd.Series(
        pd.arrays.IntervalArray.from_breaks([0.0, 1, 2, 3, 4], closed="left")
    ),
    "time": of(HOURS, pa.time64("us")),
    "objects: times": objects(*HOURS),
    "objects: tuples": objects((0, "a"), (1, "a"), None, (1, "a")),
}


def equal(one, other):
    """Places of values that are equal to Python, none of them missing."""
    sides = [list(enumerate(side.astype(object))) for side in (one, other)]
    return {
        (i, j)
        for (i, a), (j, b) in itertools.product(*sides)
        if pd.isna(a) is not True and pd.isna(b) is not True and _same(a, b)
    }


def _same(a, b):
    try:
        return bool(a == b)
    except TypeError:  # times with and without a time zone
        return False


def texts(column):
    """A column as Dask holds it: objects as texts."""
    return column.astype("string[pyarrow]") if column.dtype == object else column


def check(one, other, want):
    """Refused if no value is equal, else the pairs of those that are."""
    if not want:
        with pytest.raises(
            ColumnError, match=r"by= names 'g', .* Their values are never equal"
        ):
            computed(one.simjoin.join(other, 0.0, on="x", by="g", dropna=True))
        return
    found = computed(one.simjoin.join(other, 0.0, on="x", by="g", dropna=True))
    assert (
        set(zip(found["left"].tolist(), found["right"].tolist(), strict=True)) == want
    )


def frame_of(column):
    return pd.DataFrame({"x": np.zeros(len(column)), "g": column})


@pytest.mark.parametrize("kind", every_nth(4, KINDS))
def test_plain_frames_of_any_two_dtypes(kind):
    """Those that come later, too, so that each two meet one way round or the other; by
    default one of five.
    """
    number = list(KINDS).index(kind)
    later = list(KINDS.values())[number :: 1 if everything() else 5]
    for place, other in enumerate(later):
        sides = [KINDS[kind], other][:: 1 if place % 2 else -1]
        check(*map(frame_of, sides), equal(*sides))


PAIRED = [
    ("objects: dates", "objects: dates"),
    ("objects: decimals", "objects: decimals"),
    ("date32", "objects: dates"),
    ("objects: tuples", "objects: tuples"),
    ("objects: mixed", "objects: mixed"),
    ("int64", "float64"),
    ("int64", "str"),
    ("str", "objects: strings"),
    ("category", "str"),
    ("category of integers", "uint64"),
    ("datetime64[s]", "str"),
    ("datetime64[s]", "datetime64[ns]"),
    ("UTC", "Berlin"),
    ("UTC", "timestamp"),
    ("Period[D]", "Period[M]"),
    ("dictionary", "objects: mixed"),
    ("binary", "objects: bytes"),
]


@in_turns(
    2, kinds=every_nth(4, PAIRED), lazy=["left", "right", "both"], convert=[True, False]
)
def test_frames_of_dask_compare_what_they_hold(kinds, lazy, convert):
    """Objects are texts where Dask makes texts of them: those of a plain table become
    such, too.
    """
    sides = [KINDS[kind] for kind in kinds]
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": convert}):
        tables = [
            dd.from_pandas(frame_of(side), npartitions=2, sort=False)
            if lazy in (name, "both")
            else frame_of(side)
            for name, side in zip(("left", "right"), sides, strict=True)
        ]
        as_texts = any(
            is_dask_collection(table) and isinstance(table.dtypes["g"], pd.StringDtype)
            for table in tables
        )
        check(*tables, equal(*map(texts, sides)) if as_texts else equal(*sides))


@pytest.mark.slow
def test_verbs_of_two_tables_compare_dates_of_dask_with_plain_ones():
    plain = frame_of(objects(*DAYS)).dropna()
    lazy = dd.from_pandas(plain, npartitions=2)
    near = {(0, 0), (0, 3), (1, 1), (3, 0), (3, 3)}
    how = {"on": "x", "by": "g"}
    with dask.config.set(scheduler="sync"):
        for one, other in ((lazy, plain), (plain, lazy)):
            for way, want in {"leftsemi": [0, 1, 3], "leftanti": []}.items():
                assert (
                    one.simjoin.join(other, 0.0, how=way, **how)
                    .compute()
                    .index.tolist()
                    == want
                )
            found = one.simjoin.join(other, 0.0, how="left", **how).compute()
            assert set(zip(found["left"], found["right"], strict=True)) == near
            for mutual in (False, True):
                found = one.simjoin.knn_join(
                    other, 3, max_distance=0.0, mutual=mutual, **how
                ).compute()
                assert set(zip(found["left"], found["right"], strict=True)) == near
            assert one.simjoin.plan(0.0, other=other, **how).pairs == len(near)


def test_labels_of_floats_in_no_order():
    frame = frame_of(of([1, 2, 1, 2], "category")).set_index(
        pd.Index([0.5, -2.0, 7.0, 0.5])
    )
    assert frame.simjoin.join(
        frame, 0.0, on="x", by="g", how="leftsemi"
    ).index.tolist() == [
        0.5,
        -2.0,
        7.0,
        0.5,
    ]


def test_objects_that_cannot_be_texts():
    plain = frame_of(objects("a\ud800", "b"))
    lazy = dd.from_pandas(frame_of(objects("a", "b")), npartitions=1)
    for one, other in ((lazy, plain), (plain, lazy)):
        with pytest.raises(
            ColumnError,
            match=r"by= names 'g', .* 'a.ud800', which is not valid Unicode.*\. Or create",
        ):
            one.simjoin.join(other, 0.0, on="x", by="g")


def test_numbers_among_objects_are_told_apart():
    """Put together by pandas, whole numbers above 2**53 would be rounded to floats."""
    ids = [2**53 + 1, 2.0**53, 7, 7.0]
    one, other = frame_of(objects(*ids)), frame_of(objects(*ids[::-1]))
    check(one, other, equal(one["g"], other["g"]))
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        check(split(one, [1, 2]), split(other, [1, 2]), equal(one["g"], other["g"]))
