"""The tile index: points in kd order, 64 per tile, under a tree of boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.engine.filters.bounds import RoundedFilter, make_rounded_filter
from dask_simjoin.engine.filters.float32 import Filter, make_filter, open_filter, within
from dask_simjoin.engine.filters.int8 import Int8Filter, make_int8_filter
from dask_simjoin.engine.index.kdorder import KdCuts, dims_to_cut
from dask_simjoin.engine.index.screen import Drawn, Screen, make_screen
from dask_simjoin.metrics.norms import Array, ArrayModule, DType, Index, Norm

TILE = 64
"""Points of a tile, boxes of a group: the bits of a mask."""

ALIGNED = "z", "start", "lower", "upper"
"""What of an index searches read as vectors."""


def aligned_empty(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Uninitialized NumPy array that begins on a cache line, so that vectors do not straddle two."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + size].view(dtype).reshape(shape)


def aligned(array: np.ndarray) -> np.ndarray:
    """`array`, or a copy that begins on a cache line (what was unpickled may not)."""
    if array.ctypes.data % 64 == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_index(index: Index) -> Index:
    """Let what searches read of an index as vectors begin on cache lines."""
    return index | {name: aligned(index[name]) for name in ALIGNED if name in index}


def box_tree(low: Array, high: Array, xp: ArrayModule = np) -> tuple[Array, Array, Array]:
    """The boxes in groups of 64, the groups' boxes in groups of 64, and so on up to one group.

    Parameters
    ----------
    low, high : array (boxes, d)
        Bounds of the boxes.

    Returns
    -------
    lower, upper : array (groups, d, 64)
        Bounds, level after level.  Places that are left over hold empty boxes.
    levels : array (levels + 1,), int64
        The group at which each level begins.
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
            return xp.concatenate(lower), xp.concatenate(upper), xp.array(levels, xp.int64)
        low, high = padded[0].min(axis=1), padded[1].max(axis=1)


CUTS = 2.5
"""Times that each dimension is cut in two before the next one is."""

FAN_OUT = 4
"""Parts into which blocks are cut a level: half of the sorts that cuts in two take, boxes as good."""


@dataclass(frozen=True)
class TilesLayout:
    """Constants of one join.

    Attributes
    ----------
    threshold : float
        Of the float64 decision.
    cut : Cuts
        The dimensions by which points are put in order.
    filter : Filter or None
        The float32 filter of squares; without it or the next one all is decided in float64.
    rounded : RoundedFilter or None
        The float32 filter of norms that do not multiply.
    quantized : Int8Filter or None
        The filter before it.
    norm : int or float
        Of the totals that the decision compares.
    screen : Screen or None
        The dimensions that are compared first, before all decide; None: all are.
    """

    threshold: float
    cut: KdCuts
    filter: Filter | None = None
    rounded: RoundedFilter | None = None
    quantized: Int8Filter | None = None
    norm: Norm = 2
    screen: Screen | None = None

    def box_reach(self, q: Index, d: Index) -> float | np.float32:
        """Largest total of the gaps of two boxes that hold a pair, of the kind that boxes are of."""
        if self.filter is None:
            return self.threshold if self.rounded is None else self.rounded.reach
        return self.filter.box_reach(max(q["norm"], d["norm"]))

    def box_sure(self, q: Index, d: Index) -> float | np.float32:
        """Largest total of what two boxes span together that hold nothing but pairs; less than 0: none.

        In float64 no total is larger than that of the spans as computed.  Where other dimensions add to it,
        there must be room for them, and for the rounding of d squares and sums: 2**-52 for each of both.
        """
        rest = 0.0 if self.screen is None else self.screen.rest
        if self.filter is not None:
            return self.filter.box_sure(max(q["norm"], d["norm"]), rest)
        if self.screen is None:
            return self.threshold if self.rounded is None else self.rounded.sure
        dims = q["y"].shape[1]
        left = self.threshold * (1 - (dims + 16) * 2.0**-50) - rest * (1 + 2.0**-40) - dims * 2.0**-1070
        return left if left > 0 else -1.0

    @property
    def kind(self) -> type[np.float32] | type[np.float64]:
        """What tiles and boxes are made of."""
        return np.float64 if self.filter is None and self.rounded is None else np.float32

    @property
    def sure(self) -> float:
        """What the float32 filter's sums must reach to be a pair's, besides what depends on the points.

        Their halves of squared distances, scaled, must leave room for what other dimensions add.
        """
        assert self.filter is not None
        rest = 0.0 if self.screen is None else self.screen.rest * self.filter.scale * self.filter.scale
        return self.filter.sure + rest / 2 * (1 + 2.0**-20)

    def narrowed(self, threshold: float) -> TilesLayout | None:
        """Return the layout of a smaller threshold; its indexes are this one's but for limits of filters.

        None: no filter serves it.
        """
        if self.rounded is not None:
            fewer = self.rounded.within(threshold)
            return None if fewer is None else replace(self, threshold=threshold, rounded=fewer)
        if self.filter is None:
            return replace(self, threshold=threshold)
        chosen = within(self.filter, threshold)
        return None if chosen is None else replace(self, threshold=threshold, filter=chosen, quantized=None)

    @property
    def method(self) -> str:
        """The method's name."""
        return "tiles"

    @property
    def grain(self) -> int:
        """Points at whose multiples queries can be cut."""
        return TILE

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        return f"tiles, in order of {names(self.cut.dims)}"


def make_tiles_layout(lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
                      threshold: float, norm: Norm = 2,
                      drawn: Drawn | None = None) -> TilesLayout:  # fmt: skip
    """Choose how to index all chunks.  The results do not depend on it, the speed does.

    Parameters
    ----------
    lower, upper, mean, variance : array (d,), float64
        Of all points.
    threshold : float
        Of the float64 decision.
    norm : int or float
        Of the totals that it compares; filters serve 1, 2 and infinity.
    drawn : Drawn, optional
        Some points, from which it is told whether all dimensions must be compared at once.
    """
    screen = make_screen(lower, upper, variance, threshold, drawn) if norm == 2 else None
    some = slice(None) if screen is None else list(screen.dims)
    chosen = (
        make_filter(lower[some], upper[some], mean[some], variance[some], threshold) if norm == 2 else None
    )
    all_filtered = chosen is not None and screen is None
    return TilesLayout(
        threshold,
        dims_to_cut(variance, None if drawn is None else drawn.points),
        filter=chosen,
        rounded=make_rounded_filter(lower, upper, mean, threshold, norm),
        quantized=make_int8_filter(lower, upper, mean, variance, threshold) if all_filtered else None,
        norm=norm,
        screen=screen,
    )


FILTER_DIMS = 7.5
"""Fewest dimensions, narrow ones counted as parts, in which the filter is faster than float64."""


WIDE_FAN_OUT_DIMS = 3
"""Dimensions to cut up to which blocks are cut into four parts a level: half of the sorts, boxes as good."""

SAMPLE = 512
"""Points from whose distances it is told whether float32 can tell neighbors apart."""

CLEAR = 64.0
"""How many times the filter's blur the typical distance must be."""

MAX_EXPONENT = 200
"""Of the filter's scale: its square must be a number, and 2**-900 times that too."""

NO_NAME = np.iinfo(np.int64).max
"""What places that are left over have as the smallest name."""


@dataclass(frozen=True)
class NearestLayout:
    """Constants of one search.

    Attributes
    ----------
    dims : int
    cut : Cuts
        The dimensions by which points are put in order.
    filter : Filter or None
        The float32 filter, or None where all is computed in float64.  Its `eps2` is 0: each query
        has a distance of its own, which shrinks.
    norm : int or float
        Of what is computed.
    """

    dims: int
    cut: KdCuts
    filter: Filter | None
    norm: Norm = 2

    def fan_out(self, cut: KdCuts) -> int:
        """Into how many parts blocks are cut at a time, along these dimensions."""
        return 4 if len(cut.dims) <= WIDE_FAN_OUT_DIMS else 2

    @property
    def method(self) -> str:
        """The method's name."""
        return "tiles"

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        return f"tiles, in order of {names(self.cut.dims)}"


def make_nearest_layout(
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    sample: np.ndarray | None = None,
    norm: Norm = 2,
) -> NearestLayout:
    """Choose how to index all chunks.  The results do not depend on it, the speed does.

    Parameters
    ----------
    lower, upper : array (d,), float64
        A box that holds all points, of queries and of data.
    mean, variance : array (d,), float64
        Of all points, about.
    sample : array (m, d), optional
        Some points, from which it is told whether the filter pays; without them it is assumed to.
    norm : int or float
        Whose totals say what is near.
    """
    dims = len(lower)
    chosen = open_filter(lower, upper, mean) if wide_dims(variance) >= FILTER_DIMS and norm == 2 else None
    if chosen is not None and not 2.0**-MAX_EXPONENT <= chosen.scale <= 2.0**MAX_EXPONENT:
        chosen = None
    if chosen is not None and sample is not None and not _tells_apart(chosen, sample):
        chosen = None
    return NearestLayout(dims, dims_to_cut(variance, sample), chosen, norm)


def wide_dims(variance: np.ndarray) -> float:
    """How many dimensions there are, where a narrow one counts as little as it adds to distances.

    Squares of sums over sums of squares: of equal widths their number.
    """
    most = float(variance.max(initial=0.0))
    if not 0 < most < np.inf:
        return float(len(variance))
    share = variance / most
    return float(share.sum() ** 2 / (share**2).sum())


def _tells_apart(f: Filter, sample: np.ndarray) -> bool:
    """Whether the filter's blur is small against the distances of a sample's neighbors."""
    some = sample[:: -(-len(sample) // SAMPLE) or 1]
    if len(some) < 2:
        return True
    z = (some.astype(np.float64) - np.array(f.centre)) * f.scale
    norm = np.einsum("ik,ik->i", z, z)
    nearest = norm[:, None] + norm[None, :] - 2 * (z @ z.T)
    np.fill_diagonal(nearest, np.inf)
    return bool(np.median(nearest.min(axis=1)) >= CLEAR * f.kappa * np.median(norm))


def smallest_names(names: Array, levels: Array, xp: ArrayModule = np) -> Array:
    """The smallest name below each box of a `box_tree`.

    Parameters
    ----------
    names : array (n,), int64
        In the order of the points.
    levels : array (levels + 1,), int64
        As `box_tree` gives it.

    Returns
    -------
    array (groups, 64), int64
        In the places of the boxes.
    """
    below, found = names, []
    for _ in range(len(levels)):
        full = xp.full(-(-len(below) // TILE) * TILE, NO_NAME, xp.int64)
        full[: len(below)] = below
        found.append(full.reshape(-1, TILE))
        below = found[-1].min(axis=1)
    return xp.concatenate(found[1:])
