"""Say what was likely meant by a value that is of another kind than an option takes."""

from __future__ import annotations

import datetime
import decimal
import os

import numpy as np
from dask.base import is_dask_collection


def instead_of_distance(name: str, value: object) -> str:
    """What may serve in place of a distance that is no number, as the end of a message."""
    if isinstance(value, decimal.Decimal):
        return f", such as float({name})"
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        return " in the unit of the column, such as seconds"
    if is_dask_collection(value) and not _dims(value):
        return f", such as {name}.compute()"
    if name == "eps" and _holds_several(value):
        return ", several of them in counts, or the name of a column of each row's own distance"
    return ""


def number_in_text(value: str) -> str:
    """Which number a text holds, as a part of a message."""
    try:
        number = float(value)
    except ValueError:
        return ""
    return f", such as {number:g} without quotes"


def instead_of_frame(value: object) -> str:
    """What makes a frame of a value that is none, as a sentence of a message."""
    if isinstance(value, os.PathLike) or (isinstance(value, str) and ("." in value or "/" in value)):
        return " Read files first, as by dask.dataframe.read_parquet() or read_csv()."
    if isinstance(value, (list, tuple)) and any(_is_table(one) for one in value):
        return " Put tables together first, as by pandas.concat() or dask.dataframe.concat()."
    if _dims(value) == 1 and hasattr(value, "to_frame"):
        return " Of one column .to_frame() makes a frame; on= names its columns."
    if isinstance(value, (list, tuple)):
        return " Of lists pandas.DataFrame(...) makes a frame."
    if isinstance(value, (int, float)):
        return " The frame comes first."
    return ""


def _holds_several(value: object) -> bool:
    return isinstance(value, (list, tuple, set, range)) or _dims(value) > 0


def _dims(value: object) -> int:
    dims = getattr(value, "ndim", 0)
    return dims if isinstance(dims, int) else 0  # Dask's delayed objects have every attribute


def _is_table(value: object) -> bool:
    return _dims(value) == 2 and hasattr(value, "columns")
