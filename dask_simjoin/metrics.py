"""The metrics: what a distance is, and when two rows are a pair.

Every metric is a norm of differences (see `dask_simjoin.norms`) of its columns or of what they are embedded
as.  Two rows are a pair if their total is at most a threshold that follows from `eps`; a distance that is
returned is a function of the total.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dask_simjoin.norms import Norm


@dataclass(frozen=True)
class Metric:
    """See the module's text.

    Attributes
    ----------
    norm : int or float
        Of the differences: 1, 2, 3, ... or infinity.
    """

    norm: Norm = 2

    name = ""
    embeds = False
    """Whether coordinates are others than the columns."""

    def dims(self, columns: int) -> int:
        """Dimensions of the space in which so many columns are joined."""
        return columns

    def embed(self, x: Any, xp: Any) -> Any:
        """Coordinates (n, dims) of columns (n, columns), float64; NaN stays in its row."""
        return x

    def threshold(self, eps: float) -> float:
        """What totals are compared with."""
        raise NotImplementedError

    def distance(self, total: Any, xp: Any) -> Any:
        """Distances of totals (n,) float64, whose memory may be used for them."""
        raise NotImplementedError


class Euclidean(Metric):
    """Straight-line distance.

    Two rows p, q are a pair if ``d2 <= eps*eps``, both sides float64, where
    ``d2 = ((p0-q0)**2 + (p1-q1)**2) + ...``: every difference, square and sum rounded to
    float64, no fused multiply-add, summed in the order of `on`.  A distance that is
    returned is ``sqrt(d2)``.

    The threshold is the rounded product: ``sqrt(3)*sqrt(3) < 3``, so ``eps=sqrt(3)`` leaves
    out lattice points at squared distance 3.  Squares of differences below about 1e-162
    vanish, as they do in SciPy and scikit-learn.
    """

    name = "euclidean"

    def threshold(self, eps: float) -> float:
        return eps * eps

    def distance(self, total: Any, xp: Any) -> Any:
        return xp.sqrt(total, out=total)


class SquaredEuclidean(Metric):
    """The square of the straight-line distance: pairs have ``d2 <= eps``, and `d2` is the distance."""

    name = "sqeuclidean"

    def threshold(self, eps: float) -> float:
        return eps

    def distance(self, total: Any, xp: Any) -> Any:
        return total


METRICS = {kind.name: kind for kind in (Euclidean, SquaredEuclidean)}


def make_metric(name: str, p: Norm = 2) -> Metric:
    """The metric of a name; `p` is Minkowski's."""
    return METRICS[name]()
