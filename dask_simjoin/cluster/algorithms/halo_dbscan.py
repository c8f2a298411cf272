"""Run DBSCAN separately on each chunk, with a halo of twice `eps` around its region,
and join the clusters.

A chunk has the rows in its region and the rows of its halo.  Halo rows within `eps` of
the region are near rows; the others are far rows.  The chunk has all neighbors of its
own rows and of its near rows.  So it finds all core rows among them, and connects these
core rows to components.

This finds all edges.  Take an edge between core rows of two regions.  In the chunk of
each region, the other row is a near row, so both chunks connect the two rows.  If two
chunks share a core row, its components in both belong to the same cluster.  So each
chunk sends its shared core rows with their components.  One task joins the components
of equal rows, and numbers the clusters by their first core rows.  A shared core row has
the same neighbors in each chunk, and the distance of two points does not depend on
their order.  So all chunks agree that it is a core row.

Far rows may lack neighbors in the chunk, so the chunk does not treat them as core rows.
A border row of the region has all its neighbors in the chunk.  So the chunk finds the
label of the row from the cluster numbers of these neighbors.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.cluster.algorithms.dbscan import (
    border_labels,
    cores_of_chunk,
    labels_of_rows,
)
from dask_simjoin.cluster.algorithms.edges import (
    components_by_place,
    divided,
    order_of,
)
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.process import shared_out, together
from dask_simjoin.metrics.norms import Array
from dask_simjoin.tasks.counts import component_roots
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.named_tuples import sent_by_fields


@sent_by_fields
class ChunkClusters(NamedTuple):
    """The clusters of a chunk. Arrays are by place, and include the places of halo
    rows.
    """

    core: Array  # mask of the places whose rows are core rows (n,)
    within: Array  # for each place, the first place of its component (n,)
    # first places of the components without rows that other chunks may have (k,)
    alone: Array
    firsts: Array  # frame positions of the first core rows of these components (k,)
    tied: Array  # first places of the other components, ascending (m,)


@sent_by_fields
class SharedRows(NamedTuple):
    """The message that a chunk sends about its clusters, so that one task can number
    the clusters of all chunks.
    """

    # for components not shared with other chunks: frame positions of their first core
    # rows, ascending
    alone: Array
    tied: Array  # the same for the other components (m,)
    rows: Array  # frame positions of the core rows that other chunks may also have (r,)
    # the component of each of these rows, as a position in `tied` (r,)
    components: Array


@sent_by_fields
class GlobalNumbers(NamedTuple):
    """The numbers of all clusters. A cluster's number is the rank of its first core row
    among those in `firsts`.
    """

    firsts: Array  # frame positions of the first core row of each cluster, ascending
    # for each chunk, the cluster numbers of the components in `SharedRows.tied`
    tied: list[Array]


def clusters_of_chunk(
    block_pair: BlockPair, min_samples: int, threads: int
) -> tuple[ChunkClusters, SharedRows]:
    """Find the clusters of a chunk; `block_pair`: the chunk with itself."""
    chunk, joiner = block_pair.query, block_pair.joiner
    order, position = order_of(chunk), chunk["position"]
    core = cores_of_chunk(block_pair, min_samples, threads)
    core[places_of(order, chunk["far"])] = False
    within = components_by_place(block_pair, core, threads)
    roots = np.flatnonzero(
        core & (within == np.arange(len(within), dtype=within.dtype))
    )
    # the chunk stores its own rows before its halo, so the first row is a halo row only
    # if all rows are
    firsts = position[joiner.least_rows(within, order, threads)[roots]]
    places = places_of(order, chunk["shared"])
    places = places[core[places]]
    number = np.searchsorted(roots, within[places])
    is_tied = np.zeros(len(roots), bool)
    is_tied[number] = True
    found = ChunkClusters(
        core, within, roots[~is_tied], firsts[~is_tied], roots[is_tied]
    )
    shared = (np.cumsum(is_tied) - 1)[number]
    return found, SharedRows(
        np.sort(found.firsts), firsts[is_tied], position[order[places]], shared
    )


def places_of(order: Array, rows: Array) -> Array:
    """Return the places of the given rows, ascending. `order`: the row at each place."""
    taken = np.zeros(len(order), bool)
    taken[rows] = True
    return np.flatnonzero(taken[order])


def number_shared_clusters(*chunks: SharedRows) -> GlobalNumbers:
    """Join components of different chunks if they share a core row, and number all
    clusters.
    """
    root, ends = joined_by_rows(
        [len(some.tied) for some in chunks],
        [some.rows for some in chunks],
        [some.components for some in chunks],
    )
    firsts = np.concatenate([some.tied for some in chunks])
    least = firsts.copy()
    np.minimum.at(least, root, firsts)
    own = root == np.arange(len(root), dtype=root.dtype)
    every = np.sort(np.concatenate([least[own], *(some.alone for some in chunks)]))
    numbers = np.searchsorted(every, least[root])
    return GlobalNumbers(every, [numbers[a:b] for a, b in itertools.pairwise(ends)])


def joined_by_rows(
    numbers: Sequence[int], rows: Sequence[Array], components: Sequence[Array]
) -> tuple[Array, list[int]]:
    """Join components of different chunks that have an equal row. Number the components
    of all chunks consecutively. Return the first component that each one is joined
    with, and where the components of each chunk begin and end (chunks + 1).

    `numbers`: for each chunk, its number of components. `rows`: frame positions of rows
    in them. `components`: the component of each of these rows.
    """
    ends = list(itertools.accumulate(numbers, initial=0))
    every = np.concatenate(rows)
    nodes = np.concatenate(
        [own + start for own, start in zip(components, ends, strict=False)]
    )
    order = np.argsort(every, kind="stable")
    nodes, again = nodes[order], np.flatnonzero(every[order][1:] == every[order][:-1])
    return component_roots(ends[-1], nodes[again], nodes[again + 1]), ends


def labels_of_chunk(
    block_pair: BlockPair,
    number: int,
    threads: int,
    found: ChunkClusters,
    numbers: GlobalNumbers,
) -> Array:
    """Return a label for each of the chunk's own rows, without the halo (n,), int64, in
    frame order; -1: noise.
    """
    core, within = found.core, found.within
    n = len(within)
    # `of_root` is set and read only at the first place of each component
    of_root, labels = np.empty(n, np.int64), np.empty(n, np.int64)
    of_root[found.alone] = np.searchsorted(numbers.firsts, found.firsts)
    of_root[found.tied] = numbers.tied[number]
    kernel = host_kernels("components").labels_of_roots
    shared_out(
        lambda start, stop: kernel(within, core, of_root, start, stop, labels),
        n,
        threads,
    )
    parts: Sequence[BlockPair] = divided(block_pair, threads)
    borders = together(
        [functools.partial(border_labels, part, [labels]) for part in parts]
    )
    rows = labels_of_rows(
        block_pair.query, threads, labels, *itertools.chain.from_iterable(borders)
    )
    return rows[: block_pair.query["own"]]
