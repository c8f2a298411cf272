"""The driver of plain frames: it runs the steps of verbs with threads of this process.

All threads share the indexes of the tables. A step is cut into parts of about equal
work, several for each thread, and threads take the parts in turn.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from dask_simjoin.engine.base import frames_for, frames_of_library
from dask_simjoin.engine.process import in_turns, numbers_apart, together
from dask_simjoin.metrics.norms import Array, Frame, Series, SparseMatrix
from dask_simjoin.planning.budget import Cause, limits_now, within_memory
from dask_simjoin.planning.data_warnings import naming_causes, raise_if_none
from dask_simjoin.planning.kilometers import count_copies
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import COUNTS, LISTS, PAIRS, OutputSpec, directions
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import plain_threads
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.request.requests import INNER, KEEPS
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import BATCH, MOMENT, PARTS_PER_THREAD
from dask_simjoin.tasks import csr
from dask_simjoin.tasks.chunks import Chunk, Refine, plan_whole, whole_chunks
from dask_simjoin.tasks.counts import (
    Number,
    count_block,
    count_block_pairs,
    pairs_by_eps,
)
from dask_simjoin.tasks.left_out import for_all_rows, rows_of
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.pairs import (
    ResultRows,
    cast_like,
    concat_results,
    join_block,
    result_rows,
    unmatched,
    unmatched_rows,
    with_right_rows,
)

Made = TypeVar("Made")

MOST_PARTS = 64
"""Largest number of parts of a result, unless there are more threads. Allocating the
memory of each part holds up the other threads: `cpu.cores`, 8M x 2 self_join.
"""

PAIR_WORK = 64
"""Coordinates that are compared in the time of counting a pair by a sweep."""


def numbered(frame: Frame) -> Frame:
    """Return a plain frame whose index has the numbers of the rows."""
    return frame.reset_index(drop=True)


class Indexed(NamedTuple):
    """The plan of a verb, and the indexed rows: one chunk for each table."""

    chunks: list[Chunk]
    plan: Plan
    spec: JoinSpec

    @property
    def block_pair(self) -> BlockPair:
        first, last = self.chunks[0], self.chunks[-1]
        return BlockPair(
            first, last, len(self.chunks) == 1, self.spec, self.plan.layout
        )


class LocalDriver:
    """Runs the steps of a verb for one plain frame or two."""

    def __init__(self, frames: Sequence[Frame], spec: JoinSpec) -> None:
        self.frames, self.spec = frames, spec
        self.threads = plain_threads(spec.settings)

    def indexed(
        self, output: OutputSpec, sampled: bool = False, refine: Refine | None = None
    ) -> Indexed:
        """Plan the verb, and index the rows: see `whole_chunks`."""
        chunks, plan = whole_chunks(
            self.frames, self.spec, output, sampled, refine, self.threads
        )
        return Indexed(chunks, plan, self.spec)

    def of_all_rows(self, values: Array, fill: float, side: str = "left") -> Array:
        """Return values of all rows of a table. `values`: values of the rows that
        `dropna` keeps; `fill`: the value of the other rows.
        """
        return for_all_rows(values, *self._side(side), fill)[0]

    def series(self, values: Array, fill: float, name: str | None) -> Series:
        """Return a Series with the values of `of_all_rows`."""
        frame = self.frames[0]
        return frames_for(frame).series(
            self.of_all_rows(values, fill), frame.index, name
        )

    def all_rows(self, indexed: Chunk, side: str = "left") -> Chunk:
        """Return the rows of a table as a chunk that also has the rows that `dropna`
        leaves out. `indexed`: the other rows.
        """
        frame, spec = self._side(side)
        every = len(indexed["ids"]) == len(frame)
        return indexed if every else rows_of(frame, spec)

    def _side(self, side: str) -> tuple[Frame, JoinSpec]:
        """Return the "left" or the "right" table, and its options."""
        if side == "left":
            return self.frames[0], self.spec
        return self.frames[1], self.spec.right

    def check_found(
        self, plan: Plan, found: Callable[[], int] | int, directions: int
    ) -> None:
        """Issue the warnings of a plan that concern results without a pair.

        `found`: number of rows found. `directions`: number of these rows per pair.
        """
        copies = functools.partial(count_copies, self.frames, self.spec)
        raise_if_none(plan.tables.warnings, found, lambda: directions * copies())

    def planned(self, output: OutputSpec) -> Plan:
        """Plan the verb without running it."""
        xp = frames_of_library(self.spec.library).xp
        threads = self.threads if xp is np else 1
        made = plan_whole(self.frames, self.spec, output, True, threads)
        raise_if_none(made.tables.warnings, 0)
        size = round(made.rows * made.indexing.row_bytes)
        device = frames_of_library(self.spec.library).memory()
        return replace(made, limits=limits_now(made.limits, size, device))


class LocalJoins(LocalDriver):
    """Joins and counts within a distance."""

    def pairs(self, example: Frame, how: str = INNER) -> Frame:
        work = self.indexed(PAIRS)
        found = self._pairs(work, example, how)
        if "right" not in KEEPS.get(how, ()):
            return found
        counts = self.of_all_rows(self._counts_of_right(work), 0, "right")
        rows = self.all_rows(work.chunks[1], "right")
        alone = unmatched(rows, counts, self.spec, example, "right")
        return with_right_rows(found, alone)

    def _counts_of_right(self, work: Indexed) -> Array:
        """Return the number of matches of each row of the second table."""
        if not work.plan.meets:
            xp = frames_for(self.frames[1]).xp
            return xp.zeros(len(work.chunks[1]["ids"]), np.int64)
        return count_rows(work.block_pair, work.plan, self.threads, side=1)

    def _pairs(self, work: Indexed, example: Frame, how: str) -> Frame:
        """Find the pairs, and the left rows without one if `how` keeps them."""
        spec, plan, like, alone = self.spec, work.plan, None, None
        if "left" in KEEPS.get(how, ()):
            queries, counts = self.all_rows(work.chunks[0]), self._counts(work)
            if not plan.meets:
                return unmatched(queries, 0, spec, example)
            like, alone = example, unmatched_rows(queries, counts, spec, example)
        if not plan.meets:
            return example
        with (
            naming_causes(lambda: plan.tables.warnings),
            within_memory(Cause.of(spec, len(self.frames) > 1)),
        ):
            columns = list(example.columns)
            found = join(work.block_pair, columns, plan, self.threads, like, alone)
        itself = plan.rows * spec.result.include_self
        others = 0 if alone is None else alone[0]
        self.check_found(plan, len(found) - itself - others, directions(spec))
        return found

    def counts(self, example: Series | Frame) -> Series | Frame:
        work = self.indexed(COUNTS)
        if any(one.if_none for one in work.plan.tables.warnings):
            # such a warning needs the number of pairs
            result = self.spec.result._replace(enough=None)
            exact = replace(work.spec, result=result)
            work = work._replace(spec=exact)
        counts = self._counts(work, example.shape[1:])
        if work.plan.meets:
            # each pair of a table counts for both rows
            each = max(1, len(self.spec.several)) * (1 + (self.spec.other is None))
            self.check_found(work.plan, counts.sum(), each)
        return frames_for(example).rows(counts, self.frames[0].index, example)

    def _counts(self, work: Indexed, shape: tuple[int, ...] = ()) -> Array:
        """Return the number of matches of each row of the first table (rows, *shape)."""
        if work.plan.meets:
            found = count_rows(work.block_pair, work.plan, self.threads)
            return self.of_all_rows(found, 0)
        xp = frames_for(self.frames[0]).xp
        return xp.zeros((len(self.frames[0]), *shape), np.int64)

    def number(self, meta: Frame) -> Number:
        spec, work = self.spec, self.indexed(COUNTS)
        found: Number = 0
        if work.plan.meets:
            found = count_pairs(work.block_pair, work.plan, self.threads)
            itself = work.plan.rows * spec.result.include_self
            self.check_found(work.plan, np.max(found) - itself, directions(spec))
        return pairs_by_eps(found, spec, meta) if spec.several else found

    def graph(self, mode: str) -> SparseMatrix:
        """Return a sparse matrix of the distances between neighbors. It has an empty row
        for each row that `dropna` leaves out.
        """
        spec, frame = self.spec, numbered(self.frames[0][self.spec.columns])
        work = LocalDriver([frame], spec).indexed(LISTS)
        plan, device = work.plan, frames_for(frame).memory()
        limits = Limits(memory=device, gpu=device is not None)
        fitting = csr.fitting_for(spec, len(frame), frame, limits, pieces=False)
        pairs, itself = plan.result.estimate, plan.rows * spec.result.include_self
        with naming_causes(lambda: plan.tables.warnings):
            fitting.check(2 * pairs.total_low + itself, sampled=True)
            found = csr.graph_of_chunk(work.block_pair, mode, fitting, pairs.total)
        self.check_found(plan, found.nnz - itself, 2)
        return found

    def plan(self) -> PlanReport:
        return PlanReport(self.planned(PAIRS), self.spec)


def parts_of(block_pair: BlockPair, plan: Plan, threads: int) -> int:
    """Return into how many parts it pays to cut the work of a block pair."""
    if block_pair.xp is not np:
        return 1
    number = _threads_for(block_pair, plan, threads)
    if number == 1:
        return 1
    return max(number, min(PARTS_PER_THREAD * number, MOST_PARTS))


def _threads_for(block_pair: BlockPair, plan: Plan, threads: int) -> int:
    """Return how many threads share the work of a block pair."""
    rows = max(len(chunk["ids"]) for chunk in block_pair.chunks)
    by_pairs = int(plan.result.estimate.total / BATCH)
    return max(1, min(threads, max(rows // numbers_apart(plan.tables.dims), by_pairs)))


def _in_turns(
    work: Callable[[int, int], Made],
    block_pair: BlockPair,
    plan: Plan,
    threads: int,
    turns: int = PARTS_PER_THREAD,
) -> list[Made]:
    """Run work for ranges of places of the first chunk, one range after the other."""
    queries, data = (len(chunk["ids"]) for chunk in block_pair[:2])
    # a sweep compares few points that are not pairs
    cost: float = data * plan.tables.dims
    if block_pair.layout.method == "sweep":
        cost = PAIR_WORK * (1 + plan.result.estimate.total / max(1, queries))
    longer = 1 + len(block_pair.spec.several)
    return in_turns(
        work,
        queries,
        _threads_for(block_pair, plan, threads),
        cost / longer,
        block_pair.layout.grain,
        turns,
        MOMENT * longer,
    )


def join(
    block_pair: BlockPair,
    columns: list[str],
    plan: Plan,
    threads: int,
    like: Frame | None = None,
    unmatched_left: ResultRows | None = None,
) -> Frame:
    """Do the work of `join_block` with several threads."""
    parts = parts_of(block_pair, plan, threads)
    if parts == 1:
        return join_block(block_pair, columns, like=like, unmatched_left=unmatched_left)

    def found(start: int, stop: int) -> list[ResultRows]:
        return result_rows(block_pair, columns, (start, stop))

    ranges = itertools.pairwise(block_pair.cuts(parts))
    calls = [functools.partial(found, *rows) for rows in ranges]
    rows = list(itertools.chain.from_iterable(together(calls, threads)))
    frames = frames_for(block_pair.query["example"])
    made = concat_results(rows, columns, frames, like, unmatched_left, threads)
    return made if like is None or unmatched_left is not None else cast_like(made, like)


def count_rows(block_pair: BlockPair, plan: Plan, threads: int, side: int = 0) -> Array:
    """Return the number of neighbors of each row of the first chunk, in row order: see
    `count_block`. With ``side=1``, of the second chunk.

    Several threads find each pair of a self-join twice, once from each of its rows.
    """
    query, spec, joiner = block_pair.query, block_pair.spec, block_pair.joiner
    if block_pair.xp is not np or spec.directed:
        return count_block(block_pair)[side]
    ranged = joiner.ranged(block_pair.layout)
    one_sided = ranged is not None and ranged.one_sided
    twice = block_pair.is_self_join and not one_sided
    number = _threads_for(block_pair, plan, threads)
    # with gates, a row may not be a pair with itself
    gated = block_pair.is_self_join and spec.gated
    # only with both counts do other methods stop early
    stops = spec.result.enough is not None and not one_sided
    if side or spec.several or gated or stops or (twice and number < 3):
        return _each_pair_once(block_pair, plan, threads, side)
    rows = len(query["ids"])
    counts, order = np.empty(rows, np.int64), query["order"][:rows]

    def count(start: int, stop: int) -> None:
        nonlocal counts
        if block_pair.is_self_join and stop - start == rows:
            counts = count_block(block_pair)[0]
            return
        found = joiner.weights(
            *block_pair.operands,
            is_self_join=False,
            enough=spec.result.enough,
            rows=(start, stop),
        )
        # a row of a self-join was counted as its own neighbor
        counts[order[start:stop]] = found - block_pair.is_self_join

    _in_turns(count, block_pair, plan, threads)
    return counts


def _each_pair_once(
    block_pair: BlockPair, plan: Plan, threads: int, side: int
) -> Array:
    """Do the work of `count_rows` for ranges of places, and find each pair once."""
    total, lock = None, threading.Lock()

    def count(start: int, stop: int) -> None:
        nonlocal total
        every = stop - start == len(block_pair.query["ids"])
        found = count_block(block_pair, rows=None if every else (start, stop))[side]
        with lock:
            total = found if total is None else np.add(total, found, out=total)

    # few parts, because each has an array with counts of all rows
    _in_turns(count, block_pair, plan, threads, turns=1)
    return total


def count_pairs(block_pair: BlockPair, plan: Plan, threads: int) -> Number:
    """Do the work of `count_block_pairs` with several threads."""
    if block_pair.xp is not np or block_pair.spec.directed:
        parts = parts_of(block_pair, plan, threads)
        every = [block_pair._replace(part=(number, parts)) for number in range(parts)]
        calls = [functools.partial(count_block_pairs, one) for one in every]
        return sum(together(calls, threads))

    def count(start: int, stop: int) -> Number:
        every = stop - start == len(block_pair.query["ids"])
        return count_block_pairs(block_pair, None if every else (start, stop))

    return sum(_in_turns(count, block_pair, plan, threads))
