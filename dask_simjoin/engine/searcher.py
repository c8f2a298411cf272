"""What searches chunks for nearest neighbours, for a library of arrays and data frames."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dask_simjoin.engine.methods import Method
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Array, Index


class Searcher(Protocol):
    """Searches chunks for the nearest neighbours of others' rows."""

    grain: int
    """Places at whose multiples the queries of a search can be cut."""

    def layout(self, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
               sample: np.ndarray, norm: Norm = 2, method: str | Method = ...,
               approximate: bool = ...) -> SearchLayout:  # fmt: skip
        """How to index chunks, from moments (d,) of all points and some of them; for `Joiner.build`.

        `method`: one of `NEAREST` that serves the library; `approximate`: whether it may miss neighbours.
        """

    def prepare(self) -> None:
        """Begin to compile what makes rows of neighbours, where that can be done beside searches."""

    def renamed(self, index: Index, names: Array | int) -> Index:
        """The index, its rows named by numbers (n,) int64, or by their places and a number more."""

    def fresh(self, rows: int, k: int) -> tuple[Array, Array]:
        """What is known of rows that met nothing: totals of the norm and names, (rows, k)."""

    def nearest(self, q: Index, d: Index, layout: SearchLayout, best_d2: Array, best_name: Array, *,
                same: bool, bound2: float = ...) -> None:  # fmt: skip
        """Improve what is known of the rows of `q` by those of `d`; see the CPU's."""

    def part(self, index: Index, start: int, stop: int) -> Index:
        """The places start ... stop-1 of an index, as queries: a start that is a multiple of `at_once`."""

    def at_once(self, k: int) -> int:
        """Queries of which so many neighbours are sought at a time where little memory is to be taken."""
