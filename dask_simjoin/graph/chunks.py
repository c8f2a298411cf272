"""The chunks of a lazy join: expressions whose tasks index them.

The classes differ in where the rows of a chunk come from, such as pieces of partitions
or parcels of a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dask_simjoin.graph.base import LabelledExpr, aliases, pick, picked
from dask_simjoin.graph.dask_private import (
    FromGraph,
    List,
    Task,
    TaskRef,
    fuse_with_shuffles,
)
from dask_simjoin.graph.placement import INDEX, on_worker_of, place_tasks
from dask_simjoin.graph.records import NO_RUN, RunName
from dask_simjoin.graph.shuffle import (
    SEND,
    held_by_workers,
    packed_rows,
    parcels_by_worker,
    partition_tasks,
    shuffled_chunks,
)
from dask_simjoin.graph.small_frames import is_cut, is_read_by_chunk, take_small_frame
from dask_simjoin.graph.source import (
    FrozenSource,
    Listed,
    is_held,
    map_frozen,
)
from dask_simjoin.graph.workers import on_worker
from dask_simjoin.planning.entity_chunks import (
    BY_WORKER,
    Chunking,
    Shuffled,
    Sources,
    is_shuffled,
)
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import BATCH, FEW
from dask_simjoin.tasks.by_worker import unpack_partitions, unpack_together
from dask_simjoin.tasks.chunks import (
    gather_chunk,
    index_partitions,
    make_chunk,
    read_chunk,
    read_points,
)
from dask_simjoin.tasks.shuffle import unpack

Call = tuple[Callable[..., Any], list[Any], dict[str, Any]]
"""A function, its arguments, and its options."""


class Chunks(LabelledExpr):
    """The indexed chunks of a table. The class is not Blockwise, because Dask would
    then fuse the indexing into each block pair.

    `run`: the name of the run that tasks record their times for.
    """

    _label = INDEX
    _parameters = ["run"]

    @property
    def _copies(self) -> int:
        """The number of workers that get a copy of each chunk."""
        return 1

    @property
    def _number(self) -> int:
        """The number of chunks."""
        return len(self.operand("pieces"))

    def _inputs(self) -> tuple[list[Any], dict[Any, Any]]:
        """Return the keys of the partitions that chunks are made from, and a graph with
        the tasks that make them.
        """
        return partition_tasks(self.operand("frozen").inner)

    def _calls(self, parts: list[TaskRef]) -> Iterator[Call]:
        """Yield the call that makes each chunk. `parts`: the partitions of `_inputs`."""
        raise NotImplementedError

    def _divisions(self) -> Any:
        return (None,) * (1 + self._number)

    def _layer(self) -> dict[Any, Any]:
        keys, layer = self._inputs()
        calls = self._calls([TaskRef(key) for key in keys])
        for c, (function, args, options) in enumerate(calls):
            for key in self._keys(c):
                layer[key] = Task(key, function, *args, **options)
        return layer | self._waiting()

    def _waiting(self) -> dict[Any, Any]:
        """Return the tasks that end after the copies of a chunk are made."""
        if self._copies == 1:
            return {}
        layer = {}
        for c in range(self._number):
            for end, key in zip(self._ends(c), self._keys(c), strict=True):
                layer[end] = Task(end, nothing_of, TaskRef(key))
        return layer

    def _keys(self, c: int) -> list[tuple[Any, ...]]:
        """List the keys of the copies of a chunk. Each copy is made by a separate task,
        on another worker.
        """
        others = (on_worker_of(n, c) for n in range(1, self._copies))
        return [self.key(c), *((self._name, place) for place in others)]

    def _ends(self, c: int) -> list[tuple[Any, ...]]:
        """List the keys of tasks without a result, which end after a copy of a chunk is
        made.
        """
        label = self._name.replace(self._label, "simjoin_copied")
        return [(label, on_worker_of(n, c)) for n in range(self._copies)]

    def chunk_ref(self, c: int, part: int = 0) -> TaskRef | Task:
        """Return a reference to a chunk. If several workers have a copy, choose the
        copy for one part of the work. `part`: number of the part.

        Parts use the copies in turn, because later parts often have less work. Each
        part waits until all copies are made: workers cannot send rows to each other
        while their GPUs are busy.
        """
        if self._copies == 1:
            return TaskRef(self.key(c))
        own = TaskRef(self._keys(c)[part % self._copies])
        return picked(List(own, *map(TaskRef, self._ends(c))), 0)


def nothing_of(made: Any) -> None:
    """Return nothing, because only the end of the task matters."""


class IndexedPartitions(Chunks):
    """Chunks that are the partitions of an expression, which has indexed them."""

    _parameters = ["frozen", "run"]
    _defaults = {"run": NO_RUN}

    @property
    def _number(self) -> int:
        return int(self.operand("frozen").inner.npartitions)

    def _layer(self) -> dict[Any, Any]:
        keys, layer = self._inputs()
        for c, key in enumerate(keys):
            layer[self.key(c)] = layer.pop(key).substitute({}, key=self.key(c))
        return layer

    def _fused(self, layer: dict[Any, Any]) -> dict[Any, Any]:
        return fuse_with_shuffles(layer, SEND, self._label)


class GatheredChunks(Chunks):
    """Chunks that are gathered from the points of partitions.

    `pieces`: for each chunk, the pieces of partitions that it consists of. `threads`:
    number of threads that index a chunk. `copies`: number of workers that get a copy of
    each chunk.
    """

    _parameters = ["frozen", "pieces", "layout", "threads", "copies", "run"]
    _defaults = {"copies": 1, "run": NO_RUN}

    @property
    def _copies(self) -> int:
        return int(self.operand("copies"))

    def _calls(self, parts: list[TaskRef]) -> Iterator[Call]:
        layout, options = self.operand("layout"), {"threads": self.operand("threads")}
        for pieces in self.operand("pieces"):
            rows = [(start, stop) for _, start, stop in pieces]
            own = (parts[n] for n, _, _ in pieces)
            yield gather_chunk, [layout, rows, *own], options


class ReadChunks(Chunks):
    """Chunks of whole partitions in memory. One task reads and indexes each chunk.

    `each`: fingerprints of the partitions. `named`: whether the result has row ids. For
    the other operands, see `GatheredChunks`.
    """

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

    @property
    def _copies(self) -> int:
        return int(self.operand("copies"))

    def _calls(self, parts: list[TaskRef]) -> Iterator[Call]:
        each, layout = self.operand("each"), self.operand("layout")
        how = [self.operand(name) for name in ("spec", "threads", "named")]
        for pieces in self.operand("pieces"):
            rows = [(start, stop) for _, start, stop in pieces]
            known = [each[n] for n, _, _ in pieces]
            own = (parts[n] for n, _, _ in pieces)
            yield on_worker, [read_chunk, layout, rows, known, *how, *own], {}


class WholePartitions(Chunks):
    """Chunks of whole partitions of a small pandas frame. One task reads and indexes
    each chunk.

    For the operands, see `ReadChunks`.
    """

    _parameters = ["frozen", "pieces", "spec", "layout", "threads", "named", "run"]
    _defaults = {"run": NO_RUN}

    def _inputs(self) -> tuple[list[Any], dict[Any, Any]]:
        return [], {}

    def _calls(self, parts: list[TaskRef]) -> Iterator[Call]:
        small = take_small_frame(self.operand("frozen"))
        how = [self.operand(name) for name in ("layout", "spec", "threads", "named")]
        for pieces in self.operand("pieces"):
            sizes = [stop - start for _, start, stop in pieces]
            rows = small.part(pieces[0][0], pieces[-1][0] + 1)
            yield on_worker, [index_partitions, *how, sizes, rows], {}


class Unpacked(Chunks):
    """Chunks that are made without Dask's shuffle: each task copies its rows from packed
    partitions, in the memory of one process.
    """

    _parameters = ["frozen", "number", "example", "spec", "layout", "run"]
    _defaults = {"run": NO_RUN}

    @property
    def _number(self) -> int:
        return int(self.operand("number"))

    def _calls(self, parts: list[TaskRef]) -> Iterator[Call]:
        own = [self.operand(name) for name in ("example", "spec", "layout")]
        for c in range(self._number):
            yield unpack, [c, *own, *parts], {}


class ChunksOfParcels(Chunks):
    """Chunks that are made from the parcels that workers have packed.

    `regions`: None, or the shared `ClusterChunks`. If given, a chunk's own rows and its
    halo are indexed together. `workers`: number of workers. `threads`: number of threads
    that index a chunk.
    """

    _parameters = [
        "parcels",
        "number",
        "offsets",
        "example",
        "layout",
        "workers",
        "threads",
        "regions",
        "run",
    ]
    _defaults = {"regions": None, "run": NO_RUN}

    @property
    def _number(self) -> int:
        return int(self.operand("number"))

    def place(self, c: int) -> Any:
        """Return the end of the keys of tasks that make or use chunk `c`."""
        return on_worker_of(c * self.operand("workers") // self._number, c)

    def _inputs(self) -> tuple[list[Any], dict[Any, Any]]:
        """Pick the parcels of all chunks, so that workers send one parcel instead of all
        parcels of a thread.
        """
        layer: dict[Any, Any] = {}
        sent = f"simjoin_parcel-{self.deterministic_token}"
        for c in range(self._number):
            for g in range(self.parcels.npartitions):
                key = (sent, self.parcels.place(g, c))
                layer[key] = Task(key, pick, TaskRef(self.parcels.key(g)), c)
        return list(layer), layer

    def _calls(self, parts: list[TaskRef]) -> Iterator[Call]:
        groups, regions = self.parcels.npartitions, self.operand("regions")
        names, offsets = ("example", "layout", "threads"), self.offsets
        own = [self.operand(name) for name in names]
        for c in range(self._number):
            parcels = parts[c * groups : (c + 1) * groups]
            if regions is None:
                yield unpack_partitions, [*own, offsets.ref, *parcels], {}
            else:
                yield unpack_together, [c, regions.ref, *own, *parcels], {}


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
            self._name, (side.key(c) for side in sides for c in range(side.npartitions))
        )

    def chunk_ref(self, c: int, part: int = 0) -> TaskRef | Task:
        """Return a reference to a chunk: see `Chunks`."""
        first = self.left.npartitions
        found: TaskRef | Task = (
            self.left.chunk_ref(c, part)
            if c < first
            else self.right.chunk_ref(c - first, part)
        )
        return found


@dataclass(frozen=True)
class ChunkSource:
    """A table, and how a plan makes chunks of it."""

    source: FrozenSource
    spec: JoinSpec
    sources: Sources
    chunks: Chunking
    plan: Plan
    output: OutputSpec

    @property
    def _each(self) -> Listed:
        return Listed(list(enumerate(self.sources)))

    @property
    def _run(self) -> RunName:
        return RunName(self.plan.run)

    def indexed(self) -> Chunks:
        """Make the indexed chunks of the table."""
        source, chunks, copies = self.source, self.chunks, self.plan.work.copies
        if copies > 1:
            place_tasks()
        if is_shuffled(chunks):
            return self._shuffled(chunks)
        if is_read_by_chunk(source, self.spec, chunks, copies):
            return self._of_small_frame()
        # tasks read the rows, so the small frame is not needed any more
        source.small = None
        if chunks.are_partitions(self.sources):
            return self._of_partitions()
        apart = copies > 1 and self.spec.library == "cudf" and len(self.spec.on) > FEW
        if is_held(source.simple) and not is_cut(chunks) and not apart:
            return self._read()
        return self._gathered()

    def _shuffled(self, chunks: Shuffled) -> Chunks:
        if chunks.method == BY_WORKER:
            held = held_by_workers(self.source)
            # values return to the tasks that sent the rows, so there must be such tasks
            if held is not None or self.output.halo:
                return self._by_worker(held, chunks)
        parcels = len(self.sources) * len(chunks)
        alone = chunks.method == "tasks" and not self.spec.settings.cluster
        if alone and parcels <= BATCH:
            return self._unpacked(chunks)
        moved = shuffled_chunks(
            self.source,
            self.spec,
            self.plan.layout,
            chunks,
            self._each,
            self.output.with_ids,
            self.plan.indexing.sent,
            self.plan.indexing.threads,
        )
        return IndexedPartitions(FrozenSource(moved), self._run)

    def _by_worker(self, held: FromGraph | None, chunks: Shuffled) -> Chunks:
        place_tasks()
        limits = limits_for(self.spec.library)
        parcels, regions, offsets = parcels_by_worker(
            self.source,
            held,
            self.spec,
            chunks,
            self._each,
            self.output.with_ids,
            limits,
        )
        return ChunksOfParcels(
            parcels,
            len(chunks),
            offsets,
            self.source.inner._meta.iloc[:0],
            self.plan.layout,
            limits.workers,
            self.plan.indexing.threads,
            regions,
            self._run,
        )

    def _unpacked(self, chunks: Shuffled) -> Chunks:
        packed = packed_rows(
            self.source, self.spec, chunks, self._each, self.output.with_ids
        )
        example = self.source.inner._meta.iloc[:0]
        return Unpacked(
            packed, len(chunks), example, self.spec, self.plan.layout, self._run
        )

    def _of_small_frame(self) -> Chunks:
        return WholePartitions(
            self.source,
            Listed(self.chunks.pieces),
            self.spec,
            self.plan.layout,
            self.plan.indexing.threads,
            self.output.with_ids,
            self._run,
        )

    def _of_partitions(self) -> Chunks:
        made = map_frozen(
            "simjoin_chunk",
            make_chunk,
            self.source,
            self.spec,
            self.plan.layout,
            each=self._each,
        )
        return IndexedPartitions(FrozenSource(made), self._run)

    def _read(self) -> Chunks:
        return ReadChunks(
            FrozenSource(self.source.simple),
            self._each,
            Listed(self.chunks.pieces),
            self.spec,
            self.plan.layout,
            self.plan.indexing.threads,
            self.output.with_ids,
            self.plan.work.copies,
            self._run,
        )

    def _gathered(self) -> Chunks:
        read = map_frozen(
            "simjoin_points", read_points, self.source, self.spec, each=self._each
        )
        return GatheredChunks(
            FrozenSource(read),
            Listed(self.chunks.pieces),
            self.plan.layout,
            self.plan.indexing.threads,
            self.plan.work.copies,
            self._run,
        )
