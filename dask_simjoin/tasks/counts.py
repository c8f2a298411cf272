"""Count the pairs of a block: by row, as updates that are shuffled back, in all."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import count_up, to_host
from dask_simjoin.engine.protocols import Frames, Rows
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.moving import CELL, COUNT, POSITION
from dask_simjoin.tasks.radii import visit_radii

Number = Any
"""An int, or an array of int64."""


def count_block(meeting: Meeting, enough: int | None = None) -> tuple[Array, Array | None]:
    """Count the neighbours that the rows of two chunks have in each other; `enough`: as of `Joiner.counts`.

    For one chunk with itself the second array is None.
    """
    counts = _counts(meeting, meeting.rows, enough)
    return counts[0], None if meeting.same else counts[1]


def _counts(meeting: Meeting, rows: Rows | None, enough: int | None = None) -> list[Array]:
    """Count the neighbours of the rows of both chunks, by position: a part of them that some places give.

    Within several distances they are (n, distances).
    """
    same, spec, joiner = meeting.same, meeting.spec, meeting.joiner
    if spec.several:
        limits, asked = np.unique(spec.thresholds, return_inverse=True)
        found = joiner.tally(*meeting.operands, limits, same=same, by_row=True, rows=rows)
        return [numbers[:, joiner.xp.asarray(asked)] for numbers in found]
    if spec.radius is None:
        return joiner.counts(*meeting.operands, same=same, enough=enough, rows=rows)
    xp = joiner.xp
    counts = [xp.zeros(len(side["ids"]), xp.int64) for side in meeting.chunks]

    def show(side: int, left: Array, right: Array, totals: Array) -> None:
        count_up(counts[side], left)

    visit_radii(meeting, show, rows)
    return counts


def _within_several(meeting: Meeting, rows: Rows | None) -> np.ndarray:
    """Count the pairs within each of several distances: (distances,) int64."""
    limits, asked = np.unique(meeting.spec.thresholds, return_inverse=True)
    (found,) = meeting.joiner.tally(*meeting.operands, limits, same=meeting.same, by_row=False, rows=rows)
    numbers: np.ndarray = to_host(found)[0, asked]
    return numbers


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
    sent = (count if count.ndim == 1 else count.max(axis=1)) > 0
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


def count_block_pairs(meeting: Meeting) -> Number:
    """Count the pairs that `join_block` would return; an array (distances,) where there are several."""
    q, _, same, spec = meeting[:4]
    pairs: Number = np.zeros(len(spec.several), np.int64) if spec.several else 0
    rows = meeting.rows
    for each in meeting.comparisons():
        if spec.several:
            pairs += _within_several(each, rows) * (2 if spec.pairs == "both" else 1)
            continue
        if spec.radius is not None:
            pairs += sum(int(count.sum()) for count in _counts(each, rows))
            continue
        found = int(meeting.joiner.weights(*each.operands, same=each.same, rows=rows).sum())
        pairs += found * (2 if spec.pairs == "both" else 1)
    return pairs + (len(q["ids"]) if spec.include_self and same and meeting.first else 0)
