"""Rows that `dropna` leaves out of a join. They have no partner, but they stay in
results that have one value or one row for each row of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import module_of, to_host, values_of
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.engine.native import native
from dask_simjoin.metrics.norms import Array, Frame, Ids, Index, Series
from dask_simjoin.planning.partition import points
from dask_simjoin.request.spec import JoinSpec, RowSpec
from dask_simjoin.tasks.chunks import Chunk, Fingerprint, named_rows, planned_points
from dask_simjoin.tasks.pairs import unmatched

Fill = float | Mapping[str, float]
"""The value of the rows that are left out; for several columns, one value for each."""


def kept_rows(frame: Frame, spec: RowSpec | None) -> Array | None:
    """Return a mask (n,) of the rows that `dropna` keeps; None if it keeps all rows."""
    return (
        points(frame, spec)[1]
        if isinstance(spec, JoinSpec) and spec.coordinates.dropna
        else None
    )


def for_all_rows(
    values: Array, frame: Frame, spec: RowSpec, fill: float
) -> tuple[Array, Ids]:
    """Return values for all rows of a plain frame, and the index labels of the rows.

    `values` (rows, ...): values of the rows that `dropna` keeps. `fill`: the value of
    the other rows.
    """
    if len(values) == len(frame):
        return values, frame.index
    return filled(values, kept_rows(frame, spec), fill), frame.index


def filled(values: Array, kept: Array | None, fill: float) -> Array:
    """Return values of all rows. `values` (rows, ...): values of the rows in the mask
    `kept`; `fill`: the value of the other rows.
    """
    if kept is None:
        return values
    xp = module_of(values)
    found = xp.full((len(kept), *values.shape[1:]), fill, values.dtype)
    found[mask_like(kept, values)] = values
    return found


def mask_like(mask: Array, values: Array) -> Array:
    """Return a mask in the memory of other values, which may be on the host or a GPU."""
    xp = module_of(values)
    return to_host(mask) if xp is np else xp.asarray(mask)


def filled_frame(
    values: Frame | Series, frame: Frame, kept: Array, fill: Fill
) -> Frame | Series:
    """Return the values of all rows of a partition, with its labels. For the other
    arguments, see `filled`.
    """
    frames = frames_for(frame)
    if values.ndim == 1:
        own = fill[values.name] if isinstance(fill, Mapping) else fill
        column = filled(values_of(values), kept, own)
        return frames.series(column, frame.index, values.name)
    columns = {
        name: filled(
            values_of(values[name]),
            kept,
            fill[name] if isinstance(fill, Mapping) else fill,
        )
        for name in values.columns
    }
    found = frames.result(columns, len(frame))
    found.index = frame.index
    found.columns = values.columns
    return found


def rows_of(frame: Frame, spec: RowSpec) -> Chunk:
    """Return rows as a chunk without an index, in the order of the frame. It has the ids
    and the kept columns. In results, these rows have no partner.
    """
    xp = frames_for(frame).xp
    kept = {"kept": frame[list(spec.keep)]} if spec.keep else {}
    index: Index = {"order": xp.arange(len(frame))}
    ids = row_ids(frame, spec.id, spec.id_dtype)
    return named_rows(index, ids, frame.iloc[:0], kept, with_ids=False)


def left_out_rows(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec) -> Chunk:
    """Return the rows of a partition that `dropna` leaves out, see `rows_of`. Raise an
    error if the partition has changed since planning.
    """
    kept = planned_points(frame, fingerprint, spec)[1]
    # Dask may describe big-endian columns as native ones
    some = frame.iloc[:0] if kept is None else native(frame[spec.columns])[~kept]
    return rows_of(some, spec)


def right_rows_alone(frame: Frame, name: str, spec: RowSpec, like: Frame) -> Frame:
    """Make rows of the result for the rows of the right table without a match. `name`:
    the column with their numbers of matches.
    """
    # Dask may describe big-endian columns as native ones
    rows = native(frame[spec.right.columns])[values_of(frame[name]) == 0]
    return unmatched(rows_of(rows, spec.right), 0, spec, like, "right")


def left_out_positions(
    frame: Frame, fingerprint: Fingerprint, first: int, spec: JoinSpec
) -> Array:
    """Return the positions in the whole frame of the rows that `dropna` leaves out.
    `first`: position of the partition's first row.
    """
    kept = planned_points(frame, fingerprint, spec)[1]
    xp = frames_for(frame).xp
    if kept is None:
        return xp.zeros(0, np.int64)
    return first + xp.flatnonzero(~kept)


def joined_positions(*parts: Array) -> Array:
    """Concatenate the positions of several partitions."""
    return module_of(parts[0]).concatenate(parts)


def positions_in_frame(numbers: Array, left_out: Array) -> Array:
    """Convert numbers of the rows that `dropna` keeps (n,), counted from 0, to positions
    in the whole frame. Negative numbers stay.

    `left_out`: positions of the other rows, ascending.
    """
    xp = module_of(numbers)
    # number of kept rows before each of the other rows
    before = left_out - xp.arange(len(left_out))
    found = numbers + xp.searchsorted(before, numbers, side="right")
    return xp.where(numbers < 0, numbers, found)
