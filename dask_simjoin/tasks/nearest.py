"""The nearest neighbours of the rows of chunks: the work of one task, as pure functions."""

from __future__ import annotations

import math
from typing import Any

from dask_simjoin.engine.base import searcher_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.row_numbers import CHUNK, RowNumbers

State = dict[str, Any]
"""``squared`` (n, k) float64, the totals (of the usual norm, squared distances) of each row's nearest so far,
ascending (inf: none yet), and ``names`` (n, k) int64, of those rows (-1).  It has no more columns than rows
were met."""


def search_chunk(q: Chunk, d: Chunk, layout: Any, number: int, names: tuple[RowNumbers, RowNumbers],
                 state: State | None = None, *, same: bool = True,
                 bound2: float = math.inf) -> State:  # fmt: skip
    """What is known of the nearest rows of one chunk's rows once they have met another chunk, or their own.

    `number`: of neighbours; `state`: what was known before; None: nothing; `same`: both are of one table,
    in which no row is a neighbour of itself; `bound2`: largest total of a neighbour.
    """
    searcher = searcher_for(q["example"])
    known = 0 if state is None else state["totals"].shape[1]
    # where more are sought than there are rows, memory is for those that there are
    squared, found = searcher.fresh(len(q["ids"]), min(number, known + len(d["ids"])))
    if state is not None:  # copied: others may have the old one
        squared[:, :known], found[:, :known] = state["totals"], state["row_numbers"]
    first, second = (name * CHUNK if isinstance(name, int) else name for name in names)
    query = searcher.renamed(q, first)
    data = query if q is d else searcher.renamed(d, second)
    searcher.nearest(query, data, layout, squared, found, same=same, bound2=bound2)
    return {"totals": squared, "row_numbers": found}


def kth_distance(state: State, k: int, metric: Metric) -> Any:
    """The distances (n,) of the k-th of those rows, float64; inf: there are not so many."""
    totals = state["totals"]
    xp = module_of(totals)
    if totals.shape[1] < k:
        return xp.full(len(totals), math.inf)
    total = totals[:, k - 1]
    return xp.where(xp.isinf(total), total, metric.distance(total.copy(), xp))
