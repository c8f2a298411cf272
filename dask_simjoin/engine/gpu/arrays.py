"""Array operations for spanning trees, and moments of columns; needs CuPy but no cuDF.

CuPy compiles one kernel for each operation and combination of dtypes, in about a tenth
of a second. Several threads do not help, because NVRTC parses the headers of such
kernels one after the other. Compiling took half the time of the first tree in a
process. So all operations of this module are in one program of our own. Arrays must be
C-contiguous, and shorter than 2**31.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import BITS
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.load import THREADS
from dask_simjoin.metrics.norms import Array, Spread


def program(function: str) -> load.Program:
    """Return the program with a function of `arrays.cu`; all its functions have the
    same constants.
    """
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
    """Return a new array (n,) filled with one value."""
    out = cupy.empty(n, dtype)
    fill(out, value)
    return out


def numbers(first: int, n: int) -> Array:
    """Return the numbers from `first` to `first + n - 1`, int32."""
    out = cupy.empty(n, cupy.int32)
    _run("number_on", n, np.int32(first), out)
    return out


def joined(parts: Sequence[Array]) -> Array:
    """Concatenate arrays of the same dtype; a single array is returned without a copy."""
    return parts[0] if len(parts) == 1 else copied(parts)


def copied(parts: Sequence[Array]) -> Array:
    """Concatenate arrays of the same dtype; the result is always a copy."""
    out, start = cupy.empty(sum(map(len, parts)), parts[0].dtype), 0
    for part in parts:
        stop = start + len(part)
        _run(f"move_{part.itemsize}", len(part), part, out[start:stop])
        start = stop
    return out


def take(values: Array, places: Array) -> Array:
    """Return the values at the positions `places` (m,), int32 or int64."""
    out = cupy.empty(len(places), values.dtype)
    _run(
        f"take_{values.itemsize}_at_{places.itemsize}", len(places), places, values, out
    )
    return out


def upto(flags: Array) -> Array:
    """Return for each flag the number of set flags up to and including it (n,), int32."""
    out = cupy.empty(len(flags), cupy.int32)
    _run("as_numbers", len(flags), flags, out)
    return cupy.cumsum(out, dtype=cupy.int32)


def count(flags: Array) -> int:
    """Count the flags that are set; there must be at least one flag."""
    return int(upto(flags)[-1])


def places_of(flags: Array, counted: Array | None = None) -> Array:
    """Return the positions of set flags, ascending, int32; `counted`: result of `upto`,
    if known.
    """
    if not len(flags):
        return cupy.empty(0, cupy.int32)
    counted = upto(flags) if counted is None else counted
    places = cupy.empty(int(counted[-1]), cupy.int32)
    _run("places_set", len(flags), flags, counted, places)
    return places


def _columns(x: Array, name: str, values: int, *arguments: Any) -> np.ndarray:
    """Run a kernel over all columns. Return the results on the host.

    The result has shape (values, d, blocks). A kernel computes several values per
    column, such as a minimum and a sum. Each thread block computes them for a part of
    the rows, so the caller must reduce over blocks.
    """
    n, d = x.shape
    # some 2048 thread blocks in all use the full memory bandwidth
    blocks = max(1, min(-(-n // THREADS), 2048 // d))
    found = cupy.empty((values, d, blocks))
    function = load.kernel("moments", name, DIMS=1, EXACT=True)
    function((blocks, d), (THREADS,), (x, np.uint64(n), *arguments, found))
    return cupy.asnumpy(found)


def bounds(x: Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the smallest and largest value (d,) of each column of `x` (n, d), n > 0.

    Return None in the same cases as `spread`.
    """
    found = _sums(x)
    return found and found[:2]


def spread(x: Array) -> Spread | None:
    """Return smallest and largest value, mean and sum of squared deviations (d,) of
    each column.

    `x`: points (n, d), n > 0.  The result is None if `x` is not Fortran-contiguous
    float64, or if a value or a sum is not finite.
    """
    found = _sums(x)
    if found is None:
        return None
    lower, upper, sums = found
    mean = sums / len(x)
    squares = _columns(x, "column_squares", 1, cupy.asarray(mean))[0].sum(axis=1)
    return lower, upper, mean, squares


def _read_some() -> None:
    """Run the CuPy kernels that every join uses on two points, so that they are loaded
    in advance.
    """
    places = cupy.asarray(np.arange(2))
    cupy.empty((4, 2), order="F")[places]
    places.astype(cupy.int32).astype(cupy.int64)


def _sums(x: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    if x.dtype != np.float64 or not x.flags.f_contiguous:
        return None
    load.rehearse(_read_some)  # in another thread, while the kernels below are compiled
    lower, upper, sums = _columns(x, "column_sums", 3)
    with np.errstate(over="ignore", invalid="ignore"):
        found = lower.min(axis=1), upper.max(axis=1), sums.sum(axis=1)
    return found if np.isfinite(found).all() else None
