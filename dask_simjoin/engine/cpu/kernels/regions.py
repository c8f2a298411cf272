"""Sends points to regions: to the one each lies in, and to those of lower numbers within reach."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.compiled import kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array


@kernel
def own_regions(x: Array, dim: Array, split: Array, child: Array, out: Array) -> None:
    """Fill `out` with the region of each point of `x` (n, d)."""
    for i in range(x.shape[0]):
        node = 0 if dim.size else -1
        while node >= 0:
            node = child[node, 1 if x[i, dim[node]] >= split[node] else 0]
        out[i] = -1 - node


@kernel
def halo_regions(x: Array, dim: Array, split: Array, child: Array, middle: Array, lower: Array, upper: Array,
                 own: Array, reach: float, threshold: float, norm: Kind, rows: Array,
                 regions: Array) -> int:  # fmt: skip
    """Write the points that other regions need and those regions, as far as they fit; how many.

    A point is needed by every region of a lower number than its own whose box is within
    `threshold`: a gap to a box, computed as a total is, is never larger than the total of any
    point in it, as rounding is monotone.  `middle`: the first region right of each cut;
    `norm`: see `totals.kind_of`.
    """
    stack = np.empty(dim.size + 2, np.int64)
    dims = x.shape[1]
    n = 0
    for i in range(x.shape[0]):
        if own[i] == 0:
            continue
        size = 1
        stack[0] = 0
        while size > 0:
            size -= 1
            node = stack[size]
            if node < 0:
                region = -1 - node
                if region >= own[i]:
                    continue
                total = 0.0
                for k in range(dims):
                    gap = max(max(lower[region, k] - x[i, k], x[i, k] - upper[region, k]), 0.0)
                    total = add_term(total, gap, norm)
                if total <= threshold:
                    if n < rows.size:
                        rows[n] = i
                        regions[n] = region
                    n += 1
                continue
            away = x[i, dim[node]] - split[node]
            if away >= -reach and middle[node] < own[i]:
                stack[size] = child[node, 1]
                size += 1
            if away <= reach:
                stack[size] = child[node, 0]
                size += 1
    return n
