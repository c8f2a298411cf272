"""Spatial regions: boxes that tile space, with about equally many points each.

A kd tree cuts a sample of the points at weighted medians.  Its leaves are the regions; every point
belongs to exactly one region.  To find all pairs, each region also needs its halo: points of other regions
within reach of its box.  A point is only sent to regions with lower numbers than its own region.  So every
pair between two regions is found once, in the region with the lower number.
"""

from __future__ import annotations

import functools
import heapq
from dataclasses import dataclass

import numpy as np

LEAST_WIDTH = 2.0
"""A narrower region is not cut, because most points would be needed by both parts; in multiples of reach."""

LEAST_SAMPLE = 8
"""A region with fewer sampled points is not cut, because their median would be arbitrary."""


@dataclass(frozen=True, eq=False)
class Regions:
    """The kd tree whose leaves are the regions.

    Attributes
    ----------
    dim : array (nodes,), int64
        The dimension that each node cuts.
    split : array (nodes,), float64
        Points below it lie in the left child, others in the right one.
    child : array (nodes, 2), int64
        Left and right child of each node: a node, or ``-1 - leaf``.
    middle : array (nodes,), int64
        The first leaf of each node's right child.
    lower, upper : array (leaves, d), float64
        The leaves' boxes.  Leaves are numbered from left to right.
    """

    dim: np.ndarray
    split: np.ndarray
    child: np.ndarray
    middle: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def __len__(self) -> int:
        return len(self.lower)

    @functools.cached_property
    def depth(self) -> int:
        """Levels of the tree."""
        level, deepest = {0: 1}, 0
        for node, children in enumerate(self.child.tolist()):  # parents come before children
            deepest = max(deepest, level[node])
            level |= {child: level[node] + 1 for child in children if child >= 0}
        return deepest

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays of the tree."""
        return self.dim, self.split, self.child, self.middle, self.lower, self.upper

    @functools.cached_property
    def walls(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The dimensions that are cut, and the lower and upper wall of each leaf in these, (leaves, cut).

        Walls without leaves beyond them are infinite.
        """
        cut = np.unique(self.dim)
        lower, upper = self.lower[:, cut], self.upper[:, cut]
        low = np.where(lower >= upper.min(axis=0), lower, -np.inf)  # a leaf ends at or before this wall
        high = np.where(upper <= lower.max(axis=0), upper, np.inf)
        # contiguous: kernels are compiled for one memory order
        return cut, np.ascontiguousarray(low), np.ascontiguousarray(high)


def make_regions(x: np.ndarray, weight: np.ndarray, lower: np.ndarray, upper: np.ndarray, reach: float,
                 max_points: float, max_regions: int) -> Regions:  # fmt: skip
    """Cut the box [lower, upper] into regions.

    Parameters
    ----------
    x : array (m, d), float64
        A sample of the points.
    weight : array (m,)
        Number of points that each point of the sample stands for.
    lower, upper : array (d,)
        The box of all points.
    reach : float
        Largest difference of one coordinate that a pair can have.
    max_points : float
        Regions with more points are cut.
    max_regions : int
        Maximum number of regions.
    """
    cuts: dict[int, tuple[int, float]] = {}
    places = {1: np.arange(len(x))}  # leaf -> its sampled points; children of node n are 2n and 2n + 1
    queue = [(-float(weight.sum()), 1)]
    while queue and len(places) < max_regions:
        size, node = heapq.heappop(queue)
        cut = _cut(x, weight, places[node], reach) if -size > max_points else None
        if cut is None:
            continue
        cuts[node] = cut
        inside = places.pop(node)
        left = x[inside, cut[0]] < cut[1]
        for part, child in ((inside[left], 2 * node), (inside[~left], 2 * node + 1)):
            places[child] = part
            heapq.heappush(queue, (-float(weight[part].sum()), child))
    return _number(cuts, lower, upper)


def _cut(x: np.ndarray, weight: np.ndarray, places: np.ndarray, reach: float) -> tuple[int, float] | None:
    """Return the dimension of these points' largest extent, and their weighted median there."""
    if len(places) < LEAST_SAMPLE:
        return None
    some = x[places]
    ordered, tenth = np.sort(some, axis=0), len(places) // 10
    with np.errstate(over="ignore"):
        spread = ordered[-1 - tenth] - ordered[tenth]  # outliers do not widen the spread
        width = ordered[-1] - ordered[0]
    for k in np.lexsort((-width, -spread)).tolist():
        if not width[k] > LEAST_WIDTH * reach:
            continue
        column = some[:, k]
        order = np.argsort(column, kind="stable")
        at = np.searchsorted(np.cumsum(weight[places][order]), weight[places].sum() / 2)
        value = column[order[min(int(at), len(order) - 1)]]
        if value == column[order[0]]:  # the left part would be empty
            value = column[column > value].min()
        return int(k), float(value)
    return None


def _number(cuts: dict[int, tuple[int, float]], lower: np.ndarray, upper: np.ndarray) -> Regions:
    """Return the tree as arrays, with its leaves numbered from left to right."""
    dim: list[int] = []
    split: list[float] = []
    child: list[tuple[int, int]] = []
    middle: list[int] = []
    boxes: list[tuple[np.ndarray, np.ndarray]] = []

    def visit(node: int, low: np.ndarray, high: np.ndarray) -> int:
        if node not in cuts:
            boxes.append((low, high))
            return -len(boxes)
        k, value = cuts[node]
        number = len(dim)
        dim.append(k)
        split.append(value)
        child.append((0, 0))
        middle.append(0)
        middle_high, middle_low = high.copy(), low.copy()
        middle_high[k] = middle_low[k] = value
        left = visit(2 * node, low, middle_high)
        middle[number] = len(boxes)
        child[number] = left, visit(2 * node + 1, middle_low, high)
        return number

    visit(1, np.array(lower, np.float64), np.array(upper, np.float64))
    return Regions(
        np.array(dim, np.int64),
        np.array(split, np.float64),
        np.array(child, np.int64).reshape(-1, 2),
        np.array(middle, np.int64),
        np.array([low for low, _ in boxes]),
        np.array([high for _, high in boxes]),
    )
