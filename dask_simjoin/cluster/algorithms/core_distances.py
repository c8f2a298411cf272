"""Find core distances, and what a tree needs to know of the rows that are nearest to each row of a chunk.

A core distance is that of the nearest so many rows, itself included (Campello, Moulavi & Sander 2013,
"Density-based clustering based on hierarchical density estimates", definition 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict, cast

import numpy as np

from dask_simjoin.engine.base import searcher_for, searcher_of_library, spanner_for
from dask_simjoin.engine.compat import float32_below, inverse_of, looked_up, module_of
from dask_simjoin.engine.index.tiles import TILE, aligned_index
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.metrics.types import Array, Index
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.nearest import State, part_of_places
from dask_simjoin.tasks.row_numbers import CHUNK, RowNumbers

FEWEST_LISTED, MOST_LISTED = 4, 16
"""Nearest rows of each row that are remembered: see `_listed`."""

CLOSE_DIMS = 3
"""Dimensions up to which, on the host, places of nearest rows are told by how far behind the row's they are:
half of the memory.  Of a million rows of 2 one in a hundred has one further than int16 tells, of 4 ten."""

SPREAD = 64
"""How many times as many numbers as rows a table of numbers may have: a look-up takes a tenth of a search."""


class Known(TypedDict):
    """Hold what is known of a chunk's rows and those nearest to them, by place: a dict, so that it spills.

    See `dask_simjoin.engine.cpu.rounds.Nearest` for all but `core`, their core distances as totals, and, of
    a whole frame, NaN for what is left over of the last tile.
    """

    core: Array
    near: Array
    away: Array
    beyond: Array


def sought(min_samples: int) -> int:
    """Tell how many nearest rows are sought of each row: that of its core distance, and one beyond."""
    return max(min_samples - 1, FEWEST_LISTED) + 1


def _known(chunk: Chunk, start: int, totals: Array, near: Array, min_samples: int, rows: int) -> Known:
    """Make it of the totals (n, k) of the nearest rows and their places; `rows`: of all chunks.

    `start`: the place of the first of these rows.
    """
    xp = module_of(totals)
    others = max(0, min(min_samples, rows) - 1)
    listed = near.shape[1]
    away = totals[:, : listed if listed > others else 0]
    core = totals[:, others - 1] if others and len(totals) else xp.zeros(len(totals))
    beyond = totals[:, listed] if listed < totals.shape[1] else xp.full(len(totals), -1.0)
    if xp is np and cast(Index, chunk)["low"].shape[1] <= CLOSE_DIMS:
        near, beyond = _behind(near, start, beyond)
    return {
        "core": xp.ascontiguousarray(core), "near": near, "away": xp.ascontiguousarray(away),
        "beyond": float32_below(beyond),
    }  # fmt: skip


def _behind(near: np.ndarray, start: int, beyond: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tell places (n, k) by how far behind the row's own they are, int16; 0: there is none, or it is too far.

    Of a row that has one that is too far, next to nothing is known of those that are not told.
    """
    behind = near - np.arange(start, start + len(near), dtype=np.int32)[:, None]
    behind[near < 0] = 0
    found = behind.astype(np.int16)
    lost = found != behind
    found[lost] = 0
    return found, np.where(lost.any(axis=1), np.minimum(beyond, 0.0), beyond)


def _listed(totals: Array) -> int:
    """Tell how many of the nearest are worth remembering; `totals`: of one more.

    All that core distances are of, by which a row may know its edge; else a few, which only bound it.
    """
    number = max(0, totals.shape[1] - 1)
    return number if number <= MOST_LISTED else FEWEST_LISTED


def _places(chunk: Chunk) -> Array:
    """Tell the place of each row of a chunk (n,), int32."""
    return inverse_of(chunk["order"][: len(chunk["ids"])])


def _rows_of(own: Array, numbers: Array) -> Array:
    """Find row numbers in a chunk's (n,), which ascend: -1 where a number is of another chunk."""
    xp, n = module_of(own), len(own)
    if not n:
        return xp.full(numbers.shape, -1, np.int32)
    first, last = int(own[0]), int(own[-1])
    if last - first > SPREAD * n:
        row = xp.minimum(xp.searchsorted(own, numbers), n - 1)
        return xp.where(own[row] == numbers, row, -1)
    table = xp.full(last - first + 2, -1, np.int32)  # the last place is that of what is beyond
    table[own - first] = xp.arange(n, dtype=np.int32)
    beyond = (numbers < first) | (numbers > last)
    return table[xp.where(beyond, len(table) - 1, numbers - first)]


def known_of_state(chunk: Chunk, own: RowNumbers, state: State, min_samples: int, rows: int) -> Known:
    """Keep of what searches found of a chunk's rows what the tree needs; `own`: its number, or its rows'.

    Of a part of the rows it is that of their places: see `join_known`.
    """
    totals, numbers = state["totals"], state["row_numbers"]
    xp = module_of(totals)
    numbers = xp.ascontiguousarray(numbers[:, : _listed(totals)])
    if isinstance(own, int):
        here, row = numbers // CHUNK == own, numbers % CHUNK
    else:
        row = _rows_of(own, numbers)
        here = row >= 0
    place = _places(chunk)
    near = xp.full(numbers.shape, -1, np.int32)
    near[here] = place[row[here]]
    if "rows" not in state:  # a part's rows are in the order of places
        order = chunk["order"][: len(place)]
        totals, near = totals[order], near[order]
    start = int(place[state["rows"][0]]) if len(state.get("rows", ())) else 0
    return _known(chunk, start, totals, near, min_samples, rows)


def join_known(*parts: Known) -> Known:
    """Put together what is known of a chunk's rows, part by part."""
    xp = module_of(parts[0]["core"])
    near, away, beyond = (xp.concatenate(columns) for columns in zip(*map(nearest_of, parts), strict=True))
    rest = xp.full(_padded(len(beyond)) - len(beyond), np.nan)
    core = xp.concatenate([*(part["core"] for part in parts), rest])
    return {"core": core, "near": near, "away": away, "beyond": beyond}


def known_of_whole(chunk: Chunk, layout: SearchLayout, min_samples: int, part: tuple[int, int] = (0, 1), *,
                   prepared: Sequence[Callable[[], object]] = ()) -> Known:  # fmt: skip
    """Search the nearest rows of rows of the one chunk that there is, some at a time.

    `part`: which part of the rows, in the order of their places, of how many; `prepared`: what is done with
    next to nothing meanwhile, see `Spanner.prepare`.
    """
    searcher, rows = searcher_for(chunk["example"]), len(chunk["ids"])
    spanner_for(chunk["example"]).prepare(layout, _keep_some, *prepared)
    query, place = searcher.renamed(cast(Index, chunk), 0), _places(chunk)
    xp, number = module_of(place), min(sought(min_samples), rows)
    if xp is np:  # what came from another worker lies anywhere: else each search would copy it
        query = aligned_index(query)
    first, last = part_of_places(rows, searcher.grain, part)
    whole: dict[str, Array] = {}
    step = searcher.at_once(number)
    for start in range(first, max(last, first + 1), step):
        stop = min(start + step, last)
        some = searcher.part(query, start, stop) if rows > stop - start else query
        here = some | {"order": xp.arange(stop - start, dtype=some["order"].dtype)}
        totals, names = searcher.fresh(stop - start, number)
        searcher.nearest(here, query, layout, totals, names, same=True)
        near = looked_up(place, names[:, : _listed(totals)])
        known = _known(chunk, start, totals, near, min_samples, rows)
        _keep(whole, known, start - first, last - first, padded=part[1] == 1)
    return cast(Known, whole)


def _keep(whole: dict[str, Array], known: Known, at: int, rows: int, padded: bool) -> None:
    """Put what is known of some rows at their places among so many; `padded`: with NaN to a tile's end."""
    for name, values in known.items():
        found = cast(Array, values)
        if name not in whole:
            size = _padded(rows) if name == "core" and padded else rows
            whole[name] = module_of(found).empty((size, *found.shape[1:]), found.dtype)
        whole[name][at : at + len(found)] = found
    whole["core"][rows:] = np.nan


def _keep_some() -> None:
    """Keep of a few rows what is kept after a search on a GPU, which compiles it: see `Spanner.prepare`."""
    totals, names = searcher_of_library("cudf").fresh(TILE, FEWEST_LISTED + 1)
    place = inverse_of(module_of(totals).arange(TILE, dtype=np.int32))
    near = looked_up(place, names[:, : _listed(totals)])
    known = _known(cast(Chunk, {}), 0, totals, near, FEWEST_LISTED + 1, TILE)
    _keep({}, known, 0, TILE + 1, padded=True)


def nearest_of(known: Known) -> tuple[Array, Array, Array]:
    """Take what is known of the nearest rows."""
    return known["near"], known["away"], known["beyond"]


def _padded(rows: int) -> int:
    """Count the places of tiles of so many rows."""
    return -(-rows // TILE) * TILE
