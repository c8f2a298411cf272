"""Run the verbs for sets and strings: lazily for Dask DataFrames, immediately for plain
frames.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for, frames_of_library
from dask_simjoin.errors import in_table
from dask_simjoin.graph.inputs import check_other, one_or_two, same_library
from dask_simjoin.graph.verb import NEIGHBORS, pairs_example, series_example
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.budget import limits_now, within_memory
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.partition import RIGHT, check_summaries
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.options import MAX_BYTES
from dask_simjoin.request.requests import ANTI, LEFT, SEMI
from dask_simjoin.sets.chunks import (
    ReadSetRows,
    SetBlockPair,
    SetChunk,
    memory_check,
    named_sides,
    read_each,
)
from dask_simjoin.sets.near_duplicates import marks_of_chunk
from dask_simjoin.sets.pairs import count_block, count_block_pairs, join_block
from dask_simjoin.sets.plan import SetPlan, SetSummary
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.tasks.pairs import unmatched_rows

Number = Any
"""A number of pairs: an int, or for Dask DataFrames a lazy Scalar."""


class JoinKind(NamedTuple):
    """The functions and classes that are different for joins of sets and for joins of
    strings.
    """

    # reads the values of a frame: ``read(frame, spec)``
    read: Callable[..., ReadSetRows]
    # makes one chunk per table from its values
    chunks_of: Callable[..., list[SetChunk]]
    block_pair: type[SetBlockPair]
    summarize: Callable[..., SetSummary]  # summarizes one partition
    # makes the plan from the summaries of all partitions
    make_plan: Callable[..., SetPlan]
    report: type[SetPlanReport]  # class of the plan's report
    expressions: Callable[[], Any]
    """Returns the `Expressions` of lazy joins. It is a function so that Dask's data
    frames are imported only when needed.
    """

    def chunks(
        self, frames: Sequence[Frame], spec: Any, with_ids: bool
    ) -> list[SetChunk]:
        """Convert each plain frame to a chunk. If `with_ids`, raise an error for
        repeated ids.
        """
        return self.chunks_of(read_each(frames, spec, with_ids, self.read))

    def pair(self, chunks: Sequence[SetChunk], spec: Any) -> SetBlockPair:
        return self.block_pair(
            chunks[0], chunks[-1], len(chunks) == 1, spec, spec.method
        )


def self_join(frame: Frame, request: Any, kind: JoinKind) -> Frame:
    meta = example_of(frame)
    spec = request.spec(meta)
    example = pairs_example(meta, meta, spec)
    if is_dask_collection(frame):
        return _lazy(kind.expressions().self_join, _frozen(frame, spec), spec, example)
    chunks = kind.chunks([frame], spec, True)
    with within_memory(spec.request):
        report = memory_check(chunks, spec)
        return join_block(kind.pair(chunks, spec), list(example.columns), report=report)


def join(frame: Frame, request: Any, kind: JoinKind) -> Frame:
    """Find the pairs of matching rows of two tables, or the left rows with or without a
    match.
    """
    frame, other, left, right = same_library(frame, request.other)
    spec = request.spec(left, right)
    with_ids = request.how not in (SEMI, ANTI)
    example = (
        pairs_example(left, right, spec, request.how == LEFT) if with_ids else left
    )
    if is_dask_collection(frame):
        source, data = _frozen(frame, spec), _frozen(other, spec.right)
        if with_ids:
            return _lazy(
                kind.expressions().join, source, data, spec, request.how, example
            )
        operands = source.inner, source, data, spec, series_example(left, NEIGHBORS)
        counted = _lazy(kind.expressions().match_counts, *operands)
        return frame[(counted > 0) if request.how == SEMI else (counted == 0)]
    chunks = kind.chunks([frame, other], spec, with_ids)
    block_pair = kind.pair(chunks, spec)
    if not with_ids:
        counts = count_block(block_pair)[0]
        return frame[(counts > 0) if request.how == SEMI else (counts == 0)]
    like = alone = None
    if request.how == LEFT:
        like, alone = (
            example,
            unmatched_rows(chunks[0], count_block(block_pair)[0], spec, example),
        )
    with within_memory(spec.request):
        report = memory_check(chunks, spec)
        return join_block(
            block_pair, list(example.columns), like=like, alone=alone, report=report
        )


def neighbor_counts(frame: Frame, request: Any, kind: JoinKind) -> Series:
    meta = example_of(frame)
    spec = request.spec(meta)
    if is_dask_collection(frame):
        source = _frozen(frame, spec)
        operands = source.inner, source, spec, series_example(meta, NEIGHBORS)
        return _lazy(kind.expressions().neighbor_counts, *operands)
    counts, _ = count_block(kind.pair(kind.chunks([frame], spec, False), spec))
    return frames_for(meta).series(counts, frame.index, NEIGHBORS)


def count_pairs(frame: Frame, request: Any, kind: JoinKind) -> Number:
    spec = request.spec(example_of(frame))
    if is_dask_collection(frame):
        return _lazy(kind.expressions().count_pairs, _frozen(frame, spec), spec, 0)
    return count_block_pairs(kind.pair(kind.chunks([frame], spec, False), spec))


def near_duplicated(frame: Frame, request: Any, kind: JoinKind) -> Series:
    """Mark the rows to drop: each of them matches a row that is kept. See
    `set_near_duplicated`.
    """
    meta = example_of(frame)
    spec = request.spec(meta)
    example = series_example(meta, None)
    if is_dask_collection(frame):
        source = _frozen(frame, spec)
        common = source.inner, source, spec
        if request.counted:
            return _lazy(kind.expressions().neighbor_counts, *common, example) != 0
        marks = kind.expressions().near_duplicated
        return _lazy(marks, *common, request.keep, request.grouping, example) != 0
    gone = marks_of_chunk(kind.pair(kind.chunks([frame], spec, False), spec), request)
    return frames_for(meta).series(gone, frame.index, None)


def plan(frame: Frame, request: Any, kind: JoinKind) -> Any:
    """Plan a join of one or two tables. Return the report of the plan."""
    wanted = request.planned()
    if request.other is not None:
        check_other("other=frame", request.other)
    frame, other, left, right = one_or_two(frame, request.other)
    spec = wanted.spec(left) if right is None else wanted.spec(left, right)
    pairs_example(left, left if right is None else right, spec)
    if is_dask_collection(frame):
        from dask_simjoin.graph.planner import plan_for

        data = None if other is None else _frozen(other, spec.right)
        found = plan_for(
            _frozen(frame, spec), spec, PAIRS, data, steps=kind.expressions().steps
        )
        return kind.report(found, spec)
    return kind.report(
        _plan_whole([frame] if other is None else [frame, other], spec, kind), spec
    )


def _plan_whole(frames: list[Frame], spec: Any, kind: JoinKind) -> SetPlan:
    """Plan a join of one or two plain frames. Each frame is one block."""
    tables: list[list[SetSummary]] = []
    for (which, own), number, frame in zip(
        named_sides(spec), (0, RIGHT), frames, strict=False
    ):
        with in_table(which):
            summary = kind.summarize(frame, number, own, True, 1)
            if summary.ids is not None:
                check_summaries([summary.ids], own.id)
        tables.append([summary])
    whole = replace(
        spec, blocksize=MAX_BYTES, settings=replace(spec.settings, output=None)
    )
    found = kind.make_plan(tables, whole, PAIRS, limits_for(spec.library))
    size = round(found.block_bytes.sum())
    device = frames_of_library(spec.library).memory()
    return replace(found, limits=limits_now(found.limits, size, device))


class Profile(NamedTuple):
    """Measurements of one self-join of a plain frame."""

    rows: ReadSetRows
    chunk: SetChunk
    counters: dict[str, float]  # the joiner's counters, and the number of pairs of rows
    # seconds to read the values, to make the chunk, and to join it
    seconds: tuple[float, float, float]


def profile(frame: Frame, spec: Any, kind: JoinKind) -> Profile:
    """Join a plain frame with itself, without storing pairs. The join runs twice: to
    count its work, and to measure time.
    """
    begin = time.perf_counter()
    (rows,) = read = read_each([frame], spec, False, kind.read)
    split = time.perf_counter()
    (chunk,) = kind.chunks_of(read)
    encoded = time.perf_counter()
    block_pair = kind.pair([chunk], spec)
    did = block_pair.joiner.counters(chunk, None, spec.rule, spec.method)
    start = time.perf_counter()
    row_pairs = count_block_pairs(block_pair)
    seconds = split - begin, encoded - split, time.perf_counter() - start
    return Profile(
        rows, chunk, {**did._asdict(), "row_pairs": float(row_pairs)}, seconds
    )


def _lazy(expression: type[Any], *operands: Any) -> Any:
    from dask_simjoin.graph.dask_private import new_collection

    return new_collection(expression(*operands))


def _frozen(frame: Frame, spec: Any) -> Any:
    from dask_simjoin.graph.source import freeze

    return freeze(frame, spec.columns)
