"""What a module of a method must offer on the GPU."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.protocols import Layout, Rows
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Array, Index


@dataclass(frozen=True)
class Found:
    """Pairs of places in two indexes.

    Attributes
    ----------
    places : array (pairs, 2), int32
        Valid until the next batch is asked for.
    decided, refused : int
        So far: how many pairs only float64 could tell, and how many of them it refused.
    left : int
        About how many pairs the batches after this one have; 0 if it is the last.
    """

    places: Array
    decided: int
    refused: int
    left: int = 0


class Sink(enum.IntEnum):
    """What kernels do with pairs besides writing or counting them: see `components.cuh`."""

    LINK = 1
    LOWEST = 2


class GpuLayout(Layout, Protocol):
    """How all chunks of one join are indexed on GPUs."""

    @property
    def dims(self) -> int:
        """Dimensions of points."""


class GpuMethod(Protocol):
    """The functions of such a module.

    An index has "order" (n, int32): the positions of its points, in the order of its places; and "y" (n, d,
    float64): the points, in that order.
    """

    def layout(self, options: Any, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
               variance: np.ndarray, threshold: float, norm: Norm,
               drawn: Drawn | None = None) -> GpuLayout:  # fmt: skip
        """Choose how to index all chunks, from moments (d,) of all points and the decision.

        `options`: the method as an object, of the class that `METHODS` has; `drawn`: some points, on the
        host.
        """

    def build(self, x: Array, layout: GpuLayout) -> Index:
        """Index the points (n, d) of a chunk."""

    def batches(self, q: Index, d: Index, layout: GpuLayout, *, same: bool, rows: Rows | None = None,
                most: int | None = None) -> Iterator[Found]:  # fmt: skip
        """Find all pairs of two indexes, or of one with itself (`same`: each once), as places in them.

        `rows`: only the pairs that the queries at these places meet: a start that is a multiple of the
        layout's grain, and a stop that is one or the end.  `most`: pairs of a batch.
        """

    def count(self, q: Index, d: Index, layout: GpuLayout, *, same: bool, both: bool = True,
              rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """Count pairs of each place of the queries, and (`both`) of each place of the other side.

        `rows`: only the pairs that `batches` gives for them.
        """

    def pass_to(self, sink: Sink, q: Index, d: Index, layout: GpuLayout, arguments: Sequence[Array | int], *,
                same: bool, nodes_64: bool = False, rows: Rows | None = None) -> None:  # fmt: skip
        """Show all pairs, or those of `rows`, to a sink, with the arguments that it says."""
