"""Count the pairs of a block: by row, as updates that are shuffled back, in all."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.protocols import Frames, Rows
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.moving import CELL, COUNT, POSITION
from dask_simjoin.tasks.radii import visit_radii


def count_block(meeting: Meeting, enough: int | None = None) -> tuple[Array, Array | None]:
    """Count the neighbours that the rows of two chunks have in each other; `enough`: as of `Joiner.counts`.

    For one chunk with itself the second array is None.
    """
    counts = _counts(meeting, meeting.rows, enough)
    return counts[0], None if meeting.same else counts[1]


def _counts(meeting: Meeting, rows: Rows | None, enough: int | None = None) -> list[Array]:
    """Count the neighbours of the rows of both chunks, by position: a part of them that some places give."""
    same, spec, joiner = meeting.same, meeting.spec, meeting.joiner
    if spec.radius is None:
        return joiner.counts(*meeting.operands, same=same, enough=enough, rows=rows)
    xp = joiner.xp
    counts = [xp.zeros(len(side["ids"]), xp.int64) for side in meeting.chunks]

    def show(side: int, left: Array, right: Array, totals: Array) -> None:
        counts[side] += xp.bincount(left, minlength=len(counts[side]))

    visit_radii(meeting, show, rows)
    return counts


def count_cells(meeting: Meeting, offsets: np.ndarray) -> Frame:
    """Count the neighbours of rows of spatial chunks, as updates to be shuffled to their partitions."""
    q, _, same, spec = meeting[:4]
    frames, rows = frames_for(q["example"]), meeting.rows
    parts = []
    for each in meeting.comparisons():
        counts = _counts(each, rows)
        sides = (each.q,) if spec.other is not None else (each.q, each.d)
        parts += [(side["position"], count) for side, count in zip(sides, counts, strict=False)]
    xp = frames.xp
    position = xp.concatenate([part for part, _ in parts])
    count = xp.concatenate([part for _, part in parts])
    # rows without neighbours are only counted once: when their chunk meets itself
    sent = count > 0
    if spec.other is not None and meeting.first:
        sent[:] = True  # a chunk of two tables never meets itself
    elif same and meeting.first:
        sent[: len(q["ids"])] = True
    return scatter(position[sent], count[sent], offsets, frames)


def scatter(position: Array, values: Array, offsets: np.ndarray, frames: Frames) -> Frame:
    """Make updates of values (n,) or (n, k) of rows in the whole frame, for the rows' partitions."""
    xp = frames.xp
    partition = xp.searchsorted(xp.asarray(offsets), position, side="right") - 1
    values = xp.asarray(values)
    columns = [values] if values.ndim == 1 else values.T
    named = dict(zip(update_columns(len(columns)), columns, strict=True))
    return frames.result({POSITION: position, **named, CELL: partition}, len(position))


def update_columns(number: int) -> list[str]:
    """Name the columns of updates with so many values of each row."""
    return [f"{COUNT}{k}" for k in range(number)]


def count_block_pairs(meeting: Meeting) -> int:
    """Count the pairs that `join_block` would return."""
    q, _, same, spec = meeting[:4]
    pairs, rows = 0, meeting.rows
    for each in meeting.comparisons():
        if spec.radius is not None:
            pairs += sum(int(count.sum()) for count in _counts(each, rows))
            continue
        found = int(meeting.joiner.weights(*each.operands, same=each.same, rows=rows).sum())
        pairs += found * (2 if spec.pairs == "both" else 1)
    return pairs + (len(q["ids"]) if spec.include_self and same and meeting.first else 0)
