"""Reports of the plans of joins of sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dask_simjoin.planning.left_out import left_out_in_words
from dask_simjoin.reports.facts import (
    MEMORY,
    RESULT_FACTS,
    ROWS,
    BlockReport,
    size,
    without,
)
from dask_simjoin.sets.plan import SetPlan
from dask_simjoin.sets.requests import SetSpec


@dataclass(frozen=True, repr=False, eq=False)
class SetPlanReport(BlockReport):
    """The plan of a join of sets, and its estimated result.  The blocks of each table
    are numbered from 0.

    Print it for a summary; a notebook shows a table and a picture of the block pairs.

    Attributes
    ----------
    plan : SetPlan
    spec : SetSpec
        The options of the join.
    rows : int
        Rows of all tables.
    tokens : float
        Tokens of all sets, each counted once per set; estimated from a sample.
    blocks, block_pairs : int
        Number of blocks, and of block pairs.
    partitions : int
        Partitions of the result.
    rows_left_out : int
        Rows without a set, which match no row; 0 with `allow_missing`.
    left_out : list of dict
        These rows, with their number for each table and column.
    pairs, pairs_low, pairs_high : float
        Rows of the result, estimated from a sample, with bounds of 95 % confidence. If
        they are `counted`, all three are the exact number.
    counted : bool
        Whether the sample has all rows, so that the pairs are counted.
    result_bytes : int
        Expected memory of the whole result.
    """

    plan: SetPlan
    spec: SetSpec

    _unit = "block"
    _skipped_because = "whose sizes differ too much"
    _facts = (
        *ROWS,
        (
            "without a set",
            lambda r: (
                f"{r.plan.missing:,}"
                if r.plan.missing and not r.rows_left_out
                else None
            ),
        ),
        ("left out", lambda r: left_out_in_words(r.plan.tables.left_out)),
        (
            "tokens",
            lambda r: f"about {r.tokens:,.0f}, {r.tokens / max(r.rows, 1):.3g} per row",
        ),
        ("column", lambda r: repr(r.spec.on[0])),
        (
            "tokenizer",
            lambda r: None if r.spec.tokenizer is None else repr(r.spec.tokenizer),
        ),
        (
            "method",
            lambda r: (
                r.spec.method if isinstance(r.spec.method, str) else repr(r.spec.method)
            ),
        ),
        (
            "blocks",
            lambda r: f"{r.blocks:,} by size ({size(r.plan.block_bytes.sum())})",
        ),
        (
            "largest block",
            lambda r: f"{r._largest_rows:,.0f} rows, {size(r._largest_bytes)}",
        ),
        *without(RESULT_FACTS, "recall", "neighbors"),
    )
    _exported = (
        "pair_bytes",
        "title",
        "rows",
        "rows_left_out",
        "left_out",
        "tokens",
        "blocks",
        "block_pairs",
        "partitions",
        "pairs",
        "pairs_low",
        "pairs_high",
        "counted",
        "result_bytes",
        *MEMORY,
    )

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
        """Return one row for each block pair.

        Returns
        -------
        pandas.DataFrame
            The numbers of the blocks are ``query_chunk`` and ``data_chunk``.  Their
            expected rows are ``query_rows`` and ``data_rows``; the smallest sizes of
            their sets ``query_sizes`` and ``data_sizes``.  The expected result has
            ``pairs``, ``pairs_low``, ``pairs_high`` and ``bytes``, in ``partitions``.
        """
        plan = self.plan
        i, j = plan.work.blocks[:, 0], plan.work.blocks[:, 1]
        rows, found = plan.block_rows, plan.result.estimate
        first_data = len(plan.sides[0]) if self._two else 0
        lows = np.concatenate([side.bounds[0] for side in plan.sides])
        return pd.DataFrame(
            {
                "query_chunk": i,
                "data_chunk": j - first_data,
                "query_rows": rows[i],
                "data_rows": rows[j],
                "query_sizes": np.maximum(lows[i], 0),
                "data_sizes": np.maximum(lows[j], 0),
                "pairs": found.pairs,
                "pairs_low": found.low,
                "pairs_high": found.high,
                "bytes": found.pairs * plan.result.pair_bytes,
                "partitions": plan.work.slices,
            }
        )

    @property
    def _sides(self) -> tuple[int, int]:
        return len(self.plan.sides[0]), len(self.plan.sides[-1])

    @property
    def _largest_rows(self) -> float:
        return float(self.plan.block_rows[self.plan.block_bytes.argmax()])

    @property
    def _largest_bytes(self) -> float:
        return float(self.plan.block_bytes.max())

    @property
    def _tasks(self) -> int:
        plan = self.plan
        sources = sum(map(len, plan.tables.sources))
        sent = sum(
            len(own) * len(side)
            for own, side in zip(plan.tables.sources, plan.sides, strict=True)
        )
        moved = sent * self.spec.settings.cluster
        return (
            4 * sources
            + moved
            + self.blocks
            + self.partitions
            + int((plan.work.slices > 1).sum())
        )
