"""Keep rows of unlike groups apart, by one more coordinate that leaves totals of equal groups as they are."""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import reach
from dask_simjoin.metrics.types import Array, ArrayModule


class Grouped(Metric):
    """Distance of another metric, of rows whose last column says which group they are of.

    That column becomes the last coordinate.  Between rows of one group it differs by 0, and a total to which
    0 is added (or of which the maximum with 0 is taken) last is that total, to the last bit.  Between groups
    it differs by `separation` at least, which makes the total larger than the threshold.
    """

    def __init__(self, inner: Metric) -> None:
        super().__init__(inner.norm)
        self.inner = inner
        self.__dict__.update(
            name=inner.name, embeds=inner.embeds, columns=inner.columns, limits=inner.limits,
            axes=(*inner.axes, "group") if inner.axes else (), unit=inner.unit, directed=inner.directed,
        )  # fmt: skip

    def dims(self, columns: int) -> int:
        return self.inner.dims(columns - 1) + 1

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        if not self.embeds:
            return x
        points = self.inner.embed(x[:, :-1], xp)
        out = xp.empty((len(x), points.shape[1] + 1), order="F")
        out[:, :-1], out[:, -1] = points, x[:, -1]
        return out

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return self.inner.threshold(eps, xp)

    def distance(self, total: Array, xp: ArrayModule) -> Array:
        return self.inner.distance(total, xp)


def separation(metric: Metric, eps: float) -> float:
    """Choose how far groups lie apart: a power of two that exceeds each difference of a pair.

    Whole numbers times a power of two are float64 numbers, and so are their differences: no rounding brings
    groups nearer.  Infinity: there is no such number.
    """
    with np.errstate(over="ignore"):
        threshold = float(metric.threshold(eps))
    if not math.isfinite(threshold):
        return math.inf
    most = reach(metric.norm, threshold)
    # the power must not vanish: 2**-400 squared is a number, and 1 is to all powers
    return 1.0 if most < 0.5 else 2.0 ** (math.frexp(most)[1] + 1)
