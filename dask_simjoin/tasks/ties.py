"""Nearest rows with all ties: also all rows at the distance of the k-th neighbor.

A search for k + 1 neighbors shows which rows have ties: their neighbor k + 1 is at the
distance of neighbor k. Most rows have none, and their neighbors are known. For the
others, this distance is a radius: a join finds all rows within it, chunk by chunk.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from dask_simjoin.catalog import AUTO
from dask_simjoin.engine.base import host_search, joiner_for
from dask_simjoin.metrics.norms import Index, box_gap
from dask_simjoin.planning.sample import merge_moments, moments
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import RowNumbers, row_numbers
from dask_simjoin.tasks.matches import BlockPair, row_places, visit_radii
from dask_simjoin.tasks.named_tuples import sent_by_fields
from dask_simjoin.tasks.nearest import (
    State,
    Totals,
)


@sent_by_fields
class TiedRows(NamedTuple):
    """Neighbors of the rows with ties, in one chunk."""

    rows: np.ndarray  # (neighbors,) int64: positions of the rows in the state
    totals: np.ndarray  # (neighbors,) float64
    row_numbers: np.ndarray  # (neighbors,) int64


def rows_with_ties(
    state: State, k: int, spec: JoinSpec, most: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions in a state of the rows with ties, and the largest total of
    their neighbors.

    `state`: the k + 1 nearest neighbors of each row. `most`: largest total of any
    neighbor.
    """
    totals = state["totals"]
    if totals.shape[1] <= k:
        return np.zeros(0, np.int64), np.zeros(0)
    limits = np.minimum(spec.limits_of_ties(totals[:, k - 1], np), most)
    rows = np.flatnonzero((totals[:, k] <= limits) & (state["row_numbers"][:, k] >= 0))
    return rows, limits[rows]


def ties_in(
    state: State,
    k: int,
    spec: JoinSpec,
    query: Chunk,
    data: Chunk,
    numbers: tuple[RowNumbers, RowNumbers],
    totals: Totals,
) -> TiedRows:
    """Find all neighbors of the rows with ties in the chunk `data`.

    `state`, `k`: see `rows_with_ties`. `query`: the chunk of the rows. `numbers`: the
    `RowNumbers` of both chunks. `totals`: smallest and largest total of a neighbor.
    """
    tied, limits = rows_with_ties(state, k, spec, totals[1])
    parts = [TiedRows(tied[:0], limits[:0], tied[:0])]
    if not len(tied) or not len(data["ids"]):
        return parts[0]
    positions = state["rows"][tied] if "rows" in state else tied
    x = host_search().points(cast(Index, query))[row_places(query)[positions]]
    y, largest = host_search().points(cast(Index, data)), float(limits.max())
    lower, upper, norm = x.min(axis=0), x.max(axis=0), spec.norm
    # no pair is lost, because rounding never makes the gap larger than a total
    near = np.flatnonzero(box_gap(norm, y, y, lower, upper) <= largest)
    if not len(near):
        return parts[0]
    y, order = y[near], data["order"][: len(data["ids"])]
    own = row_numbers(positions, numbers[0])
    others = row_numbers(order[near], numbers[1])
    is_self_join = spec.other is None

    def show(_: int, left: np.ndarray, right: np.ndarray, found: np.ndarray) -> None:
        good = found >= totals[0]
        if is_self_join:
            good &= own[left] != others[right]
        left, right = left[good], right[good]
        parts.append(TiedRows(tied[left], found[good], others[right]))

    visit_radii(_within(spec, x, y, limits, query), show)
    return TiedRows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _within(
    spec: JoinSpec, x: np.ndarray, y: np.ndarray, limits: np.ndarray, like: Chunk
) -> BlockPair:
    """Return the join of points `x` with points `y`; `limits`: largest total for each
    of `x`.
    """
    # as two tables: pairs are found in one direction
    spec = replace(spec, other=spec.other or spec)
    joiner = joiner_for(like["example"])
    every = merge_moments([moments(x), moments(y)])
    box = every.lower, every.upper, every.mean, every.variance
    layout = joiner.layout(AUTO, *box, float(limits.max()), spec.norm)
    sides = []
    for points in (x, y):
        index = joiner.build(np.asfortranarray(points), layout)
        rows = {"ids": np.arange(len(points)), "example": like["example"]}
        sides.append(cast(Chunk, index | rows))
    order = sides[0]["order"][: len(x)]
    sides[0]["own_limit"] = limits[order]
    return BlockPair(sides[0], sides[1], False, spec, layout)


def with_ties(
    state: State, k: int, spec: JoinSpec, query: Chunk, most: float, *found: TiedRows
) -> State:
    """Return a state with one row for each neighbor, with all ties.

    `found`: the results of `ties_in` for all searched chunks; the other arguments are
    as there. The neighbors of a row are sorted by (total, row number), as in `state`.
    """
    totals, numbers = state["totals"][:, :k], state["row_numbers"][:, :k]
    n = len(totals)
    own = state["rows"] if "rows" in state else np.arange(n)
    places = state["places"] if "places" in state else row_places(query)[own]
    known = np.ones(n, bool)
    known[rows_with_ties(state, k, spec, most)[0]] = False
    row, rank = np.nonzero((numbers >= 0) & known[:, None])
    alone = np.flatnonzero(known & ~(numbers >= 0).any(axis=1))
    rows = np.concatenate([row, alone, *(part.rows for part in found)])
    none = np.full(len(alone), math.inf), np.full(len(alone), -1)
    total, number = (
        np.concatenate([values[row, rank], missing, *of_found])
        for values, missing, of_found in (
            (totals, none[0], [part.totals for part in found]),
            (numbers, none[1], [part.row_numbers for part in found]),
        )
    )
    order = np.lexsort((number, total, rows))
    rows = rows[order]
    ranks = np.arange(1, len(rows) + 1) - np.searchsorted(rows, rows)
    return State(
        totals=total[order, None],
        row_numbers=number[order, None],
        rows=own[rows],
        places=places[rows],
        ranks=ranks,
    )
