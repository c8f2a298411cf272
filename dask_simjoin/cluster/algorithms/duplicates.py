"""Select the rows to keep of near duplicates: greedily, or one per connected component.

Greedily, a row is kept if it is not near an earlier kept row. So no two kept rows are near, and each other
row is near a kept row. They are the lexicographically first maximal independent set of near rows. If the
list of all pairs does not fit, the first half of the rows is decided first. Rows of the second half that are
near a kept row are dropped, before the rest of the second half is decided.

For a connected component in several chunks, each chunk sends its best row, and a tree of tasks finds the best
of these.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.catalog import kind_of_number
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
"""Number of rows whose pairs always fit: they have at most two million."""

MAX_PAIRS, PAIRS_PER_ROW = 1 << 21, 4
"""Capacity of the pair buffer for more rows: a constant, and an addition per row.

If rows have many copies, a small buffer is full soon, and halving the rows drops most copies.
"""

HostPairs = tuple[np.ndarray, np.ndarray]
"""Rows of pairs (k,), on the host."""

PAIR_BYTES = 64
"""Bytes per pair in a task that receives all pairs."""

CONNECTED = "connected"
"""The grouping by connected components."""


class _TooManyError(Exception):
    """Stops a search with more pairs than the buffer holds."""


def stays(x: Array, layout: Layout, joiner: Joiner, few: int = FEW, max_pairs: int = MAX_PAIRS) -> Array:
    """Return which of the points (n, d) to keep (n,) bool; earlier points take precedence.

    `few`, `max_pairs`: see `FEW` and `MAX_PAIRS`.
    """
    xp, n = module_of(x), len(x)
    if n < 2:
        return xp.ones(n, bool)
    capacity = None if n <= few else max_pairs + PAIRS_PER_ROW * n
    pairs = _pairs(joiner.build(x, layout), layout, joiner, capacity)
    if pairs is not None:
        return xp.asarray(~dropped(n, *pairs))
    half = n // 2
    found = xp.zeros(n, bool)
    found[:half] = stays(x[:half], layout, joiner, few, max_pairs)
    standing = joiner.build(x[:half][found[:half]], layout)
    rest = half + xp.flatnonzero(~_near(standing, joiner.build(x[half:], layout), layout, joiner))
    found[rest] = stays(x[rest], layout, joiner, few, max_pairs)
    return found


def _pairs(index: Index, layout: Layout, joiner: Joiner, max_pairs: int | None) -> HostPairs | None:
    """List the pairs of an index with itself, the earlier row first; None: more pairs than `max_pairs`."""
    parts: list[HostPairs] = []
    number = 0

    def visitor(left: Array, right: Array, totals: Array) -> None:
        nonlocal number
        number += len(left)
        if max_pairs is not None and number > max_pairs:
            raise _TooManyError
        one, other = to_host(left), to_host(right)
        parts.append((np.minimum(one, other), np.maximum(one, other)))

    try:
        joiner.visit(index, index, layout, visitor, is_self_join=True)
    except _TooManyError:
        return None
    return concatenated(parts)


def concatenated(parts: Sequence[HostPairs]) -> HostPairs:
    """Concatenate lists of pairs as int64."""
    none = np.zeros(0, np.int64)
    left, right = (np.concatenate([none, *(part[side] for part in parts)]) for side in (0, 1))
    return left, right


def dropped(rows: int, earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Return which rows (n,) bool to drop, from the earlier and the later row of each pair."""
    order = np.argsort(earlier, kind="stable")
    found = np.zeros(rows, bool)
    host_kernels("components").drop_near(earlier[order], later[order], found)
    return found


def _near(standing: Index, index: Index, layout: Layout, joiner: Joiner) -> Array:
    """Return which rows of an index (n,) bool, by position, are near a row of `standing`."""
    counts: Array = joiner.counts(standing, index, layout, is_self_join=False, enough=1)[1]
    return counts > 0


def points_of(chunk: Index | Chunk, layout: Layout, joiner: Joiner) -> Array:
    """Return the points (n, d) of a chunk, in row order."""
    x = joiner.points(chunk, layout)  # type: ignore[arg-type]
    out = joiner.xp.empty_like(x)
    out[chunk["order"][: len(x)]] = x
    return out


def stays_of_chunk(chunk: Chunk, layout: Layout, order: Array | None, *near: Array) -> Array:
    """Return which rows of a chunk to keep (n,) bool.

    `order`: the rows (n,) in order of precedence; None: in row order. `near`: which rows (n,) bool are near
    kept rows, for each of some other chunks.
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
    """Index the kept rows of a chunk; None: no row is kept."""
    joiner = joiner_for(chunk["example"])
    x = points_of(chunk, layout, joiner)[stay]
    return joiner.build(x, layout) if len(x) else None


def near_standing(standing: Index | None, chunk: Chunk, layout: Layout) -> Array:
    """Return which rows of a chunk (n,) bool are near the kept rows of another chunk."""
    joiner = joiner_for(chunk["example"])
    if standing is None or not len(chunk["ids"]):
        return joiner.xp.zeros(len(chunk["ids"]), bool)
    return _near(standing, chunk, layout, joiner)  # type: ignore[arg-type]


def pairs_of_block(block_pair: BlockPair, numbers: Sequence[RowNumbers]) -> HostPairs:
    """List the pairs of two chunks by the numbers of their rows."""
    parts: list[HostPairs] = []

    def visitor(left: Array, right: Array, totals: Array) -> None:
        parts.append((to_host(row_numbers(left, numbers[0])), to_host(row_numbers(right, numbers[-1]))))

    block_pair.joiner.visit(*block_pair.operands, visitor, is_self_join=block_pair.same, rows=block_pair.rows)
    return concatenated(parts)


def stays_of_all(library: str, numbers: list[np.ndarray], keys: list[np.ndarray],
                 *pairs: HostPairs) -> list[Array]:  # fmt: skip
    """Return which rows of each chunk to keep, from the pairs of all chunks.

    `numbers`, `keys`: positions in the frame and preferences of each chunk's rows; larger keys win.
    """
    xp = joiner_of_library(library).xp
    every, key = np.concatenate(numbers), np.concatenate(keys)
    by_number = np.argsort(every)
    rank = np.empty(len(every), np.int64)
    rank[np.lexsort((every, ~key))] = np.arange(len(every))
    rank = rank[by_number]
    one, other = (rank[np.searchsorted(every[by_number], side)] for side in concatenated(pairs))
    is_dropped = dropped(len(every), np.minimum(one, other), np.maximum(one, other))
    return [xp.asarray(~is_dropped[rank[np.searchsorted(every[by_number], some)]]) for some in numbers]


FIRST, LAST = "first", "last"
"""Values of the option `keep`; else it names a column, and the largest value is kept."""

LEAST = np.iinfo(np.int64).min
"""The preference key of a missing value."""

WIDE = {"i": np.int64, "b": np.int64, "u": np.uint64, "f": np.float64}
"""The widest type of each kind of number."""


def preferences(chunk: Chunk, keep: Hashable, own: RowNumbers) -> Array:
    """Return the preference key of each row (n,) for the option `keep`; larger keys win.

    `own`: the chunk's number, or the rows' positions in the frame.
    """
    xp, rows = joiner_for(chunk["example"]).xp, len(chunk["ids"])
    if keep == FIRST:
        return xp.zeros(rows, np.int64)
    if keep == LAST:
        return row_numbers(xp.arange(rows), own)
    return by_position(chunk, numbers_of(chunk["kept"][keep], xp), xp)


def order_of_preference(keys: Array) -> Array:
    """Return the rows in order of preference (n,), the largest first."""
    xp = module_of(keys)
    return _sorted(xp.arange(len(keys)), ~keys)


def best_of(groups: Array, keys: Array, rows: Array) -> Array:
    """Return the place of the best row of each group, int64, in the order of groups."""
    xp = module_of(groups)
    order = _sorted(rows, ~keys, groups)
    some = groups[order]
    first = xp.ones(len(some), bool)
    first[1:] = some[1:] != some[:-1]
    return order[first]


def numbers_of(column: Series, xp: ArrayModule) -> Array:
    """Convert a column's values to integers (n,) int64 that are in the same order."""
    missing = values_of(column.isna())
    kind = kind_of_number(column.dtype)
    values = values_of((column.fillna(0) if any_of(missing) else column).astype(WIDE[kind]))
    if kind == "f":
        bits = (values + 0.0).view(np.int64)  # -0.0 becomes 0.0
        # the bits of negative floats are in reverse order
        values = xp.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    elif kind == "u":
        values = (values ^ np.uint64(1 << 63)).view(np.int64)
    return xp.where(missing, LEAST, values)


def _sorted(*keys: Array) -> Array:
    """Return the order of rows by the last key (n,); of ties by the key before it, and so on."""
    xp = module_of(keys[0])
    return xp.lexsort(xp.stack([some.astype(np.int64) for some in keys]))


class Candidates(NamedTuple):
    """Hold the best row of each group in several chunks; arrays are (k,) int64."""

    groups: Array  # row numbers that identify the groups, ascending
    keys: Array  # preference keys of the best rows
    rows: Array  # row numbers of the best rows


class GroupRows(NamedTuple):
    """Hold the best rows of a chunk's groups."""

    settled: Array  # best rows of groups within this chunk (k,) int64
    open: Array  # best rows of groups in several chunks (m,) int64
    candidates: Candidates  # the same rows, to compare with other chunks


def best_of_chunk(chunk: Chunk, number: int, keep: Hashable, own: RowNumbers, within: Array,
                  forest: Edges) -> GroupRows:  # fmt: skip
    """Find the best row of each group in the chunk `number`, by places.

    `own`: the chunk's number, or its rows' positions in the frame. `within`, `forest`: see `add_components`.
    """
    order = order_of(chunk)
    keys = preferences(chunk, keep, own)[order]
    return best_rows(within, number, forest, keys, row_numbers(order, own))


def best_rows(within: Array, own: RowNumbers, forest: Edges, keys: Array,
              numbers: Array | None = None) -> GroupRows:  # fmt: skip
    """Find the best row of each group in a chunk.

    `within` (n,): the first row of each row's group in the chunk. `own`: the row numbers, or the chunk's
    number. `forest`: the edges across all chunks. `keys` (n,): preferences; of equal keys, the smallest of
    `numbers` (n,) int64 wins. Default: row numbers.
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
    # a group may have several components here, which other chunks connect
    some = best_of(groups, keys[open_], numbers[open_])
    open_, groups = open_[some], groups[some]
    candidates = Candidates(groups, keys[open_], numbers[open_])
    return GroupRows(best[~crossing[within[best]]], open_, candidates)


def merge_candidates(*parts: Candidates) -> Candidates:
    """Keep the best candidate of each group."""
    xp = module_of(parts[0].groups)
    groups, keys, rows = (xp.concatenate(column) for column in zip(*parts, strict=True))
    best = best_of(groups, keys, rows)
    return Candidates(groups[best], keys[best], rows[best])


def stays_in_chunk(chunk: Chunk, found: GroupRows, winners: Candidates) -> Array:
    """Return which rows of a chunk to keep (n,) bool; `found`: by places."""
    order = order_of(chunk)
    return rows_of_places(stays_of_groups(found, len(order), winners), order)


def stays_of_groups(found: GroupRows, rows: int, winners: Candidates) -> Array:
    """Return which rows of a chunk to keep (n,) bool: the best of each group."""
    xp, own = module_of(found.settled), found.candidates
    stay = xp.zeros(rows, bool)
    stay[found.settled] = True
    places = xp.searchsorted(winners.groups, own.groups)
    stay[found.open] = winners.rows[places] == own.rows
    return stay
