"""Totals of two points, which every metric compares with a threshold; and names of
shared types.

Let p be a norm (a number from 1 on, or infinity), and t0, t1, ... the coordinate differences
of two points. Their total is ``(|t0|**p + |t1|**p) + ...`` in the order of the
dimensions. For infinite p it is the largest ``|t|``. Every operation is rounded to
float64, without fused multiply-add. Powers are products of numbers and of square roots:
see `power`.

Arrays of NumPy and CuPy have no common base class, and neither have frames of pandas
and cuDF. So these types are `Any` for type checkers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

Array = Any
"""An array of NumPy or CuPy. Docstrings give its shape and dtype."""

ArrayModule = Any
"""The module of an array: `numpy` or `cupy`."""

Frame = Any
"""A data frame of pandas or cuDF, or a Dask DataFrame if the docstring says "lazy"."""

Series = Any
"""A Series of pandas or cuDF, or a Dask Series if the docstring says "lazy"."""

Ids = Any
"""Row ids: an Index of pandas or cuDF."""

Values = Any
"""Values of a column: an array, or an extension array or Series of the data frame
library.
"""

DType = Any
"""A dtype of NumPy, or an extension dtype of a data frame library."""

Index = dict[str, Any]
"""The index of a chunk, as `Joiner.build` makes it: name -> array or number."""

Spread = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Statistics of columns, on the host: minimum, maximum, mean, sum of squared
deviations, each (d,).
"""

Columns = Hashable | Iterable[Hashable] | None
"""Value of the option `on`: one column name, several names, or None for the default
columns.
"""

ArrowTable = Any
"""A table of pyarrow."""

SparseMatrix = Any
"""A sparse matrix in CSR format, of SciPy or CuPy."""

Norm = int | float
"""The exponent p of a norm: an integer, a number between integers, or `math.inf`."""

NORMAL = 2.0**-1020
"""Totals below this may be subnormal, or have subnormal powers. If a computed power is
at least this, none of the products that it was computed by has underflowed.
"""


def is_norm(p: Norm) -> bool:
    """Return whether a number is the exponent of a norm: at least 1."""
    return p >= 1


def power(a: Array, p: Norm) -> Array:
    """Return ``a**p`` for `a` >= 0, by squaring and multiplying from the highest bit of
    the whole part of p to the lowest.

    The first bit after the point stands for the square root of `a`, the next one for the
    root of this root, and so on. The roots of all bits that are 1 are multiplied, too.

    Rounding is monotone, so a larger `a` never has a smaller power. For infinite p the
    result is `a`.
    """
    if p == math.inf:
        return a
    result = a
    for bit in bin(int(p))[3:]:
        result = result * result
        if bit == "1":
            result = result * a
    rest, root = p - int(p), a
    # not `sqrt` of NumPy for floats, which warns of infinite products
    square_root = math.sqrt if isinstance(a, float) else np.sqrt
    while rest:
        root, rest = square_root(root), 2 * rest
        if rest >= 1:
            result, rest = result * root, rest - 1
    return result


def add(total: Array, a: Array, p: Norm) -> Array:
    """Add one dimension to totals; `a`: the absolute coordinate differences in this
    dimension.
    """
    return np.maximum(total, a) if p == math.inf else total + power(a, p)


def box_gap(
    p: Norm, lower_a: Array, upper_a: Array, lower_b: Array, upper_b: Array
) -> Array:
    """Return a lower bound of the total of two points: one in the first box, one in the
    second.

    Corners are arrays (..., d); the result is (...). In each dimension, the gap between
    the boxes is at most the difference of the points. Gaps are added in the order of
    the differences, and rounding is monotone. So the bound never exceeds the computed
    total, and needs no margin for rounding.
    """
    total: Array = 0.0
    with np.errstate(over="ignore"):
        for k in range(lower_a.shape[-1]):
            gap = np.maximum(
                lower_a[..., k] - upper_b[..., k], lower_b[..., k] - upper_a[..., k]
            )
            total = add(total, np.maximum(gap, 0.0), p)
    return total


def reach(p: Norm, threshold: float) -> float:
    """Return an upper bound of the difference t, in one coordinate, between the two
    points of a pair.

    The total of a pair is at most `threshold`. A rounded total is at least each of its
    rounded terms. For p = 1 and infinity, the term is the difference itself.

    For p = 2, ``fl(t*t) <= threshold`` means ``t*t <= threshold*(1 + 2**-53) +
    2**-1075``. The reason is that the product was rounded by at most half an ulp, or
    half of the smallest subnormal.

    For other p, a power takes at most p products. If p is not whole, it also takes 52
    roots and products. Each rounding may make it smaller. If a product underflows,
    ``t**m < 2**-1021`` for an m <= p. The p-th root divides the relative error of these
    roundings by p. Rounding 1/p changes the root by a relative ``2**-53 * 745 <
    2**-43`` at most. The root is also rounded once.
    """
    if p == 1 or p == math.inf:
        return threshold
    if p == 2:
        return math.sqrt(threshold + 2.0**-1074) * (1 + 2.0**-50)
    return float(max(threshold, NORMAL)) ** (1 / p) * (1 + 2.0**-40)


WIDER, LEAST = 1 + 2.0**-30, 2.0**-1000
"""Margins that cover the rounding of totals: a factor, and an addend for totals that
underflow.
"""


def twice(p: Norm, threshold: float) -> float:
    """Return an upper bound of the total of two points, both within `threshold` of a
    third point.

    A power takes at most p products, and a sum takes one addition for each dimension.
    So a computed total has a relative error below 2**-31.  If terms underflow, there is
    also an error below 2**-1000.  Therefore both exact distances are at most the root
    of ``threshold * WIDER + LEAST``.  By the triangle inequality, the exact distance of
    the two points is at most twice this root.  Its computed total is then at most the
    result, by the same margins.
    """
    away = 2 * reach(p, threshold * WIDER + LEAST)
    with np.errstate(over="ignore"):
        return float(power(np.float64(away), p)) * WIDER + LEAST


def reaches(p: Norm, thresholds: Array) -> Array:
    """Return `reach` for each of the thresholds (n,)."""
    if p == 1 or p == math.inf:
        return thresholds
    with np.errstate(over="ignore"):
        if p == 2:
            return np.sqrt(thresholds + 2.0**-1074) * (1 + 2.0**-50)
        return np.maximum(thresholds, NORMAL) ** (1 / p) * (1 + 2.0**-40)
