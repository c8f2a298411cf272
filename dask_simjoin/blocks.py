"""The work of one task, as pure functions of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.backends.base import backend_for
from dask_simjoin.chunks import CELL, COUNT, POSITION, Chunk, joined
from dask_simjoin.ids import from_labels
from dask_simjoin.index.layout import Layout
from dask_simjoin.spec import JoinSpec


def _meetings(q: Chunk, d: Chunk, same: bool) -> Iterator[tuple[Chunk, Chunk, bool]]:
    """The chunks that are compared when two chunks (or one with itself) meet."""
    yield q, d, same
    if "halo" in d and len(d["halo"]["ids"]):
        yield q, d["halo"], False


def join_block(q: Chunk, d: Chunk, spec: JoinSpec, layout: Layout, same: bool, columns: list[str],
               cuts: np.ndarray | None = None, number: int = 0) -> Any:  # fmt: skip
    """All pairs of two chunks, or (`same`) of one with itself.

    `columns`: of the result.  `cuts`, as `cut_block` gives them, and `number`: only the pairs of
    some of the first chunk's rows.
    """
    backend = backend_for(q["example"])
    parts = []
    for a, b, own in _meetings(q, d, same):
        if cuts is None:
            parts.append(_pairs(a, b, spec, layout, own, columns))
            continue
        start, stop = int(cuts[number]), int(cuts[number + 1])
        some = _part(a, layout, start, stop)
        parts.append(_pairs(some, some if own else b, spec, layout, own, columns))
        if own:
            rest = _part(a, layout, stop, len(a["ids"]))
            parts.append(_pairs(some, rest, spec, layout, False, columns, one_chunk=True))
    if spec.pairs == "both":
        parts += [part | {"left": part["right"], "right": part["left"]} for part in parts]
    if spec.include_self and same:
        ids = q["ids"]
        if cuts is not None:
            ids = ids.take(np.sort(q["order"][int(cuts[number]) : int(cuts[number + 1])]))
        distance = {"distance": np.zeros(len(ids))} if "distance" in columns else {}
        parts.append({"left": ids, "right": ids} | distance)
    rows = sum(len(part["left"]) for part in parts)
    return backend.result({c: _concat([part[c] for part in parts]) for c in columns}, rows)


def _pairs(q: Chunk, d: Chunk, spec: JoinSpec, layout: Layout, same: bool, columns: list[str], *,
           one_chunk: bool = False) -> dict[str, Any]:  # fmt: skip
    """The pairs of two chunks as columns; `one_chunk`: both are parts of one, and the same ids."""
    backend = backend_for(q["example"])
    distance = spec.return_distance and "distance" in columns
    mixed = one_chunk or (not same and "position" in q)  # then either row may come first in the frame
    labels = None if q["labels"] is None or d["labels"] is None or mixed else (q["labels"], d["labels"])
    found = backend.pairs(q, d, layout, same=same, distance=distance, labels=labels)
    left, right = found.left, found.right
    out: dict[str, Any] = {"distance": found.distance} if distance else {}
    if mixed:
        first, second = (left, right) if one_chunk else (q["position"][left], d["position"][right])
        ids = q["ids"] if one_chunk else joined([q["ids"], d["ids"]])
        right = right if one_chunk else right + len(q["ids"])
        swap = second < first
        return out | {
            "left": ids.take(np.where(swap, right, left)),
            "right": ids.take(np.where(swap, left, right)),
        }
    for name, side, rows in (("left", q, left), ("right", d, right)):
        out[name] = side["ids"].take(rows) if labels is None else from_labels(rows, side["ids"])
    return out


def _part(chunk: Chunk, layout: Layout, start: int, stop: int) -> Chunk:
    """The rows at places start ... stop-1 of a chunk's index; ids and positions stay those of the chunk."""
    labels = chunk["labels"]
    part = backend_for(chunk["example"]).part(chunk, layout, start, stop)
    names = {"ids": chunk["ids"], "example": chunk["example"]}
    names |= {"position": chunk["position"]} if "position" in chunk else {}
    return names | {"labels": None if labels is None else labels[start:stop]} | part


def _concat(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return joined([pd.Index(part) for part in parts])


def cut_block(q: Chunk, d: Chunk, layout: Layout, same: bool, parts: int) -> np.ndarray:
    """Places in the first chunk's index that cut its rows into parts of about equally many pairs."""
    backend = backend_for(q["example"])
    n = len(q["ids"])
    pairs = np.zeros(n, np.int64)
    for a, b, own in _meetings(q, d, same):
        if own:
            pairs += backend.later(a, layout)
        else:
            pairs += backend.counts(a, b, layout, same=False)[0][q["order"][:n]]
    total = np.cumsum(pairs)
    cuts = np.searchsorted(total, total[-1] * np.arange(1, parts) / parts) if n else np.zeros(parts - 1, int)
    grain = backend.grain(layout)
    return np.concatenate([[0], np.minimum(-(-cuts // grain) * grain, n), [n]]).astype(np.int64)


def count_block(q: Chunk, d: Chunk, layout: Layout, same: bool) -> tuple[Any, Any]:
    """Numbers of neighbours that the rows of two chunks have in each other.

    For one chunk with itself the second array is None.
    """
    counts = backend_for(q["example"]).counts(q, d, layout, same=same)
    return counts[0], None if same else counts[1]


def count_cells(q: Chunk, d: Chunk, layout: Layout, same: bool, offsets: np.ndarray) -> Any:
    """The same for spatial chunks, as rows that are to be shuffled back to their partitions."""
    backend = backend_for(q["example"])
    parts = []
    for a, b, own in _meetings(q, d, same):
        counts = backend.counts(a, b, layout, same=own)
        parts += [(side["position"], count) for side, count in zip((a, b), counts, strict=False)]
    position = np.concatenate([part for part, _ in parts])
    count = np.concatenate([part for _, part in parts])
    # rows without neighbours are only told of once: by the chunk's meeting with itself
    told = count > 0
    if same:
        told[: len(q["ids"])] = True
    position, count = position[told], count[told]
    partition = np.searchsorted(offsets, position, side="right") - 1
    return backend.result({POSITION: position, COUNT: count, CELL: partition}, len(count))


def count_block_pairs(q: Chunk, d: Chunk, spec: JoinSpec, layout: Layout, same: bool) -> int:
    """Number of pairs that `join_block` would return."""
    backend = backend_for(q["example"])
    pairs = 0
    for a, b, own in _meetings(q, d, same):
        found = int(backend.counts(a, b, layout, same=own)[0].sum())
        pairs += found // 2 if own else found
    rows = len(q["ids"]) if spec.include_self and same else 0
    return pairs * (2 if spec.pairs == "both" else 1) + rows
