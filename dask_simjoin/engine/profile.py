"""What a run of a method is told by: numbers of each step, and its seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.types import Array

ABOUT = {
    "cells": "cells that are not empty",
    "grid_cells": "cells of the grid in all",
    "largest_cell": "points of the fullest cell",
    "lookups": "cells, or rows of cells, that were looked for",
    "found": "cells, or rows of cells, that were there",
    "tile_pairs": "pairs of tiles whose boxes are near",
    "near_queries": "queries near a tile's box",
    "candidates": "pairs of points that cells, windows or boxes left",
    "comparisons": "pairs of points of which a distance was begun",
    "compared_ratio": "of all pairs of points, those that were compared, or left to be",
    "terms": "coordinates whose differences were summed",
    "decided": "pairs that only float64 could tell",
    "refused": "of those, pairs that were none",
    "pairs": "pairs that were found, each once",
    "neighbours": "nearest rows that were found, of all rows together",
    "recall": "of the true pairs or neighbours, those that were found",
    "recall_low": "the least that it is with a chance of 95 %",
    "recall_high": "the most that it is so",
    "recall_pairs": "true ones by which it was measured, too few below 1,000 unless all are known",
    "selectivity": "neighbours of a point, on average, itself left out",
    "clusters": "clusters that are not empty",
    "largest_cluster": "rows of the largest cluster",
    "copies": "rows of other clusters that the rows of each meet",
    "lists": "lists in Z-order",
    "walked_lists": "of them, those in which a row has its interval",
    "half_walk": "1, where intervals begin behind the row itself, all in one list; else 0",
    "interval_mean": "rows of an interval",
    "interval_median": "the same, of half of the rows at most",
    "interval_p99": "the same, of 99 of 100 rows at most",
    "interval_max": "the same, of any row at most",
    "search_ops": "reads to find cells: queries x 3^indexed x log2(cells)",
    "compare_ops": "coordinates read to compare: dimensions x comparisons",
    "batches": "batches of queries",
    "repeated_batches": "batches that were done again, as their pairs were too many",
    "largest_batch": "pairs of the largest batch",
    "estimated_pairs": "pairs, as they were estimated from a sample",
    "warp_efficiency": "share of a warp's lanes at work while candidates are compared",
    "warp_efficiency_model": "the same, told from workloads alone, if a warp waits for its slowest query",
}
"""The numbers, in the order in which they are told, and what they count."""

Numbers = dict[str, float]
"""Some of those of `ABOUT`, by name."""


def compared_ratio(numbers: Numbers, rows: int) -> Numbers:
    """Return the share of all pairs of points that was compared, where a method tells it."""
    compared = numbers.get("comparisons", numbers.get("candidates"))
    return {} if compared is None or rows < 2 else {"compared_ratio": compared / (rows * (rows - 1) / 2)}


@dataclass(frozen=True)
class Counters:
    """What one run did.

    Attributes
    ----------
    numbers : dict
        By name, see `ABOUT`; what a method does not tell is not there.
    seconds : dict
        Of each step, in the order of the steps.
    """

    numbers: Numbers
    seconds: dict[str, float]


class Profiler(Protocol):
    """Runs methods on arrays of one library, and counts what they do."""

    def profile(self, x: Array, layout: Layout) -> Counters:
        """Join points (n, d) with themselves, keep no pair, and tell what was done."""
