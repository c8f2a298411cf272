"""What finds spanning trees of chunks, and clusters of trees, for a library of arrays and data frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NotRequired, Protocol, TypedDict

import numpy as np

from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.types import Array, Index

Edges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Weights (n,) of edges, and the names of both ends, the smaller first: on the host, wherever chunks lie."""

Clusters = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of rows (n,) the cluster that each falls out of (int32), and at which 1 / distance (float64); and of
clusters, of which the first is that of all rows and others are numbered by their last merges, the last one
first, that which each splits from (int32), at which 1 / distance (float64), and their rows (int32): on the
host."""


ALONE = 64
"""A round is not shared if fewer rows ask, times the parts that there would be, than all rows by this: each
does less alone then than a hundredth of a part of a round in which all ask, and waits for nobody."""

Part = tuple[int, int]
"""The number of a part of the work, and of how many."""

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Weights (n,) of the edges that a part of a round's searches found, one of a component at most, and both
nodes: on the host, since they go to all who share the rounds."""


class Progress(TypedDict):
    """Hold what is known of a tree after some rounds, of each node of an index: a dict, so that it spills.

    Each worker that shares the rounds makes its own, which is the same.  See
    `dask_simjoin.engine.cpu.kernels.boruvka` for `least` and `to`.
    """

    component: Array
    sizes: Array
    """Rows of each component; there may be more than there are components."""
    least: Array
    to: Array
    beyond: Array
    """The last of `Nearest`."""
    found: list[tuple[Array, ...]]
    """The tree's edges, of each round: weights, and both nodes."""
    offered: NotRequired[tuple[Array, ...]]
    """Of components the best edges that nodes know before they search, where these are kept."""
    order: NotRequired[Array]
    """Nodes in the order in which GPUs search them, where that is not the index's."""


class Spanner(Protocol):
    """Finds minimum spanning trees of mutual reachability; chunks are indexed as by a `Searcher`.

    What it is given of rows lies where they do.
    """

    def prepare(self, layout: SearchLayout, *more: Callable[[], object]) -> None:
        """Begin to compile what trees and clusters take, where that can be done beside searches.

        `more`: what else is done with next to nothing so that it is compiled; the same function each time.
        """

    def tree_of(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
                progress: Progress | None = None) -> Edges:  # fmt: skip
        """The tree of the points of an index, by their names; see the CPU's.

        `progress`: of rounds that were shared by others before; None: there were none.
        """

    def begin(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
              parts: int) -> Progress:  # fmt: skip
        """Do all rounds before the first one that is worth being shared by so many."""

    def share(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
              progress: Progress, part: Part) -> Found:  # fmt: skip
        """Do one part of the searches of the next round: others do the other parts at the same time.

        The edges that it found are the same, whoever does it.  There is more than one component.
        """

    def join(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
             progress: Progress, parts: Sequence[Found]) -> Progress:  # fmt: skip
        """Finish that round by what was found in all parts, and do others that are not worth being shared.

        What was known before is left as it is.
        """

    def edges_between(self, sides: Sequence[Index], layout: SearchLayout, cores: Sequence[Array],
                      trees: Sequence[Edges]) -> Edges:  # fmt: skip
        """The edges between two indexes that are in the tree of both; `trees`: of each of them."""

    def merge(self, rows: int, *parts: Edges) -> Edges:
        """The forest of the edges of several forests, which are in order; `rows`: more than any name."""

    def condense(self, start: np.ndarray, end: np.ndarray, away: np.ndarray, least: int) -> Clusters:
        """The clusters of at least `least` rows of a tree of two rows or more.

        `start`, `end`: rows that edges join, those of the smallest distance, `away`, first.
        """
