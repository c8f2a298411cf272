"""Find the minimum spanning tree of mutual reachability of all rows, chunk by chunk.

The weight of an edge is the largest of two rows' total and their core distances, as totals (Campello, Moulavi
& Sander 2013, "Density-based clustering based on hierarchical density estimates", definition 4); edges are
ordered by (weight, smaller row number, larger row number), so that there is one tree, whatever the chunks.

An edge of the tree of all rows is in that of any part of them that has both of its ends.  So it is in the
tree of its chunk, or of its two chunks, of which again only edges of each chunk's tree and edges between the
chunks can be in it: what is sought of two chunks is those between them that, with both trees, are in the
tree of both.  The edges of all chunks and pairs of chunks are merged, dropping those that close a circle.

Edges are kept in order, and rows by their places in the frame (int32): 16 bytes an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from dask_simjoin.cluster.algorithms.core_distances import Known, nearest_of
from dask_simjoin.cluster.algorithms.forest import Edges
from dask_simjoin.engine.base import searcher_for, spanner_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.engine.spanner import Found, Part, Progress
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.types import Array, Frame, Index
from dask_simjoin.tasks.chunks import Chunk

Places = int | Array
"""The place of a chunk's first row in the frame, which others follow, or the places of all of its rows."""

MEASURED = 1 << 13
"""Edges of which distances are made at a time."""


def _named(chunk: Chunk, places: Places) -> Index:
    return searcher_for(chunk["example"]).renamed(cast(Index, chunk), places)


def tree_of_chunk(chunk: Chunk, places: Places, layout: SearchLayout, known: Known,
                  progress: Progress | None = None, last: bool = False) -> Edges:  # fmt: skip
    """Find the tree of a chunk's rows, by their places; `progress`: of rounds that were shared before.

    `last`: nobody else needs the chunk, nor what is known of it: both are emptied, and memory is let go of on
    the way.
    """
    spanner = spanner_for(chunk["example"])
    about = [dict(_named(chunk, places)), layout, known["core"], nearest_of(known), progress][::-1]
    if last:
        cast(Index, chunk).clear()
        cast(Index, known).clear()
    # taken out one by one, so that here nothing is held
    found: Edges = spanner.tree_of(about.pop(), about.pop(), about.pop(), about.pop(), about.pop())
    return found


def begin_rounds(chunk: Chunk, places: Places, layout: SearchLayout, known: Known, parts: int) -> Progress:
    """Do the rounds of a chunk's tree that come before the first one that so many share."""
    found: Progress = spanner_for(chunk["example"]).begin(
        _named(chunk, places), layout, known["core"], nearest_of(known), parts
    )
    return found


def share_of_round(chunk: Chunk, places: Places, layout: SearchLayout, known: Known,
                   progress: Progress, part: Part) -> Found | None:  # fmt: skip
    """Do one part of what a round of a chunk's tree searches; None: the tree is found."""
    if len(progress["sizes"]) < 2:
        return None
    found: Found = spanner_for(chunk["example"]).share(
        _named(chunk, places), layout, known["core"], nearest_of(known), progress, part
    )
    return found


def join_round(chunk: Chunk, places: Places, layout: SearchLayout, known: Known,
               progress: Progress, *parts: Found) -> Progress:  # fmt: skip
    """Finish a round of a chunk's tree, all parts of which are done."""
    if len(progress["sizes"]) < 2:
        return progress
    found: Progress = spanner_for(chunk["example"]).join(
        _named(chunk, places), layout, known["core"], nearest_of(known), progress, parts
    )
    return found


def edges_between(chunks: Sequence[Chunk], places: Sequence[Places], layout: SearchLayout,
                  known: Sequence[Known], trees: Sequence[Edges]) -> Edges:  # fmt: skip
    """Find the edges between two chunks that are in the tree of both; `trees`: of each of them."""
    sides = [_named(*one) for one in zip(chunks, places, strict=True)]
    cores = [some["core"] for some in known]
    found: Edges = spanner_for(chunks[0]["example"]).edges_between(sides, layout, cores, trees)
    return found


def places_of_rows(chunk: Chunk, places: Places) -> np.ndarray:
    """Tell the places of all rows of a chunk (n,), int32."""
    if isinstance(places, int):
        return np.arange(places, places + len(chunk["ids"]), dtype=np.int32)
    return to_host(places).astype(np.int32)


def merge_trees(rows: int, example: Frame, *parts: Edges) -> Edges:
    """Find the forest of all edges, which are in order; `rows`: of the frame, which is like an example."""
    found: Edges = spanner_for(example).merge(rows, *parts)
    return found


def without_gaps(rows: int, places: Sequence[np.ndarray], tree: Edges) -> tuple[list[np.ndarray], Edges]:
    """Number the rows that take part, of so many of the frame, one after the other, and a tree's ends too."""
    if sum(map(len, places)) == rows:
        return list(places), tree
    taken = np.zeros(rows, np.int32)
    for some in places:
        taken[some] = 1
    number = np.cumsum(taken, dtype=np.int32, out=taken)
    number -= 1
    weight, low, high = tree
    return [number[some] for some in places], (weight, number[low], number[high])


def distances_of(weight: np.ndarray, metric: Metric) -> np.ndarray:
    """Make distances (n,) of a tree's weights, which ascend: of equal ones equal, none less than before.

    Not all functions do so by themselves: those of vectors and of single numbers may differ by an ulp.
    """
    found, last = np.empty(len(weight)), 0.0
    for start in range(0, len(weight), MEASURED):
        some = weight[start : start + MEASURED]
        first = np.ones(len(some), np.bool_)
        np.not_equal(some[1:], some[:-1], out=first[1:])
        away = metric.distance(some[first], np)
        if start and some[0] == weight[start - 1]:
            away[0] = last
        away = np.maximum.accumulate(np.maximum(away, last))
        found[start : start + MEASURED] = away[np.cumsum(first) - 1]
        last = away[-1]
    return found


def in_order(
    start: np.ndarray, end: np.ndarray, away: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put edges, whose distances (n,) ascend, in the order of (distance, start, end).

    They come in the order of weights, such as squares, of which several may have one distance.
    """
    same = away[1:] == away[:-1]
    wrong = (start[1:] < start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] < end[:-1]))
    if not (same & wrong).any():
        return start, end, away
    among = np.zeros(len(away), np.bool_)
    among[1:] |= same
    among[:-1] |= same
    places = np.flatnonzero(among)
    order = np.arange(len(away))
    order[places] = places[np.lexsort((end[places], start[places], away[places]))]
    return start[order], end[order], away
