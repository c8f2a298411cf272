"""The tile index: points in kd order, 64 per tile, under a tree of boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.engine.filters.bounds import RoundedFilter, make_rounded_filter
from dask_simjoin.engine.filters.quantization import (
    Filter,
    Int8Filter,
    make_filter,
    make_int8_filter,
    open_filter,
    within,
)
from dask_simjoin.engine.index.kdtree import KdCuts, dims_to_cut
from dask_simjoin.engine.index.screen import JoinSample, Screen, make_screen
from dask_simjoin.metrics.norms import Array, ArrayModule, DType, Index, Norm

TILE = 64
"""Points per tile, and boxes per group. A 64-bit mask has one bit for each of them."""

ALIGNED = "z", "start", "tiles", "first", "lower", "upper"
"""Arrays of an index that kernels load as vectors, so they should start on a cache
line.
"""


def aligned_empty(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Return an uninitialized array that starts on a cache line, so that vector loads
    do not cross lines.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + size].view(dtype).reshape(shape)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return `array` if it starts on a cache line, else a copy that starts on one."""
    if array.ctypes.data % 64 == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_index(index: Index) -> Index:
    """Copy arrays in `ALIGNED` that do not start on a cache line. Only unpickled arrays
    need this.
    """
    return index | {name: aligned(index[name]) for name in ALIGNED if name in index}


def box_tree(
    low: Array, high: Array, xp: ArrayModule = np
) -> tuple[Array, Array, Array]:
    """Return a tree of boxes: groups of 64 boxes, groups of 64 groups, and so on up to
    one group.

    `low`, `high`: bounds of the boxes (boxes, d), the lowest level. The result has
    three arrays: lower and upper bounds (groups, d, 64), and the first group of each
    level (levels + 1,), int64. Incomplete groups are filled with empty boxes.
    """
    lower, upper, levels = [], [], [0]
    while True:
        boxes, d = low.shape
        groups = -(-boxes // TILE)
        padded = []
        for bounds, empty in ((low, xp.inf), (high, -xp.inf)):
            full = xp.full((groups * TILE, d), empty, low.dtype)
            full[:boxes] = bounds
            padded.append(full.reshape(groups, TILE, d))
        lower.append(xp.ascontiguousarray(padded[0].transpose(0, 2, 1)))
        upper.append(xp.ascontiguousarray(padded[1].transpose(0, 2, 1)))
        levels.append(levels[-1] + groups)
        if groups == 1:
            return (
                xp.concatenate(lower),
                xp.concatenate(upper),
                xp.array(levels, xp.int64),
            )
        low, high = padded[0].min(axis=1), padded[1].max(axis=1)


CUTS = 2.5
"""The kd order halves a dimension about this many times before it cuts the next
dimension.
"""

FAN_OUT = 4
"""A cut divides a block into this many parts.

Compared to two parts, four need half as many sorts, and boxes are as small.
"""


@dataclass(frozen=True)
class TilesLayout:
    """Index settings of one join with tiles, the same for all chunks."""

    threshold: float  # threshold of the float64 decision
    cut: KdCuts  # dimensions whose cuts give the kd order
    # the float32 filter for norm 2; without `filter` and `rounded`, float64 decides all
    # candidates
    filter: Filter | None = None
    rounded: RoundedFilter | None = None  # the float32 filter for norms 1 and infinity
    # the 8-bit filter, which runs before the float32 filter
    quantized: Int8Filter | None = None
    norm: Norm = 2  # norm of the distances
    # a few dimensions to compare first; the others are compared only for pairs that are
    # still open. None: all dimensions are compared at once
    screen: Screen | None = None

    def box_reach(self, q: Index, d: Index) -> float | np.float32:
        """Return a limit, in the boxes' dtype: if the gaps of two boxes have a larger
        total, the boxes hold no pair.
        """
        if self.filter is None:
            return self.threshold if self.rounded is None else self.rounded.reach
        return self.filter.box_reach(max(q["norm"], d["norm"]))

    def box_sure(self, q: Index, d: Index) -> float | np.float32:
        """Return a limit: if the total of two boxes' spans is at most this, all their
        points are pairs.

        Return -1 if no total proves this.

        In float64, no computed total of two points exceeds the computed total of the
        spans. With a screen, the limit is lower: the margin covers the dimensions
        without boxes, and the rounding of d squares and sums, 2**-52 each.
        """
        rest = 0.0 if self.screen is None else self.screen.rest
        if self.filter is not None:
            return self.filter.box_sure(max(q["norm"], d["norm"]), rest)
        if self.screen is None:
            return self.threshold if self.rounded is None else self.rounded.sure
        dims = q["y"].shape[1]
        left = (
            self.threshold * (1 - (dims + 16) * 2.0**-50)
            - rest * (1 + 2.0**-40)
            - dims * 2.0**-1070
        )
        return left if left > 0 else -1.0

    @property
    def kind(self) -> type[np.float32] | type[np.float64]:
        """Dtype of tiles and boxes."""
        return (
            np.float64 if self.filter is None and self.rounded is None else np.float32
        )

    @property
    def sure(self) -> float:
        """The part of the float32 filter's limit for sure pairs that is the same for
        all points.

        With a screen, it also covers the dimensions that are not compared. The filter's
        sums are halves of scaled squared distances, so half of `rest` is added.
        """
        assert self.filter is not None
        rest = (
            0.0
            if self.screen is None
            else self.screen.rest * self.filter.scale * self.filter.scale
        )
        return self.filter.sure + rest / 2 * (1 + 2.0**-20)

    def narrowed(self, threshold: float) -> TilesLayout | None:
        """Return the layout for a smaller threshold; None if the threshold is too small
        for the filter.

        Indexes can be reused with it, because only the limits of the filter change.
        """
        if self.rounded is not None:
            fewer = self.rounded.within(threshold)
            return (
                None
                if fewer is None
                else replace(self, threshold=threshold, rounded=fewer)
            )
        if self.filter is None:
            return replace(self, threshold=threshold)
        chosen = within(self.filter, threshold)
        return (
            None
            if chosen is None
            else replace(self, threshold=threshold, filter=chosen, quantized=None)
        )

    @property
    def method(self) -> str:
        return "tiles"

    @property
    def grain(self) -> int:
        return TILE

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return f"tiles, in order of {names(self.cut.dims)}"


def make_tiles_layout(
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm = 2,
    sample: JoinSample | None = None,
) -> TilesLayout:
    """Choose the tile index of a join from moments (d,) of all points. The choice
    affects only speed.

    `sample`: shows whether screening pays; without it, there is no screen.
    """
    screen = (
        make_screen(lower, upper, variance, threshold, sample) if norm == 2 else None
    )
    some = slice(None) if screen is None else list(screen.dims)
    chosen = (
        make_filter(lower[some], upper[some], mean[some], variance[some], threshold)
        if norm == 2
        else None
    )
    all_filtered = chosen is not None and screen is None
    return TilesLayout(
        threshold,
        dims_to_cut(variance, None if sample is None else sample.points),
        filter=chosen,
        rounded=make_rounded_filter(lower, upper, mean, threshold, norm),
        quantized=make_int8_filter(lower, upper, mean, variance, threshold)
        if all_filtered
        else None,
        norm=norm,
        screen=screen,
    )


SAMPLE = 512
"""Number of points that `_separates` samples."""

CLEAR = 64.0
"""Minimum ratio of a typical squared distance of nearest neighbors to the filter's
error.

With a smaller ratio, the filter is not used.
"""

NO_NAME = np.iinfo(np.int64).max
"""Stands for the smallest id of an empty box. It is larger than any id."""


@dataclass(frozen=True)
class NearestLayout:
    """Index settings of one nearest-neighbor search with tiles, the same for all
    chunks.
    """

    dims: int
    cut: KdCuts  # dimensions whose cuts give the kd order
    # the float32 filter. Its `eps2` is 0, because each query has its own limit, which
    # shrinks during the search. None: float64 computes all totals
    filter: Filter | None
    norm: Norm = 2  # norm of the distances

    def fan_out(self, cut: KdCuts) -> int:
        """Return the number of parts that a cut divides a block into."""
        # with few dimensions to cut, a cut makes four parts instead of two
        return 4 if len(cut.dims) <= 3 else 2

    @property
    def method(self) -> str:
        return "tiles"

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return f"tiles, in order of {names(self.cut.dims)}"


def make_nearest_layout(
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    sample: np.ndarray | None = None,
    norm: Norm = 2,
) -> NearestLayout:
    """Choose the tile index of a search from moments (d,) of queries and data. The
    choice affects only speed.

    The box [lower, upper] must hold all points; mean and variance may be approximate.
    `sample` (m, d): points that show whether the filter pays; None: assume that it
    does.
    """
    dims = len(lower)
    # in fewer effective dimensions, float64 alone is faster
    chosen = (
        open_filter(lower, upper, mean)
        if wide_dims(variance) >= 7.5 and norm == 2
        else None
    )
    # so that the scale's square times 2**-900 is a normal number
    if chosen is not None and not 2.0**-200 <= chosen.scale <= 2.0**200:
        chosen = None
    if chosen is not None and sample is not None and not _separates(chosen, sample):
        chosen = None
    return NearestLayout(dims, dims_to_cut(variance, sample), chosen, norm)


def wide_dims(variance: np.ndarray) -> float:
    """Return the effective number of dimensions: dimensions with a small variance count
    less.

    It is the squared sum of the variances, divided by the sum of their squares. For
    equal variances it is the number of dimensions.
    """
    most = float(variance.max(initial=0.0))
    if not 0 < most < np.inf:
        return float(len(variance))
    share = variance / most
    return float(share.sum() ** 2 / (share**2).sum())


def _separates(f: Filter, sample: np.ndarray) -> bool:
    """Return whether a filter's error is small compared to nearest-neighbor distances
    in a sample.
    """
    some = sample[:: -(-len(sample) // SAMPLE) or 1]
    if len(some) < 2:
        return True
    z = (some.astype(np.float64) - np.array(f.centre)) * f.scale
    norm = np.einsum("ik,ik->i", z, z)
    nearest = norm[:, None] + norm[None, :] - 2 * (z @ z.T)
    np.fill_diagonal(nearest, np.inf)
    return bool(np.median(nearest.min(axis=1)) >= CLEAR * f.kappa * np.median(norm))


def smallest_names(names: Array, levels: Array, xp: ArrayModule = np) -> Array:
    """Return the smallest id among the points of each box of a `box_tree`, as an array
    (groups, 64), int64.

    `names`: ids of the points in kd order (n,), int64. `levels`: the third result of
    `box_tree`.
    """
    below, found = names, []
    for _ in range(len(levels)):
        full = xp.full(-(-len(below) // TILE) * TILE, NO_NAME, xp.int64)
        full[: len(below)] = below
        found.append(full.reshape(-1, TILE))
        below = found[-1].min(axis=1)
    return xp.concatenate(found[1:])
