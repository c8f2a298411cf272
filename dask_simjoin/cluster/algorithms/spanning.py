"""Find core distances and the minimum spanning tree of mutual reachability, chunk by
chunk.

The core distance of a row is the distance to its `min_samples`-th nearest row, itself
included. The weight of an edge is the largest of the distance and both core distances.
Weights are totals, which are sums before the root of the metric. See Campello, Moulavi
& Sander (2013), "Density-based clustering based on hierarchical density estimates",
definitions 1 and 4. Edges are ordered by (weight, smaller row number, larger row
number), so the tree does not depend on partitions.

If an edge of the tree connects two rows of a subset, it is also in the minimum spanning
tree of the subset. So each edge of the tree is also in the tree of one chunk, or in the
joint tree of two chunks. A joint tree has only edges from the trees of both chunks, and
edges between the chunks. Tasks find all these edges, merge them, and drop edges that
close a cycle.

Ends of edges are int32 positions of rows in the frame, so an edge takes 16 bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypedDict, cast

import numpy as np
from dask.system import CPU_COUNT

from dask_simjoin.engine.base import (
    frames_for,
    host_kernels,
    searcher_for,
    searcher_of_library,
    spanner_for,
    spanner_of,
)
from dask_simjoin.engine.compat import (
    float32_below,
    inverse_of,
    looked_up,
    module_of,
    to_host,
)
from dask_simjoin.engine.index.cpu_tiles import TILE, aligned_index, smallest_names
from dask_simjoin.engine.process import shared_out, together
from dask_simjoin.engine.protocols import Edges, Found, Part, Progress, SearchLayout
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Array, Frame, Index
from dask_simjoin.planning.chunk_limits import MAX_STORED, MIN_STORED
from dask_simjoin.sizes import PARTS_PER_THREAD
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import CHUNK, RowNumbers
from dask_simjoin.tasks.nearest import (
    MIN_SEARCHED,
    State,
    part_of_places,
    rows_of_numbers,
)


class CoreDistances(TypedDict):
    """Core distances and nearest rows, for each row of a chunk by place. It is a dict,
    which Dask can spill to disk.

    For `near`, `away` and `beyond` see `dask_simjoin.engine.cpu.rounds.Nearest`.
    """

    # core distances as totals; for a single chunk, NaN is appended to fill the last
    # tile
    core: Array
    near: Array
    away: Array
    beyond: Array


def neighbors_needed(min_samples: int) -> int:
    """Return how many nearest rows to search: enough for the core distance, and one
    more.

    The additional row bounds the distances of rows that are not stored.
    """
    return max(min_samples - 1, MIN_STORED) + 1


def _core_distances(
    totals: Array, near: Array, min_samples: int, rows: int
) -> CoreDistances:
    """Make `CoreDistances` from the nearest rows: `totals` and `near` (n, k) are their
    distances and places. `rows`: number of rows of all chunks.
    """
    xp = module_of(totals)
    others = max(0, min(min_samples, rows) - 1)
    listed = near.shape[1]
    away = totals[:, : listed if listed > others else 0]
    core = totals[:, others - 1] if others and len(totals) else xp.zeros(len(totals))
    beyond = (
        totals[:, listed] if listed < totals.shape[1] else xp.full(len(totals), -1.0)
    )
    return {
        "core": xp.ascontiguousarray(core),
        "near": near,
        "away": xp.ascontiguousarray(away),
        "beyond": float32_below(beyond),
    }


def _number_stored(searched: int) -> int:
    """Return how many nearest rows to store per row. `searched`: one more than core
    distances need.

    An edge of a row may lead to any row within its core distance. If too many rows are
    within it, only a few are stored, and the next distance serves as a bound.
    """
    number = max(0, searched - 1)
    return number if number <= MAX_STORED else MIN_STORED


def _places(chunk: Chunk) -> Array:
    return inverse_of(chunk["order"][: len(chunk["ids"])])


def core_distances_of_state(
    chunk: Chunk, own: RowNumbers, state: State, min_samples: int, rows: int
) -> CoreDistances:
    """Make `CoreDistances` from the final state of the searches for all rows of a
    chunk, or for some of them.

    `own`: the number of the chunk, or the row numbers of its rows.
    """
    totals, numbers = state["totals"], state["row_numbers"]
    xp = module_of(totals)
    numbers = xp.ascontiguousarray(numbers[:, : _number_stored(totals.shape[1])])
    if isinstance(own, int):
        here, row = numbers // CHUNK == own, numbers % CHUNK
    else:
        row = rows_of_numbers(own, numbers)
        here = row >= 0
    place = _places(chunk)
    near = xp.full(numbers.shape, -1, np.int32)
    near[here] = place[row[here]]
    if "rows" not in state:  # the state of a part has sorted its rows by place already
        order = chunk["order"][: len(place)]
        totals, near = totals[order], near[order]
    return _core_distances(totals, near, min_samples, rows)


def join_core_distances(*parts: CoreDistances) -> CoreDistances:
    xp = module_of(parts[0]["core"])
    near, away, beyond = (
        xp.concatenate(columns) for columns in zip(*map(nearest_of, parts), strict=True)
    )
    rest = xp.full(_padded(len(beyond)) - len(beyond), np.nan)
    core = xp.concatenate([*(part["core"] for part in parts), rest])
    return {"core": core, "near": near, "away": away, "beyond": beyond}


def search_core_distances(
    chunk: Chunk,
    layout: SearchLayout,
    min_samples: int,
    part: tuple[int, int] = (0, 1),
    *,
    prepared: Sequence[Callable[[], object]] = (),
    threads: int = 1,
) -> CoreDistances:
    """Search the nearest rows of a single chunk in batches, and return their
    `CoreDistances`.

    `part`: (index of the share of the places, number of shares). `prepared`: functions
    that compile kernels while the search runs: see `Spanner.prepare`. `threads`: number
    of threads that search on the host.
    """
    searcher, rows = searcher_for(chunk["example"]), len(chunk["ids"])
    spanner_for(chunk["example"]).prepare(layout, _keep_some, *prepared)
    query, xp = cast(Index, chunk), module_of(chunk["order"])
    on_host, number = xp is np, min(neighbors_needed(min_samples), rows)
    if on_host:
        query = _named_by_place(query)
    else:
        query, place = searcher.renamed(query, 0), _places(chunk)
    first, last = part_of_places(rows, searcher.grain, part)
    result: dict[str, Array] = {}
    step, padded = searcher.at_once(number), part[1] == 1
    if on_host:
        others = max(0, min(min_samples, rows) - 1)
        result = _on_host(last - first, number, others, padded)
        each = -(-(last - first) // (threads * PARTS_PER_THREAD))
        step = min(step, max(MIN_SEARCHED, _padded(each)))
        keep = host_kernels("boruvka").keep_nearest
    used: list[tuple[Array, Array]] = []

    def search(start: int) -> None:
        stop = min(start + step, last)
        some = searcher.part(query, start, stop) if rows > stop - start else query
        here = some | {"order": xp.arange(stop - start, dtype=some["order"].dtype)}
        # use arrays of earlier batches again. Dask's workers return freed memory to the
        # system, so fresh memory is slow
        try:
            arrays = used.pop()
        except IndexError:
            arrays = searcher.fresh(min(step, last - first), number)
        else:
            arrays[0][...], arrays[1][...] = np.inf, -1
        totals, names = arrays[0][: stop - start], arrays[1][: stop - start]
        searcher.nearest(here, query, layout, totals, names, is_self_join=True)
        if on_host:
            keep(totals, names, others, start - first, *result.values())
            used.append(arrays)
            return
        near = looked_up(place, names[:, : _number_stored(number)])
        distances = _core_distances(totals, near, min_samples, rows)
        _keep(result, distances, start - first, last - first, padded)

    calls = [functools.partial(search, at) for at in range(first, last, step)]
    together(calls or [lambda: search(first)], threads if on_host else 1)
    return cast(CoreDistances, result)


def _named_by_place(index: Index) -> Index:
    """Return a copy of an index on the host whose row ids are the places.

    So found ids need no conversion. They only decide which of several rows at the same
    distance are stored, which does not affect the tree.
    """
    names = np.arange(len(index["names"]))
    found = index | {"names": names}
    if len(names) and "levels" in index:
        found["least"] = smallest_names(names, index["levels"])
    # arrays received from workers may be unaligned; align them once here, otherwise
    # each search copies them
    return aligned_index(found)


def _on_host(rows: int, number: int, others: int, padded: bool) -> dict[str, Array]:
    """Return the arrays of `CoreDistances` before any search, in the order of
    `keep_nearest`. `number`: how many nearest rows are searched.
    """
    listed = _number_stored(number)
    core = np.empty(_padded(rows) if padded else rows)
    core[rows:] = np.nan
    return {
        "core": core,
        "near": np.empty((rows, listed), np.int32),
        "away": np.empty((rows, listed if listed > others else 0)),
        "beyond": np.empty(rows, np.float32),
    }


def _keep(
    result: dict[str, Array], distances: CoreDistances, at: int, rows: int, padded: bool
) -> None:
    """Copy `distances` to `result`, beginning at place `at`. `padded`: append NaN to
    core distances to fill the last tile.
    """
    for name, values in distances.items():
        found = cast(Array, values)
        if name not in result:
            size = _padded(rows) if name == "core" and padded else rows
            result[name] = module_of(found).empty((size, *found.shape[1:]), found.dtype)
        result[name][at : at + len(found)] = found
    result["core"][rows:] = np.nan


def _keep_some() -> None:
    """Compile the kernels that a GPU runs after a search, by a tiny call: see
    `Spanner.prepare`.
    """
    totals, names = searcher_of_library("cudf").fresh(TILE, MIN_STORED + 1)
    place = inverse_of(module_of(totals).arange(TILE, dtype=np.int32))
    near = looked_up(place, names[:, : _number_stored(MIN_STORED + 1)])
    distances = _core_distances(totals, near, MIN_STORED + 1, TILE)
    _keep({}, distances, 0, TILE + 1, padded=True)


def nearest_of(distances: CoreDistances) -> tuple[Array, Array, Array]:
    return distances["near"], distances["away"], distances["beyond"]


def _padded(rows: int) -> int:
    return -(-rows // TILE) * TILE


Places = int | Array
"""Frame positions of a chunk's rows: an array, or only the first position if positions
are consecutive.
"""


def _with_numbers(chunk: Chunk, places: Places) -> Index:
    return searcher_for(chunk["example"]).renamed(cast(Index, chunk), places)


def _arguments(
    chunk: Chunk, places: Places, layout: SearchLayout, distances: CoreDistances
) -> tuple[Index, SearchLayout, Array, tuple[Array, Array, Array]]:
    return (
        _with_numbers(chunk, places),
        layout,
        distances["core"],
        nearest_of(distances),
    )


def tree_of_chunk(
    chunk: Chunk,
    places: Places,
    layout: SearchLayout,
    distances: CoreDistances,
    progress: Progress | None = None,
    last: bool = False,
    threads: int = 1,
) -> Edges:
    """Find the minimum spanning tree of a chunk. `progress`: the state after the rounds
    that several tasks have shared. `threads`: number of threads that search.

    `last`: whether the chunk and its core distances are not needed later. Then both are
    emptied to free memory early, and the edges are on the device of the chunk; otherwise
    they are on the host.
    """
    spanner = spanner_for(chunk["example"])
    about = [
        dict(_with_numbers(chunk, places)),
        layout,
        distances["core"],
        nearest_of(distances),
        progress,
    ][::-1]
    if last:
        cast(Index, chunk).clear()
        cast(Index, distances).clear()
    # `pop` drops this function's references to the arguments, so that the spanner can
    # free their memory
    weight, start, end = spanner.tree_of(
        about.pop(),
        about.pop(),
        about.pop(),
        about.pop(),
        about.pop(),
        # threads wait for each other, so more of them than cores are slow
        threads=min(threads, CPU_COUNT),
    )
    if last:
        return weight, start, end
    return to_host(weight), to_host(start), to_host(end)


def begin_rounds(
    chunk: Chunk,
    places: Places,
    layout: SearchLayout,
    distances: CoreDistances,
    parts: int,
) -> Progress:
    """Run the first rounds for a chunk's tree. Tasks share the rounds after them.

    `parts`: number of tasks in a shared round.
    """
    return spanner_for(chunk["example"]).begin(
        *_arguments(chunk, places, layout, distances), parts
    )


def share_of_round(
    chunk: Chunk,
    places: Places,
    layout: SearchLayout,
    distances: CoreDistances,
    progress: Progress,
    part: Part,
) -> Found | None:
    """Run one part of a shared round; return None if the tree is complete."""
    if len(progress["sizes"]) < 2:
        return None
    return spanner_for(chunk["example"]).share(
        *_arguments(chunk, places, layout, distances), progress, part
    )


def join_round(
    chunk: Chunk,
    places: Places,
    layout: SearchLayout,
    distances: CoreDistances,
    progress: Progress,
    *parts: Found,
) -> Progress:
    """Finish a shared round, given the results of its parts."""
    if len(progress["sizes"]) < 2:
        return progress
    return spanner_for(chunk["example"]).join(
        *_arguments(chunk, places, layout, distances), progress, parts
    )


def edges_between(
    chunks: Sequence[Chunk],
    places: Sequence[Places],
    layout: SearchLayout,
    distances: Sequence[CoreDistances],
    trees: Sequence[Edges],
) -> Edges:
    """Find the edges between two chunks in their joint tree. `trees`: the tree of each
    chunk.
    """
    sides = [_with_numbers(*one) for one in zip(chunks, places, strict=True)]
    cores = [some["core"] for some in distances]
    return spanner_for(chunks[0]["example"]).edges_between(sides, layout, cores, trees)


def places_of_rows(chunk: Chunk, places: Places) -> np.ndarray:
    """Return the frame position of each row in a chunk (n,), int32."""
    if isinstance(places, int):
        return np.arange(places, places + len(chunk["ids"]), dtype=np.int32)
    return to_host(places).astype(np.int32)


def merge_trees(rows: int, example: Frame, *parts: Edges) -> Edges:
    """Merge forests, whose edges are sorted, to one spanning forest. `rows`: number of
    rows of the frame.
    """
    return spanner_for(example).merge(rows, *parts)


def without_gaps(
    rows: int, places: Sequence[np.ndarray], tree: Edges
) -> tuple[list[np.ndarray], Edges]:
    """Renumber the rows from 0 without gaps, both in `places` and at the ends of edges.

    `rows`: number of rows of the frame.

    There are gaps if `dropna` has removed rows.
    """
    if sum(map(len, places)) == rows:
        return list(places), tree
    taken = np.zeros(rows, np.int32)
    for some in places:
        taken[some] = 1
    number = np.cumsum(taken, dtype=np.int32, out=taken)
    number -= 1
    weight, low, high = tree
    return [number[some] for some in places], (weight, number[low], number[high])


def distances_of(weight: Array, metric: Metric, threads: int = 1) -> Array:
    """Convert ascending weights (n,) to ascending distances, on the same device.

    On the host, a weight that occurs several times is converted once.
    """
    xp = module_of(weight)
    if xp is not np:
        return metric.distance(weight, xp)
    found = np.empty(len(weight))
    # the same blocks for any number of threads
    step = 2**13

    def convert(begin: int, end: int) -> None:
        for start in range(begin, end, step):
            here = slice(start, min(start + step, end))
            some = weight[here]
            first = np.ones(len(some), np.bool_)
            np.not_equal(some[1:], some[:-1], out=first[1:])
            away = metric.distance(some[first], np)
            found[here] = away[np.cumsum(first) - 1]

    shared_out(convert, len(weight), threads, grain=step)
    return found


def in_order(start: Array, end: Array, away: Array) -> Edges:
    """Sort edges by (distance, start, end), given edges that are sorted by distance.

    Edges arrive in the order of weights, such as squared distances. The order changes
    only if different weights round to the same distance.
    """
    edges, xp = (start, end, away), module_of(away)
    if spanner_of(away).is_ordered(*edges):
        return edges
    start, end, away = map(to_host, edges)
    equal, among = away[1:] == away[:-1], np.zeros(len(away), np.bool_)
    among[1:] |= equal
    among[:-1] |= equal
    places = np.flatnonzero(among)
    order = np.arange(len(away))
    order[places] = places[np.lexsort((end[places], start[places], away[places]))]
    return xp.asarray(start[order]), xp.asarray(end[order]), xp.asarray(away[order])


def edges_frame(tree: Edges, metric: Metric, example: Frame, threads: int = 1) -> Frame:
    """Return the edges of a tree as a frame, sorted by (distance, start, end)."""
    weight, start, end = tree
    start, end, away = in_order(start, end, distances_of(weight, metric, threads))
    columns = dict(
        zip(
            example.columns,
            (start.astype(np.int64), end.astype(np.int64), away),
            strict=True,
        )
    )
    return frames_for(example).result(columns, len(start))
