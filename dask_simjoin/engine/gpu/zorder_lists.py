"""Lists in Z-order on GPUs: the order of a chunk's rows by their keys."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.gpu.kernels.sources import norm_constant
from dask_simjoin.engine.index.zorder import ZOrderLayout
from dask_simjoin.metrics.types import Array

THREADS = 256
"""Of a block."""


def blocks(threads: int) -> tuple[tuple[int], tuple[int]]:
    """Return as many blocks as so many threads make, and the threads of one."""
    return (-(-threads // THREADS),), (THREADS,)


def kernel(program: str, layout: ZOrderLayout, function: str, **constants: int) -> Any:
    """Return the function of a file, of keys of such a layout."""
    shape = {"DIMS": layout.dims, "COLUMNS": len(layout.columns), "WORDS": layout.options.words}
    return load.kernel(program, function, **shape, **constants, **norm_constant(layout.norm))


class Keys:
    """What kernels are told to make the keys of points; `program`: their file, `constants`: of it."""

    def __init__(self, program: str, layout: ZOrderLayout, **constants: int) -> None:
        self.program, self.layout, self.constants = program, layout, constants
        columns, low = np.array(layout.columns, np.int32), np.array(layout.low)
        self.told = (
            cupy.asarray(columns),
            cupy.asarray(low),
            np.float64(layout.extent),
            np.float64(layout.scale),
        )

    def kernel(self, function: str) -> Any:
        """The function of that name."""
        return kernel(self.program, self.layout, function, **self.constants)

    def of(self, shift: float) -> tuple[Any, ...]:
        """What a list's keys depend on."""
        return (*self.told, np.float64(shift), np.int32(self.layout.bits))

    def in_order(self, y: Array, shift: float) -> tuple[Array, Array]:
        """Sort points (n, d): their places (n,) int32, and their keys (n, words) in this order.

        Equal keys stay in the order of their points, so that lists are those of CPUs.
        """
        keys = cupy.empty((len(y), self.layout.options.words), cupy.uint64)
        points = y, np.int32(len(y)), *self.of(shift), keys
        self.kernel("make_keys")(*blocks(len(y)), points)
        if keys.shape[1] == 1:
            order = cupy.argsort(keys[:, 0], kind="stable")
        else:
            order = cupy.lexsort(cupy.ascontiguousarray(keys.T[::-1]))
        return order.astype(cupy.int32), cupy.ascontiguousarray(keys[order])
