"""Sum powers of differences to totals, which every metric compares; names of shared types.

Arrays and frames of different libraries have no common base class, so their types are `Any` for type
checkers.

Let p be a norm (1, 2, 3, ... or infinity) and t the differences of two points. Their total is ``(|t0|**p +
|t1|**p) + ...`` in the order of the dimensions, or the largest ``|t|`` for infinite p. Every operation is
rounded to float64, without fused multiply-add. Powers are computed as products, see `power`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

Array = Any
"""An array of NumPy or CuPy; its shape and type are in the docstring."""

ArrayModule = Any
"""The module of an array: `numpy` or `cupy`."""

Frame = Any
"""A data frame of pandas or cuDF; if a docstring calls it lazy, of Dask."""

Series = Any
"""A Series of pandas or cuDF; if a docstring calls it lazy, of Dask."""

Ids = Any
"""Names of rows: an Index of pandas or cuDF."""

Values = Any
"""Values for a column of a data frame: an array, or an extension array or Series of its library."""

DType = Any
"""A dtype of NumPy, or an extension dtype of a data frame's library."""

Index = dict[str, Any]
"""The index of a chunk that `Joiner.build` makes: arrays and a few numbers, by name."""

Spread = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Arrays (d,) of columns on the host: minimum, maximum, mean, and sum of squared deviations."""

Columns = Hashable | Iterable[Hashable] | None
"""The option `on`: a column name, several names, or None for the frame's default columns."""

ArrowTable = Any
"""A table of pyarrow."""

SparseMatrix = Any
"""A sparse matrix in CSR form: of SciPy or CuPy."""

Norm = int | float
"""1, 2, 3, ... or `math.inf`."""

SMALLEST = 2.0**-1021
"""If a computed power is at least this, none of its products underflowed."""


def is_norm(p: Norm) -> bool:
    """Return whether a number stands for a norm of differences: 1, 2, 3, ... and infinity do."""
    return p == math.inf or (p >= 1 and p == int(p))


def power(a: Array, p: Norm) -> Array:
    """Return ``a**p`` for `a` >= 0, squaring and multiplying from the highest bit of p on.

    Rounding is monotone, so the result never decreases as `a` grows. For infinite p the result is `a`.
    """
    if p == math.inf:
        return a
    result = a
    for bit in bin(int(p))[3:]:
        result = result * result
        if bit == "1":
            result = result * a
    return result


def add(total: Array, a: Array, p: Norm) -> Array:
    """Add the term of a dimension with the difference `a` >= 0 to totals."""
    return np.maximum(total, a) if p == math.inf else total + power(a, p)


def box_gap(p: Norm, lower_a: Array, upper_a: Array, lower_b: Array, upper_b: Array) -> Array:
    """Bound the total of points of two boxes from below; arrays (..., d), result (...).

    The bound is computed like the total, in the same order.  Rounding is monotone, and each gap is at most
    the difference of the points.  So the bound is at most the computed total, without any slack.
    """
    total: Array = 0.0
    with np.errstate(over="ignore"):
        for k in range(lower_a.shape[-1]):
            gap = np.maximum(lower_a[..., k] - upper_b[..., k], lower_b[..., k] - upper_a[..., k])
            total = add(total, np.maximum(gap, 0.0), p)
    return total


def reach(p: Norm, threshold: float) -> float:
    """Bound the coordinate difference of two points whose total is at most `threshold`.

    A rounded total is at least each of its rounded terms. For p = 1 and infinity a term is the difference
    itself. For p = 2, ``fl(t*t) <= threshold`` means ``t*t <= threshold*(1 + 2**-53) + 2**-1075``: the
    product was rounded by at most half an ulp, or half of the smallest subnormal. For other p, a power takes
    at most p products, and each rounding may make it smaller. If a product underflows, ``t**m < 2**-1021``
    for an m <= p. The p-th root reduces the relative error of p roundings to the error of one. Rounding 1/p
    changes the root by a relative ``2**-53 * 745 / 3 < 2**-45`` at most. The root is rounded, too.
    """
    if p == 1 or p == math.inf:
        return threshold
    if p == 2:
        return math.sqrt(threshold + 2.0**-1074) * (1 + 2.0**-50)
    return float(max(threshold, SMALLEST)) ** (1 / p) * (1 + 2.0**-40)


def reaches(p: Norm, thresholds: Array) -> Array:
    """Return `reach` for each threshold (n,), by the same operations."""
    if p == 1 or p == math.inf:
        return thresholds
    with np.errstate(over="ignore"):
        if p == 2:
            return np.sqrt(thresholds + 2.0**-1074) * (1 + 2.0**-50)
        return np.maximum(thresholds, SMALLEST) ** (1 / p) * (1 + 2.0**-40)
