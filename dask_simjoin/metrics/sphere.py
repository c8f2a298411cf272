"""Convert degrees to unit vectors, and distances to chords, with the same results on
every machine.

Sines differ between NumPy and CuPy, and in NumPy between processors. So these functions
use only sums and products, whose results IEEE 754 defines. They accept arrays of both
libraries.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dask_simjoin.metrics.inverse import HostKernels, smallest
from dask_simjoin.metrics.norms import Array, ArrayModule
from dask_simjoin.sizes import IN_CACHE

RADIUS = 6_371_008.8
"""Mean radius R1 of the Earth in meters (Moritz 2000, "Geodetic Reference System
1980").
"""

LIMITS = ((-90.0, 90.0), (-180.0, 360.0))
"""Smallest and largest latitude, and smallest and largest longitude, in degrees."""

EVERYTHING = 5.0
"""A threshold above every squared distance of unit vectors: these are at most 4, plus
rounding errors.
"""

RADIANS = math.radians(1)  # pi/180, rounded to float64
REST = 2.9486522708701687e-19
"""The exact pi/180 minus the rounded `RADIANS`."""

SPLIT = 2.0**27 + 1
"""Dekker's factor: it splits a float64 into two halves whose products are exact."""

Pair = tuple[Array, Array]
"""A double-double number: a float64 number, and another one that holds its rounding
error.
"""


def _pair(number: Fraction) -> Pair:
    return float(number), float(number - Fraction(float(number)))


CHORD = [
    _pair(Fraction(2 * (-1) ** (k + 1), math.factorial(2 * k)))
    for k in range(24, 0, -1)
]
"""Coefficients of ``2 - 2 cos x`` as a polynomial in ``x * x``, highest power first.

For x up to pi, the omitted terms are below the rounding error.
"""

SINE = (
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
)
COSINE = (
    4.16666666666666019037e-02,
    -1.38888888888741095749e-03,
    2.48015872894767294178e-05,
    -2.75573143513906633035e-07,
    2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
)
"""Coefficients of fdlibm's ``__kernel_sin`` and ``__kernel_cos`` (Sun Microsystems,
1993), for angles up to pi/4."""


def sine_cosine(degrees: Array, xp: ArrayModule) -> tuple[Array, Array]:
    """Return sines and cosines of angles in degrees (n,), float64, from -180 to 180;
    NaN stays NaN.

    First the nearest multiple of 90 degrees is subtracted. This is exact: the multiple
    is 0, or neither number is more than twice the other (Sterbenz' lemma). The
    difference, at most 45 degrees, is converted to radians as ``t + rest``. Here `rest`
    holds the rounding error of `t`, which Dekker's splitting computes. Then fdlibm's
    polynomials compute both functions, with errors below 0.8 units in the last place.
    Multiples of 90 degrees give exactly 0, 1 or -1, and every 0 is positive.
    """
    quarter = xp.rint(degrees * (1 / 90))
    a = degrees - quarter * 90.0
    t, rest = _radians(a)
    z = t * t
    sine, cosine = _sine(t, rest, z), _cosine(t, rest, z)
    odd, back = quarter - 2.0 * xp.rint(quarter * 0.5) != 0, xp.abs(quarter) == 2.0
    # sin(a + 90 q) is cos a for q = 1, -cos a for q = -1, -sin a for q = 2 or -2.
    # Cosines are similar
    s, c = xp.where(odd, quarter * cosine, sine), xp.where(odd, -quarter * sine, cosine)
    s, c = xp.where(back, -s, s), xp.where(back, -c, c)
    return s + 0.0, c + 0.0


def _radians(a: Array) -> Pair:
    """Convert degrees (n,) to radians: the rounded result, and the exact result minus
    the rounded one.
    """
    t, lost = two_product(a, RADIANS)
    return t, lost + a * REST


def _sine(t: Array, rest: Array, z: Array) -> Array:
    s1, s2, s3, s4, s5, s6 = SINE
    r = s2 + z * (s3 + z * s4) + z * (z * z) * (s5 + z * s6)
    v = z * t
    return t - ((z * (0.5 * rest - v * r) - rest) - v * s1)


def _cosine(t: Array, rest: Array, z: Array) -> Array:
    c1, c2, c3, c4, c5, c6 = COSINE
    fourth = z * z
    r = z * (c1 + z * (c2 + z * c3)) + fourth * fourth * (c4 + z * (c5 + z * c6))
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + (z * r - t * rest))


def unit_vectors(places: Array, xp: ArrayModule) -> Array:
    """Convert latitudes and longitudes (n, 2) in degrees to unit vectors (n, 3).

    A vector is ``(cos lat cos lon, cos lat sin lon, sin lat)``. The same point always
    has the same vector, even if it is given differently: a pole at any longitude, or
    longitudes 180 and -180. A longitude above 180 is reduced by 360, which is exact by
    Sterbenz' lemma. Coordinates outside `LIMITS` count as 0, but other modules refuse
    them.
    """
    n = len(places)
    out = xp.empty((n, 3), order="F")
    step = IN_CACHE if xp is np else max(n, 1)
    with np.errstate(invalid="ignore"):
        for start in range(0, n, step):
            rows = slice(start, start + step)
            # outside of the limits: column - column is 0 for finite numbers, and NaN
            # for infinity
            lat, lon = (
                xp.where((column < least) | (column > most), column - column, column)
                for column, (least, most) in zip(
                    (places[rows, 0], places[rows, 1]), LIMITS, strict=True
                )
            )
            lon = xp.where(lon > 180.0, lon - 360.0, lon)
            sine, cosine = sine_cosine(lat, xp)
            east, north = sine_cosine(lon, xp)
            out[rows, 0], out[rows, 1], out[rows, 2] = (
                cosine * north + 0.0,
                cosine * east + 0.0,
                sine,
            )
    return out


def squared_chord(
    distance: Array, xp: ArrayModule = np, radius: float = RADIUS
) -> Array:
    """Convert distances along a sphere to squared chords; `distance`: a number or an
    array (n,). By default, distances are in meters along the Earth.

    A squared chord is ``4 sin(distance / (2 R))**2 = 2 - 2 cos(distance / R)``,
    computed as a series in double-double numbers. Its error before rounding is about
    1e-30, so a larger distance never has a smaller result. From half the circumference
    on, the result exceeds every squared chord.
    """
    if isinstance(distance, float):
        return float(squared_chord(np.array([distance]), np, radius)[0])
    n = len(distance)
    out = xp.empty(n)
    step = IN_CACHE if xp is np else max(n, 1)
    with np.errstate(all="ignore"):
        for start in range(0, n, step):
            some = distance[start : start + step]
            angle = some / radius
            lost = two_product(angle, radius)
            angle = angle, ((some - lost[0]) - lost[1]) / radius
            square = _times(angle, angle)
            total = CHORD[0]
            for term in CHORD[1:]:
                total = _plus(term, _times(square, total))
            chord = _times(square, total)[0]
            out[start : start + step] = xp.where(angle[0] >= math.pi, EVERYTHING, chord)
    return out


def _plus(x: Pair, y: Pair) -> Pair:
    high, low = _two_sum(x[0], y[0])
    return _two_sum(high, low + (x[1] + y[1]))


def _times(x: Pair, y: Pair) -> Pair:
    high, low = two_product(x[0], y[0])
    return _two_sum(high, low + (x[0] * y[1] + x[1] * y[0]))


def _two_sum(a: Array, b: Array) -> Pair:
    """Return the rounded sum of two numbers, and the exact sum minus the rounded sum
    (Knuth).
    """
    total = a + b
    second = total - a
    return total, (a - (total - second)) + (b - second)


def two_product(a: Array, b: Array) -> Pair:
    """Return the rounded product of two numbers, and the exact product minus the
    rounded product.

    See Dekker 1971, "A floating-point technique for extending the available precision".
    """
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, (
        (a_high * b_high - product) + a_high * b_low + a_low * b_high
    ) + a_low * b_low


def _halves(a: Array) -> Pair:
    high = a * SPLIT
    high = high - (high - a)
    return high, a - high


ARCSINE = (
    135135 / 9676800,
    10395 / 599040,
    945 / 42240,
    105 / 3456,
    15 / 336,
    3 / 40,
    1 / 6,
)
"""Coefficients of ``asin(z) / z - 1`` as a polynomial in ``z * z``, highest power
first.
"""

SHORT_ARC = 2.0**-8
"""`arcs` uses this series if ``z * z`` is below this: for arcs of up to 0.12 radians."""

TINY_CHORD = 2.0**-900
"""`arcs` finds the results for squared chords below this by `smallest`, because their
products may underflow.
"""

WIDE_PI = np.longdouble("3.14159265358979323846264338327950288")


def arcs(
    squared: Array,
    xp: ArrayModule,
    radius: float = RADIUS,
    kernels: HostKernels | None = None,
) -> Array:
    """For each squared chord (n,), return the smallest distance along the sphere with
    at least this squared chord, as `squared_chord` computes it. The results replace the
    squared chords; infinity stays infinity.

    A distance is about ``2 R asin(sqrt(squared) / 2)``. Its squared chord is rounded to
    at least `squared` if, before rounding, it is at least the middle between `squared`
    and the float before it. The exact distance of this middle is computed with more
    digits than a float has, and rounded up. If the error of these digits may change the
    result, it is found by `smallest`.

    `kernels`: compiled functions for NumPy arrays.
    """
    n, unsure = len(squared), []
    out = xp.empty(n)
    step = IN_CACHE if xp is np else max(n, 1)
    with np.errstate(all="ignore"):
        for start in range(0, n, step):
            some = squared[start : start + step]
            out[start : start + step], rest = (
                kernels.short_arcs(some, radius)
                if kernels
                else short_arcs(some, xp, radius)
            )
            rows = xp.flatnonzero(rest)
            if len(rows):
                far = some[rows] if xp is np else some[rows].get()
                far, rest = _long_arcs(far, radius)
                out[start + rows] = xp.asarray(far)
                rows = rows[xp.asarray(rest)]
                if len(rows):
                    unsure.append(start + rows)
        if unsure:
            rows = xp.concatenate(unsure)
            some, near = squared[rows], out[rows]
            if xp is not np:
                some, near = some.get(), near.get()
            found = smallest(some, near, lambda far: squared_chord(far, np, radius), np)
            out[rows] = xp.asarray(found)
    squared[:] = out
    return squared


def _before(x: Array, xp: ArrayModule) -> Array:
    """Return the float before each float > 0 (n,)."""
    return xp.maximum(x.view(np.int64) - 1, 0).view(np.float64)


def short_arcs(squared: Array, xp: ArrayModule, radius: float) -> tuple[Array, Array]:
    """Return the results of `arcs` for short arcs, and a mask of those that may not be
    exact.
    """
    root = xp.sqrt(squared)
    high, lost = two_product(root, root)
    # the root of the middle is root + rest
    half = (squared - _before(squared, xp)) * 0.5
    rest = (((squared - high) - lost) - half) / (2.0 * root)
    w = squared * 0.25
    series = ARCSINE[0]
    for term in ARCSINE[1:]:
        series = term + w * series
    low = root * (w * series) + rest * (1.0 + w * (0.5 + 0.375 * w))
    high, lost = two_product(root, radius)
    away, rest = _two_sum(high, lost + radius * low)
    bits = away.view(np.int64)
    bits += rest > 0
    # The addend of the series is below w/4 of the result, and is rounded six times. So
    # its error is below w * 2**-52 of the result. The other errors are below 2**-95.
    sure = xp.abs(rest) > away * (w * 2.0**-52 + 2.0**-90)
    sure &= (w < SHORT_ARC) & (squared > TINY_CHORD)
    return xp.where(squared > 0, away, 0.0), ~(sure | (squared == 0))


def _long_arcs(squared: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Return near results of `arcs`, and a mask of those that may not be exact.

    They are computed in `numpy.longdouble`, which has more digits than float64 on most
    machines.
    """
    wide = np.longdouble
    middle = squared.astype(wide)
    middle -= (squared - _before(squared, np)) * 0.5
    beyond = squared > 2
    # near antipodes, use the arc to the antipode
    short = np.where(beyond, np.maximum(4 - middle, 0), middle)
    arc = 2 * np.arcsin(np.sqrt(short) / 2)
    exact = np.where(beyond, WIDE_PI - arc, arc) * wide(radius)
    away = exact.astype(np.float64)
    rest = exact - away
    bits = away.view(np.int64)
    bits += rest > 0
    sure = np.abs(rest) > exact * (8 * np.finfo(wide).eps)
    known = squared == np.inf
    sure &= (squared > TINY_CHORD) & (squared < 4)
    return np.where(known, squared, away), ~(sure | known)
