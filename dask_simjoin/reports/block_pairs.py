"""What the plans of all joins show of their block pairs and of the result."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dask_simjoin.planning.checks import NEED
from dask_simjoin.planning.outputs import describe_tasks
from dask_simjoin.reports.facts import PicturedReport
from dask_simjoin.reports.svg import Matrix, matrix

COST_FACTS = (
    ("memory", "{_task_bytes:bytes} for the largest task"),
    ("budget", "{plan.budget.chunk:bytes} a {_unit} ({plan.budget.origin})"),
    ("", "{_output_limit:bytes} a partition, {plan.budget.result:bytes} the result"),
    ("tasks", "{_described_tasks}"),
)
"""Memory and tasks."""

RESULT_FACTS = (
    ("block pairs", "{block_pairs:,} of {_possible:,} possible"),
    ("skipped", "{_skipped:,}, {_skipped_because}"),
    ("pairs", "{_about}{pairs:,.0f}"),
    ("95 % interval", "{pairs_low:,.0f} to {pairs_high:,.0f}"),
    ("recall", "{_recall}"),
    ("sampled", "{plan.estimate.sampled:,} rows{_all_sampled}"),
    ("neighbours", "{_neighbors:,.3g} of a row, on average"),
    ("result", "{result_bytes:bytes}, {pair_bytes:.3g} bytes a pair"),
    ("partitions", "{partitions:,}, the largest {_largest_partition:bytes}"),
    *COST_FACTS,
)
"""Block pairs, the estimated result, and what it costs."""


class BlockReport(PicturedReport):
    """What reports of plans have in common, whatever is joined."""

    plan: Any
    spec: Any

    _drawn: ClassVar[str] = "pairs"
    """The column of `to_frame` that the picture shows."""

    _unit: ClassVar[str] = "chunk"
    """What the rows of a task are called."""

    _skipped_because: ClassVar[str] = "where no pair can be"

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
    def result_bytes(self) -> int:
        return round(self.pairs * self.pair_bytes)

    @property
    def pair_bytes(self) -> float:
        return self.plan.pair_bytes

    def to_frame(self) -> pd.DataFrame:
        """One row for each block pair."""
        raise NotImplementedError

    @property
    def _sides(self) -> tuple[int, int]:
        """Query chunks and data chunks."""
        raise NotImplementedError

    def _task_count(self) -> int:
        """Tasks of the join about, without those that read the source."""
        raise NotImplementedError

    def _largest_bytes(self) -> float:
        """Memory of the largest chunk."""
        raise NotImplementedError

    def _result_rows(self, pairs: float) -> float:
        """Rows of the result for unordered pairs."""
        return pairs

    @property
    def _two(self) -> bool:
        return len(self.plan.table_rows) > 1

    def _table_rows(self) -> str:
        return " and ".join(f"{rows:,}" for rows in self.plan.table_rows)

    def _possible(self) -> int:
        queries, data = self._sides
        return queries * data if self._two else queries * (queries + 1) // 2

    def _skipped(self) -> int:
        return self._possible() - self.block_pairs

    def _exact(self) -> bool:
        return self.plan.estimate.sampled >= self.plan.table_rows[0]

    def _about(self) -> str:
        return "" if self._exact() else "about "

    def _all_sampled(self) -> str:
        return ", which is all of them" if self._exact() else ""

    def _recall(self) -> str | None:
        return None

    def _neighbors(self) -> float | None:
        return None

    def _largest_partition(self) -> float:
        blocks = self.to_frame()
        sizes = np.repeat((blocks["bytes"] / blocks["partitions"]).to_numpy(), self.plan.slices)
        return float(sizes.max(initial=0.0))

    def _task_bytes(self) -> float:
        return NEED * self._largest_bytes()

    def _output_limit(self) -> float | None:
        return self.plan.budget.output

    def _described_tasks(self) -> str:
        return describe_tasks(self._task_count(), self.plan.budget.chunk)

    def _picture(self) -> Matrix:
        blocks = self.to_frame()
        query, data, drawn = (blocks[n].to_numpy() for n in ("query_chunk", "data_chunk", self._drawn))
        return matrix(query, data, drawn, self._sides, self._drawn)

    def _html_picture(self) -> str:
        return self.svg() if max(self._sides) > 1 else ""
