"""Number rows across chunks: by their number in the chunk and the chunk's, or by their position."""

from __future__ import annotations

import numpy as np

from dask_simjoin.metrics.types import Array

CHUNK_BITS = 32

CHUNK = 1 << CHUNK_BITS
"""Numbers of rows that each chunk has."""


RowNumbers = int | Array
"""A chunk's number, or the positions of its rows in the whole frame, ascending."""


def row_numbers(rows: Array, own: RowNumbers) -> Array:
    """Number some rows of a chunk; `own`: the numbers of all of its rows, or the chunk's."""
    return rows.astype(np.int64) + own * CHUNK if isinstance(own, int) else own[rows]
