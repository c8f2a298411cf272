"""Make rows of a result from the pairs of two chunks: the work of one task."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.ids import from_id_keys
from dask_simjoin.engine.protocols import Frames, Rows
from dask_simjoin.metrics.types import Array, Frame, Values
from dask_simjoin.options.spec import JoinSpec, RowSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import ids_of, kept_values, matches, measured
from dask_simjoin.tasks.meeting import Meeting


def join_block(meeting: Meeting, columns: list[str], cuts: np.ndarray | int | None = None, number: int = 0,
               like: Frame | None = None) -> Frame:  # fmt: skip
    """Find all pairs of two chunks, or of one with itself.

    `columns`: of the result.  `cuts`, as `cut_block` gives them, or how many parts of about equal work to
    make, and `number`: only the pairs of that part of the first chunk's rows.  `like`: an example of what it
    returns, if dtypes are others than the columns'.
    """
    q, _, same, spec = meeting[:4]
    frames = frames_for(q["example"])
    rows = None
    if cuts is not None:
        if isinstance(cuts, int):
            rows = meeting._replace(part=(number, cuts)).rows
        else:
            rows = int(cuts[number]), int(cuts[number + 1])
    parts: list[ResultRows] = []
    for each in meeting.comparisons():
        parts += _pairs(each, columns, rows)
    if spec.include_self and same:
        parts.append(_selves(q, spec, columns, rows))
    found = put_together(parts, columns, frames)
    return found if like is None else cast_like(found, like)


def put_together(parts: list[ResultRows], columns: list[str], frames: Frames) -> Frame:
    """Make a frame of rows of a result, of which there is one part at least."""
    total = sum(number for number, _ in parts)
    return frames.result({c: _concat([part[c] for _, part in parts], frames) for c in columns}, total)


def cast_like(found: Frame, like: Frame) -> Frame:
    """Give a result the dtypes of an example, but for categories, which Dask's examples need not know."""
    kinds = {name: kind for name, kind in like.dtypes.items() if not hasattr(kind, "categories")}
    return found.astype(kinds)


def unmatched(q: Chunk, counts: Array | int, spec: RowSpec, like: Frame) -> Frame:
    """Make rows of a result of a chunk's rows in no pair; `counts`: of its pairs, by position."""
    frames = frames_for(q["example"])
    xp, n = frames.xp, len(q["ids"])
    order = q["order"][:n]
    places = xp.arange(n) if isinstance(counts, int) else xp.flatnonzero(xp.asarray(counts)[order] == 0)
    places = places[xp.argsort(order[places])]
    own = pair_columns(
        ((q,), places), None, spec, [c for c in like.columns if c == "left" or c in spec.kept_left]
    )
    columns = {c: own[c] if c in own else frames.missing(like[c].dtype, len(places)) for c in like.columns}
    return cast_like(frames.result(columns, len(places)), like)


ResultRows = tuple[int, dict[str, Values]]
"""Rows of a result: how many, and their columns."""

Side = tuple[tuple[Chunk, ...], Array]
"""Rows of chunks: the chunks, and places in their indexes, one after the other."""


def _pairs(meeting: Meeting, columns: list[str], rows: Rows | None) -> list[ResultRows]:
    """Give the pairs of two chunks as columns, in both directions if asked for."""
    q, d, _, spec = meeting[:4]
    keyed = q["id_keys"] is not None and d["id_keys"] is not None
    if keyed and spec.radius is None and not meeting.order_unknown:
        return _keyed_pairs(meeting, columns, rows)
    distance = "distance" in columns
    found = matches(meeting, distance, rows)
    sides = [(found.left_of, found.left), (found.right_of, found.right)]
    directions = [sides]
    if spec.pairs == "both" and spec.radius is None:
        directions.append(sides[::-1])
    parts = [pair_columns(left, right, spec, columns) for left, right in directions]
    if distance:
        parts = [part | {"distance": found.distance} for part in parts]
    return [(len(found.left), part) for part in parts]


PLACE = object()
"""What `_keyed_pairs` keeps of rows some of whose columns only a frame can take: their places."""


def _arrays(chunk: Chunk, names: dict[str, Any]) -> dict[Any, Any]:
    """Take what `Joiner.pairs` keeps of a chunk's rows: columns, by their names in the result, and places."""
    frames = frames_for(chunk["example"])
    plain = {name: frames.plain(chunk["kept"], column) for name, column in names.items()}
    found: dict[Any, Array] = {name: values for name, values in plain.items() if values is not None}
    if len(found) < len(names):
        found[PLACE] = frames.xp.arange(len(chunk["ids"]), dtype=frames.xp.int32)
    return found


def _keyed_pairs(meeting: Meeting, columns: list[str], rows: Rows | None) -> list[ResultRows]:
    """Give the pairs as columns where a joiner can fill all columns while it finds them."""
    q, d, same, spec = meeting[:4]
    joiner = meeting.joiner
    keys, made = (q["id_keys"], d["id_keys"]), None
    if "distance" in columns:
        made = measured(spec, joiner.xp)
    both = spec.pairs == "both"
    wanted = [
        {name: column for name, column in names.items() if name in columns or both}
        for names in (spec.kept_left, spec.kept_right)
    ]
    kept_of = [_arrays(chunk, names) for chunk, names in zip((q, d), wanted, strict=True)]
    arrays = [list(side.values()) for side in kept_of] if any(kept_of) else None
    found = joiner.pairs(*meeting.operands, same=same, distance=made, labels=keys, rows=rows, kept=arrays)
    left, right = from_id_keys(found.left, q["ids"]), from_id_keys(found.right, d["ids"])
    values = iter(found.kept)
    own: dict[str, Values] = {}
    for chunk, of_side, side in zip((q, d), wanted, kept_of, strict=True):
        taken = dict(zip(side, values, strict=False))
        for name, column in of_side.items():
            own[name] = taken[name] if name in taken else kept_values((chunk,), column, taken[PLACE])
    parts = [own | {"left": left, "right": right}]
    if both:
        names_of = list(zip(*wanted, strict=True))
        turned = {a: own[b] for pair in names_of for a, b in (pair, pair[::-1])}
        parts.append(turned | {"left": right, "right": left})
    if made is not None:
        parts = [part | {"distance": found.distance} for part in parts]
    return [(len(found.left), part) for part in parts]


def pair_columns(left: Side, right: Side | None, spec: RowSpec, columns: list[str]) -> dict[str, Values]:
    """Make the columns of pairs of rows, but their distance."""
    part: dict[str, Values] = {}
    for name in columns:
        for side, id_name, columns_of in ((left, "left", spec.kept_left), (right, "right", spec.kept_right)):
            if side is None:
                continue
            if name == id_name:
                part[name] = ids_of(*side)
            elif name in columns_of:
                part[name] = kept_values(side[0], columns_of[name], side[1])
    return part


def _selves(q: Chunk, spec: JoinSpec, columns: list[str], rows: Rows | None) -> ResultRows:
    """Pair each row of a chunk with itself."""
    xp = frames_for(q["example"]).xp
    start, stop = rows or (0, len(q["ids"]))
    places = xp.arange(len(q["ids"]))[start:stop]
    places = places[xp.argsort(q["order"][: len(q["ids"])][start:stop])]  # in the order of the frame
    part = pair_columns(((q,), places), ((q,), places), spec, columns)
    if "distance" in columns:
        part["distance"] = xp.zeros(len(places))
    return len(places), part


def _concat(parts: list[Values], frames: Frames) -> Values:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, frames.xp.ndarray) for part in parts):
        return frames.xp.concatenate(parts)
    return frames.stacked([frames.result({"part": part}, len(part)) for part in parts])["part"]


def cut_block(meeting: Meeting, parts: int) -> np.ndarray:
    """Find places in the first chunk's index that cut its rows into parts of about equally many pairs."""
    return cut_weighed(meeting.layout.grain, parts, weigh_block(meeting))


def weigh_block(meeting: Meeting) -> Array:
    """Count the pairs (int64) that places of the first chunk give, up to each of those of this part."""
    joiner, rows = meeting.joiner, meeting.rows
    start, stop = rows or (0, len(meeting.q["ids"]))
    pairs = joiner.xp.zeros(stop - start, joiner.xp.int64)
    for each in meeting.comparisons():
        pairs += joiner.weights(*each.operands, same=each.same, rows=rows)
    return joiner.xp.cumsum(pairs, out=pairs)


def cut_weighed(grain: int, parts: int, *weights: Array) -> np.ndarray:
    """Do as `cut_block` does with what `weigh_block` gives of all parts of the work, in their order."""
    xp, n = module_of(weights[0]), sum(map(len, weights))
    before = np.cumsum([0, *(int(some[-1]) if len(some) else 0 for some in weights)])
    wanted = before[-1] * (np.arange(1, parts) / parts)
    cuts, first = np.zeros(parts - 1, np.int64), 0
    for some, (start, stop) in zip(weights, itertools.pairwise(before.tolist()), strict=True):
        here = (wanted > start) & (wanted <= stop)
        if here.any():
            cuts[here] = first + to_host(xp.searchsorted(some, xp.asarray(wanted[here] - start)))
        first += len(some)
    return np.concatenate([[0], np.minimum(-(-cuts // grain) * grain, n), [n]]).astype(np.int64)
