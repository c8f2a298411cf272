"""What a module of a method must offer on the CPU."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from dask_simjoin.engine.cpu.methods.sinks import Sink
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Index


class CpuMethod(Protocol):
    """The functions of such a module.

    An index has "order" (n + lanes, int32): the positions of its points, in the order of its places.
    """

    writes_names: bool
    """Whether names may be int64, as the sink's arrays then are, and totals are written where it has room."""

    def layout(self, options: Any, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
               variance: np.ndarray, threshold: float, norm: Norm,
               drawn: Drawn | None = None) -> Layout:  # fmt: skip
        """Choose how to index all chunks, from moments (d,) of all points, the decision and some points.

        `options`: the method as an object, of the class that `METHODS` has.
        """

    def build(self, x: np.ndarray, layout: Layout) -> Index:
        """Index the points (n, d) of a chunk."""

    def part(self, index: Index, start: int, stop: int) -> Index:
        """Return the index of the points at places start ... stop-1, with their positions in the whole."""

    def points(self, index: Index) -> np.ndarray:
        """Return the coordinates (n or more, d) of an index's points, by place."""

    def pairs(self, q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
              sink: Sink, turn: bool) -> tuple[int, int]:  # fmt: skip
        """Write all pairs, by these names of the places of both sides, to a sink.

        `turn`: the row of the smaller position is the left one, if the method tells by it.
        Returns how many pairs only float64 could tell, and how many of them it refused.
        """

    def counts(self, q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
               d_counts: np.ndarray) -> None:  # fmt: skip
        """Add up the pairs of each place of both sides; of `same` in one array, or the first side's only."""
