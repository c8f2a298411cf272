"""Tell of pairs the totals that decide them, so that distances can be made of them, and decided, later."""

from __future__ import annotations

import numpy as np

from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.types import Array, ArrayModule


class Totals(Metric):
    """Another metric, whose distances are its totals."""

    def __init__(self, inner: Metric) -> None:
        super().__init__(inner.norm)
        self.inner = inner
        self.__dict__.update(
            name=inner.name, embeds=inner.embeds, columns=inner.columns, limits=inner.limits,
            axes=inner.axes, unit=inner.unit, directed=inner.directed,
        )  # fmt: skip

    def dims(self, columns: int) -> int:
        return self.inner.dims(columns)

    def embed(self, x: Array, xp: ArrayModule) -> Array:
        return self.inner.embed(x, xp)

    def threshold(self, eps: Array, xp: ArrayModule = np) -> Array:
        return self.inner.threshold(eps, xp)
