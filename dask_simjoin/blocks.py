"""The work of one task, as pure functions of chunks.

A chunk is a plain dict: the arrays of its index, its rows' names ("ids", a pandas Index), the same
as int64 numbers in the index's order where they have that form ("labels"), an empty frame of its
library ("example"), and what tells whether the source changed ("rows", "box").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.backends.base import backend_for
from dask_simjoin.errors import SourceChangedError
from dask_simjoin.ids import as_labels, from_labels, row_ids
from dask_simjoin.index.layout import Layout
from dask_simjoin.partition import bounds, box_digest, points
from dask_simjoin.spec import JoinSpec

Chunk = dict[str, Any]


def make_chunk(frame: Any, spec: JoinSpec, layout: Layout) -> Chunk:
    """Index one partition."""
    x, kept = points(frame, spec)
    rows = len(frame)
    if kept is not None:
        frame, x = frame[spec.columns][kept], x[kept]
    index = backend_for(frame).build(x, layout)
    ids = row_ids(frame, spec.id, spec.id_dtype)
    labels = as_labels(ids, index["order"][: len(ids)])
    names = {"ids": ids, "labels": labels, "example": frame.iloc[:0]}
    return names | {"rows": rows, "box": box_digest(*bounds(x))} | index


def _check(chunk: Chunk, expected: tuple[int, str], number: int) -> None:
    """Refuse a chunk whose numbers are not those that the plan was made from."""
    if (chunk["rows"], chunk["box"]) == expected:
        return
    if chunk["rows"] != expected[0]:
        what = f"had {expected[0]} rows when the join was planned and has {chunk['rows']} now"
    else:
        what = "has coordinates in another range than when the join was planned"
    raise SourceChangedError(
        f"Partition {number} {what}: the source changed, or is not deterministic. Write it to parquet "
        "or persist() it, and join that."
    )


def join_block(q: Chunk, d: Chunk, spec: JoinSpec, layout: Layout, block: tuple[int, int],
               expected: tuple[Any, Any], columns: list[str]) -> Any:  # fmt: skip
    """All pairs of two chunks (of one with itself where the numbers in `block` are equal).

    `expected`: what the plan knows of each partition; `columns`: of the result.
    """
    for chunk, known, number in zip((q, d), expected, block, strict=True):
        _check(chunk, known, number)
    same = block[0] == block[1]
    backend = backend_for(q["example"])
    distance = spec.return_distance and "distance" in columns
    labels = None if q["labels"] is None else (q["labels"], d["labels"])
    found = backend.pairs(q, d, layout, same=same, distance=distance, labels=labels)
    out: dict[str, Any] = {}
    for name, side, rows_ in (("left", q, found.left), ("right", d, found.right)):
        ids = side["ids"]
        out[name] = ids.take(rows_) if labels is None else from_labels(rows_, ids)
    if distance:
        out["distance"] = found.distance
    parts = [out]
    if spec.pairs == "both":
        parts.append(out | {"left": out["right"], "right": out["left"]})
    if spec.include_self and same:
        own = {"left": q["ids"], "right": q["ids"]}
        parts.append(own | ({"distance": np.zeros(len(q["ids"]))} if distance else {}))
    rows = sum(len(part["left"]) for part in parts)
    return backend.result({c: _concat([part[c] for part in parts]) for c in columns}, rows)


def _concat(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return parts[0].append([pd.Index(part) for part in parts[1:]])


def count_block(q: Chunk, d: Chunk, layout: Layout, block: tuple[int, int],
                expected: tuple[Any, Any]) -> tuple[Any, Any]:  # fmt: skip
    """Numbers of neighbours that the rows of two chunks have in each other.

    For one chunk with itself the second array is None.
    """
    for chunk, known, number in zip((q, d), expected, block, strict=True):
        _check(chunk, known, number)
    same = block[0] == block[1]
    counts = backend_for(q["example"]).counts(q, d, layout, same=same)
    return counts[0], None if same else counts[1]


def count_block_pairs(q: Chunk, d: Chunk, spec: JoinSpec, layout: Layout, block: tuple[int, int],
                      expected: tuple[Any, Any]) -> int:  # fmt: skip
    """Number of pairs that `join_block` would return."""
    counts, _ = count_block(q, d, layout, block, expected)
    found = int(counts.sum())
    same = block[0] == block[1]
    pairs = found // 2 if same else found
    own = len(counts) if spec.include_self and same else 0
    return pairs * (2 if spec.pairs == "both" else 1) + own
