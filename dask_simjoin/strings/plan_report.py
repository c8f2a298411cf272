"""Reports of the plans of edit joins."""

from __future__ import annotations

from dataclasses import dataclass

from dask_simjoin.reports.facts import MEMORY, RESULT_FACTS, ROWS, size, without
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.strings.requests import EditSpec


@dataclass(frozen=True, repr=False, eq=False)
class EditPlanReport(SetPlanReport):
    """The plan of an edit join, and its estimated result.  Blocks of two tables are numbered by table.

    Print it for a summary; a notebook shows a table and a picture of the block pairs.

    Attributes
    ----------
    plan : SetPlan
    spec : EditSpec
        The options of the join.
    rows : int
        Rows of all tables.
    characters : float
        Code points of all strings; estimated from a sample.
    blocks, block_pairs : int
        Number of blocks, and of block pairs.
    partitions : int
        Partitions of the result.
    pairs, pairs_low, pairs_high : float
        Rows of the result, estimated from a sample, with bounds of 95 % confidence.
    result_bytes : int
        Expected memory of the whole result.
    """

    spec: EditSpec  # type: ignore[assignment]

    _skipped_because = "whose lengths differ too much"
    _facts = (
        *ROWS,
        ("without a text", lambda r: f"{r.plan.missing:,}" if r.plan.missing else None),
        ("characters", lambda r: f"about {r.characters:,.0f}, {r.characters / max(r.rows, 1):.3g} of a row"),
        ("column", lambda r: repr(r.spec.on[0])),
        ("within", lambda r: ", ".join(map(str, r.spec.by)) or None),
        ("blocks", lambda r: f"{r.blocks:,} by length ({size(r.plan.block_bytes.sum())})"),
        ("largest block", lambda r: f"{r._largest_rows:,.0f} rows, {size(r._largest_bytes)}"),
        *without(RESULT_FACTS, "recall", "neighbors"),
    )
    _exported = (
        "pair_bytes", "title", "rows", "characters", "blocks", "block_pairs", "partitions", "pairs",
        "pairs_low", "pairs_high", "counted", "result_bytes", *MEMORY,
    )  # fmt: skip

    @property
    def title(self) -> str:
        kind = "join of two tables" if self._two else "self-join"
        swaps = ", with transpositions" if self.spec.rule.transpositions else ""
        return f"Plan of an edit {kind}, {self.spec.given}{swaps}"

    @property
    def characters(self) -> float:
        """Code points of all strings."""
        return max(self.plan.tokens - self.spec.rule.tail * (self.rows - self.plan.missing), 0.0)
