"""Reports of the plans of joins of sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dask_simjoin.reports.block_pairs import RESULT_FACTS, BlockReport
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

    _unit = "block"
    _skipped_because = "whose sizes differ too much"
    _facts = (
        ("rows", "{_table_rows}"),
        ("without a set", "{_missing:,}"),
        ("tokens", "about {tokens:,.0f}, {_tokens_per_row:.3g} of a row"),
        ("column", "{_column}"),
        ("tokenizer", "{_tokenizer}"),
        ("method", "{_method}"),
        ("blocks", "{blocks:,} by size ({_block_bytes:bytes})"),
        ("largest block", "{_largest_rows:,.0f} rows, {_largest_bytes:bytes}"),
        *RESULT_FACTS,
    )
    _exported = (
        "pair_bytes", "title", "rows", "tokens", "blocks", "block_pairs", "partitions", "pairs", "pairs_low",
        "pairs_high", "result_bytes",
    )  # fmt: skip

    @property
    def title(self) -> str:
        kind = "join of two tables" if self._two else "self-join"
        rule = self.spec.rule
        return f"Plan of a {kind} of sets, {rule.similarity} {rule.comparison} {self.spec.given}"

    @property
    def tokens(self) -> float:
        return self.plan.tokens

    @property
    def blocks(self) -> int:
        return self.plan.number

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
        first_data = len(plan.sides[0]) if self._two else 0
        lows = np.concatenate([side.bounds[0] for side in plan.sides])
        return pd.DataFrame({
            "query_chunk": i, "data_chunk": j - first_data, "query_rows": rows[i], "data_rows": rows[j],
            "query_sizes": np.maximum(lows[i], 0), "data_sizes": np.maximum(lows[j], 0), "pairs": found.pairs,
            "pairs_low": found.low, "pairs_high": found.high, "bytes": found.pairs * plan.pair_bytes,
            "partitions": plan.slices,
        })  # fmt: skip

    @property
    def _sides(self) -> tuple[int, int]:
        return len(self.plan.sides[0]), len(self.plan.sides[-1])

    def _missing(self) -> int | None:
        return self.plan.missing or None

    def _tokens_per_row(self) -> float:
        return self.tokens / max(self.rows, 1)

    def _column(self) -> str:
        return repr(self.spec.on[0])

    def _tokenizer(self) -> str | None:
        return None if self.spec.tokenizer is None else repr(self.spec.tokenizer)

    def _method(self) -> str:
        return self.spec.method if isinstance(self.spec.method, str) else repr(self.spec.method)

    def _block_bytes(self) -> float:
        return float(self.plan.block_bytes.sum())

    def _largest_rows(self) -> float:
        return float(self.plan.block_rows[self.plan.block_bytes.argmax()])

    def _largest_bytes(self) -> float:
        return float(self.plan.block_bytes.max())

    def _task_count(self) -> int:
        plan = self.plan
        sources = sum(map(len, plan.sources))
        sent = sum(len(own) * len(side) for own, side in zip(plan.sources, plan.sides, strict=True))
        moved = sent * self.spec.settings.cluster
        return 4 * sources + moved + self.blocks + self.partitions + int((plan.slices > 1).sum())
