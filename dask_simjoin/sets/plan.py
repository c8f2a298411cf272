"""Plan a join of sets: blocks by set size, block pairs, and the size of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from dask.tokenize import normalize_token

from dask_simjoin.catalog import HOME
from dask_simjoin.engine.ids import bytes_of_columns, id_bytes, row_ids
from dask_simjoin.engine.native import native
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import Cause
from dask_simjoin.planning.checks import (
    check_blocks,
    check_chunks,
    check_matching,
    check_outputs,
    check_result,
    check_rows,
)
from dask_simjoin.planning.estimate import Estimate, block_of, estimate
from dask_simjoin.planning.left_out import LeftOut, LeftOutPart, packed
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import OutputSpec, whole_slices
from dask_simjoin.planning.partition import RIGHT
from dask_simjoin.planning.plan import Memory, Result, Tables
from dask_simjoin.planning.resources import Disk, bytes_needed
from dask_simjoin.planning.sample import Sample, sample_size
from dask_simjoin.planning.sample_pairs import Sampled, SamplePoints, gather_samples
from dask_simjoin.planning.size_blocks import (
    SizeBlocks,
    candidate_pairs,
    compared_blocks,
    count_compared_blocks,
    heavy_first,
    size_blocks,
)
from dask_simjoin.planning.unique_ids import IdSummary, summarise_ids
from dask_simjoin.planning.work import PairWork
from dask_simjoin.request.spec import RowSpec
from dask_simjoin.sets import token_ids
from dask_simjoin.sets.chunks import (
    ReadSetRows,
    SetBlockPair,
    SetChunk,
    checked_presence,
    named_sides,
    read_sets,
    rows_without_a_value,
)
from dask_simjoin.sets.columns import longest_row
from dask_simjoin.sets.methods import AUTO, SetMethod
from dask_simjoin.sets.pairs import all_matches, count_block_pairs, row_pairs
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sets.token_ids import EncodedSets
from dask_simjoin.sizes import BATCH, MIN_PART, NUMBER_BYTES, ROW_BYTES


@dataclass(frozen=True, eq=False)
class SetSummary:
    """Statistics of one partition, for planning the join."""

    source_rows: int
    missing: int
    """Number of rows in the partition, and number of rows without a set."""
    ids: IdSummary | None  # None: ids are not needed
    id_bytes: float
    bytes_of_columns: float
    """Mean bytes of a row's id, and of a row's kept columns."""
    # rows drawn without replacement; their only coordinate is the size of the set; -1:
    # no set
    sample: Sample
    offsets: np.ndarray  # bounds of each sampled row's tokens (rows + 1,), int64
    tokens: np.ndarray
    """(tokens,), int64: integer tokens, or hashes of string tokens. Equal tokens give
    equal numbers in all partitions.
    """
    longest: int  # size of the largest row; it may be missing in the sample
    without: bytes  # mask of the rows without a set: see `planning.left_out.packed`

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes + 3 * self.offsets.nbytes


def summarise_sets(
    frame: Frame, number: int, spec: SetSpec, with_ids: bool, partitions: int
) -> SetSummary:
    """Summarize a partition of sets: see `summarised`."""
    return summarised(
        frame, number, spec, with_ids, partitions, checked_presence, _read_sample
    )


def _read_sample(
    frame: Frame, spec: SetSpec, number: int | None
) -> tuple[ReadSetRows, np.ndarray]:
    read = read_sets(frame, spec, number, with_ids=False)
    return read, token_ids.token_hashes(read["vocabulary"]["tokens"])[
        read["sets"]["codes"]
    ]


def summarised(
    frame: Frame,
    number: int,
    spec: RowSpec,
    with_ids: bool,
    partitions: int,
    presence: Callable[..., np.ndarray],
    read: Callable[..., tuple[ReadSetRows, np.ndarray]],
) -> SetSummary:
    """Summarize partition `number` of a table that has `partitions` partitions.

    The partitions of a right table have numbers from `RIGHT` on, so that both tables
    get different samples. `presence`: returns a mask of the rows that have a value.
    `read`: returns the rows of a frame, and a number for each token. Equal tokens have
    equal numbers in all partitions.
    """
    seed = RIGHT if number >= RIGHT else 0
    number -= seed
    rows = len(frame)
    where = number if partitions > 1 else None
    present = presence(frame, spec, where)
    names = row_ids(frame, spec.id, spec.id_dtype) if with_ids else None
    # rows are assumed to have 16 tokens
    size = sample_size(rows, 16, partitions)
    places = np.arange(rows)
    if size < rows:
        # the seed includes the number, because otherwise partitions of equal size would
        # get equal samples
        random = np.random.default_rng((rows, number, seed))
        places = np.sort(random.choice(rows, size, replace=False, shuffle=False))
    found, tokens = read(
        frame if size == rows else native(frame).iloc[places], spec, where
    )
    offsets = found["sets"]["offsets"]
    sizes = np.diff(offsets).astype(np.float64)
    if found["missing"] is not None:
        sizes[found["missing"]] = -1
    longest = int(sizes.max(initial=0))
    if size < rows:
        row, length = longest_row(frame[spec.on[0]])
        # tokens of a text are not known before it is split, and short rows hardly matter
        if length > max(longest, MIN_PART):
            largest, _ = read(frame.iloc[row : row + 1], spec, where)
            longest = max(longest, int(np.diff(largest["sets"]["offsets"]).max()))
    return SetSummary(
        rows,
        int((~present).sum()),
        None if names is None else summarise_ids(names, spec.id, frame.index),
        8.0 if names is None else id_bytes(names),
        bytes_of_columns(frame, spec.keep),
        Sample(rows, places, sizes[:, None]),
        offsets,
        tokens,
        longest,
        packed(~present),
    )


class SampledSets(NamedTuple):
    """The samples of all partitions of a table, concatenated."""

    # their only coordinate is the size of the set: 0 if it is empty, -1 without a set
    points: SamplePoints
    # the sets of these rows; tokens are ranks among the tokens of all samples
    sets: EncodedSets

    @property
    def sizes(self) -> np.ndarray:
        return self.points.x[:, 0].astype(np.int64)

    @property
    def hashes(self) -> np.ndarray:
        """(rows,), uint64: a hash of each set."""
        return token_ids.hashes(self.sets)

    def take(self, places: np.ndarray) -> SampledSets:
        """Select some of the rows. Their weights are raised, so that they still
        represent all rows.
        """
        return SampledSets(
            self.points.take(places), token_ids.take_sets(self.sets, places)
        )


def concatenated(
    summaries: list[SetSummary],
) -> tuple[SamplePoints, np.ndarray, np.ndarray]:
    """Concatenate the samples of a table.

    Return the sampled rows as points, the bounds of each set's tokens, and the tokens.
    """
    bounds = np.cumsum(
        np.concatenate([[0], *(np.diff(s.offsets) for s in summaries)])
    ).astype(np.int64)
    rows = np.cumsum([0, *(s.source_rows for s in summaries)])
    tokens = (
        np.concatenate([s.tokens for s in summaries])
        if summaries
        else np.zeros(0, np.int64)
    )
    return gather_samples([s.sample for s in summaries], rows, 1), bounds, tokens


def gather_sets(tables: list[list[SetSummary]]) -> tuple[list[SampledSets], int]:
    """Concatenate the samples of each table, and rank their tokens. Also return the
    number of distinct tokens.
    """
    points, encoded = [], []
    for summaries in tables:
        own, bounds, tokens = concatenated(summaries)
        points.append(own)
        encoded.append(token_ids.unique_tokens(token_ids.of_integers(bounds, tokens)))
    merged = token_ids.merge(*(vocabulary for _, vocabulary in encoded))
    whole = token_ids.ranks(merged["vocabulary"])
    found = []
    for n, (own, (sets, _)) in enumerate(zip(points, encoded, strict=True)):
        rank = token_ids.ranks_of(whole, merged["codes"], n)
        found.append(SampledSets(own, token_ids.ranked(sets, rank)))
    return found, len(whole)


def sampled_pairs(
    tables: list[SampledSets],
    universe: int,
    spec: Any,
    kind: type[SetBlockPair] = SetBlockPair,
) -> tuple[Sampled, list[SampledSets]]:
    """Join the samples of two tables, or of one with itself. If that gives too many
    pairs, use fewer rows.

    Also return the samples that were joined in the end.
    """
    block_pair = _block_pair(tables, universe, spec, kind)
    expected = count_block_pairs(block_pair)
    # drop some rows of samples with more pairs than this
    max_pairs = 2**21
    if expected > max_pairs:
        share = (max_pairs / expected) ** 0.5
        random = np.random.default_rng(len(tables[0].points.x))
        tables = [_thinned(table, share, random) for table in tables]
        block_pair = _block_pair(tables, universe, spec, kind)
    left, right = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows in row_pairs(block_pair, False, all_matches(block_pair, False)):
        left.append(block_pair.query["order"][rows.left])
        right.append(block_pair.data["order"][rows.right])
    first, second = tables[0].points, tables[-1].points
    return Sampled(
        first, second, np.concatenate(left), np.concatenate(right), 1.0
    ), tables


def _thinned(
    table: SampledSets, share: float, random: np.random.Generator
) -> SampledSets:
    rows = len(table.points.x)
    fewer = min(rows, max(2048, int(rows * share)))
    return table.take(np.sort(random.choice(rows, fewer, replace=False)))


def _block_pair(
    tables: list[SampledSets], universe: int, spec: Any, kind: type[SetBlockPair]
) -> SetBlockPair:
    chunks = []
    for table in tables:
        made = token_ids.collapse(table.sets, universe, table.sizes < 0)
        chunks.append(
            cast(
                SetChunk,
                {**made["block"], "order": made["order"], "firsts": made["firsts"]},
            )
        )
    return kind(chunks[0], chunks[-1], len(chunks) == 1, spec, AUTO, library=HOME)


@dataclass(frozen=True, eq=False)
class SetPlan:
    """The plan of a join of sets. Its chunks are blocks by size."""

    method: str | SetMethod
    sides: tuple[SizeBlocks, ...]  # blocks of each table
    tables: Tables  # `sources` has the number of rows of each partition
    missing: int  # rows without a set
    row_bytes: float  # mean memory of a row of a block
    special: bool  # whether rows with empty sets or without a set may match
    work: PairWork
    result: Result
    memory: Memory
    limits: Limits
    run: str = ""  # name of the recorded run; "": tasks are not recorded

    shuffles_on_disk: ClassVar[bool] = False

    @property
    def layout(self) -> str | SetMethod:
        """The method of the join, under the name that it has in all plans."""
        return self.method

    @property
    def counted(self) -> SizeBlocks:
        """Blocks of the left table. Matches are counted for the rows of this table."""
        return self.sides[0]

    @property
    def rows(self) -> int:
        """Number of rows of all tables."""
        return sum(self.tables.rows)

    @property
    def number(self) -> int:
        """Number of blocks of all tables."""
        return sum(map(len, self.sides))

    @property
    def block_rows(self) -> np.ndarray:
        """Expected number of rows of each block, float64."""
        return np.concatenate([side.rows for side in self.sides])

    @property
    def block_bytes(self) -> np.ndarray:
        """Expected size of each block in bytes, float64."""
        return np.concatenate([side.bytes for side in self.sides])

    @property
    def tokens(self) -> float:
        return float(sum(side.elements.sum() for side in self.sides))

    def __repr__(self) -> str:
        return (
            f"<{self.rows:,} rows, {self.number} blocks, "
            f"{len(self.work):,} block pairs>"
        )

    def __dask_tokenize__(self) -> Any:
        lows = [(side.lows, side.splits) for side in self.sides]
        content = (
            self.method,
            self.tables.sources,
            lows,
            self.work.identity,
            self.special,
        )
        return normalize_token((type(self).__qualname__, *content))


Gathered = tuple[list[SampledSets], int]
"""The samples of each table, and a number that is larger than all their tokens."""


def make_set_plan(
    tables: list[list[SetSummary]],
    spec: Any,
    output: OutputSpec,
    machine: Limits,
    gather: Callable[[list[list[SetSummary]]], Gathered] = gather_sets,
    kind: type[SetBlockPair] = SetBlockPair,
    index_bytes: float = 0.0,
    min_tokens: int = BATCH,
    token_bytes: float = NUMBER_BYTES,
) -> SetPlan:
    """Plan a join from the summaries of its tables. Raise an error if blocks or the
    result do not fit in memory.

    The defaults are for joins of sets. `gather`: concatenates the samples. `kind`: the
    class of block pairs. `index_bytes`: bytes per row in the index of a block.
    """
    for summaries in tables:
        for number, summary in enumerate(summaries):
            check_rows(summary.source_rows, number)
    limits = machine.sized(spec.blocksize, spec.settings)
    sampled, universe = gather(tables)
    sizes = [
        _average(some, "id_bytes") + _average(some, "bytes_of_columns")
        for some in tables
    ]
    tokens = [float(np.maximum(t.points.x[:, 0], 0) @ t.points.weight) for t in sampled]
    rows = [sum(s.source_rows for s in some) for some in tables]
    held_bytes = sum(
        size * n for size, n in zip(sizes, rows, strict=True)
    ) + token_bytes * sum(tokens)
    row_bytes = ROW_BYTES + index_bytes + held_bytes / max(1, sum(rows))
    sides = tuple(
        _blocks(
            table,
            n,
            own,
            ROW_BYTES + index_bytes + size,
            limits,
            min_tokens,
            token_bytes,
        )
        for table, n, own, size in zip(sampled, rows, tokens, sizes, strict=True)
    )
    sides = tuple(
        _with_longest(side, max((s.longest for s in some), default=0), own, token_bytes)
        for side, some, own in zip(sides, tables, sampled, strict=True)
    )
    special = spec.empty_match or spec.allow_missing
    compared = sides[0], sides[1] if len(sides) > 1 else None, spec.rule, special
    block_rows = np.concatenate([side.rows for side in sides])
    # each block is in at least one block pair, so the number of blocks can be checked
    # before they are paired
    check_blocks(len(block_rows), block_rows, row_bytes, limits)
    check_blocks(count_compared_blocks(*compared), block_rows, row_bytes, limits)
    blocks = compared_blocks(*compared)
    candidates = candidate_pairs(blocks, block_rows, len(sides) == 1)
    order = heavy_first(candidates)
    blocks, candidates = blocks[order], candidates[order]
    found = _estimate(sampled, universe, spec, sides, blocks, candidates, kind)
    pair_bytes = sum(sizes) * (2 if len(sides) == 1 else 1) + 8 * (
        spec.score is not None
    )
    slices = np.ones(len(blocks), np.int64)
    if output.materialise:
        slices = whole_slices(found.high_together, pair_bytes, limits).astype(np.int64)
        cause = Cause.of(spec, len(sides) > 1)
        check_outputs(float(slices.sum()), limits, cause)
        check_result(found.total_low, pair_bytes, limits, cause, found.counted)
        if spec.matching:
            check_matching(limits.room, cause, found.total_low, found.counted)
    for side in sides:
        check_chunks(
            side.rows,
            side.bytes / np.maximum(side.rows, 1),
            limits,
            len(blocks),
        )
    # all blocks are in memory at the same time, because no block is complete before all
    # rows are encoded
    block_bytes = float(np.concatenate([side.bytes for side in sides]).sum())
    left_out = [
        _left_out(some, own)
        for some, (_, own) in zip(tables, named_sides(spec), strict=False)
    ]
    return SetPlan(
        spec.method,
        sides,
        Tables(
            tuple(rows),
            tuple(tuple(s.source_rows for s in some) for some in tables),
            () if spec.allow_missing else tuple(left_out),
        ),
        sum(s.missing for some in tables for s in some),
        row_bytes,
        special,
        PairWork(blocks, np.ones(len(blocks), np.int64), slices, np.zeros(len(blocks))),
        Result(pair_bytes, found),
        Memory(Disk(needed=bytes_needed(block_bytes, 0.0, limits))),
        limits,
    )


def _left_out(summaries: Sequence[SetSummary], spec: RowSpec) -> LeftOut:
    """Describe the rows of a table without a set, or without a value in `by=`."""
    found = rows_without_a_value(
        sum(s.source_rows for s in summaries), tuple(s.missing for s in summaries), spec
    )
    parts = [
        LeftOutPart(
            s.source_rows,
            tuple(one._replace(rows=s.missing) for one in found.reasons),
            (s.without,),
        )
        for s in summaries
    ]
    return replace(found, parts=tuple(parts))


def _with_longest(
    side: SizeBlocks, longest: int, table: SampledSets, token_bytes: float
) -> SizeBlocks:
    """Add the memory of the largest row to the last block, if this row is so long that
    it matters. `longest`: its size.
    """
    if longest <= MIN_PART:
        return side
    # arrays that have an item for each possible size
    extra, elements = 8 * longest, 0
    if longest > table.sizes.max(initial=0):
        elements = longest
    last = np.arange(len(side)) == len(side) - 1
    return replace(
        side,
        elements=side.elements + last * elements,
        bytes=side.bytes + last * (extra + token_bytes * elements),
    )


def _average(summaries: list[SetSummary], name: str) -> float:
    rows = [s.source_rows for s in summaries]
    return float(
        np.average(
            [getattr(s, name) for s in summaries], weights=rows if sum(rows) else None
        )
    )


def _blocks(
    table: SampledSets,
    rows: int,
    tokens: float,
    row_bytes: float,
    limits: Limits,
    min_tokens: int,
    token_bytes: float,
) -> SizeBlocks:
    """Divide a table into blocks that fit in memory. There are enough of them to keep
    all threads busy.

    `row_bytes`: bytes that a row takes in addition to its tokens.
    """
    number = math.ceil((rows * row_bytes + token_bytes * tokens) / limits.chunk)
    if not limits.chosen:
        # each block is in several block pairs, so two per thread keep all threads busy
        busy = limits.threads if limits.gpu else 2 * limits.threads
        number = max(number, min(int(tokens // min_tokens), busy))
    return size_blocks(
        table.sizes,
        table.hashes,
        table.points.weight,
        max(1, number),
        row_bytes,
        token_bytes,
    )


def _estimate(
    sampled: list[SampledSets],
    universe: int,
    spec: Any,
    sides: tuple[SizeBlocks, ...],
    blocks: np.ndarray,
    candidates: np.ndarray,
    kind: type[SetBlockPair],
) -> Estimate:
    pairs, thinned = sampled_pairs(sampled, universe, spec, kind)
    first = len(sides[0]) if len(sides) > 1 else 0
    own = [
        side.block_of(table.sizes, table.hashes)
        for side, table in zip(sides, thinned, strict=True)
    ]
    i, j = own[0][pairs.left], own[-1][pairs.right] + first
    chunks = (i, j) if first else (np.minimum(i, j), np.maximum(i, j))
    return estimate(
        pairs, blocks, candidates, block_of(blocks, sum(map(len, sides)), chunks)
    )
