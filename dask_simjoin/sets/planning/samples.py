"""The samples of all partitions together, and the pairs of rows that they give."""

from __future__ import annotations

from typing import cast

import numpy as np

from dask_simjoin.engine.base import HOME
from dask_simjoin.planning.statistics.sample_pairs import Sampled, SamplePoints, gather_samples
from dask_simjoin.sets.chunks import SetChunk
from dask_simjoin.sets.coded import of_integers
from dask_simjoin.sets.encode import (
    CodedSets,
    collapse,
    each_once,
    hashes,
    merge,
    ranked,
    ranks,
    ranks_of,
    some_sets,
)
from dask_simjoin.sets.found import row_pairs
from dask_simjoin.sets.meeting import SetMeeting
from dask_simjoin.sets.methods import AUTO
from dask_simjoin.sets.pairs import count_block_pairs
from dask_simjoin.sets.planning.summary import SetSummary
from dask_simjoin.sets.spec import SetSpec

MAX_PAIRS = 1 << 21
"""Pairs of the samples that are looked at: thinner samples tell enough of a join that gives more."""

FEWEST = 2048
"""Rows to which a sample is thinned at most."""


class SampledSets:
    """The samples of a table's partitions, one after the other.

    Attributes
    ----------
    points : SamplePoints
        Whose coordinate is the size of a row's set, 0 of empty ones and -1 of none.
    sets : CodedSets
        Their tokens, as ranks among those of all samples.
    """

    def __init__(self, points: SamplePoints, sets: CodedSets) -> None:
        self.points, self.sets = points, sets

    @property
    def sizes(self) -> np.ndarray:
        """The sizes of sets (rows,), int64."""
        return self.points.x[:, 0].astype(np.int64)

    @property
    def hashes(self) -> np.ndarray:
        """Hashes of sets (rows,), uint64: equal ones alike."""
        return hashes(self.sets)

    def take(self, places: np.ndarray) -> SampledSets:
        """Take some of the rows, standing for all."""
        return SampledSets(self.points.take(places), some_sets(self.sets, places))


def gather_sets(tables: list[list[SetSummary]]) -> tuple[list[SampledSets], int]:
    """Put the samples of each table together, tokens in one order; and how many tokens there are."""
    coded = []
    for summaries in tables:
        sizes = [np.diff(s.sample.offsets) for s in summaries]
        ends = np.cumsum(np.concatenate([[0], *sizes]))
        flat = np.concatenate([np.zeros(0, np.int64), *(s.sample.tokens for s in summaries)])
        coded.append(each_once(of_integers(ends.astype(np.int64), flat)))
    merged = merge(*(vocabulary for _, vocabulary in coded))
    whole = ranks(merged["vocabulary"])
    found = []
    for n, (summaries, (sets, _)) in enumerate(zip(tables, coded, strict=True)):
        offsets = np.cumsum([0, *(s.source_rows for s in summaries)])
        points = gather_samples([s.sample.drawn for s in summaries], offsets, 1)
        found.append(SampledSets(points, ranked(sets, ranks_of(whole, merged["codes"], n))))
    return found, len(whole)


def sampled_pairs(
    tables: list[SampledSets], universe: int, spec: SetSpec
) -> tuple[Sampled, list[SampledSets]]:
    """Join samples of two tables, or of one with itself; fewer rows where they give too many pairs."""
    meeting = _meeting(tables, universe, spec)
    expected = count_block_pairs(meeting)
    if expected > MAX_PAIRS:
        part = (MAX_PAIRS / expected) ** 0.5
        random = np.random.default_rng(len(tables[0].points.x))
        tables = [_thinned(table, part, random) for table in tables]
        meeting = _meeting(tables, universe, spec)
    left, right = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows in row_pairs(meeting, False):
        left.append(meeting.q["order"][rows.left])
        right.append(meeting.d["order"][rows.right])
    first, second = tables[0].points, tables[-1].points
    return Sampled(first, second, np.concatenate(left), np.concatenate(right), 1.0), tables


def _thinned(table: SampledSets, part: float, random: np.random.Generator) -> SampledSets:
    rows = len(table.points.x)
    fewer = min(rows, max(FEWEST, int(rows * part)))
    return table.take(np.sort(random.choice(rows, fewer, replace=False)))


def _meeting(tables: list[SampledSets], universe: int, spec: SetSpec) -> SetMeeting:
    chunks = []
    for table in tables:
        made = collapse(table.sets, universe, table.sizes < 0)
        chunks.append(cast(SetChunk, {**made["block"], "order": made["order"], "firsts": made["firsts"]}))
    return SetMeeting(chunks[0], chunks[-1], len(chunks) == 1, spec, AUTO, library=HOME)
