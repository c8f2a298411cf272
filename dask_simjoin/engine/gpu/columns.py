"""Convert columns of tables to one array, by one kernel for all columns; needs no cuDF.

cuDF takes about a tenth of a millisecond for each operation on each column, which is
longer than the GPU takes to convert the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.load import THREADS
from dask_simjoin.metrics.norms import Array

LETTERS = "iufb"
"""Kinds of numbers, as NumPy's letters, in the order of the kernel's constants."""

ROWS = 4096
"""Number of rows that a thread block converts."""

PROGRAM = (
    "columns",
    "convert_columns",
    {"DIMS": 1, "EXACT": True, "THREADS": THREADS, "ROWS": ROWS},
)


class DeviceColumn(NamedTuple):
    """A column in the memory of a GPU."""

    data: int  # address of the values
    # address of the mask, which has a bit for each value; 0: no value is missing
    mask: int
    offset: int  # position of the column's first value in data and mask
    dtype: np.dtype


def matrix(columns: Sequence[DeviceColumn], rows: int) -> Array:
    """Return columns as an array (rows, columns), float64, in Fortran order.

    Missing values become NaN.
    """
    out = cupy.empty((rows, len(columns)), order="F")
    if out.size:
        name, function, constants = PROGRAM
        table = [
            (*one[:3], LETTERS.index(one.dtype.kind), one.dtype.itemsize)
            for one in columns
        ]
        parts = -(-rows // ROWS)
        load.kernel(name, function, **constants)(
            (parts * len(columns),),
            (THREADS,),
            (
                cupy.asarray(np.array(table, np.uint64)),
                np.uint64(rows),
                np.uint64(parts),
                out.T,
            ),
        )
    return out
