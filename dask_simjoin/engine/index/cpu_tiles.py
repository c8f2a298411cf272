"""How chunks are indexed for the CPU's tiles: all chunks of one join alike, so that any two can meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.engine.filters.float32 import Filter, make_filter, within
from dask_simjoin.engine.filters.int8 import Int8Filter, make_int8_filter
from dask_simjoin.engine.filters.rounded import RoundedFilter, make_rounded_filter
from dask_simjoin.engine.index.kdorder import Cuts, dims_to_cut
from dask_simjoin.engine.index.screen import Drawn, Screen, make_screen
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Index

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
    cut: Cuts
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
