"""Rows numbered across chunks: their number in the chunk, and the chunk's."""

from __future__ import annotations

from typing import Any

import numpy as np

CHUNK = 1 << 32
"""Numbers of rows that each chunk has."""


RowNumbers = int | Any
"""A chunk's number, or the positions of its rows in the whole frame, ascending."""


def row_numbers(rows: Any, names: RowNumbers) -> Any:
    """The names of some rows of a chunk; `names`: those of all of them, or the chunk's number."""
    return rows.astype(np.int64) + names * CHUNK if isinstance(names, int) else names[rows]
