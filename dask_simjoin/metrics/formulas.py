"""Distances by formulas of both numbers, and coordinates that bound them from below.

Hamming, Canberra and Bray-Curtis compare the numbers of two rows by a formula. Indexes
know only norms. So each row also gets coordinates, such that the sum of differences of
two rows bounds their distance from below. Pairs within this bound are candidates, and
the formula decides them. The functions `*_limit` return the largest sum of a pair.

All of them leave a margin for rounding. The computed distance of two rows has a relative
error below ``2 * columns * 2**-53``, and so has the sum of differences. Numbers of
columns are far below 2**20, so the margins `MORE` and `LEAST` are larger.
"""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.metrics.gates import logarithms
from dask_simjoin.metrics.norms import Array

DIFFERENCES, HAMMING, CANBERRA, BRAY_CURTIS = range(4)
"""How totals are computed: `DIFFERENCES` is for norms."""

MORE, LEAST = 1 + 2.0**-30, 2.0**-20
"""Margins that cover the rounding of sums: a factor, and an addend."""

EVERYTHING = 2.0**40
"""Above all sums of differences of coordinates."""

MULTIPLIER = np.uint64(0x210FA4DBE5B08AF)
"""Mixes the bits of numbers. It is odd, and `places` of 0 and 1 are far apart."""


def places(x: Array) -> Array:
    """Return a place from 0 to 1 for each number, which depends only on its bits.

    Equal numbers have equal places. Half of all places are near 0, and half are near 1,
    so that the places of many different numbers differ by almost 1.
    """
    bits = (x + 0.0).view(np.uint64)  # 0.0 for -0.0
    mixed = (bits ^ (bits >> np.uint64(32))) * MULTIPLIER
    share = (mixed >> np.uint64(11)) * 2.0**-53
    found = np.where(share < 0.5, share / 4, 1 - (1 - share) / 4)
    return np.where(np.isfinite(x), found, np.nan)


def hamming_coordinates(x: Array) -> Array:
    """Return coordinates (n, d) of rows (n, d) for `hamming_limit`.

    In a column whose numbers differ, the difference of coordinates is at most ``1/d``,
    as it is in the distance.
    """
    return places(x) / max(x.shape[1], 1)


def hamming_limit(distance: float) -> float:
    return min(distance, 1.0) * MORE + LEAST


def canberra_coordinates(x: Array) -> Array:
    """Return coordinates (n, d) of rows (n, d) for `canberra_limit`."""
    return logarithms(x)


def canberra_limit(distance: float) -> float:
    """Return the largest sum of differences of `logarithms`.

    The term t of two numbers is 1 if their signs differ. Else the logarithms of the
    numbers to base e differ by ``2 * atanh(t)``. The terms of a pair are at most eps.
    Below 1, `atanh` is convex and 0 at 0, so ``atanh(t) <= atanh(eps) * t / eps``. The
    terms add up to eps, so the differences add up to at most ``2 * atanh(eps)``. And
    `logarithms` differ at most twice as much as logarithms to base e. From eps = 1 on,
    a column of a pair may have any two numbers.
    """
    distance = distance * MORE
    if distance >= 1:
        return EVERYTHING
    return 4 * math.atanh(distance) * MORE + LEAST


def bray_curtis_coordinates(x: Array) -> Array:
    """Return coordinates (n, d + 1) of rows (n, d) for `bray_curtis_limit`.

    They are the share of each number in the sum of its row, and half the logarithm of
    this sum.
    """
    with np.errstate(all="ignore"):
        whole = x[:, 0] + 0.0  # 0.0 for -0.0
        for k in range(1, x.shape[1]):
            whole += x[:, k]
        divisor = np.where(whole > 0, whole, 1.0)
        shares = x / divisor[:, None]
    return np.concatenate([shares, logarithms(whole)[:, None] / 2], axis=1)


def bray_curtis_limit(distance: float) -> float:
    """Return the largest sum of differences of the coordinates.

    Let u and v be the shares, a >= b the sums of two rows x and y, and e their distance.
    The differences of x and y add up to ``e * (a + b)``, and to ``a - b`` at least. So
    ``c = 1 - b/a`` is at most ``2e / (1 + e)``, and the logarithms of the sums to base e
    differ by at most ``2 * atanh(e)``. From ``u - v = (x - y)/a - y * (1/b - 1/a)``
    follows that the differences of u and v add up to at most ``e * (2 - c) + c``. This
    is at most ``4e / (1 + e)``. Half of `logarithms` differs at most as much as
    logarithms to base e. From e = 1 on, all rows are pairs.
    """
    distance = distance * MORE
    if distance >= 1:
        return EVERYTHING
    sums = 4 * distance / (1 + distance) + 2 * math.atanh(distance)
    return sums * MORE + LEAST
