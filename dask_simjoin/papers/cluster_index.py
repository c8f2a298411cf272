"""Layouts of joins by k-means clusters: centers, windows at borders, and rows of each cluster.

A point x of cluster i is in the window of cluster j if h(x) <= eps. In a metric D,
``h(x) = (D(x, c_j) - D(x, c_i)) / 2``. For squared distances it is the signed distance from the bisector,
``(|x - c_j|**2 - |x - c_i|**2) / (2 |c_i - c_j|)``. Either way, h differs by at most D(p, q) between two
points p and q. If c_j is the nearest center of q, then h(q) <= 0. So all points p of cluster i within eps of
q are in the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm
from dask_simjoin.papers.lists import KMeans

SAMPLE = 16_384
"""Maximum points that define the clusters."""

TRIAL = 4096, 5
"""Maximum points, and iterations, to compare numbers of clusters."""

MAX_CLUSTERS = 1024
"""Maximum number of clusters for "auto"."""

LABEL_BATCH = 2048
"""Points to label at a time."""

CENTER_COST = 8
"""Cost of comparing a row with a center, as a multiple of the cost of comparing two rows.

Vector instructions compare several rows at once, but a single center. Measured on one core of an EPYC with 8
columns.
"""

PER_CLUSTER = 4
"""Minimum points of the sample per cluster."""


@dataclass(frozen=True)
class Windows:
    """The width of the windows at borders of clusters, in units of the kernels.

    The kernels multiply coordinates by `before`, and their differences by `scale`. These are powers of two
    that keep totals from overflow and underflow.
    """

    before: float
    scale: float
    gap: float  # largest distance of a pair in these units, however its total is rounded
    slack: float  # upper bound of the relative rounding error of a total
    tiny: float  # upper bound of the absolute error of a total or its root by underflow


@dataclass(frozen=True)
class KMeansLayout:
    """The layout of a join by k-means clusters, shared by all its chunks; see `Layout`."""

    method: ClassVar[str] = "kmeans"
    grain: ClassVar[int] = 1

    threshold: float
    options: KMeans
    dims: int  # dimensions of points
    packed: bytes  # the centers as bytes, so that layouts can be compared and hashed
    windows: Windows
    tiles: object  # layout of the tiles in a cluster, or None; on GPUs: the dimensions that sort rows
    norm: Norm = 2
    bounds: Bounds | None = None  # bounds of the float32 filter; on GPUs only
    copies: bool = True  # whether rows near a border are copied; if not, pairs across clusters are missing

    @property
    def centers(self) -> np.ndarray:
        """The centers (k, d), float64."""
        return np.frombuffer(self.packed).reshape(-1, self.dims)

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        options, number = self.options, len(self.centers)
        inner = "tiles" if options.inner == "tiles" else "nested loops"
        windows = f"{options.windows} windows" if self.copies else "without windows"
        return f"{number} k-means cluster{'s' * (number != 1)}; {windows}; {inner}"


def make_windows(lower: np.ndarray, upper: np.ndarray, threshold: float, norm: Norm) -> Windows:
    """Choose units for points in a box, and bound the rounding errors of a window.

    Let u = 2**-53. A computed total of d squares has a relative error of at most (d + 2) u, apart from
    underflow. For p-th powers it is (d + 2p) u. The relative error of the total's root is p times smaller,
    plus rounding. The border between two clusters depends on two totals for each end of a pair. The ends are
    at most `gap` apart, so totals of one end are at most twice the other's, plus a multiple of `gap`. `slack`
    is at least twice one error, so three times `slack` exceeds the sum of all errors.
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
    """Return the points (m, d) that define the clusters."""
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

    Equal centers are merged, so there may be fewer than `clusters`.
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

    It adds comparisons of rows within a cluster, and of copied rows with the rows of the other cluster
    (one-sided). Comparisons of rows with centers count `CENTER_COST` times.
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
    """Return the cluster of each row, by position; without copies, both rows of a pair are in one."""
    rows = len(index["y"])
    labels = xp.empty(rows, xp.int32)
    places = xp.arange(rows, dtype=index["starts"].dtype)
    labels[index["order"][:rows]] = xp.searchsorted(index["starts"], places, side="right") - 1
    return labels


SIDE = 64
"""Maximum rows of a part of a list, which a block of threads handles at a time."""


class Parts(NamedTuple):
    """Parts of lists, int32; each part has rows of one list."""

    begins: Array  # (parts,): start of each part in the array of all lists
    ends: Array
    lists: Array  # (parts,): the list of each part
    first: Array  # (lists + 1,): the first part of each list, and the number of all parts


def cut(starts: Array, side: int = SIDE, xp: ArrayModule = np) -> Parts:
    """Cut lists with the boundaries `starts` (lists + 1, int64) into parts of at most `side` rows."""
    first = xp.zeros(len(starts), xp.int64)
    first[1:] = xp.cumsum(-(-(starts[1:] - starts[:-1]) // side))
    parts = xp.arange(int(first[-1]), dtype=xp.int64)
    lists = xp.searchsorted(first, parts, side="right") - 1
    begins = starts[lists] + (parts - first[lists]) * side
    ends = xp.minimum(begins + side, starts[lists + 1])
    return Parts(*(some.astype(xp.int32) for some in (begins, ends, lists, first)))
