"""Layouts of joins by k-means clusters: centers, windows at borders, and members of each.

In any metric D, ``h(x) = (D(x, c_j) - D(x, c_i)) / 2`` differs by at most D(p, q) between two points, and of
squares so does the signed distance from the bisector, ``(|x - c_j|**2 - |x - c_i|**2) / (2 |c_i - c_j|)``. A
point q whose nearest centre is c_j has h(q) <= 0, so that a point p of c_i within eps of it has h(p) <= eps.
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
"""Points of which clusters are made at most."""

TRIED = 4096, 5
"""Points, and iterations, by which numbers of clusters are compared."""

MOST = 1024
"""Clusters that "auto" tries."""

AT_ONCE = 2048
"""Points that are labelled at a time."""

CENTRE = 8
"""Pairs that are compared side by side in the time of a row and a centre, which are compared alone: on one
core of an EPYC, 8 columns."""

PER_CLUSTER = 4
"""Points of the sample that a cluster needs, to be tried."""


@dataclass(frozen=True)
class Windows:
    """How far beyond a border rows of other clusters may lie, in numbers that kernels compare.

    Coordinates are multiplied by `before`, and their differences by `scale`, powers of two with which no
    total is large or vanishes.

    Attributes
    ----------
    before, scale : float
    gap : float
        The distance of a pair at most, however its total was rounded, in these units.
    slack : float
        What rounding may do to a total, as a part of it, with room to spare.
    tiny : float
        And what underflow may add to it, or to its root.
    """

    before: float
    scale: float
    gap: float
    slack: float
    tiny: float


@dataclass(frozen=True)
class KMeansLayout:
    """How chunks are cut into clusters: alike, so that any two can meet.

    Attributes
    ----------
    threshold : float
        Of the float64 decision.
    options : KMeans
    dims : int
        Dimensions of points.
    packed : bytes
        The centres, float64, one after the other: see `centres`.
    windows : Windows
    tiles : object
        The layout by which a cluster's rows are joined, if by tiles; on GPUs the dimensions by which they are
        put in order.
    norm : int or float
        Of the totals that the decision compares.
    bounds : Bounds or None
        Of the float32 filter, where there is one: on GPUs.
    copies : bool
        Whether rows near a border are copied; without them pairs of two clusters are left out.
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
    def centres(self) -> np.ndarray:
        """The centres (k, d)."""
        return np.frombuffer(self.packed).reshape(-1, self.dims)

    @property
    def method(self) -> str:
        """The method's name."""
        return "kmeans"

    @property
    def grain(self) -> int:
        """Points at whose multiples queries can be cut."""
        return 1

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        asked, number = self.options, len(self.centres)
        inner = "tiles" if asked.inner == "tiles" else "nested loops"
        windows = f"{asked.windows} windows" if self.copies else "without windows"
        return f"{number} k-means cluster{'s' * (number != 1)}; {windows}; {inner}"


def make_windows(lower: np.ndarray, upper: np.ndarray, threshold: float, norm: Norm) -> Windows:
    """Choose units for points within a box, and say what of a window is due to rounding.

    A total of d terms is computed within (d + 2) u of itself of squares, u = 2**-53, and (d + 2p) u of p-th
    powers, but for underflow; its root is p times as near, and rounded. Of p and of the border between i and
    j there are errors in the two totals of each end; those of the other end are at most twice as large, as
    totals of points that are `gap` apart are, plus some of `gap` itself. Three times `slack`, which is at
    least twice an error, is more than all of these.
    """
    dims = len(lower)
    quarter = max(float(u) * 0.25 - float(v) * 0.25 for u, v in zip(upper, lower, strict=True))
    before = 1.0 if quarter < 2.0**1018 else 0.25
    span = quarter * (4 * before)  # four quarters alone may be infinite
    scale = 2.0 ** max(-1000, min(1000, -math.frexp(span)[1])) if span > 0 else 1.0
    power = 1 if norm == math.inf else int(norm)
    slack = (dims + 2 * power + 64) * 2.0**-50
    with np.errstate(over="ignore"):
        if power == 1:
            most = np.float64(threshold)
        elif norm == 2:
            most = np.sqrt(np.float64(threshold) + dims * 2.0**-1073)
        else:
            most = (np.float64(threshold) + dims * 2.0**-1021) ** (1 / power)
        gap = float(most * (1 + slack) * before * scale)
    return Windows(before, scale, gap, slack, 4 * dims * 2.0 ** (-1000 / power))


def sample_of(drawn: Drawn | None, dims: int) -> np.ndarray:
    """Return the points of which clusters are made."""
    if drawn is None:
        return np.empty((0, dims))
    same = drawn.queries is drawn.points
    x = drawn.points if same else np.concatenate([drawn.queries, drawn.points])
    return x[:: max(1, -(-len(x) // SAMPLE))]


def squares(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return about the squared distances (n, k) of points from centres: good enough to choose by."""
    found = -2 * (x @ centres.T)
    found += np.einsum("ij,ij->i", centres, centres)
    found += np.einsum("ij,ij->i", x, x)[:, None]
    return np.maximum(found, 0.0, out=found)


def lloyd(x: np.ndarray, clusters: int, iterations: int, seed: int) -> np.ndarray:
    """Return the centres (k, d) of clusters of some points, of which some are the first ones.

    Fewer than are asked for, where there are not as many different points; and no two are one.
    """
    rng = np.random.default_rng(seed)
    centres = np.unique(x[rng.permutation(len(x))[:clusters]], axis=0)
    labels = np.full(len(x), -1)
    for _ in range(iterations):
        parts = (squares(x[first : first + AT_ONCE], centres) for first in range(0, len(x), AT_ONCE))
        new = np.concatenate([part.argmin(axis=1) for part in parts])
        if (new == labels).all():
            break
        labels, order = new, np.argsort(new, kind="stable")
        sizes = np.bincount(labels, minlength=len(centres))
        used = np.flatnonzero(sizes)  # of the others centres stay
        firsts = (np.cumsum(sizes) - sizes)[used]
        centres[used] = np.add.reduceat(x[order], firsts, axis=0) / sizes[used][:, None]
    return np.unique(centres, axis=0)


def predicted(x: np.ndarray, rows: float, centres: np.ndarray, gap: float) -> float:
    """Predict how many pairs a join of `rows` points compares, of which `x` (m, d) are a sample.

    Rows with their cluster's, copies with the rows of the cluster that they are copied to, one-sided, and
    each row with all centres, weighed by what that costs.
    """
    found, k = squares(x, centres), len(centres)
    labels = found.argmin(axis=1)
    apart = np.sqrt(squares(centres, centres))
    h = found - found[np.arange(len(x)), labels][:, None]
    gap = min(gap, 1e150)  # of points that are about 1 apart at most; an infinite one times 0 is no number
    copied = (h <= 2 * gap * apart[labels]) & (np.arange(k) > labels[:, None])
    own, share = np.bincount(labels, minlength=k), rows / len(x)
    within = float((own.astype(float) ** 2).sum()) / 2 + float((own * copied.sum(axis=0)).sum())
    return within * share**2 + CENTRE * rows * k


def best_number(x: np.ndarray, rows: float, gap: float, seed: int) -> int:
    """Return the number of clusters, a power of two, of which the fewest comparisons are predicted."""
    number, iterations = TRIED
    x = x[:: max(1, -(-len(x) // number))]
    best, least, k = 1, math.inf, 1
    while k <= min(MOST, len(x) // PER_CLUSTER) and CENTRE * rows * k < least:
        cost = predicted(x, rows, lloyd(x, k, iterations, seed), gap)
        if cost < least:
            best, least = k, cost
        k *= 2
    return best


def make_kmeans_layout(options: KMeans, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
                       threshold: float, norm: Norm, drawn: Drawn | None,
                       tiles: object) -> KMeansLayout:  # fmt: skip
    """Choose centres for points within the box [lower, upper], of which some are drawn.

    They may be anything: what is exact is told from the labels that rows get.
    """
    windows, x = make_windows(lower, upper, threshold, norm), sample_of(drawn, len(lower))
    about = windows.before * mean
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (x * windows.before - about) * windows.scale
    rows = float(drawn.rows) if drawn is not None else 0.0
    if not len(x) or not np.isfinite(scaled).all():
        centres = np.zeros((1, len(lower)))
    else:
        auto = options.clusters == "auto"
        number = best_number(scaled, rows, windows.gap, options.seed) if auto else options.clusters
        assert isinstance(number, int)
        options = replace(options, clusters=number)
        centres = lloyd(scaled, number, options.iterations, options.seed)
    with np.errstate(over="ignore", invalid="ignore"):
        placed = (centres / windows.scale + about) / windows.before
    placed = np.clip(np.nan_to_num(placed), lower, upper)
    packed = np.ascontiguousarray(np.unique(placed, axis=0)).tobytes()
    return KMeansLayout(threshold, options, len(lower), packed, windows, tiles, norm)


def labels_of(index: Index, layout: KMeansLayout, xp: ArrayModule = np) -> Array:
    """Return the clusters of an index's rows by position, which decide what joins without copies find."""
    rows = len(index["y"])
    labels = xp.empty(rows, xp.int32)
    places = xp.arange(rows, dtype=index["starts"].dtype)
    labels[index["order"][:rows]] = xp.searchsorted(index["starts"], places, side="right") - 1
    return labels


SIDE = 64
"""Rows of a part: what a block of threads takes at a time."""


class Parts(NamedTuple):
    """Parts of lists, each of rows of one list.

    Attributes
    ----------
    begins, ends : array (parts,), int32
        Where each is in the array of all lists.
    lists : array (parts,), int32
        The list that it is of.
    first : array (lists + 1,), int32
        The first part of each list, and the number of all.
    """

    begins: Array
    ends: Array
    lists: Array
    first: Array


def cut(starts: Array, side: int = SIDE, xp: ArrayModule = np) -> Parts:
    """Cut lists, which begin and end at `starts` (lists + 1, int64), into parts of `side` rows at most."""
    first = xp.zeros(len(starts), xp.int64)
    first[1:] = xp.cumsum(-(-(starts[1:] - starts[:-1]) // side))
    parts = xp.arange(int(first[-1]), dtype=xp.int64)
    lists = xp.searchsorted(first, parts, side="right") - 1
    begins = starts[lists] + (parts - first[lists]) * side
    ends = xp.minimum(begins + side, starts[lists + 1])
    return Parts(*(some.astype(xp.int32) for some in (begins, ends, lists, first)))
