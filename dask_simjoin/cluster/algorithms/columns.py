"""Read columns of results that users give back, which may have been written, read or changed meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.types import Frame


def numbers_of(frame: Frame, name: str, kind: Any, verb: str) -> np.ndarray:
    """Read a column as numbers of a kind, on the host; refuses others, and missing ones.

    `verb`: what gives such columns.
    """
    try:
        values = to_host(frame[name].values)
        with np.errstate(invalid="ignore"):  # NaN as a whole number
            found: np.ndarray = np.asarray(values).astype(kind)
        same = bool((found == np.asarray(values, np.float64)).all())
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ColumnError(
            f"Column {name!r} of dtype {frame[name].dtype} holds missing values or others than "
            f"{np.dtype(kind).name}; give a whole result of {verb}."
        )
    return found
