"""The part that all reports of plans share: block pairs and the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.planning.checks import NEED
from dask_simjoin.planning.outputs import describe_tasks
from dask_simjoin.reports.facts import Facts, PicturedReport, size
from dask_simjoin.reports.svg import Matrix, matrix

ROWS: Facts = (("rows", lambda r: " and ".join(f"{rows:,}" for rows in r.plan.table_rows)),)

COST_FACTS: Facts = (
    ("memory", lambda r: f"{size(NEED * r._largest_bytes)} for the largest task"),
    ("budget", lambda r: f"{size(r.plan.budget.chunk)} per {r._unit} ({r.plan.budget.origin})"),
    (
        "",
        lambda r: f"{size(r.plan.budget.output)} per partition, {size(r.plan.budget.result)} for the result",
    ),
    ("tasks", lambda r: describe_tasks(r._tasks, r.plan.budget.chunk)),
)

RESULT_FACTS: Facts = (
    ("block pairs", lambda r: f"{r.block_pairs:,} of {r._possible:,} possible"),
    ("skipped", lambda r: f"{r._possible - r.block_pairs:,}, {r._skipped_because}"),
    ("pairs", lambda r: r._pairs),
    ("sampled", lambda r: None if r.counted else f"{r.plan.estimate.sampled:,} rows, for a 95 % interval"),
    ("recall", lambda r: r._recall),
    ("neighbors", lambda r: f"{r._neighbors:,.3g} per row on average"),
    ("result", lambda r: f"{size(r.result_bytes)}, {r.pair_bytes:.3g} bytes per pair"),
    ("partitions", lambda r: f"{r.partitions:,}, the largest {size(r._largest_partition)}"),
    *COST_FACTS,
)


class BlockReport(PicturedReport):
    """Base class of the reports of plans.

    A subclass defines the number of `_tasks`, and the `_largest_bytes` of a chunk.
    """

    plan: Any
    spec: Any

    _picture_column = "pairs"  # a column of `to_frame`
    _unit = "chunk"  # the word for the rows of a task
    _skipped_because = "too far apart"

    @property
    def rows(self) -> int:
        return self.plan.rows

    @property
    def block_pairs(self) -> int:
        return len(self.plan)

    @property
    def partitions(self) -> int:
        return max(self.plan.outputs, 1)  # an empty result is one empty partition

    @property
    def pairs(self) -> float:
        return self._result_rows(self.plan.estimate.total)

    @property
    def pairs_low(self) -> float:
        return self._result_rows(self.plan.estimate.total_low)

    @property
    def pairs_high(self) -> float:
        return self._result_rows(self.plan.estimate.total_high)

    @property
    def counted(self) -> bool:
        return self.plan.estimate.counted

    @property
    def result_bytes(self) -> int:
        return round(self.pairs * self.pair_bytes)

    @property
    def pair_bytes(self) -> float:
        return self.plan.pair_bytes

    def to_frame(self) -> pd.DataFrame:
        """Return one row per block pair."""
        raise NotImplementedError

    @property
    def _sides(self) -> tuple[int, int]:
        """Return the numbers of query chunks and of data chunks."""
        raise NotImplementedError

    def _result_rows(self, pairs: float) -> float:
        """Return the rows of the result for a number of unordered pairs."""
        return pairs

    @property
    def _two(self) -> bool:
        return len(self.plan.table_rows) > 1

    @property
    def _possible(self) -> int:
        queries, data = self._sides
        return queries * data if self._two else queries * (queries + 1) // 2

    @property
    def _pairs(self) -> str:
        """Return the number of pairs: exact, or with its interval."""
        if self.counted:
            return f"{self.pairs:,.0f} (counted)"
        return f"about {self.pairs:,.0f} ({self.pairs_low:,.0f} to {self.pairs_high:,.0f})"

    @property
    def _largest_partition(self) -> float:
        blocks = self.to_frame()
        sizes = np.repeat((blocks["bytes"] / blocks["partitions"]).to_numpy(), self.plan.slices)
        return float(sizes.max(initial=0.0))

    def _picture(self) -> Matrix:
        blocks = self.to_frame()
        columns = ("query_chunk", "data_chunk", self._picture_column)
        query, data, values = (blocks[name].to_numpy() for name in columns)
        return matrix(query, data, values, self._sides, self._picture_column)

    def _html_picture(self) -> str:
        return self.svg() if max(self._sides) > 1 else ""
