"""Distances by their definition in `docs/reference/metrics.md`, without the package.

Sums and products are those of Python's floats, one at a time. Thresholds are computed in
rational numbers or with 60 digits, and then rounded.
"""

from __future__ import annotations

import decimal
import functools
import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np

RADIUS = 6_371_008.8
EVERYTHING = 5.0
"""Above the total of any two unit vectors."""

PI = decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
WIDE = decimal.Context(prec=60, Emin=-(10**6), Emax=10**6)

LARGEST = struct.unpack("<q", struct.pack("<d", math.inf))[0]


def rounded(number: Fraction) -> float:
    """Return the nearest float64 number."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def product(a: float, b: float) -> float:
    """Return the rounded product of two numbers that are not negative."""
    if math.isinf(a) or math.isinf(b):
        return math.inf
    return rounded(Fraction(a) * Fraction(b))


def norm_of(metric: str, p: float) -> float:
    """Return the exponent of the differences."""
    return {"manhattan": 1, "chebyshev": math.inf, "minkowski": p}.get(metric, 2)


def power(a: float, p: float, times: Callable[[float, float], float]) -> float:
    """Raise a difference to a power, by squaring and multiplying from the highest bit of
    the exponent on.
    """
    if p == math.inf:
        return a
    found = a
    for bit in f"{int(p):b}"[1:]:
        found = times(found, found)
        found = times(found, a) if bit == "1" else found
    rest, root = Fraction(p) - int(p), a
    while rest:
        root, rest = math.sqrt(root), 2 * rest
        if rest >= 1:
            found, rest = times(found, root), rest - 1
    return found


def totals(x: np.ndarray, y: np.ndarray, metric: str, p: float = 2) -> np.ndarray:
    """Return the totals of all pairs of rows, in the order of the columns."""
    if metric in FORMULAS:
        pairs = [[(one, other) for other in y.tolist()] for one in x.tolist()]
        found = [[FORMULAS[metric](*pair) for pair in row] for row in pairs]
        return np.array(found, float).reshape(len(x), len(y))
    norm = norm_of(metric, p)
    left, right = (
        (list(map(EMBEDDED.get(metric, list), x.tolist())), [])
        if x is y
        else ([list(map(EMBEDDED.get(metric, list), side.tolist())) for side in (x, y)])
    )
    right = right or left
    found = np.empty((len(left), len(right)))
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            terms = [
                power(abs(a - b), norm, float.__mul__)
                for a, b in zip(one, other, strict=True)
            ]
            found[i, j] = max(terms) if norm == math.inf else _sum(terms)
    return found


def _sum(terms: list[float]) -> float:
    """Add from the first to the last; `sum` of Python 3.12 corrects rounding errors."""
    total = 0.0
    for term in terms:
        total += term
    return total


def hamming(one: list[float], other: list[float]) -> float:
    return sum(a != b for a, b in zip(one, other, strict=True)) / len(one)


def canberra(one: list[float], other: list[float]) -> float:
    pairs = [pair for pair in zip(one, other, strict=True) if any(pair)]
    return _sum([abs(a - b) / (abs(a) + abs(b)) for a, b in pairs])


def bray_curtis(one: list[float], other: list[float]) -> float:
    pairs = list(zip(one, other, strict=True))
    whole = _sum([a + b for a, b in pairs])
    return _sum([abs(a - b) for a, b in pairs]) / whole if whole else 0.0


FORMULAS = {"hamming": hamming, "canberra": canberra, "braycurtis": bray_curtis}
"""Metrics that are no norms of differences."""


def direction(row: list[float]) -> list[float]:
    """Return the unit vector of a row, for "cosine"."""
    exponent = math.frexp(max(map(abs, row)))[1]
    scaled = [math.ldexp(value, -exponent) for value in row]
    length = math.sqrt(_sum([value * value for value in scaled]))
    return [value / length for value in scaled]


def place(row: list[float]) -> list[float]:
    """Return the unit vector of latitude and longitude, for "haversine"."""
    lat, lon = row
    sine, cosine = sine_cosine(lat)
    east, north = sine_cosine(lon - 360.0 if lon > 180 else lon)
    return [cosine * north + 0.0, cosine * east + 0.0, sine]


EMBEDDED = {"cosine": direction, "haversine": place}

RADIANS = math.pi / 180
REST = float(Fraction(PI) / 180 - Fraction(RADIANS))


def sine_cosine(degrees: float) -> tuple[float, float]:
    """Return sine and cosine of an angle in degrees by the polynomials of fdlibm's
    `k_sin.c` and `k_cos.c`.
    """
    quarter = round(degrees * (1 / 90))
    a = degrees - 90.0 * quarter
    exact = Fraction(a) * Fraction(RADIANS)
    x = float(exact)
    y = float(exact - Fraction(x)) + a * REST
    z = x * x
    v, w = z * x, z * z
    r = (
        8.33333333332248946124e-03
        + z * (-1.98412698298579493134e-04 + z * 2.75573137070700676789e-06)
        + z * w * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)
    )
    sine = x - ((z * (0.5 * y - v * r) - y) - v * -1.66666666666666324348e-01)
    r = z * (
        4.16666666666666019037e-02
        + z * (-1.38888888888741095749e-03 + z * 2.48015872894767294178e-05)
    ) + w * w * (
        -2.75573143513906633035e-07
        + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)
    )
    half = 0.5 * z
    rest = 1.0 - half
    cosine = rest + (((1.0 - rest) - half) + (z * r - x * y))
    turned = [(sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine)]
    s, c = turned[quarter % 4]
    return s + 0.0, c + 0.0


def chord(angle: Fraction) -> float:
    """Return the squared chord of an angle in radians, rounded once."""
    with decimal.localcontext(WIDE):
        x = decimal.Decimal(angle.numerator) / decimal.Decimal(angle.denominator)
        square, term, total, k = x * x, decimal.Decimal(2), decimal.Decimal(0), 0
        while True:
            k += 2
            term = -term * square / (k * (k - 1))
            if not term or abs(term) < abs(total) * decimal.Decimal("1e-58"):
                return float(-total)
            total += term


@functools.lru_cache(1 << 16)
def threshold(metric: str, p: float, distance: float) -> float:
    """Return the largest total of two rows within a distance."""
    if metric == "cosine":
        return EVERYTHING if distance >= 2 else 2 * distance
    if metric == "haversine":
        if distance / RADIUS >= math.pi:
            return EVERYTHING
        return chord(Fraction(distance) / Fraction(RADIUS))
    if metric in ("euclidean", "minkowski"):
        return power(distance, norm_of(metric, p), product)
    return distance


def threshold_of_angle(angle: float) -> float:
    """Return the largest total of "cosine" of two rows within an angle in radians."""
    half = 0.5 * chord(Fraction(angle)) if angle < math.pi else 2.0
    return threshold("cosine", 2, min(half, 2.0))


def is_distance(metric: str, p: float, total: float, distance: float) -> bool:
    """Return whether a distance is the smallest one that finds a pair."""
    if threshold(metric, p, distance) < total:
        return False
    before = math.nextafter(distance, 0.0)
    return distance == 0 or threshold(metric, p, before) < total


def distance_of(metric: str, p: float, total: float) -> float:
    """Return the smallest distance that finds a pair, by a search of all floats."""
    low, high = -1, LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        far = struct.unpack("<d", struct.pack("<q", middle))[0]
        if threshold(metric, p, far) >= total:
            high = middle
        else:
            low = middle
    return struct.unpack("<d", struct.pack("<q", high))[0]
