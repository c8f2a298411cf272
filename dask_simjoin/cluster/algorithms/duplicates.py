"""Select one row per group of near duplicates: greedily, or one per connected component.

The rows that stay are the lexicographically first maximal independent set of the graph of near rows: no two
of them are near, and each other row is near one of them.  They depend on the order of rows and on nothing
else.  No list of all pairs is needed: where there are more than fit, the first half of the rows is
settled first, and those of the second half that are near what stays of it take no part any more.

A group that lies in one chunk is settled there.  Of those in several each chunk tells its best row, and the
best of these are found in a tree: what travels is a row of each group that crosses chunks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.catalog.dtypes import kind_of_number
from dask_simjoin.cluster.algorithms.dbscan import tied_places
from dask_simjoin.cluster.algorithms.edges import order_of, rows_of_places
from dask_simjoin.engine.base import host_kernels, joiner_for, joiner_of_library
from dask_simjoin.engine.compat import any_of, module_of, to_host, values_of
from dask_simjoin.engine.protocols import Joiner, Layout
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Series
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import Edges, RowNumbers, row_numbers
from dask_simjoin.tasks.matches import BlockPair, by_position

FEW = 2048
"""Rows all of whose pairs fit, as there are two million at most."""

MOST, EACH = 1 << 21, 4
"""Pairs that are collected at a time, if rows are more: so many, and so many of each row.

Where rows have many copies, a smaller number settles most of them sooner.
"""

HostPairs = tuple[np.ndarray, np.ndarray]
"""Rows of pairs (k,), on the host."""


PAIR_BYTES = 64
"""Of a pair, where one task is told all of them."""


class _TooManyError(Exception):
    """Ends a search whose pairs are too many to be collected."""


def stays(x: Array, layout: Layout, joiner: Joiner, few: int = FEW, most: int = MOST) -> Array:
    """Tell which of some points (n, d) stay, (n,) bool: those before others in the array go before them.

    `few`: rows all of whose pairs fit; `most`: pairs that fit besides some of each row, where rows are more.
    """
    xp, n = module_of(x), len(x)
    if n < 2:
        return xp.ones(n, bool)
    pairs = _pairs(joiner.build(x, layout), layout, joiner, None if n <= few else most + EACH * n)
    if pairs is not None:
        return xp.asarray(~dropped(n, *pairs))
    half = n // 2
    found = xp.zeros(n, bool)
    found[:half] = stays(x[:half], layout, joiner, few, most)
    standing = joiner.build(x[:half][found[:half]], layout)
    rest = half + xp.flatnonzero(~_near(standing, joiner.build(x[half:], layout), layout, joiner))
    found[rest] = stays(x[rest], layout, joiner, few, most)
    return found


def _pairs(index: Index, layout: Layout, joiner: Joiner, most: int | None) -> HostPairs | None:
    """List the pairs of an index with itself, the earlier row first; None: they are more than `most`."""
    parts: list[HostPairs] = []
    number = 0

    def visitor(left: Array, right: Array, totals: Array) -> None:
        nonlocal number
        number += len(left)
        if most is not None and number > most:
            raise _TooManyError
        one, other = to_host(left), to_host(right)
        parts.append((np.minimum(one, other), np.maximum(one, other)))

    try:
        joiner.visit(index, index, layout, visitor, same=True)
    except _TooManyError:
        return None
    return concatenated(parts)


def concatenated(parts: Sequence[HostPairs]) -> HostPairs:
    """Put lists of pairs one after the other, as int64."""
    none = np.zeros(0, np.int64)
    left, right = (np.concatenate([none, *(part[side] for part in parts)]) for side in (0, 1))
    return left, right


def dropped(rows: int, earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Tell which rows (n,) bool do not stay, of the pairs of near ones."""
    order = np.argsort(earlier, kind="stable")
    found = np.zeros(rows, bool)
    host_kernels("components").drop_near(earlier[order], later[order], found)
    return found


def _near(standing: Index, index: Index, layout: Layout, joiner: Joiner) -> Array:
    """Tell which rows of an index (n,) bool, by position, are near one of those that stand."""
    counts: Array = joiner.counts(standing, index, layout, same=False, enough=1)[1]
    return counts > 0


def points_of(chunk: Index | Chunk, layout: Layout, joiner: Joiner) -> Array:
    """Take the points (n, d) of a chunk, in the order of its rows."""
    x = joiner.points(chunk, layout)  # type: ignore[arg-type]
    out = joiner.xp.empty_like(x)
    out[chunk["order"][: len(x)]] = x
    return out


def stays_of_chunk(chunk: Chunk, layout: Layout, order: Array | None, *near: Array) -> Array:
    """Tell which rows of a chunk stay (n,) bool.

    `order`: its rows (n,), the first to stay first; None: as they are.  `near`: which rows (n,) bool are near
    others that stay.
    """
    joiner = joiner_for(chunk["example"])
    xp, x = joiner.xp, points_of(chunk, layout, joiner)
    if order is None and not near:
        return stays(x, layout, joiner)
    order = xp.arange(len(x)) if order is None else order
    for some in near:
        order = order[~some[order]]
    found = xp.zeros(len(x), bool)
    found[order] = stays(x[order], layout, joiner)
    return found


def standing_rows(chunk: Chunk, layout: Layout, stay: Array) -> Index | None:
    """Index the rows of a chunk that stay; None: there is none."""
    joiner = joiner_for(chunk["example"])
    x = points_of(chunk, layout, joiner)[stay]
    return joiner.build(x, layout) if len(x) else None


def near_standing(standing: Index | None, chunk: Chunk, layout: Layout) -> Array:
    """Tell which rows of a chunk (n,) bool are near those of another that stay."""
    joiner = joiner_for(chunk["example"])
    if standing is None or not len(chunk["ids"]):
        return joiner.xp.zeros(len(chunk["ids"]), bool)
    return _near(standing, chunk, layout, joiner)  # type: ignore[arg-type]


def pairs_of_block(block_pair: BlockPair, numbers: Sequence[RowNumbers]) -> HostPairs:
    """List the pairs of two chunks by the numbers of their rows."""
    parts: list[HostPairs] = []
    own = numbers[0], numbers[-1]

    def visitor(left: Array, right: Array, totals: Array) -> None:
        sides = (to_host(row_numbers(rows, of)) for rows, of in zip((left, right), own, strict=True))
        one, other = sides
        parts.append((one, other))

    block_pair.joiner.visit(*block_pair.operands, visitor, same=block_pair.same, rows=block_pair.rows)
    return concatenated(parts)


def stays_of_all(library: str, numbers: list[np.ndarray], keys: list[np.ndarray],
                 *pairs: HostPairs) -> list[Array]:  # fmt: skip
    """Tell for each chunk which of its rows stay, of the pairs of all.

    `numbers`, `keys`: of the rows of each chunk: where rows are in the frame, and what says which is to stay,
    the largest first.
    """
    xp = joiner_of_library(library).xp
    every, key = np.concatenate(numbers), np.concatenate(keys)
    by_number = np.argsort(every)
    rank = np.empty(len(every), np.int64)
    rank[np.lexsort((every, ~key))] = np.arange(len(every))
    rank = rank[by_number]
    one, other = (rank[np.searchsorted(every[by_number], side)] for side in concatenated(pairs))
    gone = dropped(len(every), np.minimum(one, other), np.maximum(one, other))
    return [xp.asarray(~gone[rank[np.searchsorted(every[by_number], some)]]) for some in numbers]


FIRST, LAST = "first", "last"

LEAST = np.iinfo(np.int64).min
"""Of values that are missing."""

WIDE = {"i": np.int64, "b": np.int64, "u": np.uint64, "f": np.float64}
"""The largest type of each kind of number."""


def preferences(chunk: Chunk, keep: Hashable, own: RowNumbers) -> Array:
    """Number the rows (n,) of a chunk by what is kept; `own`: the chunk's number, or its rows' positions."""
    xp, rows = joiner_for(chunk["example"]).xp, len(chunk["ids"])
    if keep == FIRST:
        return xp.zeros(rows, np.int64)
    if keep == LAST:
        return row_numbers(xp.arange(rows), own)
    return by_position(chunk, numbers_of(chunk["kept"][keep], xp), xp)


def order_of_preference(keys: Array) -> Array:
    """The order of rows in which they are to stay: by their numbers (n,), the largest first."""
    xp = module_of(keys)
    return _sorted(xp.arange(len(keys)), ~keys)


def best_of(groups: Array, keys: Array, rows: Array) -> Array:
    """Find the places of each group's best row, in the order of groups; all (n,) int64."""
    xp = module_of(groups)
    order = _sorted(rows, ~keys, groups)
    some = groups[order]
    first = xp.ones(len(some), bool)
    first[1:] = some[1:] != some[:-1]
    return order[first]


def numbers_of(column: Series, xp: ArrayModule) -> Array:
    """Numbers (n,) int64 in the order of a column's values."""
    missing = values_of(column.isna())
    kind = kind_of_number(column.dtype)
    values = values_of((column.fillna(0) if any_of(missing) else column).astype(WIDE[kind]))
    if kind == "f":
        bits = (values + 0.0).view(np.int64)  # makes 0.0 of -0.0
        # of negative numbers the larger have the smaller bits
        values = xp.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    elif kind == "u":
        values = (values ^ np.uint64(1 << 63)).view(np.int64)
    return xp.where(missing, LEAST, values)


def _sorted(*keys: Array) -> Array:
    """Sort by the last of some keys (n,) int64, then by the one before it, and so on."""
    xp = module_of(keys[0])
    return xp.lexsort(xp.stack([some.astype(np.int64) for some in keys]))


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
