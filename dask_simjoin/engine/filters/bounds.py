"""Bounds of the filters that work on rounded differences and on rounded vectors.

Coordinates are centred and scaled by a power of two, a = s*(x - c), and rounded to float32: z.  The
subtraction errs by 2**-53 of its result, scaling by nothing unless it underflows, rounding by 2**-24 or
by 2**-150.  With m_k the largest \\|a_k\\|, two points' differences are off by a vector no longer than

    rho = 2 |(2**-24 (1 + 2**-20) m_k + 2**-149)_k|.

**Threshold.**  A pair has d2 <= eps2 as computed: of d squares and sums, each rounded by 2**-53 at most,
and squares that underflow by 2**-1075.  So its true distance, scaled, is at most

    outer = s sqrt((eps2 + d 2**-1074) (1 + (d + 4) 2**-52)),

and one of at most inner = s sqrt((eps2 - d 2**-1074) (1 - (d + 4) 2**-52)) makes a pair.

**float32.**  The sum of squares of differences of z, fused or not, in any order, errs by a factor of
1 + (d + 4) 2**-24 at most (one rounding of each difference, d + 1 of the squares and sums), and by
d 2**-149 where squares underflow.  So a pair's is at most

    reach = (outer + rho)**2 (1 + (d + 6) 2**-24) + d 2**-140,

and what is at most sure = (inner - rho)**2 (1 - (d + 6) 2**-24) - d 2**-140 is a pair.  A gap between
boxes of z, or between a point and a box, is no larger than a difference it bounds, and its sum of
squares rounds the same way: `reach` serves boxes too.

**float64.**  The kernel computes d2 itself, and gaps with the operations of d2 in their order: rounding is
monotone, so `reach` is eps2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

U = 2.0**-24

MAX_DIMS = 4096
"""Up to here (1 + 2**-24)**(d + 4) is below the factor assumed, 1 + (d + 6) 2**-24."""

ROOM = 2.0**14
"""The squared distance of any point from the centre, and eps2, are at most this after scaling, and at
least a quarter of it: float16 can hold half of their sum."""


@dataclass(frozen=True)
class Bounds:
    """Constants of the filters of one join.

    Attributes
    ----------
    centre : tuple of float
        c, one number a dimension.
    scale : float
        s, a power of two.
    outer, inner : float
        No pair is further apart, and all that are not further are pairs; scaled.
    rho : float
        How far differences of rounded points may be off; scaled.
    """

    centre: tuple[float, ...]
    scale: float
    outer: float
    inner: float
    rho: float

    def scaled(self, y: np.ndarray) -> np.ndarray:
        """Return points (n, d) as filters see them: centred and scaled."""
        a: np.ndarray = y - np.array(self.centre)
        a *= self.scale
        return a

    @property
    def _factor(self) -> float:
        return (len(self.centre) + 6) * U

    @property
    def reach(self) -> np.float32:
        """Largest sum of squares, as float32 computes it, that a pair can have."""
        value = (self.outer + self.rho) ** 2 * (1 + self._factor) + len(self.centre) * 2.0**-140
        return np.nextafter(np.float32(value), np.float32(np.inf))

    @property
    def sure(self) -> np.float32:
        """What has at most this is a pair whatever was rounded; -1: nothing is."""
        value = max(self.inner - self.rho, 0.0) ** 2 * (1 - self._factor) - len(self.centre) * 2.0**-140
        return np.nextafter(np.float32(value), np.float32(0)) if value > 2.0**-126 else np.float32(-1)


def make_bounds(lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, eps2: float) -> Bounds | None:
    """Bounds for points within the box [lower, upper]; None where numbers leave the ranges assumed."""
    dims = len(lower)
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.maximum(upper - mean, mean - lower) * (1 + 2.0**-50)
        size = float(np.einsum("i,i->", most, most))
    largest = max(size, eps2)
    if not (largest < 2.0**1000 and eps2 > 2.0**-960 and largest > 0 and dims <= MAX_DIMS):
        return None
    exponent = math.frexp(ROOM / largest)[1] - 1
    scale = 2.0 ** (exponent // 2)
    if not 2.0**-400 < scale < 2.0**400:
        return None
    tiny = dims * 2.0**-1074
    outer = scale * math.sqrt((eps2 + tiny) * (1 + (dims + 4) * 2.0**-52)) * (1 + 2.0**-50)
    inner = scale * math.sqrt(max(eps2 - tiny, 0.0) * (1 - (dims + 4) * 2.0**-52)) * (1 - 2.0**-50)
    off = U * (1 + 2.0**-20) * scale * most + 2.0**-149
    rho = 2 * math.sqrt(float(np.einsum("i,i->", off, off))) * (1 + 2.0**-40)
    return Bounds(tuple(float(c) for c in mean), scale, outer, inner, rho)
