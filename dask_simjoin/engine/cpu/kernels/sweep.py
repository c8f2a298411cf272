"""The row sweep: joins two grid indexes of 1 to 4 dimensions, float64 throughout."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.compiled import kernel
from dask_simjoin.engine.cpu.kernels.sweep_simd import sweep_counts, sweep_pairs
from dask_simjoin.engine.cpu.kernels.totals import Kind
from dask_simjoin.metrics.types import Array

FRESH = (0, 0, -1, 0, 0)
"""State of a join that has not begun: row, offset, point (-1: none yet), window."""


@kernel
def pairs(sweep: int, q_cols: Array, q_keys: Array, q_starts: Array, q_names: Array, d_cols: Array,
          d_keys: Array, d_starts: Array, d_names: Array, offsets: Array, reach: float, threshold: float,
          norm: Kind, same: bool, left: Array, right: Array, n: int, cap: int, state: Array,
          at: Array) -> int:  # fmt: skip
    """Append pairs of names to `left` and `right`; the new number of pairs.

    Stops where a window might not fit into `cap`, leaving in `state` where it was and in
    ``state[5]`` how much room it needs (0: the join is complete).  `offsets`: what to add
    to a row's key for each neighbour row; `at`: each one's position in `d_keys`;
    `norm`: see `totals.kind_of`.
    With `same`, the two sides are one index and only the later half of each
    neighbourhood is visited.
    """
    dims = q_cols.shape[0]
    q_base, q_stride = q_cols.ctypes.data, q_cols.strides[0]
    d_base, d_stride = d_cols.ctypes.data, d_cols.strides[0]
    names, out_l, out_r = d_names.ctypes.data, left.ctypes.data, right.ctypes.data
    xq, xd = q_cols[sweep], d_cols[sweep]
    q_rows, d_rows = q_keys.size, d_keys.size
    r, o, i, lo, hi = state[0], state[1], state[2], state[3], state[4]
    state[5] = 0
    while r < q_rows:
        stop_i = q_starts[r + 1]
        while o < offsets.size:
            target = q_keys[r] + offsets[o]
            p = at[o]
            while p < d_rows and d_keys[p] < target:
                p += 1
            at[o] = p
            if p < d_rows and d_keys[p] == target:
                stop_j = d_starts[p + 1]
                own = same and offsets[o] == 0
                if i < 0:
                    i = q_starts[r]
                    lo = d_starts[p]
                    hi = lo
                while i < stop_i:
                    x = xq[i]
                    if own:
                        lo = i + 1
                    else:
                        while lo < stop_j and x - xd[lo] > reach:
                            lo += 1
                    hi = max(hi, lo)
                    while hi < stop_j and xd[hi] - x <= reach:
                        hi += 1
                    if n + (hi - lo) > cap:
                        state[0], state[1], state[2], state[3], state[4] = r, o, i, lo, hi
                        state[5] = hi - lo
                        return n
                    n = sweep_pairs(dims, d_base, d_stride, lo, hi, q_base + 8 * i, q_stride, threshold,
                                    norm, names, np.int64(q_names[i]), np.int64(same), out_l, out_r,
                                    n)  # fmt: skip
                    i += 1
                i = -1
            o += 1
        o = 0
        r += 1
    return n


@kernel
def counts(sweep: int, q_cols: Array, q_keys: Array, q_starts: Array, d_cols: Array, d_keys: Array,
           d_starts: Array, offsets: Array, reach: float, threshold: float, norm: Kind, same: bool,
           q_counts: Array, d_counts: Array, at: Array) -> None:  # fmt: skip
    """Add each point's number of neighbours to the counts of both sides (one array if `same`)."""
    dims = q_cols.shape[0]
    q_base, q_stride = q_cols.ctypes.data, q_cols.strides[0]
    d_base, d_stride = d_cols.ctypes.data, d_cols.strides[0]
    counts_at = d_counts.ctypes.data
    xq, xd = q_cols[sweep], d_cols[sweep]
    d_rows = d_keys.size
    for r in range(q_keys.size):
        for o in range(offsets.size):
            target = q_keys[r] + offsets[o]
            p = at[o]
            while p < d_rows and d_keys[p] < target:
                p += 1
            at[o] = p
            if p >= d_rows or d_keys[p] != target:
                continue
            stop_j = d_starts[p + 1]
            own = same and offsets[o] == 0
            lo = d_starts[p]
            hi = lo
            for i in range(q_starts[r], q_starts[r + 1]):
                x = xq[i]
                if own:
                    lo = i + 1
                else:
                    while lo < stop_j and x - xd[lo] > reach:
                        lo += 1
                hi = max(hi, lo)
                while hi < stop_j and xd[hi] - x <= reach:
                    hi += 1
                q_counts[i] += sweep_counts(dims, d_base, d_stride, lo, hi, q_base + 8 * i,
                                            q_stride, threshold, norm, counts_at)  # fmt: skip
