"""The 8-bit vectors of the tile engine's first filter, and why it loses no pair.

Scalar quantization: coordinates are a = (x - c) / w, where the width w makes most \\|a_k\\| at most 64.  A
query's vector is b, a rounded to whole numbers from -64 to 64, and that of a point of a tile is p = A/2 with
A, 2a rounded to whole numbers from -128 to 127; what lies outside is cut off.  How long the rests
r_i = \\|a_i - b_i\\| and r_j = \\|a_j - p_j\\| are is computed for each point.  A pair has
\\|a_i - a_j\\| <= E, so as in `index.half`

    \\|b_i - p_j\\|**2  <=  (E + r_i + r_j)**2  <=  T_i + T_j,     T = E**2/2 + 2 E r + 2 r**2

which is a bound for each point by itself.  With N_i = \\|b_i\\|**2, N_j = \\|p_j\\|**2 and x = ceil(T/2)

    -\\|b_i - p_j\\|**2  =  <b_i, A_j> - N_i - N_j  >=  -2 x_i - 2 x_j.

**In 16 bits.**  The dimensions are cut into halves, two and two; h says which.  For each the kernel adds up

    V_h  =  <b_i, A_j + 128>_h - (N_i + 128 sum(b_i))_h + x_i - floor(N_j)_h + x_j,

in which A_j + 128 is a byte without a sign, and a pair has V_0 + V_1 >= 0.  Two products are added to 16
bits: no such sum is beyond 2 * 64 * 255 = 32,640.  All other sums wrap, which is exact modulo 2**16; so the
kernel must only know where to cut the ring.  Let X be the largest x.  A pair's V_h is from -2X, for a half of
its squared distance is no more than all of it, to 2X; what is added up is V_h + 32,766 - 2X, and while
X <= 16,380 nothing of a pair wraps.  The verdict is that both halves together are at least 2 (32,766 - 2X).
Points so far apart that a half of their squared distance wraps may pass as well, which costs time: w is large
enough to make this rare, as far as the data's variance tells.

**In 32 bits.**  Where a machine adds four products to a long (VNNI), V_0 + V_1 is summed up at once.  No sum
of at most 4096 products is beyond 64 * 255 * 4096 < 2**27, nor N, so nothing wraps.

A point with a larger T, whose rest is long, is marked, and meets all.

E is as in `index.bounds`: c, w and 1/w stand for any real numbers.  The roundings of a, less than 2**-51 of
it, are made up for by 2**-50 of \\|b\\| or \\|p\\| and 2**-40 of r, which are added to r; T is increased by
2**-40 of it and 2**-20, more than its own roundings and those of N - x; N itself is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

MAX_TERM = 32760.0
"""Of T."""

LEAST_DIMS = 16
"""Dimensions for the filter, at least."""

MAX_DIMS = 4096
"""Dimensions up to which N is at most 2**24."""

STEP = 4
"""Coordinates of a point that lie side by side, a half of them of each half of the dimensions."""

DEVIATIONS = 12.0
"""Coordinates that are further from the mean are cut off."""

SPREAD = 2.5
"""How much larger than their mean squared distances may be without wrapping."""

REST = 1.5
"""How much longer than that of evenly spread numbers a rest may be, at least, without being marked."""


@dataclass(frozen=True)
class Int8Filter:
    """Constants of the filter.

    Attributes
    ----------
    centre : tuple of float
        c, one number a dimension.
    scale : float
        1/w.
    outer : float
        E: no pair is further apart, in units of w.
    most : int
        X.
    """

    centre: tuple[float, ...]
    scale: float
    outer: float
    most: int

    @property
    def bias(self) -> int:
        """What is added to each half."""
        return 32766 - 2 * self.most


def make_int8_filter(
    lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray, eps2: float
) -> Int8Filter | None:
    """The filter for points of these moments, or None where it cannot serve.

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
    # both halves have a ring of 2**16, of which T takes a part; and E**2 must be below `MAX_TERM`
    width = max(half / 64, math.sqrt((spread + 2 * eps2) / 2.0**17), math.sqrt(1.001 * eps2 / MAX_TERM))
    if not 2.0**-400 < width < 2.0**400:
        return None
    outer = math.sqrt((eps2 + dims * 2.0**-1074) * (1 + (dims + 4) * 2.0**-52)) / width * (1 + 2.0**-50)
    rest = REST * math.sqrt(dims / 12)
    most = max(outer**2, outer**2 / 2 + 2 * outer * rest + 2 * rest**2)
    if most > MAX_TERM:
        return None
    return Int8Filter(tuple(((low + high) / 2).tolist()), 1 / width, outer, math.ceil(most / 2))
