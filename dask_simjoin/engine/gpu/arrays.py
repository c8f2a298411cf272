"""Array programs of trees, and bounds, means and squares of columns; needs CuPy but no cuDF.

CuPy compiles a kernel for each operation and each choice of types, a tenth of a second each.  Even on several
threads, NVRTC reads the headers of these kernels one after the other.  Compiling took half the time of a
process's first tree, so this module's operations are one program.  All arrays are C-contiguous; positions are
less than 2**31.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import BITS
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.metrics.norms import Array, Spread


def program(function: str) -> load.Program:
    """Return the program of an array function: all functions are in one file, with the same constants."""
    return "arrays", function, {"DIMS": 1, "EXACT": True}


def _run(name: str, items: int, *arguments: Any) -> None:
    if items:
        file, name, constants = program(name)
        function = load.kernel(file, name, **constants)
        function(*load.shape_of(items), (np.int64(items), *arguments))


def fill(out: Array, value: float | np.generic) -> None:
    """Fill an array with one value."""
    bits = np.array([value], out.dtype).view(BITS[out.itemsize])[0]
    _run(f"fill_{out.itemsize}", len(out), bits, out)


def full(n: int, value: float | np.generic, dtype: Any = np.float64) -> Array:
    """Make an array of one value."""
    out = cupy.empty(n, dtype)
    fill(out, value)
    return out


def numbers(first: int, n: int) -> Array:
    """Return `n` consecutive numbers from `first` on, int32."""
    out = cupy.empty(n, cupy.int32)
    _run("number_on", n, np.int32(first), out)
    return out


def joined(parts: Sequence[Array]) -> Array:
    """Concatenate arrays of one type; a single array is returned as it is."""
    return parts[0] if len(parts) == 1 else copied(parts)


def copied(parts: Sequence[Array]) -> Array:
    """Concatenate copies of arrays of one type."""
    out, start = cupy.empty(sum(map(len, parts)), parts[0].dtype), 0
    for part in parts:
        stop = start + len(part)
        _run(f"move_{part.itemsize}", len(part), part, out[start:stop])
        start = stop
    return out


def take(values: Array, places: Array) -> Array:
    """Take the values at some places (m,), int32 or int64."""
    out = cupy.empty(len(places), values.dtype)
    _run(f"take_{values.itemsize}_at_{places.itemsize}", len(places), places, values, out)
    return out


def upto(flags: Array) -> Array:
    """Count for each flag the set flags up to and including it (n,), int32."""
    out = cupy.empty(len(flags), cupy.int32)
    _run("as_numbers", len(flags), flags, out)
    return cupy.cumsum(out, dtype=cupy.int32)


def count(flags: Array) -> int:
    """Count the flags that are set (n,), n > 0."""
    return int(upto(flags)[-1])


def places_of(flags: Array, counted: Array | None = None) -> Array:
    """Find the positions of flags that are set, int32, ascending; `counted`: `upto` of the flags."""
    if not len(flags):
        return cupy.empty(0, cupy.int32)
    counted = upto(flags) if counted is None else counted
    places = cupy.empty(int(counted[-1]), cupy.int32)
    _run("places_set", len(flags), flags, counted, places)
    return places


THREADS = 256
BLOCKS = 2048
"""Approximate number of thread blocks for all columns together: enough to read at the speed of memory."""


def _columns(x: Array, name: str, values: int, *arguments: Any) -> np.ndarray:
    """Return the results of the blocks of each column, on the host: (values, d, blocks)."""
    n, d = x.shape
    blocks = max(1, min(-(-n // THREADS), BLOCKS // d))
    found = cupy.empty((values, d, blocks))
    function = load.kernel("moments", name, DIMS=1, EXACT=True)
    function((blocks, d), (THREADS,), (x, np.uint64(n), *arguments, found))
    return cupy.asnumpy(found)


def bounds(x: Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Return smallest and largest coordinates (d,) of points (n, d), n > 0; None if `spread` returns None."""
    found = _sums(x)
    return found and found[:2]


def spread(x: Array) -> Spread | None:
    """Return bounds, means and sums of squared deviations (d,) of points (n, d), n > 0.

    None if columns are not stored one after the other, or if a value or a sum is not finite.
    """
    found = _sums(x)
    if found is None:
        return None
    lower, upper, sums = found
    mean = sums / len(x)
    squares = _columns(x, "column_squares", 1, cupy.asarray(mean))[0].sum(axis=1)
    return lower, upper, mean, squares


def _read_some() -> None:
    """Load CuPy's kernels that every join uses, by a run on two points: sample rows, convert places."""
    places = cupy.asarray(np.arange(2))
    cupy.empty((4, 2), order="F")[places]
    places.astype(cupy.int32).astype(cupy.int64)


def _sums(x: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    if x.dtype != np.float64 or not x.flags.f_contiguous:
        return None
    load.rehearse(_read_some)  # overlaps with compiling the kernels below
    lower, upper, sums = _columns(x, "column_sums", 3)
    with np.errstate(over="ignore", invalid="ignore"):
        found = lower.min(axis=1), upper.max(axis=1), sums.sum(axis=1)
    return found if np.isfinite(found).all() else None
