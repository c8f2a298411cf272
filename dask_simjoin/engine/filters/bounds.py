r"""Error bounds of the filters on rounded differences and rounded vectors.

Coordinates are centered and scaled by a power of two, a = s*(x - c), and rounded to float32: z.  The
subtraction errs by 2**-53 of its result.  Scaling is exact unless it underflows.  Rounding errs by 2**-24 of
the result or by 2**-150.  With m_k the largest \|a_k\|, two points' differences are off by at most

    rho = 2 |(2**-24 (1 + 2**-20) m_k + 2**-149)_k|.

**Threshold.**  A pair has d2 <= eps2 as computed.  Computing d2 takes d squares and sums, each rounded by
2**-53 at most; squares that underflow err by 2**-1075.  So its true distance, scaled, is at most

    outer = s sqrt((eps2 + d 2**-1074) (1 + (d + 4) 2**-52)),

and a true distance of at most inner = s sqrt((eps2 - d 2**-1074) (1 - (d + 4) 2**-52)) makes a pair.

**float32.**  Consider the sum of squares of differences of z, fused or not, in any order.  It errs by a
factor of 1 + (d + 4) 2**-24 at most: one rounding of each difference, d + 1 of the squares and sums.
Squares that underflow add d 2**-149.  So a pair's sum is at most

    reach = (outer + rho)**2 (1 + (d + 6) 2**-24) + d 2**-140,

and a sum of at most sure = (inner - rho)**2 (1 - (d + 6) 2**-24) - d 2**-140 belongs to a pair.  A gap
between boxes of z, or between a point and a box, is no larger than the differences of points that it bounds.
The sum of squares of gaps is rounded like the sum for points, so `reach` serves boxes too.

**float64.**  The kernel computes d2 exactly as the decision does, and totals of gaps by the same operations
in the same order.  Rounding is monotone, so `reach` is eps2.

**Norms 1 and infinity.**  Vectors z and errors are the same.  With u = 2**-24, a difference in dimension k is
off by at most

    delta_k = 2 (u (1 + 2**-20) m_k + 2**-149),

and so, by the triangle inequality, a norm of differences is off by at most rho.  It is the sum of all delta_k
(norm 1) or the largest of them (norm infinity).

**Threshold.**  A pair's total is at most eps as float64 computes it.  Each of d differences is rounded by
2**-53, and so is each of d - 1 sums (norm infinity has none).  Differences and sums of floating-point numbers
are exact if they underflow.  So a pair's true distance, scaled, is at most
outer = s eps (1 + (d + 4) 2**-52).  Points at a distance of at most inner = s eps (1 - (d + 4) 2**-52) are a
pair.  A total that overflows is above `outer` and `inner`.

**float32.**  The total of differences of z, in any order, errs likewise by a factor between (1 - u)**d and
(1 + u)**d.  With d <= 4096 these are at least 1 / (1 + (d + 2) u) and at most 1 + (d + 1) u.  So a pair's
total is at most

    reach = (outer + rho) (1 + (d + 6) u),

and a total of at most sure = (inner - rho) (1 - (d + 6) u) belongs to a pair.  Then the distance of z is at
most inner - rho.  Rounding changes these two products by less than u of their value.

**Boxes.**  A gap between boxes of z, or between a point and a box, is no larger than the differences that it
bounds.  A span is no smaller.  Gaps and spans are added in the order of the total's terms.  Rounding is
monotone, so `reach` and `sure` serve boxes too.  In float64, the span of a box itself is added as well, so
`sure` is smaller than necessary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.metrics.norms import Norm

U = 2.0**-24

MAX_DIMS = 4096
"""Up to this number of dimensions, (1 + 2**-24)**(d + 4) is below the assumed 1 + (d + 6) 2**-24."""

ROOM = 2.0**14
"""Upper bound, after scaling, of eps2 and of squared distances of points from the center.

After scaling the larger of these two is above ROOM / 4, so float16 can represent half of their sum.
"""


@dataclass(frozen=True)
class Bounds:
    """Constants of the filters of one join.

    Attributes
    ----------
    centre : tuple of float
        c, one number per dimension.
    scale : float
        s, a power of two.
    outer, inner : float
        Scaled distances: no pair is farther apart than `outer`, and points within `inner` are pairs.
    rho : float
        Largest error of differences of rounded points, scaled.
    """

    centre: tuple[float, ...]
    scale: float
    outer: float
    inner: float
    rho: float

    def scaled(self, y: np.ndarray) -> np.ndarray:
        """Return points (n, d) as filters see them: centered and scaled."""
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
        """Largest float32 total that surely belongs to a pair; -1: none."""
        value = max(self.inner - self.rho, 0.0) ** 2 * (1 - self._factor) - len(self.centre) * 2.0**-140
        return np.nextafter(np.float32(value), np.float32(0)) if value > 2.0**-126 else np.float32(-1)


def make_bounds(lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, eps2: float) -> Bounds | None:
    """Return bounds for points within the box [lower, upper]; None: numbers leave the assumed ranges."""
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


OPEN = 1 / 16
"""Largest d times rho as a share of eps: float64 decides about twice this share of the pairs within reach."""

NORMS = (1, math.inf)
"""Norms that the filter supports; for other norms, powers of differences are rounded, too."""


@dataclass(frozen=True)
class RoundedFilter:
    """Constants of the filter of the norms 1 and infinity: see the module.

    Attributes
    ----------
    centre : tuple of float
        c, one number per dimension.
    scale : float
        s, a power of two.
    rho, eps : float
        rho and s eps.
    """

    centre: tuple[float, ...]
    scale: float
    rho: float
    eps: float

    @property
    def reach(self) -> np.float32:
        """Largest total, as float32 computes it, that a pair can have."""
        d = len(self.centre)
        outer = self.eps * (1 + (d + 4) * 2.0**-52)
        return np.nextafter(np.float32((outer + self.rho) * (1 + (d + 6) * U)), np.float32(np.inf))

    @property
    def sure(self) -> np.float32:
        """Largest float32 total that surely belongs to a pair; -1: none."""
        d = len(self.centre)
        value = (self.eps * (1 - (d + 4) * 2.0**-52) - self.rho) * (1 - (d + 6) * U)
        return np.nextafter(np.float32(value), np.float32(0)) if value > 2.0**-100 else np.float32(-1)

    def within(self, eps: float) -> RoundedFilter | None:
        """Return the filter of the same points for another threshold; None if `eps` is too small."""
        scaled = min(eps, 2.0**40 / self.scale) * self.scale
        return replace(self, eps=scaled) if scaled > 2.0**-90 else None


def make_rounded_filter(lower: np.ndarray, upper: np.ndarray, centre: np.ndarray, eps: float,
                        norm: Norm) -> RoundedFilter | None:  # fmt: skip
    """Return a filter for points within the box [lower, upper]; None: float64 is faster, or necessary.

    It is necessary if numbers leave the assumed ranges, and faster if it has to decide too many pairs anyway.
    """
    dims = len(lower)
    if norm not in NORMS or dims > MAX_DIMS:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.maximum(upper - centre, centre - lower) * (1 + 2.0**-50)
    largest = float(most.max())
    if not (2.0**-900 < largest < 2.0**900 and 2.0**-900 < eps < 2.0**900):
        return None
    scale = 2.0 ** -math.frexp(largest)[1]
    off = 2 * (U * (1 + 2.0**-19) * scale * most + 2.0**-149)
    rho = float(off.sum() if norm == 1 else off.max()) * (1 + 2.0**-38)
    made = RoundedFilter(tuple(centre.tolist()), scale, rho, 0.0).within(eps)
    return None if made is None or not dims * rho <= OPEN * made.eps else made
