"""Look up which rows lie in cells that are marked: see `dask_simjoin.incremental.marks`."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.metrics.types import Array


@kernel
def find_near(x: Array, y: Array, z: Array, low: Array, scale: Array, cells: Array, table: Array,
              out: Array) -> int:  # fmt: skip
    """Fill `out` with the places of rows in marked cells; returns how many there are.

    `x`, `y`, `z` (n,): coordinates; `low`, `scale`, `cells` (3,): of each, where cells begin, how many there
    are in a unit, and how many in all; one cell where a coordinate is not looked at.  `table`: of all cells.
    """
    n = 0
    most = cells[0] - 1.0, cells[1] - 1.0, cells[2] - 1.0
    wide, deep = int(cells[1]), int(cells[2])
    for i in range(x.size):
        a = min(max((x[i] - low[0]) * scale[0], 0.0), most[0])
        b = min(max((y[i] - low[1]) * scale[1], 0.0), most[1])
        c = min(max((z[i] - low[2]) * scale[2], 0.0), most[2])
        out[n] = i
        n += table[(int(a) * wide + int(b)) * deep + int(c)]
    return n
