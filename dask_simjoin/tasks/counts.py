"""Counts of the pairs of a block: by row, as rows that are shuffled back, in all."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.protocols import Frames
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.tasks.chunks import CELL, COUNT, POSITION, Chunk
from dask_simjoin.tasks.matches import by_position, comparisons


def count_block(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool) -> tuple[Any, Any]:
    """Numbers of neighbours that the rows of two chunks have in each other.

    For one chunk with itself the second array is None.
    """
    counts = _counts(q, d, spec, layout, same)
    return counts[0], None if same else counts[1]


def _counts(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool) -> list[Any]:
    """Numbers of neighbours of the rows of both chunks, by position."""
    joiner = joiner_for(q["example"])
    if spec.radius is None:
        found: list[Any] = joiner.counts(q, d, layout, same=same)
        return found
    xp = joiner.xp
    with_radii = (q,) if spec.other is not None else (q, d)
    limits = [by_position(side, side["own_limit"], xp) for side in with_radii]
    counts = [xp.zeros(len(side["ids"]), xp.int64) for side in ([q] if same else [q, d])]

    def visitor(left: Any, right: Any, totals: Any) -> None:
        for rows, limit, count in zip((left, right), limits, (counts[0], counts[-1]), strict=False):
            count += xp.bincount(rows[totals <= limit[rows]], minlength=len(count))

    joiner.visit(q, d, layout, visitor, same=same)
    return counts


def count_cells(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, offsets: np.ndarray) -> Any:
    """The same for spatial chunks, as rows that are to be shuffled back to their partitions."""
    frames = frames_for(q["example"])
    parts = []
    for a, b, own in comparisons(q, d, same):
        counts = _counts(a, b, spec, layout, own)
        sides = (a,) if spec.other is not None else (a, b)
        parts += [(side["position"], count) for side, count in zip(sides, counts, strict=False)]
    xp = frames.xp
    position = xp.concatenate([part for part, _ in parts])
    count = xp.concatenate([part for _, part in parts])
    # rows without neighbours are only told of once: by the chunk's meeting with itself
    told = count > 0
    if spec.other is not None:
        told[:] = True  # tables that meet have no such meeting
    elif same:
        told[: len(q["ids"])] = True
    position, count = position[told], count[told]
    return scatter(position, count, offsets, frames)


def scatter(position: Any, values: Any, offsets: np.ndarray, frames: Frames) -> Any:
    """Values (n,) or (n, k) of rows in the whole frame, as rows to be shuffled to their partitions."""
    xp = frames.xp
    partition = xp.searchsorted(xp.asarray(offsets), position, side="right") - 1
    values = xp.asarray(values)
    columns = [values] if values.ndim == 1 else values.T
    told = dict(zip(update_columns(len(columns)), columns, strict=True))
    return frames.result({POSITION: position, **told, CELL: partition}, len(position))


def update_columns(number: int) -> list[str]:
    """The names of the columns in which so many values of each row are told."""
    return [f"{COUNT}{k}" for k in range(number)]


def count_block_pairs(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool) -> int:
    """Number of pairs that `join_block` would return."""
    pairs = 0
    for a, b, own in comparisons(q, d, same):
        counts = _counts(a, b, spec, layout, own)
        if spec.radius is not None:
            pairs += sum(int(count.sum()) for count in counts)
        else:
            found = int(counts[0].sum())
            pairs += (found // 2 if own else found) * (2 if spec.pairs == "both" else 1)
    return pairs + (len(q["ids"]) if spec.include_self and same else 0)
