"""Select the rows to keep of near duplicates: greedily, or one per connected component.

The greedy rule visits rows in descending order of priority. It keeps a row if it is not
near a row that it has kept before. So no two kept rows are near each other, and each
dropped row is near a kept row. The kept rows are the lexicographically first maximal
independent set. If the list of all pairs does not fit in memory, the rule is applied to
the first half of the rows. Rows of the second half that are near a kept row are
dropped. Then the rule is applied to the remaining rows of the second half.

If a connected component has rows in several chunks, each chunk sends its best row: the
one with the largest priority. A tree of tasks then finds the best of the component.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.catalog import kind_of_number
from dask_simjoin.cluster.algorithms.dbscan import crossing_places
from dask_simjoin.cluster.algorithms.edges import TURNS, order_of
from dask_simjoin.engine.base import host_kernels, joiner_for, joiner_of_library
from dask_simjoin.engine.compat import (
    any_of,
    module_of,
    rows_of_places,
    to_host,
    values_of,
)
from dask_simjoin.engine.process import shared_out
from dask_simjoin.engine.protocols import Joiner, Layout
from dask_simjoin.engine.times import times_of, unit_of_times
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Series
from dask_simjoin.sizes import SAMPLED
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import Edges, RowNumbers, row_numbers
from dask_simjoin.tasks.matches import BlockPair, by_position
from dask_simjoin.tasks.named_tuples import sent_by_fields

MAX_PAIRS, PAIRS_PER_ROW = 1 << 21, 4
"""Above SAMPLED rows, at most MAX_PAIRS + PAIRS_PER_ROW * rows pairs are listed; with
more, the rows are halved.

If rows have many copies, the limit is reached soon. The first half of the rows then
drops most copies.
"""

HostPairs = tuple[np.ndarray, np.ndarray]
"""The two rows of each pair, as two arrays (k,) in host memory."""

CONNECTED = "connected"
"""The method that keeps one row per connected component."""


class _TooManyError(Exception):
    """Stops a search that has found more pairs than the limit."""


def stays(
    x: Array,
    layout: Layout,
    joiner: Joiner,
    few: int = SAMPLED,
    max_pairs: int = MAX_PAIRS,
    threads: int = 1,
) -> Array:
    """Apply the greedy rule: return a mask of the points to keep (n,).

    `x` (n, d): points in descending order of priority.

    `few`, `max_pairs`: see `SAMPLED` and `MAX_PAIRS`.
    """
    xp, n = module_of(x), len(x)
    if n < 2:
        return xp.ones(n, bool)
    capacity = None if n <= few else max_pairs + PAIRS_PER_ROW * n
    index = joiner.build(x, layout, threads)
    pairs = _pairs(index, n, layout, joiner, capacity, threads if xp is np else 1)
    if pairs is not None:
        return xp.asarray(~dropped(n, *pairs))
    half = n // 2
    found = xp.zeros(n, bool)
    found[:half] = stays(x[:half], layout, joiner, few, max_pairs, threads)
    kept = joiner.build(x[:half][found[:half]], layout, threads)
    others = joiner.build(x[half:], layout, threads)
    rest = half + xp.flatnonzero(~_near_kept(kept, others, layout, joiner))
    found[rest] = stays(x[rest], layout, joiner, few, max_pairs, threads)
    return found


def _pairs(
    index: Index,
    rows: int,
    layout: Layout,
    joiner: Joiner,
    max_pairs: int | None,
    threads: int,
) -> HostPairs | None:
    """List the pairs of near rows within an index of `rows` rows, the earlier row
    first; None if there are more than `max_pairs`.
    """
    parts: list[HostPairs] = []
    number, lock = 0, threading.Lock()

    def visitor(left: Array, right: Array, totals: Array) -> None:
        nonlocal number
        one, other = to_host(left), to_host(right)
        part = np.minimum(one, other), np.maximum(one, other)
        with lock:
            number += len(left)
            parts.append(part)
        if max_pairs is not None and number > max_pairs:
            raise _TooManyError

    def visit(start: int, stop: int) -> None:
        some = None if (start, stop) == (0, rows) else (start, stop)
        joiner.visit(index, index, layout, visitor, is_self_join=True, rows=some)

    try:
        shared_out(visit, rows, threads, layout.grain, turns=TURNS)
    except _TooManyError:
        return None
    return concatenated(parts)


def concatenated(parts: Sequence[HostPairs]) -> HostPairs:
    none = np.zeros(0, np.int64)
    left, right = (
        np.concatenate([none, *(part[side] for part in parts)]) for side in (0, 1)
    )
    return left, right


def dropped(rows: int, earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Apply the greedy rule to rows 0 to `rows` - 1: return a mask of the rows to drop
    (n,). `earlier`, `later`: the pairs.
    """
    found, starts = np.zeros(rows, bool), np.zeros(rows + 2, np.int64)
    drop_near = host_kernels("components").drop_near
    drop_near(earlier, later, starts, np.empty_like(later), found)
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


def stays_of_chunk(
    chunk: Chunk, layout: Layout, order: Array | None, *near: Array, threads: int = 1
) -> Array:
    """Apply the greedy rule to a chunk: return a mask of its rows to keep (n,).

    `order` (n,): the rows in descending order of priority; None: row order. `near`: for
    each chunk that was decided before, a mask (n,) of the rows that are near its kept
    rows.
    """
    joiner = joiner_for(chunk["example"])
    xp, x = joiner.xp, points_of(chunk, layout, joiner)
    how = functools.partial(stays, layout=layout, joiner=joiner, threads=threads)
    if order is None and not near:
        return how(x)
    order = xp.arange(len(x)) if order is None else order
    for some in near:
        order = order[~some[order]]
    found = xp.zeros(len(x), bool)
    found[order] = how(x[order])
    return found


def index_of_kept(chunk: Chunk, layout: Layout, stay: Array) -> Index | None:
    """Build an index of the kept rows of a chunk; None if no row is kept. `stay`: mask
    of the kept rows.
    """
    joiner = joiner_for(chunk["example"])
    x = points_of(chunk, layout, joiner)[stay]
    return joiner.build(x, layout) if len(x) else None


def near_kept(kept: Index | None, chunk: Chunk, layout: Layout) -> Array:
    """Return a mask (n,) of the rows of `chunk` that are near a row in `kept`, an index
    of kept rows.
    """
    joiner = joiner_for(chunk["example"])
    if kept is None or not len(chunk["ids"]):
        return joiner.xp.zeros(len(chunk["ids"]), bool)
    return _near_kept(kept, chunk, layout, joiner)  # type: ignore[arg-type]


def pairs_of_block(block_pair: BlockPair, numbers: Sequence[RowNumbers]) -> HostPairs:
    """List the near pairs between two chunks, or within one. Rows are given by their
    row numbers.
    """
    parts: list[HostPairs] = []

    def visitor(left: Array, right: Array, totals: Array) -> None:
        parts.append(
            (
                to_host(row_numbers(left, numbers[0])),
                to_host(row_numbers(right, numbers[-1])),
            )
        )

    block_pair.joiner.visit(
        *block_pair.operands,
        visitor,
        is_self_join=block_pair.is_self_join,
        rows=block_pair.rows,
    )
    return concatenated(parts)


def stays_of_all(
    library: str, numbers: list[np.ndarray], keys: list[np.ndarray], *pairs: HostPairs
) -> list[Array]:
    """For each chunk, return a mask of the rows to keep, given the pairs of all chunks.

    `numbers`, `keys`: for each chunk, the frame positions and the priorities of its
    rows.
    """
    xp = joiner_of_library(library).xp
    every, key = np.concatenate(numbers), np.concatenate(keys)
    by_number = np.argsort(every)
    rank = np.empty(len(every), np.int64)
    rank[np.lexsort((every, ~key))] = np.arange(len(every))
    rank = rank[by_number]
    one, other = (
        rank[np.searchsorted(every[by_number], side)] for side in concatenated(pairs)
    )
    is_dropped = dropped(len(every), np.minimum(one, other), np.maximum(one, other))
    return [
        xp.asarray(~is_dropped[rank[np.searchsorted(every[by_number], some)]])
        for some in numbers
    ]


FIRST, LAST = "first", "last"
"""Values of the option `keep`.

Any other value names a column: the row with the largest value in it is kept.
"""

LOWEST_PRIORITY = np.iinfo(np.int64).min
"""Priority of a row whose value in the column of `keep` is missing."""

WIDEST_DTYPES = {"i": np.int64, "b": np.int64, "u": np.uint64, "f": np.float64}
"""Kind of numeric dtype (`numpy.dtype.kind`) -> the widest dtype of this kind."""


def priorities(chunk: Chunk, keep: Hashable, own: RowNumbers) -> Array:
    """Return the priority of each row (n,), int64, for the option `keep`. The largest
    is visited first.

    `own`: the number of the chunk, or the frame positions of its rows.
    """
    xp, rows = joiner_for(chunk["example"]).xp, len(chunk["ids"])
    if keep == FIRST:
        return xp.zeros(rows, np.int64)
    if keep == LAST:
        return row_numbers(xp.arange(rows), own)
    return by_position(chunk, numbers_of(chunk["kept"][keep], xp), xp)


def by_priority(keys: Array) -> Array:
    """Return the rows in descending order of priority (n,). `keys` (n,): the priority
    of each row.
    """
    xp = module_of(keys)
    return _sorted(xp.arange(len(keys)), ~keys)


def best_of(groups: Array, keys: Array, rows: Array) -> Array:
    """Return the position of the best row of each group, int64, in the order of groups.

    `groups`, `keys`, `rows` (n,): group, priority and number of each row. The best row
    of a group has the largest priority. Among equal priorities, it has the smallest
    number.
    """
    xp = module_of(groups)
    order = _sorted(rows, ~keys, groups)
    some = groups[order]
    first = xp.ones(len(some), bool)
    first[1:] = some[1:] != some[:-1]
    return order[first]


def best_by_place(within: Array, keys: Array, rows: Array) -> Array:
    """Do the work of `best_of` for groups that are named by places (n,)."""
    if module_of(within) is not np:
        return best_of(within.astype(np.int64), keys, rows)
    best = np.full(len(within), -1, np.int64)
    host_kernels("components").best_of_groups(within, keys, rows, best)
    return best[best >= 0]


def numbers_of(column: Series, xp: ArrayModule) -> Array:
    """Convert a column of numbers or times to integers (n,), int64, that sort in the
    same order as its values; missing values come first.
    """
    kind = kind_of_number(column.dtype)
    if not kind:
        times, missing = times_of(column, unit_of_times(column.dtype), "keep")
        return xp.where(missing, LOWEST_PRIORITY, times)
    missing = values_of(column.isna())
    values = values_of(
        (column.fillna(0) if any_of(missing) else column).astype(WIDEST_DTYPES[kind])
    )
    if kind == "f":
        # adding 0.0 turns -0.0 into 0.0, so that both become the same integer
        bits = (values + 0.0).view(np.int64)
        # the bits of negative floats sort in reverse, so flip them
        values = xp.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    elif kind == "u":
        values = (values ^ np.uint64(1 << 63)).view(np.int64)
    return xp.where(missing, LOWEST_PRIORITY, values)


def _sorted(*keys: Array) -> Array:
    """Return the order that sorts rows by the last key (n,), then by the key before it,
    and so on.
    """
    xp = module_of(keys[0])
    return xp.lexsort(xp.stack([some.astype(np.int64) for some in keys]))


@sent_by_fields
class Candidates(NamedTuple):
    """The best row, in one chunk, of each group that has rows in several chunks. Arrays
    are (k,), int64.
    """

    groups: Array  # row numbers that identify the groups, ascending
    keys: Array  # priorities of the best rows
    rows: Array  # row numbers of the best rows, which break ties


@sent_by_fields
class GroupRows(NamedTuple):
    """The best row, in one chunk, of each group; rows are given by their places."""

    settled: Array  # (k,), int64: best rows of groups that are in this chunk only
    # (m,), int64: best rows, in this chunk, of groups that other chunks share
    open: Array
    # the rows `open`, as they are sent for comparison with rows of other chunks
    candidates: Candidates


def best_of_chunk(
    chunk: Chunk,
    number: int,
    keep: Hashable,
    own: RowNumbers,
    within: Array,
    forest: Edges,
) -> GroupRows:
    """Find the best row of each group in chunk `number`, by place.

    `own`: the number of the chunk, or the frame positions of its rows. `within`,
    `forest`: see `add_components`.
    """
    order = order_of(chunk)
    keys = priorities(chunk, keep, own)[order]
    return best_rows(within, number, forest, keys, row_numbers(order, own))


def best_rows(
    within: Array,
    own: RowNumbers,
    forest: Edges,
    keys: Array,
    numbers: Array | None = None,
) -> GroupRows:
    """Find the best row of each group in a chunk.

    `within` (n,): for each row, the first row of its component in the chunk. `own`: the
    number of the chunk, or the frame positions of its rows. `forest`: the edges across
    all chunks. `keys` (n,): priorities. `numbers` (n,), int64: numbers that break ties
    between equal priorities; None: use the row numbers.
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
    best = best_by_place(within, keys, numbers)
    open_ = best[crossing[within[best]]]
    groups = names[within[open_]]
    # edges to other chunks may connect several components of this chunk to one group,
    # so choose the best of those
    some = best_of(groups, keys[open_], numbers[open_])
    open_, groups = open_[some], groups[some]
    candidates = Candidates(groups, keys[open_], numbers[open_])
    return GroupRows(best[~crossing[within[best]]], open_, candidates)


def merge_candidates(*parts: Candidates) -> Candidates:
    """Concatenate lists of candidates, and keep only the best row of each group."""
    xp = module_of(parts[0].groups)
    groups, keys, rows = (xp.concatenate(column) for column in zip(*parts, strict=True))
    best = best_of(groups, keys, rows)
    return Candidates(groups[best], keys[best], rows[best])


def stays_in_chunk(chunk: Chunk, found: GroupRows, winners: Candidates) -> Array:
    """Return a mask of the rows of a chunk to keep (n,), in row order. `found` gives
    rows by their places.
    """
    order = order_of(chunk)
    return rows_of_places(stays_of_groups(found, len(order), winners), order)


def stays_of_groups(found: GroupRows, rows: int, winners: Candidates) -> Array:
    """Return a mask of the rows that are the best of their groups (n,). `winners`: the
    best rows of shared groups.
    """
    xp, own = module_of(found.settled), found.candidates
    stay = xp.zeros(rows, bool)
    stay[found.settled] = True
    places = xp.searchsorted(winners.groups, own.groups)
    stay[found.open] = winners.rows[places] == own.rows
    return stay
