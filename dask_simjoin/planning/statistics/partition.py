"""Statistics of a partition from one pass: rows, box, variance, bad values, ids."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.columns import extremes
from dask_simjoin.engine.compat import all_of, all_of_rows, count_of, module_of, to_host
from dask_simjoin.engine.ids import id_bytes, row_ids, value_bytes
from dask_simjoin.errors import ListError
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.statistics.sample import (
    Moments,
    Sample,
    bounds,
    box_digest,
    draw,
    every_point,
    moments,
)
from dask_simjoin.planning.statistics.unique_ids import IdSummary, summarise_ids
from dask_simjoin.request.messages import shown
from dask_simjoin.request.spec import JoinSpec

EXACT_INTEGER = 2**53
"""All integers up to this one are float64 numbers."""

RIGHT = 1 << 40
"""Offset of a right table's partition numbers, so that both tables have different samples."""


@dataclass(frozen=True)
class PartitionSummary:
    """Statistics of a partition.

    Attributes
    ----------
    source_rows : int
        Rows of the partition, including rows that `dropna` leaves out.
    moments : Moments
        Moments of its points.
    bad : dict
        Column -> number of missing or NaN values, and of infinite ones; for lists, of lists with such values.
    inexact : dict
        Column -> an integer in it that no float64 number equals.
    beyond : dict
        Column -> how many of its values the metric does not allow, and one of these values.
    zero : tuple or None
        If the metric needs directions: number of rows without one, the first such row, and its label as text.
    unlike : tuple or None
        A row without a list of numbers like the others; what the row holds, and its label as text.
    box : str
        A digest of the box of the points that take part.
    ids : IdSummary or None
        None: ids are not needed.
    id_bytes : float
        Memory of one row's id.
    sample : Sample or None
        Some of the rows that take part; None: no sample was requested.
    whole : Sample or None
        All rows that take part, if a plan may count their pairs.
    kept_bytes : float
        Memory of one row's columns that the result keeps.
    largest_radius : float
        The largest of the rows' own distances.
    bad_radii : int
        How many of the rows' own distances are missing, negative or infinite.
    """

    source_rows: int
    moments: Moments
    bad: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    inexact: dict[Hashable, int] = field(default_factory=dict)
    beyond: dict[Hashable, tuple[int, float]] = field(default_factory=dict)
    zero: tuple[int, int, str] | None = None
    unlike: tuple[int, str, str] | None = None
    box: str = ""
    ids: IdSummary | None = None
    id_bytes: float = 8.0
    sample: Sample | None = None
    kept_bytes: float = 0.0
    largest_radius: float = 0.0
    bad_radii: int = 0
    whole: Sample | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the samples, by far the largest part."""
        samples = {id(some): some for some in (self.sample, self.whole) if some is not None}.values()
        return sum(some.x.nbytes + some.places.nbytes for some in samples)

    @property
    def dims(self) -> int | None:
        """Dimensions of the points; None: there is no point."""
        return len(self.moments.lower) if self.moments.rows else None


class PartitionScan(NamedTuple):
    """The arrays that a pass over a partition has read.

    Attributes
    ----------
    x : array (n, d), float64
        The points that take part.
    frame : DataFrame
        The rows of these points.
    kept : array (rows,), bool, or None
        Which rows of the partition take part; None: all.
    limit : array (n,), float64, or None
        The points' own thresholds.
    """

    x: Array
    frame: Frame
    kept: Array | None
    limit: Array | None


def summarise(frame: Frame, number: int, spec: JoinSpec, with_ids: bool,
              partitions: int = 0, most: int | None = None) -> PartitionSummary:  # fmt: skip
    """Summarize a partition.

    `number`: number of the partition.  `with_ids`: the result names rows, so their ids must be unique.
    `partitions`: count of all partitions; 0: no sample is drawn.  `most`: largest number of points of the
    sample.
    """
    return scan_partition(frame, number, spec, with_ids, partitions, most)[0]


def scan_partition(
    frame: Frame, number: int, spec: JoinSpec, with_ids: bool, partitions: int = 0, most: int | None = None
) -> tuple[PartitionSummary, PartitionScan | None]:
    """Summarize a partition, see `summarise`, and return its arrays; None: some rows are not lists."""
    rows = len(frame)
    try:
        columns = columns_of(frame, spec)
    except ListError as error:
        unlike = (error.row, error.what, _label(frame, spec, error.row))
        return PartitionSummary(rows, moments(np.empty((0, 1))), unlike=unlike), None
    x, kept = _embedded(columns, spec)
    if kept is not None:
        frame, embeds = frame[spec.columns][kept], x is not columns
        x = x[kept]
        columns = columns[kept] if embeds else x
    names = row_ids(frame, spec.id, spec.id_dtype) if with_ids else None
    ids = None if names is None else summarise_ids(names, spec.id)
    found = moments(x)
    size = 8.0 if names is None else id_bytes(names)
    bad, zero, sample, whole = {}, None, None, None
    if found.rows and not np.isfinite([found.lower, found.upper]).all():
        bad, zero = _bad(columns, spec), _zero(columns, frame, spec)
    radius, limit = (0.0, 0), None
    if spec.radius is not None:
        xp, r = module_of(x), radii(frame, spec)
        wrong = ~(xp.isfinite(r) & (r >= 0))
        radius, limit = (float(r.max()) if len(r) else 0.0, count_of(wrong)), limits(r, spec)
    if partitions and not bad and zero is None:
        # the number is part of the seed: equal partitions need different samples
        seed = (int(box_digest(found.lower, found.upper)[:12], 16), number)
        own = None if kept is None else to_host(kept)
        sample = draw(x, own, partitions, seed, limit, most)
        if with_ids and most is None:
            whole = sample if len(sample.x) == len(x) else every_point(x, own, partitions, limit)
    box = box_digest(found.lower, found.upper) if found.rows else ""
    kept_bytes = sum(value_bytes(frame[name]) for name in spec.keep)
    inexact = _inexact(frame, columns, found if columns is x else None, spec)
    summary = PartitionSummary(
        rows, found, bad, inexact, _beyond(columns, spec), zero, None, box, ids, size,
        sample, kept_bytes, *radius, whole,
    )  # fmt: skip
    return summary, PartitionScan(x, frame, kept, limit)


def radii(frame: Frame, spec: JoinSpec) -> Array:
    """Return each row's own largest distance (n,), float64."""
    return frames_for(frame).coordinates(frame, (spec.radius,))[:, 0]


def limits(r: Array, spec: JoinSpec) -> Array:
    """Return the thresholds of distances (n,), float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return spec.measure.threshold(r, module_of(r))


def points(frame: Frame, spec: JoinSpec, room: Array | None = None) -> tuple[Array, Array | None]:
    """Return the coordinates (n, d) of a partition, and which rows `dropna` keeps (None: all).

    `room`: memory for the coordinates, if given.
    """
    return _embedded(columns_of(frame, spec, room), spec)


def columns_of(frame: Frame, spec: JoinSpec, room: Array | None = None) -> Array:
    """Return the columns of coordinates as an array (n, columns), float64; `room`: see `points`."""
    frames = frames_for(frame)
    if len(spec.read_together) == 1:
        return frames.coordinates(frame, spec.on, room)
    parts = [frames.coordinates(frame, some) for some in spec.read_together]
    return frames.xp.concatenate(parts, axis=1)


def _embedded(columns: Array, spec: JoinSpec) -> tuple[Array, Array | None]:
    xp = module_of(columns)
    x = spec.measure.embed(columns, xp)
    if not spec.dropna:
        return x, None
    kept = all_of_rows(xp.isfinite(x))
    return x, None if all_of(kept) else kept


def _bad(columns: Array, spec: JoinSpec) -> dict[Hashable, tuple[int, int]]:
    xp = module_of(columns)
    nan, infinite = xp.isnan(columns), xp.isinf(columns)
    if spec.lists:
        # the numbers of a list belong to one column, and group numbers to another
        of_lists = columns.shape[1] - bool(spec.by)
        nan, infinite = (
            xp.concatenate([some[:, :of_lists].any(axis=1, keepdims=True), some[:, of_lists:]], axis=1)
            for some in (nan, infinite)
        )
    counts = zip(nan.sum(axis=0).tolist(), infinite.sum(axis=0).tolist(), strict=True)
    return {name: both for name, both in zip(spec.on, counts, strict=True) if any(both)}


def _zero(columns: Array, frame: Frame, spec: JoinSpec) -> tuple[int, int, str] | None:
    numbers = columns[:, :-1] if spec.by else columns
    rows = module_of(columns).flatnonzero(all_of_rows(numbers == 0))
    if not spec.measure.directed or not len(rows):
        return None
    first = int(rows[0])
    return len(rows), first, _label(frame, spec, first)


def _beyond(columns: Array, spec: JoinSpec) -> dict[Hashable, tuple[int, float]]:
    found, xp = {}, module_of(columns)
    for k, (name, (least, most)) in enumerate(zip(spec.on, spec.measure.limits, strict=False)):
        column = columns[:, k]
        rows = xp.flatnonzero(((column < least) | (column > most)) & xp.isfinite(column))
        if len(rows):
            found[name] = (len(rows), float(column[rows[0]]))
    return found


def _label(frame: Frame, spec: JoinSpec, row: int) -> str:
    label = frame.index[row] if spec.id is None else frame[spec.id].iloc[row]
    return shown(label.item() if isinstance(label, np.generic) else label)


def _inexact(frame: Frame, columns: Array, found_in: Moments | None, spec: JoinSpec) -> dict[Hashable, int]:
    """Return integers that float64 cannot represent; `found_in`: moments of the columns, if known."""
    found: dict[Hashable, int] = {}
    if found_in is not None and (np.abs([found_in.lower, found_in.upper]) < EXACT_INTEGER).all():
        return found
    if spec.lists:
        name, held = spec.on[0], lists_of(frame[spec.on[0]])
        floats = held is not None and held.kind is not None and held.kind.kind == "f"
        # a bound that is NaN says nothing about the other values
        if len(columns) and not floats and not (np.abs(bounds(columns)) < EXACT_INTEGER).all():
            for value in extremes(frame[name]):
                if abs(value) > EXACT_INTEGER:
                    found[name] = value
        return found
    for name in spec.on:
        column = frame[name]
        if getattr(column.dtype, "kind", "") in "iu" and len(column):
            for value in (column.max(), column.min()):
                if not pd.isna(value) and abs(int(value)) > EXACT_INTEGER:
                    found[name] = int(value)
    return found
