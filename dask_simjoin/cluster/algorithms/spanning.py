"""Find the minimum spanning tree of mutual reachability of all rows, chunk by chunk.

The weight of an edge is the largest of two rows' total and their core distances, as totals (Campello, Moulavi
& Sander 2013, "Density-based clustering based on hierarchical density estimates", definition 4); edges are
ordered by (weight, smaller row number, larger row number), so that there is one tree, whatever the chunks.

An edge of the tree of all rows is in that of any part of them that has both of its ends.  So it is in the
tree of its chunk, or of its two chunks, of which again only edges of each chunk's tree and edges between the
chunks can be in it: what is sought of two chunks is those between them that, with both trees, are in the
tree of both.  The edges of all chunks and pairs of chunks are merged, dropping those that close a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, cast

import numpy as np

from dask_simjoin.cluster.algorithms.forest import Edges
from dask_simjoin.engine.base import host_kernels, searcher_for, spanner_for
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.types import Array, Index
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.nearest import State
from dask_simjoin.tasks.row_numbers import CHUNK, RowNumbers

FEWEST_LISTED, MOST_LISTED = 4, 16
"""Nearest rows of each row that are remembered."""

SEARCHED = 1 << 16
"""Rows whose nearest ones are sought at a time: a multiple of what places can be cut at."""


class Known(TypedDict):
    """Hold what is known of a chunk's rows and those nearest to them, by place: a dict, so that it spills.

    See `dask_simjoin.engine.cpu.spanning.Nearest` for all but `core`, their core distances as totals.
    """

    core: np.ndarray
    near: np.ndarray
    away: np.ndarray
    beyond: np.ndarray


def sought(min_samples: int) -> int:
    """Tell how many nearest rows are sought of each row: that of its core distance, and one beyond."""
    return max(min_samples - 1, FEWEST_LISTED) + 1


def _known(totals: Array, near: np.ndarray, min_samples: int, rows: int) -> Known:
    """Make it of the totals (n, k) of the nearest rows and their places; `rows`: of all chunks."""
    others = max(0, min(min_samples, rows) - 1)
    listed = near.shape[1]
    away = totals[:, : listed if listed > others else 0]
    core = totals[:, others - 1] if others and len(totals) else np.zeros(len(totals))
    beyond = totals[:, listed] if listed < totals.shape[1] else np.full(len(totals), -1.0)
    return {
        "core": np.ascontiguousarray(core), "near": near, "away": np.ascontiguousarray(away),
        "beyond": np.ascontiguousarray(beyond),
    }  # fmt: skip


def _listed(totals: Array) -> int:
    return max(0, min(totals.shape[1] - 1, MOST_LISTED))


def _places(chunk: Chunk) -> np.ndarray:
    """Tell the place of each row of a chunk (n,), int32."""
    order = chunk["order"][: len(chunk["ids"])]
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return place


def known_of_state(chunk: Chunk, own: RowNumbers, state: State, min_samples: int, rows: int) -> Known:
    """Keep of what searches found of a chunk's rows what the tree needs; `own`: its number, or its rows'."""
    totals, numbers = state["totals"], state["row_numbers"]
    numbers = numbers[:, : _listed(totals)]
    if isinstance(own, int):
        here, row = numbers // CHUNK == own, numbers % CHUNK
    else:
        row = np.minimum(np.searchsorted(own, numbers), len(own) - 1)
        here = own[row] == numbers if len(own) else np.zeros(numbers.shape, np.bool_)
    place = _places(chunk)
    near = np.full(numbers.shape, -1, np.int32)
    near[here] = place[row[here]]
    order = chunk["order"][: len(place)]
    return _known(totals[order], near[order], min_samples, rows)


def known_of_whole(chunk: Chunk, layout: SearchLayout, min_samples: int) -> Known:
    """Search the nearest rows of all rows of the one chunk that there is, some at a time."""
    searcher, rows = searcher_for(chunk["example"]), len(chunk["ids"])
    query, place = searcher.renamed(cast(Index, chunk), 0), _places(chunk)
    number = min(sought(min_samples), rows)
    parts: list[Known] = []
    for start in range(0, max(rows, 1), SEARCHED):
        some = searcher.part(query, start, min(start + SEARCHED, rows))
        here = some | {"order": np.arange(len(some["order"]))}
        totals, names = searcher.fresh(len(here["order"]), number)
        searcher.nearest(here, query, layout, totals, names, same=True)
        names = names[:, : _listed(totals)]
        near = np.where(names < 0, -1, place[names] if rows else names).astype(np.int32)
        parts.append(_known(totals, near, min_samples, rows))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}  # type: ignore[literal-required]
    return cast(Known, joined)


def _named(chunk: Chunk, own: RowNumbers) -> Index:
    searcher = searcher_for(chunk["example"])
    return searcher.renamed(cast(Index, chunk), own * CHUNK if isinstance(own, int) else own)


def tree_of_chunk(chunk: Chunk, own: RowNumbers, layout: SearchLayout, known: Known) -> Edges:
    """Find the tree of a chunk's rows, by their numbers."""
    nearest = known["near"], known["away"], known["beyond"]
    found: Edges = spanner_for(chunk["example"]).tree_of(_named(chunk, own), layout, known["core"], nearest)
    return found


def edges_between(chunks: Sequence[Chunk], own: Sequence[RowNumbers], layout: SearchLayout,
                  known: Sequence[Known], trees: Sequence[Edges]) -> Edges:  # fmt: skip
    """Find the edges between two chunks that are in the tree of both; `trees`: of each of them."""
    sides = [_named(*one) for one in zip(chunks, own, strict=True)]
    cores = [some["core"] for some in known]
    found: Edges = spanner_for(chunks[0]["example"]).edges_between(sides, layout, cores, trees)
    return found


def distances_of(weight: np.ndarray, metric: Metric) -> np.ndarray:
    """Make distances (n,) of a tree's weights, which ascend: of equal ones equal, none less than before.

    Not all functions do so by themselves: those of vectors and of single numbers may differ by an ulp.
    """
    first = np.ones(len(weight), np.bool_)
    np.not_equal(weight[1:], weight[:-1], out=first[1:])
    away = np.maximum.accumulate(metric.distance(weight[first], np))
    found: np.ndarray = away[np.cumsum(first) - 1]
    return found


def in_order(numbers: np.ndarray | None, *parts: Edges) -> Edges:
    """Put edges that make a tree in order, the lightest first, with places in the order of all rows.

    `numbers`: those of all rows, ascending; None: they are places.
    """
    weight, low, high = (np.concatenate(column) for column in zip(*parts, strict=True))
    if numbers is not None:
        low, high = np.searchsorted(numbers, low), np.searchsorted(numbers, high)
    order = np.argsort(weight)
    host_kernels("optics").sort_ties(order, weight, low * np.int64(len(weight) + 1) + high)
    return weight[order], low[order], high[order]
