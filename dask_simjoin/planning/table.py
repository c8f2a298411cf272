"""Statistics of each table of a join."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dask_simjoin.engine.compat import row_bytes
from dask_simjoin.errors import CoordinateError, in_table
from dask_simjoin.planning.coordinate_checks import check_radii, resolve_dims
from dask_simjoin.planning.entity_chunks import Sources
from dask_simjoin.planning.left_out import LeftOut, LeftOutPart, merged_reasons
from dask_simjoin.planning.partition import PartitionSummary, supports_narrow
from dask_simjoin.planning.sample import Moments, Sample, merge_moments
from dask_simjoin.planning.sample_pairs import SamplePoints, gather_samples
from dask_simjoin.request.spec import JoinSpec


@dataclass(frozen=True, eq=False)
class TableSummary:
    """Statistics of a table that can be joined."""

    # the options for this table; if each row has its own radius, `eps` is the largest
    # radius
    spec: JoinSpec
    summaries: list[PartitionSummary]
    every: Moments  # moments of all points
    # (partitions + 1,) int64: the position of each partition's first row
    offsets: np.ndarray
    points: SamplePoints  # the samples of all partitions
    # memory in bytes of one row's id, and of its columns that the result keeps
    id_bytes: float
    kept_bytes: float
    rows: int = field(init=False)  # number of points
    # rows of the table, including rows without a point
    source_rows: int = field(init=False)
    row_bytes: float = field(init=False)  # memory in bytes of one row of a chunk
    # `row_bytes` for a chunk with narrow points; None: the points cannot be narrow
    narrow_bytes: float | None = field(init=False)
    # for each partition: its number of rows, and a digest of its box
    sources: Sources = field(init=False)

    def __post_init__(self) -> None:
        radius, dims = 8 * (self.spec.radius is not None), len(self.every.lower)
        rest = self.id_bytes + self.kept_bytes + radius
        is_narrow = all(
            summary.narrow for summary in self.summaries if summary.moments.rows
        )
        narrow = row_bytes(dims, self.spec.measure.embeds) + rest
        vars(self).update(
            rows=self.every.rows,
            source_rows=int(self.offsets[-1]),
            row_bytes=8 * dims + rest,
            narrow_bytes=narrow
            if is_narrow and supports_narrow(self.spec, dims)
            else None,
            sources=tuple(
                (summary.source_rows, summary.box) for summary in self.summaries
            ),
        )

    @property
    def left_out(self) -> LeftOut:
        """The rows that `dropna` leaves out."""
        gates = self.spec.coordinates.gates
        return LeftOut(
            self.source_rows,
            tuple(
                summary.source_rows - summary.moments.rows for summary in self.summaries
            ),
            merged_reasons(
                (summary.left_out for summary in self.summaries),
                (*self.spec.on, *self.spec.coordinates.by, *gates.within),
            ),
            tuple(
                LeftOutPart(
                    summary.source_rows, summary.left_out, summary.left_out_masks
                )
                for summary in self.summaries
            ),
        )

    @property
    def whole(self) -> list[Sample] | None:
        """All points of each partition; None if there are too many to count their pairs
        during planning.
        """
        parts = [
            summary.whole for summary in self.summaries if summary.whole is not None
        ]
        return parts if len(parts) == len(self.summaries) else None

    @property
    def shown(self) -> np.ndarray:
        """Sample points (m, d) that are used to choose the layout: see `hidden`."""
        return self._half(0).x if self._is_split else self.points.x

    @property
    def hidden(self) -> SamplePoints:
        """Sample points that estimate the recall of an approximate join.

        They are the half of the sample that is not in `shown`. The half in `shown` may
        be used to make clusters, so its recall would be too high. If the sample has all
        points of the table, it is not split.
        """
        return self._half(1) if self._is_split else self.points

    @property
    def _is_split(self) -> bool:
        return self.spec.search.approximate and len(self.points.x) < self.rows

    def _half(self, which: int) -> SamplePoints:
        order = np.random.default_rng(len(self.points.x)).permutation(
            len(self.points.x)
        )
        return self.points.take(np.flatnonzero(order % 2 == which))


def summarise_table(summaries: list[PartitionSummary], spec: JoinSpec) -> TableSummary:
    """Merge the summaries of a table's partitions; refuse a table that cannot be
    joined.
    """
    summaries, spec = resolve_dims(summaries, spec)
    if spec.radius is not None:
        check_radii(summaries, spec)
        spec = spec.with_eps(max((s.largest_radius for s in summaries), default=0.0))
    every = merge_moments([summary.moments for summary in summaries])
    rows = [summary.moments.rows for summary in summaries]
    weights = rows if sum(rows) else None
    id_bytes, kept_bytes = (
        float(np.average([getattr(s, name) for s in summaries], weights=weights))
        for name in ("id_bytes", "kept_bytes")
    )
    offsets = np.cumsum([0, *(summary.source_rows for summary in summaries)])
    samples = [s.sample for s in summaries if s.sample is not None]
    points = gather_samples(samples, offsets, len(every.lower))
    return TableSummary(spec, summaries, every, offsets, points, id_bytes, kept_bytes)


def summarise_two(
    summaries: list[PartitionSummary], others: list[PartitionSummary], spec: JoinSpec
) -> tuple[TableSummary, TableSummary]:
    """Merge the summaries of two tables; an empty table of lists gets the dimensions of
    the other table.
    """
    with in_table(spec.tables[0]):
        left = summarise_table(summaries, spec)
    with in_table(spec.tables[1]):
        right = summarise_table(others, spec.right)
    dims = [len(table.every.lower) for table in (left, right)]
    if dims[0] == dims[1]:
        return left, right
    if not right.rows:
        return left, summarise_table(others, spec.right.with_dims(dims[0]))
    if not left.rows:
        return summarise_table(summaries, spec.with_dims(dims[1])), right
    raise CoordinateError(
        f"Lists have {dims[0]} numbers in column {spec.on[0]!r} of the left table, but "
        f"{dims[1]} in column "
        f"{spec.right.on[0]!r} of the right table. All must have the same length."
    )
