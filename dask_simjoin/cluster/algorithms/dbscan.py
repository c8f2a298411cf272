"""Cluster chunks by DBSCAN, step by step.

Lists of neighbors are not stored. Counts of neighbors identify the core rows. Core rows
are connected to components, first within each chunk. Then edges across chunks need to
connect only components, which are few. A tree of tasks merges these edges.

Clusters are numbered by their first core rows. A cluster begins in the chunk of its
first core row. Each chunk counts the clusters that begin in it, and receives the
numbers of its other clusters. A border row gets the lowest number among its core
neighbors. So labels equal those by scikit-learn, for any chunks.

A place is the position of a row in the index of its chunk: see `edges`. The row number
of a row combines the number of its chunk and its place. Three steps search neighbors.
Several tasks may share each step: each task handles some places of a chunk.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from dask_simjoin.catalog import AUTO
from dask_simjoin.cluster.algorithms.edges import (
    all_cores,
    by_place,
    components_by_place,
    cores_by_place,
    counts_by_place,
    divided,
    for_places,
    joined,
    order_of,
    ranged_of,
)
from dask_simjoin.engine.base import (
    density_of,
    host_kernels,
    joiner_for,
    joiner_of_library,
)
from dask_simjoin.engine.compat import labels_at, module_of
from dask_simjoin.engine.process import shared_out, together
from dask_simjoin.engine.protocols import Layout, Rows
from dask_simjoin.metrics.norms import Array
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import (
    CHUNK,
    Edges,
    RowNumbers,
    new_nodes,
    no_edges,
    spanning_forest,
)
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.named_tuples import sent_by_fields


@sent_by_fields
class ComponentClusters(NamedTuple):
    """The components of a chunk: the first place and the cluster of each component.
    Arrays are int64.

    A cluster that begins in the chunk is identified by its rank, any other cluster by a
    row number. If chunks are not in frame order, ranks are for clusters within one
    chunk only: the frame positions of their first rows.
    """

    own: Array  # (k,): first places of the components whose clusters have ranks
    # (k,): rank of each of these clusters among all that begin in the chunk
    ranks: Array
    tied: Array  # (m,): first places of the other components
    names: Array  # (m,): row numbers that identify the clusters of the other components


@sent_by_fields
class StartingClusters(NamedTuple):
    """The clusters that begin in a chunk; arrays are int64.

    If chunks are not in frame order, no chunk knows whether a shared cluster begins in
    it. Then `names` has every cluster shared with other chunks, and ranks are frame
    positions of the clusters' first rows in this chunk.
    """

    # number of clusters that begin here. If chunks are not in frame order: the ranks of
    # clusters in this chunk only
    alone: int | Array
    # (k,), ascending: row numbers that identify clusters in several chunks
    names: Array
    ranks: Array  # (k,): rank of each of these clusters among all that begin here


@sent_by_fields
class ClusterNumbering(NamedTuple):
    """Data that chunks use to compute the numbers of their clusters; arrays are int64."""

    # for each chunk, the number of the first cluster that begins in it; empty if chunks
    # are not in frame order
    starts: list[int]
    # if chunks are not in frame order: frame positions of the first rows of all
    # clusters, ascending
    firsts: Array
    # (k,), ascending: row numbers that identify clusters in several chunks
    names: Array
    numbers: Array  # (k,): their cluster numbers


def edges_across(
    block_pair: BlockPair,
    numbers: tuple[int, int],
    core: Sequence[Array | None],
    within: Sequence[Array],
) -> Edges:
    """Return a minimal set of edges that connect the components of two chunks.

    Each end of an edge is the row number of a component's first place. `numbers`: the
    numbers of both chunks. `core`, `within`: for each chunk, which places are core
    rows (None: all), and the component of each place.
    """
    placed, xp = by_place(block_pair), block_pair.xp
    cores = [
        all_cores(chunk) if own is None else own
        for chunk, own in zip((block_pair.query, block_pair.data), core, strict=True)
    ]
    offset = len(within[0])
    nodes = new_nodes(offset + len(within[1]), xp)
    parent = xp.concatenate(
        [within[0].astype(nodes.dtype), within[1].astype(nodes.dtype) + offset]
    )
    first = (parent == nodes) & xp.concatenate(cores)
    joiner = placed.joiner
    joiner.connect(
        *placed.operands,
        parent,
        tuple(cores),
        offset,
        is_self_join=False,
        rows=block_pair.rows,
    )
    joiner.roots(parent)
    tied = xp.flatnonzero(first & (parent != nodes))

    def named(some: Array) -> Array:
        found = some.astype(np.int64) + numbers[0] * CHUNK
        found[some >= offset] += (numbers[1] - numbers[0]) * CHUNK - offset
        return found

    return named(tied), named(parent[tied])


def merge_edges(library: str, *parts: Edges) -> Edges:
    """Reduce lists of edges to a spanning forest: see `spanning_forest`."""
    joiner = joiner_of_library(library)
    return spanning_forest(parts, joiner) if parts else no_edges(joiner.xp)


def crossing_places(own: RowNumbers, forest: Edges) -> tuple[Array, Array]:
    """Return the places of a chunk where edges across chunks start, and the row numbers
    where these edges end.

    `own`: the number of the chunk, or the row numbers of its places, ascending.
    """
    xp = module_of(forest[0])
    left, right = forest
    if isinstance(own, int):
        start, stop = xp.searchsorted(
            left, xp.asarray([own * CHUNK, (own + 1) * CHUNK])
        ).tolist()
        return left[start:stop] - own * CHUNK, right[start:stop]
    places = xp.searchsorted(own, left).clip(0, max(len(own) - 1, 0))
    found = own[places] == left if len(own) else xp.zeros(len(left), bool)
    return places[found], right[found]


def starting_clusters(
    chunk: Chunk, number: int, threads: int, core: Array, within: Array, forest: Edges
) -> tuple[ComponentClusters, StartingClusters]:
    """Find the clusters of the components in chunk `number`, and the clusters that
    begin there.

    `forest`: the edges across all chunks.
    """
    xp = module_of(within)
    least = joiner_for(chunk["example"]).least_rows(within, order_of(chunk), threads)
    tied, names = crossing_places(number, forest)
    begins = core & (within == xp.arange(len(within), dtype=within.dtype))
    begins[tied] = False
    own = xp.flatnonzero(begins)
    several, right = xp.zeros(len(within), bool), forest[1] - number * CHUNK
    several[right[(right >= 0) & (right < len(within))]] = True
    some = several[own]
    here = own[some] + number * CHUNK
    # chunks are in frame order, so a cluster begins in the chunk of its smallest row
    # number
    if "position" not in chunk:
        # edges from this chunk that also end in this chunk: other chunks connect these
        # components
        near = names >= number * CHUNK
        xp.minimum.at(least, names[near] - number * CHUNK, least[tied[near]])
        ranks = xp.empty(len(own), np.int64)
        ranks[xp.argsort(least[own])] = xp.arange(len(own))
        return ComponentClusters(own, ranks, tied, names), StartingClusters(
            len(own), here, ranks[some]
        )
    firsts, alone = chunk["position"][least[own]], own[~some]
    tied, names = xp.concatenate([own[some], tied]), xp.concatenate([here, names])
    begun = StartingClusters(firsts[~some], names, chunk["position"][least[tied]])
    return ComponentClusters(alone, firsts[~some], tied, names), begun


def number_clusters(in_order: bool, *begun: StartingClusters) -> ClusterNumbering:
    """Number all clusters. `in_order`: whether the chunks are in frame order."""
    xp = module_of(begun[0].names)
    names = xp.concatenate([some.names for some in begun])
    if in_order:
        starts = list(itertools.accumulate((some.alone for some in begun), initial=0))
        numbers = [
            some.ranks + start for some, start in zip(begun, starts, strict=False)
        ]
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
    number: int,
    core: Array,
    within: Array,
    standing: ComponentClusters,
    numbering: ClusterNumbering,
) -> Array:
    """For each place of chunk `number`, return the cluster of its core row, or -1 (n,),
    int64.
    """
    xp = module_of(within)
    starts, firsts, names, numbers = numbering
    ranks, label = standing.ranks, xp.empty(len(within), np.int64)
    label[standing.own] = (
        ranks + starts[number] if starts else xp.searchsorted(firsts, ranks)
    )
    label[standing.tied] = numbers[xp.searchsorted(names, standing.names)]
    return xp.where(core, label[within], -1)


NO_LABEL = np.iinfo(np.int64).max

Border = tuple[Array, Array]
"""Border places of a chunk, ascending, and for each of them the lowest label among its
core neighbors.
"""


def border_labels(block_pair: BlockPair, labels: Sequence[Array]) -> tuple[Border, ...]:
    """For each place in two chunks, or in one, find the lowest label among its core
    neighbors.

    Places without core neighbors are omitted.

    `labels`: label of each place of each chunk; -1: not a core row. With two chunks,
    only neighbors in the other chunk count.
    """
    xp, low = block_pair.xp, lowest_labels(block_pair, labels)
    start, stop = _own_places(block_pair) or (0, None)
    # most places have no core neighbor, so a list of the others is shorter than an
    # array of all
    return tuple(
        (rows + start, own[rows])
        for own in (some[start:stop] for some in low)
        for rows in (xp.flatnonzero(own < NO_LABEL),)
    )


def _own_places(block_pair: BlockPair) -> Rows | None:
    """Return the places that this share of the work labels, if no other share labels
    them; else None.
    """
    return None if ranged_of(block_pair) is None else block_pair.places


def lowest_labels(block_pair: BlockPair, labels: Sequence[Array]) -> list[Array]:
    """For each place of each chunk, return the lowest label among its core neighbors
    (n,).

    The label is `NO_LABEL` if a place has no core neighbor. Only `_own_places` are set.
    """
    joiner, is_self_join, placed = (
        block_pair.joiner,
        block_pair.is_self_join,
        by_place(block_pair),
    )
    low = [joiner.xp.empty(len(some), np.int64) for some in labels]
    start, stop = _own_places(block_pair) or (0, None)
    for some in low:  # memory that is not written need not exist
        some[start:stop] = NO_LABEL
    # `cupy.any` is avoided because it takes seconds to compile
    if any(len(some) and int(some.min()) < 0 for some in labels):
        lists = (labels[0], labels[-1]), (low[0], low[-1])
        joiner.lowest(
            *placed.operands, *lists, is_self_join=is_self_join, rows=block_pair.places
        )
    return low


def labels_of_rows(
    chunk: Chunk, threads: int, labels: Array, *borders: Border
) -> Array:
    """Return the label of each row, in row order (n,).

    `labels`: labels of core rows, by place. `borders`: labels of border rows.
    """
    order = order_of(chunk)
    if module_of(labels) is not np:
        return labels_at(order, _final(labels, *borders) if borders else labels)
    out, scatter = np.empty_like(labels), host_kernels("totals").scatter

    def some(start: int, stop: int) -> None:
        here = [np.searchsorted(rows, [start, stop]) for rows, _ in borders]
        near = [
            (rows[a:b] - start, low[a:b])
            for (rows, low), (a, b) in zip(borders, here, strict=True)
        ]
        scatter(order[start:stop], _final(labels[start:stop], *near), out)

    shared_out(some, len(labels), threads)
    return out


def _final(labels: Array, *borders: Border) -> Array:
    xp, final = module_of(labels), labels.copy()
    for rows, low in borders:
        so_far = final[rows]
        final[rows] = xp.where(so_far < 0, low, xp.minimum(so_far, low))
    return final


def labels_by_place(chunk: Chunk, threads: int, core: Array, *parts: Array) -> Array:
    """For each place of a single chunk, return the cluster of its row (n,), int64; -1
    if the row is not a core row.

    `parts`: the components found by each share of the work.
    """
    joiner = joiner_for(chunk["example"])
    return joiner.numbers(joined(parts, joiner), (core, order_of(chunk)), threads)


def cores_of_chunk(block_pair: BlockPair, min_samples: int, threads: int = 1) -> Array:
    """For a single chunk, return a mask of the places whose rows are core rows (n,)."""
    ranged = ranged_of(block_pair)
    if ranged is None:
        calls = [
            functools.partial(counts_by_place, part, min_samples)
            for part in divided(block_pair, threads)
        ]
        counts = itertools.chain.from_iterable(together(calls, threads))
        return cores_by_place(min_samples, *counts)
    (index, _, layout), least = block_pair.operands, min_samples - 1
    found = np.zeros(len(index["order"]), np.int64)
    core = np.empty(len(block_pair.query["ids"]), np.bool_)

    def count(start: int, stop: int) -> None:
        ranged.counts_of(index, layout, (start, stop), found, least)
        np.greater_equal(found[start:stop], least, out=core[start:stop])

    for_places(count, block_pair, threads)
    return core


def dbscan_of_chunk(block_pair: BlockPair, core: Array, threads: int = 1) -> Array:
    """Label the rows of a single chunk. `core`: mask of the places with a core row."""
    within = components_by_place(block_pair, core, threads)
    labels = labels_by_place(block_pair.query, threads, core, within)
    del within  # the border labels need the memory
    ranged, order = ranged_of(block_pair), order_of(block_pair.query)
    if ranged is None:
        xp, (low,) = block_pair.xp, lowest_labels(block_pair, [labels])
        return labels_at(order, xp.where(low < NO_LABEL, low, labels))
    index, _, layout = block_pair.operands
    shared = ranged.shared_to_label(labels)
    low, by_row = np.empty_like(labels), np.empty_like(labels)
    scatter = host_kernels("totals").scatter

    def label(start: int, stop: int) -> None:
        some = slice(start, stop)
        low[some] = NO_LABEL
        ranged.lowest_of(index, layout, (start, stop), labels, low, shared)
        final = np.where(low[some] < NO_LABEL, low[some], labels[some])
        scatter(order[some], final, by_row)

    for_places(label, block_pair, threads)
    return by_row


def by_density(layout: Layout) -> bool:
    """Return whether an index is for `label_by_density` instead of a join."""
    return layout.method in ("cells", "boxes")


def layout_for_density(
    min_samples: int, threads: int, layout: Layout, x: Array
) -> Layout:
    """Return a layout for `label_by_density` if that is faster for the points `x` (n,
    d), else the planned layout.
    """
    found = density_of(x).layout_of(x, layout, min_samples, threads)
    return layout if found is None else cast(Layout, found)


def cores_by_density(block_pair: BlockPair, min_samples: int, threads: int) -> Array:
    """Do the work of `cores_of_chunk` without a join."""
    index, _, layout = block_pair.operands
    module = density_of(index["order"])
    return module.DensityClusters(index, layout, threads).cores(min_samples)


def label_by_density(
    chunk: Chunk, layout: Layout, min_samples: int, threads: int
) -> tuple[Array, Array]:
    """Label the rows of a single chunk without a join; also return a mask of the places
    with core rows.
    """
    order = order_of(chunk)
    found = density_of(order).DensityClusters(chunk, layout, threads)
    core = found.cores(min_samples)
    labels = joiner_for(chunk["example"]).numbers(
        found.components(), (core, order), threads
    )
    return labels_of_rows(chunk, threads, labels, *found.borders(labels)), core


def label_chunk(block_pair: BlockPair, min_samples: int, threads: int) -> Array:
    """Label the rows of a single chunk in one task, which is faster than a chain of
    tasks.
    """
    index, _, layout = block_pair.operands
    spec = block_pair.spec
    automatic = spec.search.method == AUTO and not spec.gated
    if block_pair.xp is np and automatic:
        x = block_pair.joiner.points(index, layout)
        cells = layout_for_density(min_samples, threads, layout, x)
        if cells is not layout:
            chunk, places = block_pair.query, block_pair.joiner.build(x, cells, threads)
            order = index["order"][places["order"]]
            by_cells = cast(Chunk, chunk | places | {"order": order})
            return label_by_density(by_cells, cells, min_samples, threads)[0]
    core = cores_of_chunk(block_pair, min_samples, threads)
    return dbscan_of_chunk(block_pair, core, threads)
