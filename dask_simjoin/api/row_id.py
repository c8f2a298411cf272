"""Number the rows of a frame."""

from __future__ import annotations

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, OptionTypeError
from dask_simjoin.metrics.types import Frame, Series
from dask_simjoin.options.columns import ROW_ID, check_columns
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.messages import shown
from dask_simjoin.options.requests import RowId
from dask_simjoin.options.typed import frame_verb


@frame_verb(RowId)
def with_row_id(frame: Frame, asked: RowId) -> Frame:
    """The frame with one more column: each row's number in the frame, from 0.

    Use it as ``id=`` where index labels repeat, as they do in a frame read from several
    parquet files, each of which counts its rows from 0.

    Parameters
    ----------
    name : str
        Of the new column (int64).  "row_id" is never taken for a coordinate by default.

    Returns
    -------
    DataFrame
        Lazy if the frame is: numbering the rows reads one column to count them.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> pd.DataFrame({"x": [5.0, 5.0]}, index=[7, 7]).simjoin.with_row_id()
         x  row_id
    7  5.0       0
    7  5.0       1
    """
    meta, name = example_of(frame), asked.name
    check_columns(meta)
    if not isinstance(name, str):
        raise OptionTypeError(f"name={shown(name)} is not a string; name the new column, such as {ROW_ID!r}.")
    if name in meta.columns:
        raise ColumnError(
            f"name={name!r} is a column already; use it with id={name!r}, or choose another name."
        )
    if not is_dask_collection(frame):
        return frame.assign(**{name: np.arange(len(frame), dtype=np.int64)})
    if not len(meta.columns):
        raise ColumnError("The frame has no column, so its rows cannot be numbered.")
    # one column stands for the rows, so that counting them reads no other; as a frame, since Dask takes the
    # name of a column alone, if it is a tuple, for several
    ones = frame[[meta.columns[0]]].map_partitions(_ones, meta=_ones(meta))
    return frame.assign(**{name: ones.cumsum() - 1})


def _ones(rows: Series) -> Series:
    return frames_for(rows).series(np.ones(len(rows), np.int64), rows.index, ROW_ID)
