"""What finds spanning trees of chunks, and clusters of trees, for a library of arrays and data frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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


class Spanner(Protocol):
    """Finds minimum spanning trees of mutual reachability; chunks are indexed as by a `Searcher`.

    What it is given of rows lies where they do.
    """

    def tree_of(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...]) -> Edges:
        """The tree of the points of an index, by their names; see the CPU's."""

    def edges_between(self, sides: Sequence[Index], layout: SearchLayout, cores: Sequence[Array],
                      trees: Sequence[Edges]) -> Edges:  # fmt: skip
        """The edges between two indexes that are in the tree of both; `trees`: of each of them."""

    def merge(self, rows: int, *parts: Edges) -> Edges:
        """The forest of the edges of several forests, which are in order; `rows`: more than any name."""

    def condense(self, start: np.ndarray, end: np.ndarray, away: np.ndarray, least: int) -> Clusters:
        """The clusters of at least `least` rows of a tree of two rows or more.

        `start`, `end`: rows that edges join, those of the smallest distance, `away`, first.
        """
