"""Statistics of a partition from one pass: rows, box, variance, bad values, ids that
are not unique.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.catalog import arrow_type, check_indexable, describe_ids, lists_of
from dask_simjoin.engine.base import frames_for, narrowing_of
from dask_simjoin.engine.columns import EXACT_INTEGER, extremes
from dask_simjoin.engine.compat import (
    MIN_DIMS,
    all_of,
    all_of_rows,
    count_of,
    module_of,
    on_gpu,
    tally,
    to_host,
    values_of,
)
from dask_simjoin.engine.ids import (
    _is_range,
    _remedy,
    as_id_keys,
    bytes_of_columns,
    decoded,
    id_bytes,
    joined,
    row_ids,
)
from dask_simjoin.engine.native import native
from dask_simjoin.errors import DuplicateIdError, ListError
from dask_simjoin.metrics.norms import Array, Frame, Ids
from dask_simjoin.planning.left_out import LeftOutRows, Reason
from dask_simjoin.planning.sample import (
    Moments,
    Sample,
    bounds,
    box_digest,
    draw,
    every_point,
    moments,
)
from dask_simjoin.request.messages import counted, shown
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import SAMPLED

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
    except ListError:
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
    except ListError as error:
        unlike = (error.row, error.what, _label(frame, spec, error.row))
        unequal = tuple((*one, _label(frame, spec, one[2])) for one in error.lengths)
        nowhere = moments(np.empty((0, 1)))
        return PartitionSummary(rows, nowhere, unlike=unlike, lengths=unequal), None
    may_narrow = may_narrow and supports_narrow(spec, columns.shape[1])
    x, kept, lengths = _embedded(columns, spec, may_narrow)
    narrow = may_narrow and _narrowed(columns, x, lengths) is not None
    left_out: tuple[LeftOutRows, ...] = ()
    every = None if spec.radius is None else radii(frame, spec)
    if kept is not None:
        left_out = _reasons(columns[~kept], spec)
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
    )
    return summary, PartitionScan(x, frame, kept, limit)


def _reasons(columns: Array, spec: JoinSpec) -> tuple[LeftOutRows, ...]:
    """Count rows that `dropna` leaves out, by column and reason. `columns`: the columns
    of coordinates of these rows.
    """
    xp, found = module_of(columns), []
    of_numbers = columns.shape[1] - spec.coordinates.added
    # for each column, or for all numbers of lists, the columns of the array
    groups: list[tuple[tuple[Hashable, ...], slice]] = [
        ((name,), slice(k, k + 1)) for k, name in enumerate(spec.on[:of_numbers])
    ]
    if spec.coordinates.lists:
        groups = [((spec.on[0],), slice(0, of_numbers))]
    if spec.coordinates.by:
        groups.append((spec.coordinates.by, slice(of_numbers, of_numbers + 1)))
    first = of_numbers + bool(spec.coordinates.by)
    for k, name in enumerate(spec.coordinates.gates.within, first):
        groups.append(((name,), slice(k, k + 1)))
    for names, some in groups:
        missing = xp.isnan(columns[:, some]).any(axis=1)
        infinite = xp.isinf(columns[:, some]).any(axis=1) & ~missing
        for reason, rows in (("missing", missing), ("infinite", infinite)):
            if number := count_of(rows):
                found.append(LeftOutRows(names, cast(Reason, reason), number))
    # finite numbers without an embedded point: a row of zeros has no direction
    if number := count_of(all_of_rows(xp.isfinite(columns))):
        found.append(LeftOutRows(tuple(spec.on[:of_numbers]), "no direction", number))
    return tuple(found)


def radii(frame: Frame, spec: JoinSpec) -> Array:
    """Return the radius of each row (n,), float64: the largest distance of its pairs."""
    return frames_for(frame).coordinates(frame, (spec.radius,))[:, 0]


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


MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number near 2**64 / golden ratio: its multiples are spread evenly (Knuth 1973,
section 6.4).
"""


@dataclass(frozen=True)
class IdSummary:
    """Summary of the ids of one partition: their number, missing ids, range, and an id
    that repeats.

    `low` and `high` are None if ids cannot be ordered.  `repeated` is a tuple of one
    id, or None.  `where`: the first row without an id, in words; "" if unknown.
    """

    rows: int
    missing: int
    low: Any
    high: Any
    repeated: tuple[Any] | None
    where: str = ""


def summarise_ids(
    ids: Ids, id: Hashable | None, labels: Ids | None = None
) -> IdSummary:
    """Summarize the ids of one partition.

    `labels`: the index of its frame, for messages; None: unknown, or rows were left
    out.
    """
    n = len(ids)
    if n == 0:
        return IdSummary(0, 0, None, None, None)
    ids = decoded(ids)
    check_indexable(ids.dtype, id)
    if _is_range(ids) or (not ids.hasnans and ids.is_monotonic_increasing):
        return IdSummary(n, 0, ids[0], ids[-1], _first_again(ids))
    absent = ids.isna()
    missing = count_of(absent)
    if missing:
        where = ""
        if labels is not None and len(labels) == n:
            row = int(module_of(absent).flatnonzero(absent)[0])
            where = f"row {row}" if id is None else f"label {shown(labels[row])}"
        return IdSummary(n, missing, None, None, None, where)
    if (
        isinstance(ids.dtype, np.dtype)
        and ids.dtype.kind in "iufmM"
        and not on_gpu(ids)
    ):
        ordered = np.sort(ids.to_numpy())
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        values = pd.Index(ordered)  # converts NumPy's times to pandas' types
        repeated = (values[again[0]],) if len(again) else None
        return IdSummary(n, 0, values[0], values[-1], repeated)
    try:
        repeated = _first_again(ids)
    except TypeError:
        raise DuplicateIdError(
            f"{describe_ids(id)} have values such as {ids[0]!r}, which are not single "
            "values, so they cannot "
            "be ids. "
            f"{_remedy(id)}"
        ) from None
    try:
        return IdSummary(n, 0, ids.min(), ids.max(), repeated)
    except TypeError:
        return IdSummary(n, 0, None, None, repeated)


def _first_again(ids: Ids) -> tuple[Any] | None:
    """Return an id that repeats, as a tuple of one id.

    Return None if all ids are unique.
    """
    arrow = arrow_type(ids.dtype)
    if arrow is not None and pa.types.is_nested(arrow):
        raise TypeError("pandas compares no lists of Arrow")
    return None if ids.is_unique else (ids[ids.duplicated()][0],)


def check_summaries(summaries: Sequence[IdSummary], id: Hashable | None) -> list[int]:
    """Refuse ids that are missing, or that repeat in a partition.

    Return the partitions that may share ids.
    """
    for number, summary in enumerate(summaries):
        if summary.missing:
            within = f" in partition {number}" if len(summaries) > 1 else ""
            where = f" (first at {summary.where}{within})" if summary.where else within
            missing = sum(one.missing for one in summaries)
            if id is None:
                lacks = f"the index has {counted(missing, 'missing label')}{where}"
                without, use = "", _remedy(id)
            else:
                lacks = f"column {id!r} has {counted(missing, 'missing id')}{where}"
                without = (
                    "To leave out rows without an id: "
                    f"frame = frame.dropna(subset=[{id!r}]). "
                )
                use = f"Or u{_remedy(id)[1:]}"
            raise DuplicateIdError(
                f"Every row needs a unique id, but {lacks}. {without}{use}"
            )
        if summary.repeated is not None:
            where = f" in partition {number}" if len(summaries) > 1 else ""
            raise repeated_id(summary.repeated[0], id, where)
    filled = [n for n, summary in enumerate(summaries) if summary.rows]
    if len(filled) < 2:
        return []
    if any(summaries[n].low is None for n in filled):
        return filled
    try:
        filled.sort(key=lambda n: summaries[n].low)
    except TypeError:
        return filled
    overlapping = set()
    last = filled[0]
    for n in filled[1:]:
        if summaries[n].low <= summaries[last].high:
            overlapping |= {n, last}
        if summaries[n].high > summaries[last].high:
            last = n
    return sorted(overlapping)


def key_buckets(ids: Ids, buckets: int) -> list[Array]:
    """Return one array per bucket with the keys of ids (see `id_keys`). Equal keys are
    in the same bucket.
    """
    keys = id_keys(ids)
    if buckets == 1:
        return [keys]
    xp = module_of(keys)
    bucket = (keys * MIXER >> np.uint64(32)) % np.uint64(buckets)
    # 16-bit integers if possible, because NumPy sorts them by radix sort, which is many
    # times faster
    bucket = bucket.astype(np.uint16 if buckets <= 2**16 else np.int64)
    keys = keys[xp.argsort(bucket, kind="stable")]
    counts = to_host(tally(bucket, buckets))
    return xp.split(keys, np.cumsum(counts)[:-1].tolist())


def id_keys(ids: Ids) -> Array:
    """Return a 64-bit key of each id (n,), uint64; equal ids have equal keys."""
    ids = decoded(ids)
    if _is_range(ids):
        ids = frames_for(ids).index(values_of(ids))
    labels = as_id_keys(ids, slice(None))
    if labels is not None:
        return labels.view(np.uint64)
    if ids.dtype.kind in "fc":
        # turns -0.0 into 0.0, because these equal numbers have different hashes in
        # pandas 2 and cuDF
        ids = ids + 0.0
    if on_gpu(ids):
        return values_of(ids.to_series().hash_values(method="xxhash64"))
    keys = np.array(pd.util.hash_pandas_object(pd.Series(ids), index=False), np.uint64)
    if ids.dtype == object:
        # one key for all objects but strings and bytes, because 1, 1.0 and True are
        # equal but have different hashes
        keys[[not isinstance(value, (str, bytes)) for value in ids]] = 0
    return keys


def repeated_keys(*parts: Array) -> np.ndarray:
    """Return at most `SAMPLED` keys that occur more than once in the concatenation
    of all parts.
    """
    xp = module_of(parts[0])
    keys = xp.sort(xp.concatenate(parts))
    return to_host(xp.unique(keys[1:][keys[1:] == keys[:-1]])[:SAMPLED])


def suspected(ids: Ids, keys: np.ndarray) -> pd.Index:
    """Return the ids whose keys are among `keys`; ids with equal keys may still be
    different.
    """
    own = id_keys(ids)
    xp = module_of(own)
    some = decoded(ids[xp.isin(own, xp.asarray(keys))])
    return some.to_pandas() if on_gpu(some) else some


def check_suspects(parts: list[pd.Index], id: Hashable | None) -> None:
    """Refuse an id that is in two partitions. `parts`: for each partition, its ids
    whose keys repeat.
    """
    repeated = _first_again(joined(parts))
    if repeated is not None:
        raise repeated_id(repeated[0], id, " in several partitions")


def repeated_id(value: Any, id: Hashable | None, where: str) -> DuplicateIdError:
    """Return an error that names a repeated id."""
    plain = (
        value.item()
        if isinstance(value, (np.integer, np.floating, np.bool_))
        else value
    )
    labels = (
        " Labels often repeat in a table of several files, because each file counts "
        "its rows from 0."
        if id is None
        else ""
    )
    rounded, remedy = _rounded(value), _remedy(id)
    if rounded:
        remedy = f"If ids also repeat in the file itself, u{remedy[1:]}"
    return DuplicateIdError(
        f"{describe_ids(id)} are not unique: {plain!r} repeats{where}, so pairs would "
        f"be ambiguous.{rounded} {remedy}{labels}"
    )


def _rounded(value: Any) -> str:
    """Return a sentence if a repeated id is a float that may be a rounded integer, else
    "".
    """
    is_float = isinstance(value, (float, np.floating))
    dtype: Any = np.dtype(type(value)) if is_float else None
    if dtype is None or not 2 ** (np.finfo(dtype).nmant + 1) <= abs(value) < np.inf:
        return ""
    return (
        f" The dtype {dtype} rounds integers of this size, so different ids may have "
        "become equal. In that case, read the column as int64 or str when you load the "
        "table; converting it now cannot restore lost digits."
    )
