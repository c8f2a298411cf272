"""What a join on a GPU says of the pairs that the kernels found: their rows, distances and kept columns."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.base import method_module
from dask_simjoin.engine.gpu.growing import GrowingColumns
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.gpu.kernels.sources import norm_constant
from dask_simjoin.engine.gpu.methods.method import GpuLayout, GpuMethod
from dask_simjoin.engine.protocols import Kept, Measured, Pairs, Rows
from dask_simjoin.metrics.types import Array, Index

LIBRARY = "cudf"


def method_of(name: str) -> GpuMethod:
    """Return what a method does on GPUs."""
    method: GpuMethod = method_module(name, LIBRARY)
    return method


def finishing(layout: GpuLayout, function: str, *, labels: bool) -> load.Program:
    """What finishes the pairs of a join: a function of `finish.cu`."""
    constants = {"DIMS": layout.dims, "EXACT": True, "LABELS": labels} | norm_constant(layout.norm)
    return "finish", function, constants


def finish(layout: GpuLayout, function: str, *, labels: bool) -> Any:
    """Its kernel."""
    name, function, constants = finishing(layout, function, labels=labels)
    return load.kernel(name, function, **constants)


def labelled_pairs(q: Index, d: Index, layout: GpuLayout, *, same: bool, distance: Measured | None,
          labels: tuple[Array, Array] | None, rows: Rows | None, kept: Kept | None) -> Pairs:  # fmt: skip
    """All pairs of two indexes: see `Joiner.pairs`."""
    kind = cupy.int32 if labels is None else cupy.int64
    names = labels or (q["order"], d["order"])
    assert all(name.dtype == kind for name in names)
    wanted = [(side, cupy.ascontiguousarray(some)) for side in range(2) for some in (kept or ((), ()))[side]]
    dtypes = [kind, kind, *([] if distance is None else [cupy.float64]), *(some.dtype for _, some in wanted)]
    result, told = GrowingColumns(dtypes), (0, 0)
    function = finish(layout, "name_pairs", labels=labels is not None)
    for found in method_of(layout.method).batches(q, d, layout, same=same, rows=rows):
        n = len(found.places)
        left, right, *more = columns = result.add(n, found.left)
        away = None if distance is None else more.pop(0)
        if n:
            order = found.places, np.uint64(n), q["order"], d["order"]
            total = np.uint64(0) if away is None else away
            function(*load.shape_of(n), (*order, *names, np.int32(same), q["y"], d["y"], left, right, total))
            if wanted:
                table = _table(wanted, more)
                keep = finish(layout, "keep_columns", labels=labels is not None)
                keep(*load.shape_of(n), (*order, np.int32(same), table, np.int32(len(more))))
        if distance is not None:
            columns[2][:] = distance(away)
        told = (found.decided, found.refused)
    whole = result.columns()
    away = whole[2] if distance is not None else None
    return Pairs(whole[0], whole[1], away, *told, whole[2 + (distance is not None) :])


def _table(wanted: list[tuple[int, Array]], out: list[Array]) -> Array:
    """The columns as the kernel knows them: addresses, bytes of a value, and which side's they are."""
    columns = [
        (some.data.ptr, to.data.ptr, some.itemsize, side)
        for (side, some), to in zip(wanted, out, strict=True)
    ]
    return cupy.asarray(np.array(columns, np.uint64))
