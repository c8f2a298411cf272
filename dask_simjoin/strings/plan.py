"""Plan and report edit joins in the same way as joins of sets. Blocks have strings of similar lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.reports.facts import MEMORY, RESULT_FACTS, ROWS, size, without
from dask_simjoin.sets.plan import (
    Gathered,
    SampledSets,
    SetPlan,
    SetSummary,
    concatenated,
    make_set_plan,
    summarised,
)
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.sets.token_ids import EncodedSets
from dask_simjoin.strings.codes import POINTS, EditBlockPair, checked_presence, read_sample
from dask_simjoin.strings.requests import EditSpec

ENTRY_BYTES = 32
"""Bytes per segment in the index, including its share of the hash buckets."""

INDEX_BYTES = 48
"""Other bytes per string during a search: its signatures, a stamp, and its share of a batch of pairs."""

CODE_BYTES = 5
"""Bytes per code point: one in a block if the text is Latin, and four during a search."""

MIN_CODES = 1 << 16
"""A block has at least this many code points, unless memory requires smaller blocks.

The minimum is lower than for sets, because a code point takes longer than a token.
"""

MAX_ENTRIES = 64
"""Assume at most this many segments per string, because most longer strings are not indexed."""


def summarise_texts(frame: Frame, number: int, spec: EditSpec, with_ids: bool, partitions: int) -> SetSummary:
    """Summarize a partition: see `dask_simjoin.sets.plan.summarised`."""
    return summarised(frame, number, spec, with_ids, partitions, checked_presence, read_sample)


def gather_texts(tables: list[list[SetSummary]]) -> Gathered:
    found = []
    for summaries in tables:
        points, offsets, codes = concatenated(summaries)
        found.append(SampledSets(points, EncodedSets(offsets=offsets, codes=codes.astype(np.int32))))
    return found, POINTS


def make_edit_plan(
    tables: list[list[SetSummary]], spec: EditSpec, output: OutputSpec, resources: Resources
) -> SetPlan:
    """Plan a join from the summaries of its tables; raise an error if blocks or the result do not fit."""
    sizes = np.concatenate([s.sample.x[:, 0] for some in tables for s in some])
    mean = int(np.maximum(sizes - spec.rule.tail, 0).mean()) if len(sizes) else 0
    index = INDEX_BYTES + ENTRY_BYTES * min(spec.rule.limit(mean) + 1, MAX_ENTRIES)
    return make_set_plan(
        tables, spec, output, resources, gather_texts, EditBlockPair, index, MIN_CODES, CODE_BYTES
    )


@dataclass(frozen=True, repr=False, eq=False)
class EditPlanReport(SetPlanReport):
    """The plan of an edit join, and its estimated result: see `SetPlanReport`.

    Attributes
    ----------
    spec : EditSpec
        The options of the join.
    characters : float
        Code points of all strings; estimated from a sample.
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
        """Estimated number of code points of all strings."""
        return max(self.plan.tokens - self.spec.rule.tail * (self.rows - self.plan.missing), 0.0)
