"""The plan of a join: its chunks, its block pairs, and its output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from dask.tokenize import normalize_token
from dask.utils import format_bytes

from dask_simjoin.catalog import AUTO, DENSE
from dask_simjoin.engine.base import (
    frames_of_library,
    joiner_of_library,
    recall_module,
)
from dask_simjoin.engine.index.grids import SweepLayout
from dask_simjoin.engine.protocols import MethodSearch
from dask_simjoin.planning.budget import check_room
from dask_simjoin.planning.checks import (
    MAX_ROWS,
    RANK_BYTES,
    check_blocks,
    check_blocksize,
    check_chunks,
    check_outputs,
    check_result,
)
from dask_simjoin.planning.chunk_limits import ChunkLimits, check_one, one_chunk_of_tree
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.data_warnings import (
    DataWarning,
    check_share,
    naming_causes,
    warnings_of_data,
)
from dask_simjoin.planning.entity_chunks import (
    Chunking,
    JoinChunks,
    Sources,
    serpentine,
)
from dask_simjoin.planning.estimate import ALL, UNKNOWN, Estimate, Recall, no_estimate
from dask_simjoin.planning.left_out import LeftOut
from dask_simjoin.planning.limits import PLAIN, Limits
from dask_simjoin.planning.outputs import (
    PAIRS,
    BlockPairs,
    OutputSpec,
    directions,
    most_rows,
    needs_counts,
    query_slices,
    rows_found,
    whole_slices,
)
from dask_simjoin.planning.resources import (
    Disk,
    check_moving,
    expect_disk,
    needed_of_chunks,
    sent_rows,
)
from dask_simjoin.planning.searches import (
    ALONE,
    COPIED_SECONDS,
    Sharing,
    find_joined,
    find_searches,
    find_sharing,
    neighbor_query,
)
from dask_simjoin.planning.tables import JoinStatistics, lists_pairs
from dask_simjoin.planning.visits import Visits, plan_visits
from dask_simjoin.request.spec import JoinSpec

AnyLayout = Any
"""A `Layout` for joins that find pairs, or a `SearchLayout` for nearest neighbors."""


@dataclass(frozen=True, eq=False)
class Plan(BlockPairs):
    """The plan of a join; `BlockPairs` explains the fields without a comment."""

    layout: AnyLayout  # how chunks are indexed
    dims: int
    # for each partition of each table: its number of rows, and a digest of its box
    sources: tuple[Sources, ...]
    chunks: JoinChunks
    blocks: np.ndarray
    slices: np.ndarray
    even: bool  # whether slices have equal estimated work, not equally many pairs
    estimate: Estimate  # the pairs, each counted once
    # memory in bytes of one row of the result, and of one row of a chunk (coordinates
    # and id)
    pair_bytes: float
    row_bytes: float
    table_rows: tuple[int, ...]  # number of points of each table
    limits: Limits
    data_warnings: tuple[DataWarning, ...] = field(default=(), kw_only=True)
    # for each table, the rows that `dropna` leaves out
    left_out: tuple[LeftOut, ...] = field(kw_only=True)
    # int64: for each chunk of queries, the chunks that may contain neighbors of these
    # queries, nearest first
    searches: tuple[np.ndarray, ...] = field(default=(), kw_only=True)
    # (n, 2) int32: pairs of chunks that edges of the spanning tree may connect; empty
    # without a tree
    joined: np.ndarray = field(
        default_factory=lambda: np.zeros((0, 2), np.int32), kw_only=True
    )
    # int64: number of pieces of work, for each block pair (block pairs,) or each search
    # (chunks,)
    parts: np.ndarray = field(kw_only=True)
    # float64: expected seconds that a thread needs, for each block pair (block pairs,)
    # or each search (chunks,)
    seconds: np.ndarray = field(kw_only=True)
    # expected seconds from the first task to the last; this includes disk traffic, but
    # not writing pairs
    expected: float = field(kw_only=True)
    disk: Disk = field(default=Disk(), kw_only=True)
    # number of threads that index a chunk together
    threads: int = field(default=1, kw_only=True)
    # number of workers that each make a copy of every chunk: see `Costs.copies`
    copies: int = field(default=1, kw_only=True)
    # number of threads and of workers that make the spanning tree of a single chunk
    sharing: Sharing = field(default=ALONE, kw_only=True)
    # peak bytes on each worker that has the chunk, if one chunk has all rows and a
    # spanning tree; otherwise 0
    alone: float = field(default=0.0, kw_only=True)
    # maximum number of rows of a partition that are shuffled at a time
    sent: int = field(default=MAX_ROWS, kw_only=True)
    # whether points are narrow: see `engine.compat`
    narrow: bool = field(default=False, kw_only=True)
    # expected fraction of the true pairs that is found
    recall: Recall = field(default=ALL, kw_only=True)
    # whether each partition is read by a task of its own; otherwise the tasks that
    # index chunks read it
    read_apart: bool = field(default=True, kw_only=True)
    # order of the visits of block pairs by workers; None: Dask's order, because all
    # chunks fit in memory
    visits: Visits | None = field(default=None, kw_only=True)
    # name of the recorded run; "": tasks are not recorded
    run: str = field(default="", kw_only=True)

    @property
    def rows(self) -> int:
        """Number of points of all tables."""
        return sum(self.table_rows)

    def rows_found(self, k: int) -> int:
        """Return the number of result rows with k neighbors per row, without a
        max_distance.
        """
        return rows_found(self.table_rows, k)

    @property
    def meets(self) -> bool:
        """Whether any chunks are compared."""
        return len(self.blocks) > 0

    @property
    def shuffles_on_disk(self) -> bool:
        return self.chunks.method == "disk"

    @property
    def partitioning(self) -> str:
        """The kind of the chunks."""
        return self.chunks.kind

    @property
    def chunks_are_partitions(self) -> bool:
        """Whether there is one table, and each of its partitions is one chunk."""
        return len(self.sources) == 1 and self.counted.are_partitions(self.sources[0])

    @property
    def counted(self) -> Chunking:
        """The chunks of the left table."""
        return self.chunks.sides[0]

    def __repr__(self) -> str:
        alone = (
            f", up to {format_bytes(int(self.alone))} of memory" if self.alone else ""
        )
        return (
            f"<{self.layout.method}: {self.rows:,} rows, {len(self.chunks)} "
            f"{self.partitioning} chunks, "
            f"{len(self):,} block pairs{alone}>"
        )

    def __dask_tokenize__(self) -> Any:
        content = (
            repr(self.layout),
            repr(self.sources),
            self.chunks.identity,
            self.blocks,
            self.slices,
            self.even,
            self.searches,
            self.joined,
            self.parts,
            self.copies,
            self.sharing,
            self.narrow,
        )
        return normalize_token((type(self).__qualname__, *content))


def make_plan(
    statistics: JoinStatistics,
    output: OutputSpec = PAIRS,
    machine: Limits = PLAIN,
    with_recall: bool = True,
) -> Plan:
    """Plan a join; refuse tables that cannot be joined.

    `output`: what the tasks return.  `machine`: the workers, without the sizes of the
    join.  `with_recall`: whether to estimate the recall of an approximate join.
    """
    if output.k is not None:
        statistics.check_search(output)
        statistics, output = neighbor_query(statistics, output)
    spec = statistics.spec
    rows, row_bytes = float(sum(statistics.rows)), statistics.row_bytes(output)
    limits = machine.sized(spec.blocksize, spec.settings, rows * row_bytes)
    sources = tuple(table.sources for table in statistics.each)
    if not limits.plain and len(statistics.each) == 1:
        check_blocksize(rows, row_bytes, limits)
    layout: AnyLayout = (
        statistics.layout() if output.k is None else statistics.search_layout()
    )
    costs = _costs(statistics, layout, output, limits, row_bytes, sources)
    one = one_chunk_of_tree(statistics.left, output, limits)
    cut = ChunkLimits(output, limits, one, len(statistics.each))
    chunks = statistics.choose_chunks(cut, costs)
    shuffled = chunks.method is not None
    if output.in_parts(limits) and all(len(side) == 1 for side in chunks.sides):
        output = replace(output, result_bytes_per_row=0, bytes_per_other=0)
    row_bytes = statistics.row_bytes(output, shuffled=shuffled)
    largest = float(chunks.rows.max(initial=0)) * row_bytes
    limits = limits.for_chunks(len(chunks), largest)
    by_region = partial(statistics.blocks_by_region, cut)
    with naming_causes(lambda: warnings_of_data(*statistics.each)):
        check_blocks(chunks.visits[0], chunks.rows, row_bytes, limits, by_region)
    made, blocks = costs.made(chunks), chunks.blocks()
    if output.k is not None:
        # a nearest-neighbor search needs no estimate, because it finds k rows per row
        found, recall = no_estimate(blocks), UNKNOWN if spec.approximate else ALL
    elif spec.approximate and with_recall:
        found, recall = recall_module(spec.method).estimate_lossy(
            statistics, layout, partial(statistics.estimate, chunks, blocks)
        )
    else:
        if limits.plain and len(blocks):
            _foresee(spec, layout, output)
        found = statistics.estimate(chunks, blocks, layout, output)
        recall = UNKNOWN if spec.approximate else ALL
        if output.materialise and _countable(
            statistics, blocks, layout, found, costs, limits.plain
        ):
            found = statistics.count(chunks, blocks, layout, found) or found
    layout = _layout_for(statistics, layout, output, found)
    pair_bytes, replicated = statistics.pair_bytes, chunks.kind == "replicated"
    max_rows = most_rows(found, chunks, blocks, spec)
    slices, even = whole_slices(max_rows, pair_bytes, limits), False
    if limits.plain:  # the result of plain frames is a single frame
        slices = np.ones_like(slices)
    first = chunks.rows[blocks[:, 0]]
    seconds = costs.blocks(chunks, blocks, found.pairs * directions(spec))
    parts = costs.pieces(seconds, first, row_bytes)
    size = float(max_rows.sum()) * pair_bytes
    if replicated:
        slices, even = query_slices(
            slices, found, size, statistics.left.rows, spec, limits
        )
    elif output.materialise:
        even = bool((slices == 1).all()) or not needs_counts(found, size, spec, limits)
        slices = np.maximum(slices, parts)
    data_warnings = statistics.data_warnings(
        found if output.k is None else None, output.finds_copies
    )
    if output.materialise:
        with naming_causes(lambda: data_warnings):
            check_outputs(
                float(slices.sum()),
                limits,
                spec.request,
                len(statistics.each) > 1,
            )
    result = found.total * directions(spec) * pair_bytes if output.materialise else 0.0
    alone = one.need if one is not None and len(chunks) == 1 else 0.0
    disk = (
        Disk()
        if alone
        else expect_disk(chunks, row_bytes, result, output.joins, limits)
    )
    own_bytes = statistics.point_bytes(output, shuffled=shuffled)
    used = slices if output.materialise and even else np.maximum(slices, parts)
    copies = costs.copies(chunks, int(used.max(initial=1)))
    visits = None
    if output.k is None and not alone:
        if copies == 1:
            visits = plan_visits(
                chunks, blocks, seconds, row_bytes, output.with_ids, limits
            )
        if visits is not None:
            disk = disk.with_spilled(output.joins * visits.again * row_bytes, limits)
        disk = replace(
            disk,
            needed=needed_of_chunks(
                chunks, blocks, own_bytes, output.joins > 1, limits
            ),
        )
    plan = Plan(
        layout,
        statistics.dims,
        sources,
        chunks,
        blocks,
        slices.astype(np.int64),
        even,
        found,
        pair_bytes,
        row_bytes,
        statistics.rows,
        limits,
        parts=parts,
        seconds=seconds,
        expected=costs.expected(made, seconds) + disk.seconds,
        disk=disk,
        threads=limits.for_each(len(chunks)),
        copies=copies,
        visits=visits,
        data_warnings=data_warnings,
        left_out=tuple(table.left_out for table in statistics.each),
        alone=alone,
        sent=sent_rows(chunks.method, limits, max(own_bytes)),
        narrow=statistics.is_narrow(output) and not shuffled,
        recall=recall,
    )
    check_moving(chunks.method, limits, statistics.each)
    with naming_causes(lambda: data_warnings):
        if one is not None and alone:
            check_one(one, limits)
        else:
            each = statistics.chunk_row_bytes(output, shuffled=shuffled)
            for side, row_bytes in zip(chunks.sides, each, strict=True):
                check_chunks(side.rows, row_bytes, limits, len(blocks))
        if output.materialise:
            own = plan.rows if spec.include_self else 0
            rows = found.total_low * directions(spec) + own
            check_result(
                rows,
                pair_bytes,
                limits,
                spec.request,
                len(statistics.each) > 1,
                found.counted,
            )
            share = found.total_low / max(1.0, statistics.candidates)
            check_share(data_warnings, share, rows, pair_bytes, spec)
            if limits.plain:
                device = frames_of_library(spec.library).memory()
                check_room(rows, pair_bytes, spec.request, not found.counted, device)
    return (
        plan if output.k is None else _searched(plan, statistics, output, costs, made)
    )


def _foresee(spec: JoinSpec, layout: AnyLayout, output: OutputSpec) -> None:
    """Start to compile the kernels of a join of plain frames, while it is planned."""
    joiner_of_library(spec.library).foresee(
        layout,
        shown=output.listed or bool(spec.several) or spec.radius is not None,
        counted=not output.materialise and not output.listed,
        connected=output.connected,
    )


def _layout_for(
    statistics: JoinStatistics, layout: AnyLayout, output: OutputSpec, found: Estimate
) -> AnyLayout:
    """Replace a default layout by tiles if rows have many neighbors: tiles count many
    pairs at once.
    """
    spec, neighbors = statistics.spec, 2 * found.total / max(1, statistics.left.rows)
    if spec.method == AUTO and not spec.several and output.dense < neighbors:
        return statistics.layout(dense=True)
    return layout


def _countable(
    statistics: JoinStatistics,
    blocks: np.ndarray,
    layout: AnyLayout,
    found: Estimate,
    costs: Costs,
    plain: bool,
) -> bool:
    """Return whether to count all pairs, because this takes no longer than estimating
    them from a sample.

    `found`: the estimate of pairs.
    """
    # the costs of other methods were not measured
    if found.counted or layout.method not in ("sweep", DENSE):
        return False
    spec, sampled = statistics.spec, [len(table.points.x) for table in statistics.each]
    listed, planning = (
        lists_pairs(blocks, spec),
        costs.planning(not plain, spec.measure.embeds),
    )
    return costs.counts(statistics.rows, sampled, found.total, listed, planning)


def _costs(
    statistics: JoinStatistics,
    layout: AnyLayout,
    output: OutputSpec,
    limits: Limits,
    row_bytes: float,
    sources: tuple[Sources, ...],
) -> Costs:
    """Return the cost model of a join."""
    swept = layout.swept_dims if isinstance(layout, SweepLayout) else statistics.dims
    method = layout.method if output.k is None else DENSE
    # the cost of a sweep does not depend on near tiles
    near = (1.0, 1.0) if method == "sweep" and not limits.gpu else statistics.near()
    rows = float(sum(statistics.rows))
    return Costs(
        method,
        statistics.dims,
        near,
        rows,
        output,
        limits,
        swept,
        row_bytes,
        sources,
    )


def _searched(
    plan: Plan,
    statistics: JoinStatistics,
    output: OutputSpec,
    costs: Costs,
    made: float,
) -> Plan:
    """Replace the block pairs of a plan by searches for nearest neighbors."""
    searches = find_searches(statistics, output, plan.chunks)
    check_blocks(
        sum(map(len, searches)),
        plan.chunks.rows,
        plan.row_bytes,
        plan.limits,
    )
    pairs = np.array(
        [
            (min(i, j), max(i, j))
            for i, found in enumerate(searches)
            for j in found.tolist()
        ]
    )
    blocks = serpentine(np.unique(pairs.reshape(-1, 2), axis=0)).astype(np.int32)
    joined = (
        find_joined(statistics, output.k or 1, plan.chunks)
        if output.spanning
        else plan.joined
    )
    check_blocks(len(joined), plan.chunks.rows, plan.row_bytes, plan.limits)
    rows = plan.chunks.rows
    met = np.array([float(rows[found].sum()) for found in searches])
    seconds = costs.searches(rows[: len(searches)], met)
    copies, sharing = 1, ALONE
    divisible = not (costs.limits.gpu and isinstance(plan.layout, MethodSearch))
    if output.spanning:
        copies = costs.copies(plan.chunks, costs.limits.workers)
        sharing = find_sharing(statistics, plan.chunks, seconds, copies, costs.limits)
        copies = copies if sharing[1] > 1 else 1
    elif divisible and seconds.sum() >= COPIED_SECONDS:
        copies = costs.copies(plan.chunks, costs.limits.workers)
    if costs.limits.gpu:  # one piece per GPU, because a search keeps a GPU busy
        parts = np.full(len(searches), 1 if output.spanning else copies)
    else:
        parts = costs.pieces(seconds, rows[: len(searches)], None)
    # without a search there are no parts
    parts, slices = np.where(met > 0, parts, 1), np.ones_like(parts)
    if output.with_ids and divisible:
        most = (
            rows[: len(searches)]
            * float(plan.rows_found(output.k or 1))
            / max(1, plan.table_rows[0])
        )
        least = whole_slices(most, plan.pair_bytes + RANK_BYTES, plan.limits)
        least = np.ceil(least / copies).astype(np.int64) * copies
        # a small result is one partition, in the order of the rows; else each part
        # makes a partition
        divided = (least > 1) & (met > 0)
        parts = np.where(divided, np.maximum(parts, least), parts)
        slices = np.where(divided, parts, 1)
        check_outputs(float(slices.sum()), plan.limits, f"k={output.k}")
    disk = plan.disk
    if not plan.alone:
        own_bytes = [table.row_bytes for table in statistics.each]
        met_in_turn = np.array(
            [(c, d) for c, some in enumerate(searches) for d in some.tolist()]
        )
        again = output.joins > 1 or output.spanning
        needed = needed_of_chunks(
            plan.chunks, met_in_turn.reshape(-1, 2), own_bytes, again, costs.limits
        )
        disk = replace(disk, needed=needed)
    return replace(
        plan,
        blocks=blocks,
        slices=slices,
        searches=searches,
        joined=joined,
        parts=parts,
        seconds=seconds,
        copies=copies,
        sharing=sharing,
        disk=disk,
        expected=costs.expected(made, seconds) + plan.disk.seconds,
    )
