"""Mark near duplicates separately in each chunk, with a halo of `eps` around its region.

A chunk has all neighbors of its own rows. So it decides alone which of these have a
neighbor, if all rows with a neighbor are dropped.

If one row per connected component is kept, each chunk finds the components of its rows
and of its halo. A component without halo rows has no edges to other rows, so the chunk
chooses its best row. For each other component with own rows, the chunk sends the best
row. It also sends those rows of the component that other chunks may have. If two chunks
send the same row, its components in both belong to one component. Each edge between two
regions is found: in the chunk of each region, one of its rows is in the halo. A
component of halo rows alone need not be sent, because the chunks that own these rows
also find its edges. One task joins the components, and chooses the best row of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from dask_simjoin.cluster.algorithms.dbscan import cores_of_chunk
from dask_simjoin.cluster.algorithms.duplicates import (
    best_by_place,
    best_of,
    priorities,
)
from dask_simjoin.cluster.algorithms.edges import components_by_place, order_of
from dask_simjoin.cluster.algorithms.halo_dbscan import joined_by_rows, places_of
from dask_simjoin.metrics.norms import Array
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.named_tuples import sent_by_fields


@sent_by_fields
class ChunkGroups(NamedTuple):
    """The best rows of the components in a chunk, as positions in the chunk."""

    settled: Array  # best rows of the components without halo rows (k,)
    open: Array  # best rows of the components with own rows and halo rows (m,)


@sent_by_fields
class SharedGroups(NamedTuple):
    """The message that a chunk sends about its components with own rows and halo rows.

    One task needs the messages of all chunks to choose the rows to keep.
    """

    keys: Array  # for each component, the priority of its best row (m,)
    best: Array  # frame positions of these rows (m,)
    rows: Array  # frame positions of the rows that other chunks may also have (r,)
    groups: Array  # the component of each of these rows, as a position in `best` (r,)


def groups_of_chunk(
    block_pair: BlockPair, keep: Hashable, threads: int
) -> tuple[ChunkGroups, SharedGroups]:
    """Find the components of a chunk; `block_pair`: the chunk with itself."""
    chunk = block_pair.query
    order, position = order_of(chunk), chunk["position"]
    within = components_by_place(block_pair, None, threads)
    in_halo, number = order >= chunk["own"], len(within)
    has_halo, has_own = np.zeros(number, bool), np.zeros(number, bool)
    has_halo[within[in_halo]] = True
    has_own[within[~in_halo]] = True
    keys, rows = priorities(chunk, keep, position)[order], position[order]
    best = best_by_place(within, keys, rows)
    root = within[best]
    settled, open_ = best[~has_halo[root]], best[has_halo[root] & has_own[root]]
    # only set and read for components that are sent
    group = np.empty(number, np.int64)
    group[within[open_]] = np.arange(len(open_))
    places = places_of(order, chunk["shared"])
    root = within[places]
    sent = has_halo[root] & has_own[root]
    return ChunkGroups(order[settled], order[open_]), SharedGroups(
        keys[open_], rows[open_], rows[places[sent]], group[root[sent]]
    )


def choose_winners(*chunks: SharedGroups) -> list[Array]:
    """Join components of different chunks if they have an equal row. For each chunk,
    return the row to keep for each component that it has sent, as frame positions.
    """
    root, ends = joined_by_rows(
        [len(some.best) for some in chunks],
        [some.rows for some in chunks],
        [some.groups for some in chunks],
    )
    best = np.concatenate([some.best for some in chunks])
    top = best_of(root, np.concatenate([some.keys for some in chunks]), best)
    winner = np.empty_like(best)
    winner[root[top]] = best[top]
    every = winner[root]
    return [every[start:stop] for start, stop in itertools.pairwise(ends)]


def marks_of_chunk(
    block_pair: BlockPair,
    number: int,
    threads: int,
    found: ChunkGroups,
    winners: list[Array],
) -> Array:
    """Return a mark for each of the chunk's own rows (n,), int64: 0 for rows to keep,
    else 1.

    `number`: number of the chunk. `threads`: not used; labels of DBSCAN need it.
    """
    chunk = block_pair.query
    marks = np.ones(chunk["own"], np.int64)
    # a winner of the halo is marked by the chunk of its region
    won = (chunk["position"][found.open] == winners[number]) & (found.open < len(marks))
    marks[found.settled], marks[found.open[won]] = 0, 0
    return marks


def near_others(block_pair: BlockPair, threads: int) -> Array:
    """Return a mark for each of the chunk's own rows (n,), int64: 1 for rows that are
    near another row, else 0.

    `block_pair`: the chunk with itself.
    """
    chunk = block_pair.query
    marks = np.empty(len(chunk["ids"]), np.int64)
    # a row with a neighbor has two rows near it, counting itself
    marks[order_of(chunk)] = cores_of_chunk(block_pair, 2, threads)
    return marks[: chunk["own"]]
