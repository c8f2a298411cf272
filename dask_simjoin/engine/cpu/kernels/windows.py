"""Labels of rows, and those near a cluster's border: see `dask_simjoin.engine.index.clusters`."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array


@device_function
def total_to(row: Array, centre: Array, before: float, scale: float, norm: Kind) -> float:
    """Sum up what a row and a centre are apart, in the units of windows."""
    total = 0.0
    for k in range(row.size):
        total = add_term(total, (row[k] * before - centre[k] * before) * scale, norm)
    return total


@kernel
def nearest(x: Array, centres: Array, before: float, scale: float, norm: Kind, labels: Array,
            totals: Array) -> None:  # fmt: skip
    """Fill in the number of each row's nearest centre, the first of equal ones, and their total."""
    for p in range(len(x)):
        label, least = 0, np.inf
        for c in range(len(centres)):
            total = total_to(x[p], centres[c], before, scale, norm)
            if total < least:
                label, least = c, total
        labels[p], totals[p] = label, least


@kernel
def near(y: Array, totals: Array, starts: Array, centres: Array, j: int, last: int, before: float,
         scale: float, gap: float, slack: float, tiny: float, root: float, norm: Kind,
         out: Array) -> int:  # fmt: skip
    """Fill `out` with the places of rows of clusters before `last`, but `j`, within a window of j's border.

    `y`: rows by cluster, which begin at `starts`; `totals`: from their own centres.  `gap`: the window;
    `root`: of totals, to be distances, or 0 of squares.  What is no number is within it.  Returns how many
    there are.
    """
    n = 0
    for i in range(last):
        if i == j or starts[i] == starts[i + 1]:
            continue
        apart = np.sqrt(total_to(centres[i], centres[j], before, scale, norm)) * (1.0 + slack) + tiny
        for p in range(starts[i], starts[i + 1]):
            other, own = total_to(y[p], centres[j], before, scale, norm), totals[p]
            if root == 0.0:
                most = 2.0 * gap * apart + 3.0 * slack * (other + own) + 4.0 * slack * gap * gap + tiny
            else:
                other, own = other**root, own**root
                most = 2.0 * gap + 3.0 * slack * (other + own) + 4.0 * slack * gap + tiny
            if not other - own > most:
                out[n] = p
                n += 1
    return n
