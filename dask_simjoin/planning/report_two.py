"""What plans of two tables, and of searches for nearest neighbours, say to people."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.options.messages import counted, shown
from dask_simjoin.planning.checks import NEED, RANK_BYTES
from dask_simjoin.planning.plan_nearest import rows_found
from dask_simjoin.planning.plan_two import TwoPlan
from dask_simjoin.planning.report import PlanReport
from dask_simjoin.planning.task_counts import describe_tasks, shuffle_tasks


@dataclass(frozen=True, repr=False, eq=False)
class TwoReport(PlanReport):
    """The plan of a join of two tables; see `PlanReport`.  Chunks are numbered by table."""

    plan: TwoPlan

    @property
    def _sides(self) -> tuple[int, int]:
        return len(self.plan.chunks.left), len(self.plan.chunks.right)

    def to_frame(self) -> pd.DataFrame:
        """One row for each block pair; see `PlanReport.to_frame`."""
        frame = super().to_frame()
        return frame.assign(data_chunk=frame["data_chunk"] - len(self.plan.chunks.left))

    def _title(self) -> str:
        return f"Plan of a join of two tables, {self._within()}"

    def _rows(self) -> str:
        return f"{self.plan.left_rows:,} and {self.rows - self.plan.left_rows:,}"

    def _possible(self) -> int:
        possible: int = self.plan.chunks.possible
        return possible

    def _sampled_of(self) -> int:
        return self.plan.left_rows

    def _neighbours(self) -> float:
        return self.plan.estimate.total / max(self.plan.left_rows, 1)

    def _partitioning(self) -> str:
        return _two_kinds(self.plan)

    def _tasks(self) -> int:
        plan = self.plan
        join = self.partitions + int((plan.slices > 1).sum())
        return _chunk_tasks(plan) + join


@dataclass(frozen=True, repr=False, eq=False)
class NearestReport(PlanReport):
    """The plan of a join with nearest neighbours; see `PlanReport`.

    Attributes
    ----------
    k : int
    bound : float
        The largest total of a neighbour.
    block_pairs : int
        Chunks that are searched, for all chunks of rows.
    pairs, pairs_low, pairs_high : float
        The most rows that the result can have, and the fewest if no largest distance is set.
    """

    k: int = 1
    bound: float = math.inf

    _drawn: ClassVar[str] = "candidates"

    @property
    def _sides(self) -> tuple[int, int]:
        if isinstance(self.plan, TwoPlan):
            return len(self.plan.chunks.left), len(self.plan.chunks.right)
        return self.chunks, self.chunks

    @property
    def _two(self) -> bool:
        return isinstance(self.plan, TwoPlan)

    @property
    def _queries(self) -> int:
        return self.plan.left_rows if isinstance(self.plan, TwoPlan) else self.rows

    @property
    def block_pairs(self) -> int:
        plan: Any = self.plan
        return sum(map(len, plan.searches))

    @property
    def partitions(self) -> int:
        return max(len(self.plan.counted), 1)

    @property
    def pairs(self) -> float:
        return float(rows_found(self.plan, self.k))

    @property
    def pairs_low(self) -> float:
        return 0.0 if self.bound < math.inf else self.pairs

    @property
    def pairs_high(self) -> float:
        return self.pairs

    @property
    def result_bytes(self) -> int:
        return round(self.pairs * (self.plan.pair_bytes + RANK_BYTES))

    def to_frame(self) -> pd.DataFrame:
        """One row for each chunk of rows and each chunk that is searched for their neighbours.

        Returns
        -------
        pandas.DataFrame
            ``query_chunk``, ``data_chunk``, ``query_rows``, ``data_rows``, ``candidates``; in the order of
            the search, the nearest chunks first.
        """
        plan: Any = self.plan
        numbers = np.repeat(np.arange(len(plan.searches)), [len(found) for found in plan.searches])
        found = np.concatenate([np.zeros(0, np.int64), *plan.searches])
        rows = plan.chunks.rows
        first = len(plan.chunks.left) if self._two else 0
        return pd.DataFrame({
            "query_chunk": numbers, "data_chunk": found - first, "query_rows": rows[numbers],
            "data_rows": rows[found], "candidates": rows[numbers] * rows[found],
        })  # fmt: skip

    def _title(self) -> str:
        return f"Plan of a join with nearest neighbours, k={shown(self.k)}"

    def _rows(self) -> str:
        return f"{self._queries:,} and {self.rows - self._queries:,}" if self._two else f"{self.rows:,}"

    def _possible(self) -> int:
        return self.plan.chunks.possible if isinstance(self.plan, TwoPlan) else self.chunks**2

    def _partitioning(self) -> str:
        return _two_kinds(self.plan) if isinstance(self.plan, TwoPlan) else super()._partitioning()

    def _facts(self) -> list[tuple[str, str]]:
        plan, budget = self.plan, self.plan.budget
        largest = float(plan.chunks.rows.max(initial=0.0))
        at_most = "at most " * (self.bound < math.inf)
        every = rows_found(plan, self.k) // max(1, self._queries)  # that there are
        fewer = [("neighbours", f"{every:,} of a row at most, which is all: k={shown(self.k)} asks for more")]
        return [
            *self._what(),
            *(fewer if every < self.k else []),
            ("block pairs", f"{self.block_pairs:,} visited at most, of {self._possible():,} possible"),
            ("result", f"{at_most}{self.pairs:,.0f} rows, {format_bytes(self.result_bytes)}"),
            ("partitions", f"{self.partitions:,}"),
            ("memory", f"{format_bytes(round(NEED * largest * plan.row_bytes))} for the largest task"),
            ("budget", f"{format_bytes(budget.chunk)} a chunk ({budget.origin})"),
            ("tasks", describe_tasks(self._tasks(), budget.chunk)),
        ]

    def _tasks(self) -> int:
        return _chunk_tasks(self.plan) + 2 * self.block_pairs + self.partitions


def _two_kinds(plan: TwoPlan) -> str:
    if plan.replicated:
        return "replicated: one chunk of each table, and tasks for parts of the left one's rows"
    if plan.chunks.kind == "entity":
        return "entity: rows in the order of the frames"
    return f"spatial: {counted(len(plan.chunks.left.regions), 'region')}, the same of both tables"


def _chunk_tasks(plan: Any) -> int:
    """Tasks that make chunks, about."""
    tables = [(plan.chunks, plan.sources)]
    if isinstance(plan, TwoPlan):
        tables = [(plan.chunks.left, plan.sources), (plan.chunks.right, plan.others)]
    tasks = 0
    for chunks, sources in tables:
        tasks += len(sources) + len(chunks)
        if chunks.kind != "entity":
            tasks += shuffle_tasks(len(sources), len(chunks), chunks.method)
    return tasks
