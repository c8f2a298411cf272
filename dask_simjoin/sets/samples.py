"""Samples of the sets of each partition, and the pairs they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from dask_simjoin.catalog.libraries import HOME
from dask_simjoin.engine.ids import id_bytes, row_ids, value_bytes
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.statistics.partition import RIGHT
from dask_simjoin.planning.statistics.sample import Sample, sample_size
from dask_simjoin.planning.statistics.sample_pairs import Sampled, SamplePoints, gather_samples
from dask_simjoin.planning.statistics.unique_ids import IdSummary, summarise_ids
from dask_simjoin.sets.chunks import SetBlockPair, SetChunk, checked_presence, read_sets
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
from dask_simjoin.sets.methods import AUTO
from dask_simjoin.sets.pairs import count_block_pairs
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sets.types import of_integers, same_numbers

NUMBERS = 16
"""Numbers of a row of the sample, about: what its size goes by."""


@dataclass(frozen=True, eq=False)
class SetSample:
    """Some rows of a partition, drawn without replacement, and their sets.

    Attributes
    ----------
    drawn : Sample
        Which rows; their coordinate is the size of their set, 0 of empty ones and -1 of none.
    offsets : array (rows + 1,), int64
        Where each row's tokens begin and end.
    tokens : array (tokens,), int64
        Integers, or strings' hashes: alike in all partitions.
    """

    drawn: Sample
    offsets: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True, eq=False)
class SetSummary:
    """See the module's text.

    Attributes
    ----------
    source_rows, missing : int
        Rows of the partition, and how many of them have no set.
    ids : IdSummary or None
        None where rows need no names.
    id_bytes, kept_bytes : float
        Memory of one row's id, and of its columns that the result keeps.
    sample : SetSample
    """

    source_rows: int
    missing: int
    ids: IdSummary | None
    id_bytes: float
    kept_bytes: float
    sample: SetSample

    @property
    def nbytes(self) -> int:
        """Memory of its sample, which is most of it."""
        return self.sample.tokens.nbytes + 3 * self.sample.offsets.nbytes


def summarise_sets(frame: Frame, number: int, spec: SetSpec, with_ids: bool, partitions: int) -> SetSummary:
    """Summarize a partition of a table with this number of partitions.

    Numbers of a right table begin with `RIGHT`, so that its sample differs from the left one's.
    `with_ids`: the result names rows, so their ids must be unique.
    """
    seed = RIGHT if number >= RIGHT else 0
    number -= seed
    rows = len(frame)
    where = number if partitions > 1 else None
    present = checked_presence(frame, spec, where)
    names = row_ids(frame, spec.id, spec.id_dtype) if with_ids else None
    size = sample_size(rows, NUMBERS, partitions)
    places = np.arange(rows)
    if size < rows:
        # the number too: of partitions that are alike, other rows must be drawn in each
        random = np.random.default_rng((rows, number, seed))
        places = np.sort(random.choice(rows, size, replace=False, shuffle=False))
    some = frame[list(spec.on)] if size == rows else frame[list(spec.on)].iloc[places]
    read = read_sets(some, spec, where, named=False)
    sets: CodedSets = read["sets"]
    sizes = np.diff(sets["offsets"]).astype(np.float64)
    if read["missing"] is not None:
        sizes[read["missing"]] = -1
    return SetSummary(
        rows,
        int((~present).sum()),
        None if names is None else summarise_ids(names, spec.id),
        8.0 if names is None else id_bytes(names),
        sum(value_bytes(frame[name]) for name in spec.keep),
        SetSample(
            Sample(rows, places, sizes[:, None]),
            sets["offsets"],
            same_numbers(read["vocabulary"]["tokens"])[sets["codes"]],
        ),
    )


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
    block_pair = _block_pair(tables, universe, spec)
    expected = count_block_pairs(block_pair)
    if expected > MAX_PAIRS:
        part = (MAX_PAIRS / expected) ** 0.5
        random = np.random.default_rng(len(tables[0].points.x))
        tables = [_thinned(table, part, random) for table in tables]
        block_pair = _block_pair(tables, universe, spec)
    left, right = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows in row_pairs(block_pair, False):
        left.append(block_pair.q["order"][rows.left])
        right.append(block_pair.d["order"][rows.right])
    first, second = tables[0].points, tables[-1].points
    return Sampled(first, second, np.concatenate(left), np.concatenate(right), 1.0), tables


def _thinned(table: SampledSets, part: float, random: np.random.Generator) -> SampledSets:
    rows = len(table.points.x)
    fewer = min(rows, max(FEWEST, int(rows * part)))
    return table.take(np.sort(random.choice(rows, fewer, replace=False)))


def _block_pair(tables: list[SampledSets], universe: int, spec: SetSpec) -> SetBlockPair:
    chunks = []
    for table in tables:
        made = collapse(table.sets, universe, table.sizes < 0)
        chunks.append(cast(SetChunk, {**made["block"], "order": made["order"], "firsts": made["firsts"]}))
    return SetBlockPair(chunks[0], chunks[-1], len(chunks) == 1, spec, AUTO, library=HOME)
