r"""Error bounds of filters that compare float32 and float16 numbers instead of float64.

Coordinates are centered and scaled by a power of two, a = s*(x - c), and rounded to
float32: z.  The subtraction errs by 2**-53 of its result.  Scaling is exact unless it
underflows.  Rounding errs by 2**-24 of the result or by 2**-150.  With m_k the largest
\|a_k\|, two points' differences are off by at most

    rho = 2 |(2**-24 (1 + 2**-20) m_k + 2**-149)_k|.

**Threshold.**  Two points are a pair if float64 computes d2 <= eps2, where d2 is their
squared distance. The d squares and sums are each rounded by 2**-53 at most; squares
that underflow err by 2**-1075.  So the true distance of a pair, scaled, is at most

    outer = s sqrt((eps2 + d 2**-1074) (1 + (d + 4) 2**-52)),

and two points are a pair if their true distance, scaled, is at most

    inner = s sqrt((eps2 - d 2**-1074) (1 - (d + 4) 2**-52)).

**float32.**  Consider the sum of squared differences of two z, in any order, with or
without fused multiply-add.  It errs by a factor of 1 + (d + 4) 2**-24 at most.  Each
difference is rounded once, and the squares and sums d + 1 times.  Squares that
underflow add d 2**-149.  So a pair's sum is at most

    reach = (outer + rho)**2 (1 + (d + 6) 2**-24) + d 2**-140,

and two points are a pair if their sum is at most

    sure = (inner - rho)**2 (1 - (d + 6) 2**-24) - d 2**-140.

A gap between boxes of z, or between a point and a box, is no larger than the
differences of points that it bounds.  The sum of squares of gaps is rounded like the
sum for points.  So boxes hold no pair if their sum is above `reach`.

**float64.**  The kernel computes d2 by the same operations as the final decision, in
the same order.  It adds gaps in the same way.  Rounding is monotone, so `reach` is
eps2.

**Norms 1 and infinity.**  The vectors z and their errors are those above.  With u =
2**-24, a difference in dimension k is off by at most

    delta_k = 2 (u (1 + 2**-20) m_k + 2**-149),

and so, by the triangle inequality, a norm of differences is off by at most rho.  Rho is
the sum of all delta_k (norm 1) or the largest of them (norm infinity).

**Threshold.**  Two points are a pair if float64 computes a total of at most eps.  Each
of d differences is rounded by 2**-53, and so is each of d - 1 sums (norm infinity has
no sums).  Differences and sums of floating-point numbers are exact if they underflow.
So a pair's true distance, scaled, is at most outer = s eps (1 + (d + 4) 2**-52).  Two
points are a pair if their true distance, scaled, is at most inner = s eps (1 - (d + 4)
2**-52).  A total that overflows is above `outer` and `inner`.

**float32.**  The total of differences of z, added in any order, errs by a factor
between (1 - u)**d and (1 + u)**d.  For d <= 4096 this factor is between 1 / (1 + (d +
2) u) and 1 + (d + 1) u.  So a pair's total is at most

    reach = (outer + rho) (1 + (d + 6) u),

and two points are a pair if their total is at most

    sure = (inner - rho) (1 - (d + 6) u).

Then the true distance of their z is at most inner - rho.  Computing `reach` and `sure`
changes them by less than u of their value.

**Boxes.**  A gap between boxes of z, or between a point and a box, is no larger than
the differences of their points.  A span is no smaller.  Gaps and spans are added in the
same order as differences of points. Rounding is monotone, so gaps can be compared with
`reach`, and spans with `sure`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.metrics.norms import Norm

U = float(np.finfo(np.float32).epsneg)  # 2**-24

MAX_DIMS = 4096
"""Maximum number of dimensions d. Up to it, (1 + 2**-24)**(d + 4) < 1 + (d + 6) 2**-24,
as assumed above.
"""

MAX_SCALED = 2.0**14
"""Upper limit, after scaling, of eps2 and of squared distances from the center.

The scale s is the largest power of two that keeps both within this limit, so the larger
of both exceeds a quarter of it. Half of their sum then stays within float16's range.
"""


def above(value: float) -> np.float32:
    """Return a float32 above `value`, at most two steps away."""
    return np.nextafter(np.float32(value), np.float32(np.inf))


def below(value: float, min_value: float) -> np.float32:
    """Return a float32 below `value`, at most two steps away; -1 for values up to
    `min_value`.
    """
    return (
        np.nextafter(np.float32(value), np.float32(0))
        if value > min_value
        else np.float32(-1)
    )


@dataclass(frozen=True)
class Bounds:
    """Constants of the filters of one join."""

    centre: tuple[float, ...]  # c, one number per dimension
    scale: float  # s, a power of two
    # scaled distances: no pair is farther apart than `outer`, and all points within
    # `inner` are pairs
    outer: float
    inner: float
    rho: float  # largest error of the difference of two rounded points, scaled

    def scaled(self, y: np.ndarray) -> np.ndarray:
        """Return the points (n, d) centered and scaled, not yet rounded."""
        a: np.ndarray = y - np.array(self.centre)
        a *= self.scale
        return a

    @property
    def _factor(self) -> float:
        return (len(self.centre) + 6) * U

    @property
    def reach(self) -> np.float32:
        """A pair's sum of squares in float32 never exceeds this bound."""
        value = (self.outer + self.rho) ** 2 * (1 + self._factor) + len(
            self.centre
        ) * 2.0**-140
        return above(value)

    @property
    def sure(self) -> np.float32:
        """If the float32 sum of squares of two points is at most this bound, they are a
        pair; -1 if no sum proves it.
        """
        value = (
            max(self.inner - self.rho, 0.0) ** 2 * (1 - self._factor)
            - len(self.centre) * 2.0**-140
        )
        return below(value, 2.0**-126)


def make_bounds(
    lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, eps2: float
) -> Bounds | None:
    """Return bounds for points in the box [lower, upper]; None if numbers leave the
    assumed ranges.
    """
    dims = len(lower)
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.maximum(upper - mean, mean - lower) * (1 + 2.0**-50)
        size = float(np.einsum("i,i->", most, most))
    largest = max(size, eps2)
    if not (
        largest < 2.0**1000 and eps2 > 2.0**-960 and largest > 0 and dims <= MAX_DIMS
    ):
        return None
    exponent = math.frexp(MAX_SCALED / largest)[1] - 1
    scale = 2.0 ** (exponent // 2)
    if not 2.0**-400 < scale < 2.0**400:
        return None
    tiny = dims * 2.0**-1074
    outer = (
        scale * math.sqrt((eps2 + tiny) * (1 + (dims + 4) * 2.0**-52)) * (1 + 2.0**-50)
    )
    inner = (
        scale
        * math.sqrt(max(eps2 - tiny, 0.0) * (1 - (dims + 4) * 2.0**-52))
        * (1 - 2.0**-50)
    )
    off = U * (1 + 2.0**-20) * scale * most + 2.0**-149
    rho = 2 * math.sqrt(float(np.einsum("i,i->", off, off))) * (1 + 2.0**-40)
    return Bounds(tuple(float(c) for c in mean), scale, outer, inner, rho)


NORMS = (1, math.inf)
"""Norms that have a `RoundedFilter`.

Its bounds do not cover other norms, whose powers are rounded as well.
"""


@dataclass(frozen=True)
class RoundedFilter:
    """Constants of the float32 filter for norms 1 and infinity; the module derives
    them.
    """

    centre: tuple[float, ...]  # c, one number per dimension
    scale: float  # s, a power of two
    # largest error of a norm, and the threshold; both scaled
    rho: float
    eps: float

    @property
    def reach(self) -> np.float32:
        """A pair's total in float32 never exceeds this bound."""
        d = len(self.centre)
        outer = self.eps * (1 + (d + 4) * 2.0**-52)
        return above((outer + self.rho) * (1 + (d + 6) * U))

    @property
    def sure(self) -> np.float32:
        """If the float32 total of two points is at most this bound, they are a pair; -1
        if no total proves it.
        """
        d = len(self.centre)
        value = (self.eps * (1 - (d + 4) * 2.0**-52) - self.rho) * (1 - (d + 6) * U)
        return below(value, 2.0**-100)

    def within(self, eps: float) -> RoundedFilter | None:
        """Return the filter of the same points for another threshold; None if `eps` is
        too small.
        """
        scaled = min(eps, 2.0**40 / self.scale) * self.scale
        return replace(self, eps=scaled) if scaled > 2.0**-90 else None


def make_rounded_filter(
    lower: np.ndarray, upper: np.ndarray, centre: np.ndarray, eps: float, norm: Norm
) -> RoundedFilter | None:
    """Return a filter for points within the box [lower, upper]; None: use float64
    alone.

    None means that numbers leave the ranges assumed above, or that the filter would
    leave too many pairs undecided.
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
    # the filter then leaves at most about 1/8 of the pairs undecided
    return None if made is None or not dims * rho <= made.eps / 16 else made
