"""The metrics: what a distance is, and when two rows are a pair."""

from __future__ import annotations

from typing import Any

import numpy as np


class Euclidean:
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

    @staticmethod
    def threshold(eps: float) -> float:
        """What `d2` is compared with."""
        return eps * eps

    @staticmethod
    def box_gap(lower_a: Any, upper_a: Any, lower_b: Any, upper_b: Any) -> Any:
        """Lower bound of `d2` between points of two boxes; arrays (..., d), result (...).

        It is computed with the operations of `d2`, in their order.  Rounding is monotone
        and every gap is at most the points' difference, so this is at most their `d2` as
        computed: no slack is needed.
        """
        total: Any = 0.0
        with np.errstate(over="ignore"):
            for k in range(lower_a.shape[-1]):
                gap = np.maximum(lower_a[..., k] - upper_b[..., k], lower_b[..., k] - upper_a[..., k])
                gap = np.maximum(gap, 0.0)
                total = total + gap * gap
        return total


METRICS = {Euclidean.name: Euclidean}
