"""Run a search for nearest neighbours to tell how long it takes."""

from __future__ import annotations

import time

from dask_simjoin.engine.base import joiner_of_library, searcher_of_library
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.profile import Counters
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.types import Array

WARM = 100
"""Points whose neighbours are sought before anything is timed, so that kernels are compiled."""


def profile_search(x: Array, layout: SearchLayout, k: int, max_total: float, library: str) -> Counters:
    """Seek the k nearest rows of each of the points (n, d), keep none, and tell how many they were."""
    if not len(x):
        return Counters({"neighbours": 0.0}, {})
    _run(x[:WARM], layout, k, max_total, library)
    return _run(x, layout, k, max_total, library)


def _run(x: Array, layout: SearchLayout, k: int, max_total: float, library: str) -> Counters:
    joiner, searcher = joiner_of_library(library), searcher_of_library(library)
    begin = time.perf_counter()
    index = searcher.renamed(joiner.build(x, layout), 0)
    to_host(index["names"][:1])  # a GPU is done with what was begun
    built = time.perf_counter()
    totals, names = searcher.fresh(len(x), min(k, len(x)))
    searcher.nearest(index, index, layout, totals, names, same=True, bound2=max_total)
    found = int((names >= 0).astype(joiner.xp.int64).sum())
    seconds = {"index": built - begin, "search": time.perf_counter() - built}
    return Counters({"neighbours": float(found)}, seconds)
