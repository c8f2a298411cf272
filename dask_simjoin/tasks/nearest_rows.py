"""Make the rows of a nearest-neighbour join: what a search found, as ids and columns of both rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.growing import blocks
from dask_simjoin.engine.ids import as_id_keys, from_id_keys, joined
from dask_simjoin.metrics.types import Array, Frame, Ids, Values
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import kept_values, measured, rank
from dask_simjoin.tasks.nearest import State
from dask_simjoin.tasks.row_numbers import CHUNK, RowNumbers

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
