"""Columns of random dtypes.

A verb gets such a frame at once, because pandas and Dask cannot do much else with some
dtypes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection

from tests.support.random_after import compared
from tests.support.random_frames import WORDS
from tests.support.random_verbs import Side, Skipped, Want

SHARE = 0.2
"""Share of the cases with odd dtypes."""

FLOATS = (">f8", "Float64", "double[pyarrow]")
INTEGERS = (">i8", "Int64", "int64[pyarrow]", "object", "category")
TEXTS = (
    "object",
    "string",
    "string[python]",
    "large_string[pyarrow]",
    "category",
    "dictionary",
)

KINDS = {"key": INTEGERS, "g": INTEGERS, "s": TEXTS, "r": FLOATS, WORDS: TEXTS}
"""Column -> dtypes that it may get; coordinates get `FLOATS`."""

SAME = "same"
"""Leaves a column as it is."""


def odd_dtypes(seed: int, case: int, names: list[Any]) -> dict[Any, str]:
    """Draw a dtype for each column of some cases; {} for the others.

    The choices do not change other choices of the case.
    """
    rng = np.random.default_rng([seed, case, 1])
    if rng.random() >= SHARE:
        return {}
    some = dict.fromkeys(names, FLOATS) | KINDS
    return {name: str(rng.choice([SAME, *kinds])) for name, kinds in some.items()}


def with_dtypes(frame: Any, kinds: dict[Any, str]) -> Any:
    """Convert the columns of a frame, which may be lazy."""
    try:
        if not is_dask_collection(frame):
            return converted(frame, kinds)
        convert = functools.partial(converted, kinds=kinds)
        return frame.map_partitions(convert, meta=convert(frame._meta))
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise Skipped(f"a dtype that cannot be chosen: {error}") from error


def converted(rows: pd.DataFrame, kinds: dict[Any, str]) -> pd.DataFrame:
    """Convert the columns of a partition."""
    made = rows.copy()
    for place, name in enumerate(rows.columns):
        kind = kinds.get(name, SAME)
        column = rows.iloc[:, place]
        if kind == SAME:
            continue
        if kind == "dictionary":
            words = pa.array(column, pa.string(), from_pandas=True).dictionary_encode()
            array: Any = pd.arrays.ArrowExtensionArray(pa.chunked_array([words]))
        elif kind.startswith(">"):
            array = column.to_numpy(kind[1:], na_value=np.nan).astype(kind)
        else:
            array = column.astype(kind).array
        made.isetitem(place, array)
    return made


def sides_of(kinds: dict[Any, str], *sides: Side) -> list[Side]:
    """Return tables whose frames have these dtypes, and whose expected values are the
    plain ones.
    """
    return [side._replace(lazy=with_dtypes(side.lazy, kinds)) for side in sides]


def compare_as_it_is(want: Want, labelled: bool, near: bool) -> None:
    """Compare a result without another operation on it."""
    try:
        found = want.lazy.compute() if is_dask_collection(want.lazy) else want.lazy
    except ValueError as error:
        if want.kind == "rows" and "Big-endian" in str(error):
            raise Skipped(
                "Dask cannot select big-endian rows that it describes as native"
            ) from error
        raise
    if want.kind == "number":
        found = found.tolist() if isinstance(found, pd.Series) else int(found)
        assert found == want.value, f"{found}, and {want.value} by the definition"
    elif isinstance(found, pd.DataFrame | pd.Series):
        value = want.value
        if not isinstance(value, pd.DataFrame | pd.Series):
            raise Skipped("a result that is compared in another way")
        compared(found, value, near, want.kind != "pairs" and labelled)
