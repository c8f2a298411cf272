"""The plan of a join of two tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.tokenize import normalize_token

from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.engine.index.regions import make_regions
from dask_simjoin.errors import CoordinateError, in_table
from dask_simjoin.metrics.norms import reach
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import Budget, Resources, make_budget
from dask_simjoin.planning.checks import check_blocks, check_chunks, check_moving, check_outputs, check_result
from dask_simjoin.planning.chunking.entity import entity_chunks
from dask_simjoin.planning.chunking.regions import Chunking, reach_chunks, region_chunks
from dask_simjoin.planning.chunking.two_tables import TwoTables
from dask_simjoin.planning.doubts import doubts_of_data, doubts_of_eps
from dask_simjoin.planning.outputs import query_slices, whole_slices
from dask_simjoin.planning.plan import (
    CHUNKS_PER_THREAD,
    MAX_REGIONS,
    Plan,
    block_of,
    clip,
    cost,
    replicated_chunk,
    rows_of_chunk,
)
from dask_simjoin.planning.statistics.estimate import estimate_two
from dask_simjoin.planning.statistics.moments import merge_moments
from dask_simjoin.planning.statistics.partition import PartitionSummary
from dask_simjoin.planning.statistics.sample_pairs import sample_pairs_two
from dask_simjoin.planning.table import TableSummary, moments_of, summarise_table


@dataclass(frozen=True, eq=False, repr=False)
class TwoPlan(Plan):
    """See `Plan`; `chunks` are those of both tables.

    Attributes
    ----------
    others : tuple of (int, str)
        Of each partition of the right table: its rows, and a digest of its box.
    left_rows : int
        Points of the left table.
    """

    others: tuple[tuple[int, str], ...]
    left_rows: int

    @property
    def counted(self) -> Chunking:
        left: Chunking = self.chunks.left
        return left

    def __dask_tokenize__(self) -> Any:
        return (super().__dask_tokenize__(), normalize_token(self.others))


def make_two_plan(summaries: list[PartitionSummary], others: list[PartitionSummary], spec: JoinSpec,
                  resources: Resources | None = None, method: str = "tasks", counting: bool = False,
                  known: int | None = None) -> TwoPlan:  # fmt: skip
    """Plan a join of two tables whose partitions have these summaries; parameters as of `make_plan`.

    `known` is of left rows; if it is given, right rows are in one chunk only, too.
    """
    resources = resources or Resources()
    assert spec.other is not None
    left, right = summarise_two(summaries, others, spec)
    spec = left.spec
    budget = make_budget(spec.blocksize, spec.settings, resources)
    joiner = joiner_of_library(spec.library)
    layout = joiner.layout(spec.method, *moments_of([left, right]), spec.threshold, spec.norm)
    replicated = None if counting else _replicated(left, right, budget, resources)
    chunks = replicated or _choose(left, right, budget, resources, method, known)
    check_blocks(chunks.visits[0], len(chunks), budget)
    blocks = chunks.blocks()
    sampled = sample_pairs_two(left.points, right.points, layout, joiner)
    meet = block_of(blocks, chunks, chunks.chunk_pairs(sampled[0]))
    found = estimate_two(sampled, blocks, chunks.candidates(blocks), meet)
    pair_bytes = sum(side.id_bytes + side.kept_bytes for side in (left, right)) + 8 * spec.return_distance
    slices, even = whole_slices(found.high, pair_bytes, budget, resources), False
    if replicated is not None:
        size = float(found.high.sum()) * pair_bytes
        slices, even = query_slices(slices, found, size, left.every.rows, spec, budget, resources)
    if not counting:
        check_outputs(float(slices.sum()), budget)
    if chunks.kind == "spatial":
        check_moving(method, resources)
    for side, some, more in ((left, chunks.left, known or 0), (right, chunks.right, 0)):
        check_chunks(some.rows, side.row_bytes + more, budget, resources)
    if not counting:
        check_result(found.total_low, pair_bytes, budget, spec)
    rows = left.every.rows + right.every.rows
    row_bytes = sum(side.row_bytes * side.every.rows for side in (left, right)) / max(rows, 1)
    return TwoPlan(
        layout, len(left.every.lower), left.sources, chunks, blocks, slices.astype(np.int64),
        replicated is not None, even, found, pair_bytes, row_bytes, rows, budget, right.sources,
        left.every.rows,
        doubts=doubts_of_data(left, right)
        + doubts_of_eps(spec, found, float(left.every.rows) * right.every.rows, (left, right)),
    )  # fmt: skip


def summarise_two(summaries: list[PartitionSummary], others: list[PartitionSummary],
              spec: JoinSpec) -> tuple[TableSummary, TableSummary]:  # fmt: skip
    """Both tables, with as many dimensions; of lists a table without rows does not tell them."""
    assert spec.other is not None
    with in_table("left"):
        left = summarise_table(summaries, spec)
    with in_table("right"):
        right = summarise_table(others, spec.other)
    dims = [len(side.every.lower) for side in (left, right)]
    if dims[0] == dims[1]:
        return left, right
    if not right.every.rows:
        return left, summarise_table(others, replace(spec.other, dims=dims[0]))
    if not left.every.rows:
        return summarise_table(summaries, replace(spec, dims=dims[1])), right
    raise CoordinateError(
        f"The lists of the left table's column {spec.on[0]!r} have {dims[0]} numbers, and those of the right "
        f"one's column {spec.other.on[0]!r} {dims[1]}; they must have as many."
    )


def _replicated(
    left: TableSummary, right: TableSummary, budget: Budget, resources: Resources
) -> TwoTables | None:
    """One chunk of each table; see `replicated_chunk`."""
    sides = [replicated_chunk(side, budget, resources, side.row_bytes) for side in (left, right)]
    if sides[0] is None or sides[1] is None:
        return None
    return TwoTables(sides[0], sides[1], left.spec.norm, left.spec.threshold)


def _choose(left: TableSummary, right: TableSummary, budget: Budget, resources: Resources, method: str,
            known: int | None) -> TwoTables:  # fmt: skip
    """Entity or spatial chunks, whichever have rows visited less often; or those asked for."""
    spec, threads = left.spec, resources.threads
    norm, threshold = spec.norm, spec.threshold
    sides, most = [], []
    for side, more in ((left, known or 0), (right, 0)):
        least, fits = rows_of_chunk(side, budget, side.row_bytes + more)
        together = clip(side.every.rows / math.sqrt(2 * threads), least, fits)
        sides.append(entity_chunks(side.summaries, together, fits, norm, threshold))
        most.append(fits)
    entity = TwoTables(sides[0], sides[1], norm, threshold)
    rows = [side.every.rows for side in (left, right)]
    if spec.partitioning == "entity" or not all(rows):
        return entity
    if spec.partitioning == "auto" and max(len(sides[0]), len(sides[1])) < 2:
        return entity
    target = clip(sum(rows) / (CHUNKS_PER_THREAD * threads), min(sum(rows), least), min(most))
    spatial = two_regions(left, right, target, most, method, near=known is not None)
    if spec.partitioning == "spatial" or cost(spatial) <= cost(entity):
        return spatial
    return entity


def two_regions(left: TableSummary, right: TableSummary, target: int, most: list[int], method: str, *,
                near: bool) -> TwoTables:  # fmt: skip
    """Chunks of the same regions for both tables; `near`: each point is in its own only."""
    spec = left.spec
    norm, threshold = spec.norm, spec.threshold
    away = reach(norm, threshold)
    every = merge_moments([side.every for side in (left, right)])
    x = np.concatenate([side.points.x for side in (left, right)])
    weight = np.concatenate([side.points.weight for side in (left, right)])
    regions = make_regions(x, weight, every.lower, every.upper, away, target, MAX_REGIONS)
    queries = region_chunks(left.points, regions, norm, threshold, most[0], left.offsets, method)
    data: Chunking
    if near:
        data = region_chunks(right.points, regions, norm, threshold, most[1], right.offsets, method)
    else:
        data = reach_chunks(right.points, regions, norm, away, threshold, most[1], right.offsets, method)
    return TwoTables(queries, data, norm, threshold)
