"""Cluster chunks by DBSCAN, step by step.

No list of neighbours is made.  Counts of neighbours give the core rows; the core rows of each chunk
are connected within it, and then only its components, of which there are few, across chunks.  The edges
that do so are merged in a tree, where chunks lie; none of its tasks sees components that stay in one chunk.
Clusters are numbered by their first core row: each chunk counts those that begin in it, and what it is told
are the numbers of those that begin elsewhere.  A border row takes the lowest number among its core
neighbours: so labels are those of scikit-learn, whatever the chunks.

Rows of all chunks are numbered by their chunk and their place in it (see `places`).  What these numbers say
of the order of the frame is which chunk comes first, where chunks are rows that follow each other; which of
its rows does a chunk looks up once, as it counts the clusters that begin in it.

The steps are those of `dbscan`; tasks may share out each of the three that meet neighbours, by places.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.cluster.algorithms.edges import (
    by_place,
    components_by_place,
    cores_by_place,
    counts_by_place,
    joined,
    order_of,
    rows_of_places,
)
from dask_simjoin.engine.base import host_kernels, joiner_for, joiner_of_library
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.threads import shared_out
from dask_simjoin.metrics.norms import Array
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import CHUNK, Edges, RowNumbers, new_nodes, no_edges, spanning_forest
from dask_simjoin.tasks.matches import BlockPair


class CoreStanding(NamedTuple):
    """Hold the places of a chunk whose components stand for clusters.

    Attributes
    ----------
    own : array (k,), int64
        Of clusters that begin in the chunk; where rows are numbered by positions, that lie in it alone.
    ranks : array (k,), int64
        How many begin there before them; or the positions of their first rows.
    tied : array (m,), int64
        Of others.
    names : array (m,), int64
        The numbers of those clusters' first places.
    """

    own: Array
    ranks: Array
    tied: Array
    names: Array


class Begun(NamedTuple):
    """Tell of the clusters that begin in a chunk.

    Attributes
    ----------
    alone : int or array
        How many they are; where rows are numbered by positions, those of the first rows of clusters that lie
        in this chunk alone.
    names : array (k,), int64
        The numbers of the first places of those that are in other chunks as well, ascending; where rows are
        numbered by positions, of any that have rows here.
    ranks : array (k,), int64
        How many begin here before them; or the positions of the first rows that they have here.
    """

    alone: int | Array
    names: Array
    ranks: Array


class ClusterNumbering(NamedTuple):
    """Tell the numbers of clusters.

    Attributes
    ----------
    starts : list of int
        The number of the first cluster that begins in each chunk; none where rows are numbered by positions.
    firsts : array (n,), int64
        There, the first rows of all clusters, ascending.
    names, numbers : array (k,), int64
        The numbers of the first places of clusters that are in several chunks, ascending, and the clusters'.
    """

    starts: list[int]
    firsts: Array
    names: Array
    numbers: Array


def edges_across(block_pair: BlockPair, numbers: tuple[int, int], core: Sequence[Array],
                 within: Sequence[Array]) -> Edges:  # fmt: skip
    """Connect the components of two chunks by as few edges as do, between places that stand for them.

    `numbers`: of the chunks; `core`, `within`: their core rows and components, by place.
    """
    placed, xp = by_place(block_pair), block_pair.xp
    offset = len(within[0])
    nodes = new_nodes(offset + len(within[1]), xp)
    parent = xp.concatenate([within[0].astype(nodes.dtype), within[1].astype(nodes.dtype) + offset])
    first = (parent == nodes) & xp.concatenate(core)
    joiner = placed.joiner
    joiner.connect(*placed.operands, parent, tuple(core), offset, same=False, rows=block_pair.rows)
    joiner.roots(parent)
    tied = xp.flatnonzero(first & (parent != nodes))

    def named(some: Array) -> Array:
        found = some.astype(np.int64) + numbers[0] * CHUNK
        found[some >= offset] += (numbers[1] - numbers[0]) * CHUNK - offset
        return found

    return named(tied), named(parent[tied])


def merge_edges(library: str, *parts: Edges) -> Edges:
    """Connect by as few edges as do what all of these connect: see `spanning_forest`."""
    joiner = joiner_of_library(library)
    return spanning_forest(parts, joiner) if parts else no_edges(joiner.xp)


def tied_places(own: RowNumbers, forest: Edges) -> tuple[Array, Array]:
    """Tell which places of a chunk are tied to others, by the edges across all chunks, and to which numbers.

    `own`: the chunk's number, or the numbers of its places, ascending.
    """
    xp = module_of(forest[0])
    left, right = forest
    if isinstance(own, int):
        start, stop = xp.searchsorted(left, xp.asarray([own * CHUNK, (own + 1) * CHUNK])).tolist()
        return left[start:stop] - own * CHUNK, right[start:stop]
    places = xp.searchsorted(own, left).clip(0, max(len(own) - 1, 0))
    found = own[places] == left if len(own) else xp.zeros(len(left), bool)
    return places[found], right[found]


def begun_clusters(chunk: Chunk, number: int, threads: int, core: Array, within: Array,
                   forest: Edges) -> tuple[CoreStanding, Begun]:  # fmt: skip
    """Find the clusters that have rows in a chunk of that number, and tell of those that begin there.

    `forest`: the edges across all chunks; `threads`: that share the work on the host.
    """
    xp = module_of(within)
    least = joiner_for(chunk["example"]).least_rows(within, order_of(chunk), threads)
    tied, names = tied_places(number, forest)
    begins = core & (within == xp.arange(len(within), dtype=within.dtype))
    begins[tied] = False
    own = xp.flatnonzero(begins)
    several, right = xp.zeros(len(within), bool), forest[1] - number * CHUNK
    several[right[(right >= 0) & (right < len(within))]] = True
    some = several[own]
    here = own[some] + number * CHUNK
    if "position" not in chunk:  # no cluster that begins here has rows of earlier chunks
        near = names >= number * CHUNK  # parts of one that begins here, which only other chunks connect
        xp.minimum.at(least, names[near] - number * CHUNK, least[tied[near]])
        ranks = xp.empty(len(own), np.int64)
        ranks[xp.argsort(least[own])] = xp.arange(len(own))
        return CoreStanding(own, ranks, tied, names), Begun(len(own), here, ranks[some])
    firsts, alone = chunk["position"][least[own]], own[~some]
    tied, names = xp.concatenate([own[some], tied]), xp.concatenate([here, names])
    told = Begun(firsts[~some], names, chunk["position"][least[tied]])
    return CoreStanding(alone, firsts[~some], tied, names), told


def number_clusters(in_order: bool, *begun: Begun) -> ClusterNumbering:
    """Number the clusters that begin in the chunks; `in_order`: their rows follow each other."""
    xp = module_of(begun[0].names)
    names = xp.concatenate([some.names for some in begun])
    if in_order:
        starts = list(itertools.accumulate((some.alone for some in begun), initial=0))
        numbers = [some.ranks + start for some, start in zip(begun, starts, strict=False)]
        return ClusterNumbering(starts, names[:0], names, xp.concatenate(numbers))
    firsts = xp.concatenate([some.ranks for some in begun])
    order = xp.lexsort(xp.stack([firsts, names]))
    names, firsts = names[order], firsts[order]
    lowest = xp.ones(len(names), bool)
    lowest[1:] = names[1:] != names[:-1]
    names, firsts = names[lowest], firsts[lowest]
    every = xp.sort(xp.concatenate([firsts, *(some.alone for some in begun)]))
    return ClusterNumbering([], every, names, xp.searchsorted(every, firsts))


def label_cores(
    number: int, core: Array, within: Array, standing: CoreStanding, numbering: ClusterNumbering
) -> Array:
    """Label the places of core rows of the chunk of that number (n,), int64; others have -1."""
    xp = module_of(within)
    starts, firsts, names, numbers = numbering
    ranks, label = standing.ranks, xp.empty(len(within), np.int64)  # of places that stand for none, anything
    label[standing.own] = ranks + starts[number] if starts else xp.searchsorted(firsts, ranks)
    label[standing.tied] = numbers[xp.searchsorted(names, standing.names)]
    return xp.where(core, label[within], -1)


NOWHERE = np.iinfo(np.int64).max

Border = tuple[Array, Array]
"""Some places of a chunk, ascending, and the lowest labels that they are near."""


def border_labels(block_pair: BlockPair, labels: Sequence[Array]) -> tuple[Border, ...]:
    """Find the lowest label among the core neighbours that places of chunks have in each other.

    `labels`: of the places of each chunk, -1 where there is no core row; what is found, too, is of each.
    """
    xp, low = block_pair.xp, lowered(block_pair, labels)
    # few rows have any, and many block pairs give them
    return tuple((rows, some[rows]) for some in low for rows in (xp.flatnonzero(some < NOWHERE),))


def lowered(block_pair: BlockPair, labels: Sequence[Array]) -> list[Array]:
    """Do the same for all places (n,) of each chunk: `NOWHERE` where there is none."""
    joiner, same, placed = block_pair.joiner, block_pair.same, by_place(block_pair)
    low = [joiner.xp.full(len(some), NOWHERE) for some in labels]
    # for `any` of booleans CuPy compiles kernels of CUB, for seconds; their least number has one
    if any(len(some) and int(some.min()) < 0 for some in labels):
        lists = (labels[0], labels[-1]), (low[0], low[-1])
        joiner.lowest(*placed.operands, *lists, same=same, rows=block_pair.rows)
    return low


def labels_of_rows(chunk: Chunk, threads: int, labels: Array, *borders: Border) -> Array:
    """Label the chunk's rows (n,), in their own order: core rows by their own, border rows by the lowest.

    `labels`: of its places; `threads`: that share the work on the host.
    """
    order = order_of(chunk)
    if module_of(labels) is not np:
        return rows_of_places(_final(labels, *borders), order)
    out, scatter = np.empty_like(labels), host_kernels("totals").scatter

    def some(start: int, stop: int) -> None:
        here = [np.searchsorted(rows, [start, stop]) for rows, _ in borders]
        near = [(rows[a:b] - start, low[a:b]) for (rows, low), (a, b) in zip(borders, here, strict=True)]
        scatter(order[start:stop], _final(labels[start:stop], *near), out)

    shared_out(some, len(labels), threads)
    return out


def _final(labels: Array, *borders: Border) -> Array:
    xp, final = module_of(labels), labels.copy()
    for rows, low in borders:  # only rows that have none of their own
        so_far = final[rows]
        final[rows] = xp.where(so_far < 0, low, xp.minimum(so_far, low))
    return final


def labels_by_place(chunk: Chunk, threads: int, core: Array, *parts: Array) -> Array:
    """Label the places of core rows (n,), int64, others -1; `parts`: the components that the parts found.

    `threads`: that share the work on the host.
    """
    joiner = joiner_for(chunk["example"])
    return joiner.numbers(joined(parts, joiner), (core, order_of(chunk)), threads)


def dbscan_alone(block_pair: BlockPair, core: Array, threads: int = 1) -> Array:
    """Label the rows of the chunk; `core`: at which places there are core rows."""
    within, xp = components_by_place(block_pair, core), block_pair.xp
    labels = labels_by_place(block_pair.q, threads, core, within)
    if xp is np:
        del within  # as large as what is found at borders
        return labels_of_rows(block_pair.q, threads, labels, *border_labels(block_pair, [labels]))
    (low,) = lowered(block_pair, [labels])
    return rows_of_places(xp.where(low < NOWHERE, low, labels), order_of(block_pair.q))


def label_alone(block_pair: BlockPair, min_samples: int, threads: int) -> Array:
    """Label the rows of the chunk in one task: several, each of which waits for another, take longer."""
    core = cores_by_place(min_samples, *counts_by_place(block_pair, min_samples))
    return dbscan_alone(block_pair, core, threads)
