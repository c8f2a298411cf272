"""Search chunks for nearest neighbors, and build their result rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.engine.base import (
    Counters,
    frames_for,
    host_kernels,
    joiner_of_library,
    searcher_for,
    searcher_of_library,
)
from dask_simjoin.engine.columns import blocks
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.ids import as_id_keys, from_id_keys, joined
from dask_simjoin.engine.process import shared_out
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.norms import Array, Frame, Ids, Index, Values
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import CHUNK, RowNumbers
from dask_simjoin.tasks.matches import kept_values, measured, rank
from dask_simjoin.tasks.pairs import cast_like, unmatched


class State(TypedDict):
    """Hold the nearest rows found so far for each row of a chunk: a plain dict, so that it spills.

    It has k columns, or fewer if fewer rows were searched.
    """

    totals: Array
    """The totals (n, k) float64 of each row's nearest rows so far, ascending; inf: none yet."""
    row_numbers: Array
    """The row numbers (n, k) int64 of the nearest rows; -1: none yet."""
    rows: NotRequired[Array]
    """The rows that the state is for, if it is for a part of the chunk's rows."""


Totals = tuple[float, float]
"""The smallest and the largest total of a neighbor."""

ANY_TOTAL: Totals = (0.0, math.inf)


def search_chunk(q: Chunk, d: Chunk, layout: SearchLayout, k: int, numbers: Sequence[RowNumbers],
                 is_self_join: bool = True, totals: Totals = ANY_TOTAL, part: tuple[int, int] = (0, 1),
                 state: State | None = None) -> State:  # fmt: skip
    """Update the nearest rows of a chunk's rows with the rows of another chunk, or of the same chunk.

    `numbers`: the `RowNumbers` of each chunk.  `is_self_join`: whether both chunks are of one table, where a
    row is not its own neighbor.  `totals`: the smallest and largest total of a neighbor.  `part`: the part of
    the first chunk's rows to search for, and the number of parts.  `state`: the result of earlier searches
    for these rows in other chunks, if any.
    """
    searcher = searcher_for(q["example"])
    searcher.prepare()
    known = 0 if state is None else state["totals"].shape[1]
    start, stop = part_of_places(len(q["ids"]), searcher.grain, part)
    # no more columns than rows that can be found
    best, found = searcher.fresh(stop - start, min(k, known + len(d["ids"])))
    if state is not None:  # copied, because other tasks may use the old state
        best[:, :known], found[:, :known] = state["totals"], state["row_numbers"]
    first, second = (own * CHUNK if isinstance(own, int) else own for own in numbers)
    query = searcher.renamed(cast(Index, q), first)
    data = query if q is d else searcher.renamed(cast(Index, d), second)
    limits = {"bound2": totals[1]} | ({"least2": totals[0]} if totals[0] else {})  # GPUs take no `least2`
    if part[1] == 1:
        searcher.nearest(query, data, layout, best, found, is_self_join=is_self_join, **limits)
        return {"totals": best, "row_numbers": found}
    some = searcher.part(query, start, stop)
    rows = some["order"]
    # the state of a part has its rows in index order
    here = some | {"order": module_of(rows).arange(len(rows), dtype=rows.dtype)}
    searcher.nearest(here, data, layout, best, found, is_self_join=is_self_join, **limits)
    return {"totals": best, "row_numbers": found, "rows": rows}


def mutual_state(q: Chunk, d: Chunk, search: Callable[[Chunk, Chunk], State]) -> State:
    """Search two chunks on the host, or one chunk twice, and keep mutual neighbors.

    `search`: finds the neighbors of the first chunk's rows in the second, whose rows are numbered from 0.
    Neighbors that are not mutual become -1, so that mutual neighbors keep their ranks.
    """
    back = None if q is d else _sorted_numbers(search(d, q))
    state = search(q, d)
    back = _sorted_numbers(state) if back is None else back
    host_kernels("nearest").drop_one_way(state["row_numbers"], back)
    return state


def _sorted_numbers(state: State) -> np.ndarray:
    """Return the numbers of each row's neighbors (n, k) in order; rows of a chunk fit int32."""
    numbers = state["row_numbers"].astype(np.int32)
    numbers.sort(axis=1)
    return numbers


def part_of_places(rows: int, grain: int, part: tuple[int, int]) -> tuple[int, int]:
    """Cut the places of an index evenly."""
    number, parts = part
    if parts == 1:
        return 0, rows
    start, stop = (min(-(-rows * k // parts // grain) * grain, rows) for k in (number, number + 1))
    return start, rows if number + 1 == parts else stop


def join_states(threads: int, *parts: State) -> State:
    """Merge the states of all parts of a chunk, on the host with this number of `threads`."""
    xp = module_of(parts[0]["totals"])
    if xp is np:
        return _join_on_host(parts, threads)
    rows = xp.argsort(xp.concatenate([part["rows"] for part in parts]))
    totals, numbers = (
        xp.concatenate([part[name] for part in parts])[rows] for name in ("totals", "row_numbers")
    )
    return {"totals": totals, "row_numbers": numbers}


def _join_on_host(parts: Sequence[State], threads: int) -> State:
    """Do what `join_states` does, on the host."""
    rows, (totals, numbers) = [part["rows"] for part in parts], (parts[0]["totals"], parts[0]["row_numbers"])
    shape = sum(map(len, rows)), totals.shape[1]
    made = State(totals=np.empty(shape, totals.dtype), row_numbers=np.empty(shape, numbers.dtype))

    def put(first: int, last: int) -> None:
        for part, places in zip(parts[first:last], rows[first:last], strict=True):
            _whole_rows(made["totals"])[places] = _whole_rows(part["totals"])
            _whole_rows(made["row_numbers"])[places] = _whole_rows(part["row_numbers"])

    shared_out(put, len(parts), threads, min_items=1)
    return made


def _whole_rows(x: np.ndarray) -> np.ndarray:
    """View each row as one item, which NumPy moves in half the time."""
    return x.view(np.dtype((np.void, x.shape[1] * x.itemsize)))[:, 0] if x.shape[1] else x


def kth_distance(state: State, k: int, spec: JoinSpec) -> Array:
    """Return the distance of each row's k-th nearest row (n,) float64; inf: there are fewer than k."""
    totals = state["totals"]
    xp = module_of(totals)
    if totals.shape[1] < k:
        return xp.full(len(totals), math.inf)
    total = totals[:, k - 1]
    return xp.where(xp.isinf(total), total, measured(spec, xp)(total.copy()))


MAX_POSITION = 2**31
"""From this number of rows on, positions are int64."""


PARTS = 16
"""Blocks are this many times smaller if each needs several arrays, because glibc may keep freed memory."""


class FoundRows(NamedTuple):
    """Hold the neighbors that are rows of one chunk.

    Attributes
    ----------
    places : array (rows,), int64
        The neighbors' places in the state: row * k + rank.
    ids : Index
    columns : dict
        Kept columns of the result, by their names.
    """

    places: Array
    ids: Ids
    columns: dict[str, Values]


def find_rows(state: State, d: Chunk, own: RowNumbers, spec: JoinSpec) -> FoundRows:
    """Select the neighbors that are rows of a chunk; `own`: the `RowNumbers` of the chunk."""
    numbers = state["row_numbers"].reshape(-1)
    xp = module_of(numbers)
    if isinstance(own, int):
        first, stop = own * CHUNK, (own + 1) * CHUNK
        if (
            len(numbers) and int(numbers.min()) >= first and int(numbers.max()) < stop
        ):  # all numbers are in this chunk
            places, rows = xp.arange(len(numbers)), numbers
        else:
            places = xp.flatnonzero((numbers >= first) & (numbers < stop))
            rows = numbers[places]
        rows = rows - first if first else rows
    else:
        at = xp.searchsorted(own, numbers)
        there = at < len(own)
        there[there] = own[at[there]] == numbers[there]
        places = xp.flatnonzero(there)
        rows = at[places]
    columns = {}
    if spec.kept_right:
        index = rank(d, xp)[rows]
        columns = {called: kept_values((d,), column, index) for called, column in spec.kept_right.items()}
    return FoundRows(places, d["ids"].take(rows), columns)


def nearest_rows(q: Chunk, state: State, spec: JoinSpec, like: Frame, *found: FoundRows) -> Frame:
    """Make a frame like an example: the neighbors of a chunk's rows, for each row the nearest first."""
    frames = frames_for(q["example"])
    xp, k = frames.xp, state["row_numbers"].shape[1]
    found = tuple(part for part in found if len(part.places))
    if not found:
        return like
    places, order = found[0].places, None
    if len(found) > 1:  # neighbors from one chunk are in order
        places = xp.concatenate([part.places for part in found])
        order = xp.argsort(places)
        places = places[order]
    totals = state["totals"].reshape(-1)
    every = len(places) == len(totals)
    if every:  # all neighbors were found, so ranks repeat and need no division
        rows, ranks = (
            xp.repeat(xp.arange(len(places) // k), k),
            xp.tile(xp.arange(1, k + 1), len(places) // k),
        )
    else:
        rows, ranks = places // k, places % k + 1
    columns: dict[str, Values] = {}
    for name in like.columns:
        if name == "left":
            columns[name] = q["ids"].take(rows)
        elif name == "right":
            ids = joined([part.ids for part in found])
            columns[name] = ids if order is None else ids.take(order)
        elif name == "rank":
            columns[name] = ranks
        elif name == "distance":
            columns[name] = measured(spec, xp)(totals.copy() if every else totals[places])
        elif name in spec.kept_left:
            columns[name] = kept_values((q,), spec.kept_left[name], rank(q, xp)[rows])
        elif order is None:
            columns[name] = found[0].columns[name]
        else:
            parts = [frames.result({name: part.columns[name]}, len(part.places)) for part in found]
            columns[name] = frames.values(frames.stacked(parts), name, order)
    return frames.result(columns, len(places))


def nearest_or_missing(q: Chunk, state: State | None, spec: JoinSpec, like: Frame,
                       *found: FoundRows) -> Frame:  # fmt: skip
    """Do what `nearest_rows` does, and add a row of missing values for each row without a neighbor.

    `state`: None if no chunk was searched.
    """
    if state is None or not state["row_numbers"].shape[1]:
        return unmatched(q, 0, spec, like)
    xp, frames = module_of(state["totals"]), frames_for(q["example"])
    near, k = has_neighbor(state), state["row_numbers"].shape[1]
    matched = cast_like(nearest_rows(q, state, spec, like, *found), like)
    if bool(near.all()):
        return matched
    rows = xp.flatnonzero(state["row_numbers"].reshape(-1) >= 0) // k
    order = xp.argsort(xp.concatenate([rows, xp.flatnonzero(~near)]), kind="stable")
    alone = unmatched(q, near.astype(xp.int64), spec, like)
    return frames.stacked([matched, alone]).iloc[order].reset_index(drop=True)


def has_neighbor(state: State) -> Array:
    """Return whether each row of a chunk has a neighbor."""
    numbers = state["row_numbers"]
    if not numbers.shape[1]:
        return module_of(numbers).zeros(len(numbers), bool)
    found: Array = numbers[:, 0] >= 0
    return found


def whole_rows(q: Chunk, d: Chunk, state: State, spec: JoinSpec, like: Frame) -> Frame:
    """Do what `nearest_rows` does for one chunk on the host; two columns reuse the state's memory."""
    frames, (totals, numbers) = frames_for(q["example"]), (state["totals"], state["row_numbers"])
    rows, ranks = _compressed(totals, numbers)
    if not len(rows):
        return like
    distance = measured(spec, np)
    for some in blocks(len(rows)):
        totals[some] = distance(totals[some])
    columns: dict[str, Values] = {"rank": ranks, "distance": totals}
    for names, chunk, which in ((spec.kept_left, q, rows), (spec.kept_right, d, numbers)):
        places = rank(chunk, np) if names else None
        for called, column in names.items():
            own = frames.result({column: kept_values((chunk,), column, places)}, len(chunk["ids"]))
            columns[called] = frames.values(own, column, which)
    columns["left"] = frames.ids(q["ids"], rows)
    del rows
    ids = d["ids"]
    keys = as_id_keys(ids, np.arange(len(ids))) if getattr(ids.dtype, "itemsize", 0) == 8 else None
    if keys is None:
        columns["right"] = frames.ids(ids, numbers)
    else:
        for some in blocks(len(numbers)):
            numbers[some] = keys[numbers[some]]
        columns["right"] = from_id_keys(numbers, ids)
    return frames.result({name: columns.pop(name) for name in like.columns}, len(totals))


def _compressed(totals: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop missing neighbors from a state (n, k) in place; return the row and the rank of each neighbor."""
    (n, k), kind = numbers.shape, np.int32 if len(numbers) < MAX_POSITION else np.int64
    found, used = numbers.reshape(-1), 0
    if not found.size or found.min() >= 0:
        used, rows, ranks = n * k, np.repeat(np.arange(n, dtype=kind), k), np.tile(np.arange(1, k + 1), n)
    else:
        rows, ranks, values = np.empty(n * k, kind), np.empty(n * k, np.int64), totals.reshape(-1)
        for some in blocks(n * k, PARTS):
            there = np.flatnonzero(found[some] >= 0) + some.start
            to = slice(used, used + len(there))
            rows[to], ranks[to] = np.divmod(there, k)
            found[to], values[to], used = found[there], values[there], to.stop
        ranks += 1
        del values
    del found
    for column in (totals, numbers, rows, ranks):
        column.resize(used, refcheck=False)
    return rows, ranks


WARM = 100
"""Points of an untimed first search, which compiles the kernels."""


def profile_search(x: Array, layout: SearchLayout, k: int, max_total: float, library: str) -> Counters:
    """Search the k nearest rows of each point (n, d); return the number of neighbors, and the seconds."""
    if not len(x):
        return Counters({"neighbors": 0.0}, {})
    _run(x[:WARM], layout, k, max_total, library)
    return _run(x, layout, k, max_total, library)


def _run(x: Array, layout: SearchLayout, k: int, max_total: float, library: str) -> Counters:
    joiner, searcher = joiner_of_library(library), searcher_of_library(library)
    begin = time.perf_counter()
    index = searcher.renamed(joiner.build(x, layout), 0)
    to_host(index["names"][:1])  # waits for the GPU
    built = time.perf_counter()
    totals, names = searcher.fresh(len(x), min(k, len(x)))
    searcher.nearest(index, index, layout, totals, names, is_self_join=True, bound2=max_total)
    found = int((names >= 0).astype(joiner.xp.int64).sum())
    seconds = {"index": built - begin, "search": time.perf_counter() - built}
    return Counters({"neighbors": float(found)}, seconds)
