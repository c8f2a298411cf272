"""Columns of updates are cast to the types of the index if nothing is lost, and refused
otherwise.
"""

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.disk_index import casts
from dask_simjoin.errors import ColumnError
from tests.support.frames import lay

FIRST = pd.DataFrame({"key": [1, 2], "x": [0.0, 1.0], "v": ["a", "b"]})
NEW = pd.DataFrame({"key": [3, 4, 5], "x": [2.0, 3.0, 4.0], "v": ["c", "d", "e"]})
BIG = 2**53

LOSSLESS = {
    "integers to double": ("float64", "int64", [1, BIG, -BIG]),
    "integers of pandas to double": ("float64", "Int64", [1, None, 3]),
    "small integers": ("int64", "int8", [-128, 0, 127]),
    "unsigned integers to signed": ("int64", "uint32", [0, 1, 2**32 - 1]),
    "smaller floats": ("float64", "float32", [0.5, 0.1, None]),
    "numbers to text, all missing": ("str", "float64", [None] * 3),
    "dates to text, all missing": ("str", "datetime64[ns]", [None] * 3),
    "Arrow's numbers to text, all missing": ("string", "int64[pyarrow]", [None] * 3),
    "text to number, all missing": ("float64", "str", [None] * 3),
    "numbers to dates, all missing": ("datetime64[us]", "float64", [None] * 3),
    "texts of Arrow": ("str", "string[pyarrow]", ["c", None, "e"]),
    "large texts of Arrow": (
        "string[pyarrow]",
        "large_string[pyarrow]",
        ["c", None, "e"],
    ),
}
VALUES = {
    "float64": [1.5, 2.0],
    "int64": [7, 8],
    "datetime64[us]": pd.to_datetime(["2026-01-01"] * 2),
}


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
@pytest.mark.parametrize("case", LOSSLESS)
def test_columns_are_cast_without_loss(case, how, tmp_path):
    own, found, values = LOSSLESS[case]
    first = FIRST.assign(v=pd.Series(VALUES.get(own, ["a", "b"])).astype(own))
    new = NEW.assign(
        v=pd.Series(values, dtype=object if found == "str" else None).astype(found)
    )
    with dask.config.set({"dataframe.convert-string": False}):
        index = first.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep="v")
        index.update(lay(new, how))
        rows = index.rows().compute().set_index("key").sort_index()
        pairs = index.pairs().compute()
    assert rows["v"].dtype == first["v"].dtype and len(pairs) == 4
    expected = pd.Series(values, dtype=object)
    pd.testing.assert_series_equal(
        rows["v"].isna().iloc[2:].reset_index(drop=True),
        expected.isna(),
        check_names=False,
    )
    there = expected.notna().to_numpy()
    assert (rows["v"].iloc[2:][there].to_numpy() == new["v"][there].to_numpy()).all()


LOSSY = {
    "large integers": (
        "float64",
        "int64",
        [1, 2, BIG + 1],
        "has values that do not fit the index's double",
    ),
    "fractions": (
        "int64",
        "float64",
        [1.0, 2.0, 3.5],
        "is of type double, and the index has int64",
    ),
    "whole floats": ("int64", "float64", [1.0, 2.0, 3.0], "is of type double"),
    "larger integers": (
        "int8",
        "int64",
        [1, 2, 3],
        r"is of type int64, and the index has int8; .*'int8'",
    ),
    "signed integers": ("uint64", "int32", [1, 2, -3], "is of type int32"),
    "larger floats": (
        "float32",
        "float64",
        [1.0, 2.0, 0.1],
        "is of type double, and the index has float",
    ),
    "numbers": (
        "str",
        "float64",
        [None, None, 1.0],
        r"is of type double, .* with \.astype\('string'\)",
    ),
    "texts": (
        "float64",
        "str",
        ["1", "2", "3"],
        "is of type .*string, and the index has double",
    ),
    "truth": ("int64", "bool", [True, False, True], "is of type bool"),
    "missing integers": (
        "int64",
        "Int64",
        [1, None, 3],
        r"missing values, .* int64 .*astype\('Int64'\)",
    ),
    "only missing": ("int64", "float64", [None] * 3, "has missing values"),
    "missing truth": (
        "bool",
        "boolean",
        [True, None, False],
        r"missing values, .*astype\('boolean'\)",
    ),
}


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
@pytest.mark.parametrize("case", LOSSY)
def test_casts_that_would_lose_something_are_refused(case, how, tmp_path):
    own, found, values, said = LOSSY[case]
    first = FIRST.assign(
        v=pd.Series(["a", "b"] if own == "str" else [1, 0]).astype(own)
    )
    new = NEW.assign(v=pd.Series(values).astype(found))
    with dask.config.set({"dataframe.convert-string": False}):
        index = first.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep="v")
        with pytest.raises(ColumnError, match=f"Column 'v' .*{said}"):
            index.update(lay(new, how))
    assert index.version == 1 and len(index.rows().compute()) == 2


def test_ids_and_coordinates_are_cast_too(tmp_path):
    index = FIRST.simjoin.index(1.0, tmp_path / "index", on="x", id="key", keep="v")
    new = NEW.assign(key=np.array([2, 3, 4], "int16"), x=np.array([5, 6, 7]))
    assert index.update(new, if_exists="replace", batch="a").report.replaced == 1
    assert index.update(
        new.astype({"key": "int64", "x": "float64"}), batch="a"
    ).report.known
    index.delete(new["key"])
    assert index.rows().compute()["key"].tolist() == [1]


def test_columns_that_differ_are_listed():
    own = pa.schema(
        [("a", pa.large_string()), ("b", pa.float64()), ("c", pa.decimal128(38, 2))]
    )
    found = pa.schema(
        [("a", pa.string()), ("b", pa.int8()), ("c", pa.decimal128(3, 1))]
    )
    assert casts.unlike(found, own) == ["b"]
    assert casts.unlike(pa.schema([("b", pa.null())]), own) == []
