"""Search chunks for nearest neighbors, make rows of results, and find the closest pairs
of all rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.engine.base import (
    Counters,
    Frames,
    frames_for,
    host_kernels,
    joiner_of_library,
    searcher_for,
    searcher_of_library,
)
from dask_simjoin.engine.columns import blocks
from dask_simjoin.engine.compat import inverse_of, module_of, to_host
from dask_simjoin.engine.ids import as_id_keys, from_id_keys, joined
from dask_simjoin.engine.process import in_turns, shared_out
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.norms import Array, Frame, Ids, Index, Values
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import CHUNK, RowNumbers
from dask_simjoin.tasks.left_out import filled, kept_rows
from dask_simjoin.tasks.matches import kept_columns, measured, row_places
from dask_simjoin.tasks.named_tuples import sent_by_fields
from dask_simjoin.tasks.pairs import (
    cast_like,
    unmatched,
    unmatched_places,
    without_right,
)


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

    shared_out(put, len(parts), threads, min_items=1)
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


MAX_POSITION = 2**31
"""Positions are int32 if there are fewer rows than this, else int64."""

TEMPORARIES = 16
"""If the work on a block of rows needs several temporary arrays, blocks are smaller by
this factor.

Otherwise memory grows, because glibc may keep large arrays after they are freed.
"""


@sent_by_fields
class FoundRows(NamedTuple):
    """The neighbors in a state that are rows of a certain chunk."""

    # (neighbors,) int64: positions in the flattened arrays of the state, ``row * k +
    # rank``
    places: Array
    ids: Ids
    columns: dict[str, Values]  # kept columns, by their names in the result


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


def find_rows(
    state: State,
    data: Chunk,
    own: RowNumbers,
    spec: JoinSpec,
    places_of_data: Array | None = None,
) -> FoundRows:
    """From the neighbors in a state, select the rows of the chunk `data`.

    `own`: the `RowNumbers` of this chunk. `places_of_data`: the place of each row in
    its index; None: it is computed if needed.
    """
    numbers = state["row_numbers"].reshape(-1)
    xp = module_of(numbers)
    if isinstance(own, int):
        first, stop = own * CHUNK, (own + 1) * CHUNK
        if len(numbers) and int(numbers.min()) >= first and int(numbers.max()) < stop:
            places, rows = xp.arange(len(numbers)), numbers
        else:
            places = xp.flatnonzero((numbers >= first) & (numbers < stop))
            rows = numbers[places]
        rows = rows - first if first else rows
    else:
        rows = rows_of_numbers(own, numbers)
        places = xp.flatnonzero(rows >= 0)
        rows = rows[places]
    columns = {}
    if spec.kept_right:
        index = (row_places(data) if places_of_data is None else places_of_data)[rows]
        columns = kept_columns((data,), spec.kept_right, index)
    return FoundRows(places, data["ids"].take(rows), columns)


def nearest_rows(
    query: Chunk, state: State, spec: JoinSpec, like: Frame, *found: FoundRows
) -> Frame:
    """Make the result for the rows of a state: one result row per neighbor, the nearest
    neighbor first.

    `query`: the chunk of the rows. `like`: an empty result. `found`: for each searched
    chunk, the neighbors in it.
    """
    frames = frames_for(query["example"])
    xp, k = frames.xp, state["row_numbers"].shape[1]
    found = tuple(part for part in found if len(part.places))
    if not found:
        return like
    totals = state["totals"].reshape(-1)
    places, order = found[0].places, None
    if len(found) > 1:  # the neighbors in a single chunk are in order already
        places, order = _sorted_places(
            xp.concatenate([part.places for part in found]), len(totals)
        )
    every = len(places) == len(totals)  # then rows and ranks follow without a division
    rows = state["rows"] if "rows" in state else xp.arange(len(totals) // k)
    at = None if every else places // k
    if "ranks" in state:
        ranks = state["ranks"][places]
    elif at is None:
        ranks = xp.tile(xp.arange(1, k + 1), len(rows))
    else:
        ranks = places % k + 1
    columns: dict[str, Values] = {}
    of_left: dict[str, Values] = {}
    if spec.kept_left:
        index = state["places"] if "places" in state else row_places(query)[rows]
        index = xp.repeat(index, k) if at is None else index[at]
        of_left = kept_columns((query,), spec.kept_left, index)
    for name in like.columns:
        if name == "left":
            ids = query["ids"].take(rows)
            columns[name] = ids.repeat(k) if at is None else ids.take(at)
        elif name == "right":
            ids = joined([part.ids for part in found])
            columns[name] = ids if order is None else ids.take(order)
        elif name == "rank":
            columns[name] = ranks
        elif name == "distance":
            columns[name] = measured(spec, xp)(
                totals.copy() if every else totals[places]
            )
        elif name in of_left:
            columns[name] = of_left[name]
        elif order is None:
            columns[name] = found[0].columns[name]
        else:
            parts = [
                frames.result({name: part.columns[name]}, len(part.places))
                for part in found
            ]
            columns[name] = frames.values(frames.stacked(parts), name, order)
    return frames.result(columns, len(places))


def _sorted_places(places: Array, number: int) -> tuple[Array, Array]:
    """Sort distinct places below `number` in linear time. Return them, and the order
    that sorts them.
    """
    xp = module_of(places)
    there = xp.zeros(number, bool)
    there[places] = True
    rank = xp.cumsum(there) - 1
    return xp.flatnonzero(there), inverse_of(rank[places])


def nearest_or_missing(
    query: Chunk, state: State | None, spec: JoinSpec, like: Frame, *found: FoundRows
) -> Frame:
    """Make rows like `nearest_rows`, and for each row without neighbors one row with
    missing values.

    `state`: None if no chunk was searched for neighbors.
    """
    if state is None:
        return unmatched(query, 0, spec, like)
    xp, frames = module_of(state["totals"]), frames_for(query["example"])
    near, k = has_neighbor(state), state["row_numbers"].shape[1]
    matched = cast_like(nearest_rows(query, state, spec, like, *found), like)
    if bool(near.all()):
        return matched
    rows = xp.flatnonzero(state["row_numbers"].reshape(-1) >= 0) // max(k, 1)
    order = xp.argsort(xp.concatenate([rows, xp.flatnonzero(~near)]), kind="stable")
    places = (
        state["places"][~near] if "places" in state else unmatched_places(query, near)
    )
    alone = without_right(query, places, spec, like)
    return frames.stacked([matched, alone]).iloc[order].reset_index(drop=True)


def state_of_all_rows(state: State, frame: Frame, spec: JoinSpec) -> State:
    """Return the state of a search with all rows of a plain frame. The rows that
    `dropna` leaves out have no neighbor.
    """
    kept = kept_rows(frame, spec)
    if "ranks" not in state or kept is None:
        return State(
            totals=filled(state["totals"], kept, math.inf),
            row_numbers=filled(state["row_numbers"], kept, -1),
        )
    # with all ties, rows repeat
    mask = to_host(kept)
    alone = np.flatnonzero(~mask)
    rows = np.concatenate([np.flatnonzero(mask)[state["rows"]], alone])
    order = np.argsort(rows, kind="stable")
    totals, numbers, ranks = (
        np.concatenate([values, np.full((len(alone), *values.shape[1:]), fill)])[order]
        for values, fill in (
            (state["totals"], math.inf),
            (state["row_numbers"], -1),
            (state["ranks"], 1),
        )
    )
    # places as in the chunk of `rows_of`
    return State(
        totals=totals,
        row_numbers=numbers,
        rows=rows[order],
        places=rows[order],
        ranks=ranks,
    )


def has_neighbor(state: State) -> Array:
    """Return a mask (n,) of the chunk's rows that have a neighbor."""
    numbers = state["row_numbers"]
    if not numbers.shape[1]:
        return module_of(numbers).zeros(len(numbers), bool)
    found: Array = numbers[:, 0] >= 0
    return found


MEASURED = 1 << 17
"""Neighbors whose distances and ids are made at a time, so that they stay in the cache.
"""


def whole_rows(
    query: Chunk,
    data: Chunk,
    state: State,
    spec: JoinSpec,
    like: Frame,
    threads: int = 1,
) -> Frame:
    """Make rows like `nearest_rows`, for a single searched chunk on the host. The
    memory of the state is reused.

    `data`: the searched chunk.
    """
    frames, (totals, numbers) = (
        frames_for(query["example"]),
        (state["totals"], state["row_numbers"]),
    )
    rows, ranks = _compressed(totals, numbers, threads)
    if not len(rows):
        return like
    totals, numbers = totals.reshape(-1), numbers.reshape(-1)
    distance = measured(spec, np)

    def measure(start: int, stop: int) -> None:
        for first in range(start, stop, MEASURED):
            part = totals[first : min(first + MEASURED, stop)]
            part[:] = distance(part)

    shared_out(measure, len(rows), threads)
    columns: dict[str, Values] = {"rank": ranks, "distance": totals}
    for names, chunk, which in (
        (spec.kept_left, query, rows),
        (spec.kept_right, data, numbers),
    ):
        if names:
            places = row_places(chunk)[which]
            columns |= frames.columns_at(chunk["kept"], names, places)
    columns["left"] = _ids_of_rows(query["ids"], rows, frames, threads)
    del rows
    ids = data["ids"]
    if getattr(ids.dtype, "itemsize", 0) == 8:
        keys = as_id_keys(ids, np.arange(len(ids)))
    else:
        keys = None
    if keys is None:
        columns["right"] = frames.ids(ids, numbers)
    else:
        _look_up(keys, numbers, numbers, threads)
        columns["right"] = from_id_keys(numbers, ids)
    return frames.result(
        {name: columns.pop(name) for name in like.columns}, len(totals)
    )


def search_rows(
    query: Chunk,
    data: Chunk,
    layout: SearchLayout,
    k: int,
    spec: JoinSpec,
    totals: Totals,
    like: Frame,
    left: bool,
    threads: int,
) -> Frame:
    """Search a single chunk with all threads of the host, and make rows of the result,
    in the order of the rows. For the arguments see `search_chunk`.

    `left`: whether rows without a neighbor get a row of the result.
    """
    about = layout, k, (0, 0), spec.other is None, totals
    state = search_chunk(query, data, *about, threads=threads)
    if left:
        found = find_rows(state, data, 0, spec)
        return nearest_or_missing(query, state, spec, like, found)
    return whole_rows(query, data, state, spec, like, threads)


def part_of_rows(rows: Frame, number: int, parts: int) -> Frame:
    """Return one of about equal parts of the rows of a result. All neighbors of a row
    are in one part.
    """
    left = rows["left"]

    def cut(at: int) -> int:
        while 0 < at < len(rows) and left.iat[at] == left.iat[at - 1]:
            at += 1
        return at

    start, stop = (cut(len(rows) * n // parts) for n in (number, number + 1))
    return rows.iloc[start:stop]


def _ids_of_rows(ids: Ids, rows: np.ndarray, frames: Frames, threads: int) -> Values:
    if not isinstance(ids.dtype, np.dtype) or ids.dtype == object:
        return frames.ids(ids, rows)
    found = np.empty(len(rows), ids.dtype)
    _look_up(ids.to_numpy(), rows, found, threads)
    return found


def _look_up(
    table: np.ndarray, places: np.ndarray, out: np.ndarray, threads: int
) -> None:
    """Write `table[places]` to `out`, which may be `places` itself."""

    def some(start: int, stop: int) -> None:
        for first in range(start, stop, MEASURED):
            part = slice(first, min(first + MEASURED, stop))
            out[part] = table[places[part]]

    shared_out(some, len(places), threads)


def _compressed(
    totals: np.ndarray, numbers: np.ndarray, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Remove missing neighbors (-1) from the arrays (n, k) of a state, in the memory of
    these arrays.

    For each remaining neighbor, return the position of its row and its rank.
    """
    (n, k), kind = numbers.shape, np.int32 if len(numbers) < MAX_POSITION else np.int64
    found = numbers.reshape(-1)
    least = shared_out(lambda a, b: found[a:b].min(initial=0), len(found), threads)
    if min(least) >= 0:
        every = np.empty((n, k), kind), np.empty((n, k), np.int64)

        def number(start: int, stop: int) -> None:
            every[0][start:stop] = np.arange(start, stop, dtype=kind)[:, None]
            every[1][start:stop] = np.arange(1, k + 1)

        shared_out(number, n, threads)
        return every[0].reshape(-1), every[1].reshape(-1)
    used, values = 0, totals.reshape(-1)
    rows, ranks = np.empty(n * k, kind), np.empty(n * k, np.int64)
    for some in blocks(n * k, TEMPORARIES):
        there = np.flatnonzero(found[some] >= 0) + some.start
        to = slice(used, used + len(there))
        rows[to], ranks[to] = np.divmod(there, k)
        found[to], values[to], used = found[there], values[there], to.stop
    ranks += 1
    for column in (totals, numbers, rows, ranks):
        column.resize(used, refcheck=False)
    return rows, ranks


WARMUP_POINTS = 100
"""A first search of this many points compiles the kernels, so its time does not count.
"""


def profile_search(
    x: Array, layout: SearchLayout, k: int, max_total: float, library: str
) -> Counters:
    """Search the k nearest rows of each point (n, d).

    Return counters: the number of neighbors, and seconds.
    """
    if not len(x):
        return Counters({"neighbors": 0.0}, {})
    _run(x[:WARMUP_POINTS], layout, k, max_total, library)
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


class RowPairs(NamedTuple):
    """Pairs of rows, with their totals and, if there are groups, their groups."""

    # (pairs,) int64: positions of the left and the right rows in their tables
    left: np.ndarray
    right: np.ndarray
    # (pairs,) float64: totals, which are compared instead of distances
    total: np.ndarray
    # (pairs,) float64: group of each pair, where the n closest pairs of each group are
    # wanted; None: one group
    group: np.ndarray | None = None

    def take(self, rows: np.ndarray | slice) -> RowPairs:
        return RowPairs(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


NO_PAIRS = RowPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def first_pairs(found: Sequence[RowPairs], n: int, one_table: bool) -> RowPairs:
    """Return the n closest distinct pairs of each group, sorted. In a self-join, left <
    right.
    """
    left, right, total = (
        np.concatenate(parts)
        for parts in zip(*(pairs[:3] for pairs in found), strict=True)
    )
    parts = [pairs.group for pairs in found if pairs.group is not None]
    group = np.concatenate(parts) if parts else None
    # in a join of a table with itself, a pair may be found twice, once from each of its
    # rows
    max_pairs = n * (1 + one_table) * len(found)
    pairs = RowPairs(left, right, total, group)
    if len(total) > max_pairs and group is None:
        pairs = pairs.take(total <= np.partition(total, max_pairs - 1)[max_pairs - 1])
    if one_table:
        ends = pairs.left, pairs.right
        pairs = pairs._replace(left=np.minimum(*ends), right=np.maximum(*ends))
    pairs = pairs.take(np.lexsort((pairs.right, pairs.left, pairs.total)))
    if pairs.group is not None:
        pairs = pairs.take(np.argsort(pairs.group, kind="stable"))
    new = np.ones(len(pairs.total), bool)
    new[1:] = (pairs.left[1:] != pairs.left[:-1]) | (
        pairs.right[1:] != pairs.right[:-1]
    )
    pairs = pairs.take(np.flatnonzero(new))
    if pairs.group is None:
        return pairs.take(slice(n))
    rank = np.arange(len(pairs.group)) - np.searchsorted(pairs.group, pairs.group)
    pairs = pairs.take(rank < n)
    return pairs.take(np.lexsort((pairs.right, pairs.left, pairs.total)))


def last_pairs(
    best: RowPairs, n: int, group: np.ndarray | None
) -> tuple[RowPairs, np.ndarray]:
    """For each row, return the last one of the closest pairs in its group, and whether
    the group has n pairs.

    `best`: the closest pairs of all groups, sorted. `group`: the group of each row;
    None: there is one group, and each result has a single item.
    """
    if group is None or best.group is None:
        return best.take(slice(-1, None)), np.array([len(best.total) >= n])
    groups, place, count = np.unique(
        best.group, return_inverse=True, return_counts=True
    )
    last = np.zeros(len(groups), np.int64)
    np.maximum.at(last, place, np.arange(len(place)))
    # `groups` has all of these, because each group has a pair in `best`
    own = np.searchsorted(groups, group)
    return best.take(last[own]), count[own] >= n


def rows_to_search_again(
    found: RowPairs, k: int, best: RowPairs, n: int, one_table: bool
) -> RowPairs:
    """Choose the rows that may have more of the closest pairs. Return each with its
    k-th neighbor, as a pair.

    `found`: the neighbors of each row, sorted. `best`: the n closest pairs of each
    group so far. A row is done if it has fewer than k neighbors. It is also done if the
    pair with its k-th neighbor comes after all pairs in `best`.
    """
    own = found.left
    ends = np.flatnonzero(np.append(own[1:] != own[:-1], len(own) > 0))
    some = found.take(ends[np.diff(ends, prepend=-1) >= k])
    last, full = last_pairs(best, n, some.group)
    if not len(some.left) or not full.any():
        return some
    left, right = some.left, some.right
    if one_table:
        left, right = np.minimum(left, right), np.maximum(left, right)
    before = (left < last.left) | ((left == last.left) & (right <= last.right))
    before = (some.total < last.total) | ((some.total == last.total) & before)
    return some.take(before | ~full)


Search = Callable[[np.ndarray | None, np.ndarray | None, int, float], RowPairs]
"""A function that searches the k nearest rows.

Its arguments: positions of left rows, positions of right rows (None: all rows), k, and
the largest total. It returns pairs sorted by left row and rank.
"""


def closest(
    search: Search, n: int, rows: tuple[int, int], one_table: bool, max_total: float
) -> RowPairs:
    """Return the n closest pairs of each group, sorted. They are found by searches for
    nearest neighbors.

    Pairs are sorted by total, then left row, then right row. The neighbors of a row
    have the same order, because ties go to the first row. So if a pair is among the n
    closest, its right row is among the n nearest neighbors of its left row. The same
    holds within a group.

    `rows`: number of rows in each table. Each further search is for more neighbors of
    fewer rows, and finds at most about 4 n pairs of a group. So memory depends on n and
    the numbers of rows, but not on how many rows are duplicates.
    """
    max_k = rows[1] - one_table
    if min(rows[0], max_k) < 1:
        return NO_PAIRS
    k = min(max(1, math.ceil(n * (1 + one_table) / rows[0])), max_k)
    found = search(None, None, k, max_total)
    best = first_pairs([found], n, one_table)
    while True:
        again = rows_to_search_again(found, k, best, n, one_table)
        if k == max_k or not len(again.left):
            return best
        k = min(2 * k, max_k)
        others = None
        last, full = last_pairs(best, n, again.group)
        if full.all():
            max_total = float(last.total.max())
            # even the nearest neighbor of any other row gave no pair for `best`, so
            # only these rows can form closer pairs
            if one_table:
                chosen = np.zeros(rows[0], bool)
                chosen[best.left] = chosen[best.right] = True
                others = np.flatnonzero(chosen)
        found = search(again.left, others, k, max_total)
        best = first_pairs([best, found], n, one_table)
