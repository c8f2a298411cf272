"""Build the index of a chunk on a GPU: kd order, boxes and float16 vectors.

The functions are equivalents of the functions of the same names in `engine.index`,
`engine.filters` and `engine.compat`, which document arguments and results.  Points may
also be narrow points: see `engine.compat`.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import (
    DIVIDED,
    FLOAT32,
    FLOAT64,
    constants_of,
    dims_of,
    storage_of,
)
from dask_simjoin.engine.filters import float16
from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.load import THREADS
from dask_simjoin.engine.gpu.sources import FANOUT
from dask_simjoin.engine.index.gpu import Builder
from dask_simjoin.engine.index.kdtree import (
    BLOCK,
    MIDDLE,
    SAMPLE,
    VALUE_BITS,
    KdCuts,
    block_sizes,
)
from dask_simjoin.metrics.norms import Array, Index


def boxed(y: Array, bounds: Bounds | None, tile: int, tiled: bool) -> Index:
    """Return the tree of boxes over points `y` (n, d) in kd order: see
    `engine.index.gpu.boxed`.
    """
    n, dims = len(y), dims_of(y)
    kind = cupy.float64 if bounds is None else cupy.float32
    groups = [-(-n // (tile * FANOUT))]
    while groups[-1] > 1:
        groups.append(-(-groups[-1] // FANOUT))
    levels = np.concatenate([[0], np.cumsum(groups)])
    lower, upper = (cupy.empty((int(levels[-1]), dims, FANOUT), kind) for _ in range(2))
    z = cupy.empty((-(-n // tile), dims, tile), kind) if tiled else None

    def run(name: str, boxes: int, *arguments: Any) -> None:
        function = load.kernel(
            "boxes", name, DIMS=1, EXACT=bounds is None, **constants_of(y)
        )
        warps = boxes * FANOUT * dims
        function(*load.shape_of(warps * 32), arguments)

    centre = y if bounds is None else cupy.asarray(bounds.centre, cupy.float64)
    scale = np.float64(1 if bounds is None else bounds.scale)
    sizes = (np.int32(n), np.int32(dims))
    points = np.uint64(0) if z is None else z
    shape = np.int32(tile), np.int32(groups[0])
    run("tile_boxes", groups[0], y, *sizes, centre, scale, *shape, points, lower, upper)
    for level, above in enumerate(groups[1:]):
        numbers = (levels[level], groups[level], levels[level + 1], above)
        run(
            "group_boxes",
            above,
            np.int32(dims),
            *(np.int32(some) for some in numbers),
            lower,
            upper,
        )
    index = {"lower": lower, "upper": upper, "levels": cupy.asarray(levels)}
    return index if z is None else index | {"z": z}


assert SAMPLE == 32  # lanes of a warp


def _run(x: Array, name: str, blocks: int, *arguments: Any) -> None:
    constants = {
        "VALUE_BITS": VALUE_BITS,
        "SAMPLES": MIDDLE,
        "BLOCK": BLOCK,
    } | constants_of(x)
    load.kernel("order", name, DIMS=1, EXACT=True, **constants)(
        (blocks,), (THREADS,), arguments
    )


def _steps(x: Array) -> list[Any]:
    """Return the strides of `x` between rows and between columns, counted in values."""
    return [np.int64(step // x.itemsize) for step in x.strides]


def rows_at(x: Array, places: Array) -> Array:
    """Return the rows of `x` (n, d) at some positions, int32, as a C-contiguous copy."""
    n, dims = len(places), x.shape[1]
    y = cupy.empty((n, dims), x.dtype)
    if y.size:
        blocks = min(-(-y.size // THREADS), 1 << 16)
        _run(
            x,
            "take_rows",
            blocks,
            x,
            *_steps(x),
            places,
            np.int64(n),
            np.int32(dims),
            y,
        )
    return y


def kd_order(x: Array, cuts: KdCuts, tile: int, fan_out: int, many: int) -> Array:
    """Return the positions of points `x` (n, d) in kd order, int32: see
    `engine.index.kdtree.kd_order`.
    """
    n = len(x)
    if n <= tile:
        return cupy.arange(n, dtype=cupy.int32)
    assert storage_of(x) == FLOAT64 or x.flags.c_contiguous
    blocks = min(-(-n // THREADS), 1 << 16)

    def run(name: str, *arguments: Any, grid: int = blocks) -> None:
        _run(x, name, grid, *arguments)

    count, number = np.int32(n), np.int32(len(cuts.dims))
    values = cupy.empty((len(cuts.dims), n), cupy.int32)
    order, keys = cupy.empty(n, cupy.int32), cupy.empty(n, cupy.uint64)
    steps = _steps(x)
    columns, centre = (
        cupy.asarray(np.array(cuts.dims, np.int32)),
        cupy.empty(len(cuts.dims)),
    )
    run("middle", x, *steps, columns, count, number, centre, grid=1)
    run(
        "numbers",
        x,
        *steps,
        columns,
        centre,
        np.float64(cuts.scale),
        count,
        number,
        values,
        order,
    )
    place_bits = (n - 1).bit_length()
    for size in block_sizes(n, tile, fan_out, cuts, many):
        parts = -(-n // size)
        shape = (np.int32(size), np.int32(parts))
        last, order = order, cupy.empty_like(order)
        if size <= BLOCK:
            ends = (np.int32(tile), np.int32(fan_out))
            run(
                "order_blocks",
                values,
                last,
                count,
                number,
                shape[0],
                *ends,
                order,
                grid=parts,
            )
            break
        widest = cupy.empty(parts, cupy.int32)
        grid = -(-parts * SAMPLE // THREADS)
        run("widest_columns", values, last, count, number, *shape, widest, grid=grid)
        shift = max(0, place_bits + (parts - 1).bit_length() + VALUE_BITS - 64)
        bits = [np.int32(some) for some in (size.bit_length() - 1, shift, place_bits)]
        run("sort_keys", values, last, widest, count, *bits, keys)
        keys.sort()
        run("reorder", keys, last, count, bits[-1], order)
    return order


def _vectors(
    y: Array,
    bounds: Bounds,
    results: dict[str, Array],
    *,
    nearest: bool,
    sliced: bool = False,
) -> Index:
    """Compute float16 vectors, and fill the arrays in `results`; return all of them.

    `nearest`: the vectors are for neighbor searches, not joins. `sliced`: the vectors
    are stored in slices, in the order that `tensor_hopper.cu` reads, and are named
    ``slices`` in the result.
    """
    n, dims = len(y), dims_of(y)
    width = float16.width(dims)
    stride = float16.sliced_width(width) if sliced else width
    vectors = cupy.empty((float16.rows(n), stride), cupy.float16)
    sizes = (np.int32(size) for size in (n, dims, width, stride))
    centre = cupy.asarray(bounds.centre, cupy.float64)
    numbers = (np.float64(some) for some in (bounds.scale, bounds.outer, bounds.inner))
    names = ("vectors_sure", "norm", "error", "most_error")
    outputs = (results.get(name, np.uint64(0)) for name in names)
    constants = {"NEAREST": nearest, "SLICED": sliced} | constants_of(y)
    function = load.kernel("vectors", "make_vectors", DIMS=1, EXACT=True, **constants)
    blocks = (len(vectors) // float16.TILE,)
    function(blocks, (THREADS,), (y, *sizes, centre, *numbers, vectors, *outputs))
    return {"slices" if sliced else "vectors": vectors} | results


def sliced_here(dims: int) -> bool:
    """Return whether joins of `dims` dimensions use `tensor_hopper.cu` on the current
    device.
    """
    return dims >= float16.TENSOR_DIMS and load.has_warpgroups()


def make_vectors(y: Array, bounds: Bounds) -> Index:
    """Return the arrays that joins compare, for points (n, d): see
    `engine.filters.float16.make_vectors`.
    """
    results = {"vectors_sure": cupy.empty(float16.rows(len(y)), cupy.float32)}
    return _vectors(y, bounds, results, nearest=False, sliced=sliced_here(dims_of(y)))


def make_nearest_vectors(y: Array, bounds: Bounds) -> Index:
    """Return the arrays that searches compare, for points `y` (n, d), float64.

    See `engine.filters.float16.make_nearest_vectors`.
    """
    results = {name: cupy.empty(len(y)) for name in ("norm", "error")}
    results["most_error"] = cupy.zeros(1)
    return _vectors(y, bounds, results, nearest=True)


BUILDER = Builder(cupy, kd_order, rows_at, boxed, make_vectors, make_nearest_vectors)


def _run_narrow(name: str, storage: int, blocks: int, *arguments: Any) -> None:
    function = load.kernel("narrow", name, DIMS=1, EXACT=True, STORED=storage)
    function((max(1, min(blocks, 2**16)),), (THREADS,), arguments)


def narrowed(columns: Array, points: Array, lengths: Array | None) -> Array | None:
    """Return narrow points: see `engine.compat.narrowed`."""
    if columns.shape != points.shape:
        return None
    n, dims = columns.shape
    storage = FLOAT32 if lengths is None else DIVIDED
    out = (
        cupy.empty((n, dims), cupy.float32)
        if lengths is None
        else cupy.empty((n, dims + 2), cupy.uint32)
    )
    if not n:
        return out
    divisors = np.uint64(0) if lengths is None else cupy.ascontiguousarray(lengths)
    differ = cupy.zeros(1, cupy.int32)
    # a block converts squares of 32 rows and columns
    squares = -(-n // 32) * -(-dims // 32)
    sides = [one for x in (columns, points) for one in (x, *_steps(x))]
    _run_narrow(
        "narrow_rows",
        storage,
        squares,
        *sides,
        divisors,
        np.int64(n),
        np.int32(dims),
        out,
        differ,
    )
    return None if int(differ[0]) else out


def widened(rows: Array) -> Array:
    """Return the float64 coordinates (n, d) of points: see `engine.compat.widened`."""
    if storage_of(rows) == FLOAT64:
        return rows
    n, dims = len(rows), dims_of(rows)
    out = cupy.empty((n, dims))
    if out.size:
        blocks = -(-n * 32 // THREADS)
        rows = cupy.ascontiguousarray(rows)
        _run_narrow(
            "widen_rows",
            storage_of(rows),
            blocks,
            rows,
            np.int64(n),
            np.int32(dims),
            out,
        )
    return out
