"""The rows of a nearest-neighbour join: what a search found, as names and columns of both rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk, joined
from dask_simjoin.tasks.matches import kept_values, measured, rank
from dask_simjoin.tasks.nearest import State
from dask_simjoin.tasks.row_numbers import CHUNK, RowNumbers


class FoundRows(NamedTuple):
    """Neighbours that lie in one chunk.

    Attributes
    ----------
    places : array (rows,), int64
        Which neighbours of the state they are: row * k + number.
    ids : Index
    columns : dict
        Kept columns of the result, by their names.
    """

    places: Any
    ids: Any
    columns: dict[str, Any]


def find_rows(state: State, d: Chunk, name: RowNumbers, spec: JoinSpec) -> FoundRows:
    """Those of the neighbours found that are rows of a chunk; `name`: of the chunk, or of its rows."""
    names = state["row_numbers"].reshape(-1)
    xp = module_of(names)
    if isinstance(name, int):
        places = xp.flatnonzero(names // CHUNK == name)
        rows = names[places] - name * CHUNK
    else:
        at = xp.searchsorted(name, names)
        there = at < len(name)
        there[there] = name[at[there]] == names[there]
        places = xp.flatnonzero(there)
        rows = at[places]
    columns = {}
    if spec.kept_right:
        index = rank(d, xp)[rows]
        columns = {called: kept_values((d,), column, index) for called, column in spec.kept_right.items()}
    return FoundRows(places, d["ids"].take(rows), columns)


def nearest_rows(q: Chunk, state: State, spec: JoinSpec, like: Any, *found: FoundRows) -> Any:
    """The neighbours of a chunk's rows, in the order of the rows and the nearest first, like an example."""
    frames = frames_for(q["example"])
    xp, k = frames.xp, state["row_numbers"].shape[1]
    found = tuple(part for part in found if len(part.places))
    if not found:
        return like
    places = xp.concatenate([part.places for part in found])
    order = xp.argsort(places)
    places = places[order]
    rows = places // k
    columns: dict[str, Any] = {}
    for name in like.columns:
        if name == "left":
            columns[name] = q["ids"].take(rows)
        elif name == "right":
            columns[name] = joined([part.ids for part in found]).take(order)
        elif name == "rank":
            columns[name] = places % k + 1
        elif name == "distance":
            columns[name] = measured(spec, xp)(state["totals"].reshape(-1)[places])
        elif name in spec.kept_left:
            columns[name] = kept_values((q,), spec.kept_left[name], rank(q, xp)[rows])
        else:
            parts = [frames.result({name: part.columns[name]}, len(part.places)) for part in found]
            columns[name] = frames.values(frames.stacked(parts), name, order)
    return frames.result(columns, len(places))
