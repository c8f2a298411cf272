"""Nearest neighbours among rows of lists in Z-order: see `dask_simjoin.engine.cpu.zorder_nearest`."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.ranking import take_in, worse
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array

AT_ONCE = 8
"""Terms that are summed before a sum is looked at."""


@kernel
def look(queries: Array, firsts: Array, lasts: Array, listed: Array, q_y: Array, q_names: Array, rows: Array,
         d_y: Array, d_names: Array, same: bool, bound: float, norm: Kind, best_d2: Array,
         best_name: Array, new_d2: Array, new_name: Array) -> int:  # fmt: skip
    """Improve the neighbours of queries by the rows of a list from `firsts` to `lasts`, by query.

    `queries`: places of those that look; `listed`: places of the list's rows; `rows`: of each query, where
    its neighbours are kept; `new_d2`, `new_name` (1,): scratch.  A row that is known already
    is left out: it is in several lists.  Returns how many rows were looked at.

    Terms are not negative and rounding is monotone, so a sum that ends once it is beyond the worst neighbour
    decides as all of it would.
    """
    dims, k, looked = q_y.shape[1], best_d2.shape[1], 0
    for s in range(queries.size):
        p = np.int64(queries[s])
        row, name = np.int64(rows[p]), q_names[p]
        for j in range(firsts[p], lasts[p]):
            place = np.int64(listed[j])
            other = d_names[place]
            if same and other == name:
                continue
            looked += 1
            most = min(bound, best_d2[row, k - 1])
            total, m = 0.0, 0
            while m < dims:
                for c in range(m, min(m + AT_ONCE, dims)):
                    total = add_term(total, q_y[p, c] - d_y[place, c], norm)
                m += AT_ONCE
                if total > most:
                    break
            if total > most or not worse(best_d2[row, k - 1], best_name[row, k - 1], total, other):
                continue
            known = False
            for n in range(k):
                if best_name[row, n] == other:
                    known = True
                    break
            if not known:
                new_d2[0], new_name[0] = total, other
                take_in(best_d2, best_name, row, new_d2, new_name, 1)
    return looked
