"""The float32 filter of the tile engine and why it loses no pair.

Coordinates are centered and scaled by a power of two: a = s*(x - c), every |a_k| <= 1.  The tiles hold
z = float32(a), so |z - a| <= u*|a| with u = 2**-24.  The slack below covers the subtraction in float64 and
underflow.  A pair has |a_i - a_j| <= E, with E = s*eps up to the float64 decision's own rounding.  So with
N = |z|**2

    N_i + N_j - 2<z_i, z_j> <= (E + u(|z_i| + |z_j|))**2
                            <= E**2 (1 + 2u) + (u + 2u**2)(N_i + N_j)            (2ab <= a*a + b*b)

and the inner product must reach half of (1 - u - 2u**2)(N_i + N_j) - E**2 (1 + 2u).

The kernel begins a sum with start_j - h_i and adds the d products.  It makes m = d + 4 roundings at most,
fused or not; let g = m*u / (1 - m*u).  Let Q be the exact sum.  A partial sum is Q less the products still to
come, so its size is at most |Q| + (N_i + N_j)/2.  So all roundings together err by at most
g(|Q| + (N_i + N_j)/2).  The terms start_j and h_i were rounded by 3u(N_i + N_j + E2)/2 at most, so that more
pairs pass.  The part g|Q| of the error cannot change the sign of the sum.  With

    start_j = -N_j (1 - kappa) / 2,    h_i = (N_i (1 - kappa) - E2) / 2,
    kappa = 2g + 3u,                   E2 = E**2 (1 + 8u) + d * 2**-140

a pair has 2Q >= (kappa - u - 2u**2)(N_i + N_j) + 6u E**2, which exceeds the rest of the error.  So a pair's
sum is >= 0: a sum below 0 refuses a candidate.  Likewise, a sum of at least

    sure_i + sure_j,   sure_i = 2 kappa N_i + 16 u E2 + d * 2**-138,   sure_j = 2 kappa N_j

belongs to a pair for any rounding: with N = N_i + N_j, |z_i - z_j|**2 is then at most

    E2 (1 - 32u + 3u) - N (4 kappa - kappa - g - 3u)  <=  E**2 (1 - 20u) - N (5g + 6u),

and (|z_i - z_j| + u(|z_i| + |z_j|))**2 <= |z_i - z_j|**2 (1 + u) + 2uN (1 + u) is below E**2 (1 - 8u).  Only
sums between 0 and sure_i + sure_j are decided in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

U = 2.0**-24


@dataclass(frozen=True)
class Filter:
    """Constants of the filter: see the module's text.

    Attributes
    ----------
    centre : tuple of float
        c, one number per dimension.
    scale : float
        s, a power of two.
    kappa, eps2 : float
        kappa and E2.
    """

    centre: tuple[float, ...]
    scale: float
    kappa: float
    eps2: float

    def box_reach(self, largest_norm: float) -> np.float32:
        """Return the largest squared gap, as float32 computes it, of two boxes that hold a pair.

        The boxes hold the points z, and |z_i - z_j| <= E + u(|z_i| + |z_j|).  The d squares and sums of the
        gap err by a factor of 1 + g at most.
        """
        slack = 1 + self.kappa + 8 * U
        return _above((math.sqrt(self.eps2) + 2 * U * math.sqrt(largest_norm)) ** 2 * slack)

    def box_sure(self, largest_norm: float, rest: float = 0.0) -> np.float32:
        """Return the largest float32 squared span of two boxes that proves all their points to be pairs.

        -1: no span does.  `rest`: largest contribution to a squared distance, unscaled, of the dimensions
        without boxes.

        Points of the boxes have |z_i - z_j|**2 of at most the squared span.  The d squares and sums of the
        span err by a factor of 1 + g at most, and by d 2**-149 if squares underflow.  The distance
        |a_i - a_j| is larger by at most u(|a_i| + |a_j|).  E2 exceeds E**2 (1 + 8u) by far less than u E**2.
        """
        left = self.eps2 * (1 - 16 * U) - rest * self.scale * self.scale * (1 + 2.0**-20)
        inner = math.sqrt(max(left, 0.0)) - 3 * U * math.sqrt(largest_norm)
        value = max(inner, 0.0) ** 2 * (1 - self.kappa - 8 * U) - len(self.centre) * 2.0**-140
        return np.nextafter(np.float32(value), np.float32(0)) if value > 2.0**-126 else np.float32(-1)

    @property
    def sure(self) -> float:
        """The part of sure_i that does not depend on the point."""
        return 16 * U * self.eps2 + len(self.centre) * 2.0**-138


def _above(value: float) -> np.float32:
    return np.nextafter(np.float32(value), np.float32(np.inf))


def make_filter(
    lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray, eps2: float
) -> Filter | None:
    """Return a filter for points within the box [lower, upper], or None if float64 serves better.

    Float64 serves better if numbers leave float32's range, or if the norm of a typical point is large against
    eps.  In that case many candidates that are not pairs would pass the filter.
    """
    chosen = open_filter(lower, upper, mean)
    if chosen is None or not 2.0**-900 < eps2 < 2.0**1000:
        return None
    scale, kappa = chosen.scale, chosen.kappa
    typical = 4 * float(np.sum(variance * scale * scale))
    made = within(chosen, eps2)
    return None if made is None or not kappa * typical <= made.eps2 / 4 else made


def within(filter: Filter, eps2: float) -> Filter | None:
    """Return the filter of the same points for another threshold; None if `eps2` is too small."""
    scale, dims = filter.scale, len(filter.centre)
    limit = min(eps2 * scale * scale, 2.0**80) * (1 + 8 * U) + dims * 2.0**-140
    return None if limit < 2.0**-90 else replace(filter, eps2=limit)


def open_filter(lower: np.ndarray, upper: np.ndarray, mean: np.ndarray) -> Filter | None:
    """Return a filter without a distance (`eps2` is 0) for points within a box; None if float32 overflows."""
    gamma = (len(lower) + 4) * U
    largest = float(np.max([upper * 0.25 - mean * 0.25, mean * 0.25 - lower * 0.25])) * 4
    exponent = math.frexp(largest)[1] if 0 < largest < math.inf else 0
    if not (largest < math.inf and gamma < 0.1 and abs(exponent) <= 900):
        return None
    kappa = 2 * gamma / (1 - gamma) + 3 * U
    return Filter(tuple(float(c) for c in mean), 2.0**-exponent, kappa, 0.0)
