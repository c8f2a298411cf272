"""The plan of a join: its chunks, its work, and its result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

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
from dask_simjoin.planning.budget import Cause, check_room, free_memory
from dask_simjoin.planning.checks import (
    MAX_ROWS,
    check_blocks,
    check_blocksize,
    check_chunks,
    check_device,
    check_matching,
    check_outputs,
    check_result,
)
from dask_simjoin.planning.chunk_limits import (
    ChunkLimits,
    OneChunk,
    check_one,
    device_chunk_bytes,
    device_index_bytes,
    one_chunk_of_tree,
)
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.data_warnings import (
    DataWarning,
    check_share,
    is_most,
    naming_causes,
    warnings_of_data,
)
from dask_simjoin.planning.entity_chunks import Chunking, JoinChunks
from dask_simjoin.planning.estimate import ALL, UNKNOWN, Estimate, Recall, no_estimate
from dask_simjoin.planning.left_out import LeftOut
from dask_simjoin.planning.limits import NEED, PLAIN, Limits
from dask_simjoin.planning.outputs import (
    PAIRS,
    OutputSpec,
    directions,
    most_rows,
    needs_counts,
    query_slices,
    rows_found,
    whole_slices,
)
from dask_simjoin.planning.resources import (
    NO_DISK,
    Disk,
    check_moving,
    expect_disk,
    limits_here,
    needed_of_chunks,
    sent_rows,
)
from dask_simjoin.planning.searches import make_searches, neighbor_query
from dask_simjoin.planning.tables import JoinStatistics, lists_pairs
from dask_simjoin.planning.visits import plan_visits
from dask_simjoin.planning.work import PairWork, Work

AnyLayout = Any
"""A `Layout` for joins that find pairs, or a `SearchLayout` for nearest neighbors."""

AnyWork = Any
"""A `PairWork` for joins that find pairs, or a `SearchWork` for nearest neighbors."""


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of a join, and likely mistakes in them."""

    rows: tuple[int, ...]  # number of points of each table
    # for each partition of each table: its number of rows, and a digest of its box
    sources: tuple[Any, ...]
    # for each table, the rows that `dropna` leaves out
    left_out: tuple[LeftOut, ...]
    warnings: tuple[DataWarning, ...] = ()  # likely mistakes of the caller
    dims: int = 0


@dataclass(frozen=True, eq=False)
class Indexing:
    """How chunks are read and indexed."""

    row_bytes: float  # memory of one row of a chunk: coordinates, id and results
    threads: int = 1  # number of threads that index a chunk together
    # maximum number of rows of a partition that are shuffled at a time
    sent: int = MAX_ROWS
    narrow: bool = False  # whether points are narrow: see `engine.compat`
    # whether each partition is read by a task of its own; otherwise the tasks that
    # index chunks read it
    read_apart: bool = True


@dataclass(frozen=True, eq=False)
class Result:
    """The expected result of a join."""

    pair_bytes: float  # memory of one row of the result
    estimate: Estimate  # the pairs, each counted once
    recall: Recall = ALL  # expected fraction of the true pairs that is found


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory and the disk space that a join needs."""

    disk: Disk = NO_DISK  # expected disk traffic
    # peak bytes on each worker that has the chunk, if one chunk has all rows and a
    # spanning tree; otherwise 0
    alone: float = 0.0


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a join."""

    layout: AnyLayout  # how chunks are indexed
    tables: Tables
    chunks: JoinChunks
    indexing: Indexing
    work: AnyWork
    result: Result
    memory: Memory
    limits: Limits
    # expected seconds from the first task to the last, or of the whole call for plain
    # frames on a CPU. This includes disk traffic, but not writing pairs
    expected: float
    # expected seconds in one process, if the tasks run on a cluster but the join fits
    # in the memory of this process
    one_process: float | None = None
    run: str = ""  # name of the recorded run; "": tasks are not recorded

    @property
    def rows(self) -> int:
        """Number of points of all tables."""
        return sum(self.tables.rows)

    def rows_found(self, k: int) -> int:
        """Return the number of result rows with k neighbors per row, without a
        max_distance.
        """
        return rows_found(self.tables.rows, k)

    @property
    def meets(self) -> bool:
        """Whether any chunks are compared."""
        return len(self.work) > 0

    @property
    def shuffles_on_disk(self) -> bool:
        """Whether shuffled rows are written to this machine's temporary folder."""
        return self.chunks.method == "disk"

    @property
    def partitioning(self) -> str:
        """The kind of the chunks."""
        return self.chunks.kind

    @property
    def chunks_are_partitions(self) -> bool:
        """Whether there is one table, and each of its partitions is one chunk."""
        sources = self.tables.sources
        return len(sources) == 1 and self.counted.are_partitions(sources[0])

    @property
    def counted(self) -> Chunking:
        """The chunks of the left table."""
        return self.chunks.sides[0]

    def __repr__(self) -> str:
        alone = self.memory.alone
        memory = f", up to {format_bytes(int(alone))} of memory" if alone else ""
        return (
            f"<{self.layout.method}: {self.rows:,} rows, {len(self.chunks)} "
            f"{self.partitioning} chunks, {len(self.work):,} block pairs{memory}>"
        )

    def __dask_tokenize__(self) -> Any:
        content = (
            repr(self.layout),
            repr(self.tables.sources),
            self.chunks.identity,
            self.work.identity,
            self.indexing.narrow,
        )
        return normalize_token((type(self).__qualname__, *content))


def make_plan(
    statistics: JoinStatistics,
    output: OutputSpec = PAIRS,
    machine: Limits = PLAIN,
    is_shown: bool = True,
) -> Plan:
    """Plan a join; refuse tables that cannot be joined.

    `output`: what the tasks return.  `machine`: the workers, without the sizes of the
    join.  `is_shown`: whether to estimate the recall of an approximate join, and the
    seconds of a plain frame on a GPU.
    """
    if output.k is None:
        return _make_plan(statistics, output, machine, is_shown)
    statistics.check_search(output)
    # the guess chooses regions, and the expected seconds of a plan that is shown
    is_guessed = is_shown or not machine.plain or statistics.spec.gated
    query = neighbor_query(statistics, output, is_guessed)
    return _make_plan(*query, machine, is_shown)


def _make_plan(
    statistics: JoinStatistics, output: OutputSpec, machine: Limits, is_shown: bool
) -> Plan:
    wanted = _set_limits(statistics, output, machine)
    cut = _cut_chunks(statistics, output, wanted, is_shown)
    result = _estimate_result(statistics, output, cut, is_shown)
    tables = _describe_tables(statistics, output, result)
    with naming_causes(lambda: tables.warnings):
        work = _divide_work(statistics, output, cut, result)
        _check_result(statistics, output, cut, result, tables)
        memory = _expect_memory(statistics, output, cut, result, work)
    found = _rows_of_result(statistics, output, result)
    seconds = cut.costs.expected(
        cut.costs.made(cut.chunks),
        work.seconds,
        result.estimate.total,
        found,
        result.pair_bytes,
    )
    return Plan(
        _layout_for(statistics, cut.layout, output, result.estimate),
        tables,
        cut.chunks,
        _plan_indexing(statistics, output, cut),
        work,
        result,
        memory,
        cut.limits,
        seconds + memory.disk.seconds,
        _in_one_process(statistics, output, cut, result),
    )


def _rows_of_result(
    statistics: JoinStatistics, output: OutputSpec, result: Result
) -> float:
    """Return the expected number of rows of the result; 0 if pairs are not listed."""
    if output.k is not None:
        return rows_found(statistics.rows, output.k) * output.with_ids
    return result.estimate.total * directions(statistics.spec) * output.materialise


def _in_one_process(
    statistics: JoinStatistics, output: OutputSpec, cut: Cut, result: Result
) -> float | None:
    """Return the expected seconds without the cluster, if rows and result fit in the
    memory of this process.
    """
    if not cut.limits.cluster or cut.limits.gpu:
        return None
    here, rows, pairs = limits_here(), statistics.rows, result.estimate.total
    found = pairs * directions(statistics.spec)
    if output.k is not None:
        found = rows_found(rows, output.k)
    need = NEED * sum(rows) * cut.row_bytes
    if output.materialise:
        need += found * result.pair_bytes
    if need > (here.shared or 0) * here.threads:
        return None
    return cut.costs.in_one_process(rows, pairs, here)


def _set_limits(
    statistics: JoinStatistics, output: OutputSpec, machine: Limits
) -> Limits:
    """Return the limits with the sizes of this join. Refuse a too small blocksize."""
    spec, rows = statistics.spec, float(sum(statistics.rows))
    row_bytes = statistics.row_bytes(output)
    limits = machine.sized(spec.blocksize, spec.settings, rows * row_bytes)
    if not limits.plain and len(statistics.each) == 1:
        check_blocksize(rows, row_bytes, limits)
    return limits


class Cut(NamedTuple):
    """The rows, cut into chunks."""

    layout: AnyLayout  # how chunks are indexed, before pairs are counted
    chunks: JoinChunks
    limits: Limits
    costs: Costs
    one: OneChunk | None  # the memory of a single chunk with a spanning tree
    row_bytes: float  # memory of one row of a chunk: coordinates, id and results
    # for each table, memory of one row of a chunk: with results, and without
    chunk_bytes: tuple[float, ...]
    point_bytes: list[float]

    @property
    def alone(self) -> float:
        """Peak bytes of the only chunk with its spanning tree, else 0."""
        return self.one.need if self.one is not None and len(self.chunks) == 1 else 0.0


def _cut_chunks(
    statistics: JoinStatistics, output: OutputSpec, wanted: Limits, is_shown: bool
) -> Cut:
    """Choose a layout and chunks. Refuse too many block pairs.

    `is_shown`: see `make_plan`.
    """
    layout: AnyLayout = (
        statistics.layout() if output.k is None else statistics.search_layout(output)
    )
    costs = _costs(statistics, layout, output, wanted, is_shown)
    one = one_chunk_of_tree(statistics.left, output, wanted)
    sizes = ChunkLimits(output, wanted, one, len(statistics.each))
    chunks = statistics.choose_chunks(sizes, costs)
    shuffled = chunks.method is not None
    # a single chunk is searched in parts, whose results are never all in memory
    in_parts = output.in_parts(wanted) and all(len(side) == 1 for side in chunks.sides)
    kept = output.without_results() if in_parts else output
    row_bytes = statistics.row_bytes(kept, shuffled=shuffled)
    limits = wanted.for_chunks(
        len(chunks), float(chunks.rows.max(initial=0)) * row_bytes
    )
    by_region = partial(statistics.blocks_by_region, sizes)
    with naming_causes(lambda: warnings_of_data(*statistics.each)):
        check_blocks(chunks.visits[0], chunks.rows, row_bytes, limits, by_region)
    return Cut(
        layout,
        chunks,
        limits,
        costs,
        one,
        row_bytes,
        statistics.chunk_row_bytes(kept, shuffled=shuffled),
        statistics.point_bytes(kept, shuffled=shuffled),
    )


def _costs(
    statistics: JoinStatistics,
    layout: AnyLayout,
    output: OutputSpec,
    limits: Limits,
    is_shown: bool,
) -> Costs:
    """Return the cost model of a join. `is_shown`: see `make_plan`."""
    frames = frames_of_library(statistics.spec.library)
    # the limits of plain frames do not show that they are on a GPU
    limits = replace(limits, gpu=limits.gpu or frames.memory() is not None)
    dims = layout.swept_dims if isinstance(layout, SweepLayout) else statistics.dims
    method = layout.method if output.k is None else DENSE
    # the cost of a sweep does not depend on near tiles
    swept = method == "sweep" and not limits.gpu
    # a plain frame is searched in one way, and joined in one way on a GPU, often in less
    # time than this takes
    in_one_way = limits.gpu or output.k is not None
    is_known = limits.plain and in_one_way and not is_shown
    near = (1.0, 1.0) if swept or is_known else statistics.near()
    return Costs(
        method,
        statistics.dims,
        near,
        float(sum(statistics.rows)),
        output,
        limits,
        dims,
        statistics.row_bytes(output),
        tuple(table.sources for table in statistics.each),
        frames.speed(),
    )


def _estimate_result(
    statistics: JoinStatistics, output: OutputSpec, cut: Cut, is_shown: bool
) -> Result:
    """Estimate the number of pairs, or count them."""
    spec, chunks, blocks = statistics.spec, cut.chunks, cut.chunks.blocks()
    recall = UNKNOWN if spec.search.approximate else ALL
    if output.k is not None:  # a search needs no estimate: it finds k rows per row
        return Result(statistics.pair_bytes, no_estimate(blocks), recall)
    if spec.search.approximate and is_shown:
        found, share = recall_module(spec.search.method).estimate_lossy(
            statistics, cut.layout, partial(statistics.estimate, chunks, blocks)
        )
        return Result(statistics.pair_bytes, found, share)
    if cut.limits.plain and len(blocks):
        # start to compile the kernels of the join
        joiner_of_library(spec.library).foresee(
            cut.layout,
            shown=output.listed or bool(spec.several) or spec.directed,
            counted=not output.materialise and not output.listed,
            connected=output.connected,
        )
    estimate = statistics.estimate(chunks, blocks, cut.layout, output)
    if output.materialise and _countable(statistics, blocks, cut, estimate):
        counted = statistics.count(chunks, blocks, cut.layout, estimate)
        return Result(statistics.pair_bytes, counted or estimate, recall)
    return Result(statistics.pair_bytes, estimate, recall)


def _countable(
    statistics: JoinStatistics, blocks: np.ndarray, cut: Cut, found: Estimate
) -> bool:
    """Return whether to count all pairs, because this takes no longer than estimating
    them from a sample.

    `found`: the estimate of pairs.
    """
    # the costs of other methods were not measured
    if found.counted or cut.layout.method not in ("sweep", DENSE):
        return False
    spec, sampled = statistics.spec, [len(table.points.x) for table in statistics.each]
    listed = lists_pairs(blocks, spec)
    planning = cut.costs.planning(not cut.limits.plain, spec.measure.embeds)
    return cut.costs.counts(statistics.rows, sampled, found.total, listed, planning)


def _layout_for(
    statistics: JoinStatistics, layout: AnyLayout, output: OutputSpec, found: Estimate
) -> AnyLayout:
    """Replace a default layout by tiles if rows have many neighbors: tiles count many
    pairs at once.
    """
    spec, neighbors = statistics.spec, 2 * found.total / max(1, statistics.left.rows)
    if spec.search.method == AUTO and not spec.several and output.dense < neighbors:
        return statistics.layout(dense=True)
    return layout


def _describe_tables(
    statistics: JoinStatistics, output: OutputSpec, result: Result
) -> Tables:
    estimate = result.estimate if output.k is None else None
    return Tables(
        statistics.rows,
        tuple(table.sources for table in statistics.each),
        tuple(table.left_out for table in statistics.each),
        statistics.data_warnings(estimate, output.finds_copies),
        statistics.dims,
    )


def _divide_work(
    statistics: JoinStatistics, output: OutputSpec, cut: Cut, result: Result
) -> AnyWork:
    """Divide the work into pieces, and the result into partitions. Refuse too many
    partitions.
    """
    if output.k is not None:
        return make_searches(
            statistics,
            output,
            cut.chunks,
            cut.costs,
            cut.limits,
            cut.row_bytes,
            is_divisible=not (cut.limits.gpu and isinstance(cut.layout, MethodSearch)),
        )
    spec, limits, costs, chunks = statistics.spec, cut.limits, cut.costs, cut.chunks
    estimate, blocks = result.estimate, chunks.blocks()
    seconds = costs.blocks(chunks, blocks, estimate.pairs * directions(spec))
    parts = costs.pieces(seconds, chunks.rows[blocks[:, 0]], cut.row_bytes)
    slices, even = _divide_pairs(statistics, output, cut, result, blocks, parts)
    pieces = slices if output.materialise and even else np.maximum(slices, parts)
    copies = costs.copies(chunks, int(pieces.max(initial=1)))
    visits = None
    if copies == 1 and not cut.alone:
        visits = plan_visits(
            chunks,
            blocks,
            seconds,
            cut.row_bytes,
            output.with_ids,
            limits,
            output.joins,
        )
    return PairWork(blocks, parts, slices, seconds, copies, visits, even)


def _divide_pairs(
    statistics: JoinStatistics,
    output: OutputSpec,
    cut: Cut,
    result: Result,
    blocks: np.ndarray,
    parts: np.ndarray,
) -> tuple[np.ndarray, bool]:
    """Return the number of partitions of the result for each block pair, int64, and
    whether they have equal work.

    `parts`: number of pieces of work of each block pair.
    """
    spec, limits, estimate = statistics.spec, cut.limits, result.estimate
    if limits.plain:  # the result is a single frame
        return np.ones_like(parts), False
    max_rows = most_rows(estimate, cut.chunks, blocks, spec)
    slices = whole_slices(max_rows, result.pair_bytes, limits)
    if not output.materialise:
        return slices.astype(np.int64), False
    sizes, rows = max_rows * result.pair_bytes, statistics.left.rows
    if cut.chunks.kind == "replicated":
        pieces = int(parts.max(initial=1))
        how = float(sizes.sum()), rows, spec, limits, pieces
        slices, even = query_slices(slices, estimate, *how)
    else:
        # a partition has pairs of one block pair only
        largest = float(sizes.max(initial=0.0))
        even = bool((slices == 1).all()) or not needs_counts(
            estimate, largest, spec, limits
        )
        slices = np.maximum(slices, parts)
    two = len(statistics.each) > 1
    check_outputs(float(slices.sum()), limits, Cause.of(spec, two))
    return slices.astype(np.int64), even


def _check_result(
    statistics: JoinStatistics,
    output: OutputSpec,
    cut: Cut,
    result: Result,
    tables: Tables,
) -> None:
    """Refuse a result of pairs that is too large."""
    if not output.materialise:
        return
    spec, limits, found = statistics.spec, cut.limits, result.estimate
    pair_bytes, two = result.pair_bytes, len(statistics.each) > 1
    own = sum(statistics.rows) if spec.result.include_self else 0
    rows = found.total_low * directions(spec) + own
    equal = bool((statistics.every.upper <= statistics.every.lower).all())
    cause = Cause.of(spec, two, equal)
    share = found.total_low / max(1.0, statistics.candidates)
    if limits.plain:  # memory is checked first, because no option allows more
        check_room(
            rows,
            pair_bytes,
            cause,
            not found.counted,
            frames_of_library(spec.library).memory(),
            most=is_most(share, rows * pair_bytes),
        )
    if spec.matching:
        free = free_memory() if limits.plain else limits.room
        check_matching(free, cause, rows, found.counted)
    check_result(rows, pair_bytes, limits, cause, found.counted)
    check_share(tables.warnings, share, rows, pair_bytes, spec, cause)


def _expect_memory(
    statistics: JoinStatistics,
    output: OutputSpec,
    cut: Cut,
    result: Result,
    work: Work,
) -> Memory:
    """Estimate the disk traffic. Refuse chunks that do not fit in memory."""
    chunks, limits = cut.chunks, cut.limits
    check_moving(chunks.method, limits, statistics.each)
    if limits.plain:
        indexing = sum(statistics.rows) * device_index_bytes(8 * statistics.dims)
        check_device(indexing, frames_of_library(statistics.spec.library).memory())
    if cut.one is not None and cut.alone:
        check_one(cut.one, limits)
        return Memory(alone=cut.alone)
    bytes_of_sides = zip(chunks.sides, cut.chunk_bytes, cut.point_bytes, strict=True)
    for side, row_bytes, points in bytes_of_sides:
        # a GPU with a single chunk does not index another one
        alone = limits.gpu and len(side) == 1 and not output.materialise
        need = device_chunk_bytes(points, row_bytes - points) if alone else None
        check_chunks(side.rows, row_bytes, limits, len(work), need)
    size = 0.0
    if output.materialise:
        size = result.estimate.total * directions(statistics.spec) * result.pair_bytes
    disk = expect_disk(chunks, cut.row_bytes, size, output.joins, limits)
    if work.visits is not None:
        disk = disk.with_spilled(work.visits.again * cut.row_bytes, limits)
    needed = needed_of_chunks(
        chunks,
        work.in_turn,
        cut.point_bytes,
        output.joins > 1 or output.spanning,
        limits,
    )
    return Memory(replace(disk, needed=needed))


def _plan_indexing(
    statistics: JoinStatistics, output: OutputSpec, cut: Cut
) -> Indexing:
    method, limits, number = cut.chunks.method, cut.limits, len(cut.chunks)
    is_tree = output.spanning and number == 1
    return Indexing(
        cut.row_bytes,
        threads=limits.for_tree if is_tree else limits.for_each(number),
        sent=sent_rows(method, limits, max(cut.point_bytes)),
        narrow=statistics.is_narrow(output) and method is None,
    )
