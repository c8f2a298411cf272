"""What plans of searches for nearest neighbours say to people."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.options.messages import shown
from dask_simjoin.planning.checks import NEED, RANK_BYTES
from dask_simjoin.planning.report import PlanReport
from dask_simjoin.planning.statistics.recall import UNKNOWN
from dask_simjoin.planning.task_counts import describe_tasks, making_tasks


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
    def block_pairs(self) -> int:
        return sum(map(len, self.plan.searches))

    @property
    def partitions(self) -> int:
        return max(len(self.plan.counted), 1)

    @property
    def pairs(self) -> float:
        return float(self.plan.rows_found(self.k))

    @property
    def pairs_low(self) -> float:
        return 0.0 if self.bound < math.inf else self.pairs

    @property
    def pairs_high(self) -> float:
        return self.pairs

    @property
    def result_bytes(self) -> int:
        return round(self.pairs * self.pair_bytes)

    @property
    def pair_bytes(self) -> float:
        return self.plan.pair_bytes + RANK_BYTES

    def to_frame(self) -> pd.DataFrame:
        """One row for each chunk of rows and each chunk that is searched for their neighbours.

        Returns
        -------
        pandas.DataFrame
            ``query_chunk``, ``data_chunk``, ``query_rows``, ``data_rows``, ``candidates``; in the order of
            the search, the nearest chunks first.
        """
        plan = self.plan
        numbers = np.repeat(np.arange(len(plan.searches)), [len(found) for found in plan.searches])
        found = np.concatenate([np.zeros(0, np.int64), *plan.searches])
        rows = plan.chunks.rows
        return pd.DataFrame({
            "query_chunk": numbers, "data_chunk": found - plan.chunks.first_data, "query_rows": rows[numbers],
            "data_rows": rows[found], "candidates": rows[numbers] * rows[found],
        })  # fmt: skip

    def _title(self) -> str:
        return f"Plan of a join with nearest neighbours, k={shown(self.k)}"

    def _facts(self) -> list[tuple[str, str]]:
        plan, budget, (queries, data) = self.plan, self.plan.budget, self._sides
        largest = float(plan.chunks.rows.max(initial=0.0))
        at_most = "at most " * (self.bound < math.inf)
        every = plan.rows_found(self.k) // max(1, plan.table_rows[0])  # that there are
        fewer = [("neighbours", f"{every:,} of a row at most, which is all: k={shown(self.k)} asks for more")]
        return [
            *self._what(),
            *(fewer if every < self.k else []),
            *([("recall", self._recall())] if self.spec.approximate else []),
            ("block pairs", f"{self.block_pairs:,} visited at most, of {queries * data:,} possible"),
            ("result", f"{at_most}{self.pairs:,.0f} rows, {format_bytes(self.result_bytes)}"),
            ("partitions", f"{self.partitions:,}"),
            ("memory", f"{format_bytes(round(NEED * largest * plan.row_bytes))} for the largest task"),
            ("budget", f"{format_bytes(budget.chunk)} a chunk ({budget.origin})"),
            ("tasks", describe_tasks(self._tasks(), budget.chunk)),
        ]

    def _recall(self) -> str:
        if self.plan.recall is UNKNOWN:
            return (
                f"not told by a sample, in which rows are less dense; profile(k={shown(self.k)}) measures it"
            )
        return self.plan.recall.in_words("neighbours")

    def _tasks(self) -> int:
        return (
            making_tasks(self.plan.chunks, self.plan.sources, self.spec.settings.cluster)
            + 2 * self.block_pairs
            + self.partitions
        )
