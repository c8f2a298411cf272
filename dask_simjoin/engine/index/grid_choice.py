"""The cost model for the number of indexed dimensions (P1, section 5.6), on a sample of the points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.engine.grid import MAX_INDEXED, Grid
from dask_simjoin.engine.index.grid import coordinates, dims_in_order, make_cells
from dask_simjoin.metrics.norms import Norm, reach

QUERIES = 1024
"""Points of the sample that are queries, all of it being candidates."""


@dataclass(frozen=True)
class Cost:
    """What a join costs that indexes so many dimensions, in reads of memory.

    Attributes
    ----------
    indexed : int
    search : float
        3**k lookups of a query, each of the logarithm of the number of non-empty cells.
    compare : float
        Coordinates of the candidates of all queries.  The paper weighs them by a factor that is lost in our
        copy: coordinates read are ours.
    """

    indexed: int
    search: float
    compare: float

    @property
    def total(self) -> float:
        """Both."""
        return self.search + self.compare


def costs(options: Grid, x: np.ndarray, rows: float, variance: np.ndarray, threshold: float,
          norm: Norm = 2) -> Iterator[Cost]:  # fmt: skip
    """Give the costs of 1, 2, ... indexed dimensions for `rows` points, of which `x` (m, d) are a sample."""
    m, dims = x.shape
    order, most = dims_in_order(options, variance), reach(norm, threshold)
    lower, upper = x.min(axis=0), x.max(axis=0)
    asked = np.linspace(0, m - 1, min(m, QUERIES)).astype(np.int64)
    near = np.ones((len(asked), m), bool)
    for k in range(1, min(dims, MAX_INDEXED) + 1):
        cell = coordinates(x, make_cells(lower, upper, order[k - 1 : k], most), np)[:, 0]
        near &= np.abs(cell[asked, None] - cell[None, :]) <= 1
        candidates = near
        if options.sort or (options.sort is None and k < dims):
            u = x[:, order[k % dims]]
            with np.errstate(over="ignore"):
                candidates = near & (np.abs(u[asked, None] - u[None, :]) <= most)
        share = np.count_nonzero(candidates) / candidates.size
        several = coordinates(x, make_cells(lower, upper, order[:k], most), np)
        full = math.prod(len(np.unique(several[:, j])) for j in range(k))
        cells = min(rows, full, len(np.unique(several, axis=0)) * max(1.0, rows / m))
        yield Cost(k, rows * 3.0**k * max(1.0, math.log2(cells)), rows * share * rows * dims)


def fitted(options: Grid, x: np.ndarray, rows: float, variance: np.ndarray, threshold: float,
           norm: Norm = 2) -> Grid:  # fmt: skip
    """Return the options with a number of dimensions instead of "auto": that of least cost on a sample.

    Candidates only become fewer with more dimensions, and lookups more: the search ends once lookups alone
    cost more than the best.
    """
    if options.indexed != "auto" or not len(x):
        return options
    best: Cost | None = None
    for cost in costs(options, x, rows, variance, threshold, norm):
        if best is not None and cost.search > best.total:
            break
        if best is None or cost.total < best.total:
            best = cost
    assert best is not None
    return replace(options, indexed=best.indexed)
