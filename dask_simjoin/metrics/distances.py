"""Metrics: their coordinates, thresholds and distances.

Every metric computes a total from two rows: see `dask_simjoin.metrics.norms`. Cosine
and haversine first convert the columns to other coordinates. Two rows are a pair if
their total is at most a threshold, which is computed from `eps`. This decision uses
only operations that have the same result on every machine. The distance of a pair is
the smallest `eps` that finds it: see `Metric.distance`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.formulas import (
    BRAY_CURTIS,
    CANBERRA,
    DIFFERENCES,
    HAMMING,
    bray_curtis_coordinates,
    bray_curtis_limit,
    canberra_coordinates,
    canberra_limit,
    hamming_coordinates,
    hamming_limit,
)
from dask_simjoin.metrics.gates import Gates, widened, width_for, words_of
from dask_simjoin.metrics.inverse import (
    HostKernels,
    in_blocks,
    largest_finite,
    quotients,
    roots,
    smallest,
)
from dask_simjoin.metrics.norms import (
    LEAST,
    WIDER,
    Array,
    ArrayModule,
    Norm,
    is_norm,
    power,
    reach,
)
from dask_simjoin.metrics.sphere import (
    EVERYTHING,
    LIMITS,
    arcs,
    squared_chord,
    unit_vectors,
)
from dask_simjoin.sizes import PARSED_BYTES


@dataclass(frozen=True)
class Metric:
    """Base class of metrics.

    Attributes
    ----------
    norm : int or float
        The norm of the differences, from 1 to infinity.
    """

    norm: Norm = 2

    name: ClassVar[str] = ""
    embeds: ClassVar[bool] = False
    """Whether columns are converted to other coordinates, by `embed`."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Required columns, in this order, such as "latitude"; empty: any number of columns
    of any kind."""
    limits: ClassVar[tuple[tuple[float, float], ...]] = ()
    """Smallest and largest allowed value of each of `columns`."""
    axes: ClassVar[tuple[str, ...]] = ()
    """Names of the coordinates; empty: the names of the columns."""
    unit: ClassVar[str] = ""
    """Unit of distances; empty: the unit of the columns."""
    directed: ClassVar[bool] = False
    """Whether rows of zeros raise an error, because they have no direction."""
    formula: ClassVar[int] = DIFFERENCES
    """How totals are computed: see `dask_simjoin.metrics.formulas`."""

    def dims(self, columns: int) -> int:
        """Return the number of coordinates of a row. `columns`: number of columns."""
        return columns

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        """Convert columns (n, columns) to coordinates (n, dims), float64.

        A row becomes NaN only if it has NaN or infinity, or if the metric needs a
        direction and the row has none.
        """
        return x

    def divided(self, x: Array, xp: ArrayModule) -> tuple[Array, Array | None]:
        """Return the result of `embed`, and the lengths (n,), float64, that the columns
        are divided by.

        If there are lengths, a coordinate is the column's value divided by the row's
        length, rounded to float64. In rare cases the coordinate differs from this
        quotient, for example for numbers near the limits of float64.
        """
        return self.embed(x, xp), None

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        """Return the threshold: the largest total of a pair. `eps`: a number or an
        array (n,). A larger `eps` never has a smaller threshold.
        """
        return eps

    def candidates(self, threshold: float) -> float:
        """Return the largest total of a pair in its coordinates, if other numbers than
        the coordinates decide.
        """
        return threshold

    def largest_eps(self) -> float:
        """Return the largest `eps` whose threshold is finite."""
        return largest_finite(self.threshold)

    def widened(self, threshold: float) -> float:
        """Return the largest total of a pair in all coordinates, also those that other
        conditions than the distance have added.
        """
        return threshold

    def least_total(self, distance: float) -> float:
        """Return the smallest total of two rows whose distance is at least this one."""
        if distance <= 0:
            return 0.0
        nearer = float(self.threshold(math.nextafter(distance, 0.0)))
        return math.nextafter(nearer, math.inf)

    def distance(
        self, total: Array, xp: ArrayModule, kernels: HostKernels | None = None
    ) -> Array:
        """Convert totals, float64, to distances. The result may reuse the memory of
        `total`.

        The distance is the smallest `eps` whose threshold is at least the total. So a
        join within this distance finds the pair, and no join that finds the pair has a
        smaller `eps`. Equal totals have equal distances, and a larger total never has a
        smaller distance.

        `kernels`: compiled functions for NumPy arrays.
        """
        found = self._distances(total.reshape(-1), xp, kernels)
        return found.reshape(total.shape)

    def _distances(
        self, total: Array, xp: ArrayModule, kernels: HostKernels | None
    ) -> Array:
        return total

    def from_unit(self, number: Array, size: float, xp: ArrayModule = np) -> Array:
        """Convert distances in a unit to the unit of the metric. `number`: a number or
        an array (n,); `size`: of one unit, in radians for an angle between rows.
        """
        return number * size

    def in_unit(
        self,
        total: Array,
        size: float,
        xp: ArrayModule,
        kernels: HostKernels | None = None,
    ) -> Array:
        """Convert totals to distances in a unit. `size`: see `from_unit`.

        The result is the smallest number that finds the pair as a distance in this
        unit. It may reuse the memory of `total`.
        """
        away = self.distance(total, xp, kernels).reshape(-1)
        return quotients(away, size, xp).reshape(total.shape)


class Euclidean(Metric):
    """Straight-line distance.

    Two rows p, q are a pair if ``d2 <= eps*eps``. Here ``d2 = ((p0-q0)**2 + (p1-q1)**2)
    + ...``, summed in the order of `on`. Every difference, square, sum and product is
    rounded to float64, without fused multiply-add. The distance is the smallest number
    whose rounded square is at least `d2`: ``sqrt(d2)``, or the float after it.

    In float64, ``sqrt(3)*sqrt(3) < 3``, so ``eps=sqrt(3)`` misses points whose squared
    distance is 3. Their distance is the float after ``sqrt(3)``. Differences below
    about 1e-162 have a square of 0, as in SciPy and scikit-learn.
    """

    name = "euclidean"

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return eps * eps

    def _distances(
        self, total: Array, xp: ArrayModule, kernels: HostKernels | None
    ) -> Array:
        compiled = kernels is not None
        return in_blocks(lambda some: roots(some, xp, kernels), total, xp, compiled)


class SquaredEuclidean(Metric):
    """The square of the straight-line distance: see `Euclidean`.

    The distance is `d2`, and two rows are a pair if ``d2 <= eps``.
    """

    name = "sqeuclidean"


class Manhattan(Metric):
    """The sum of the differences: ``(|p0-q0| + |p1-q1|) + ...``, in the order of `on`.

    Every difference and sum is rounded to float64. Two rows are a pair if their
    distance is at most `eps`.
    """

    name = "manhattan"

    def __init__(self) -> None:
        super().__init__(1)


class Chebyshev(Metric):
    """The largest difference, ``max(|p0-q0|, |p1-q1|, ...)``, each rounded to float64.

    Two rows are a pair if their distance is at most `eps`.
    """

    name = "chebyshev"

    def __init__(self) -> None:
        super().__init__(math.inf)


class Minkowski(Metric):
    """The p-th root of the sum of p-th powers of the differences, for a number p >= 1.

    Two rows are a pair if ``(|p0-q0|**p + |p1-q1|**p) + ... <= eps**p``. The terms are
    added in the order of `on`, and every operation is rounded to float64. Powers are
    computed by squaring and multiplying, from the highest bit of p to the lowest. See
    Knuth, "The Art of Computer Programming", volume 2, section 4.6.3. The first
    bit of p after the point stands for the square root of the difference. The next bit
    stands for the root of this root, and so on. The power of a
    very small difference is 0, for ``p=3`` below about 1e-108. Such a difference counts
    as 0.

    ``p=1``, ``p=2`` and ``p=inf`` are `Manhattan`, `Euclidean` and `Chebyshev`. For
    other p, the distance is the smallest number whose p-th power, computed in this way,
    is at least the total.
    """

    name = "minkowski"

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return power(eps, self.norm)

    def _distances(
        self, total: Array, xp: ArrayModule, kernels: HostKernels | None
    ) -> Array:
        return in_blocks(lambda some: self._roots(some, xp), total, xp)

    def _roots(self, total: Array, xp: ArrayModule) -> Array:
        guess = xp.power(total, 1 / self.norm)
        # a step of Newton's method, because 1 / p is rounded
        found = power(guess, self.norm)
        nearer = guess - guess * ((found - total) / (self.norm * found))
        guess = xp.where((found > 0) & (found < math.inf), nearer, guess)
        return smallest(total, guess, self.threshold, xp)


class Cosine(Metric):
    """One minus the cosine of the angle between two rows: from 0 to 2.

    The distance is ``d2/2``, where `d2` is the total of `Euclidean` for the unit
    vectors u, v of both rows. This holds because ``|u - v|**2 = 2 - 2 u.v``. Unlike ``1
    - u.v``, it loses no digits for nearly equal directions. Two rows are a pair if ``d2
    <= 2*eps``. With ``eps=2`` or more, any two rows are a pair.

    A unit vector is ``y/n``. Here `y` is the row times a power of two, so that its
    largest absolute value is between 1/2 and 1. Then no square overflows, and only
    negligible squares become 0. `n` is the square root of ``(y0*y0 + y1*y1) + ...``, in
    the order of `on`; every operation is rounded to float64. If one row is another row
    times a power of two, their distance is 0. Other rows of the same direction may have
    a distance of about 1e-31, so ``eps=0`` does not find all of them.

    A row of zeros has no direction. It raises an error, or with ``dropna=True`` it is
    left out.
    """

    name = "cosine"
    embeds = True
    directed = True

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        return _unit_vectors(x, None, xp)

    def divided(self, x: Array, xp: ArrayModule) -> tuple[Array, Array | None]:
        lengths = xp.empty(len(x))
        return _unit_vectors(x, lengths, xp), lengths

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        # at most 2, so that the product cannot overflow
        most = min(eps, 2.0) if isinstance(eps, float) else xp.minimum(eps, 2.0)
        return 2 * most + (eps >= 2) * EVERYTHING

    def _distances(
        self, total: Array, xp: ArrayModule, kernels: HostKernels | None
    ) -> Array:
        return in_blocks(lambda some: self._halves(some, xp), total, xp)

    def _halves(self, total: Array, xp: ArrayModule) -> Array:
        found = total * 0.5
        bits = found.view(np.int64)
        # the half of an odd subnormal number may be rounded down
        bits += 2 * found < total
        # totals above 4 are due to rounding, except infinity
        return xp.where(total < math.inf, xp.minimum(found, 2.0), total)

    def from_unit(self, number: Array, size: float, xp: ArrayModule = np) -> Array:
        half = 0.5 * squared_chord(number * size, xp, 1.0)
        return min(half, 2.0) if isinstance(half, float) else xp.minimum(half, 2.0)

    def in_unit(
        self,
        total: Array,
        size: float,
        xp: ArrayModule,
        kernels: HostKernels | None = None,
    ) -> Array:
        # a squared chord is twice the distance
        chords = 2.0 * self.distance(total, xp).reshape(-1)
        return quotients(arcs(chords, xp, 1.0, kernels), size, xp).reshape(total.shape)


def _unit_vectors(x: Array, lengths: Array | None, xp: ArrayModule) -> Array:
    """Return unit vectors (n, d). If `lengths` (n,) is given, write the length of each
    row to this array.
    """
    n, dims = x.shape
    out = xp.empty((n, dims), order="F")
    step = max(1, PARSED_BYTES // (8 * max(dims, 1))) if xp is np else max(n, 1)
    with np.errstate(all="ignore"):
        for start in range(0, n, step):
            some = slice(start, start + step)
            _normalise(
                x[some], out[some], None if lengths is None else lengths[some], xp
            )
    return out


def _normalise(x: Array, out: Array, lengths: Array | None, xp: ArrayModule) -> None:
    """Write the unit vector of each row to `out`; a row without a direction becomes
    NaN.
    """
    largest = xp.zeros(len(x))
    for k in range(x.shape[1]):
        xp.maximum(largest, xp.abs(x[:, k]), out=largest)  # NaN stays NaN
    exponent = xp.frexp(xp.where(xp.isfinite(largest), largest, 1.0))[1]
    # a single power of two could overflow, so scale by two factors
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
    if lengths is not None:
        lengths[:] = xp.ldexp(total, exponent)


class Haversine(Metric):
    """Distance along the sphere, in meters, between points given by latitude and
    longitude in degrees.

    `on` names two columns in this order: latitude (-90 to 90) and longitude (-180 to
    360). The sphere's radius R is 6,371,008.8 m. A longitude above 180 is reduced by
    360, which is exact.

    Each point is converted to the unit vector ``(cos lat cos lon, cos lat sin lon, sin
    lat)``. Its sines and cosines are the same on every machine, and correct to within a
    unit in the last place: see `dask_simjoin.metrics.sphere`. The squared chord of two
    points is `d2`, the total of `Euclidean` for their unit vectors. Two points are a
    pair if `d2` is at most ``4 sin(eps/(2R))**2``, which is computed to 30 digits and
    then rounded. This is the haversine formula, because a squared chord is four times
    the haversine of the angle. See Sinnott 1984, "Virtues of the haversine", Sky and
    Telescope 68, 159.

    If the distance of two points is within about 1e-9 m of `eps`, rounding decides
    whether they are a pair. It does so in the same way on every machine. Near antipodes
    this margin is 1e-9 m divided by the cosine of half the angle. ``eps=0`` finds equal
    points: also a pole given with two longitudes, or the longitudes 180 and -180, or 0
    and 360. A larger `eps` never finds fewer pairs. From half the circumference on, any
    two rows are a pair.

    The distance is the smallest number whose threshold is at least `d2`, which is about
    ``2 R asin(sqrt(d2)/2)``. Its error is about 1e-9 m; near antipodes it is the larger
    margin above, 0.2 m at worst.

    The Earth is not a sphere, so distances on its ellipsoid differ by up to 0.6 %.
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

    def _distances(
        self, total: Array, xp: ArrayModule, kernels: HostKernels | None
    ) -> Array:
        return arcs(total, xp, kernels=kernels)


class Formula(Metric):
    """Base class of metrics by a formula of both numbers, such as a quotient. The distance
    is the total.

    The sum of differences of two rows' coordinates is at most `candidates` of their
    total: see `dask_simjoin.metrics.formulas`.
    """

    more: ClassVar[int] = 0
    """How many coordinates a row has beyond one for each column."""
    allowed: ClassVar[tuple[float, float]] = (-(2.0**1000), 2.0**1000)
    """Smallest and largest allowed number of a column."""

    def __init__(self) -> None:
        super().__init__(1)

    def coordinates(self, x: Array) -> Array:
        """Convert columns (n, d) to coordinates (n, d + more)."""
        raise NotImplementedError

    def reached(self, threshold: float, columns: int) -> float:
        """Return the largest total up to `threshold` that rows with `columns` columns
        can have, or a larger number up to `threshold`.
        """
        return threshold


class Hamming(Formula):
    """The share of columns with different numbers in both rows.

    The distance is ``m / d``, rounded to float64: m of the d columns differ. Two rows
    are a pair if it is at most `eps`. 0.0 and -0.0 are equal. From ``eps=1`` on, any two
    rows are a pair. Columns of texts need numbers, such as codes of ``pandas.factorize``.
    """

    name = "hamming"
    formula = HAMMING
    allowed = (-math.inf, math.inf)

    def coordinates(self, x: Array) -> Array:
        return hamming_coordinates(x)

    def reached(self, threshold: float, columns: int) -> float:
        if not threshold < 1:
            return threshold
        different = min(math.floor(threshold * columns) + 1, columns)
        while different / columns > threshold:
            different -= 1
        return different / columns

    def candidates(self, threshold: float) -> float:
        return hamming_limit(threshold)


class Canberra(Formula):
    """The sum of ``|p0-q0| / (|p0|+|q0|)``, ``|p1-q1| / (|p1|+|q1|)``, ..., in the order
    of `on`, where 0/0 counts as 0.

    Every operation is rounded to float64. Two rows are a pair if the sum is at most
    `eps`. Numbers of different signs have the largest term, 1. Numbers are from -2**1000
    to 2**1000, so that no sum overflows.
    """

    name = "canberra"
    formula = CANBERRA

    def coordinates(self, x: Array) -> Array:
        return canberra_coordinates(x)

    def candidates(self, threshold: float) -> float:
        return canberra_limit(threshold)


class BrayCurtis(Formula):
    """The sum of the differences divided by the sum of all numbers of both rows:
    ``((|p0-q0| + |p1-q1|) + ...) / (((p0+q0) + (p1+q1)) + ...)``, in the order of `on`.

    Every operation is rounded to float64. Two rows are a pair if their distance is at
    most `eps`. The distance of two rows of zeros is 0, as in scikit-learn. The numbers
    are amounts, from 0 to 2**900: with negative numbers, the quotient could be negative
    or infinite. From ``eps=1`` on, any two rows are a pair.
    """

    name = "braycurtis"
    formula = BRAY_CURTIS
    more = 1
    allowed = (0.0, 2.0**900)

    def coordinates(self, x: Array) -> Array:
        return bray_curtis_coordinates(x)

    def candidates(self, threshold: float) -> float:
        return bray_curtis_limit(threshold)


METRICS = {
    kind.name: kind
    for kind in (
        Euclidean,
        SquaredEuclidean,
        Manhattan,
        Chebyshev,
        Minkowski,
        Cosine,
        Haversine,
        Hamming,
        Canberra,
        BrayCurtis,
    )
}

SAME = {1: "manhattan", 2: "euclidean", math.inf: "chebyshev"}
"""p -> name of the metric that Minkowski's metric equals for this p."""


def make_metric(name: str, p: Norm = 2) -> Metric:
    """Return the metric with this name. `p`: exponent of Minkowski's metric; other
    metrics ignore it.
    """
    if name == Minkowski.name and p not in SAME:
        return Minkowski(p)
    return METRICS[SAME[p] if name == Minkowski.name else name]()


class _Wrapper(Metric):
    """Base class of metrics that change only some methods of another metric, `inner`."""

    def __init__(self, inner: Metric) -> None:
        super().__init__(inner.norm)
        self.inner = inner
        self.__dict__.update(
            name=inner.name,
            embeds=inner.embeds,
            columns=inner.columns,
            limits=inner.limits,
            axes=inner.axes,
            unit=inner.unit,
            directed=inner.directed,
            formula=inner.formula,
        )

    def dims(self, columns: int) -> int:
        return self.inner.dims(columns)

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        return self.inner.embed(x, xp)

    def divided(self, x: Array, xp: ArrayModule) -> tuple[Array, Array | None]:
        return self.inner.divided(x, xp)

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return self.inner.threshold(eps, xp)

    def candidates(self, threshold: float) -> float:
        return self.inner.candidates(threshold)

    def widened(self, threshold: float) -> float:
        return self.inner.widened(threshold)

    def from_unit(self, number: Array, size: float, xp: ArrayModule = np) -> Array:
        return self.inner.from_unit(number, size, xp)


class Totals(_Wrapper):
    """A metric whose distances are the totals of another metric."""


class _Extended(_Wrapper):
    """Base class of metrics with more coordinates than another metric, `inner`, and its
    distances. The last `added` columns become coordinates as they are.
    """

    def __init__(self, inner: Metric, added: int) -> None:
        super().__init__(inner)
        self.added = added

    def dims(self, columns: int) -> int:
        return self.inner.dims(columns - self.added) + self.added

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        if not self.embeds:
            return x
        points = self.inner.embed(x[:, : -self.added], xp)
        out = xp.empty((len(x), points.shape[1] + self.added), order="F")
        out[:, : -self.added], out[:, -self.added :] = points, x[:, -self.added :]
        return out

    def divided(self, x: Array, xp: ArrayModule) -> tuple[Array, Array | None]:
        # no lengths, because the added coordinates are not divided by a length
        return self.embed(x, xp), None

    def distance(
        self, total: Array, xp: ArrayModule, kernels: HostKernels | None = None
    ) -> Array:
        return self.inner.distance(total, xp, kernels)

    def in_unit(
        self,
        total: Array,
        size: float,
        xp: ArrayModule,
        kernels: HostKernels | None = None,
    ) -> Array:
        return self.inner.in_unit(total, size, xp, kernels)


def _check_norm(metric: Metric) -> None:
    """Refuse ``by=`` unless the metric is a norm.

    With another metric, rows of distant groups could have a small total.
    """
    if not is_norm(metric.norm):
        raise OptionError(
            f"by= is not allowed with metric={metric.name!r}, which is not a norm of "
            "differences. Leave out "
            "by=, and filter the pairs by columns that keep= keeps."
        )


class Grouped(_Extended):
    """Another metric, `inner`, restricted to groups: rows of different groups are never
    a pair.

    The last column has the group of each row. It becomes the last coordinate. Within a
    group, the difference of two rows in this coordinate is 0, which does not change the
    total. Between groups, this difference is at least `separation`, so the total is
    above the threshold. Only norms have both properties.
    """

    def __init__(self, inner: Metric) -> None:
        _check_norm(inner)
        super().__init__(inner, 1)
        self.__dict__["axes"] = (*inner.axes, "group") if inner.axes else ()


class Gated(_Extended):
    """Another metric, `inner`, with gates: see `dask_simjoin.metrics.gates`.

    The columns of gates come last, and become the last coordinates as they are. The
    metric has the totals of `inner`, without these coordinates.
    """

    def __init__(self, inner: Metric, gates: Gates) -> None:
        super().__init__(inner, len(gates.columns))
        self.gates = gates
        axes = tuple(map(str, gates.columns))
        self.__dict__["axes"] = (*inner.axes, *axes) if inner.axes else ()

    def widened(self, threshold: float) -> float:
        width = width_for(self.norm, threshold, self.gates.dims)
        widths = [width if own is None else own for own in self.gates.widths]
        return widened(self.norm, threshold, widths, self.gates.words)


class Periodic(_Extended):
    """Another metric, `inner`, in a box whose opposite sides are the same.

    In a column of length L, the difference of two rows is ``min(t, L - t)``, where t is
    ``|p - q|``. Both operations are rounded to float64. `inner` adds the differences to
    totals. Coordinates must be from 0 to L.

    A column becomes a circle of circumference L in two coordinates. A chord is never
    longer than its arc, so pairs are candidates in all coordinates: see
    `dask_simjoin.metrics.gates`. The numbers themselves follow as words, and decide.
    """

    def __init__(
        self, inner: Metric, box: tuple[float, ...], names: tuple[object, ...]
    ) -> None:
        super().__init__(inner, 0)
        self.box = box
        closed = [(0.0, length) if length else ANY for length in box]
        axes: list[str] = []
        for name, length in zip(names, box, strict=False):
            axes += [f"cos {name}", f"sin {name}"] if length else [str(name)]
        axes += map(str, names[len(box) :])
        axes += [f"{name} word {half}" for name in names[: len(box)] for half in (0, 1)]
        self.__dict__.update(embeds=True, limits=tuple(closed), axes=tuple(axes))

    def dims(self, columns: int) -> int:
        return self.inner.dims(columns) + sum(map(bool, self.box)) + 2 * len(self.box)

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        # a column of zeros is the latitude of points on the equator
        none, found = xp.zeros(len(x)), []
        for k, length in enumerate(self.box):
            if not length:
                found.append(x[:, k : k + 1])
                continue
            turn = xp.stack([none, x[:, k] / length * 360.0], axis=1)
            circle = unit_vectors(turn, xp)[:, :2] * (length / math.tau)
            found.append(circle)
        numbers = len(self.box)
        words = [words_of(x[:, k]) for k in range(numbers)]
        return xp.asfortranarray(
            xp.concatenate([*found, x[:, numbers:], *words], axis=1)
        )

    def widened(self, threshold: float) -> float:
        # two coordinates of a chord have a larger sum than the chord itself
        longer = 2.0 ** max(0.0, 1 / self.norm - 0.5)
        away = reach(self.norm, threshold) * longer * (1 + 2.0**-30)
        away += sum(self.box) * 2.0**-40
        with np.errstate(over="ignore"):
            widest = float(power(np.float64(away), self.norm)) * WIDER + LEAST
        candidates = self.inner.widened(max(threshold, widest))
        return widened(self.norm, candidates, (), 2 * len(self.box))


class ByFormula(_Extended):
    """Another metric, `inner`, whose columns' own numbers decide by the formula of
    `plain`.

    The columns become coordinates for candidates, and follow as words. `inner` is
    `plain`, or adds coordinates to it. `names`: of all columns. `lists`: whether the
    first one holds lists.
    """

    def __init__(
        self,
        inner: Metric,
        plain: Formula,
        names: tuple[object, ...],
        added: int,
        lists: bool,
    ) -> None:
        super().__init__(inner, added)
        self.plain = plain
        numbers = len(names) - added
        # gates of rows with their own distances have coordinates for the given threshold
        own_widths = isinstance(inner, Gated) and None in inner.gates.widths
        self._columns = 0 if lists or own_widths else numbers
        words = [f"{name} word {half}" for name in names[:numbers] for half in (0, 1)]
        axes = [*names[:numbers], *["sum"] * plain.more, *names[numbers:], *words]
        self.__dict__.update(
            embeds=True,
            limits=(plain.allowed,) * numbers,
            axes=tuple(map(str, axes)),
        )

    def dims(self, columns: int) -> int:
        return columns + self.plain.more + 2 * (columns - self.added)

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        numbers = x.shape[1] - self.added
        words = [words_of(x[:, k]) for k in range(numbers)]
        own = self.plain.coordinates(x[:, :numbers])
        return xp.asfortranarray(xp.concatenate([own, x[:, numbers:], *words], axis=1))

    def widened(self, threshold: float) -> float:
        if self._columns:
            threshold = self.plain.reached(threshold, self._columns)
        return self.inner.widened(self.candidates(threshold))


ANY = (-math.inf, math.inf)
"""Limits of a column that takes any number."""


def separation(metric: Metric, eps: float) -> float:
    """Return the distance between the last coordinates of two groups. With it, their
    rows are never a pair.

    It is a power of two above every coordinate difference of a pair. Multiples of a
    power of two, and their differences, are exact in float64. So rounding cannot bring
    groups nearer. The result is infinity if no finite number is large enough.
    """
    _check_norm(metric)
    with np.errstate(over="ignore"):
        threshold = metric.candidates(float(metric.threshold(eps)))
    if not math.isfinite(threshold):
        return math.inf
    most = reach(metric.norm, threshold)
    # at least 1, because powers of small numbers underflow to 0: two groups could then
    # have a total of 0
    exponent = math.frexp(most)[1] + 1
    return 1.0 if most < 0.5 else 2.0**exponent if exponent < 1024 else math.inf
