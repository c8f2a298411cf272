"""Filters of the tile index on CPUs, in float32 and in 8-bit integers, with proofs that
they lose no pair.

**float32.**  Coordinates are centered and scaled by a power of two: a = s*(x - c), so
that every |a_k| <= 1. The tiles hold z = float32(a), so |z - a| <= u*|a| with u =
2**-24.  The slack below also covers underflow, and the rounding of x - c in float64.  A
pair has |a_i - a_j| <= E, where E is s*eps plus the rounding of the float64 decision.
So with N = |z|**2

    N_i + N_j - 2<z_i, z_j> <= (E + u(|z_i| + |z_j|))**2
                            <= E**2 (1 + 2u) + (u + 2u**2)(N_i + N_j)            (2ab <= a*a + b*b)

and the inner product of a pair is at least half of (1 - u - 2u**2)(N_i + N_j) - E**2 (1
+ 2u).

The kernel begins a sum with start_j - h_i and adds the d products.  It rounds at most m
= d + 4 times, with or without fused multiply-add; let g = m*u / (1 - m*u).  Let Q be
the exact sum.  A partial sum is Q minus the products still to come, so its size is at
most |Q| + (N_i + N_j)/2.  So all roundings together err by at most g(|Q| + (N_i +
N_j)/2).  The terms start_j and h_i are rounded by at most 3u(N_i + N_j + E2)/2.  The
part g|Q| of the error cannot change the sign of the sum.  With

    start_j = -N_j (1 - kappa) / 2,    h_i = (N_i (1 - kappa) - E2) / 2,
    kappa = 2g + 3u,                   E2 = E**2 (1 + 8u) + d * 2**-140

a pair has 2Q >= (kappa - u - 2u**2)(N_i + N_j) + 6u E**2, which exceeds the rest of the
error.  So a pair's sum is >= 0, and candidates whose sum is below 0 are refused.
Likewise, a sum of at least

    sure_i + sure_j,   sure_i = 2 kappa N_i + 16 u E2 + d * 2**-138,   sure_j = 2 kappa N_j

belongs to a pair, however it was rounded: with N = N_i + N_j, |z_i - z_j|**2 is then at
most

    E2 (1 - 32u + 3u) - N (4 kappa - kappa - g - 3u)  <=  E**2 (1 - 20u) - N (5g + 6u),

and (|z_i - z_j| + u(|z_i| + |z_j|))**2 <= |z_i - z_j|**2 (1 + u) + 2uN (1 + u) is below
E**2 (1 - 8u).  So float64 decides only sums between 0 and sure_i + sure_j.

**8 bits.** This filter runs before the float32 filter. It is a scalar quantization: its
coordinates are a = (x - c) / w, with a width w that makes most \\|a_k\\| at most 64. A
query's vector b is a rounded to integers from -64 to 64. A data point has the vector p
= A/2, where A is 2a rounded to integers from -128 to 127. Numbers outside of these
ranges are clipped. The errors r_i = \\|a_i - b_i\\| and r_j = \\|a_j - p_j\\| are
computed for each point.  A pair has \\|a_i - a_j\\| <= E, so as in `filters.float16`

    \\|b_i - p_j\\|**2  <=  (E + r_i + r_j)**2  <=  T_i + T_j,     T = E**2/2 + 2 E r + 2 r**2

where T_i depends on one point only.  With N_i = \\|b_i\\|**2, N_j = \\|p_j\\|**2 and x
= ceil(T/2)

    -\\|b_i - p_j\\|**2  =  <b_i, A_j> - N_i - N_j  >=  -2 x_i - 2 x_j.

**In 16 bits.**  Dimensions are assigned in turn, two at a time, to two halves h.  For
each half the kernel adds up

    V_h  =  <b_i, A_j + 128>_h - (N_i + 128 sum(b_i))_h + x_i - floor(N_j)_h + x_j,

A_j + 128 is an unsigned byte here, and a pair has V_0 + V_1 >= 0.  The CPU adds two
products in 16 bits with saturation, but no such sum exceeds 2 * 64 * 255 = 32,640.  All
other sums wrap, so they are exact modulo 2**16.  So a pair's V_h only has to stay in a
range of 2**16 values.  Let X be a bound of x.  A pair's V_h is at most 2X.  It is at
least -2X, because the squared distance in one half is at most the squared distance in
both.  The kernel sums V_h + 32,766 - 2X.  If X <= 16,380, no pair's result wraps.
Points pass if the sums of both halves add up to at least 2 (32,766 - 2X).  For points
far apart, V_h may wrap, so that they pass although they are not a pair.  This costs
only time.  The width w is chosen by the data's variance, so that it is rare.

**In 32 bits.**  CPUs with VNNI add four products to a 32-bit sum, so the kernel sums
V_0 + V_1 as one number. Neither N nor a sum of at most 4096 products exceeds 64 * 255 *
4096 < 2**27, so nothing wraps.

A point with x above X has a large error.  It is marked, and all its candidates pass
this filter.

E is computed as in `filters.bounds`; c, w and 1/w may be any real numbers.  Rounding
changes a by less than 2**-51 of its value.  So 2**-50 of \\|b\\| or \\|p\\| and 2**-40
of r are added to r.  T is increased by 2**-40 T and 2**-20, which is more than the
roundings of T and of N - x.  N itself is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.engine.filters.bounds import MAX_DIMS, U, above, below


@dataclass(frozen=True)
class Filter:
    """Constants of the float32 filter; the module derives them."""

    centre: tuple[float, ...]  # c, one number per dimension
    scale: float  # s, a power of two
    # kappa and E2
    kappa: float
    eps2: float

    def box_reach(self, largest_norm: float) -> np.float32:
        """Return the largest squared gap, in float32, that two boxes with a pair can
        have.

        `largest_norm`: largest N of the points. Boxes hold the points z, and a pair has
        |z_i - z_j| <= E + u(|z_i| + |z_j|). The d squares and sums of the gap err by a factor of 1 + g at
        most.
        """
        slack = 1 + self.kappa + 8 * U
        return above(
            (math.sqrt(self.eps2) + 2 * U * math.sqrt(largest_norm)) ** 2 * slack
        )

    def box_sure(self, largest_norm: float, rest: float = 0.0) -> np.float32:
        """Return a limit: if the squared float32 span of two boxes is at most this, all
        their points are pairs.

        It is -1 if no span proves this.

        `largest_norm`: largest N of the points. `rest`: the most that dimensions
        without boxes can add to a squared distance, unscaled.

        For points of the boxes, |z_i - z_j|**2 is at most the squared span. The d
        squares and sums of the span err by a factor of 1 + g at most, and by d 2**-149
        if squares underflow. The distance
        |a_i - a_j| exceeds |z_i - z_j| by at most u(|a_i| + |a_j|).  E2 exceeds E**2 (1 + 8u) by far less
        than u E**2.
        """
        left = self.eps2 * (1 - 16 * U) - rest * self.scale * self.scale * (
            1 + 2.0**-20
        )
        inner = math.sqrt(max(left, 0.0)) - 3 * U * math.sqrt(largest_norm)
        value = (
            max(inner, 0.0) ** 2 * (1 - self.kappa - 8 * U)
            - len(self.centre) * 2.0**-140
        )
        return below(value, 2.0**-126)

    @property
    def sure(self) -> float:
        """The summand of sure_i that does not depend on the point."""
        return 16 * U * self.eps2 + len(self.centre) * 2.0**-138


def make_filter(
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    eps2: float,
) -> Filter | None:
    """Return a filter for points within the box [lower, upper]; None: use float64
    alone.

    None means that numbers leave float32's range, or that norms are large compared to
    eps. With such norms, too many candidates that are not pairs would pass.
    """
    chosen = open_filter(lower, upper, mean)
    if chosen is None or not 2.0**-900 < eps2 < 2.0**1000:
        return None
    scale, kappa = chosen.scale, chosen.kappa
    typical = 4 * float(np.sum(variance * scale * scale))
    made = within(chosen, eps2)
    return None if made is None or not kappa * typical <= made.eps2 / 4 else made


def within(filter: Filter, eps2: float) -> Filter | None:
    """Return the filter of the same points for another threshold; None if `eps2` is too
    small.
    """
    scale, dims = filter.scale, len(filter.centre)
    limit = min(eps2 * scale * scale, 2.0**80) * (1 + 8 * U) + dims * 2.0**-140
    return None if limit < 2.0**-90 else replace(filter, eps2=limit)


def open_filter(
    lower: np.ndarray, upper: np.ndarray, mean: np.ndarray
) -> Filter | None:
    """Return a filter for points within a box, still without a threshold; None if
    float32 overflows.
    """
    gamma = (len(lower) + 4) * U
    largest = (
        float(np.max([upper * 0.25 - mean * 0.25, mean * 0.25 - lower * 0.25])) * 4
    )
    exponent = math.frexp(largest)[1] if 0 < largest < math.inf else 0
    if not (largest < math.inf and gamma < 0.1 and abs(exponent) <= 900):
        return None
    kappa = 2 * gamma / (1 - gamma) + 3 * U
    return Filter(tuple(float(c) for c in mean), 2.0**-exponent, kappa, 0.0)


MAX_TERM = 32760.0
"""Points with a larger T are marked: all their candidates pass the filter."""

MIN_DIMS = 16
"""Minimum dimensions for the 8-bit filter."""

STEP = 4
"""Number of coordinates of a point that are adjacent in memory: two from each half of
the dimensions.
"""


@dataclass(frozen=True)
class Int8Filter:
    """Constants of the 8-bit filter; the module derives them."""

    centre: tuple[float, ...]  # c, one number per dimension
    scale: float  # 1/w
    outer: float  # E, the largest distance of a pair, in units of w
    max_x: int  # X, the largest x of points that are not marked

    @property
    def bias(self) -> int:
        """A number that is added to V_h, the sum of each half, so that a pair's sum
        does not wrap.
        """
        return 32766 - 2 * self.max_x


def make_int8_filter(
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    eps2: float,
) -> Int8Filter | None:
    """Return the 8-bit filter for points with these moments (d,); None if it cannot be
    used.
    """
    dims = len(lower)
    if not (MIN_DIMS <= dims <= MAX_DIMS and np.abs([lower, upper]).max() < 2.0**400):
        return None
    if not 2.0**-900 < eps2 < 2.0**900:
        return None
    # coordinates farther than 12 standard deviations from the mean are clipped
    wide = 12.0 * np.sqrt(np.maximum(variance, 0))
    low, high = np.maximum(lower, mean - wide), np.minimum(upper, mean + wide)
    # squared distances up to 2.5 times their mean do not wrap
    half, spread = (
        float((high - low).max()) / 2,
        2.5 * 2 * float(variance.sum()),
    )
    # w must be so large that the sum of a half, with T, stays within 2**16, and that
    # E**2 is below `MAX_TERM`
    width = max(
        half / 64,
        math.sqrt((spread + 2 * eps2) / 2.0**17),
        math.sqrt(1.001 * eps2 / MAX_TERM),
    )
    if not 2.0**-400 < width < 2.0**400:
        return None
    outer = (
        math.sqrt((eps2 + dims * 2.0**-1074) * (1 + (dims + 4) * 2.0**-52))
        / width
        * (1 + 2.0**-50)
    )
    # points whose rounding error exceeds 1.5 times a typical one are marked: they pass
    rest = 1.5 * math.sqrt(dims / 12)
    most = max(outer**2, outer**2 / 2 + 2 * outer * rest + 2 * rest**2)
    if most > MAX_TERM:
        return None
    return Int8Filter(
        tuple(((low + high) / 2).tolist()), 1 / width, outer, math.ceil(most / 2)
    )
