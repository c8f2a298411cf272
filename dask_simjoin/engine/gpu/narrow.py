"""Narrow points on a GPU: see `dask_simjoin.engine.narrow`, whose functions of the same names these equal."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.narrow import DIVIDED, FLOAT32, FLOAT64, dims_of, storage_of
from dask_simjoin.metrics.norms import Array

THREADS = 256
SIDE = 32
MAX_BLOCKS = 1 << 16


def _run(name: str, storage: int, blocks: int, *arguments: Any) -> None:
    function = load.kernel("narrow", name, DIMS=1, EXACT=True, STORED=storage)
    function((max(1, min(blocks, MAX_BLOCKS)),), (THREADS,), arguments)


def _steps(x: Array) -> list[Any]:
    return [np.int64(step // x.itemsize) for step in x.strides]


def narrowed(columns: Array, points: Array, lengths: Array | None) -> Array | None:
    """Return narrow points; None: their coordinates would not be the same to the bit."""
    if columns.shape != points.shape:
        return None
    n, dims = columns.shape
    storage = FLOAT32 if lengths is None else DIVIDED
    out = cupy.empty((n, dims), cupy.float32) if lengths is None else cupy.empty((n, dims + 2), cupy.uint32)
    if not n:
        return out
    divisors = np.uint64(0) if lengths is None else cupy.ascontiguousarray(lengths)
    differ = cupy.zeros(1, cupy.int32)
    squares = -(-n // SIDE) * -(-dims // SIDE)
    sides = [one for x in (columns, points) for one in (x, *_steps(x))]
    _run("narrow_rows", storage, squares, *sides, divisors, np.int64(n), np.int32(dims), out, differ)
    return None if int(differ[0]) else out


def widened(rows: Array) -> Array:
    """Return the float64 coordinates (n, d) of points, however they are stored."""
    if storage_of(rows) == FLOAT64:
        return rows
    n, dims = len(rows), dims_of(rows)
    out = cupy.empty((n, dims))
    if out.size:
        blocks = -(-n * 32 // THREADS)
        rows = cupy.ascontiguousarray(rows)
        _run("widen_rows", storage_of(rows), blocks, rows, np.int64(n), np.int32(dims), out)
    return out
