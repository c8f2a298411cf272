"""Choose the rows that stay one after the other: each stays unless one that stays before it is near.

The rows that stay are the lexicographically first maximal independent set of the graph of near rows: no two
of them are near, and each other row is near one of them.  They depend on the order of rows and on nothing
else.  No list of all pairs is needed: where there are more than fit, the first half of the rows is
settled first, and those of the second half that are near what stays of it take no part any more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_simjoin.engine.base import host_kernels, joiner_for, joiner_of_library
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.protocols import Joiner, Layout
from dask_simjoin.metrics.types import Array, Index
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.row_numbers import RowNumbers, row_numbers

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
    host_kernels("greedy").drop_near(earlier[order], later[order], found)
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


def pairs_of_block(meeting: Meeting, numbers: Sequence[RowNumbers]) -> HostPairs:
    """List the pairs of two chunks by the numbers of their rows."""
    parts: list[HostPairs] = []
    own = numbers[0], numbers[-1]

    def visitor(left: Array, right: Array, totals: Array) -> None:
        sides = (to_host(row_numbers(rows, of)) for rows, of in zip((left, right), own, strict=True))
        one, other = sides
        parts.append((one, other))

    meeting.joiner.visit(*meeting.operands, visitor, same=meeting.same, rows=meeting.rows)
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
