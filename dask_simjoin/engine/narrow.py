"""Narrow points: float32 numbers that give the float64 coordinates of points exactly.

Joins on GPUs decide pairs by float64 coordinates.  Embeddings are float32 numbers in most tables.  So an
index stores these numbers, in half of the memory, and kernels compute the coordinates when they decide a
pair.  The results are the same to the bit.

The metric gives the coordinates of a row: its numbers x, or for cosine ``x / length``, rounded to float64.
See `dask_simjoin.metrics.distances.Metric.divided`.  Narrow points are an array of one of two kinds:

- float32 (n, d): the coordinates.
- uint32 (n, d + 2): the bits of d float32 numbers, then the lower and the upper half of the row's length.
  The length is a float64 number and divides the row.  Bits are not coordinates, hence the integer dtype.

Points are made narrow only if all their coordinates are computed again without any difference.  This is
checked, so it does not depend on dtypes: integers, float64 columns and lists can be narrow, too.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.metrics.norms import Array

FLOAT64, FLOAT32, DIVIDED = range(3)
"""How points are stored: as float64 coordinates, or as narrow points of either kind."""

STORAGE = {np.dtype(np.float64): FLOAT64, np.dtype(np.float32): FLOAT32, np.dtype(np.uint32): DIVIDED}
"""dtype of points -> how they are stored."""

MIN_DIMS = 32
"""Minimum number of dimensions for narrow points: in fewer, other arrays take most of the memory."""

LENGTH_BYTES = 8


def storage_of(x: Array) -> int:
    """Return how points are stored, by their dtype."""
    return STORAGE[x.dtype]


def dims_of(x: Array) -> int:
    """Return the number of dimensions of points (n, d) or narrow points."""
    return int(x.shape[1]) - 2 * (storage_of(x) == DIVIDED)


def constants_of(x: Array) -> dict[str, int]:
    """Return the constant of kernels that read such points; none for float64, the default."""
    storage = storage_of(x)
    return {} if storage == FLOAT64 else {"STORED": storage}


def row_bytes(dims: int, is_divided: bool) -> int:
    """Return the bytes of a narrow point; `is_divided`: whether it has a length."""
    return 4 * dims + LENGTH_BYTES * is_divided


def narrowed(columns: np.ndarray, points: np.ndarray, lengths: np.ndarray | None) -> np.ndarray | None:
    """Return narrow points in host memory; None: their coordinates would not be the same to the bit.

    Points with NaN do not matter, because they are not joined.

    Parameters
    ----------
    columns, points : array (n, d), float64
        The columns, and the coordinates that the metric makes of them.
    lengths : array (n,), float64, optional
        The lengths that divide the columns.
    """
    if columns.shape != points.shape:
        return None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        numbers = columns.astype(np.float32, order="C")
    rows = numbers
    if lengths is not None:
        halves = np.ascontiguousarray(lengths).view(np.uint32).reshape(-1, 2)
        rows = np.concatenate([numbers.view(np.uint32), halves], axis=1)
    wanted = np.ascontiguousarray(points)
    same = (widened(rows).view(np.int64) == wanted.view(np.int64)) | np.isnan(wanted)
    return rows if same.all() else None


def widened(rows: np.ndarray) -> np.ndarray:
    """Return the float64 coordinates (n, d) of points in host memory, however they are stored."""
    if storage_of(rows) != DIVIDED:
        return rows.astype(np.float64, order="C", copy=False)
    numbers, halves = rows[:, :-2], np.ascontiguousarray(rows[:, -2:])
    with np.errstate(invalid="ignore", divide="ignore"):
        coordinates: np.ndarray = np.ascontiguousarray(numbers).view(np.float32).astype(np.float64)
        coordinates /= halves.view(np.float64)
    return coordinates
