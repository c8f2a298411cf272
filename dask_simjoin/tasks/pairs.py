"""The work of one task, as pure functions of chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.ids import from_id_keys
from dask_simjoin.engine.protocols import Frames
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import comparisons, kept_values, matches, measured, names, order_unknown


def join_block(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, columns: list[str],
               cuts: Any = None, number: int = 0, like: Any = None) -> Any:  # fmt: skip
    """All pairs of two chunks, or (`same`) of one with itself.

    `columns`: of the result.  `cuts`, as `cut_block` gives them, or how many parts of equally many
    rows to make, and `number`: only the pairs of that part of the first chunk's rows.  `like`: an example of
    what it returns, if dtypes are others than the columns'.
    """
    frames = frames_for(q["example"])
    rows = None
    if cuts is not None:
        if isinstance(cuts, int):
            cuts = _even_cuts(len(q["ids"]), cuts, layout.grain)
        rows = int(cuts[number]), int(cuts[number + 1])
    parts: list[Part] = []
    for a, b, own in comparisons(q, d, same):
        parts += _pairs(a, b, spec, layout, own, columns, rows)
    if spec.include_self and same:
        parts.append(_selves(q, spec, columns, rows))
    total = sum(number for number, _ in parts)
    found = frames.result({c: _concat([part[c] for _, part in parts], frames) for c in columns}, total)
    return found if like is None else _cast(found, like)


def _cast(found: Any, like: Any) -> Any:
    """With the dtypes of an example, but for categories, which Dask's examples need not know."""
    kinds = {name: kind for name, kind in like.dtypes.items() if not hasattr(kind, "categories")}
    return found.astype(kinds)


def unmatched(q: Chunk, counts: Any, spec: JoinSpec, like: Any) -> Any:
    """The rows of a chunk that are in no pair, as rows of a result; `counts`: of its pairs, by position."""
    frames = frames_for(q["example"])
    xp, n = frames.xp, len(q["ids"])
    order = q["order"][:n]
    places = xp.arange(n) if isinstance(counts, int) else xp.flatnonzero(xp.asarray(counts)[order] == 0)
    places = places[xp.argsort(order[places])]
    own = pair_columns(
        ((q,), places), None, spec, [c for c in like.columns if c == "left" or c in spec.kept_left]
    )
    columns = {c: own[c] if c in own else frames.missing(like[c].dtype, len(places)) for c in like.columns}
    return _cast(frames.result(columns, len(places)), like)


Part = tuple[int, dict[str, Any]]
"""Rows of a result: how many, and their columns."""


def _pairs(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, columns: list[str],
           rows: tuple[int, int] | None) -> list[Part]:  # fmt: skip
    """The pairs of two chunks as columns, in both directions if asked for."""
    labelled = q["id_keys"] is not None and d["id_keys"] is not None
    if labelled and spec.radius is None and not order_unknown(q, same, spec):
        return _labelled(q, d, spec, layout, same, columns, rows)
    distance = "distance" in columns
    found = matches(q, d, spec, layout, same, distance, rows)
    sides = [(found.left_of, found.left), (found.right_of, found.right)]
    directions = [sides]
    if spec.pairs == "both" and spec.radius is None:
        directions.append(sides[::-1])
    parts = [pair_columns(left, right, spec, columns) for left, right in directions]
    if distance:
        parts = [part | {"distance": found.distance} for part in parts]
    return [(len(found.left), part) for part in parts]


PLACE = object()
"""What `_labelled` keeps of rows some of whose columns only a frame can take: their places."""


def _arrays(chunk: Chunk, names: dict[str, Any]) -> dict[Any, Any]:
    """What `Joiner.pairs` keeps of a chunk's rows: columns, by their names in the result, and places."""
    frames = frames_for(chunk["example"])
    plain = {name: frames.plain(chunk["kept"], column) for name, column in names.items()}
    found: dict[Any, Any] = {name: values for name, values in plain.items() if values is not None}
    if len(found) < len(names):
        found[PLACE] = frames.xp.arange(len(chunk["ids"]), dtype=frames.xp.int32)
    return found


def _labelled(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, columns: list[str],
              rows: tuple[int, int] | None) -> list[Part]:  # fmt: skip
    """The same where a joiner can give all columns while it finds the pairs."""
    joiner = joiner_for(q["example"])
    labels, made = (q["id_keys"], d["id_keys"]), None
    if "distance" in columns:
        made = measured(spec, joiner.xp)
    both = spec.pairs == "both"
    wanted = [
        {name: column for name, column in names.items() if name in columns or both}
        for names in (spec.kept_left, spec.kept_right)
    ]
    kept_of = [_arrays(chunk, names) for chunk, names in zip((q, d), wanted, strict=True)]
    arrays = [list(side.values()) for side in kept_of] if any(kept_of) else None
    found = joiner.pairs(q, d, layout, same=same, distance=made, labels=labels, rows=rows, kept=arrays)
    left, right = from_id_keys(found.left, q["ids"]), from_id_keys(found.right, d["ids"])
    values = iter(found.kept)
    own: dict[str, Any] = {}
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


def pair_columns(left: Any, right: Any, spec: JoinSpec, columns: list[str]) -> dict[str, Any]:
    """What a result says of pairs of rows, which are chunks and places in them, but their distance."""
    part: dict[str, Any] = {}
    for name in columns:
        for side, id_name, columns_of in ((left, "left", spec.kept_left), (right, "right", spec.kept_right)):
            if side is None:
                continue
            if name == id_name:
                part[name] = names(*side)
            elif name in columns_of:
                part[name] = kept_values(side[0], columns_of[name], side[1])
    return part


def _selves(q: Chunk, spec: JoinSpec, columns: list[str], rows: tuple[int, int] | None) -> Part:
    """Each row of a chunk as a pair with itself."""
    xp = frames_for(q["example"]).xp
    start, stop = rows or (0, len(q["ids"]))
    places = xp.arange(len(q["ids"]))[start:stop]
    places = places[xp.argsort(q["order"][: len(q["ids"])][start:stop])]  # in the order of the frame
    part = pair_columns(((q,), places), ((q,), places), spec, columns)
    if "distance" in columns:
        part["distance"] = xp.zeros(len(places))
    return len(places), part


def _concat(parts: list[Any], frames: Frames) -> Any:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, frames.xp.ndarray) for part in parts):
        return frames.xp.concatenate(parts)
    return frames.stacked([frames.result({"part": part}, len(part)) for part in parts])["part"]


def _even_cuts(rows: int, parts: int, grain: int) -> list[int]:
    return [min(-(-rows * k // parts // grain) * grain, rows) for k in range(parts)] + [rows]


def cut_block(q: Chunk, d: Chunk, layout: Any, same: bool, parts: int) -> np.ndarray:
    """Places in the first chunk's index that cut its rows into parts of about equally many pairs."""
    joiner = joiner_for(q["example"])
    xp, n = joiner.xp, len(q["ids"])
    pairs = xp.zeros(n, xp.int64)
    for a, b, own in comparisons(q, d, same):
        pairs += joiner.weights(a, b, layout, same=own)
    cuts = np.zeros(parts - 1, np.int64)
    if n:
        total = xp.cumsum(pairs)
        cuts = to_host(xp.searchsorted(total, total[-1] * (xp.arange(1, parts) / parts)))
    return np.concatenate([[0], np.minimum(-(-cuts // layout.grain) * layout.grain, n), [n]]).astype(np.int64)
