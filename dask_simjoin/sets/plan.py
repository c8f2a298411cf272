"""Plan a join of sets: blocks by size, the block pairs, and the result."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from dask.tokenize import normalize_token

from dask_simjoin.planning.budget import Budget, Resources, make_budget
from dask_simjoin.planning.checks import check_blocks, check_chunks, check_outputs, check_result, check_rows
from dask_simjoin.planning.outputs import OutputSpec, whole_slices
from dask_simjoin.planning.plan import BlockPairs
from dask_simjoin.planning.statistics.estimate import Estimate, block_of, estimate
from dask_simjoin.sets.blocks import TOKEN_BYTES, SizeBlocks, count_meetings, meeting_blocks, size_blocks
from dask_simjoin.sets.methods import SetMethod
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sets.samples import SampledSets, SetSummary, gather_sets, sampled_pairs

LEAST_TOKENS = 1 << 18
"""Tokens of a block that are worth a task."""

BLOCKS_PER_THREAD = 2
"""Blocks for each thread: those of about one size meet, which makes several block pairs for each."""

ROW_BYTES = 64
"""Of a row besides its tokens: offsets, its number, its place in an order."""


@dataclass(frozen=True, eq=False)
class SetPlan(BlockPairs):
    """What was decided before any block pair is joined; what all plans have, see `BlockPairs`.

    Attributes
    ----------
    method : str or SetMethod
        How blocks are joined.
    sources : tuple of tuple of int
        For each table, rows of each of its partitions.
    sides : tuple of SizeBlocks
        The blocks of each table.
    blocks, slices, parts : array
    estimate : Estimate
        The pairs that it gives.
    pair_bytes, row_bytes : float
        Memory of one row of the result, and of one row of a block, on average.
    missing : int
        Rows without a set.
    special : bool
        Whether rows of no token may match.
    budget : Budget
    run : str
        What tasks are recorded for; "": they are not.
    """

    method: str | SetMethod
    sources: tuple[tuple[int, ...], ...]
    sides: tuple[SizeBlocks, ...]
    blocks: np.ndarray
    slices: np.ndarray
    parts: np.ndarray
    estimate: Estimate
    pair_bytes: float
    row_bytes: float
    missing: int
    special: bool
    budget: Budget
    run: str = field(default="", kw_only=True)

    even: ClassVar[bool] = False

    @property
    def layout(self) -> str | SetMethod:
        """What all tasks are told besides the options."""
        return self.method

    @property
    def counted(self) -> SizeBlocks:
        """The blocks of the rows whose matches are counted."""
        return self.sides[0]

    @property
    def table_rows(self) -> tuple[int, ...]:
        """Rows of each table."""
        return tuple(map(sum, self.sources))

    @property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(self.table_rows)

    @property
    def number(self) -> int:
        """Blocks of all tables."""
        return sum(map(len, self.sides))

    @property
    def block_rows(self) -> np.ndarray:
        """Rows expected in each block, float64."""
        return np.concatenate([side.rows for side in self.sides])

    @property
    def block_bytes(self) -> np.ndarray:
        """Memory expected of each block, float64."""
        return np.concatenate([side.bytes for side in self.sides])

    @property
    def tokens(self) -> float:
        """Tokens of all sets, expected."""
        return float(sum(side.tokens.sum() for side in self.sides))

    def __repr__(self) -> str:
        return f"<{self.rows:,} rows, {self.number} blocks of sets, {len(self):,} block pairs>"

    def __dask_tokenize__(self) -> Any:
        lows = [(side.lows, side.splits) for side in self.sides]
        content = self.method, self.sources, lows, self.blocks, self.slices, self.parts, self.special
        return normalize_token((type(self).__qualname__, *content))


def make_set_plan(
    tables: list[list[SetSummary]], spec: SetSpec, output: OutputSpec, resources: Resources
) -> SetPlan:
    """Plan a join of tables whose partitions were summarised; refuse what does not fit."""
    for summaries in tables:
        for number, summary in enumerate(summaries):
            check_rows(summary.source_rows, number)
    budget = make_budget(spec.blocksize, spec.settings, resources)
    sampled, universe = gather_sets(tables)
    sizes = [_average(some, "id_bytes") + _average(some, "kept_bytes") for some in tables]
    tokens = [float(np.maximum(t.points.x[:, 0], 0) @ t.points.weight) for t in sampled]
    rows = [sum(s.source_rows for s in some) for some in tables]
    row_bytes = ROW_BYTES + (
        sum(size * n for size, n in zip(sizes, rows, strict=True)) + TOKEN_BYTES * sum(tokens)
    ) / max(1, sum(rows))
    sides = tuple(
        _blocks(table, n, own, ROW_BYTES + size, budget, resources)
        for table, n, own, size in zip(sampled, rows, tokens, sizes, strict=True)
    )
    special = spec.empty_match or spec.allow_missing
    asked = sides[0], sides[1] if len(sides) > 1 else None, spec.rule, special
    block_rows = np.concatenate([side.rows for side in sides])
    check_blocks(
        len(block_rows), block_rows, row_bytes, budget, resources
    )  # as each is in some pair, but for a few
    check_blocks(count_meetings(*asked), block_rows, row_bytes, budget, resources)
    blocks = meeting_blocks(*asked)
    candidates = _candidates(blocks, block_rows, len(sides) == 1)
    order = np.argsort(-_magnitude(candidates), kind="stable")
    blocks, candidates = blocks[order], candidates[order]
    found = _estimate(sampled, universe, spec, sides, blocks, candidates)
    pair_bytes = sum(sizes) * (2 if len(sides) == 1 else 1) + 8 * (spec.score is not None)
    slices = np.ones(len(blocks), np.int64)
    if output.materialise:
        slices = whole_slices(found.high, pair_bytes, budget, resources).astype(np.int64)
        check_outputs(float(slices.sum()), budget, spec.request, resources, len(sides) > 1)
        check_result(found.total_low, pair_bytes, budget, spec.request, len(sides) > 1)
    for side in sides:
        check_chunks(side.rows, side.bytes / np.maximum(side.rows, 1), budget, resources, len(blocks))
    return SetPlan(
        spec.method,
        tuple(tuple(s.source_rows for s in some) for some in tables),
        sides,
        blocks,
        slices,
        np.ones(len(blocks), np.int64),
        found,
        pair_bytes,
        row_bytes,
        sum(s.missing for some in tables for s in some),
        special,
        budget,
    )


def _magnitude(candidates: np.ndarray) -> np.ndarray:
    """Tell what block pairs are ordered by: heavy ones first, so that none is left to wait for in the end.

    Those that differ less than by half stay in the order of their blocks, so that a block is used again
    before it is written to disk.
    """
    return np.floor(np.log2(np.maximum(candidates, 1)))


def _average(summaries: list[SetSummary], name: str) -> float:
    rows = [s.source_rows for s in summaries]
    return float(np.average([getattr(s, name) for s in summaries], weights=rows if sum(rows) else None))


def _blocks(table: SampledSets, rows: int, tokens: float, row_bytes: float, budget: Budget,
            resources: Resources) -> SizeBlocks:  # fmt: skip
    """Make the blocks of a table: as many as its memory asks for, or keep threads busy.

    `row_bytes`: of a row besides its tokens.
    """
    number = math.ceil((rows * row_bytes + TOKEN_BYTES * tokens) / budget.chunk)
    if not budget.chosen:
        busy = resources.threads if resources.gpu else BLOCKS_PER_THREAD * resources.threads
        number = max(number, min(int(tokens // LEAST_TOKENS), busy))
    return size_blocks(table.sizes, table.hashes, table.points.weight, max(1, number), row_bytes)


def _candidates(blocks: np.ndarray, rows: np.ndarray, same: bool) -> np.ndarray:
    """Pairs of rows that each block pair has (pairs,), float64."""
    i, j = blocks[:, 0], blocks[:, 1]
    product: np.ndarray = rows[i] * rows[j]
    return np.where((i == j) & same, np.maximum(rows[i] * (rows[i] - 1) / 2, 0), product)


def _estimate(sampled: list[SampledSets], universe: int, spec: SetSpec, sides: tuple[SizeBlocks, ...],
              blocks: np.ndarray, candidates: np.ndarray) -> Estimate:  # fmt: skip
    pairs, thinned = sampled_pairs(sampled, universe, spec)
    first = len(sides[0]) if len(sides) > 1 else 0
    own = [side.block_of(table.sizes, table.hashes) for side, table in zip(sides, thinned, strict=True)]
    i, j = own[0][pairs.left], own[-1][pairs.right] + first
    chunks = (i, j) if first else (np.minimum(i, j), np.maximum(i, j))
    return estimate(pairs, blocks, candidates, block_of(blocks, sum(map(len, sides)), chunks))
