"""Make rows of results from the neighbors that searches have found."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import (
    frames_for,
)
from dask_simjoin.engine.compat import inverse_of, module_of, to_host
from dask_simjoin.engine.ids import as_id_keys, from_id_keys, joined, taken_ids
from dask_simjoin.engine.process import shared_out
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.norms import Array, Frame, Ids, Values
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import BATCH, IN_CACHE
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import CHUNK, RowNumbers
from dask_simjoin.tasks.left_out import filled, kept_rows
from dask_simjoin.tasks.matches import kept_columns, measured, row_places
from dask_simjoin.tasks.named_tuples import sent_by_fields
from dask_simjoin.tasks.nearest import (
    State,
    Totals,
    rows_of_numbers,
    search_chunk,
    search_chunks,
)
from dask_simjoin.tasks.pairs import (
    cast_like,
    partnerless,
    unmatched,
    unmatched_places,
)


@sent_by_fields
class FoundRows(NamedTuple):
    """The neighbors in a state that are rows of a certain chunk."""

    # (neighbors,) int64: positions in the flattened arrays of the state, ``row * k +
    # rank``
    places: Array
    ids: Ids
    columns: dict[str, Values]  # kept columns, by their names in the result


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
    alone = partnerless(query, places, spec, like)
    return frames.stacked([matched, alone]).iloc[order].reset_index(drop=True)


def rows_near(
    made: Callable[..., Frame],
    options: tuple[SearchLayout, int, bool, Totals],
    spec: JoinSpec,
    like: Frame,
    in_frame_order: bool,
    places: Sequence[int],
    *chunks: Chunk,
) -> Frame:
    """Search the neighbors of a chunk's rows in all chunks near it, and make the rows
    of the result.

    `made`: `nearest_rows` or `nearest_or_missing`. `options`: layout, number of
    neighbors, whether it is a self-join, and the (smallest, largest) allowed total.
    `in_frame_order`: whether chunks are numbered in the order of their rows. `places`:
    the numbers of all chunks. `chunks`: the chunk of the rows, and the near chunks.
    """
    layout, k, is_self_join, totals = options
    query, *near = chunks
    numbers = places if in_frame_order else [chunk["position"] for chunk in chunks]
    about = layout, k, numbers, is_self_join, totals, (0, 1)
    state = search_chunks(query, near, *about)
    found = (
        find_rows(state, data, own, spec)
        for data, own in zip(near, numbers[1:], strict=True)
    )
    return made(query, state, spec, like, *found)


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
    frames = frames_for(query["example"])
    totals, numbers = state["totals"], state["row_numbers"]
    n, k = numbers.shape
    rows, ranks = _compressed(totals, numbers, threads)
    totals, numbers = totals.reshape(-1), numbers.reshape(-1)
    if not len(totals):
        return like
    distance = measured(spec, np)
    _by_batch(distance, totals, threads, totals)

    def of_left(values: np.ndarray) -> np.ndarray:
        if rows is None:
            return _repeated(values[:, None], n, k, threads)
        found = np.empty(len(rows), values.dtype)
        _by_batch(values.__getitem__, rows, threads, found)
        return found

    columns: dict[str, Values] = {"rank": ranks, "distance": totals}
    if spec.kept_left:
        places = of_left(row_places(query))
        columns |= frames.columns_at(query["kept"], spec.kept_left, places)
    if spec.kept_right:
        places = row_places(data)[numbers]
        columns |= frames.columns_at(data["kept"], spec.kept_right, places)
    ids = query["ids"]
    if isinstance(ids.dtype, np.dtype) and ids.dtype != object:
        columns["left"] = of_left(ids.to_numpy())
    else:
        columns["left"] = frames.ids(ids, of_left(np.arange(n)))
    rows = None
    ids = data["ids"]
    keys_of = functools.partial(as_id_keys, ids)
    if getattr(ids.dtype, "itemsize", 0) == 8 and keys_of(numbers[:0]) is not None:
        _by_batch(keys_of, numbers, threads, numbers)
        columns["right"] = from_id_keys(numbers, ids)
    else:
        columns["right"] = frames.ids(ids, numbers)
    return frames.result(
        {name: columns.pop(name) for name in like.columns}, len(totals)
    )


def whole_rows_on_device(
    query: Chunk, data: Chunk, state: State, spec: JoinSpec, like: Frame
) -> Frame:
    """Make rows like `nearest_rows`, for a single searched chunk on a GPU. The memory of
    the state becomes the memory of the result, if no neighbor is missing.

    `data`: the searched chunk.
    """
    totals, numbers = state["totals"], state["row_numbers"]
    (n, k), xp = numbers.shape, module_of(numbers)
    if not numbers.size or int(numbers.min()) < 0:
        return nearest_rows(query, state, spec, like, find_rows(state, data, 0, spec))
    numbers, frames = numbers.reshape(-1), frames_for(query["example"])

    def of_left(values: Array) -> Array:
        return _repeated(values[:, None], n, k)

    columns: dict[str, Values] = {}
    if spec.kept_left:
        index = of_left(row_places(query))
        columns |= kept_columns((query,), spec.kept_left, index)
    if spec.kept_right:
        index = row_places(data)[numbers]
        columns |= kept_columns((data,), spec.kept_right, index)
    columns["distance"] = measured(spec, xp)(totals.reshape(-1))
    columns["right"] = taken_ids(data["ids"], numbers)
    own = taken_ids(query["ids"], xp.arange(n))
    columns["left"] = of_left(own) if isinstance(own, xp.ndarray) else own.repeat(k)
    columns["rank"] = _repeated(xp.arange(1, k + 1)[None], n, k)
    return frames.result({name: columns[name] for name in like.columns}, n * k)


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


def _by_batch(
    convert: Callable[[np.ndarray], np.ndarray],
    values: np.ndarray,
    threads: int,
    out: np.ndarray,
) -> None:
    """Write the converted values to `out`, which may be `values` itself."""

    def some(start: int, stop: int) -> None:
        for first in range(start, stop, BATCH):
            part = slice(first, min(first + BATCH, stop))
            out[part] = convert(values[part])

    shared_out(some, len(values), threads)


def _repeated(values: Array, n: int, k: int, threads: int = 1) -> Array:
    """Return values, (n, 1) or (1, k), for all neighbors of all rows (n * k,)."""
    found = module_of(values).empty((n, k), values.dtype)

    def fill(start: int, stop: int) -> None:
        found[start:stop] = values[start:stop] if len(values) == n else values

    shared_out(fill, n, threads)
    return found.reshape(-1)


def _compressed(
    totals: np.ndarray, numbers: np.ndarray, threads: int
) -> tuple[np.ndarray | None, np.ndarray]:
    """Remove missing neighbors (-1) from the arrays (n, k) of a state, in the memory of
    these arrays.

    For each remaining neighbor, return the position of its row and its rank. The
    positions are None if no neighbor is missing.
    """
    n, k = numbers.shape
    found = numbers.reshape(-1)
    least = shared_out(lambda a, b: found[a:b].min(initial=0), len(found), threads)
    if min(least) >= 0:
        return None, _repeated(np.arange(1, k + 1)[None], n, k, threads)
    kind = np.int32 if n - 1 <= np.iinfo(np.int32).max else np.int64
    used, values = 0, totals.reshape(-1)
    rows, ranks = np.empty(n * k, kind), np.empty(n * k, np.int64)
    for start in range(0, n * k, IN_CACHE):
        there = np.flatnonzero(found[start : start + IN_CACHE] >= 0) + start
        to = slice(used, used + len(there))
        rows[to], ranks[to] = np.divmod(there, k)
        found[to], values[to], used = found[there], values[there], to.stop
    ranks += 1
    for column in (totals, numbers, rows, ranks):
        column.resize(used, refcheck=False)
    return rows, ranks
