"""Box, means and sums of squared deviations of points, in one go and without Python's lock."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.compiled import kernel
from dask_simjoin.metrics.types import Array

CACHED = 2048
"""Numbers of a column that are gone through twice: their sum first, then the squares about their mean."""


@kernel
def spread(columns: Array, lower: Array, upper: Array, mean: Array, squares: Array) -> None:
    """Fill the arrays (d,) with what the `columns` (d, n) have, n > 0.

    What is not finite shows in `mean`, and so may a sum that overflows; the others then say nothing.  Four
    sums at a time are what a processor adds at once.  Parts are put together as in Chan, Golub & LeVeque
    1979, pairwise update.
    """
    d, n = columns.shape
    for k in range(d):
        x = columns[k]
        low0 = low1 = low2 = low3 = np.inf
        high0 = high1 = high2 = high3 = -np.inf
        before, middle, away = 0, 0.0, 0.0
        for start in range(0, n, CACHED):
            stop = min(start + CACHED, n)
            even = start + (stop - start) // 4 * 4
            sum0 = sum1 = sum2 = sum3 = 0.0
            for i in range(start, even, 4):
                a, b, c, e = x[i], x[i + 1], x[i + 2], x[i + 3]
                sum0 += a
                sum1 += b
                sum2 += c
                sum3 += e
                low0 = a if a < low0 else low0
                low1 = b if b < low1 else low1
                low2 = c if c < low2 else low2
                low3 = e if e < low3 else low3
                high0 = a if a > high0 else high0
                high1 = b if b > high1 else high1
                high2 = c if c > high2 else high2
                high3 = e if e > high3 else high3
            for i in range(even, stop):
                a = x[i]
                sum0 += a
                low0 = a if a < low0 else low0
                high0 = a if a > high0 else high0
            rows = stop - start
            here = ((sum0 + sum1) + (sum2 + sum3)) / rows
            sum0 = sum1 = sum2 = sum3 = 0.0
            for i in range(start, even, 4):
                a, b, c, e = x[i] - here, x[i + 1] - here, x[i + 2] - here, x[i + 3] - here
                sum0 += a * a
                sum1 += b * b
                sum2 += c * c
                sum3 += e * e
            for i in range(even, stop):
                a = x[i] - here
                sum0 += a * a
            delta, together = here - middle, before + rows
            away += (sum0 + sum1) + (sum2 + sum3) + delta * delta * (float(before) * rows / together)
            middle += delta * (rows / together)
            before = together
        lower[k], upper[k] = min(min(low0, low1), min(low2, low3)), max(max(high0, high1), max(high2, high3))
        mean[k], squares[k] = middle, away
