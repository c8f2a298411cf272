"""How many of the nearest rows a search finds that may miss some."""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.engine.base import joiner_of_library, searcher_of_library
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.types import Array
from dask_simjoin.planning.statistics.moments import merge_moments, moments
from dask_simjoin.planning.statistics.recall import LEAST_MEASURED, MEASURED, Recall, ratio

PLANNED = 1_000
"""Rows whose neighbours a plan seeks in both ways; a profile does so of `MEASURED`."""

MOST = 1 << 24
"""Neighbours that are sought of them in all, at most, unless that leaves fewer rows than `FEWEST`."""

FEWEST = 100


def measured_neighbors(q: Array, d: Array, layout: SearchLayout, k: int, library: str,
                       max_total: float = math.inf, rows: int = MEASURED) -> Recall:  # fmt: skip
    """Seek the neighbours of some rows of `q` (n, d), drawn at random, among all of `d` (m, d), in two ways.

    What a search finds of a row depends on the rows among which it is sought, and on no other row that asks.
    But it depends on how many they are: a sample of them is less dense, and would tell another share.

    Parameters
    ----------
    q, d : array
        The same array: no row is a neighbour of itself.
    layout : SearchLayout
        Of the search that may miss neighbours.
    k, max_total
        How many are sought of a row, and the largest total of one.
    rows : int
        Whose neighbours are sought.
    """
    n, same = len(q), d is q
    k = min(k, len(d) - same)
    if n < 1 or k < 1:
        return Recall(math.nan, 0.0, 1.0, 0.0)
    every = merge_moments([moments(side) for side in ([q] if same else [q, d])])
    about = every.lower, every.upper, every.mean, every.variance, to_host(d[:: -(-len(d) // rows)])
    exact = searcher_of_library(library).layout(*about, layout.norm)
    few = np.sort(np.random.default_rng(n).permutation(n)[: min(rows, max(FEWEST, MOST // k))])
    near, true = (_names(q, d, few, one, k, max_total, library) for one in (layout, exact))
    there = true >= 0
    first = np.arange(len(few))[:, None] * len(d)
    asking, found = np.nonzero(there)[0], np.isin((first + true)[there], (first + near)[near >= 0])
    theirs, all_of_them = (np.bincount(some, minlength=len(few)) for some in (asking[found], asking))
    return ratio(theirs, all_of_them, n, float(len(asking)), 1 if len(few) == n else LEAST_MEASURED)


def _names(q: Array, d: Array, few: np.ndarray, layout: SearchLayout, k: int, max_total: float,
           library: str) -> np.ndarray:  # fmt: skip
    """Name the neighbours (few, k) of some rows by their places; -1: none."""
    joiner, searcher = joiner_of_library(library), searcher_of_library(library)
    rows = joiner.xp.asarray(few)
    some = searcher.renamed(joiner.build(joiner.xp.ascontiguousarray(q[rows]), layout), rows)
    totals, names = searcher.fresh(len(few), k)
    every = searcher.renamed(joiner.build(d, layout), 0)
    searcher.nearest(some, every, layout, totals, names, same=d is q, bound2=max_total)
    return to_host(names)
