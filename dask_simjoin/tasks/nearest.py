"""Search chunks for the nearest neighbours of rows: the work of one task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.engine.base import searcher_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.engine.threads import shared_out
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.types import Array, Index
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.row_numbers import CHUNK, RowNumbers


class State(TypedDict):
    """Hold what is known of the nearest rows of each row of a chunk: a plain dict, so that it spills.

    It has no more columns than rows were met.
    """

    totals: Array
    """The totals (n, k) float64 of each row's nearest so far, ascending; inf: none yet."""
    row_numbers: Array
    """The numbers (n, k) int64 of those rows; -1: none yet."""
    rows: NotRequired[Array]
    """Which rows of the chunk those are, where they are a part of them."""


def search_chunk(q: Chunk, d: Chunk, layout: SearchLayout, k: int, numbers: Sequence[RowNumbers],
                 same: bool = True, max_total: float = math.inf, part: tuple[int, int] = (0, 1),
                 state: State | None = None) -> State:  # fmt: skip
    """Improve what is known of the nearest rows of one chunk's rows by another chunk, or by their own.

    `numbers`: of both chunks' rows; `same`: both are of one table, in which no row is a neighbour of itself;
    `max_total`: the largest total of a neighbour; `part`: which part of the first chunk's rows, of how many;
    `state`: what was known before; None: nothing.
    """
    searcher = searcher_for(q["example"])
    searcher.prepare()
    known = 0 if state is None else state["totals"].shape[1]
    start, stop = part_of_places(len(q["ids"]), searcher.grain, part)
    # where more are sought than there are rows, memory is for those that there are
    totals, found = searcher.fresh(stop - start, min(k, known + len(d["ids"])))
    if state is not None:  # copied: others may have the old one
        totals[:, :known], found[:, :known] = state["totals"], state["row_numbers"]
    first, second = (own * CHUNK if isinstance(own, int) else own for own in numbers)
    query = searcher.renamed(cast(Index, q), first)
    data = query if q is d else searcher.renamed(cast(Index, d), second)
    if part[1] == 1:
        searcher.nearest(query, data, layout, totals, found, same=same, bound2=max_total)
        return {"totals": totals, "row_numbers": found}
    some = searcher.part(query, start, stop)
    rows = some["order"]
    # their state is in the order of the index
    here = some | {"order": module_of(rows).arange(len(rows), dtype=rows.dtype)}
    searcher.nearest(here, data, layout, totals, found, same=same, bound2=max_total)
    return {"totals": totals, "row_numbers": found, "rows": rows}


def part_of_places(rows: int, grain: int, part: tuple[int, int]) -> tuple[int, int]:
    """Cut the places of an index evenly."""
    number, parts = part
    if parts == 1:
        return 0, rows
    start, stop = (min(-(-rows * k // parts // grain) * grain, rows) for k in (number, number + 1))
    return start, rows if number + 1 == parts else stop


def join_states(threads: int, *parts: State) -> State:
    """Put together what is known of all rows of a chunk; `threads`: that share the work on the host."""
    xp = module_of(parts[0]["totals"])
    if xp is np:
        return _put_together(parts, threads)
    rows = xp.argsort(xp.concatenate([part["rows"] for part in parts]))
    totals, numbers = (
        xp.concatenate([part[name] for part in parts])[rows] for name in ("totals", "row_numbers")
    )
    return {"totals": totals, "row_numbers": numbers}


def _put_together(parts: Sequence[State], threads: int) -> State:
    """Do as `join_states` does on the host."""
    rows, (totals, numbers) = [part["rows"] for part in parts], (parts[0]["totals"], parts[0]["row_numbers"])
    shape = sum(map(len, rows)), totals.shape[1]
    made = State(totals=np.empty(shape, totals.dtype), row_numbers=np.empty(shape, numbers.dtype))

    def put(first: int, last: int) -> None:
        for part, places in zip(parts[first:last], rows[first:last], strict=True):
            _whole_rows(made["totals"])[places] = _whole_rows(part["totals"])
            _whole_rows(made["row_numbers"])[places] = _whole_rows(part["row_numbers"])

    shared_out(put, len(parts), threads, least=1)
    return made


def _whole_rows(x: np.ndarray) -> np.ndarray:
    """See each row as one thing: NumPy moves those in half of the time."""
    return x.view(np.dtype((np.void, x.shape[1] * x.itemsize)))[:, 0] if x.shape[1] else x


def kth_distance(state: State, k: int, metric: Metric) -> Array:
    """Give the distances (n,) of the k-th of those rows, float64; inf: there are not so many."""
    totals = state["totals"]
    xp = module_of(totals)
    if totals.shape[1] < k:
        return xp.full(len(totals), math.inf)
    total = totals[:, k - 1]
    return xp.where(xp.isinf(total), total, metric.distance(total.copy(), xp))
