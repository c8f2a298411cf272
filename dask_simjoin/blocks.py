"""The work of one task, as pure functions of chunks."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from dask_simjoin.arrays import to_host
from dask_simjoin.backends.base import Backend, backend_for
from dask_simjoin.chunks import CELL, COUNT, POSITION, Chunk, joined
from dask_simjoin.ids import from_labels
from dask_simjoin.spec import JoinSpec


def _meetings(q: Chunk, d: Chunk, same: bool) -> Iterator[tuple[Chunk, Chunk, bool]]:
    """The chunks that are compared when two chunks (or one with itself) meet."""
    yield q, d, same
    if "halo" in d and len(d["halo"]["ids"]):
        yield q, d["halo"], False


def join_block(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, columns: list[str],
               cuts: Any = None, number: int = 0) -> Any:  # fmt: skip
    """All pairs of two chunks, or (`same`) of one with itself.

    `columns`: of the result.  `cuts`, as `cut_block` gives them, or how many parts of equally many
    rows to make, and `number`: only the pairs of that part of the first chunk's rows.
    """
    backend = backend_for(q["example"])
    rows = None
    if cuts is not None:
        if isinstance(cuts, int):
            cuts = _even_cuts(len(q["ids"]), cuts, layout.grain)
        rows = int(cuts[number]), int(cuts[number + 1])
    parts = [_pairs(a, b, spec, layout, own, columns, rows) for a, b, own in _meetings(q, d, same)]
    if spec.pairs == "both":
        parts += [part | {"left": part["right"], "right": part["left"]} for part in parts]
    if spec.include_self and same:
        ids = q["ids"]
        if rows is not None:
            ids = ids.take(backend.xp.sort(q["order"][rows[0] : rows[1]]))
        distance = {"distance": backend.xp.zeros(len(ids))} if "distance" in columns else {}
        parts.append({"left": ids, "right": ids} | distance)
    total = sum(len(part["left"]) for part in parts)
    return backend.result({c: _concat([part[c] for part in parts], backend) for c in columns}, total)


def _pairs(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, columns: list[str],
           rows: tuple[int, int] | None) -> dict[str, Any]:  # fmt: skip
    """The pairs of two chunks as columns."""
    backend = backend_for(q["example"])
    distance = None
    if spec.return_distance and "distance" in columns:
        distance = functools.partial(spec.measure.distance, xp=backend.xp)
    mixed = not same and "position" in q  # then either row may come first in the frame
    labels = None if q["labels"] is None or d["labels"] is None or mixed else (q["labels"], d["labels"])
    found = backend.pairs(q, d, layout, same=same, distance=distance, labels=labels, rows=rows)
    left, right = found.left, found.right
    out: dict[str, Any] = {} if distance is None else {"distance": found.distance}
    if mixed:
        ids = joined([q["ids"], d["ids"]])
        swap = d["position"][right] < q["position"][left]
        right = right + len(q["ids"])
        where = backend.xp.where
        return out | {
            "left": ids.take(where(swap, right, left)),
            "right": ids.take(where(swap, left, right)),
        }
    for name, side, names in (("left", q, left), ("right", d, right)):
        out[name] = side["ids"].take(names) if labels is None else from_labels(names, side["ids"])
    return out


def _concat(parts: list[Any], backend: Backend) -> Any:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, backend.xp.ndarray) for part in parts):
        return backend.xp.concatenate(parts)
    return joined([backend.index(part) for part in parts])


def _even_cuts(rows: int, parts: int, grain: int) -> list[int]:
    return [min(-(-rows * k // parts // grain) * grain, rows) for k in range(parts)] + [rows]


def cut_block(q: Chunk, d: Chunk, layout: Any, same: bool, parts: int) -> np.ndarray:
    """Places in the first chunk's index that cut its rows into parts of about equally many pairs."""
    backend = backend_for(q["example"])
    xp, n = backend.xp, len(q["ids"])
    pairs = xp.zeros(n, xp.int64)
    for a, b, own in _meetings(q, d, same):
        pairs += backend.weights(a, b, layout, same=own)
    cuts = np.zeros(parts - 1, np.int64)
    if n:
        total = xp.cumsum(pairs)
        cuts = to_host(xp.searchsorted(total, total[-1] * (xp.arange(1, parts) / parts)))
    return np.concatenate([[0], np.minimum(-(-cuts // layout.grain) * layout.grain, n), [n]]).astype(np.int64)


def count_block(q: Chunk, d: Chunk, layout: Any, same: bool) -> tuple[Any, Any]:
    """Numbers of neighbours that the rows of two chunks have in each other.

    For one chunk with itself the second array is None.
    """
    counts = backend_for(q["example"]).counts(q, d, layout, same=same)
    return counts[0], None if same else counts[1]


def count_cells(q: Chunk, d: Chunk, layout: Any, same: bool, offsets: np.ndarray) -> Any:
    """The same for spatial chunks, as rows that are to be shuffled back to their partitions."""
    backend = backend_for(q["example"])
    parts = []
    for a, b, own in _meetings(q, d, same):
        counts = backend.counts(a, b, layout, same=own)
        parts += [(side["position"], count) for side, count in zip((a, b), counts, strict=False)]
    xp = backend.xp
    position = xp.concatenate([part for part, _ in parts])
    count = xp.concatenate([part for _, part in parts])
    # rows without neighbours are only told of once: by the chunk's meeting with itself
    told = count > 0
    if same:
        told[: len(q["ids"])] = True
    position, count = position[told], count[told]
    return tell(position, count, offsets, backend)


def tell(position: Any, values: Any, offsets: np.ndarray, backend: Backend) -> Any:
    """Values (n,) or (n, k) of rows in the whole frame, as rows to be shuffled to their partitions."""
    xp = backend.xp
    partition = xp.searchsorted(xp.asarray(offsets), position, side="right") - 1
    values = xp.asarray(values)
    columns = [values] if values.ndim == 1 else values.T
    told = dict(zip(told_columns(len(columns)), columns, strict=True))
    return backend.result({POSITION: position, **told, CELL: partition}, len(position))


def told_columns(number: int) -> list[str]:
    """The names of the columns in which so many values of each row are told."""
    return [f"{COUNT}{k}" for k in range(number)]


def count_block_pairs(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool) -> int:
    """Number of pairs that `join_block` would return."""
    backend = backend_for(q["example"])
    pairs = 0
    for a, b, own in _meetings(q, d, same):
        found = int(backend.counts(a, b, layout, same=own)[0].sum())
        pairs += found // 2 if own else found
    rows = len(q["ids"]) if spec.include_self and same else 0
    return pairs * (2 if spec.pairs == "both" else 1) + rows
