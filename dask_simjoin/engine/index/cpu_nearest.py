"""How chunks are indexed for nearest neighbours: all chunks of one search alike, so that any two can meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.filters.float32 import Filter, open_filter
from dask_simjoin.engine.index.kdorder import Cuts, dims_to_cut
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Array, ArrayModule

FILTER_DIMS = 7.5
"""Fewest dimensions, narrow ones counted as parts, in which the filter is faster than float64."""

CUTS = 2.5
"""Times that each dimension is cut in two before the next one is."""

WIDE_FAN_OUT_DIMS = 3
"""Dimensions to cut up to which blocks are cut into four parts a level: half of the sorts, boxes as good."""

SAMPLE = 512
"""Points from whose distances it is told whether float32 can tell neighbours apart."""

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
    cut: Cuts
    filter: Filter | None
    norm: Norm = 2

    def fan_out(self, cut: Cuts) -> int:
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
    """Whether the filter's blur is small against the distances of a sample's neighbours."""
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
