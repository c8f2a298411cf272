"""Select the rows to keep of near duplicates: greedily, or one per connected component.

The greedy rule visits rows in descending order of priority. It keeps a row if it is not near a row that was
kept before. So no two kept rows are near each other, and each dropped row is near a kept row. The kept rows
are the lexicographically first maximal independent set. If the list of all pairs does not fit, the rule is
applied to the first half of the rows. Rows of the second half that are near a kept row are dropped. Then the
rule is applied to the rest of the second half.

If a connected component has rows in several chunks, each chunk sends its best row: the one with the
largest priority. A tree of tasks finds the best of these.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.catalog import kind_of_number
from dask_simjoin.cluster.algorithms.dbscan import crossing_places
from dask_simjoin.cluster.algorithms.edges import order_of, rows_of_places
from dask_simjoin.engine.base import host_kernels, joiner_for, joiner_of_library
from dask_simjoin.engine.compat import any_of, module_of, to_host, values_of
from dask_simjoin.engine.protocols import Joiner, Layout
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Series
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import Edges, RowNumbers, row_numbers
from dask_simjoin.tasks.matches import BlockPair, by_position

FEW_ROWS = 2048
"""Skip the pair buffer for at most this many rows: all their pairs, at most two million, always fit."""

MAX_PAIRS, PAIRS_PER_ROW = 1 << 21, 4
"""For more rows, the pair buffer holds MAX_PAIRS + PAIRS_PER_ROW * rows pairs.

Many copies of rows fill it soon. Then halving the rows drops most copies.
"""

HostPairs = tuple[np.ndarray, np.ndarray]
"""The two rows of each pair, as two arrays (k,) in host memory."""

PAIR_BYTES = 64
"""Bytes per pair in a task that receives all pairs."""

CONNECTED = "connected"
"""The grouping by connected components."""


class _TooManyError(Exception):
    """Raised to stop a search that finds more pairs than the buffer holds."""


def stays(x: Array, layout: Layout, joiner: Joiner, few: int = FEW_ROWS, max_pairs: int = MAX_PAIRS) -> Array:
    """Return a mask of the points to keep (n,). `x` (n, d): the points in descending order of priority.

    `few`, `max_pairs`: see `FEW_ROWS` and `MAX_PAIRS`.
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
    kept = joiner.build(x[:half][found[:half]], layout)
    rest = half + xp.flatnonzero(~_near_kept(kept, joiner.build(x[half:], layout), layout, joiner))
    found[rest] = stays(x[rest], layout, joiner, few, max_pairs)
    return found


def _pairs(index: Index, layout: Layout, joiner: Joiner, max_pairs: int | None) -> HostPairs | None:
    """List the pairs of near rows within an index, earlier row first; None if over `max_pairs`."""
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
    none = np.zeros(0, np.int64)
    left, right = (np.concatenate([none, *(part[side] for part in parts)]) for side in (0, 1))
    return left, right


def dropped(rows: int, earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Return a mask of the rows to drop (n,). `earlier`, `later`: the two rows of each pair."""
    order = np.argsort(earlier, kind="stable")
    found = np.zeros(rows, bool)
    host_kernels("components").drop_near(earlier[order], later[order], found)
    return found


def _near_kept(kept: Index, index: Index, layout: Layout, joiner: Joiner) -> Array:
    """Return a mask (n,) of the rows of `index` that are near a row of `kept`."""
    counts: Array = joiner.counts(kept, index, layout, is_self_join=False, enough=1)[1]
    return counts > 0


def points_of(chunk: Index | Chunk, layout: Layout, joiner: Joiner) -> Array:
    """Return the points (n, d) of a chunk, in row order."""
    x = joiner.points(chunk, layout)  # type: ignore[arg-type]
    out = joiner.xp.empty_like(x)
    out[chunk["order"][: len(x)]] = x
    return out


def stays_of_chunk(chunk: Chunk, layout: Layout, order: Array | None, *near: Array) -> Array:
    """Return a mask of the rows of a chunk to keep (n,).

    `order` (n,): the rows in descending order of priority; None: row order. `near`: masks (n,) of the rows
    that are near kept rows, one mask for each chunk that was decided before.
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


def index_of_kept(chunk: Chunk, layout: Layout, stay: Array) -> Index | None:
    """Build an index of the kept rows of a chunk; None: no row is kept."""
    joiner = joiner_for(chunk["example"])
    x = points_of(chunk, layout, joiner)[stay]
    return joiner.build(x, layout) if len(x) else None


def near_kept(kept: Index | None, chunk: Chunk, layout: Layout) -> Array:
    """Return a mask (n,) of the rows of a chunk that are near rows in `kept`, an index for another chunk."""
    joiner = joiner_for(chunk["example"])
    if kept is None or not len(chunk["ids"]):
        return joiner.xp.zeros(len(chunk["ids"]), bool)
    return _near_kept(kept, chunk, layout, joiner)  # type: ignore[arg-type]


def pairs_of_block(block_pair: BlockPair, numbers: Sequence[RowNumbers]) -> HostPairs:
    """List the near pairs of two chunks, or within one, by row numbers."""
    parts: list[HostPairs] = []

    def visitor(left: Array, right: Array, totals: Array) -> None:
        parts.append((to_host(row_numbers(left, numbers[0])), to_host(row_numbers(right, numbers[-1]))))

    block_pair.joiner.visit(
        *block_pair.operands, visitor, is_self_join=block_pair.is_self_join, rows=block_pair.rows
    )
    return concatenated(parts)


def stays_of_all(library: str, numbers: list[np.ndarray], keys: list[np.ndarray],
                 *pairs: HostPairs) -> list[Array]:  # fmt: skip
    """For each chunk, return a mask of the rows to keep, given the pairs of all chunks.

    `numbers`, `keys`: for each chunk, the frame positions and the priorities of its rows.
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
"""Values of the option `keep`. Any other value names a column, and the row with its largest value is kept."""

LOWEST_PRIORITY = np.iinfo(np.int64).min
"""Priority of a row with a missing value."""

WIDEST_DTYPES = {"i": np.int64, "b": np.int64, "u": np.uint64, "f": np.float64}
"""Kind of number -> dtype that its values are converted to."""


def priorities(chunk: Chunk, keep: Hashable, own: RowNumbers) -> Array:
    """Return the priority of each row (n,), int64, for the option `keep`. The largest is visited first.

    `own`: the number of the chunk, or the frame positions of its rows.
    """
    xp, rows = joiner_for(chunk["example"]).xp, len(chunk["ids"])
    if keep == FIRST:
        return xp.zeros(rows, np.int64)
    if keep == LAST:
        return row_numbers(xp.arange(rows), own)
    return by_position(chunk, numbers_of(chunk["kept"][keep], xp), xp)


def by_priority(keys: Array) -> Array:
    """Return the rows in descending order of priority (n,). `keys` (n,): the priority of each row."""
    xp = module_of(keys)
    return _sorted(xp.arange(len(keys)), ~keys)


def best_of(groups: Array, keys: Array, rows: Array) -> Array:
    """Return the position of the best row of each group, int64, in the order of groups.

    `groups`, `keys`, `rows` (n,): group, priority and number of each row. The best row of a group has the
    largest priority. Among equal priorities, it has the smallest number.
    """
    xp = module_of(groups)
    order = _sorted(rows, ~keys, groups)
    some = groups[order]
    first = xp.ones(len(some), bool)
    first[1:] = some[1:] != some[:-1]
    return order[first]


def numbers_of(column: Series, xp: ArrayModule) -> Array:
    """Convert a column to integers (n,), int64, in the same order as its values."""
    missing = values_of(column.isna())
    kind = kind_of_number(column.dtype)
    values = values_of((column.fillna(0) if any_of(missing) else column).astype(WIDEST_DTYPES[kind]))
    if kind == "f":
        bits = (values + 0.0).view(np.int64)  # 0.0 and -0.0 must become the same integer
        # negative floats are in the reverse order of their bits
        values = xp.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    elif kind == "u":
        values = (values ^ np.uint64(1 << 63)).view(np.int64)
    return xp.where(missing, LOWEST_PRIORITY, values)


def _sorted(*keys: Array) -> Array:
    """Return the order that sorts rows by the last key (n,), ties by the key before it, and so on."""
    xp = module_of(keys[0])
    return xp.lexsort(xp.stack([some.astype(np.int64) for some in keys]))


class Candidates(NamedTuple):
    """The best rows of groups that are in several chunks. Arrays are (k,), int64."""

    groups: Array  # row numbers that identify the groups, ascending
    keys: Array  # priorities of the best rows
    rows: Array  # numbers of the best rows, for ties


class GroupRows(NamedTuple):
    """The best rows of the groups in a chunk, as places."""

    settled: Array  # (k,), int64: best rows of groups that are only in this chunk
    open: Array  # (m,), int64: best rows, in this chunk, of groups in several chunks
    candidates: Candidates  # the rows `open`, to be compared with other chunks


def best_of_chunk(chunk: Chunk, number: int, keep: Hashable, own: RowNumbers, within: Array,
                  forest: Edges) -> GroupRows:  # fmt: skip
    """Find the best row of each group in chunk `number`, by place.

    `own`: the number of the chunk, or the frame positions of its rows. `within`, `forest`: see
    `add_components`.
    """
    order = order_of(chunk)
    keys = priorities(chunk, keep, own)[order]
    return best_rows(within, number, forest, keys, row_numbers(order, own))


def best_rows(within: Array, own: RowNumbers, forest: Edges, keys: Array,
              numbers: Array | None = None) -> GroupRows:  # fmt: skip
    """Find the best row of each group in a chunk.

    `within` (n,): first row of each row's component in the chunk. `own`: row numbers, or the number of the
    chunk. `forest`: the edges across all chunks. `keys` (n,): priorities. `numbers` (n,), int64: they break
    ties, as `rows` of `best_of`; None: row numbers.
    """
    xp = module_of(within)
    rows = xp.arange(len(within))
    roots = xp.flatnonzero(within == rows)
    tied, elsewhere = crossing_places(own, forest)
    names = row_numbers(rows, own)
    numbers = names.copy() if numbers is None else numbers
    crossing = xp.zeros(len(within), bool)
    crossing[roots] = xp.isin(names[roots], forest[1])
    names[tied], crossing[tied] = elsewhere, True
    best = best_of(within.astype(np.int64), keys, numbers)
    open_ = best[crossing[within[best]]]
    groups = names[within[open_]]
    # other chunks may connect several components of this chunk to one group
    some = best_of(groups, keys[open_], numbers[open_])
    open_, groups = open_[some], groups[some]
    candidates = Candidates(groups, keys[open_], numbers[open_])
    return GroupRows(best[~crossing[within[best]]], open_, candidates)


def merge_candidates(*parts: Candidates) -> Candidates:
    """Merge lists of candidates: keep the best row of each group."""
    xp = module_of(parts[0].groups)
    groups, keys, rows = (xp.concatenate(column) for column in zip(*parts, strict=True))
    best = best_of(groups, keys, rows)
    return Candidates(groups[best], keys[best], rows[best])


def stays_in_chunk(chunk: Chunk, found: GroupRows, winners: Candidates) -> Array:
    """Return a mask of the rows of a chunk to keep (n,), by row. `found` is by place."""
    order = order_of(chunk)
    return rows_of_places(stays_of_groups(found, len(order), winners), order)


def stays_of_groups(found: GroupRows, rows: int, winners: Candidates) -> Array:
    """Return a mask of the best rows of groups (n,). `winners`: best rows of the groups in several chunks."""
    xp, own = module_of(found.settled), found.candidates
    stay = xp.zeros(rows, bool)
    stay[found.settled] = True
    places = xp.searchsorted(winners.groups, own.groups)
    stay[found.open] = winners.rows[places] == own.rows
    return stay
