"""Statistics of a partition from one pass: rows, box, variance, and bad values."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.base import frames_for, narrowing_of
from dask_simjoin.engine.columns import EXACT_INTEGER, extremes
from dask_simjoin.engine.compat import (
    MIN_DIMS,
    all_of,
    all_of_rows,
    count_of,
    module_of,
    to_host,
)
from dask_simjoin.engine.ids import (
    bytes_of_columns,
    id_bytes,
    row_ids,
)
from dask_simjoin.engine.native import native
from dask_simjoin.errors import ListError, NumberError
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.left_out import LeftOutRows, Reason, packed
from dask_simjoin.planning.sample import (
    Moments,
    Sample,
    bounds,
    box_digest,
    draw,
    every_point,
    moments,
)
from dask_simjoin.planning.unique_ids import IdSummary, summarise_ids
from dask_simjoin.request.column_names import are_points
from dask_simjoin.request.messages import shown
from dask_simjoin.request.spec import JoinSpec

RIGHT = 1 << 40
"""Added to the partition numbers of a right table.

These numbers are seeds of samples, so two tables get different samples.
"""


class Beyond(NamedTuple):
    """Values of a column that the metric does not allow."""

    number: int
    example: float
    markers: int  # number of values that equal one of `NOT_AVAILABLE`
    label: str  # of the row of `example`


NOT_AVAILABLE = (91.0, 181.0)
"""Latitude and longitude that stand for "not available" in messages of ships (AIS)."""


@dataclass(frozen=True)
class PartitionSummary:
    """Statistics of a partition."""

    source_rows: int  # rows of the partition, including rows that `dropna` leaves out
    moments: Moments  # moments of its points
    # column -> number of missing or NaN values, number of infinite values, and label of
    # the first such row. For a column of lists, they are numbers of lists that have
    # such values
    bad: dict[Hashable, tuple[int, int, str]] = field(default_factory=dict)
    # column -> an integer in it that float64 does not represent
    inexact: dict[Hashable, int] = field(default_factory=dict)
    # column -> the values that the metric does not allow
    beyond: dict[Hashable, Beyond] = field(default_factory=dict)
    # if the metric compares directions: number of rows with only zeros, the first such
    # row, and its label
    zero: tuple[int, int, str] | None = None
    # the first value that is not a list of numbers: its row number, the value in words,
    # and the row's label
    unlike: tuple[int, str, str] | None = None
    box: str = ""  # a digest of the box of the points
    ids: IdSummary | None = None  # None: ids are not needed
    id_bytes: float = 8.0  # memory of the id of one row, in bytes
    sample: Sample | None = None  # some of the points; None: no sample was requested
    kept_bytes: float = 0.0  # memory of the kept columns of one row, in bytes
    largest_radius: float = 0.0  # the largest radius, if each row has its own
    # number of radii that are missing, negative or infinite, and the label of the first
    # such row
    bad_radii: tuple[int, str] = (0, "")
    # all points, if they are so few that the plan may count their pairs
    whole: Sample | None = None
    # whether chunks on a GPU may have narrow points: see `engine.compat`
    narrow: bool = False
    # the rows that `dropna` leaves out, by column and reason
    left_out: tuple[LeftOutRows, ...] = ()
    # if lists differ in length: each length, the number of such lists, and the row
    # number and label of the first of these
    lengths: tuple[tuple[int, int, int, str], ...] = ()
    # the first value of a column of numbers that is not a number, and its label
    no_number: tuple[NumberError, str] | None = None
    # for each entry of `left_out`, its rows: see `planning.left_out.packed`
    left_out_masks: tuple[bytes, ...] = ()

    @property
    def nbytes(self) -> int:
        """Memory of the samples in bytes. The other fields are far smaller, so they are
        left out.
        """
        samples = {
            id(some): some for some in (self.sample, self.whole) if some is not None
        }.values()
        return sum(some.x.nbytes + some.places.nbytes for some in samples)

    @property
    def dims(self) -> int | None:
        """Number of dimensions of the points; None: there are no points."""
        return len(self.moments.lower) if self.moments.rows else None


class PartitionScan(NamedTuple):
    """The arrays that were read in one pass over a partition."""

    x: Array  # (n, d) float64: coordinates of the points
    frame: Frame  # the rows of these points
    # (rows,) bool: mask of the partition's rows that are points; None: all rows are
    kept: Array | None
    # (n,) float64: threshold of each point; None: all points have the same threshold
    limit: Array | None


def summarise(
    frame: Frame,
    number: int,
    spec: JoinSpec,
    with_ids: bool,
    partitions: int = 0,
    most: int | None = None,
) -> PartitionSummary:
    """Summarize a partition.

    `number`: number of the partition.  `with_ids`: whether the result has ids, so they
    must be unique. `partitions`: number of all partitions; 0: draw no sample.  `most`:
    largest number of sampled points.
    """
    return scan_partition(
        frame, number, spec, with_ids, partitions, most, may_narrow=True
    )[0]


def summarise_parts(
    frame: Frame, bounds: Sequence[int], first: int, spec: JoinSpec, with_ids: bool
) -> list[PartitionSummary]:
    """Summarize several partitions whose rows are in one frame. The coordinates are
    read only once.

    `bounds` (partitions + 1,): position of each partition's first row, and the number
    of all rows.  `first`: number of the first partition.
    """
    try:
        columns = columns_of(frame, spec)
    # scan each partition by itself, so that the error names the partition and row of
    # the unsuitable value
    except (ListError, NumberError):
        columns = None
    found = []
    for n, (start, stop) in enumerate(itertools.pairwise(bounds)):
        own = None if columns is None else columns[start:stop]
        if own is not None and not own.flags.c_contiguous:
            # copied, because kernels expect contiguous arrays
            own = np.asfortranarray(own)
        part = frame.iloc[start:stop]
        found.append(
            scan_partition(
                part, first + n, spec, with_ids, len(bounds) - 1, columns=own
            )[0]
        )
    return found


def scan_partition(
    frame: Frame,
    number: int,
    spec: JoinSpec,
    with_ids: bool,
    partitions: int = 0,
    most: int | None = None,
    columns: Array | None = None,
    *,
    may_narrow: bool = False,
    threads: int = 1,
) -> tuple[PartitionSummary, PartitionScan | None]:
    """Summarize a partition like `summarise`, and return its arrays too.

    The arrays are None if a column of lists has other values.

    `columns`: the columns of coordinates, if they have been read. `may_narrow`: whether
    to check if the points can be stored as narrow points.
    """
    rows = len(frame)
    try:
        columns = columns_of(frame, spec) if columns is None else columns
        every = None if spec.radius is None else radii(frame, spec)
    except NumberError as error:
        label = _label(frame, spec, error.row)
        summary = PartitionSummary(rows, moments(np.empty((0, 1))))
        return replace(summary, no_number=(error, label)), None
    except ListError as error:
        unlike = (error.row, error.what, _label(frame, spec, error.row))
        unequal = tuple((*one, _label(frame, spec, one[2])) for one in error.lengths)
        nowhere = moments(np.empty((0, 1)))
        return PartitionSummary(rows, nowhere, unlike=unlike, lengths=unequal), None
    may_narrow = may_narrow and supports_narrow(spec, columns.shape[1])
    x, kept, lengths = _embedded(columns, spec, may_narrow)
    narrow = may_narrow and _narrowed(columns, x, lengths) is not None
    left_out: tuple[LeftOutRows, ...] = ()
    masks: tuple[bytes, ...] = ()
    if kept is not None:
        left_out, masks = _reasons(columns[~kept], ~to_host(kept), spec)
        frame, embeds = native(frame[spec.columns])[kept], x is not columns
        x = x[kept]
        columns = columns[kept] if embeds else x
    names = row_ids(frame, spec.id, spec.id_dtype) if with_ids else None
    # positions of missing labels count only if no rows were left out
    labels = frame.index if kept is None or spec.id is not None else None
    ids = None if names is None else summarise_ids(names, spec.id, labels)
    found = moments(x, threads)
    size = 8.0 if names is None else id_bytes(names)
    bad, zero, sample, whole = {}, None, None, None
    if found.rows and not np.isfinite([found.lower, found.upper]).all():
        bad, zero = _bad(columns, frame, spec), _zero(columns, frame, spec)
    radius, limit = (0.0, (0, "")), None
    if every is not None:
        xp, r = module_of(x), every if kept is None else every[kept]
        wrong = ~(xp.isfinite(r) & (r >= 0))
        # coordinates of gates are scaled by the largest radius of all rows, also of
        # those that are left out
        far = every[xp.isfinite(every)] if spec.gated else r
        many = count_of(wrong)
        label = _label(frame, spec, int(wrong.argmax())) if many else ""
        radius = (float(far.max()) if len(far) else 0.0, (many, label))
        limit = limits(r, spec)
    if partitions and not bad and zero is None:
        # the seed includes the partition's number, so that partitions with equal boxes
        # get different samples
        seed = (int(box_digest(found.lower, found.upper)[:12], 16), number)
        own = None if kept is None else to_host(kept)
        sample = draw(x, own, partitions, seed, limit, most)
        if with_ids and most is None:
            whole = (
                sample
                if len(sample.x) == len(x)
                else every_point(x, own, partitions, limit)
            )
    box = box_digest(found.lower, found.upper) if found.rows else ""
    kept_bytes = bytes_of_columns(frame, spec.keep)
    inexact = _inexact(frame, columns, found if columns is x else None, spec)
    summary = PartitionSummary(
        rows,
        found,
        bad,
        inexact,
        _beyond(frame, columns, spec),
        zero,
        None,
        box,
        ids,
        size,
        sample,
        kept_bytes,
        *radius,
        whole,
        narrow,
        left_out,
        left_out_masks=masks,
    )
    return summary, PartitionScan(x, frame, kept, limit)


def _reasons(
    columns: Array, left_out: np.ndarray, spec: JoinSpec
) -> tuple[tuple[LeftOutRows, ...], tuple[bytes, ...]]:
    """Count rows that `dropna` leaves out, by column and reason, and return the rows of
    each as a packed mask. `left_out` (rows of the partition,): mask of these rows.
    `columns`: their columns of coordinates.
    """
    xp, found = module_of(columns), []
    masks: list[bytes] = []

    def add(names: tuple[Hashable, ...], reason: Reason, rows: Array) -> None:
        if number := count_of(rows):
            found.append(LeftOutRows(names, reason, number))
            mask = np.zeros(len(left_out), bool)
            mask[left_out] = to_host(rows)
            masks.append(packed(mask))

    of_numbers = columns.shape[1] - spec.coordinates.added
    # for each column, or for all numbers of lists, the columns of the array
    groups: list[tuple[tuple[Hashable, ...], slice]] = [
        ((name,), slice(k, k + 1)) for k, name in enumerate(spec.on[:of_numbers])
    ]
    if spec.coordinates.lists:
        groups = [((spec.on[0],), slice(0, of_numbers))]
    elif are_points(spec.named):  # the columns geometry.y and geometry.x
        groups = [((str(spec.on[0])[:-2],), slice(0, of_numbers))]
    if spec.coordinates.by:
        groups.append((spec.coordinates.by, slice(of_numbers, of_numbers + 1)))
    first = of_numbers + bool(spec.coordinates.by)
    for k, name in enumerate(spec.coordinates.gates.within, first):
        if name not in spec.coordinates.gates.within[: k - first]:
            groups.append(((name,), slice(k, k + 1)))
    for names, some in groups:
        missing = xp.isnan(columns[:, some]).any(axis=1)
        infinite = xp.isinf(columns[:, some]).any(axis=1) & ~missing
        add(names, "missing", missing)
        add(names, "infinite", infinite)
    # finite numbers without an embedded point: a row of zeros has no direction
    add(
        tuple(spec.on[:of_numbers]),
        "no direction",
        all_of_rows(xp.isfinite(columns)),
    )
    return tuple(found), tuple(masks)


def radii(frame: Frame, spec: JoinSpec) -> Array:
    """Return the radius of each row (n,), float64: the largest distance of its pairs."""
    return frames_for(frame).numbers(frame, spec.radius)


def limits(r: Array, spec: JoinSpec) -> Array:
    """Convert radii to thresholds (n,), float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return spec.measure.threshold(r, module_of(r))


def points(
    frame: Frame, spec: JoinSpec, room: Array | None = None
) -> tuple[Array, Array | None]:
    """Return the coordinates (n, d) of a partition, and a mask of the rows that
    `dropna` keeps (None: all).

    `room`: an array that the coordinates may be written to.
    """
    return _embedded(columns_of(frame, spec, room), spec)[:2]


def supports_narrow(spec: JoinSpec, dims: int) -> bool:
    """Return whether tables of a join with these options may have narrow points. Only
    tables on GPUs may.
    """
    plain = spec.radius is None and not spec.gated
    return spec.library == "cudf" and plain and dims >= MIN_DIMS


def narrow_points(
    frame: Frame, spec: JoinSpec
) -> tuple[Array, Array | None, Array | None]:
    """Return the results of `points`, and the points as narrow points (None: they
    cannot be narrow).
    """
    columns = columns_of(frame, spec)
    x, kept, lengths = _embedded(columns, spec, True)
    return x, kept, _narrowed(columns, x, lengths)


def _narrowed(columns: Array, x: Array, lengths: Array | None) -> Array | None:
    narrow: Array | None = narrowing_of(x).narrowed(columns, x, lengths)
    return narrow


def columns_of(frame: Frame, spec: JoinSpec, room: Array | None = None) -> Array:
    """Return the columns of coordinates as an array (n, columns), float64; `room`: see
    `points`.
    """
    frames = frames_for(frame)
    if len(spec.read_together) == 1:
        return frames.coordinates(frame, spec.on, room)
    parts = [frames.coordinates(frame, some) for some in spec.read_together]
    return frames.xp.concatenate(parts, axis=1)


def _embedded(
    columns: Array, spec: JoinSpec, with_lengths: bool = False
) -> tuple[Array, Array | None, Array | None]:
    """Return the coordinates, a mask of the rows that `dropna` keeps (None: all rows),
    and lengths or None.

    `with_lengths`: whether to return the lengths that the columns are divided by, if
    the metric has lengths.
    """
    xp, lengths = module_of(columns), None
    if with_lengths:
        x, lengths = spec.measure.divided(columns, xp)
    else:
        x = spec.measure.embed(columns, xp)
    if not spec.coordinates.dropna:
        return x, None, lengths
    kept = all_of_rows(xp.isfinite(x))
    return x, None if all_of(kept) else kept, lengths


def _bad(
    columns: Array, frame: Frame, spec: JoinSpec
) -> dict[Hashable, tuple[int, int, str]]:
    xp = module_of(columns)
    nan, infinite = xp.isnan(columns), xp.isinf(columns)
    if spec.coordinates.lists:
        # all numbers of a list belong to one column of the table, except for group
        # numbers in the last column
        of_lists = columns.shape[1] - spec.coordinates.added
        nan, infinite = (
            xp.concatenate(
                [some[:, :of_lists].any(axis=1, keepdims=True), some[:, of_lists:]],
                axis=1,
            )
            for some in (nan, infinite)
        )
    first = (nan | infinite).argmax(axis=0).tolist()
    counts = zip(
        spec.on,
        nan.sum(axis=0).tolist(),
        infinite.sum(axis=0).tolist(),
        first,
        strict=True,
    )
    return {
        name: (*both, _label(frame, spec, row))
        for name, *both, row in counts
        if any(both)
    }


def _zero(columns: Array, frame: Frame, spec: JoinSpec) -> tuple[int, int, str] | None:
    numbers = columns[:, : columns.shape[1] - spec.coordinates.added]
    rows = module_of(columns).flatnonzero(all_of_rows(numbers == 0))
    if not spec.measure.directed or not len(rows):
        return None
    first = int(rows[0])
    return len(rows), first, _label(frame, spec, first)


def _beyond(frame: Frame, columns: Array, spec: JoinSpec) -> dict[Hashable, Beyond]:
    found, xp, of_lists = {}, module_of(columns), spec.coordinates.lists
    for k, (name, (least, most)) in enumerate(
        zip(spec.on, spec.measure.limits, strict=False)
    ):
        # a column of lists holds all numbers
        end = columns.shape[1] - spec.coordinates.added if of_lists else k + 1
        some = columns[:, k:end]
        outside = ((some < least) | (some > most)) & xp.isfinite(some)
        rows = xp.nonzero(outside)[0]
        if len(rows):
            values = some[outside]
            markers = int(xp.isin(values, xp.asarray(NOT_AVAILABLE)).sum())
            label = _label(frame, spec, int(rows[0]))
            found[name] = Beyond(len(rows), float(values[0]), markers, label)
    return found


def _label(frame: Frame, spec: JoinSpec, row: int) -> str:
    return shown(frame.index[row] if spec.id is None else frame[spec.id].iloc[row])


def _inexact(
    frame: Frame, columns: Array, found_in: Moments | None, spec: JoinSpec
) -> dict[Hashable, int]:
    """Return a dict: column -> an integer in it that float64 cannot represent. Other
    columns are left out.

    `found_in`: moments of the columns, if known.
    """
    found: dict[Hashable, int] = {}
    if (
        found_in is not None
        and (np.abs([found_in.lower, found_in.upper]) < EXACT_INTEGER).all()
    ):
        return found
    if spec.coordinates.lists:
        name, held = spec.on[0], lists_of(frame[spec.on[0]])
        floats = held is not None and held.kind is not None and held.kind.kind == "f"
        # look at the values unless the bounds prove that all are small; a NaN bound
        # proves nothing
        if (
            len(columns)
            and not floats
            and not (np.abs(bounds(columns)) < EXACT_INTEGER).all()
        ):
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
