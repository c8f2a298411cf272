"""Search chunks for nearest neighbors, and put the states of searches together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.engine.base import (
    Counters,
    host_kernels,
    joiner_of_library,
    searcher_for,
    searcher_of_library,
)
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.process import in_turns, shared_out
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.norms import Array, Index
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import PROBED
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import CHUNK, RowNumbers
from dask_simjoin.tasks.matches import measured


class State(TypedDict):
    """For each row of a chunk, its nearest neighbors in the chunks searched so far. A
    plain dict, which Dask can spill.

    The arrays have k columns, or fewer if fewer than k rows have been searched.
    """

    # (n, k), float64: totals of the neighbors, ascending; infinity: none found yet
    totals: Array
    # (n, k), int64: row numbers of the neighbors; -1: none found yet
    row_numbers: Array
    # only if the state covers a part of the chunk's rows: their positions in the chunk,
    # and their places in its index
    rows: NotRequired[Array]
    places: NotRequired[Array]
    # only with all ties: k is 1, rows repeat for each of their neighbors, and these are
    # the ranks of the neighbors
    ranks: NotRequired[Array]


Totals = tuple[float, float]
"""The smallest and the largest total that a neighbor may have."""

ANY_TOTAL: Totals = (0.0, math.inf)


class Neighbors(NamedTuple):
    """The neighbors that a verb searches."""

    k: int  # neighbors per row
    totals: Totals = ANY_TOTAL
    how: str = "inner"  # "left" adds rows without a neighbor
    ties: bool = False  # whether to return all rows at the distance of the last one
    mutual: bool = False  # whether each row must be a neighbor of the other
    # the option that determines the size of the result, in the words of messages
    what: str = ""


MIN_SEARCHED, TURNS = 1 << 12, 8
"""Threads share a search if each searches at least `MIN_SEARCHED` rows. Each thread
gets at least `TURNS` parts.
"""

DIMS = 16
"""Assumed number of dimensions, to choose the first rows that are searched."""


def search_chunk(
    query: Chunk,
    data: Chunk,
    layout: SearchLayout,
    k: int,
    numbers: Sequence[RowNumbers],
    is_self_join: bool = True,
    totals: Totals = ANY_TOTAL,
    part: tuple[int, int] = (0, 1),
    state: State | None = None,
    threads: int = 1,
) -> State:
    """Search the neighbors of a chunk's rows in another chunk, or in the chunk itself.

    `numbers`: the `RowNumbers` of each chunk. `is_self_join`: whether both chunks
    belong to one table. If so, a row is not its own neighbor. `part`: the share of the
    rows to search, as (index of the share, number of shares). `state`: the result of
    earlier searches in other chunks, if there were any. `threads`: number of threads
    that search all rows on the host.
    """
    searcher = searcher_for(query["example"])
    searcher.prepare()
    k_before = 0 if state is None else state["totals"].shape[1]
    start, stop = part_of_places(len(query["ids"]), searcher.grain, part)
    # the result has a column for each neighbor that the rows searched so far can give
    most = min(k, k_before + len(data["ids"]))
    best, found = searcher.fresh(stop - start, most, threads)
    # copy the earlier state instead of changing it, because Dask may use it again
    if state is not None:
        best[:, :k_before], found[:, :k_before] = state["totals"], state["row_numbers"]
    first, second = (own * CHUNK if isinstance(own, int) else own for own in numbers)
    left = searcher.renamed(cast(Index, query), first)
    right = left if query is data else searcher.renamed(cast(Index, data), second)
    # `least2` is passed only if needed, because the function for GPUs does not have it
    limits = {"bound2": totals[1]} | ({"least2": totals[0]} if totals[0] else {})
    if part[1] == 1:

        def search(start: int, stop: int) -> None:
            some = (
                left if stop - start == len(best) else searcher.part(left, start, stop)
            )
            searcher.nearest(
                some, right, layout, best, found, is_self_join=is_self_join, **limits
            )

        if module_of(best) is not np:
            search(0, len(best))
            return {"totals": best, "row_numbers": found}
        threads = max(1, min(threads, len(best) // MIN_SEARCHED))
        cost = len(data["ids"]) * DIMS
        in_turns(search, len(best), threads, cost, searcher.grain, TURNS)
        return {"totals": best, "row_numbers": found}
    some = searcher.part(left, start, stop)
    rows = some["order"]
    # the new state has one row per place of this share, so number the rows by these
    # places
    here = some | {"order": module_of(rows).arange(len(rows), dtype=rows.dtype)}
    searcher.nearest(
        here, right, layout, best, found, is_self_join=is_self_join, **limits
    )
    places = module_of(rows).arange(start, stop, dtype=rows.dtype)
    return {"totals": best, "row_numbers": found, "rows": rows, "places": places}


def search_chunks(
    query: Chunk,
    data: Sequence[Chunk],
    layout: SearchLayout,
    k: int,
    numbers: Sequence[RowNumbers],
    is_self_join: bool,
    totals: Totals,
    part: tuple[int, int],
    state: State | None = None,
) -> State:
    """Search several chunks, one after the other, like `search_chunk`.

    `data`: at least one chunk. `numbers`: the `RowNumbers` of the query's chunk, and
    then of each chunk in `data`.
    """
    for chunk, own in zip(data, numbers[1:], strict=True):
        about = (numbers[0], own), is_self_join, totals, part, state
        state = search_chunk(query, chunk, layout, k, *about)
    assert state is not None
    return state


def mutual_state(
    query: Chunk, data: Chunk, search: Callable[[Chunk, Chunk], State]
) -> State:
    """Search two chunks on the host, or one chunk, and keep only mutual neighbors.

    `search`: finds the neighbors of its first chunk's rows in its second chunk, with
    row numbers from 0. Two rows are mutual neighbors if each is a neighbor of the
    other. Other neighbors are replaced by -1, so that mutual neighbors keep their
    ranks.
    """
    back = None if query is data else _sorted_numbers(search(data, query))
    state = search(query, data)
    back = _sorted_numbers(state) if back is None else back
    host_kernels("nearest").drop_one_way(state["row_numbers"], back)
    return state


def _sorted_numbers(state: State) -> np.ndarray:
    """For each row, return the row numbers of its neighbors in ascending order (n, k),
    int32.
    """
    numbers = state["row_numbers"].astype(np.int32)
    numbers.sort(axis=1)
    return numbers


def part_of_places(rows: int, grain: int, part: tuple[int, int]) -> tuple[int, int]:
    """Return the range (start, stop) of places for one share of the rows. `part`:
    (index of the share, number of shares).
    """
    number, parts = part
    if parts == 1:
        return 0, rows
    start, stop = (
        min(-(-rows * k // parts // grain) * grain, rows) for k in (number, number + 1)
    )
    return start, rows if number + 1 == parts else stop


def join_states(threads: int, *parts: State) -> State:
    """Merge the states that were found for the shares of a chunk's rows."""
    xp = module_of(parts[0]["totals"])
    if xp is np:
        return _join_on_host(parts, threads)
    rows = xp.argsort(xp.concatenate([part["rows"] for part in parts]))
    totals, numbers = (
        xp.concatenate([part[name] for part in parts])[rows]
        for name in ("totals", "row_numbers")
    )
    return {"totals": totals, "row_numbers": numbers}


def in_row_order(part: State) -> State:
    """Sort the state of a part by the positions of its rows in the chunk."""
    order = module_of(part["rows"]).argsort(part["rows"])
    totals, numbers = (
        part[name].take(order, axis=0) for name in ("totals", "row_numbers")
    )
    return State(
        totals=totals,
        row_numbers=numbers,
        rows=part["rows"][order],
        places=part["places"][order],
    )


def _join_on_host(parts: Sequence[State], threads: int) -> State:
    rows, (totals, numbers) = (
        [part["rows"] for part in parts],
        (parts[0]["totals"], parts[0]["row_numbers"]),
    )
    shape = sum(map(len, rows)), totals.shape[1]
    made = State(
        totals=np.empty(shape, totals.dtype), row_numbers=np.empty(shape, numbers.dtype)
    )

    def put(first: int, last: int) -> None:
        for part, places in zip(parts[first:last], rows[first:last], strict=True):
            _rows_as_items(made["totals"])[places] = _rows_as_items(part["totals"])
            _rows_as_items(made["row_numbers"])[places] = _rows_as_items(
                part["row_numbers"]
            )

    shared_out(put, len(parts), threads, min_items=0)
    return made


def _rows_as_items(x: np.ndarray) -> np.ndarray:
    """View each row of an array as a single item: NumPy copies such items in half the
    time.
    """
    return (
        x.view(np.dtype((np.void, x.shape[1] * x.itemsize)))[:, 0] if x.shape[1] else x
    )


def kth_distance(state: State, k: int, spec: JoinSpec) -> Array:
    """Return the distance of each row to its k-th nearest row (n,), float64; infinity
    if there are fewer than k rows.
    """
    totals = state["totals"]
    xp = module_of(totals)
    if totals.shape[1] < k:
        return xp.full(len(totals), math.inf)
    total = totals[:, k - 1]
    return xp.where(xp.isinf(total), total, measured(spec, xp)(total.copy()))


MAX_TABLE_RATIO = 64
"""`rows_of_numbers` uses a lookup table with at most this many entries per row, and per
number to look up.

A table with few entries is ten times as fast as binary search.
"""


def rows_of_numbers(own: Array, numbers: Array) -> Array:
    """For each of `numbers`, return the row of the chunk with this row number; -1 if
    there is none.

    `own` (n,): row numbers of the chunk, ascending.
    """
    xp, n = module_of(own), len(own)
    if not n:
        return xp.full(numbers.shape, -1, np.int32)
    first, last = int(own[0]), int(own[-1])
    if last - first > MAX_TABLE_RATIO * min(n, numbers.size):
        row = xp.minimum(xp.searchsorted(own, numbers), n - 1)
        return xp.where(own[row] == numbers, row, -1)
    # the last entry answers for all row numbers that are outside the table
    table = xp.full(last - first + 2, -1, np.int32)
    table[own - first] = xp.arange(n, dtype=np.int32)
    beyond = (numbers < first) | (numbers > last)
    return table[xp.where(beyond, len(table) - 1, numbers - first)]


def profile_search(
    x: Array, layout: SearchLayout, k: int, max_total: float, library: str
) -> Counters:
    """Search the k nearest rows of each point (n, d).

    Return counters: the number of neighbors, and seconds.
    """
    if not len(x):
        return Counters({"neighbors": 0.0}, {})
    # compile the kernels first, so that this time does not count
    _run(x[:PROBED], layout, k, max_total, library)
    return _run(x, layout, k, max_total, library)


def _run(
    x: Array, layout: SearchLayout, k: int, max_total: float, library: str
) -> Counters:
    joiner, searcher = joiner_of_library(library), searcher_of_library(library)
    begin = time.perf_counter()
    index = searcher.renamed(joiner.build(x, layout), 0)
    # copying a value to the host waits until the GPU is done, so the time includes the
    # work
    to_host(index["names"][:1])
    built = time.perf_counter()
    totals, names = searcher.fresh(len(x), min(k, len(x)))
    searcher.nearest(
        index, index, layout, totals, names, is_self_join=True, bound2=max_total
    )
    found = int((names >= 0).astype(joiner.xp.int64).sum())
    seconds = {"index": built - begin, "search": time.perf_counter() - built}
    return Counters({"neighbors": float(found)}, seconds)
