"""Layouts of joins by k-means clusters: centers, windows at borders, and rows of each cluster.

In any metric D, ``h(x) = (D(x, c_j) - D(x, c_i)) / 2`` differs by at most D(p, q) between two points p and q.
For squares the same holds for the signed distance from the bisector,
``(|x - c_j|**2 - |x - c_i|**2) / (2 |c_i - c_j|)``. If c_j is the nearest center of q, then h(q) <= 0. So a
point p of c_i within eps of q has h(p) <= eps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm
from dask_simjoin.papers.lists import KMeans

SAMPLE = 16_384
"""Maximum points that define the clusters."""

TRIAL = 4096, 5
"""Points and iterations to compare numbers of clusters."""

MAX_CLUSTERS = 1024
"""Maximum number of clusters for "auto"."""

LABEL_BATCH = 2048
"""Points to label at a time."""

CENTER_COST = 8
"""Cost of comparing a row with a center, in comparisons of two rows.

Rows are compared side by side, and centers one by one. Measured on one core of an EPYC with 8 columns.
"""

PER_CLUSTER = 4
"""Minimum points of the sample per cluster."""


@dataclass(frozen=True)
class Windows:
    """The width of the windows at borders of clusters, in units of the kernels.

    Coordinates are multiplied by `before`, and their differences by `scale`. These are powers of two that
    keep totals from overflow and underflow.

    Attributes
    ----------
    before, scale : float
        The two factors.
    gap : float
        Largest distance of a pair in these units, for any rounding of its total.
    slack : float
        Upper bound of the relative rounding error of a total.
    tiny : float
        Upper bound of the underflow of a total or its root.
    """

    before: float
    scale: float
    gap: float
    slack: float
    tiny: float


@dataclass(frozen=True)
class KMeansLayout:
    """The layout of a join by k-means clusters, shared by all its chunks.

    Attributes
    ----------
    threshold : float
        Threshold of the float64 decision.
    options : KMeans
        Options of the method.
    dims : int
        Dimensions of points.
    packed : bytes
        Bytes of the centers (float64); see `centers`.
    windows : Windows
        Width of the windows at borders.
    tiles : object
        Layout of the tiles that join the rows of a cluster, if any. On GPUs: the dimensions that sort the
        rows.
    norm : int or float
        Norm of the totals that are compared.
    bounds : Bounds or None
        Bounds of the float32 filter; on GPUs only.
    copies : bool
        Whether rows near a border are copied. Without copies, pairs across clusters are missing.
    """

    threshold: float
    options: KMeans
    dims: int
    packed: bytes
    windows: Windows
    tiles: object
    norm: Norm = 2
    bounds: Bounds | None = None
    copies: bool = True

    @property
    def centers(self) -> np.ndarray:
        """Return the centers (k, d)."""
        return np.frombuffer(self.packed).reshape(-1, self.dims)

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return "kmeans"

    @property
    def grain(self) -> int:
        """Return a number of points: queries can be cut at its multiples."""
        return 1

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe the layout for a plan; `names` returns names of dimensions."""
        options, number = self.options, len(self.centers)
        inner = "tiles" if options.inner == "tiles" else "nested loops"
        windows = f"{options.windows} windows" if self.copies else "without windows"
        return f"{number} k-means cluster{'s' * (number != 1)}; {windows}; {inner}"


def make_windows(lower: np.ndarray, upper: np.ndarray, threshold: float, norm: Norm) -> Windows:
    """Choose units for points in a box, and bound the rounding errors of a window.

    Let u = 2**-53. A computed total of d squares has a relative error of at most (d + 2) u, apart from
    underflow. For p-th powers it is (d + 2p) u. The relative error of its root is p times smaller, plus
    rounding. The border between clusters i and j depends on two totals for each end of a pair. Totals of the
    other end are at most twice as large, plus some of `gap`, because the points are `gap` apart. `slack` is
    at least twice one error, so three times `slack` exceeds the sum of all errors.
    """
    dims = len(lower)
    quarter = max(float(u) * 0.25 - float(v) * 0.25 for u, v in zip(upper, lower, strict=True))
    before = 1.0 if quarter < 2.0**1018 else 0.25
    span = quarter * (4 * before)  # avoid overflow of four quarters
    scale = 2.0 ** max(-1000, min(1000, -math.frexp(span)[1])) if span > 0 else 1.0
    power = 1 if norm == math.inf else int(norm)
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


def sample_of(drawn: Drawn | None, dims: int) -> np.ndarray:
    """Return the points that define the clusters."""
    if drawn is None:
        return np.empty((0, dims))
    is_self_join = drawn.queries is drawn.points
    x = drawn.points if is_self_join else np.concatenate([drawn.queries, drawn.points])
    return x[:: max(1, -(-len(x) // SAMPLE))]


def squares(x: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return squared distances (n, k) between points and centers, exact enough to choose clusters."""
    found = -2 * (x @ centers.T)
    found += np.einsum("ij,ij->i", centers, centers)
    found += np.einsum("ij,ij->i", x, x)[:, None]
    return np.maximum(found, 0.0, out=found)


def lloyd(x: np.ndarray, clusters: int, iterations: int, seed: int) -> np.ndarray:
    """Return the centers (k, d) of clusters by Lloyd's algorithm, from random points.

    The centers are different, so there may be fewer than `clusters`.
    """
    rng = np.random.default_rng(seed)
    centers = np.unique(x[rng.permutation(len(x))[:clusters]], axis=0)
    labels = np.full(len(x), -1)
    for _ in range(iterations):
        parts = (squares(x[first : first + LABEL_BATCH], centers) for first in range(0, len(x), LABEL_BATCH))
        new = np.concatenate([part.argmin(axis=1) for part in parts])
        if (new == labels).all():
            break
        labels, order = new, np.argsort(new, kind="stable")
        sizes = np.bincount(labels, minlength=len(centers))
        used = np.flatnonzero(sizes)  # empty clusters keep their centers
        firsts = (np.cumsum(sizes) - sizes)[used]
        centers[used] = np.add.reduceat(x[order], firsts, axis=0) / sizes[used][:, None]
    return np.unique(centers, axis=0)


def predicted(x: np.ndarray, rows: float, centers: np.ndarray, gap: float) -> float:
    """Predict the comparisons of a join of `rows` points from a sample `x` (m, d).

    It counts comparisons of rows within a cluster, and of copied rows with the rows of the other cluster
    (one-sided). It adds comparisons of all rows with all centers, times `CENTER_COST`.
    """
    found, k = squares(x, centers), len(centers)
    labels = found.argmin(axis=1)
    apart = np.sqrt(squares(centers, centers))
    h = found - found[np.arange(len(x)), labels][:, None]
    gap = min(gap, 1e150)  # points are at most about 1 apart; infinity times 0 is NaN
    copied = (h <= 2 * gap * apart[labels]) & (np.arange(k) > labels[:, None])
    own, share = np.bincount(labels, minlength=k), rows / len(x)
    within = float((own.astype(float) ** 2).sum()) / 2 + float((own * copied.sum(axis=0)).sum())
    return within * share**2 + CENTER_COST * rows * k


def best_number(x: np.ndarray, rows: float, gap: float, seed: int) -> int:
    """Return the number of clusters, a power of two, with the fewest predicted comparisons."""
    number, iterations = TRIAL
    x = x[:: max(1, -(-len(x) // number))]
    best, min_cost, k = 1, math.inf, 1
    while k <= min(MAX_CLUSTERS, len(x) // PER_CLUSTER) and CENTER_COST * rows * k < min_cost:
        cost = predicted(x, rows, lloyd(x, k, iterations, seed), gap)
        if cost < min_cost:
            best, min_cost = k, cost
        k *= 2
    return best


def make_kmeans_layout(options: KMeans, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
                       threshold: float, norm: Norm, drawn: Drawn | None,
                       tiles: object) -> KMeansLayout:  # fmt: skip
    """Choose centers for points in the box [lower, upper] from a sample.

    Any centers give exact results, because the windows depend on the labels of the rows.
    """
    windows, x = make_windows(lower, upper, threshold, norm), sample_of(drawn, len(lower))
    about = windows.before * mean
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (x * windows.before - about) * windows.scale
    rows = float(drawn.rows) if drawn is not None else 0.0
    if not len(x) or not np.isfinite(scaled).all():
        centers = np.zeros((1, len(lower)))
    else:
        auto = options.clusters == "auto"
        number = best_number(scaled, rows, windows.gap, options.seed) if auto else options.clusters
        assert isinstance(number, int)
        options = replace(options, clusters=number)
        centers = lloyd(scaled, number, options.iterations, options.seed)
    with np.errstate(over="ignore", invalid="ignore"):
        placed = (centers / windows.scale + about) / windows.before
    placed = np.clip(np.nan_to_num(placed), lower, upper)
    packed = np.ascontiguousarray(np.unique(placed, axis=0)).tobytes()
    return KMeansLayout(threshold, options, len(lower), packed, windows, tiles, norm)


def labels_of(index: Index, layout: KMeansLayout, xp: ArrayModule = np) -> Array:
    """Return the clusters of an index's rows, by position; without copies, these decide the pairs."""
    rows = len(index["y"])
    labels = xp.empty(rows, xp.int32)
    places = xp.arange(rows, dtype=index["starts"].dtype)
    labels[index["order"][:rows]] = xp.searchsorted(index["starts"], places, side="right") - 1
    return labels


SIDE = 64
"""Rows of a part, which a block of threads takes at a time."""


class Parts(NamedTuple):
    """Parts of lists; each part has rows of one list.

    Attributes
    ----------
    begins, ends : array (parts,), int32
        Range of each part in the array of all lists.
    lists : array (parts,), int32
        The list of each part.
    first : array (lists + 1,), int32
        The first part of each list, and the number of all parts.
    """

    begins: Array
    ends: Array
    lists: Array
    first: Array


def cut(starts: Array, side: int = SIDE, xp: ArrayModule = np) -> Parts:
    """Cut lists with the boundaries `starts` (lists + 1, int64) into parts of at most `side` rows."""
    first = xp.zeros(len(starts), xp.int64)
    first[1:] = xp.cumsum(-(-(starts[1:] - starts[:-1]) // side))
    parts = xp.arange(int(first[-1]), dtype=xp.int64)
    lists = xp.searchsorted(first, parts, side="right") - 1
    begins = starts[lists] + (parts - first[lists]) * side
    ends = xp.minimum(begins + side, starts[lists + 1])
    return Parts(*(some.astype(xp.int32) for some in (begins, ends, lists, first)))
