"""The plan of a join: which chunks meet, how all of them are indexed, and what comes out."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dask.tokenize import normalize_token
from dask.utils import format_bytes

from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.engine.index.regions import make_regions
from dask_simjoin.errors import BudgetError
from dask_simjoin.metrics.norms import reach
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import Budget, Resources, make_budget
from dask_simjoin.planning.checks import (
    MAX_ROWS,
    check_blocks,
    check_chunks,
    check_moving,
    check_outputs,
    check_result,
)
from dask_simjoin.planning.chunking.entity import EntityChunks, entity_chunks
from dask_simjoin.planning.chunking.regions import Chunking, region_chunks
from dask_simjoin.planning.chunking.spatial import spatial_chunks
from dask_simjoin.planning.doubts import Doubt, doubts_of_data, doubts_of_eps
from dask_simjoin.planning.outputs import directions, least_rows, most_rows, query_slices, whole_slices
from dask_simjoin.planning.statistics.estimate import Estimate, estimate
from dask_simjoin.planning.statistics.partition import PartitionSummary
from dask_simjoin.planning.statistics.sample_pairs import sample_pairs
from dask_simjoin.planning.table import TableSummary, moments_of, summarise_table

MAX_REGIONS = 1 << 14

CHUNKS_PER_THREAD = 4
"""Spatial chunks for each thread: their sizes differ, so more of them balance better."""

SHUFFLE_COST = {"tasks": 0.9, "disk": 3.0, "p2p": 3.0}
"""What it costs to shuffle a row, in units of what it costs to index and to sweep it once: measured in
2 dimensions on two threads ("tasks", "disk") and on two worker processes ("p2p")."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What was decided before any block pair is joined.

    Attributes
    ----------
    layout : Layout or DeviceLayout
        How chunks are indexed.
    dims : int
        Of the space in which points are joined.
    sources : tuple of (int, str)
        Of each partition of the source: its rows, and a digest of its box.
    chunks : EntityChunks, SpatialChunks, RegionChunks or TwoTables
    blocks : array (block pairs, 2), int32
        Chunks i <= j that meet.
    slices : array (block pairs,), int64
        Partitions of the result that each block pair gives.
    replicated : bool
        Whether there is one chunk, of which every task has a copy.
    even : bool
        Whether slices are of equally many rows of the first chunk, and not of equally many pairs.
    estimate : Estimate
        The pairs that it gives, each counted once.
    pair_bytes, row_bytes : float
        Memory of one row of the result, and of one row of a chunk (coordinates and id).
    rows : int
        Points that take part.
    budget : Budget
    doubts : tuple of Doubt
        What is likely to be a mistake.
    """

    layout: Any
    dims: int
    sources: tuple[tuple[int, str], ...]
    chunks: Any
    blocks: np.ndarray
    slices: np.ndarray
    replicated: bool
    even: bool
    estimate: Estimate
    pair_bytes: float
    row_bytes: float
    rows: int
    budget: Budget
    doubts: tuple[Doubt, ...] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def outputs(self) -> int:
        """Partitions of the result."""
        return int(self.slices.sum())

    @property
    def partitioning(self) -> str:
        """The kind of its chunks."""
        if self.replicated:
            return "replicated"
        return self.chunks.kind

    @property
    def chunks_are_partitions(self) -> bool:
        """Whether each partition is one chunk."""
        return chunks_are_partitions(self.chunks, self.sources)

    @property
    def counted(self) -> Any:
        """The chunks of the rows whose neighbours are counted."""
        return self.chunks

    def output(self, number: int) -> tuple[int, int, int]:
        """Of a partition of the result: its block pair, the slice of that, and how many there are."""
        block = int(np.searchsorted(self._ends, number, side="right"))
        parts = int(self.slices[block])
        return block, number - int(self._ends[block]) + parts, parts

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.slices)

    def __repr__(self) -> str:
        return (
            f"<{self.layout.method}: {self.rows:,} rows, {len(self.chunks)} {self.partitioning} chunks, "
            f"{len(self):,} block pairs>"
        )

    def __dask_tokenize__(self) -> Any:
        content = (
            repr(self.layout), self.sources, self.chunks.identity, self.blocks, self.slices, self.even,
        )  # fmt: skip
        return normalize_token((type(self).__qualname__, *content))


def chunks_are_partitions(chunks: Any, sources: tuple[tuple[int, str], ...]) -> bool:
    """Whether each partition is one chunk."""
    whole = tuple(((n, 0, rows),) for n, (rows, _) in enumerate(sources))
    return isinstance(chunks, EntityChunks) and chunks.pieces == whole


def make_plan(summaries: list[PartitionSummary], spec: JoinSpec, resources: Resources | None = None,
              method: str = "tasks", counting: bool = False, known: int | None = None) -> Plan:  # fmt: skip
    """Plan a join of partitions with these summaries; refuses what cannot be joined.

    `method`: how Dask would shuffle rows; `counting`: no pairs are materialised; `known`: bytes that
    tasks find out of each row, for which chunks leave room, and which are where the row is, so that it is in
    one chunk only; None: rows may be in several.
    """
    resources = resources or Resources()
    side = summarise_table(summaries, spec)
    spec, every = side.spec, side.every
    budget = make_budget(spec.blocksize, spec.settings, resources)
    joiner = joiner_of_library(spec.library)
    layout = joiner.layout(spec.method, *moments_of([side]), spec.threshold, spec.norm)
    row_bytes = side.row_bytes + (known or 0)
    replicated = None if counting else replicated_chunk(side, budget, resources, row_bytes)
    chunks = replicated or _choose(side, budget, resources, row_bytes, method, known is None)
    check_blocks(chunks.visits[0], len(chunks), budget)
    blocks = chunks.blocks()
    sampled = sample_pairs(side.points, layout, joiner)
    meet = block_of(blocks, chunks, chunks.chunk_pairs(sampled[0]))
    found = estimate(sampled, blocks, chunks.candidates(blocks), meet)
    pair_bytes = 2 * (side.id_bytes + side.kept_bytes) + 8 * spec.return_distance
    most = most_rows(found, chunks, blocks, spec)
    slices, even = whole_slices(most, pair_bytes, budget, resources), False
    if replicated is not None:
        slices, even = query_slices(slices, found, float(most.sum()) * pair_bytes, every.rows, spec, budget,
                                    resources)  # fmt: skip
    if not counting:
        check_outputs(float(slices.sum()), budget)
    plan = Plan(
        layout,
        len(every.lower),
        side.sources,
        chunks,
        blocks,
        slices.astype(np.int64),
        replicated is not None,
        even,
        found,
        pair_bytes,
        row_bytes,
        every.rows,
        budget,
        doubts=doubts_of_data(side) + doubts_of_eps(spec, found, math.comb(every.rows, 2), (side, side)),
    )
    if not isinstance(chunks, EntityChunks):
        check_moving(chunks.method, resources)
    check_chunks(chunks.rows, row_bytes, budget, resources)
    if not counting:
        own = every.rows if spec.include_self else 0
        check_result(found.total_low * directions(spec) + own, pair_bytes, budget, spec)
    return plan


def replicated_chunk(side: TableSummary, budget: Budget, resources: Resources,
                     row_bytes: float) -> EntityChunks | None:  # fmt: skip
    """One chunk of all rows, which every task has a copy of, and each its share of the queries of.

    On GPUs that is chosen wherever it fits; None: it does not, or was not asked for.
    """
    spec, rows = side.spec, side.source_rows
    if spec.partitioning != "replicated" and not (spec.partitioning == "auto" and resources.gpu):
        return None
    if rows * row_bytes <= budget.chunk and rows <= MAX_ROWS:
        return entity_chunks(side.summaries, max(rows, 1), max(rows, 1), spec.norm, spec.threshold)
    if spec.partitioning == "replicated":
        raise BudgetError(
            f"partitioning='replicated' makes one chunk of all {rows:,} rows of {row_bytes:.0f} bytes, "
            f"{format_bytes(int(rows * row_bytes))}, and a chunk may have {format_bytes(budget.chunk)} "
            f"({budget.origin}) and {MAX_ROWS:,} rows; use a larger blocksize=, or partitioning='auto'."
        )
    return None


def _choose(side: TableSummary, budget: Budget, resources: Resources, row_bytes: float, method: str,
            halos: bool) -> Chunking:  # fmt: skip
    """Entity or spatial chunks, whichever have rows visited less often; or those asked for."""
    spec, every, points, offsets = side.spec, side.every, side.points, side.offsets
    least, most = rows_of_chunk(side, budget, row_bytes)
    together = clip(every.rows / math.sqrt(2 * resources.threads), least, most)
    entity = entity_chunks(side.summaries, together, most, spec.norm, spec.threshold)
    if spec.partitioning == "entity" or every.rows == 0:
        return entity
    if spec.partitioning == "auto" and len(entity) < 2:
        return entity
    target = clip(every.rows / (CHUNKS_PER_THREAD * resources.threads), least, most)
    away = reach(spec.norm, spec.threshold)
    regions = make_regions(points.x, points.weight, every.lower, every.upper, away, target, MAX_REGIONS)
    spatial: Chunking
    if halos:
        spatial = spatial_chunks(points, regions, spec.norm, away, spec.threshold, most, offsets, method)
    else:
        spatial = region_chunks(points, regions, spec.norm, spec.threshold, most, offsets, method)
    if spec.partitioning == "spatial" or cost(spatial) <= cost(entity):
        return spatial
    return entity


def rows_of_chunk(side: TableSummary, budget: Budget, row_bytes: float) -> tuple[int, int]:
    """Rows of a chunk: so many are worth a task, or were asked for; and so many fit."""
    most = int(min(max(budget.chunk // row_bytes, 1), MAX_ROWS))
    return most if budget.chosen else min(most, least_rows(len(side.every.lower))), most


def clip(rows: float, least: int, most: int) -> int:
    """A number of rows as an int, between two others."""
    return min(max(math.ceil(rows), least), most)


def cost(chunks: Any) -> float:
    """How often rows are visited in all, being shuffled included; of a table's chunks, or two tables'."""
    visits: float = chunks.visits[1]
    if chunks.kind != EntityChunks.kind:
        visits += SHUFFLE_COST[chunks.method] * float(chunks.rows.sum())
    return visits


def block_of(blocks: np.ndarray, chunks: Any, meet: Any) -> Any:
    """A function: the blocks in which pairs of sample points are; `meet` tells of the chunks."""
    number = len(chunks) + 1
    keys = blocks[:, 0].astype(np.int64) * number + blocks[:, 1]
    order = np.argsort(keys)

    def found(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        i, j = meet(left, right)
        return order[np.searchsorted(keys[order], i * number + j)]

    return found
