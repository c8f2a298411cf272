"""Layouts of joins by k-means clusters: the centers, and the windows at the borders of
clusters.

A cluster has all points whose nearest center is the same. The window of cluster j has
the points of other clusters that may have neighbors in cluster j. A point x of cluster
i is in this window if h(x) <= eps. For a metric D, ``h(x) = (D(x, c_j) - D(x, c_i)) /
2``. In norm 2, h is the signed distance from the bisector of the two centers, ``(|x -
c_j|**2 - |x - c_i|**2) / (2 |c_i - c_j|)``.

No neighbor is missed: in both cases, h(p) and h(q) differ by at most D(p, q). If q is
in cluster j, then h(q) <= 0. So all points p of cluster i within eps of q have h(p) <=
eps, and are in the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm
from dask_simjoin.papers.lists import KMeans
from dask_simjoin.sizes import IN_CACHE

TRIAL = 4096, 5
"""For "auto", each number of clusters is tried: maximum number of points, and number of
iterations.
"""

MAX_CLUSTERS = 1024
"""Maximum number of clusters for "auto"."""

CENTER_COST = 8
"""Cost of comparing a row with a center, divided by the cost of comparing two rows.

It is above 1, because vector instructions compare several rows at once, but only one
center. The value was measured on one core of an EPYC with 8 columns.
"""

MAX_SAMPLE = 1 << 14
"""Maximum number of points that the centers are computed from."""

PER_CLUSTER = 4
"""Minimum number of sample points per cluster for "auto"."""


class Windows(NamedTuple):
    """The width of windows at borders of clusters, and bounds of rounding errors, both
    in the kernels' units.

    Kernels multiply coordinates by `before`, and differences of coordinates by `scale`.
    Both are powers of two. They keep totals from overflow and underflow.
    """

    before: float
    scale: float
    gap: float  # upper bound of the true distance of a pair, in the kernels' units
    slack: float  # upper bound of the relative rounding error of a total
    # upper bound of the absolute error of a total or of its root, caused by underflow
    tiny: float


@dataclass(frozen=True)
class KMeansLayout:
    """The layout of a join by k-means clusters, shared by all its chunks; see `Layout`."""

    method: ClassVar[str] = "kmeans"
    grain: ClassVar[int] = 1

    threshold: float
    options: KMeans
    dims: int  # number of dimensions of the points
    packed: bytes  # the centers as bytes, so that layouts can be compared and hashed
    windows: Windows
    # on CPUs, layout of the tiles in a cluster; on GPUs, dimensions of the kd order;
    # None without tiles
    tiles: object
    norm: Norm = 2
    bounds: Bounds | None = None  # bounds of the float32 filter; on GPUs only
    # whether rows in windows are copied; if not, pairs of rows in different clusters
    # are lost
    copies: bool = True

    @property
    def centers(self) -> np.ndarray:
        """The centers (k, d), float64."""
        return np.frombuffer(self.packed).reshape(-1, self.dims)

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        options, number = self.options, len(self.centers)
        inner = "tiles" if options.inner == "tiles" else "nested loops"
        windows = f"{options.windows} windows" if self.copies else "without windows"
        return f"{number} k-means cluster{'s' * (number != 1)}; {windows}; {inner}"


def make_windows(
    lower: np.ndarray, upper: np.ndarray, threshold: float, norm: Norm
) -> Windows:
    """Choose units for points in the box [lower, upper], and bound the rounding errors
    of windows.

    Let u = 2**-53. A computed total of d squares has a relative error of at most (d +
    2) u, apart from underflow. For p-th powers, the error is at most (d + 2p + 208) u.
    If p is not whole, this includes up to 52 roots and products. The error of the
    total's root is p times smaller, plus one rounding.

    h depends on two totals for each of the two points of a pair. The points are at most
    `gap` apart. So totals of one point are at most twice the totals of the other, plus
    a multiple of `gap`. `slack` is at least twice the error of one total, so three
    times `slack` exceeds the sum of all errors.
    """
    dims = len(lower)
    quarter = max(
        float(u) * 0.25 - float(v) * 0.25 for u, v in zip(upper, lower, strict=True)
    )
    before = 1.0 if quarter < 2.0**1018 else 0.25
    # scaled by `before`, because four times `quarter` could overflow
    span = quarter * (4 * before)
    scale = 2.0 ** max(-1000, min(1000, -math.frexp(span)[1])) if span > 0 else 1.0
    power = 1 if norm == math.inf else norm
    slack = (dims + 2 * power + 64) * 2.0**-50
    with np.errstate(over="ignore"):
        if power == 1:
            max_distance = np.float64(threshold)
        elif norm == 2:
            max_distance = np.sqrt(np.float64(threshold) + dims * 2.0**-1073)
        else:
            max_distance = (np.float64(threshold) + dims * 2.0**-1021) ** (1 / power)
        gap = float(max_distance * (1 + slack) * before * scale)
    return Windows(before, scale, gap, slack, 4 * dims * 2.0 ** (-1000 / power))


def sample_of(sample: JoinSample | None, dims: int) -> np.ndarray:
    """Return the sample points (m, d) that define the clusters; an empty array if there
    is no sample.
    """
    if sample is None:
        return np.empty((0, dims))
    is_self_join = sample.queries is sample.points
    x = (
        sample.points
        if is_self_join
        else np.concatenate([sample.queries, sample.points])
    )
    return x[:: max(1, -(-len(x) // MAX_SAMPLE))]


def squares(x: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return squared distances (n, k) between points and centers. Kernels compute them
    more precisely.
    """
    found = -2 * (x @ centers.T)
    found += np.einsum("ij,ij->i", centers, centers)
    found += np.einsum("ij,ij->i", x, x)[:, None]
    return np.maximum(found, 0.0, out=found)


def lloyd(x: np.ndarray, clusters: int, iterations: int, seed: int) -> np.ndarray:
    """Return the centers (k, d) that Lloyd's algorithm finds for the points `x` (n, d).

    The initial centers are random points. Equal centers are merged, so k may be smaller
    than `clusters`.
    """
    rng = np.random.default_rng(seed)
    centers = np.unique(x[rng.permutation(len(x))[:clusters]], axis=0)
    labels = np.full(len(x), -1)
    for _ in range(iterations):
        parts = (
            squares(x[first : first + IN_CACHE], centers)
            for first in range(0, len(x), IN_CACHE)
        )
        new = np.concatenate([part.argmin(axis=1) for part in parts])
        if (new == labels).all():
            break
        labels, order = new, np.argsort(new, kind="stable")
        sizes = np.bincount(labels, minlength=len(centers))
        used = np.flatnonzero(sizes)  # only non-empty clusters get new centers
        firsts = (np.cumsum(sizes) - sizes)[used]
        centers[used] = np.add.reduceat(x[order], firsts, axis=0) / sizes[used][:, None]
    return np.unique(centers, axis=0)


def predicted(x: np.ndarray, rows: float, centers: np.ndarray, gap: float) -> float:
    """From a sample `x` (m, d), predict the number of comparisons of a join of `rows`
    points.

    The number includes comparisons within clusters, and comparisons of copied rows with
    the other cluster's rows in one-sided windows. It also includes comparisons of rows
    with centers, times `CENTER_COST`.
    """
    found, k = squares(x, centers), len(centers)
    labels = found.argmin(axis=1)
    apart = np.sqrt(squares(centers, centers))
    h = found - found[np.arange(len(x)), labels][:, None]
    # clipped, because inf * 0 would be NaN; points are at most about 1 apart, so this
    # changes nothing else
    gap = min(gap, 1e150)
    copied = (h <= 2 * gap * apart[labels]) & (np.arange(k) > labels[:, None])
    own, share = np.bincount(labels, minlength=k), rows / len(x)
    within = float((own.astype(float) ** 2).sum()) / 2 + float(
        (own * copied.sum(axis=0)).sum()
    )
    return within * share**2 + CENTER_COST * rows * k


def best_number(x: np.ndarray, rows: float, gap: float, seed: int) -> int:
    """Return the number of clusters, a power of two, with the fewest predicted
    comparisons.
    """
    number, iterations = TRIAL
    x = x[:: max(1, -(-len(x) // number))]
    best, min_cost, k = 1, math.inf, 1
    while (
        k <= min(MAX_CLUSTERS, len(x) // PER_CLUSTER)
        and CENTER_COST * rows * k < min_cost
    ):
        cost = predicted(x, rows, lloyd(x, k, iterations, seed), gap)
        if cost < min_cost:
            best, min_cost = k, cost
        k *= 2
    return best


def make_kmeans_layout(
    options: KMeans,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None,
    tiles: object,
) -> KMeansLayout:
    """Choose centers from a sample, for points in the box [lower, upper].

    The choice affects only speed: results are exact with any centers, because windows
    are computed for all rows.
    """
    windows, x = (
        make_windows(lower, upper, threshold, norm),
        sample_of(sample, len(lower)),
    )
    about = windows.before * mean
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (x * windows.before - about) * windows.scale
    rows = float(sample.rows) if sample is not None else 0.0
    if not len(x) or not np.isfinite(scaled).all():
        centers = np.zeros((1, len(lower)))
    else:
        auto = options.clusters == "auto"
        number = (
            best_number(scaled, rows, windows.gap, options.seed)
            if auto
            else options.clusters
        )
        assert isinstance(number, int)
        options = replace(options, clusters=number)
        centers = lloyd(scaled, number, options.iterations, options.seed)
    with np.errstate(over="ignore", invalid="ignore"):
        placed = (centers / windows.scale + about) / windows.before
    placed = np.clip(np.nan_to_num(placed), lower, upper)
    packed = np.ascontiguousarray(np.unique(placed, axis=0)).tobytes()
    return KMeansLayout(threshold, options, len(lower), packed, windows, tiles, norm)


def labels_of(index: Index, layout: KMeansLayout, xp: ArrayModule = np) -> Array:
    """Return the cluster of each row of a chunk (n,), int32, in the order of the chunk."""
    rows = len(index["y"])
    labels = xp.empty(rows, xp.int32)
    places = xp.arange(rows, dtype=index["starts"].dtype)
    labels[index["order"][:rows]] = (
        xp.searchsorted(index["starts"], places, side="right") - 1
    )
    return labels


SIDE = 64
"""Maximum number of rows in a part of a list. A block of GPU threads handles one part
at a time.
"""


class Parts(NamedTuple):
    """The parts that lists of rows are cut into. All rows of a part are from one list.
    Arrays are int32.
    """

    begins: Array  # (parts,): start of each part in the array of all lists
    ends: Array
    lists: Array  # (parts,): number of the list of each part
    # (lists + 1,): number of the first part of each list, then the number of all parts
    first: Array


def cut(starts: Array, side: int = SIDE, xp: ArrayModule = np) -> Parts:
    """Cut lists into parts of at most `side` rows. `starts` (lists + 1,), int64: start
    of each list.
    """
    first = xp.zeros(len(starts), xp.int64)
    first[1:] = xp.cumsum(-(-(starts[1:] - starts[:-1]) // side))
    parts = xp.arange(int(first[-1]), dtype=xp.int64)
    lists = xp.searchsorted(first, parts, side="right") - 1
    begins = starts[lists] + (parts - first[lists]) * side
    ends = xp.minimum(begins + side, starts[lists + 1])
    return Parts(*(some.astype(xp.int32) for some in (begins, ends, lists, first)))
