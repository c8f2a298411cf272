"""What the grid joins' papers tell of a run by numbers alone: NumPy, no GPU."""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.engine.index.grid import GridLayout
from dask_simjoin.engine.index.grid_batches import batches
from dask_simjoin.metrics.types import Index

WARP = 32


def warp_efficiency(work: np.ndarray, threads: int) -> tuple[float, float]:
    """Return the steps of all lanes and those of lanes that have work, of one batch (P2, IV-B).

    `work`: points that each query visits, in the order of the queries.  A warp has 32/threads queries that
    follow each other, and ends with the one that visits most.
    """
    together = WARP // threads
    padded = np.zeros((-(-len(work) // together), together))
    padded.reshape(-1)[: len(work)] = work
    return float(padded.max(axis=1).sum()) * together, float(padded.sum())


def facts(index: Index, layout: GridLayout, places: np.ndarray, work: np.ndarray, pairs: float,
          comparisons: float) -> dict[str, float]:  # fmt: skip
    """Tell of a grid, and of the batches that a GPU would do, if the estimate of their pairs were right.

    `places`: the queries in their order, before they are cut into batches; `work`: of each cell.
    """
    n, cells, asked = len(places), len(index["keys"]), layout.options
    made, _ = batches(asked, n, pairs, asked.buffer)
    cell = np.searchsorted(index["starts"], places, side="right") - 1
    lanes = active = 0.0
    for batch in made:
        some = work[cell[batch.first : batch.first + batch.number * batch.step : batch.step]]
        more, used = warp_efficiency(some, asked.threads)
        lanes, active = lanes + more, active + used
    sizes = np.diff(index["starts"])
    return {
        "cells": cells,
        "grid_cells": float(math.prod(layout.cells.number)),
        "largest_cell": int(sizes.max(initial=0)),
        "search_ops": n * 3.0 ** len(layout.cells.dims) * max(1.0, math.log2(max(cells, 1))),
        "compare_ops": layout.dims * float(comparisons),
        "batches": len(made),
        "warp_efficiency_model": active / lanes if lanes else 1.0,
    }
