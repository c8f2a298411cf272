"""The 8-bit vectors of the tile engine's first filter, and why it loses no pair.

Scalar quantization: coordinates are a = (x - c) / w, with a width w that makes most \\|a_k\\| at most 64.  A
query's vector is b, which is a rounded to integers from -64 to 64.  A tile's point has p = A/2, where A is
2a rounded to integers from -128 to 127.  Numbers outside of these ranges are clipped.  The errors
r_i = \\|a_i - b_i\\| and r_j = \\|a_j - p_j\\| are computed for each point.  A pair has \\|a_i - a_j\\| <= E,
so as in `filters.float16`

    \\|b_i - p_j\\|**2  <=  (E + r_i + r_j)**2  <=  T_i + T_j,     T = E**2/2 + 2 E r + 2 r**2

where T_i depends on one point only.  With N_i = \\|b_i\\|**2, N_j = \\|p_j\\|**2 and x = ceil(T/2)

    -\\|b_i - p_j\\|**2  =  <b_i, A_j> - N_i - N_j  >=  -2 x_i - 2 x_j.

**In 16 bits.**  The dimensions are dealt to two halves h, two at a time.  For each half the kernel adds up

    V_h  =  <b_i, A_j + 128>_h - (N_i + 128 sum(b_i))_h + x_i - floor(N_j)_h + x_j,

A_j + 128 is an unsigned byte here, and a pair has V_0 + V_1 >= 0.  The machine adds two products in 16 bits:
no such sum exceeds 2 * 64 * 255 = 32,640.  All other sums may wrap, as they are exact modulo 2**16.  So a
pair's V_h only has to stay in a range of 2**16 values.  Let X be a bound of x.  A pair's V_h is at most 2X.
It is at least -2X, because the squared distance of one half is at most the whole.  The kernel sums
V_h + 32,766 - 2X.  If X <= 16,380, no pair's result wraps.  Points pass if the sums of both halves add up to
at least 2 (32,766 - 2X).  Points so far apart that half of their squared distance wraps may pass as well,
which costs time.  The width w is large enough to make this rare, judging by the data's variance.

**In 32 bits.**  If the machine adds four products to a long (VNNI), V_0 + V_1 is summed up at once.  No sum
of at most 4096 products exceeds 64 * 255 * 4096 < 2**27, and neither does N, so nothing wraps.

A point with x above X has a large error.  It is marked, and all of its candidates pass.

E is as in `filters.bounds`; c, w and 1/w may be any real numbers.  Rounding changes a by less than 2**-51 of
its value.  To cover this, 2**-50 of \\|b\\| or \\|p\\| and 2**-40 of r are added to r.  T grows by
2**-40 T and 2**-20, which is more than the roundings of T and of N - x.  N itself is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

MAX_TERM = 32760.0
"""Largest T."""

LEAST_DIMS = 16
"""Minimum number of dimensions for the filter."""

MAX_DIMS = 4096
"""Maximum number of dimensions for the filter, which keeps N at 2**24 or less."""

STEP = 4
"""Coordinates of a point that are stored side by side, two from each half of the dimensions."""

DEVIATIONS = 12.0
"""Coordinates beyond this many standard deviations from the mean are clipped."""

SPREAD = 2.5
"""Squared distances up to this multiple of their mean do not wrap."""

REST = 1.5
"""Points with a larger rounding error are marked; in multiples of the error of uniform numbers."""


@dataclass(frozen=True)
class Int8Filter:
    """Constants of the filter.

    Attributes
    ----------
    centre : tuple of float
        c, one number per dimension.
    scale : float
        1/w.
    outer : float
        E: no pair is further apart, in units of w.
    max_x : int
        X.
    """

    centre: tuple[float, ...]
    scale: float
    outer: float
    max_x: int

    @property
    def bias(self) -> int:
        """The number that is added to the sum of each half."""
        return 32766 - 2 * self.max_x


def make_int8_filter(
    lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray, eps2: float
) -> Int8Filter | None:
    """Return the filter for points of these moments, or None if it cannot be used.

    Parameters
    ----------
    lower, upper, mean, variance : array (d,), float64
        Moments of all points.
    eps2 : float
        Threshold of the float64 decision.
    """
    dims = len(lower)
    if not (LEAST_DIMS <= dims <= MAX_DIMS and np.abs([lower, upper]).max() < 2.0**400):
        return None
    if not 2.0**-900 < eps2 < 2.0**900:
        return None
    wide = DEVIATIONS * np.sqrt(np.maximum(variance, 0))
    low, high = np.maximum(lower, mean - wide), np.minimum(upper, mean + wide)
    half, spread = float((high - low).max()) / 2, SPREAD * 2 * float(variance.sum())
    # both halves wrap at 2**16, and T uses part of that range; E**2 must be below `MAX_TERM`
    width = max(half / 64, math.sqrt((spread + 2 * eps2) / 2.0**17), math.sqrt(1.001 * eps2 / MAX_TERM))
    if not 2.0**-400 < width < 2.0**400:
        return None
    outer = math.sqrt((eps2 + dims * 2.0**-1074) * (1 + (dims + 4) * 2.0**-52)) / width * (1 + 2.0**-50)
    rest = REST * math.sqrt(dims / 12)
    most = max(outer**2, outer**2 / 2 + 2 * outer * rest + 2 * rest**2)
    if most > MAX_TERM:
        return None
    return Int8Filter(tuple(((low + high) / 2).tolist()), 1 / width, outer, math.ceil(most / 2))
