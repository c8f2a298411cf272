"""Read strings from partitions, gather them into blocks of similar lengths, and plan
the pairs of blocks.

A block of strings is a block of sets whose tokens are code points, in the order of the
text. After each string comes a tail: the code 0, or four codes that identify its group
(see `by=`). So an empty string has a size above 0, and only a missing string has size
0. Strings that are equal and in the same group are stored once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.base import edit_joiner, segment_kernels
from dask_simjoin.errors import ListError, TextError
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.left_out import left_out_in_words
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.reports.facts import MEMORY, RESULT_FACTS, ROWS, size, without
from dask_simjoin.sets.chunks import (
    ReadSetRows,
    SetBlockPair,
    SetChunk,
    SetParcel,
    gathered,
    refused,
    rows_read,
    set_chunk,
)
from dask_simjoin.sets.columns import texts_of
from dask_simjoin.sets.methods import SetJoiner
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
from dask_simjoin.sets.token_ids import EncodedSets, hashes
from dask_simjoin.sets.tokens import code_points
from dask_simjoin.sizes import ENTRY_BYTES, MIN_PART, ROW_BYTES
from dask_simjoin.strings.requests import EditSpec
from dask_simjoin.tasks.counts import hash_columns, mixed_bits


class EditBlockPair(SetBlockPair):
    """Two chunks of strings to compare, with the options of the join."""

    @property
    def joiner(self) -> SetJoiner:
        joiner: SetJoiner = edit_joiner()
        return joiner


def checked_presence(frame: Frame, spec: EditSpec, number: int | None) -> np.ndarray:
    """Return a mask (rows,) of the rows that can match. Raise `TextError` for a value
    that is not a text.
    """
    return _present_texts(frame, spec, number)[0]


def _present_texts(
    frame: Frame, spec: EditSpec, number: int | None
) -> tuple[np.ndarray, Array, Array]:
    """Return a mask of the rows that can match. Also return where each of their texts
    begins, and the code points of all texts.
    """
    try:
        present, texts = texts_of(frame[spec.on[0]], hint="")
    except ListError as error:
        raise TextError(refused(frame, spec, number, error)) from None
    ends, points = code_points(texts, 0, None)
    if spec.code is None:
        return present, ends, points
    # a row with a missing value in a column of by= matches no row
    has_group = ~np.isnan(frame[spec.code].to_numpy())
    both = present & has_group
    if not has_group[present].all():
        some = has_group[present]
        points = points[np.repeat(some, np.diff(ends))]
        ends = np.concatenate([[0], np.cumsum(np.diff(ends)[some])])
    return both, ends, points


def read_texts(
    frame: Frame, spec: EditSpec, number: int | None = None, with_ids: bool = True
) -> ReadSetRows:
    """Read the strings and the ids of the rows in a partition.

    `number`: number of the partition, which messages name; None for a plain frame.
    """
    present, ends, points = _present_texts(frame, spec, number)
    tails = np.zeros((len(ends) - 1, spec.rule.tail), np.int32)
    if spec.code is not None:
        # rows of one group have the same float in this column, so its bits identify the
        # group
        groups = frame[spec.code].to_numpy()[present].astype(np.float64).view(np.uint64)
        for k in range(spec.rule.tail):
            tails[:, k] = (groups >> np.uint64(16 * k)) & np.uint64(0xFFFF)
    offsets, codes = (
        np.empty(len(ends), np.int64),
        np.empty(len(points) + tails.size, np.int32),
    )
    points = np.require(points, np.uint32, "W")
    segment_kernels().with_tails(
        np.ascontiguousarray(ends, np.int64), points, tails, offsets, codes
    )
    return rows_read(
        frame, spec, EncodedSets(offsets=offsets, codes=codes), present, with_ids
    )


def read_sample(
    frame: Frame, spec: EditSpec, number: int | None
) -> tuple[ReadSetRows, np.ndarray]:
    """Read the strings of a sample. Also return the codes of all strings."""
    read = read_texts(frame, spec, number, with_ids=False)
    return read, read["sets"]["codes"]


def hash_rows(frame: Frame, spec: EditSpec) -> Array:
    """Hash each row by its string and its kept columns (rows,), uint64. Equal rows have
    equal hashes.
    """
    read = read_texts(frame, spec, with_ids=False)
    found = hashes(read["sets"])
    if read["missing"] is not None:
        found[read["missing"]] = 1
    return mixed_bits(found, hash_columns(frame, (spec.keep,))) if spec.keep else found


def gather_block(
    example: Frame, spec: EditSpec, *parcels: SetParcel | None
) -> SetChunk:
    """Concatenate the parcels that a block receives.

    The codes get the smallest dtype that fits, so that fewer bytes are sent and spilled
    to disk.
    """
    bound = [codes_bound(parcel["sets"]) for parcel in parcels if parcel is not None]
    chunk = gathered(
        max(bound, default=1), example, lambda frame: read_texts(frame, spec), parcels
    )
    chunk["tokens"] = chunk["tokens"].astype(np.min_scalar_type(chunk["universe"] - 1))
    return chunk


def codes_bound(sets: EncodedSets) -> int:
    """Return a number above all codes in strings. The smaller it is, the faster rows
    are sorted.
    """
    return int(sets["codes"].max(initial=0)) + 1


def chunks_of(read: Sequence[ReadSetRows]) -> list[SetChunk]:
    return [
        set_chunk(
            one["sets"],
            codes_bound(one["sets"]),
            one["missing"],
            one["ids"],
            one["example"],
            one.get("kept"),
        )
        for one in read
    ]


def summarise_texts(
    frame: Frame, number: int, spec: EditSpec, with_ids: bool, partitions: int
) -> SetSummary:
    """Summarize one partition: see `dask_simjoin.sets.plan.summarised`."""
    return summarised(
        frame, number, spec, with_ids, partitions, checked_presence, read_sample
    )


def gather_texts(tables: list[list[SetSummary]]) -> Gathered:
    found = []
    for summaries in tables:
        points, offsets, codes = concatenated(summaries)
        found.append(
            SampledSets(
                points, EncodedSets(offsets=offsets, codes=codes.astype(np.int32))
            )
        )
    # larger than all code points, and than all codes in tails
    return found, sys.maxunicode + 1


def make_edit_plan(
    tables: list[list[SetSummary]],
    spec: EditSpec,
    output: OutputSpec,
    limits: Limits,
) -> SetPlan:
    """Plan a join from the summaries of its tables. Raise an error if blocks or the
    result do not fit in memory.
    """
    sizes = np.concatenate([s.sample.x[:, 0] for some in tables for s in some])
    mean = int(np.maximum(sizes - spec.rule.tail, 0).mean()) if len(sizes) else 0
    # most strings with more segments are not indexed
    index = ROW_BYTES + 2 * ENTRY_BYTES * min(spec.rule.limit(mean) + 1, 64)
    # one byte per code point in a block, if the text is Latin, and four during a search
    return make_set_plan(
        tables,
        spec,
        output,
        limits,
        gather_texts,
        EditBlockPair,
        index,
        MIN_PART,
        5,
    )


@dataclass(frozen=True, repr=False, eq=False)
class EditPlanReport(SetPlanReport):
    """The plan of a join by edit distance, and its estimated result: see
    `SetPlanReport`.

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
        ("left out", lambda r: left_out_in_words(r.plan.tables.left_out)),
        (
            "characters",
            lambda r: (
                f"about {r.characters:,.0f}, {r.characters / max(r.rows, 1):.3g} per "
                "row"
            ),
        ),
        ("column", lambda r: repr(r.spec.on[0])),
        ("by", lambda r: ", ".join(map(str, r.spec.by)) or None),
        (
            "blocks",
            lambda r: f"{r.blocks:,} by length ({size(r.plan.block_bytes.sum())})",
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
        "characters",
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
        swaps = ", with transpositions" if self.spec.rule.transpositions else ""
        return f"Plan of a {kind} by edit distance, {self.spec.given}{swaps}"

    @property
    def characters(self) -> float:
        """The estimated number of code points in all strings."""
        return max(
            self.plan.tokens - self.spec.rule.tail * (self.rows - self.plan.missing),
            0.0,
        )
