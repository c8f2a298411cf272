"""What a module of a method must offer on the CPU."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from dask_simjoin.engine.cpu.methods.sinks import Sink
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.profile import Numbers
from dask_simjoin.engine.protocols import Layout, Rows
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Index

Sides = tuple[np.ndarray, np.ndarray]
"""An array of each side, by place: one, where both are one index."""


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

    def build(self, x: np.ndarray, layout: Layout, threads: int = 1) -> Index:
        """Index the points (n, d) of a chunk; `threads`: that may share the work."""

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
               d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
        """Add up the pairs of each place of both sides; of `same` in one array, or the first side's only.

        From `enough` on they need not be right.
        """

    def tell(self, index: Index, layout: Layout) -> Numbers:
        """Count what a join of an index with itself does, or looks at, for its profile."""

    def work(self, q: Index, d: Index, layout: Layout, same: bool) -> np.ndarray:
        """Estimate how much work equal parts of the first side's places give: see `Joiner.work`."""

    def end(self, index: Index, stop: int, layout: Layout) -> int:
        """Return the place after the last one that those before `stop` may be near to."""


@runtime_checkable
class OneSided(Protocol):
    """The function of one that counts the pairs of one side as fast as those of both at once."""

    def one_sided(self, q: Index, d: Index, layout: Layout, q_counts: np.ndarray,
                  rows: Rows | None = None, *, later: bool = False) -> None:  # fmt: skip
        """Add up the points of `d` near each place of `q`, itself included where it is in both.

        `rows`: of those places only.  `later`: both are one index, and only points at later places count.
        """


@runtime_checkable
class Tallying(Protocol):
    """The functions of one that may count pairs within several limits without keeping any."""

    def tallies(self, q: Index, d: Index, layout: Layout, limits: np.ndarray) -> bool:
        """Tell whether it does so, and takes less time."""

    def tally(self, q: Index, d: Index, layout: Layout, limits: np.ndarray, same: bool, by_row: bool,
              q_found: np.ndarray, d_found: np.ndarray) -> None:  # fmt: skip
        """Add up the pairs within each of some ascending limits: see `Joiner.tally`.

        `by_row`: of each place (places, limits) of both sides, which are one array if `same`; else of all
        pairs in the first array (1, limits).
        """


@runtime_checkable
class Choosing(Protocol):
    """The function of one whose `connect` and `lowest` copy the points that meet, and no others."""

    def loose_part(self, index: Index, start: int, stop: int) -> Index:
        """Do as `part` does, but copy nothing: only those two take it."""


@runtime_checkable
class ManyAtOnce(Protocol):
    """The functions of one that need not find each pair to tell what pairs connect: else `one_by_one` does.

    Arrays of both sides are by place, and one where both are one index.
    """

    def connect(self, q: Index, d: Index, layout: Layout, same: bool, nodes: Sides,
                parent: np.ndarray) -> None:  # fmt: skip
        """Join the sets of both ends of pairs in a forest of nodes: see `Joiner.connect`.

        `nodes`: int64, of each place, or -1 if it takes no part.
        """

    def lowest(self, q: Index, d: Index, layout: Layout, same: bool, labels: Sides, low: Sides) -> None:
        """Lower what places without a label (-1) have in `low` to their neighbours' labels; all int64."""
