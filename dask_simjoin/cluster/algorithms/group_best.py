"""Choose one row of each group of connected rows, chunk by chunk.

A group that lies in one chunk is settled there.  Of those in several each chunk tells its best row, and the
best of these are found in a tree: what travels is a row of each group that crosses chunks.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from dask_simjoin.cluster.algorithms.dbscan import tied_places
from dask_simjoin.cluster.algorithms.places import order_of, rows_of_places
from dask_simjoin.cluster.algorithms.preference import best_of, preferences
from dask_simjoin.engine.compat import module_of
from dask_simjoin.metrics.types import Array
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.components import Edges
from dask_simjoin.tasks.row_numbers import RowNumbers, row_numbers


class Candidates(NamedTuple):
    """Hold the best rows of groups that lie in several chunks.

    Attributes
    ----------
    groups : array (k,), int64
        The numbers of the groups' first rows, ascending.
    keys, rows : array (k,), int64
        What says which row is better, and the numbers of the rows.
    """

    groups: Array
    keys: Array
    rows: Array


class GroupRows(NamedTuple):
    """Hold the best rows of a chunk's groups.

    Attributes
    ----------
    settled : array (k,), int64
        Those of groups that lie in this chunk alone.
    open : array (m,), int64
        Those of the others, about which the candidates tell.
    candidates : Candidates
    """

    settled: Array
    open: Array
    candidates: Candidates


def best_of_chunk(chunk: Chunk, number: int, keep: Hashable, own: RowNumbers, within: Array,
                  forest: Edges) -> GroupRows:  # fmt: skip
    """Find the best row of each group in the chunk of that number, all rows being told by their places.

    `own`: its rows' positions in the frame, or its number; `within`, `forest`: see `add_components`.
    """
    order = order_of(chunk)
    keys = preferences(chunk, keep, own)[order]
    return best_rows(within, number, forest, keys, row_numbers(order, own))


def best_rows(within: Array, own: RowNumbers, forest: Edges, keys: Array,
              numbers: Array | None = None) -> GroupRows:  # fmt: skip
    """Find the best row of each group in a chunk.

    `within`: the first row of each row's group there (n,); `own`: the rows' numbers, or the chunk's;
    `forest`: the edges across all chunks; `keys`: what says which row is better (n,); `numbers` (n,), int64:
    which is where keys do not say it, the smaller; None: the rows'.
    """
    xp = module_of(within)
    rows = xp.arange(len(within))
    roots = xp.flatnonzero(within == rows)
    tied, elsewhere = tied_places(own, forest)
    names = row_numbers(rows, own)
    numbers = names.copy() if numbers is None else numbers
    crossing = xp.zeros(len(within), bool)
    crossing[roots] = xp.isin(names[roots], forest[1])
    names[tied], crossing[tied] = elsewhere, True
    best = best_of(within.astype(np.int64), keys, numbers)
    open_ = best[crossing[within[best]]]
    groups = names[within[open_]]
    # two parts of a group may lie in one chunk, which only other chunks connect
    some = best_of(groups, keys[open_], numbers[open_])
    open_, groups = open_[some], groups[some]
    told = Candidates(groups, keys[open_], numbers[open_])
    return GroupRows(best[~crossing[within[best]]], open_, told)


def merge_candidates(*parts: Candidates) -> Candidates:
    """Keep the best row of each group."""
    xp = module_of(parts[0].groups)
    groups, keys, rows = (xp.concatenate(column) for column in zip(*parts, strict=True))
    best = best_of(groups, keys, rows)
    return Candidates(groups[best], keys[best], rows[best])


def stays_in_chunk(chunk: Chunk, found: GroupRows, winners: Candidates) -> Array:
    """Tell which rows of a chunk stay (n,) bool; `found`: told by their places."""
    order = order_of(chunk)
    return rows_of_places(stays_of_groups(found, len(order), winners), order)


def stays_of_groups(found: GroupRows, rows: int, winners: Candidates) -> Array:
    """Tell which rows of a chunk stay (n,) bool: the best of each group."""
    xp, own = module_of(found.settled), found.candidates
    stay = xp.zeros(rows, bool)
    stay[found.settled] = True
    places = xp.searchsorted(winners.groups, own.groups)
    stay[found.open] = winners.rows[places] == own.rows
    return stay
