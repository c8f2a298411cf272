"""The driver of plain frames for sets and strings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from dask_simjoin.calls.drivers import Number
from dask_simjoin.engine.base import (
    Counters,
    Numbers,
    compared_ratio,
    frames_for,
    frames_of_library,
)
from dask_simjoin.errors import in_table
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.budget import Cause, limits_now, within_memory
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.partition import RIGHT
from dask_simjoin.planning.resources import limits_for, plain_threads
from dask_simjoin.planning.unique_ids import check_summaries
from dask_simjoin.request.options import MAX_WHOLE
from dask_simjoin.request.requests import INNER, KEEPS
from dask_simjoin.sets.best import best_of_block, best_rows
from dask_simjoin.sets.chunks import (
    ReadSetRows,
    SetBlockPair,
    SetChunk,
    chunks_of,
    memory_check,
    named_sides,
    read_each,
    read_sets,
)
from dask_simjoin.sets.near_duplicates import marks_of_chunk
from dask_simjoin.sets.pairs import count_block, count_block_pairs, join_block
from dask_simjoin.sets.plan import SetPlan, SetSummary, make_set_plan, summarise_sets
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.tasks.pairs import unmatched, unmatched_rows, with_right_rows


class LocalSets:
    """Runs the steps of a verb for one plain frame or two. Each frame is one chunk."""

    read: ClassVar[Callable[..., ReadSetRows]] = staticmethod(read_sets)
    """Reads the values of a frame: ``read(frame, spec)``."""
    chunks_of: ClassVar[Callable[..., list[SetChunk]]] = staticmethod(chunks_of)
    """Makes one chunk per table from its values."""
    block_pair: ClassVar[type[SetBlockPair]] = SetBlockPair
    summarize: ClassVar[Callable[..., SetSummary]] = staticmethod(summarise_sets)
    make_plan: ClassVar[Callable[..., SetPlan]] = staticmethod(make_set_plan)
    report: ClassVar[type[SetPlanReport]] = SetPlanReport

    def __init__(self, frames: Sequence[Frame], spec: Any) -> None:
        self.frames, self.spec = frames, spec
        self.threads = plain_threads(spec.settings)

    def chunks(self, with_ids: bool = False) -> list[SetChunk]:
        """Make the chunks. If `with_ids`, raise an error for repeated ids."""
        return self.chunks_of(read_each(self.frames, self.spec, with_ids, self.read))

    def pair(self, chunks: Sequence[SetChunk]) -> SetBlockPair:
        spec, one = self.spec, len(chunks) == 1
        found = self.block_pair(chunks[0], chunks[-1], one, spec, spec.method)
        return found._replace(threads=self.threads)

    def pairs(self, example: Frame, how: str = INNER) -> Frame:
        chunks, spec, keeps = self.chunks(with_ids=True), self.spec, KEEPS.get(how, ())
        block_pair, like, alone = self.pair(chunks), None, None
        counts, others = count_block(block_pair) if keeps else (0, None)
        if "left" in keeps:
            like, alone = example, unmatched_rows(chunks[0], counts, spec, example)
        with within_memory(Cause.of(spec, len(chunks) > 1)):
            report, columns = memory_check(chunks, spec), list(example.columns)
            found = join_block(
                block_pair, columns, like=like, alone=alone, report=report
            )
            if "right" not in keeps or others is None:
                return found
            rows = unmatched(chunks[1], others, spec, example, "right")
            return with_right_rows(found, rows)

    def best(self, example: Frame, how: str) -> Frame:
        """Find the most similar right rows of each left row."""
        chunks, columns = self.chunks(with_ids=True), list(example.columns)
        with within_memory(Cause.of(self.spec, len(chunks) > 1)):
            report = memory_check(chunks, self.spec)
            found = best_of_block(self.pair(chunks), columns, report)
            return best_rows(chunks[0], self.spec, example, how, *found)

    def counts(self, example: Series) -> Series:
        return self._series(count_block(self.pair(self.chunks()))[0], example)

    def number(self, meta: Frame) -> Number:
        return count_block_pairs(self.pair(self.chunks()))

    def marks(self, request: Any, example: Series) -> Series:
        return self._series(marks_of_chunk(self.pair(self.chunks()), request), example)

    def _series(self, values: Array, example: Series) -> Series:
        frame = self.frames[0]
        return frames_for(frame).series(values, frame.index, example.name)

    def plan(self) -> SetPlanReport:
        """Plan the join. Return the report of the plan."""
        tables: list[list[SetSummary]] = []
        for (which, own), number, frame in zip(
            named_sides(self.spec), (0, RIGHT), self.frames, strict=False
        ):
            with in_table(which):
                summary = self.summarize(frame, number, own, True, 1)
                if summary.ids is not None:
                    check_summaries([summary.ids], own.id)
            tables.append([summary])
        settings = replace(self.spec.settings, output=None)
        whole = replace(self.spec, blocksize=MAX_WHOLE, settings=settings)
        found = self.make_plan(tables, whole, PAIRS, limits_for(whole.library))
        size = round(found.block_bytes.sum())
        device = frames_of_library(whole.library).memory()
        limits = limits_now(found.limits, size, device)
        return self.report(replace(found, limits=limits), self.spec)

    def profile(self) -> Profile:
        """Join the frame with itself, without storing pairs. The join runs twice: to
        count its work, and to measure time.
        """
        begin = time.perf_counter()
        (rows,) = read = read_each(self.frames, self.spec, False, self.read)
        split = time.perf_counter()
        (chunk,) = self.chunks_of(read)
        encoded = time.perf_counter()
        block_pair, spec = self.pair([chunk])._replace(threads=1), self.spec
        did = block_pair.joiner.counters(chunk, None, spec.rule, spec.method)
        start = time.perf_counter()
        row_pairs = count_block_pairs(block_pair)
        seconds = split - begin, encoded - split, time.perf_counter() - start
        counters: dict[str, float] = did._asdict() | {"pairs": int(row_pairs)}
        return Profile(rows, chunk, counters, seconds)


class Profile(NamedTuple):
    """Measurements of one self-join of a plain frame."""

    rows: ReadSetRows
    chunk: SetChunk
    counters: dict[str, float]  # the joiner's counters, and the number of pairs of rows
    # seconds to read the values, to make the chunk, and to join it
    seconds: tuple[float, float, float]

    def counted(self, numbers: Numbers, rows: int) -> Counters:
        """Return the counters, with `numbers` of the values in these rows."""
        every = numbers | self.counters
        every |= compared_ratio(every, rows)
        steps = zip(("read", "index", "join"), self.seconds, strict=True)
        return Counters(every, dict(steps))
