"""What chunks must keep to: how many rows they may have, and what they are made for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dask.utils import format_bytes

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.planning.budget import Budget, Resources
from dask_simjoin.planning.checks import MAX_ROWS, fits_task
from dask_simjoin.planning.chunking.base import BY_WORKER
from dask_simjoin.planning.chunking.entity import EntityChunks, ReplicatedChunks, entity_chunks
from dask_simjoin.planning.free_memory import MARGIN
from dask_simjoin.planning.goal import Goal
from dask_simjoin.planning.moving import can_move
from dask_simjoin.planning.one_chunk import one_is_best
from dask_simjoin.planning.outputs import least_rows
from dask_simjoin.planning.table import TableSummary

CHUNKS_PER_THREAD = 4
"""Spatial chunks for each thread: their sizes differ, so more of them balance better."""

HELD_PER_THREAD = 2
"""The same where workers that hold rows send them: they are as many parcels of each thread."""

LEAST_ROWS = 1 << 14
"""Rows of a chunk that are worth a task."""

UNEVEN = 1.5
"""How many times as many rows as it should have a chunk may have before a partition is cut."""


@dataclass(frozen=True)
class ChunkLimits:
    """What chunks must keep to.

    Attributes
    ----------
    goal : Goal
    budget : Budget
    have : Resources
    shuffle : str
        How Dask would shuffle rows.
    """

    goal: Goal
    budget: Budget
    have: Resources
    shuffle: str

    def can_move(self, tables: Sequence[TableSummary]) -> bool:
        """Tell whether there is room to shuffle the rows of tables."""
        return can_move(self.shuffle, self.have, tables)

    def rows(self, table: TableSummary, row_bytes: float) -> tuple[int, int]:
        """Rows of a chunk: so many are worth a task, or were asked for; and so many fit."""
        most = int(min(max(self.budget.chunk // row_bytes, 1), MAX_ROWS))
        return most if self.budget.chosen else min(most, least_rows(len(table.every.lower))), most

    @property
    def numbers(self) -> list[int]:
        """Numbers of chunks of rows in their order that are worth comparing.

        One, whose queries are cut; one for each thread, which index them side by side; and few more than
        give each thread a block pair.
        """
        if self.budget.chosen:
            return [math.ceil(math.sqrt(2 * self.have.threads))]
        return sorted({1, self.have.threads, math.ceil(math.sqrt(2 * self.have.threads))})

    def entity(self, table: TableSummary, sizes: tuple[int, int], row_bytes: float, norm: float,
               threshold: float, number: int) -> EntityChunks:  # fmt: skip
        """Make about so many chunks of rows in their order.

        Where several chunks cost more than to compare their rows, one may be larger than others may.
        """
        least, most = sizes
        if self.budget.chosen:
            return entity_chunks(table.summaries, least, most, norm, threshold)
        if number == 1 and self._may_be_one(table, row_bytes):
            whole = max(table.source_rows, 1)
            return entity_chunks(table.summaries, whole, whole, norm, threshold)
        together = clip(table.rows / number, min(LEAST_ROWS, most), most)
        return entity_chunks(
            table.summaries, together, min(most, math.ceil(UNEVEN * together)), norm, threshold
        )

    def _may_be_one(self, table: TableSummary, row_bytes: float) -> bool:
        """Tell whether one chunk of all rows is worth it and fits, which may be more than several have."""
        rows = table.source_rows
        if self.goal.spanning:
            return one_is_best(table, self.goal.k or 1, self.have)
        return self.goal.connected and rows * row_bytes <= self.have.whole and rows <= MAX_ROWS

    def replicated(self, table: TableSummary, norm: float, threshold: float) -> ReplicatedChunks | None:
        """Make one chunk of all rows.

        On GPUs that is chosen wherever it fits; None: it does not, or was not asked for.
        """
        asked, rows = table.spec.partitioning, table.source_rows
        if asked != "replicated" and not (asked == "auto" and self.have.gpu):
            return None
        each, size = table.row_bytes, rows * table.row_bytes
        if size <= self.budget.chunk and rows <= MAX_ROWS:
            whole = max(rows, 1)
            return entity_chunks(table.summaries, whole, whole, norm, threshold, ReplicatedChunks)
        if asked == "replicated":
            larger = format_bytes(int(MARGIN * size))
            fits = rows <= MAX_ROWS and fits_task(MARGIN * size, self.have)
            use = f"blocksize={larger!r}, or " if fits else ""
            raise BudgetError(
                f"partitioning='replicated' makes one chunk of all {rows:,} rows of {each:.0f} bytes, "
                f"{format_bytes(int(size))}, and a chunk may have {format_bytes(self.budget.chunk)} "
                f"({self.budget.origin}) and {MAX_ROWS:,} rows; use {use}partitioning='auto'.",
                remedies=[
                    *([Remedy({"blocksize": larger})] if fits else []),
                    Remedy({"partitioning": "auto"}),
                ],
            )
        return None

    def region_rows(self, rows: int, least: int, most: int) -> int:
        """Rows of a region, of so many in all."""
        each = HELD_PER_THREAD if self.shuffle == BY_WORKER else CHUNKS_PER_THREAD
        return clip(rows / (each * self.have.threads), least, most)


def clip(rows: float, least: int, most: int) -> int:
    """Round a number of rows up, and keep it between two others."""
    return min(max(math.ceil(rows), least), most)
