"""The knee of k-distances: a distance for `dbscan`, and how pronounced it is."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dask_simjoin.calls.tables import table_of
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.norms import Series

WEAK = 4.0
"""A knee with a smaller separation is weak. Halves of evenly spread values have the
separation 3.5, and halves of normally distributed values have 2.6.
"""


class Knee(NamedTuple):
    """The knee of k-distances.

    Attributes
    ----------
    eps : float
        The distance at the knee: the largest distance of a row that is probably in a
        cluster. NaN if no distance is finite.
    core_share : float
        The share of rows whose distance is at most `eps`. They are core rows of
        ``dbscan(eps, k + 1)``.
    separation : float
        Ashman's D of the distances on both sides of the knee. From 4 on, these are two
        groups: rows in clusters, and noise. It is 0 if there are no two distances.
    """

    eps: float
    core_share: float
    separation: float

    @property
    def weak(self) -> bool:
        """Whether the distances do not form two groups, so that `eps` is arbitrary."""
        return self.separation < WEAK

    def __str__(self) -> str:
        """Describe the knee, and what to do if it is weak."""
        found = f"separation {self.separation:.1f} (Ashman's D)"
        if self.weak:
            return (
                f"no clear knee: {found} is less than {WEAK:g}, so the distances do not "
                "form two groups. Choose the share of core rows, and use this quantile "
                "of the distances as eps. Or use hdbscan, which needs no eps."
            )
        return (
            f"knee at eps={self.eps:.6g}: {found}; "
            f"{self.core_share:.0%} of the rows are core rows"
        )


def k_distance_knee(distances: Series) -> Knee:
    """Find the distance that divides k-distances into two groups: near ones, of rows in
    clusters, and far ones, of noise.

    Its `separation` shows how pronounced the knee is. If it is `weak`, no distance
    suits the whole table.

    Parameters
    ----------
    distances : Series
        A result of `SimJoinAccessor.k_distances`; a lazy Series is computed.

    Returns
    -------
    Knee
        A tuple ``(eps, core_share, separation)``. It prints as a sentence.

    Notes
    -----
    The logarithms of distances are divided by the threshold of Otsu (1979), "A threshold
    selection method from gray-level histograms". The separation is the difference of
    both means, divided by the root mean square of both standard deviations. It is the D
    of Ashman, Bird & Zepf (1994), "Detecting bimodality in astronomical datasets".
    Distances of 0 count as core rows only. Infinite and missing distances do not count.

    Kneedle (Satopaa, Albrecht, Irwin & Raghavan 2011) measures how far a curve is below
    its chord. A few distant rows suffice for a large value, also without clusters.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask_simjoin.cluster import k_distance_knee
    >>> distances = pd.Series([0.9, 1.0, 1.0, 1.1, 8.0, 10.0])
    >>> knee = k_distance_knee(distances)
    >>> knee.eps, knee.weak
    (1.1, False)
    >>> print(knee)
    knee at eps=1.1: separation 23.5 (Ashman's D); 67% of the rows are core rows
    """
    away = np.asarray(to_host(table_of(distances).computed().values), np.float64)
    away = np.sort(away[np.isfinite(away)])
    positive = away[away > 0]
    if not len(positive) or positive[0] == positive[-1]:
        eps = float(away[-1]) if len(away) else math.nan
        return Knee(eps, float(len(away) > 0), 0.0)
    near = _near(np.log(positive))
    eps = float(positive[near - 1])
    share = float(np.searchsorted(away, eps, side="right")) / len(away)
    return Knee(eps, share, _separation(np.log(positive), near))


def _near(values: np.ndarray) -> int:
    """Return how many of some sorted values are in the lower class: see Otsu (1979).

    Equal values are in one class. The first and the last value must be different.
    """
    n, sums = len(values), np.cumsum(values)
    below = np.flatnonzero(values[1:] > values[:-1]) + 1
    low = sums[below - 1] / below
    high = (sums[-1] - sums[below - 1]) / (n - below)
    between = below * (n - below) * (high - low) ** 2
    return int(below[np.argmax(between)])


def _separation(values: np.ndarray, near: int) -> float:
    """Return Ashman's D of two classes of sorted values."""
    low, high = values[:near], values[near:]
    spread = math.sqrt((low.var() + high.var()) / 2)
    apart = float(high.mean() - low.mean())
    return apart / spread if spread else math.inf
