"""Base class of lazy joins, the tasks that they use, and their repr, which does not
plan them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
from dask.tokenize import tokenize

from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.graph.base import LabelledExpr, aliases, picked
from dask_simjoin.graph.dask_private import Expr, List, Task, TaskRef, guard_repr
from dask_simjoin.graph.homes import chunk_homes
from dask_simjoin.graph.placement import (
    VisitOrder,
    on_worker_of,
    place_tasks,
    send_placement,
)
from dask_simjoin.graph.planner import DISTANCE_STEPS, PlanningSteps, plan_for, plan_key
from dask_simjoin.graph.records import NO_RUN, RUNS, Named, RunName
from dask_simjoin.graph.row_cache import ROWS
from dask_simjoin.graph.shuffle import (
    MAX_PARCELS,
    chunks_by_worker,
    held_by_workers,
    packed_rows,
    shuffled_chunks,
)
from dask_simjoin.graph.small_frames import is_cut, is_read_by_chunk, take_small_frame
from dask_simjoin.graph.source import (
    FrozenSource,
    Listed,
    held_keys,
    is_held,
    map_frozen,
)
from dask_simjoin.graph.workers import on_worker
from dask_simjoin.planning.entity_chunks import (
    BY_WORKER,
    Chunking,
    Sources,
    is_shuffled,
)
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import COUNTS, OutputSpec
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import check_shuffle
from dask_simjoin.planning.tables import JoinStatistics
from dask_simjoin.reports.facts import BlockReport
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import (
    gather_chunk,
    index_partitions,
    make_chunk,
    read_chunk,
    read_points,
)
from dask_simjoin.tasks.counts import count_block, count_block_pairs
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.pairs import cut_block, cut_weighed, join_block, weigh_block
from dask_simjoin.tasks.shuffle import unpack

MANY_COLUMNS = 8
"""If cuDF partitions have more columns than this, workers exchange one array of points
instead of the columns.

Each column would be sent as a separate message, which takes about a millisecond.
"""


def chunk_ref(chunks: Expr, c: int, part: int = 0) -> TaskRef | Task:
    """Return a reference to a chunk. If several workers have a copy, choose the copy
    for one part of the work. `part`: number of the part.

    Parts use the copies in turn, because later parts often have less work. Each part
    waits until all copies are made: workers cannot send rows to each other while their
    GPUs are busy.
    """
    while isinstance(chunks, BothChunks):
        side = int(c >= chunks.left.npartitions)
        chunks, c = (
            (chunks.left, chunks.right)[side],
            c - side * chunks.left.npartitions,
        )
    copies = chunks.operand("copies") if isinstance(chunks, Chunks | ReadChunks) else 1
    if copies == 1:
        return TaskRef(chunks.key(c))
    own = TaskRef(_copies(chunks._name, c, copies)[part % copies])
    return picked(List(own, *map(TaskRef, _made_copies(chunks._name, c, copies))), 0)


def _copies(name: str, c: int, copies: int) -> list[tuple[Any, ...]]:
    """List the keys of the copies of a chunk. Each copy is made by a separate task, on
    another worker.
    """
    return [(name, c), *((name, on_worker_of(copy, c)) for copy in range(1, copies))]


def _made_copies(name: str, c: int, copies: int) -> list[tuple[Any, ...]]:
    """List the keys of tasks without a result, which end after a copy of a chunk is
    made.
    """
    label = name.replace(Chunks._label, "simjoin_copied")
    return [(label, on_worker_of(copy, c)) for copy in range(copies)]


def wait_tasks(name: str, c: int, copies: int) -> dict[Any, Task]:
    """Return the tasks that end after the copies of a chunk are made, if there are
    several copies.
    """
    if copies == 1:
        return {}
    keys = zip(_made_copies(name, c, copies), _copies(name, c, copies), strict=True)
    return {key: Task(key, nothing_of, TaskRef(copy)) for key, copy in keys}


def nothing_of(made: Any) -> None:
    """Return nothing, because only the end of the task matters."""


class Chunks(LabelledExpr):
    """Index chunks. The class is not Blockwise, because Dask would then fuse the
    indexing into each block pair.

    `pieces`: for each chunk, the pieces of partitions that it consists of; None: each
    partition is an indexed chunk already. `threads`: number of threads that index a
    chunk. `copies`: number of workers that get a copy of each chunk.
    """

    _label = "simjoin_index"
    _parameters = ["frozen", "pieces", "layout", "threads", "copies", "run"]
    _defaults = {
        "pieces": None,
        "layout": None,
        "threads": 1,
        "copies": 1,
        "run": NO_RUN,
    }

    def _divisions(self) -> Any:
        pieces = self.operand("pieces")
        return (None,) * (
            1
            + (
                self.operand("frozen").inner.npartitions
                if pieces is None
                else len(pieces)
            )
        )

    def _layer(self) -> dict[Any, Any]:
        expr = self.operand("frozen").inner
        layer, keys, pieces = (
            dict(expr.__dask_graph__()),
            expr.__dask_keys__(),
            self.operand("pieces"),
        )
        if pieces is None:
            return layer | aliases(self._name, keys)
        for i, chunk in enumerate(pieces):
            rows = [(start, stop) for _, start, stop in chunk]
            parts = [TaskRef(keys[n]) for n, _, _ in chunk]
            layout, threads = self.operand("layout"), self.operand("threads")
            for key in _copies(self._name, i, self.operand("copies")):
                layer[key] = Task(
                    key, gather_chunk, layout, rows, *parts, threads=threads
                )
            layer |= wait_tasks(self._name, i, self.operand("copies"))
        return layer


class ReadChunks(LabelledExpr):
    """Index chunks that consist of whole partitions in memory. One task reads and
    indexes each chunk.

    `each`: fingerprints of the partitions. `named`: whether the result has row ids. For
    the other operands, see `Chunks`.
    """

    _label = "simjoin_index"
    _parameters = [
        "frozen",
        "each",
        "pieces",
        "spec",
        "layout",
        "threads",
        "named",
        "copies",
        "run",
    ]
    _defaults = {"named": True, "copies": 1, "run": NO_RUN}

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.operand("pieces")))

    def _layer(self) -> dict[Any, Any]:
        frame, each = self.operand("frozen").inner, self.operand("each")
        spec, layout, *how = (
            self.operand(name) for name in ("spec", "layout", "threads", "named")
        )
        keys, layer = held_keys(frame), dict(frame.operand("layer"))
        for c, chunk in enumerate(self.operand("pieces")):
            rows = [(start, stop) for _, start, stop in chunk]
            known, parts = (
                [each[n] for n, _, _ in chunk],
                [TaskRef(keys[n]) for n, _, _ in chunk],
            )
            for key in _copies(self._name, c, self.operand("copies")):
                layer[key] = Task(
                    key, on_worker, read_chunk, layout, rows, known, spec, *how, *parts
                )
            layer |= wait_tasks(self._name, c, self.operand("copies"))
        return layer


class WholePartitions(LabelledExpr):
    """Index chunks that consist of whole partitions of a small pandas frame. One task
    reads and indexes each chunk.

    For the operands, see `ReadChunks`.
    """

    _label = "simjoin_index"
    _parameters = ["frozen", "pieces", "spec", "layout", "threads", "named", "run"]
    _defaults = {"run": NO_RUN}

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.operand("pieces")))

    def _layer(self) -> dict[Any, Any]:
        small, layer = take_small_frame(self.operand("frozen")), {}
        options = [
            self.operand(name) for name in ("layout", "spec", "threads", "named")
        ]
        for c, chunk in enumerate(self.operand("pieces")):
            key, sizes = (self._name, c), [stop - start for _, start, stop in chunk]
            rows = small.part(chunk[0][0], chunk[-1][0] + 1)
            layer[key] = Task(key, on_worker, index_partitions, *options, sizes, rows)
        return layer


class Unpacked(LabelledExpr):
    """Index chunks without Dask's shuffle: each task copies its rows from packed
    partitions, in the memory of one process.
    """

    _label = "simjoin_index"
    _parameters = ["frozen", "number", "example", "spec", "layout", "run"]
    _defaults = {"run": NO_RUN}

    def _divisions(self) -> Any:
        return (None,) * (1 + self.operand("number"))

    def _layer(self) -> dict[Any, Any]:
        expr = self.operand("frozen").inner
        layer = dict(expr.__dask_graph__())
        parcels = [TaskRef(key) for key in expr.__dask_keys__()]
        own = self.operand("example"), self.operand("spec"), self.operand("layout")
        for c in range(self.operand("number")):
            layer[(self._name, c)] = Task((self._name, c), unpack, c, *own, *parcels)
        return layer


class BothChunks(LabelledExpr):
    """The indexed chunks of two tables, numbered consecutively, beginning with the left
    table.
    """

    _label = "simjoin_indexes"
    _parameters = ["left", "right"]

    def _divisions(self) -> Any:
        return (None,) * (1 + self.left.npartitions + self.right.npartitions)

    def _layer(self) -> dict[Any, Any]:
        sides = self.left, self.right
        return aliases(
            self._name,
            ((side._name, c) for side in sides for c in range(side.npartitions)),
        )


def indexed_chunks(
    source: FrozenSource,
    spec: JoinSpec,
    sources: Sources,
    chunks: Chunking,
    layout: Layout | SearchLayout,
    with_ids: bool,
    threads: int,
    copies: int,
    sent: int,
    run: RunName,
    returned: bool = False,
) -> Expr:
    """Make the indexed chunks of a table. Most arguments are fields of the plan.

    `returned`: whether values return to the tasks that sent the rows. If so, there must
    be such tasks.
    """
    each = Listed(list(enumerate(sources)))
    if copies > 1:
        place_tasks()
    if is_shuffled(chunks):
        if (
            chunks.method == "tasks"
            and not spec.settings.cluster
            and len(each) * len(chunks) <= MAX_PARCELS
        ):
            packed = packed_rows(source, spec, chunks, each, with_ids)
            return Unpacked(
                packed, len(chunks), source.inner._meta.iloc[:0], spec, layout, run
            )
        held = held_by_workers(source) if chunks.method == BY_WORKER else None
        if held is not None or (chunks.method == BY_WORKER and returned):
            return chunks_by_worker(
                source, held, spec, chunks, each, layout, with_ids, run
            )
        moved = shuffled_chunks(source, spec, layout, chunks, each, with_ids, sent)
        return Chunks(FrozenSource(moved), run=run)
    if is_read_by_chunk(source, spec, chunks, copies):
        return WholePartitions(
            source, Listed(chunks.pieces), spec, layout, threads, with_ids, run
        )
    # tasks read the rows, so the small frame is not needed any more
    source.small = None
    if chunks.are_partitions(sources):
        made = map_frozen("simjoin_chunk", make_chunk, source, spec, layout, each=each)
        return Chunks(FrozenSource(made), run=run)
    frame = source.simple
    apart = copies > 1 and spec.library == "cudf" and len(spec.on) > MANY_COLUMNS
    if is_held(frame) and not is_cut(chunks) and not apart:
        frozen = FrozenSource(frame)
        return ReadChunks(
            frozen,
            each,
            Listed(chunks.pieces),
            spec,
            layout,
            threads,
            with_ids,
            copies,
            run,
        )
    read = map_frozen("simjoin_points", read_points, source, spec, each=each)
    return Chunks(
        FrozenSource(read), Listed(chunks.pieces), layout, threads, copies, run
    )


@dataclass(frozen=True)
class JoinTasks:
    """The functions that the tasks of one kind of joins call. A kind is, for example,
    joins by distance.
    """

    # makes the block pair of two chunks, such as a `BlockPair`; the other functions
    # take a block pair
    make: Callable[..., Any]
    # `join`: make rows of the result. `cut`: cut the rows into parts, one per partition
    # of the result. `count`: count the pairs of each row. `count_pairs`: count all
    # pairs.
    join: Callable[..., Any]
    cut: Callable[..., Any]
    count: Callable[..., Any]
    count_pairs: Callable[..., Any]
    # these two do the same as `cut`: `weigh` runs for each part of the work, then
    # `cut_weighed` once for all parts
    weigh: Callable[..., Any] | None = None
    cut_weighed: Callable[..., Any] | None = None

    def block_pair(
        self,
        chunks: Expr,
        i: int,
        j: int,
        spec: Any,
        layout: Any,
        part: tuple[int, int] = (0, 1),
        output: tuple[int, int] | None = None,
    ) -> Task:
        """Return the task argument that makes a block pair of the chunks `i` and `j`.

        `part`: the part of the work, as (index, number of parts). `output`: the
        partition of the block pair's result, as (index, number of partitions).
        """
        q, d = (chunk_ref(chunks, c, (output or part)[0]) for c in (i, j))
        return Task(None, self.make, q, d, i == j, spec, layout, part)


DISTANCES = JoinTasks(
    BlockPair,
    join_block,
    cut_block,
    count_block,
    count_block_pairs,
    weigh_block,
    cut_weighed,
)
"""The functions of joins by distance."""

block_pair_of = DISTANCES.block_pair


class LazyJoin(LabelledExpr):
    """Base class of lazy joins of a frozen source, with itself or with another source.
    A join is planned when needed.
    """

    _parameters = ["source", "spec", "meta"]
    _output = COUNTS
    _tasks: ClassVar[JoinTasks] = DISTANCES
    _steps: ClassVar[PlanningSteps] = DISTANCE_STEPS
    _plan_tells_partitions: ClassVar[bool] = False
    _verb: ClassVar[str] = ""  # in the title of the run; default: the label

    def __str__(self) -> str:
        spec = self.operand("spec")
        on = f"on={list(spec.on)}{spec.unnamed}"
        return f"{type(self).__name__}({self.operand('source')}, {self._request_text}, {on})"

    @property
    def _request_text(self) -> str:
        """The main option of the request as text, for the repr."""
        for name in ("max_eps", "k", "min_cluster_size", "samples"):
            if name in self._parameters:
                return f"{name}={self.operand(name)!r}"
        return str(self.operand("spec").request)

    @property
    def _source(self) -> FrozenSource:
        source: FrozenSource = self.operand("source")
        return source

    @property
    def plan(self) -> Plan:
        """The plan. The first access makes it: see
        `dask_simjoin.graph.planner.plan_join`.
        """
        plan: Plan = plan_for(
            self._source,
            self.operand("spec"),
            self.output,
            self._other,
            lambda: self.named,
            self._check_statistics,
            self._steps,
        )
        return plan

    def _check_statistics(self, statistics: JoinStatistics, limits: Limits) -> None:
        """Raise an error if the tables do not fit in the memory of a task, however they
        are divided into chunks.
        """

    @property
    def would_plan(self) -> bool:
        """Whether reading the number of partitions would plan the join, because it has
        no plan yet.
        """
        key = plan_key(self.operand("spec"), self.output, self._other)
        return self._plan_tells_partitions and key not in self._source.plans

    @property
    def report(self) -> BlockReport:
        """The report of the plan. If there is no plan yet, this makes it."""
        return self._report(self.plan)

    def _report(self, plan: Plan) -> BlockReport:
        return PlanReport(plan, self.operand("spec"))

    @property
    def named(self) -> Named:
        """The name and the title of the run. Equal joins have the same name."""
        operands = (
            self.operand(name)
            for name in self._parameters
            if name in ("source", "other", "spec")
        )
        verb = self._verb or self._label.removeprefix("simjoin_")
        title = f"{verb}, {self._request_text}"
        return Named(tokenize(self._label, self.output, *operands), title, self._report)

    @property
    def output(self) -> OutputSpec:
        """A description of the results of the tasks, such as pairs or counts."""
        return self._output

    def _tree_repr_lines(self, indent: int = 0, recursive: bool = True) -> list[str]:
        return [" " * indent + str(self)]

    @property
    def _other(self) -> FrozenSource | None:
        """The right table of a join of two tables; None for a self-join."""
        other: FrozenSource | None = (
            self.operand("other") if "other" in self._parameters else None
        )
        return other

    def _chunks(self) -> Expr:
        plan, spec = self.plan, self.operand("spec")
        RUNS.begin(plan.run)
        tables = (
            [(self._source, spec)]
            if self._other is None
            else [(self._source, spec), (self._other, spec.right)]
        )
        how: tuple[Any, ...] = (
            plan.layout,
            self.output.with_ids,
            plan.indexing.threads,
            plan.work.copies,
            plan.indexing.sent,
            RunName(plan.run),
            self.output.wide_halo,
        )
        each, read = [], []
        for (source, own), sources, chunks in zip(
            tables, plan.tables.sources, plan.chunks.sides, strict=True
        ):
            if chunks.method is not None:
                check_shuffle(chunks.method, spec.settings.cluster)
            read.append(ROWS.take(source))
            read_as = own.coordinates._replace(
                dims=plan.tables.dims, narrow=plan.indexing.narrow
            )
            own = replace(own, coordinates=read_as)
            each.append(indexed_chunks(read[-1], own, sources, chunks, *how))
        firsts = dict(
            zip(
                [expr._name for expr in each], (0, plan.chunks.first_data), strict=False
            )
        )
        if plan.work.visits is not None:
            send_placement(
                VisitOrder(
                    firsts,
                    plan.work.blocks,
                    plan.work.visits.worker,
                    plan.work.visits.place,
                )
            )
        elif (homes := chunk_homes(plan, read, spec, firsts)) is not None:
            send_placement(homes)
        return each[0] if len(each) == 1 else BothChunks(*each)


UNPLANNED = pd.Index(["", ""], name="npartitions=not planned yet")


def unplanned_divisions(expr: Expr) -> pd.Index | None:
    """If the divisions are not known before planning, return a placeholder for the
    repr; else None.
    """
    return (
        UNPLANNED
        if any(join.would_plan for join in expr.find_operations(LazyJoin))
        else None
    )


guard_repr(unplanned_divisions)
