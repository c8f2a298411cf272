"""Metrics: their coordinates, thresholds and distances.

Every metric is a norm of differences (see `dask_simjoin.metrics.norms`) of its columns or of their embedding.
Two rows are a pair if their total is at most a threshold, which is computed from `eps`. Distances are
computed from totals. Decisions use only operations with the same result on every machine. Distances may
differ between machines: see the class of the metric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.norms import Array, ArrayModule, Norm, is_norm, power, reach
from dask_simjoin.metrics.sphere import EVERYTHING, LIMITS, metres, squared_chord, unit_vectors

BLOCK_BYTES = 1 << 20
"""Bytes of coordinates to normalize at once on the host, so that they stay in a CPU cache."""


@dataclass(frozen=True)
class Metric:
    """A metric, which makes coordinates, thresholds and distances: see the module.

    Attributes
    ----------
    norm : int or float
        The norm of the differences: 1, 2, 3, ... or infinity.
    """

    norm: Norm = 2

    name: ClassVar[str] = ""
    embeds: ClassVar[bool] = False
    """Whether coordinates differ from the columns."""
    columns: ClassVar[tuple[str, ...]] = ()
    """The required columns; empty: any number of columns."""
    limits: ClassVar[tuple[tuple[float, float], ...]] = ()
    """The smallest and the largest value of each required column."""
    axes: ClassVar[tuple[str, ...]] = ()
    """The names of the coordinates; empty: the names of the columns."""
    unit: ClassVar[str] = ""
    """The unit of distances; empty: the unit of the columns."""
    directed: ClassVar[bool] = False
    """Whether rows of zeros are refused, because they have no direction."""

    def dims(self, columns: int) -> int:
        """Return the number of coordinates for a number of columns."""
        return columns

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        """Return coordinates (n, dims) of columns (n, columns), float64.

        Only rows with NaN or infinity, or without a required direction, become rows with NaN.
        """
        return x

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        """Return the threshold of totals for `eps`, a number or an array (n,); by default `eps` itself."""
        return eps

    def least_total(self, distance: float) -> float:
        """Return the smallest total of two rows whose distance is at least `distance`."""
        return float(self.threshold(distance))

    def distance(self, total: Array, xp: ArrayModule) -> Array:
        """Return distances for totals (n,) float64, whose memory may be reused; by default the totals."""
        return total


class Euclidean(Metric):
    """Straight-line distance.

    Two rows p, q are a pair if ``d2 <= eps*eps``, both sides float64.  Here
    ``d2 = ((p0-q0)**2 + (p1-q1)**2) + ...``: every difference, square and sum rounded to
    float64, no fused multiply-add, summed in the order of `on`.  A distance that is
    returned is ``sqrt(d2)``.

    The threshold is the rounded product ``eps*eps``. In float64, ``sqrt(3)*sqrt(3) < 3``, so ``eps=sqrt(3)``
    leaves out lattice points at squared distance 3.  Squares of differences below about 1e-162
    vanish, as they do in SciPy and scikit-learn.
    """

    name = "euclidean"

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return eps * eps

    def distance(self, total: Array, xp: ArrayModule) -> Array:
        return xp.sqrt(total, out=total)


class SquaredEuclidean(Metric):
    """The square of the straight-line distance: pairs have ``d2 <= eps``, and `d2` is the distance."""

    name = "sqeuclidean"


class Manhattan(Metric):
    """The sum of the differences: ``(|p0-q0| + |p1-q1|) + ...``, in the order of `on`.

    Every difference and sum is rounded to float64.  The sum is the distance; it is at most `eps` for pairs.
    """

    name = "manhattan"

    def __init__(self) -> None:
        super().__init__(1)


class Chebyshev(Metric):
    """The largest difference, ``max(|p0-q0|, |p1-q1|, ...)``, each rounded to float64.

    The largest difference is the distance; it is at most `eps` for pairs.
    """

    name = "chebyshev"

    def __init__(self) -> None:
        super().__init__(math.inf)


class Minkowski(Metric):
    """The p-th root of the sum of p-th powers of the differences, for a whole number p.

    Two rows are a pair if ``(|p0-q0|**p + |p1-q1|**p) + ... <= eps**p``. Both sides are float64, and terms
    are added in the order of `on`. Powers are rounded products, by squaring and multiplying from the highest
    bit of p on. See Knuth, "The Art of Computer Programming", volume 2, section 4.6.3. Powers of small
    differences underflow to 0, for ``p=3`` below about 1e-108. Rows with such differences count as equal.

    ``p=1``, ``p=2`` and ``p=inf`` are `Manhattan`, `Euclidean` and `Chebyshev`. For other values, a returned
    distance is ``total**(1/p)``. It may differ in the last digits between machines, but the pairs do not.
    """

    name = "minkowski"

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return power(eps, self.norm)

    def distance(self, total: Array, xp: ArrayModule) -> Array:
        return xp.power(total, 1 / self.norm, out=total)


class Cosine(Metric):
    """One minus the cosine of the angle between two rows: from 0 to 2.

    It is computed as half the squared distance of their unit vectors, as ``|u - v|**2 = 2 - 2 u.v``. Unlike
    ``1 - u.v``, this loses no digits for nearly equal directions. Two rows are a pair if ``d2 <= 2*eps``,
    where `d2` is the total of `Euclidean` for the unit vectors. The distance is ``d2/2``. From ``eps=2`` on
    all rows are pairs.

    A unit vector is ``y/n``. `y` is the row times a power of two, so that its largest number is between 1/2
    and 1. So no square overflows, and only negligible squares vanish. `n` is the square root of ``(y0*y0 +
    y1*y1) + ...``, in the order of `on`; every operation is rounded to float64. If one row is another row
    times a power of two, their distance is 0. Other rows of equal direction may have a distance of about
    1e-31, so ``eps=0`` does not find all of them.

    A row of zeros has no direction: it is refused, or left out by ``dropna=True``.
    """

    name = "cosine"
    embeds = True
    directed = True

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        n, dims = x.shape
        out = xp.empty((n, dims), order="F")
        step = max(1, BLOCK_BYTES // (8 * max(dims, 1))) if xp is np else max(n, 1)
        with np.errstate(all="ignore"):
            for start in range(0, n, step):
                _normalise(x[start : start + step], out[start : start + step], xp)
        return out

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return 2 * eps + (eps >= 2) * EVERYTHING

    def least_total(self, distance: float) -> float:
        return 2 * distance

    def distance(self, total: Array, xp: ArrayModule) -> Array:
        total *= 0.5
        return total


def _normalise(x: Array, out: Array, xp: ArrayModule) -> None:
    """Write unit vectors of rows into `out`; NaN for rows without a direction."""
    largest = xp.zeros(len(x))
    for k in range(x.shape[1]):
        xp.maximum(largest, xp.abs(x[:, k]), out=largest)  # NaN stays
    exponent = xp.frexp(xp.where(xp.isfinite(largest), largest, 1.0))[1]
    # two factors, as a single power of two may overflow; products are the same on every machine
    half = exponent // 2
    one = xp.ones(len(x))
    scales = xp.ldexp(one, -half), xp.ldexp(one, half - exponent)
    total = xp.zeros(len(x))
    for k in range(x.shape[1]):
        y = x[:, k] * scales[0] * scales[1]
        total += y * y
        out[:, k] = y
    total = xp.sqrt(total)
    for k in range(x.shape[1]):
        out[:, k] /= total


class Haversine(Metric):
    """Distance along the sphere, in meters, between places given by latitude and longitude in degrees.

    `on` names two columns in this order: latitude (-90 to 90) and longitude (-180 to 360). The sphere's
    radius R is 6,371,008.8 m. Longitudes above 180 are reduced by 360, exactly.

    Places are embedded as unit vectors ``(cos lat cos lon, cos lat sin lon, sin lat)``. Two places are a pair
    if their squared chord, the `d2` of `Euclidean`, is at most ``4 sin(eps/(2R))**2``, computed to 30 digits
    and rounded. This is the haversine formula (Sinnott 1984, "Virtues of the haversine", Sky and Telescope
    68, 159). A squared chord is four times the haversine of the angle. Sines and cosines use only products
    and sums. They are the same on every machine, and correct to within a unit in the last place: see
    `dask_simjoin.metrics.sphere`.

    Rounding decides pairs whose distance is within about 1e-9 m of `eps`, in the same way on every machine.
    Near antipodes this margin is 1e-9 m divided by the cosine of half the angle. ``eps=0`` finds equal
    places: also a pole at any two longitudes, and longitudes 180 and -180, or 0 and 360. A larger `eps` never
    finds fewer pairs; from half the circumference on all rows are pairs.

    The distance is ``2 R asin(sqrt(d2)/2)``. Its error is about 1e-9 m; near antipodes it is the larger
    margin above, 0.2 m at worst. It may differ by a few units in the last place between machines, and may
    exceed `eps` by this difference.

    The Earth is not a sphere: distances on its ellipsoid differ by up to 0.6 %.
    """

    name = "haversine"
    unit = "m"
    embeds = True
    columns = ("latitude", "longitude")
    axes = ("x", "y", "z")
    limits = LIMITS

    def dims(self, columns: int) -> int:
        return len(self.axes)

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        return unit_vectors(x, xp)

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return squared_chord(eps, xp)

    def distance(self, total: Array, xp: ArrayModule) -> Array:
        return metres(total, xp)


METRICS = {
    kind.name: kind
    for kind in (Euclidean, SquaredEuclidean, Manhattan, Chebyshev, Minkowski, Cosine, Haversine)
}

SAME = {1: "manhattan", 2: "euclidean", math.inf: "chebyshev"}
"""p -> name of the metric that equals Minkowski's metric with this p."""


def make_metric(name: str, p: Norm = 2) -> Metric:
    """Make the metric with this name; `p`: the power of Minkowski's metric."""
    if name == Minkowski.name and p not in SAME:
        return Minkowski(p)
    return METRICS[SAME[p] if name == Minkowski.name else name]()


class _Wrapper(Metric):
    """Does as another metric, `inner`; derived classes override some methods."""

    def __init__(self, inner: Metric) -> None:
        super().__init__(inner.norm)
        self.inner = inner
        self.__dict__.update(
            name=inner.name, embeds=inner.embeds, columns=inner.columns, limits=inner.limits,
            axes=inner.axes, unit=inner.unit, directed=inner.directed,
        )  # fmt: skip

    def dims(self, columns: int) -> int:
        return self.inner.dims(columns)

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        return self.inner.embed(x, xp)

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return self.inner.threshold(eps, xp)


class Totals(_Wrapper):
    """Another metric with totals in place of distances."""


def _check_norm(metric: Metric) -> None:
    """Refuse groups with a metric that is not a norm, because its terms may not grow with differences."""
    if not is_norm(metric.norm):
        raise OptionError(
            f"by= is not allowed with metric={metric.name!r}, which is not a norm of differences. Leave out "
            "by=, and filter the pairs by columns that keep= keeps."
        )


class Grouped(_Wrapper):
    """Distance of another metric, for rows whose last column is their group.

    The group becomes the last coordinate. Within a group its difference is 0, which does not change any bit
    of the total. Between groups its difference is at least `separation`, which makes the total larger than
    the threshold. Only norms have both properties.
    """

    def __init__(self, inner: Metric) -> None:
        _check_norm(inner)
        super().__init__(inner)
        self.__dict__["axes"] = (*inner.axes, "group") if inner.axes else ()

    def dims(self, columns: int) -> int:
        return self.inner.dims(columns - 1) + 1

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        if not self.embeds:
            return x
        points = self.inner.embed(x[:, :-1], xp)
        out = xp.empty((len(x), points.shape[1] + 1), order="F")
        out[:, :-1], out[:, -1] = points, x[:, -1]
        return out

    def least_total(self, distance: float) -> float:
        return self.inner.least_total(distance)

    def distance(self, total: Array, xp: ArrayModule) -> Array:
        return self.inner.distance(total, xp)


def separation(metric: Metric, eps: float) -> float:
    """Return the distance between groups: a power of two above each coordinate difference of a pair.

    Whole multiples of a power of two and their differences are exact in float64, so rounding does not bring
    groups nearer. Infinity: there is no such distance.
    """
    _check_norm(metric)
    with np.errstate(over="ignore"):
        threshold = float(metric.threshold(eps))
    if not math.isfinite(threshold):
        return math.inf
    most = reach(metric.norm, threshold)
    # at least 1, so that its p-th power does not underflow to 0
    return 1.0 if most < 0.5 else 2.0 ** (math.frexp(most)[1] + 1)
