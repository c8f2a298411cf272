"""What a plan of a join of sets says to people."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.planning.checks import NEED
from dask_simjoin.planning.outputs import describe_tasks
from dask_simjoin.reports.plan import BlockReport
from dask_simjoin.sets.plan import SetPlan
from dask_simjoin.sets.requests import SetSpec


@dataclass(frozen=True, repr=False, eq=False)
class SetPlanReport(BlockReport):
    """What a join of sets would run, and what it would give.  Blocks of two tables are numbered by table.

    Print it for a summary; a notebook shows a table and a picture of the block pairs.

    Attributes
    ----------
    plan : SetPlan
    spec : SetSpec
        The options that it was made for.
    rows : int
        Rows of all tables.
    tokens : float
        Tokens of all sets, each set's counted once: an estimate from a sample.
    blocks, block_pairs : int
        How many there are.
    partitions : int
        Partitions of the result.
    pairs, pairs_low, pairs_high : float
        Rows of the result: an estimate from a sample, and where the true number lies with a chance of 95 %.
    result_bytes : int
        Memory of the whole result, expected.
    """

    plan: SetPlan
    spec: SetSpec

    @property
    def rows(self) -> int:
        return self.plan.rows

    @property
    def tokens(self) -> float:
        return self.plan.tokens

    @property
    def blocks(self) -> int:
        return self.plan.number

    @property
    def block_pairs(self) -> int:
        return len(self.plan)

    @property
    def partitions(self) -> int:
        return max(self.plan.outputs, 1)

    @property
    def pairs(self) -> float:
        return self.plan.estimate.total

    @property
    def pairs_low(self) -> float:
        return self.plan.estimate.total_low

    @property
    def pairs_high(self) -> float:
        return self.plan.estimate.total_high

    @property
    def result_bytes(self) -> int:
        return round(self.pairs * self.pair_bytes)

    @property
    def pair_bytes(self) -> float:
        return self.plan.pair_bytes

    def to_frame(self) -> pd.DataFrame:
        """One row for each block pair.

        Returns
        -------
        pandas.DataFrame
            ``query_chunk``, ``data_chunk``: the blocks' numbers; ``query_rows``, ``data_rows``: rows expected
            in them; ``query_sizes``, ``data_sizes``: the least size of their sets; ``pairs``, ``pairs_low``,
            ``pairs_high``, ``bytes``: of the result, expected; ``partitions``: of the result.
        """
        plan = self.plan
        i, j = plan.blocks[:, 0], plan.blocks[:, 1]
        rows, found = plan.block_rows, plan.estimate
        lows = np.concatenate([side.bounds[0] for side in plan.sides])
        return pd.DataFrame({
            "query_chunk": i, "data_chunk": j - self._first_data, "query_rows": rows[i], "data_rows": rows[j],
            "query_sizes": np.maximum(lows[i], 0), "data_sizes": np.maximum(lows[j], 0), "pairs": found.pairs,
            "pairs_low": found.low, "pairs_high": found.high, "bytes": found.pairs * plan.pair_bytes,
            "partitions": plan.slices,
        })  # fmt: skip

    @property
    def _first_data(self) -> int:
        return len(self.plan.sides[0]) if len(self.plan.sides) > 1 else 0

    @property
    def _sides(self) -> tuple[int, int]:
        """Query blocks and data blocks."""
        return len(self.plan.sides[0]), len(self.plan.sides[-1])

    def _title(self) -> str:
        kind = "join of two tables" if len(self.plan.sides) > 1 else "self-join"
        rule = self.spec.rule
        return f"Plan of a {kind} of sets, {rule.similarity} {rule.comparison} {self.spec.given}"

    def _facts(self) -> list[tuple[str, str]]:
        """Names and texts of everything that the report tells."""
        plan, budget, found = self.plan, self.plan.budget, self.plan.estimate
        rows, held = plan.block_rows, plan.block_bytes
        largest = int(held.argmax())
        one, other = self._sides
        possible = one * (one + 1) // 2 if len(plan.sides) == 1 else one * other
        exact = found.sampled >= sum(plan.sources[0])
        blocks = self.to_frame()
        sizes = blocks["bytes"] / blocks["partitions"]
        method = self.spec.method if isinstance(self.spec.method, str) else repr(self.spec.method)
        return [
            ("rows", " and ".join(f"{sum(own):,}" for own in plan.sources)),
            *([("without a set", f"{plan.missing:,}")] if plan.missing else []),
            ("tokens", f"about {self.tokens:,.0f}, {self.tokens / max(self.rows, 1):.3g} of a row"),
            ("column", repr(self.spec.on[0])),
            *([] if self.spec.tokenizer is None else [("tokenizer", repr(self.spec.tokenizer))]),
            ("method", method),
            ("blocks", f"{self.blocks:,} by size ({format_bytes(round(held.sum()))})"),
            ("largest block", f"{rows[largest]:,.0f} rows, {format_bytes(round(held[largest]))}"),
            ("block pairs", f"{self.block_pairs:,} of {possible:,} possible"),
            ("skipped", f"{possible - self.block_pairs:,}, whose sizes differ too much"),
            ("pairs", f"{self.pairs:,.0f}" if exact else f"about {self.pairs:,.0f}"),
            ("95 % interval", f"{self.pairs_low:,.0f} to {self.pairs_high:,.0f}"),
            ("sampled", f"{found.sampled:,} rows{', which is all of them' * exact}"),
            ("result", f"{format_bytes(self.result_bytes)}, {plan.pair_bytes:.3g} bytes a pair"),
            ("partitions", f"{self.partitions:,}, the largest {format_bytes(round(sizes.max()))}"),
            ("memory", f"{format_bytes(round(NEED * held[largest]))} for the largest task"),
            ("budget", f"{format_bytes(budget.chunk)} a block ({budget.origin})"),
            ("", f"{format_bytes(budget.output)} a partition, {format_bytes(budget.result)} the result"),
            ("tasks", describe_tasks(self._tasks(), budget.chunk)),
        ]

    def _tasks(self) -> int:
        """Tasks of the join about."""
        plan = self.plan
        sources = sum(map(len, plan.sources))
        sent = sum(len(own) * len(side) for own, side in zip(plan.sources, plan.sides, strict=True))
        moved = sent * self.spec.settings.cluster
        return 4 * sources + moved + self.blocks + self.partitions + int((plan.slices > 1).sum())
