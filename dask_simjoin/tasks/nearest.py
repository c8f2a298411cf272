"""Search chunks for nearest neighbors, and build their result rows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.engine.base import (
    Counters,
    frames_for,
    joiner_of_library,
    searcher_for,
    searcher_of_library,
)
from dask_simjoin.engine.columns import blocks
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.ids import as_id_keys, from_id_keys, joined
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.engine.threads import shared_out
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Array, Frame, Ids, Index, Values
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import CHUNK, RowNumbers
from dask_simjoin.tasks.matches import kept_values, measured, rank


class State(TypedDict):
    """Hold what is known of the nearest rows of each row of a chunk: a plain dict, so that it spills.

    It has no more columns than rows were met.
    """

    totals: Array
    """The totals (n, k) float64 of each row's nearest so far, ascending; inf: none yet."""
    row_numbers: Array
    """The numbers (n, k) int64 of those rows; -1: none yet."""
    rows: NotRequired[Array]
    """Which rows of the chunk those are, where they are a part of them."""


def search_chunk(q: Chunk, d: Chunk, layout: SearchLayout, k: int, numbers: Sequence[RowNumbers],
                 same: bool = True, max_total: float = math.inf, part: tuple[int, int] = (0, 1),
                 state: State | None = None) -> State:  # fmt: skip
    """Improve what is known of the nearest rows of one chunk's rows by another chunk, or by their own.

    `numbers`: of both chunks' rows; `same`: both are of one table, in which no row is a neighbour of itself;
    `max_total`: the largest total of a neighbour; `part`: which part of the first chunk's rows, of how many;
    `state`: what was known before; None: nothing.
    """
    searcher = searcher_for(q["example"])
    searcher.prepare()
    known = 0 if state is None else state["totals"].shape[1]
    start, stop = part_of_places(len(q["ids"]), searcher.grain, part)
    # where more are sought than there are rows, memory is for those that there are
    totals, found = searcher.fresh(stop - start, min(k, known + len(d["ids"])))
    if state is not None:  # copied: others may have the old one
        totals[:, :known], found[:, :known] = state["totals"], state["row_numbers"]
    first, second = (own * CHUNK if isinstance(own, int) else own for own in numbers)
    query = searcher.renamed(cast(Index, q), first)
    data = query if q is d else searcher.renamed(cast(Index, d), second)
    if part[1] == 1:
        searcher.nearest(query, data, layout, totals, found, same=same, bound2=max_total)
        return {"totals": totals, "row_numbers": found}
    some = searcher.part(query, start, stop)
    rows = some["order"]
    # their state is in the order of the index
    here = some | {"order": module_of(rows).arange(len(rows), dtype=rows.dtype)}
    searcher.nearest(here, data, layout, totals, found, same=same, bound2=max_total)
    return {"totals": totals, "row_numbers": found, "rows": rows}


def part_of_places(rows: int, grain: int, part: tuple[int, int]) -> tuple[int, int]:
    """Cut the places of an index evenly."""
    number, parts = part
    if parts == 1:
        return 0, rows
    start, stop = (min(-(-rows * k // parts // grain) * grain, rows) for k in (number, number + 1))
    return start, rows if number + 1 == parts else stop


def join_states(threads: int, *parts: State) -> State:
    """Put together what is known of all rows of a chunk; `threads`: that share the work on the host."""
    xp = module_of(parts[0]["totals"])
    if xp is np:
        return _put_together(parts, threads)
    rows = xp.argsort(xp.concatenate([part["rows"] for part in parts]))
    totals, numbers = (
        xp.concatenate([part[name] for part in parts])[rows] for name in ("totals", "row_numbers")
    )
    return {"totals": totals, "row_numbers": numbers}


def _put_together(parts: Sequence[State], threads: int) -> State:
    """Do as `join_states` does on the host."""
    rows, (totals, numbers) = [part["rows"] for part in parts], (parts[0]["totals"], parts[0]["row_numbers"])
    shape = sum(map(len, rows)), totals.shape[1]
    made = State(totals=np.empty(shape, totals.dtype), row_numbers=np.empty(shape, numbers.dtype))

    def put(first: int, last: int) -> None:
        for part, places in zip(parts[first:last], rows[first:last], strict=True):
            _whole_rows(made["totals"])[places] = _whole_rows(part["totals"])
            _whole_rows(made["row_numbers"])[places] = _whole_rows(part["row_numbers"])

    shared_out(put, len(parts), threads, least=1)
    return made


def _whole_rows(x: np.ndarray) -> np.ndarray:
    """See each row as one thing: NumPy moves those in half of the time."""
    return x.view(np.dtype((np.void, x.shape[1] * x.itemsize)))[:, 0] if x.shape[1] else x


def kth_distance(state: State, k: int, metric: Metric) -> Array:
    """Give the distances (n,) of the k-th of those rows, float64; inf: there are not so many."""
    totals = state["totals"]
    xp = module_of(totals)
    if totals.shape[1] < k:
        return xp.full(len(totals), math.inf)
    total = totals[:, k - 1]
    return xp.where(xp.isinf(total), total, metric.distance(total.copy(), xp))


MAX_POSITION = 2**31
"""Rows from which on int32 cannot number them."""


PARTS = 16
"""Smaller blocks where several arrays are made of each: glibc may keep what was freed."""


class FoundRows(NamedTuple):
    """Hold neighbours that lie in one chunk.

    Attributes
    ----------
    places : array (rows,), int64
        Which neighbours of the state they are: row * k + number.
    ids : Index
    columns : dict
        Kept columns of the result, by their names.
    """

    places: Array
    ids: Ids
    columns: dict[str, Values]


def find_rows(state: State, d: Chunk, own: RowNumbers, spec: JoinSpec) -> FoundRows:
    """Find those of the neighbours that are rows of a chunk; `own`: the chunk's number, or its rows'."""
    numbers = state["row_numbers"].reshape(-1)
    xp = module_of(numbers)
    if isinstance(own, int):
        first, stop = own * CHUNK, (own + 1) * CHUNK
        if len(numbers) and int(numbers.min()) >= first and int(numbers.max()) < stop:  # as of one chunk
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
    """Make the neighbours of a chunk's rows, in their order and the nearest first, like an example."""
    frames = frames_for(q["example"])
    xp, k = frames.xp, state["row_numbers"].shape[1]
    found = tuple(part for part in found if len(part.places))
    if not found:
        return like
    places, order = found[0].places, None
    if len(found) > 1:  # those of one chunk are in order
        places = xp.concatenate([part.places for part in found])
        order = xp.argsort(places)
        places = places[order]
    totals = state["totals"].reshape(-1)
    every = len(places) == len(totals)
    if every:  # all of them were found: nothing is to be divided
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


def whole_rows(q: Chunk, d: Chunk, state: State, spec: JoinSpec, like: Frame) -> Frame:
    """Make the same rows on the host of a search of one chunk in one, whose state becomes two columns."""
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
    """Leave out of a state (n, k) in place what was not found; return the row and the rank of all others."""
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
"""Points whose neighbours are sought before anything is timed, so that kernels are compiled."""


def profile_search(x: Array, layout: SearchLayout, k: int, max_total: float, library: str) -> Counters:
    """Seek the k nearest rows of each of the points (n, d), keep none, and tell how many they were."""
    if not len(x):
        return Counters({"neighbours": 0.0}, {})
    _run(x[:WARM], layout, k, max_total, library)
    return _run(x, layout, k, max_total, library)


def _run(x: Array, layout: SearchLayout, k: int, max_total: float, library: str) -> Counters:
    joiner, searcher = joiner_of_library(library), searcher_of_library(library)
    begin = time.perf_counter()
    index = searcher.renamed(joiner.build(x, layout), 0)
    to_host(index["names"][:1])  # a GPU is done with what was begun
    built = time.perf_counter()
    totals, names = searcher.fresh(len(x), min(k, len(x)))
    searcher.nearest(index, index, layout, totals, names, same=True, bound2=max_total)
    found = int((names >= 0).astype(joiner.xp.int64).sum())
    seconds = {"index": built - begin, "search": time.perf_counter() - built}
    return Counters({"neighbours": float(found)}, seconds)
